"""Whose checkpoint is it: the project's own, or another program's?"""

from __future__ import annotations

import json
from pathlib import Path

from streamgauge.simulate.checkpoint import SIDECAR
from streamgauge.simulate.formats.detect import ADAPTERS
from streamgauge.simulate.formats.shards import CONFIG, INDEX, Shards
from streamgauge.theory.errors import InputError


def is_foreign(source: Path) -> bool:
    """Whether ``source`` is a folder that another program wrote.

    Its config.json does not claim this project's format, and it has an index or tensors of a known format; a folder
    that can be nobody's is left to the reader of the project's own checkpoints.
    **Raises** :class:`InputError` for a sidecar: only its source says what the network is.
    """
    if not source.is_dir():
        return False
    if (source / SIDECAR).is_file():
        raise InputError(f"{source}: holds a converted sidecar, expected the checkpoint that it was made from")
    try:
        config = json.loads((source / CONFIG).read_bytes())
    except FileNotFoundError:
        config = {}
    except (OSError, ValueError, RecursionError):
        return (source / INDEX).is_file()
    if isinstance(config, dict) and "format" in config:
        return False
    if (source / INDEX).exists():
        return True
    try:
        shards = Shards(source)
    except InputError:
        return isinstance(config, dict) and "model_type" in config
    return any(adapter.fits(shards) for adapter in ADAPTERS.values())
