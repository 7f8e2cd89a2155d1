"""Ranks of composites, and the multiplicities they imply: the rank formula, as a cross-check of the barcode.

    mu[b, d] = r(b, d) - r(b - 1, d) - r(b, d + 1) + r(b - 1, d + 1),     r(-1, .) = r(., L + 1) = 0,

with r(i, j) the rank of ``A_{j-1} .. A_i`` from level i to level j, r(i, i) = n_i.  This module shares no code with
the interval basis: it carries a reduced basis of every image forward, one composite at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flint

from streamgauge.theory.errors import InputError

Field = Any
"""``flint.fmpq_mat`` or ``flint.nmod_mat``."""


def rank_table(mixers: Sequence[Field], dims: Sequence[int]) -> dict[tuple[int, int], int]:
    """r(i, j) for 0 <= i <= j <= L; maps of shape (n_{l+1}, n_l), all over Q or all over one GF(p).

    Cost: O(L^2 n^3) field operations.
    """
    table: dict[tuple[int, int], int] = {}
    levels = len(mixers)
    for i in range(levels + 1):
        table[i, i] = rank = dims[i]
        span: Field | None = None  # rows: a basis of the image in level j
        for j in range(i, levels):
            if rank:
                rows = mixers[j].transpose() if span is None else span * mixers[j].transpose()
                span, rank = rows.rref()
                span = _first_rows(span, rank)
            table[i, j + 1] = rank
    return table


def multiplicities(table: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """{(birth, death): count} for every interval that occurs, by the rank formula."""
    last = max(j for _, j in table)

    def r(i: int, j: int) -> int:
        return table[i, j] if i >= 0 and j <= last else 0

    counts = {(b, d): r(b, d) - r(b - 1, d) - r(b, d + 1) + r(b - 1, d + 1) for b, d in table}
    return {bar: count for bar, count in sorted(counts.items()) if count}


def composite(mixers: Sequence[Field], i: int, j: int) -> Field:
    """``A_{j-1} .. A_i``, multiplied out (i < j)."""
    if not 0 <= i < j <= len(mixers):
        raise InputError(f"composite: found levels {i} to {j}, expected 0 <= i < j <= {len(mixers)}")
    product = mixers[i]
    for a in mixers[i + 1 : j]:
        product = a * product
    return product


def _first_rows(matrix: Field, keep: int) -> Field:
    entries = [x for row in matrix.tolist()[:keep] for x in row]
    if isinstance(matrix, flint.nmod_mat):
        return flint.nmod_mat(keep, matrix.ncols(), entries, matrix.modulus())
    return flint.fmpq_mat(keep, matrix.ncols(), entries)
