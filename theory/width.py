"""Minimum width: how many streams a pure iHC (A = I) needs, and how many a gated one, for a given depth kernel.

The depth kernel of a chain is everything the streams do between the branches.  Rows are the reads p_0 .. p_{L-1} and
the readout, columns the entry and the writes r_0 .. r_{L-1}:

    K[t, entry] = p_t Phi(t, 0) e,    K[t, j] = p_t Phi(t, j+1) r_j  for j < t,    K[t, j] unknown for j >= t,

Phi(t, s) = A_{t-1} .. A_s, p_L = c.  Every row knows a prefix of the columns, longer ones below: a *staircase*.

- Pure iHC, N streams: K[t, j] = p_t r_j for *all* t, j, so the kernel is realised iff some completion of the
  staircase has rank at most N.  With H_t = rank(rows >= t, columns known at t),

      N_min = sum_t H_t - sum_t rank(rows > t, columns known at t)          (Woerdeman, Linear Algebra Appl. 1989)

  and :func:`completion` constructs one: from left to right, a column whose known part depends on the pivots' same
  rows copies that combination upwards; any other is a new pivot, with zeros above.  A column's known rows are known
  in all columns before it, so the pivots count exactly the increases of rank in the formula.
- Gated iHC, any static chain (free A): max_t H_t streams, the rank of the Hankel block
  (:func:`hankel_realisation`, Ho and Kalman).

Exact over Q (``fmpq_mat``) or GF(p) (``nmod_mat``).  Cost O((L + k)^4) field operations for k entry columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flint

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.interval import beside

Field = Any
"""``flint.fmpq_mat`` or ``flint.nmod_mat``."""


@dataclass(frozen=True)
class Staircase:
    """A partial matrix: row i is given in its first ``known[i]`` columns, ``known`` not decreasing.

    What stands in the other places of ``matrix`` is ignored.

    **Raises** :class:`InputError` where ``known`` decreases, has another length or leaves the matrix.
    """

    matrix: Field
    known: tuple[int, ...]

    def __post_init__(self) -> None:
        rows, cols = self.matrix.nrows(), self.matrix.ncols()
        if len(self.known) != rows:
            raise InputError(f"known: found {len(self.known)} lengths, expected {rows}, one per row")
        for i, (before, now) in enumerate(zip((0, *self.known), self.known)):
            if not before <= now <= cols:
                raise InputError(f"known: row {i} has {now}, expected {before} to {cols} (a staircase)")


@dataclass(frozen=True)
class Completion:
    """``left @ right`` agrees with the staircase where it is given; ``left`` (rows, N), ``right`` (N, columns), N
    the minimal rank.  The columns of ``left`` are the completed columns number ``pivots``."""

    left: Field
    right: Field
    pivots: tuple[int, ...]

    @property
    def rank(self) -> int:
        """N."""
        return len(self.pivots)


def completion_rank(staircase: Staircase) -> int:
    """The smallest rank of a completion, by Woerdeman's formula."""
    known, total = staircase.known, 0
    for t, width in enumerate(known):
        if width != (known[t - 1] if t else 0):  # rows of one step count once, at the first of them
            later = next((i for i, w in enumerate(known) if w > width), len(known))
            total += _block(staircase.matrix, t, width).rank()
            if later < len(known):
                total -= _block(staircase.matrix, later, width).rank()
    return total


def hankel_rank(staircase: Staircase) -> int:
    """max_t rank(rows >= t, columns known at t): the streams that a chain with free mixers needs."""
    return max((_block(staircase.matrix, t, w).rank() for t, w in enumerate(staircase.known)), default=0)


def completion(staircase: Staircase) -> Completion:
    """A completion of minimal rank, as a product (see the module)."""
    given, known = staircase.matrix, staircase.known
    rows, cols = given.nrows(), given.ncols()
    pivots: list[list[Any]] = []  # completed columns
    names: list[int] = []
    weights: list[list[Any]] = []
    for c in range(cols):
        first = next((i for i, w in enumerate(known) if w > c), rows)
        target = [given[i, c] for i in range(first, rows)]
        found = _combination(given, [p[first:] for p in pivots], target)
        if found is None:
            pivots.append([0] * first + target)
            names.append(c)
            found = [0] * len(names[:-1]) + [1]
        weights.append(found)
    n = len(pivots)
    left = _made(given, rows, n, [p[i] for i in range(rows) for p in pivots])
    right = _made(given, n, cols, [w[k] if k < len(w) else 0 for k in range(n) for w in weights])
    return Completion(left, right, tuple(names))


def depth_kernel(chain: Chain) -> Staircase:
    """The staircase [entry | K] of an exact chain with reads and writes; rows: L reads, then the readout's (if any).

    **Raises** :class:`InputError` for float chains (a rank is decided here) and where reads, writes or the entry are
    missing.  Cost O(L^2 n^2).
    """
    if not chain.exact:
        raise InputError("chain: found float64 numbers, expected an exact chain (chain.rational() makes one)")
    reads, writes, entry = chain.reads, chain.writes, chain.entry
    if reads is None or writes is None or entry is None:
        name = "reads" if reads is None else "writes" if writes is None else "entry"
        raise InputError(f"chain: found no {name}, expected reads, writes and an entry")
    sites = len(chain)
    outputs = [*reads, *([] if chain.readout is None else [chain.readout])]
    cols, rows, known = entry.ncols() + sites, [], []
    carried = entry
    for t, out in enumerate(outputs):
        seen = out * carried
        rows += [[seen[i, j] if j < seen.ncols() else 0 for j in range(cols)] for i in range(seen.nrows())]
        known += [seen.ncols()] * seen.nrows()
        if t < sites:
            carried = beside(chain.mixers[t] * carried, writes[t])
    return Staircase(flint.fmpq_mat(len(rows), cols, [x for row in rows for x in row]), tuple(known))


