"""A checkpoint folder that other programs wrote, opened lazily: headers first, single tensors on demand.

``model.safetensors.index.json`` names the shard of every tensor; without one, a single ``*.safetensors`` file.
Headers and index must agree exactly, both ways: what the index says and the shards do not hold (or the reverse)
would be silently random or silently lost in the program that loads it.

Nothing outside the folder is opened but the blobs of a hub cache's own repository (:mod:`.hub`): an index entry with
a directory in it, an absolute path or any other link that leads out is refused.  ``bytes_read`` counts headers and
the tensors that were asked for (safetensors files may be mapped whole, so process figures say nothing).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from streamgauge.simulate.formats.headers import Entry, decode, read_header
from streamgauge.simulate.formats.hub import is_own_blob
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats

INDEX, CONFIG = "model.safetensors.index.json", "config.json"
MAX_TEXT = 256 << 20
PICKLES = (".pt", ".pth", ".bin", ".ckpt")


class Shards:
    """The tensors of a folder by name, read on demand.

    - ``entries``: every tensor's dtype, shape and place; ``config``: config.json ({} where there is none).
    - ``bytes_read``, ``header_bytes``: what was requested so far; ``digests``: SHA-256 of every tensor read.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            what = "is a file" if self.folder.exists() else "not found"
            raise InputError(f"{self.folder}: {what}, expected a checkpoint folder (safetensors and {CONFIG})")
        self.config = _read_json(self.folder, CONFIG) or {}
        self.entries: dict[str, Entry] = {}
        self.header_bytes = self.bytes_read = 0
        self.digests: dict[str, str] = {}
        index = _read_json(self.folder, INDEX)
        self.files = _single(self.folder) if index is None else _indexed(self.folder, index)
        for file in self.files:
            self._open(file)
        if index is not None:
            _agree(index["weight_map"], self.entries, self.folder)

    def raw(self, name: str) -> bytes:
        """The bytes of one tensor as stored."""
        entry = self.entry(name)
        with entry.file.open("rb") as stream:
            stream.seek(entry.begin)
            out = stream.read(entry.size)
        if len(out) != entry.size:
            raise InputError(f"{entry.file}: tensor {name} is cut off (the file changed while it was read)")
        self.bytes_read += len(out)
        self.digests[name] = hashlib.sha256(out).hexdigest()
        return out

    def floats(self, name: str) -> Floats:
        """One tensor in float64, finite."""
        return decode(self.entry(name), self.raw(name))

    def entry(self, name: str) -> Entry:
        """Where a tensor is. **Raises** :class:`InputError` if there is none of that name."""
        if name not in self.entries:
            raise InputError(f"{self.folder}: tensor {name} is missing, expected it beside the others of its mixer")
        return self.entries[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return self.entry(name).shape

    def size(self, names: Iterable[str]) -> int:
        """Bytes of data of these tensors together."""
        return sum(self.entry(name).size for name in names)

    def fingerprint(self) -> str:
        """SHA-256 over name, dtype, shape and SHA-256 of every tensor read so far, in order of name."""
        digest = hashlib.sha256()
        for name in sorted(self.digests):
            entry = self.entries[name]
            line = json.dumps([name, entry.dtype, list(entry.shape), self.digests[name]])
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()

    def _open(self, file: Path) -> None:
        entries, _, length = read_header(file)
        self.header_bytes += length
        self.bytes_read += length
        for name, entry in entries.items():
            if name in self.entries:
                other = self.entries[name].file.name
                raise InputError(
                    f"{self.folder}: tensor {name} is in {other} and in {file.name}, expected one of them"
                )
            self.entries[name] = entry


def _single(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
    if len(found) == 1:
        return [_inside(folder, found[0].name, found[0].name)]
    if found:
        raise InputError(f"{folder}: {len(found)} safetensors files and no {INDEX}, expected an index or one file")
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLES)
    if pickles:
        raise InputError(f"{folder}: holds {pickles[0]}, a pickle; expected safetensors (pickles are never loaded)")
    raise InputError(f"{folder}: no safetensors file, expected model.safetensors or {INDEX}")


def _indexed(folder: Path, index: Mapping[str, Any]) -> list[Path]:
    where = f"{folder / INDEX}"
    table = index.get("weight_map")
    if not isinstance(table, Mapping) or not table:
        raise InputError(f"{where}: found no weight_map, expected tensor names with their files")
    names: dict[str, None] = {}
    for tensor, name in table.items():
        if not isinstance(name, str):
            raise InputError(f"{where}: tensor {tensor} has {name!r}, expected a file name")
        names.setdefault(name)
    files = [_inside(folder, name, where) for name in sorted(names)]
    stray = sorted(path.name for path in folder.iterdir() if path.suffix == ".safetensors" and path.name not in names)
    if stray:
        raise InputError(f"{folder}: {stray[0]} is not named by {INDEX}, expected every safetensors file to be")
    return files


def _inside(folder: Path, name: str, where: str) -> Path:
    """The file of that name in the folder itself."""
    if not name or name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InputError(f"{where}: names {name!r}, expected a file of the folder itself")
    path = folder / name
    home = folder.resolve()
    if path.resolve().parent != home and not is_own_blob(folder, path):
        raise InputError(
            f"{path}: is a link out of the folder, expected a file in it (or in the blobs of its own hub cache)"
        )
    if not path.is_file():
        what = "is no file" if path.exists() else "not found"
        raise InputError(f"{path}: {what}, expected the shard that {INDEX} names")
    return path


def _agree(table: Mapping[str, str], entries: Mapping[str, Entry], folder: Path) -> None:
    for tensor, name in table.items():
        if tensor not in entries:
            raise InputError(f"{folder / INDEX}: tensor {tensor} is not in {name}, expected it there")
        if entries[tensor].file.name != name:
            found = entries[tensor].file.name
            raise InputError(f"{folder / INDEX}: tensor {tensor} is in {found}, not in {name} as the index says")
    for tensor, entry in entries.items():
        if tensor not in table:
            raise InputError(f"{folder / INDEX}: tensor {tensor} of {entry.file.name} is not in the index")


def _read_json(folder: Path, name: str) -> dict[str, Any] | None:
    if not (folder / name).exists() and not (folder / name).is_symlink():
        return None
    path = _inside(folder, name, name)
    if path.stat().st_size > MAX_TEXT:
        raise InputError(f"{path}: {path.stat().st_size} bytes, expected at most {MAX_TEXT}")
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_unique_keys(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {type(document).__name__}, expected an object")
    return document


def _unique_keys(path: Path) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in pairs:
            if key in out:
                raise InputError(f"{path}: {key!r} stands twice, expected it once")
            out[key] = value
        return out

    return build
