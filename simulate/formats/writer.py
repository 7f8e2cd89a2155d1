"""A safetensors file written tensor by tensor, its metadata last: nothing is held but the tensor in hand.

The header stands first in the file and metadata stands in the header, so room for it is reserved and padded with
spaces (the format allows trailing spaces); data starts on a multiple of 8.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from streamgauge.simulate.formats.headers import read_header
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats


def amend(path: Path, tensors: Mapping[str, Floats], metadata: Mapping[str, str]) -> None:
    """Overwrite float64 tensors of a :class:`TensorWriter`'s file in place, and its metadata in the room kept for it.

    Not atomic: for a file that nobody sees yet.  **Raises** :class:`InputError` for tensors the file has not, another
    shape, or metadata that do not fit.
    """
    entries, _, start = read_header(path)
    table: dict[str, Any] = {"__metadata__": dict(metadata)}
    for name, entry in entries.items():
        offsets = [entry.begin - start, entry.end - start]
        table[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    header = json.dumps(table).encode()
    if len(header) > start - 8:
        raise InputError(f"sidecar: metadata of {len(header)} bytes, expected room for {start - 8}")
    with path.open("r+b") as stream:
        for name, array in tensors.items():
            made = np.ascontiguousarray(array, dtype="<f8")
            if name not in entries or (entries[name].dtype, entries[name].shape) != ("F64", made.shape):
                raise InputError(f"sidecar: tensor {name} has shape {made.shape}, which the file has not")
            if not np.isfinite(made).all():
                raise InputError(f"sidecar: tensor {name} is not finite in float64")
            stream.seek(entries[name].begin)
            stream.write(made.tobytes())
        stream.seek(8)
        stream.write(header.ljust(start - 8))
        stream.flush()
        os.fsync(stream.fileno())


class TensorWriter:
    """Writes float64 tensors of the names and shapes of ``layout``, in that order.

    ``reserve``: bytes kept for the metadata; :meth:`finish` refuses more.  Without :meth:`finish` the file has no
    header and is no safetensors file.
    """

    def __init__(self, path: Path, layout: Mapping[str, tuple[int, ...]], reserve: int) -> None:
        self.layout = dict(layout)
        self._names = list(layout)
        self._next = 0
        at, self._table = 0, {}
        for name, shape in layout.items():
            size = 8 * prod(shape)
            self._table[name] = {"dtype": "F64", "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        self._length = -(-(len(json.dumps(self._table)) + reserve) // 8) * 8
        self._stream = path.open("wb")
        self._stream.seek(8 + self._length)

    def put(self, name: str, array: Floats) -> None:
        """The next tensor; its bytes go out in C order whatever the array's strides."""
        expected = self._names[self._next] if self._next < len(self._names) else "nothing more"
        if name != expected:
            raise InputError(f"sidecar: tensor {name} was written where {expected} belongs")
        made = np.ascontiguousarray(array, dtype="<f8").reshape(np.shape(array))
        if made.shape != self.layout[name]:
            raise InputError(f"sidecar: tensor {name} has shape {made.shape}, expected {self.layout[name]}")
        if not np.isfinite(made).all():
            raise InputError(f"sidecar: tensor {name} is not finite in float64")
        self._stream.write(made.data if made.flags.c_contiguous and made.size else made.tobytes())
        self._next += 1

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Header and metadata, and everything on disk."""
        if self._next != len(self._names):
            raise InputError(f"sidecar: tensor {self._names[self._next]} was never written")
        document: dict[str, Any] = {"__metadata__": dict(metadata), **self._table}
        header = json.dumps(document).encode()
        if len(header) > self._length:
            raise InputError(f"sidecar: metadata of {len(header)} bytes, expected room for {self._length}")
        self._stream.seek(0)
        self._stream.write(struct.pack("<Q", self._length) + header.ljust(self._length))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def __enter__(self) -> TensorWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
