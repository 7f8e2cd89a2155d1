"""The header of a safetensors file, read without the library, so that dtypes it does not know pass through.

A file is 8 bytes (little-endian N), N bytes of JSON ``{name: {"dtype", "shape", "data_offsets": [begin, end]}}`` and
the data; offsets count from the end of the header.  Source: the format's own page (safetensors README, "Format").
A block-scaled fp4 or e8m0 tensor is only a byte range here: it is never decoded.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats

MAX_HEADER = 100_000_000
"""The library's own limit on N."""
BITS = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Bits per entry of the dtypes whose size is checked; any other name is taken at its byte range."""
NUMBERS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Dtypes that hyper-connection tensors may have, and how numpy reads their bytes."""


@dataclass(frozen=True)
class Entry:
    """One tensor of one file: ``begin`` and ``end`` are absolute byte offsets in the file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def size(self) -> int:
        """Bytes of data."""
        return self.end - self.begin


def read_header(path: Path) -> tuple[dict[str, Entry], dict[str, str], int]:
    """Entries, ``__metadata__`` and header bytes of the file at ``path``.

    **Raises** :class:`InputError` naming the file and the tensor: not safetensors, truncated, sizes that do not fit
    dtype and shape, byte ranges that overlap or leave holes.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(8)
        if len(head) < 8:
            raise InputError(f"{path}: {size} bytes, expected a safetensors file (at least 8)")
        length = int(struct.unpack("<Q", head)[0])
        if head[:4] == b"PK\x03\x04" or (head[:1] == b"\x80" and head[1] < 6):
            raise InputError(f"{path}: is a pickle (torch.save) file, expected safetensors; pickles are never loaded")
        if length > MAX_HEADER:
            raise InputError(f"{path}: header of {length} bytes, expected safetensors (at most {MAX_HEADER})")
        if 8 + length > size:
            raise InputError(f"{path}: truncated inside its header, {size} bytes of at least {8 + length}")
        text = stream.read(length)
    document = _document(text, path)
    metadata = document.pop("__metadata__", {})
    if not isinstance(metadata, Mapping) or not all(isinstance(value, str) for value in metadata.values()):
        raise InputError(f"{path}: __metadata__ is not an object of strings")
    entries = {name: _entry(name, spec, path, 8 + length) for name, spec in document.items()}
    _tiles(entries, path, 8 + length, size)
    return entries, dict(metadata), 8 + length


def decode(entry: Entry, raw: bytes) -> Floats:
    """The numbers of one tensor in float64. Refuses dtypes that hold no plain numbers, and NaN."""
    if entry.dtype not in NUMBERS:
        raise InputError(
            f"{entry.file.name}: tensor {entry.name} has dtype {entry.dtype}, expected {', '.join(NUMBERS)}"
        )
    flat = np.frombuffer(raw, dtype=NUMBERS[entry.dtype])
    if entry.dtype == "BF16":  # the upper half of a float32
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    out = flat.astype(np.float64).reshape(entry.shape)
    bad = ~np.isfinite(out)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"{entry.file.name}: tensor {entry.name} has {out[at]} at {at}, expected finite numbers")
    return out


def _document(text: bytes, path: Path) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
        return out

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: header is not JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: header is not an object, expected safetensors")
    return document


def _entry(name: str, spec: Any, path: Path, start: int) -> Entry:
    def natural(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63

    where = f"{path}: tensor {name}"
    if not isinstance(spec, Mapping) or not {"dtype", "shape", "data_offsets"} <= set(spec):
        raise InputError(f"{where}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = spec["dtype"], spec["shape"], spec["data_offsets"]
    if not isinstance(dtype, str) or not isinstance(shape, list) or not all(map(natural, shape)):
        raise InputError(f"{where}: found dtype {dtype!r} and shape {shape!r}, expected a name and sizes")
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or not all(map(natural, offsets))
        or offsets[0] > offsets[1]
    ):
        raise InputError(f"{where}: found data_offsets {offsets!r}, expected [begin, end]")
    if dtype in BITS and (offsets[1] - offsets[0]) * 8 != prod(shape) * BITS[dtype]:
        raise InputError(f"{where}: {offsets[1] - offsets[0]} bytes do not hold {dtype} of shape {tuple(shape)}")
    return Entry(name, path, dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _tiles(entries: Mapping[str, Entry], path: Path, start: int, size: int) -> None:
    at = start
    for entry in sorted(entries.values(), key=lambda e: (e.begin, e.end)):
        if entry.begin != at:
            what = "overlaps the one before it" if entry.begin < at else f"leaves a hole of {entry.begin - at} bytes"
            raise InputError(f"{path}: tensor {entry.name} {what}, expected the data without gaps")
        at = entry.end
    if at != size:
        state = "truncated" if size < at else "has bytes that no tensor owns"
        raise InputError(f"{path}: {state}, {size} bytes where the header says {at}")
