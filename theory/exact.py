"""Exact rational linear algebra on ``flint.fmpq_mat``: the thin layer everything exact stands on.

Matrix-level flint calls are used throughout (about 10 times faster than element loops).  Scalars that may come
in: ``int``, ``Fraction``, numpy integers, sympy integers and rationals, flint ``fmpz`` and ``fmpq``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def scalar(value: Any) -> flint.fmpq:
    """The rational ``value`` as ``fmpq``; TypeError where it is not an exact scalar."""
    if isinstance(value, flint.fmpq):
        return value
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{value!r} is a truth value, not a number")
    if isinstance(value, int | flint.fmpz):
        return flint.fmpq(value)
    if isinstance(value, Fraction):
        return flint.fmpq(value.numerator, value.denominator)
    if isinstance(value, np.integer):
        return flint.fmpq(int(value))
    if getattr(value, "is_Rational", False):  # sympy Integer, Rational
        return flint.fmpq(int(value.p), int(value.q))
    raise TypeError(f"{value!r} ({type(value).__name__}) is not an exact scalar")


def from_floats(array: Floats) -> flint.fmpq_mat:
    """The float64 matrix as the exact dyadic rationals it holds."""
    rows, cols = array.shape
    entries = [flint.fmpq(*float(x).as_integer_ratio()) for x in array.ravel()]
    return flint.fmpq_mat(rows, cols, entries)


def to_floats(matrix: flint.fmpq_mat) -> Floats:
    """Nearest float64 of every entry (correctly rounded; OverflowError beyond the range)."""
    out = np.empty((matrix.nrows(), matrix.ncols()))
    for i in range(matrix.nrows()):
        for j in range(matrix.ncols()):
            entry = matrix[i, j]
            out[i, j] = int(entry.p) / int(entry.q)  # rounds as Fraction does, without its gcd
    return out


def fraction(value: flint.fmpq) -> Fraction:
    """``fmpq`` to ``Fraction``."""
    return Fraction(int(value.p), int(value.q))


def log2(value: Fraction) -> float:
    """log2 |value| to round-off, also beyond the range of float64; -inf at 0."""
    top, bottom = abs(value.numerator), value.denominator
    if not top:
        return -math.inf
    shift = top.bit_length() - bottom.bit_length()
    return shift + math.log2((top << max(0, -shift)) / (bottom << max(0, shift)))


def shown(value: Fraction) -> str:
    """The number for a message; beyond 40 digits its size alone (Python refuses to print 4300)."""
    size = log2(value)
    if value and max(abs(value.numerator), value.denominator) >= 10**40:
        return f"{'-' if value < 0 else ''}2^{size:.6g}"
    return str(value)


def identity(n: int) -> flint.fmpq_mat:
    """The n by n identity."""
    return flint.fmpq_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])


def zeros(rows: int, cols: int) -> flint.fmpq_mat:
    """A zero matrix."""
    return flint.fmpq_mat(rows, cols)


def columns(matrix: flint.fmpq_mat, keep: Sequence[int]) -> flint.fmpq_mat:
    """The columns of ``matrix`` named by ``keep``, in that order."""
    rows = matrix.nrows()
    return flint.fmpq_mat(rows, len(keep), [matrix[i, j] for i in range(rows) for j in keep])


def kernel_vector(matrix: flint.fmpq_mat) -> flint.fmpq_mat | None:
    """A non-zero column v with ``matrix v = 0`` (integer entries without common factor), or None."""
    reduced, rank = matrix.rref()
    cols = matrix.ncols()
    if rank == cols:
        return None
    pivots = pivot_columns(reduced, rank)
    free = next(j for j in range(cols) if j not in pivots)
    entries = [flint.fmpq(0)] * cols
    entries[free] = flint.fmpq(1)
    for row, col in enumerate(pivots):
        entries[col] = -reduced[row, free]
    numerators, _ = flint.fmpq_mat(cols, 1, entries).numer_denom()
    return flint.fmpq_mat(numerators)


def pivot_columns(reduced: flint.fmpq_mat, rank: int) -> list[int]:
    """Pivot columns of a reduced row echelon form of the given rank."""
    pivots, col = [], 0
    for row in range(rank):
        while reduced[row, col] == 0:
            col += 1
        pivots.append(col)
        col += 1
    return pivots
