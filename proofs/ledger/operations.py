"""Counting arithmetic by doing it: a number that counts, a residual site and a hyper-connection site in plain Python.

Nothing here is a formula for a cost: the sites run on :class:`Counted` numbers and the counter says what it took.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Numbers = list["Counted"]


@dataclass
class Tally:
    """How many additions, multiplications, divisions and elementary functions were done."""

    operations: int = 0


@dataclass(frozen=True)
class Counted:
    """A float that adds one to its tally whenever it takes part in an operation."""

    value: float
    tally: Tally

    def _made(self, value: float) -> Counted:
        self.tally.operations += 1
        return Counted(value, self.tally)

    def __add__(self, other: Counted) -> Counted:
        return self._made(self.value + other.value)

    def __mul__(self, other: Counted) -> Counted:
        return self._made(self.value * other.value)

    def __truediv__(self, other: Counted) -> Counted:
        return self._made(self.value / other.value)

    def apply(self, function: Callable[[float], float]) -> Counted:
        """One elementary function."""
        return self._made(function(self.value))


def sum_of(items: Sequence[Counted]) -> Counted:
    """len - 1 additions."""
    total = items[0]
    for item in items[1:]:
        total = total + item
    return total


def dot(left: Sequence[Counted], right: Sequence[Counted]) -> Counted:
    """len multiplications, len - 1 additions."""
    return sum_of([x * y for x, y in zip(left, right)])


class Bench:
    """Draws numbers on one tally."""

    def __init__(self, seed: int = 0) -> None:
        self.tally, self.dice = Tally(), random.Random(seed)

    def vector(self, n: int) -> Numbers:
        """n numbers in (-1, 1)."""
        return [Counted(self.dice.uniform(-1, 1), self.tally) for _ in range(n)]

    def matrix(self, rows: int, cols: int) -> list[Numbers]:
        """rows x cols numbers."""
        return [self.vector(cols) for _ in range(rows)]


def sweep(matrix: list[Numbers]) -> list[Numbers]:
    """Rows divided by their sums, then columns by theirs: one Sinkhorn sweep of a positive matrix."""
    for _ in range(2):
        matrix = [[x / total for x in row] for row in matrix for total in [sum_of(row)]]
        matrix = [list(column) for column in zip(*matrix)]
    return matrix


def branch(bench: Bench, z: Numbers, factor: int = 4) -> Numbers:
    """A plain two-layer network d -> factor d -> d: what both sites compute alike."""
    hidden = [dot(row, z).apply(math.tanh) for row in bench.matrix(factor * len(z), len(z))]
    return [dot(row, hidden) for row in bench.matrix(len(z), len(hidden))]


def residual_site(d: int, *, factor: int = 4) -> int:
    """Operations of ``x + F(x)``."""
    bench = Bench()
    x = bench.vector(d)
    for a, b in zip(x, branch(bench, x, factor)):
        a + b
    return bench.tally.operations


def hyper_site(n: int, d: int, *, sweeps: int, factor: int = 4) -> int:
    """Operations of one mHC site: coefficients from all streams, sweeps, read, branch, mix and write."""
    bench = Bench()
    state = bench.matrix(n, d)
    flat = [x for stream in state for x in stream]
    scale = dot(flat, flat).apply(lambda v: 1 / math.sqrt(v))
    raw = [dot(row, flat) * scale for row in bench.matrix(n * (n + 2), n * d)]
    coefficients = [x.apply(math.exp) for x in raw]
    read, write = coefficients[:n], coefficients[n : 2 * n]
    mixer = [coefficients[2 * n + i * n : 2 * n + (i + 1) * n] for i in range(n)]
    for _ in range(sweeps):
        mixer = sweep(mixer)
    y = branch(bench, [dot(read, column) for column in zip(*state)], factor)
    for row, r in zip(mixer, write):
        for column, out in zip(zip(*state), y):
            dot(row, column) + r * out
    return bench.tally.operations