def minimal_pure(chain: Chain) -> Chain:
    """The pure iHC (every mixer I) of the fewest streams with the depth kernel of ``chain``; entry and readout free.

    Reads and readout are the rows of the completion's left factor, entry and writes the columns of the right one.
    The same function for every choice of branches.  At least one stream is kept.
    """
    made = completion(depth_kernel(chain))
    sites, n = len(chain), max(1, made.rank)
    left, right = (made.left, made.right) if made.rank else (_zeros(made.left, 1), _zeros_row(made.right))
    width = right.ncols() - sites
    reads = [_rows(left, t, t + 1) for t in range(sites)]
    writes = [exact.columns(right, [width + j]) for j in range(sites)]
    readout = None if chain.readout is None else _rows(left, sites, left.nrows())
    return Chain([exact.identity(n)] * sites, reads, writes, exact.columns(right, range(width)), readout, dim=n)


def hankel_realisation(chain: Chain) -> Chain:
    """The chain of the fewest streams at every level with the depth kernel of ``chain``; levels differ in width.

    State at level t: the coordinates in a basis O_t of the columns of the Hankel block H_t (rows >= t, columns known
    at t).  O_{t+1} A_t = O_t without row t, O_{t+1} r_t = the new column, O_0 e = H_0.  No level has more than
    :func:`hankel_rank` streams, and by Theorem 2 it is a gated iHC of that width (idle slots allowed).
    At least one stream is kept at every level.
    """
    k = depth_kernel(chain)
    sites, width = len(chain), k.matrix.ncols() - len(chain)
    bases, mixers, reads, writes = [], [], [], []
    for t in range(sites + 1):
        block = _block(k.matrix, t, width + t)
        reduced, rank = block.rref()
        basis = exact.columns(block, exact.pivot_columns(reduced, rank))
        bases.append(basis if rank else _zeros(block, 1))  # nothing carried is read later: one idle stream
    for t in range(sites):
        later = _rows(bases[t], 1, bases[t].nrows())
        new = exact.columns(_block(k.matrix, t + 1, width + t + 1), [width + t])
        mixers.append(_coordinates(bases[t + 1], later))
        writes.append(_coordinates(bases[t + 1], new))
        reads.append(_rows(bases[t], 0, 1))
    entry = _coordinates(bases[0], _block(k.matrix, 0, width))
    readout = None if chain.readout is None else bases[sites]
    return Chain(mixers, reads, writes, entry, readout, dim=bases[0].ncols())


def _block(matrix: Field, first: int, width: int) -> Field:
    """Rows from ``first`` on, columns before ``width``."""
    rows = matrix.nrows() - first
    return _made(matrix, rows, width, [matrix[first + i, j] for i in range(rows) for j in range(width)])


def _combination(like: Field, columns: Sequence[Sequence[Any]], target: Sequence[Any]) -> list[Any] | None:
    """Weights with sum_k w_k columns[k] = target, or None."""
    height, width = len(target), len(columns)
    entries = [x for i in range(height) for x in (*(c[i] for c in columns), target[i])]
    reduced, rank = _made(like, height, width + 1, entries).rref()
    pivots = exact.pivot_columns(reduced, rank)
    if width in pivots:
        return None
    weights: list[Any] = [0] * width
    for row, col in enumerate(pivots):
        weights[col] = reduced[row, width]
    return weights


def _coordinates(basis: flint.fmpq_mat, columns: flint.fmpq_mat) -> flint.fmpq_mat:
    """X with basis X = columns; the basis has independent columns (or one of zeros) that span them."""
    reduced, rank = beside(basis, columns).rref()
    r, k = basis.ncols(), columns.ncols()
    return flint.fmpq_mat(r, k, [reduced[i, r + j] if i < rank else 0 for i in range(r) for j in range(k)])


def _rows(matrix: flint.fmpq_mat, low: int, high: int) -> flint.fmpq_mat:
    cols = matrix.ncols()
    return flint.fmpq_mat(high - low, cols, [matrix[i, j] for i in range(low, high) for j in range(cols)])


def _zeros(like: Field, cols: int) -> Field:
    return _made(like, like.nrows(), cols, [0] * (like.nrows() * cols))


def _zeros_row(like: Field) -> Field:
    return _made(like, 1, like.ncols(), [0] * like.ncols())


def _made(like: Field, rows: int, cols: int, entries: list[Any]) -> Field:
    if isinstance(like, flint.nmod_mat):
        return flint.nmod_mat(rows, cols, [int(x) for x in entries], like.modulus())
    return flint.fmpq_mat(rows, cols, entries)
