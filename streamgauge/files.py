"""A chain from a file: JSON, .npy, .npz or a checkpoint folder.

- JSON: a list of matrices (lists of rows).  Integers and "p/q" strings make an exact chain; with a decimal number
  anywhere, integers count as floats and strings are refused.
- .npy of shape (L, n, m), or .npz of L matrices in the archive's order: floats numeric, integers exact.
- A checkpoint folder: its static mixers in float64 (needs torch).
"""

from __future__ import annotations

import json
import re
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError

MAX_BYTES = 256 << 20
_RATIONAL = re.compile(r"[+-]?[0-9]{1,4300}(/[0-9]{1,4300})?")


def read_chain(path: str | Path) -> Chain:
    """The chain at ``path``.  **Raises** :class:`InputError`, one line naming the file and the place in it."""
    source = Path(path)
    if not source.exists():
        raise InputError(f"{source}: not found, expected matrices (.json, .npy, .npz) or a checkpoint folder")
    if source.is_dir():
        return _checkpoint(source)
    if source.stat().st_size > MAX_BYTES:
        raise InputError(f"{source}: {source.stat().st_size} bytes, expected at most {MAX_BYTES}")
    readers = {".json": _json, ".npy": _numpy, ".npz": _numpy}
    if source.suffix.lower() not in readers:
        found = f"extension {source.suffix!r}" if source.suffix else "no extension"
        raise InputError(f"{source}: found {found}, expected .json, .npy, .npz or a checkpoint folder")
    mixers = readers[source.suffix.lower()](source)
    try:
        return Chain(mixers)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _checkpoint(folder: Path) -> Chain:
    from streamgauge.simulate.inspection import checkpoint_chain

    return checkpoint_chain(folder)


def _json(path: Path) -> list[Any]:
    def constant(name: str) -> Any:
        raise ValueError(f"found {name}, expected finite numbers")

    try:
        document = json.loads(path.read_bytes(), parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({str(error) or type(error).__name__})") from None
    if not isinstance(document, list):
        raise InputError(f"{path}: found {_kind(document)}, expected a list of matrices (lists of rows)")
    floats = _holds(document, float)
    return [_matrix(matrix, floats, f"{path}: mixer {l}") for l, matrix in enumerate(document)]


def _matrix(matrix: Any, floats: bool, where: str) -> list[list[Any]]:
    if not isinstance(matrix, list) or any(not isinstance(row, list) for row in matrix):
        raise InputError(f"{where}: found no matrix, expected a list of rows, each a list of numbers")
    return [
        [_scalar(x, floats, f"{where}, entry ({i}, {j})") for j, x in enumerate(row)] for i, row in enumerate(matrix)
    ]


def _scalar(value: Any, floats: bool, where: str) -> int | float | Fraction:
    if isinstance(value, str):
        if floats:
            raise InputError(f"{where}: found {value!r} beside decimal numbers; expected one kind throughout")
        if not _RATIONAL.fullmatch(value) or ((slash := value.partition("/"))[1] and int(slash[2]) == 0):
            raise InputError(f"{where}: found {value[:40]!r}, expected p or p/q")
        return Fraction(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: found {_kind(value)}, expected a number or a 'p/q' string")
    if not floats:
        return value
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"{where}: integer beyond float64 beside decimal numbers; expected one kind") from None


def _holds(value: Any, kind: type) -> bool:
    return any(_holds(item, kind) for item in value) if isinstance(value, list) else isinstance(value, kind)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: repr(value).lower(), type(None): "null"}
    return names.get(type(value), "a number")


def _numpy(path: Path) -> list[Any]:
    try:
        stored = np.load(path, allow_pickle=False)
        arrays = [stored] if isinstance(stored, np.ndarray) else [stored[name] for name in stored.files]
    except (ValueError, OSError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not a readable numpy file, expected plain arrays ({error})") from None
    if len(arrays) == 1 and arrays[0].ndim == 3:
        arrays = list(arrays[0])
    for l, array in enumerate(arrays):
        if not np.issubdtype(array.dtype, np.floating) and not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"{path}: mixer {l} has dtype {array.dtype}, expected floats or integers")
        if array.ndim != 2:
            raise InputError(f"{path}: found shape {array.shape}, expected (L, n, m), or L matrices in an .npz")
    return arrays
