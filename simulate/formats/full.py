"""A complete checkpoint beside the source: the converted tensors, and everything else byte for byte.

Shards without replaced tensors are hard-linked (copied where links cannot go); shards that hold some are written anew
without them, byte ranges copied raw, so that dtypes nobody here knows pass through.  The new index names exactly what
is there: no replaced tensor can be reached, by the index or by reading a listed file through.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamgauge.simulate.formats.headers import Entry, read_header
from streamgauge.simulate.formats.hub import is_own_blob
from streamgauge.simulate.formats.shards import INDEX, Shards
from streamgauge.theory.errors import InputError

PREFIX = "streamgauge."
"""Before every converted tensor's name, which might otherwise be one of the source's (head.weight)."""
CONVERTED = "streamgauge.safetensors"
SINGLE = "model-00001-of-00002.safetensors"
"""A source's one file, rewritten: under its old name loaders would take it for the whole checkpoint."""
BLOCK = 1 << 22


def complete(shards: Shards, folder: Path, replaced: Iterable[str]) -> None:
    """Fill ``folder``, which holds :data:`CONVERTED`, with the rest of the checkpoint and the index.

    **Raises** :class:`InputError` where a file of the source would take the name of a new one.
    """
    gone = set(replaced)
    table: dict[str, str] = {}
    total = 0
    single = len(shards.files) == 1 and not (shards.folder / INDEX).exists()
    for file in shards.files:
        entries = [entry for entry in shards.entries.values() if entry.file == file]
        kept = [entry for entry in entries if entry.name not in gone]
        target = folder / (SINGLE if single else file.name)
        if target.exists():
            raise InputError(f"{file}: has the name of a converted file, expected another one")
        if len(kept) == len(entries) and not single:
            _link(file, target)
        elif kept:
            _rewrite(file, target, kept)
        table |= {entry.name: target.name for entry in kept}
        total += sum(entry.size for entry in kept)
    converted, _, _ = read_header(folder / CONVERTED)
    for entry in converted.values():
        table[entry.name] = CONVERTED
        total += entry.size
    _others(shards, folder)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(table.items()))}
    with (folder / INDEX).open("w", encoding="utf-8") as stream:
        json.dump(index, stream, indent=1)


def _rewrite(source: Path, target: Path, kept: list[Entry]) -> None:
    """The tensors kept, in their order in the file, with the file's metadata."""
    _, metadata, _ = read_header(source)
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    ordered, at = sorted(kept, key=lambda entry: entry.begin), 0
    for entry in ordered:
        header[entry.name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [at, at + entry.size],
        }
        at += entry.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with source.open("rb") as given, target.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for entry in ordered:
            _copy_range(given, out, entry, source)
        out.flush()
        os.fsync(out.fileno())


def _copy_range(given: Any, out: Any, entry: Entry, source: Path) -> None:
    given.seek(entry.begin)
    left = entry.size
    while left:
        block = given.read(min(left, BLOCK))
        if not block:
            raise InputError(f"{source}: tensor {entry.name} is cut off (the file changed while it was read)")
        out.write(block)
        left -= len(block)


def _others(shards: Shards, folder: Path) -> None:
    """Config, tokenizer, code: every other file, folders included; links are left out, but for a hub cache's own."""
    tensors = {file.name for file in shards.files}
    for path in sorted(shards.folder.rglob("*")):
        place = path.relative_to(shards.folder)
        linked = path.is_symlink() and not is_own_blob(shards.folder, path)
        if linked or str(place) == INDEX or str(place) in tensors:
            continue
        target = folder / place
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif path.is_file():
            if target.exists():
                raise InputError(f"{path}: has the name of a converted file, expected another one")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)  # of a link, the file itself: nothing here points into a cache
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
