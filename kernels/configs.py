"""Launch shapes, by plain functions: no autotuning, so that two runs and two machines compute the same bits.

A tile is ``tokens`` x (n padded to a power of two) x ``width``.  Nothing depends on the number of tokens, so that a
token's result does not depend on the batch around it.  The interpreter pays about 50 us an operation whatever the
tile, so there the tiles hold many tokens; :func:`device_tiles` gives the tiles of a device to a traffic count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch

_forced: list[bool] = []
_capability: list[int] = []


@dataclass(frozen=True)
class Tile:
    """One program's share: ``tokens`` x ``width`` of every stream, on ``warps`` warps, ``stages`` loads ahead."""

    tokens: int
    width: int
    warps: int = 4
    stages: int = 2
    parts: int = 1


def padded(n: int) -> int:
    """The least power of two that is at least n >= 1."""
    return 1 << (n - 1).bit_length()


@contextmanager
def device_tiles() -> Iterator[None]:
    """Inside, the interpreter too uses a device's tiles (slow; for counting bytes)."""
    _forced.append(True)
    try:
        yield
    finally:
        _forced.pop()


@contextmanager
def for_capability(number: int) -> Iterator[None]:
    """Inside, tiles are those of a device of that capability (90 is 9.0), for compiling without one."""
    _capability.append(number)
    try:
        yield
    finally:
        _capability.pop()


def capability() -> int:
    """The present device's compute capability times ten, 0 without a device."""
    return _capability[-1] if _capability else _present()


def _tensor_memory() -> bool:
    return 100 <= capability() < 120


@cache
def _present() -> int:
    if not torch.cuda.is_available():
        return 0
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def _small(interpreted: bool) -> bool:
    return interpreted and not _forced


def stream_tile(n: int, d: int, *, interpreted: bool) -> Tile:
    """Elementwise passes over all streams (read and write, forward and backward)."""
    if _small(interpreted):
        return Tile(16, 64)
    # Registers: 4096 elements of state on 8 warps, and at most 128 products of the mixer's gradient a thread.
    most = min(4096 // padded(n), 32768 // padded(n) ** 2)
    width = min(padded(d), most, 1024)
    return Tile(min(16, most // width), width, warps=8)


def matrix_tile(n: int, *, interpreted: bool) -> Tile:
    """Passes over one matrix (n, n) per token (Sinkhorn, activations); ``width`` is unused."""
    if _small(interpreted):
        return Tile(32, 1)
    # A matrix stays within one warp, so that its sums need no shared memory.
    return Tile(max(1, 128 // padded(n) ** 2), 1) if padded(n) <= 4 else Tile(1, 1, warps=1)


def rows_padded(m: int) -> int:
    """Rows of a projection as a tensor core takes them."""
    return max(16, padded(m))


def project_tile(n: int, d: int, m: int, *, interpreted: bool) -> Tile:
    """The projection of (T, n, d) on m rows; a step takes n * ``width`` numbers of a token."""
    if _small(interpreted):
        return Tile(16, max(64 // padded(n), 16))
    rows = rows_padded(m)
    columns = max(16, min(padded(n * d), 64, 8192 // rows))
    return Tile(max(16, min(64, 4096 // rows)), columns // padded(n), warps=8, stages=4 if rows <= 128 else 2)


def project_splits(n: int, d: int) -> int:
    """Parts of the width summed apart, so that few tokens fill a device; each costs 8 (m + 2) bytes a token."""
    return max(1, min(16, n * d // 8192))


def slice_tile(n: int, d: int, m: int, *, size: int, metric: bool, interpreted: bool) -> Tile:
    """The gradient of the state: a slice of ``parts`` pieces of ``width`` of every stream, ``tokens`` at a step.

    ``size``: bytes of a state element.  The sums of a slice take rows x columns registers, and W as much shared
    memory: as many pieces as compile without a spill at four streams, on Hopper and on what has less of either.
    """
    rows = rows_padded(m)
    columns = min(128, 16384 // rows)
    width = max(columns // padded(n), 1)
    if _small(interpreted):
        width, parts = 32, 2
    else:
        roomy = rows <= 32 and n <= 4 and d % 16 == 0 and capability() in (0, 90)
        most = 2 if size > 2 else 8 if roomy else 4
        parts = (most // 2 if metric else most) * 4096 // (rows * columns)
        if _tensor_memory():
            # Sums and factors lie in 512 columns there, but for products of fewer than 64 rows.
            width, parts = (max(32 // padded(n), 1), 1) if rows >= 64 else (width, min(parts, 3))
    return Tile(16, width, warps=8, stages=1, parts=max(1, min(parts, 8, -(-d // width))))


def shares(tokens: int, slices: int, tile: Tile, *, interpreted: bool) -> int:
    """Parts of the tokens whose weight gradients are summed apart; no token's own result depends on it.

    A program fills a multiprocessor, and the sums of every part are written and read again: at most 256 programs, two
    rounds on the 132 multiprocessors of an H200.
    """
    programs = 4 if _small(interpreted) else 256
    return max(1, min(programs // slices, -(-tokens // tile.tokens)))
