"""A Hugging Face hub cache's snapshot: a folder of links into the blobs of its own repository.

    models--org--name/snapshots/REVISION/model.safetensors -> ../../blobs/HASH

That layout is taken, and no other link out of a folder.  Source: huggingface_hub, "Understand caching".
"""

from __future__ import annotations

from pathlib import Path


def is_own_blob(folder: Path, path: Path) -> bool:
    """Whether ``path``, in the snapshot ``folder`` or below it, links to a regular file of its repository's blobs."""
    home = folder.resolve()
    repository = home.parent.parent
    blobs = repository / "blobs"
    if home.parent.name != "snapshots" or not repository.name.startswith("models--"):
        return False
    target = path.resolve()
    return path.is_symlink() and target.parent == blobs and target.is_file()
