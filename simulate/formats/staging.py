"""A folder that appears complete or not at all, also when the process is killed.

It is made beside its destination under a hidden name, held by a lock on the folder itself that the system drops when
the process ends, and renamed when finished.  What a killed run left behind is free, and removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamgauge.simulate.checkpoint import put_in_place
from streamgauge.theory.errors import InputError


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """A new folder to fill; renamed to ``target`` on success, removed otherwise.

    An existing target (the caller has checked that it may go) is replaced only after the new one is complete.
    **Raises** :class:`InputError` where the folder cannot be made or written.
    """
    prefix = f".{target.name}.partial."
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent, prefix)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    except OSError as error:
        raise InputError(f"{target}: cannot be created ({error.strerror}); expected a writable parent") from None
    lock = _lock(folder)
    try:
        yield folder
        folder.chmod(0o755)  # files have the user's own mode; a linked one is the source's and is left alone
        put_in_place(folder, target, "partial")  # as leftovers are called that are swept
    except OSError as error:
        raise InputError(f"{target}: cannot be written ({error.strerror or error})") from None
    finally:
        if lock is not None:
            os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder, or None where it is held already or the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Folders of that prefix that no process holds."""
    for folder in parent.iterdir():
        if folder.name.startswith(prefix) and folder.is_dir() and not folder.is_symlink():
            with contextlib.suppress(OSError):
                descriptor = _lock(folder)
                if descriptor is not None:
                    shutil.rmtree(folder, ignore_errors=True)
                    os.close(descriptor)
