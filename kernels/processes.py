"""Work that needs another mode of triton than this process has: a fresh process, asked and answering in JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def need_triton() -> None:
    """**Raises** ModuleNotFoundError without triton, ImportError in one line where it is broken."""
    if find_spec("triton") is None:
        raise ModuleNotFoundError("the kernels need triton", name="triton")
    try:
        import_module("streamgauge.kernels.triton_streams")
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ImportError(f"triton: found one that does not import ({said}), expected one that does") from error


def ask(
    module: str,
    question: Mapping[str, Any],
    *,
    interpret: bool,
    keep_cache: bool = False,
    patience: float | None = None,
) -> Any:
    """What ``python -m module QUESTION`` prints, with TRITON_INTERPRET set or not.

    The compiler's cache is empty, or with ``keep_cache`` the user's own.  ``patience``: seconds to wait at most.

    **Raises** what :func:`need_triton` does, RuntimeError with the last line a failed process said,
    or where it takes too long.
    """
    need_triton()
    with tempfile.TemporaryDirectory() as cache:
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        if not keep_cache:
            environment["TRITON_CACHE_DIR"] = cache
        if interpret:
            environment["TRITON_INTERPRET"] = "1"
        command = [sys.executable, "-m", module, json.dumps(question)]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False, timeout=patience
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{module}: not done after {patience:g} s, for {json.dumps(question)}") from None
    if ran.returncode:
        raise RuntimeError(f"{module}: {(ran.stderr.strip().splitlines() or ['it said nothing'])[-1]}")
    return json.loads(ran.stdout)


def question() -> dict[str, Any]:
    """What this process was asked, {} if nothing."""
    asked: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    return asked
