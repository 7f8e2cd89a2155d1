"""The interval basis of a chain (Theorem 2): ``A_l P_l = P_{l+1} E_l`` with every E_l 0/1 diagonal in slot order.

Elder rule by one row reduction a site.  With the columns of ``P_l`` kept in birth order, the reduced echelon form of
``M = A_l P_l`` has its pivots at the bars that live on; a column without a pivot depends on *elder* columns,
``M_c = sum_i R_ic M_piv(i)``, and its bar dies after subtracting that relation at every level of its life.  The
survivors' images, completed by unit vectors, are the columns at level l + 1.

Two facts make it cheap.

- The subtractions need no sweep of their own.  Bars alive at two levels are a prefix of the birth order, and elders
  live at least as long before, so all corrections together are one unipotent matrix a level, ``P_l := P_l C_l``, with
  ``C_l[piv, piv] = C_{l+1}[:r, :r]`` and ``C_l[:, c] = e_c - sum_i R_ic e_piv(i)``: copied, never multiplied.
- A factor at a site is a gauge.  The sweep runs on the integer matrices ``q_l A_l``; the denominators come back at
  the end, as one factor a column.

Cost: O(L n^3) ring operations; entries grow linearly in length with the longest bar.  The same code runs over GF(p).
Sources: Gabriel 1972; Carlsson and de Silva, Found. Comput. Math. 10 (2010); Jacquard, Nanda and Tillmann 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import flint
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import Bar

Ring = Any
"""A matrix the sweep runs on: ``flint.fmpz_mat`` (for Q) or ``flint.nmod_mat`` (for GF(p))."""
Newborns = Callable[[int, flint.fmpq_mat], flint.fmpq_mat]
Alive = tuple[int, int]
"""A living bar: (birth, slot).  Sorted, this is the birth order."""


@dataclass(frozen=True)
class IntervalBasis:
    """``A_l P_l = P_{l+1} E_l``.

    - ``gauge``: P_0 .. P_L, columns in increasing slot order.
    - ``slots``: for every level the slot of each column (increasing); square chains: 0 .. n-1 everywhere.
    - ``gates``: for every site the diagonal of E_l by slot, ints 0 or 1, length max n_l.
    - ``bars``: sorted by (birth, death, slot).  The birth order at a level is by (birth, slot).
    - ``ranks``: the rank of every A_l.
    """

    gauge: tuple[Any, ...]
    slots: tuple[tuple[int, ...], ...]
    gates: tuple[tuple[int, ...], ...]
    bars: tuple[Bar, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Event:
    """A site where bars die or are born.

    ``pivots`` and ``dead`` are columns of level l in birth order; the relation of the a-th dead column is
    ``factors[a] M_dead = sum_i relations[a][i] M_pivots[i]``.
    """

    pivots: list[int]
    dead: list[int]
    factors: list[Any]
    relations: list[list[Any]]


@dataclass(frozen=True)
class Sweep:
    """The forward pass: for every level the uncorrected columns in birth order and the bars they stand for; for every
    site its rank and its event (None where every bar lives on and none is born); all bars."""

    columns: list[Ring]
    alive: list[list[Alive]]
    events: list[Event | None]
    ranks: list[int]
    bars: tuple[Bar, ...]


Complete = Callable[[int, Ring, list[Alive], list[Alive]], Ring]
"""(level, image of the survivors, survivors, newborn bars) -> the newborns' columns."""


def interval_basis(
    mixers: Sequence[flint.fmpq_mat],
    dims: Sequence[int],
    *,
    start: flint.fmpq_mat | None = None,
    newborns: Newborns | None = None,
) -> IntervalBasis:
    """The interval basis over Q; ``A_l`` has shape (n_{l+1}, n_l), ``dims`` = (n_0, .., n_L).

    It is canonical: it depends on the maps alone.  ``start`` (n_0, n_0): the basis of level 0 in elder order, default
    I.  ``newborns(level, image)``: columns that complete the survivors' images (n_level, r), given in birth order and
    uncorrected, to a basis; default: the unit vectors of the rows of A that depend on the rows above them.

    **Raises** :class:`InputError` where ``start`` is not invertible or newborns do not complete the image.
    """
    split = [a.numer_denom() for a in mixers]
    powers = [flint.fmpz(1)]  # Q_l = q_0 .. q_{l-1}
    for _, q in split:
        powers.append(powers[-1] * q)
    # A column of the sweep at level l is Q_l / base times the vector it stands for; base is fixed at its birth.
    base: dict[Alive, flint.fmpq] = {(0, j): flint.fmpq(1) for j in range(dims[0])}
    first = _like(flint.fmpz_mat(0, 0), dims[0], [[int(i == j) for j in range(dims[0])] for i in range(dims[0])])
    if start is not None:
        if (start.nrows(), start.ncols()) != (dims[0], dims[0]) or start.rank() < dims[0]:
            raise InputError(f"start: expected an invertible matrix of shape ({dims[0]}, {dims[0]})")
        first, factor = start.numer_denom()
        base = {bar: 1 / flint.fmpq(factor) for bar in base}

    def complete(level: int, image: Ring, survivors: list[Alive], born: list[Alive]) -> Ring:
        if newborns is None:
            base.update((bar, flint.fmpq(powers[level])) for bar in born)
            return missing_units(split[level - 1][0])
        scale = [base[bar] / powers[level] for bar in survivors]
        columns = newborns(level, flint.fmpq_mat(image) * _diagonal(scale))
        found, wanted = (columns.nrows(), columns.ncols()), (image.nrows(), len(born))
        if found != wanted:
            raise InputError(f"newborns of level {level}: found shape {found}, expected {wanted}")
        integral, factor = columns.numer_denom()
        if _beside(image, integral).rank() < wanted[0]:
            raise InputError(f"newborns of level {level}: found columns that depend on the image, expected a basis")
        base.update((bar, flint.fmpq(powers[level]) / factor) for bar in born)
        return integral

    swept = sweep([a for a, _ in split], dims, first, complete)
    gauge = []
    for level, (columns, factors, bars) in enumerate(corrected(swept)):
        scale = [base[bar] / (factor * powers[level]) for bar, factor in zip(bars, factors)]
        gauge.append(flint.fmpq_mat(columns) * _diagonal(scale))
    return IntervalBasis(tuple(gauge), *pattern(swept, dims))


def sweep(mixers: Sequence[Ring], dims: Sequence[int], first: Ring, complete: Complete) -> Sweep:
    """The forward pass over maps of one ring type, from the columns ``first`` of level 0 in elder order."""
    columns, alive = [first], [[(0, j) for j in range(dims[0])]]
    events: list[Event | None] = []
    ranks: list[int] = []
    bars: list[Bar] = []
    for l, a in enumerate(mixers):
        image, bars_in, rank = a * columns[-1], alive[-1], a.rank()
        ranks.append(rank)
        if rank == dims[l] == dims[l + 1]:
            events.append(None)
            columns.append(image)
            alive.append(bars_in)
            continue
        event = _event(image, rank, dims[l])
        survivors = [bars_in[j] for j in event.pivots]
        bars += [Bar(birth, l, slot) for birth, slot in (bars_in[j] for j in event.dead)]
        taken = {slot for _, slot in survivors}
        free = [slot for slot in range(dims[l + 1]) if slot not in taken]
        free += [slot for slot in range(dims[l + 1], max(dims)) if slot not in taken]
        born = [(l + 1, slot) for slot in free[: dims[l + 1] - rank]]
        image = _select(image, event.pivots)
        if born:
            image = _beside(image, complete(l + 1, image, survivors, born))
        events.append(event)
        columns.append(image)
        alive.append(survivors + born)
    last = len(mixers)
    bars += [Bar(birth, last, slot) for birth, slot in alive[-1]]
    return Sweep(columns, alive, events, ranks, tuple(sorted(bars)))


def corrected(swept: Sweep) -> Iterator[tuple[Ring, list[Any], list[Alive]]]:
    """For levels 0 .. L: the corrected columns in slot order, the factor each was multiplied by to stay in the ring,
    and the bars they stand for."""
    n = len(swept.alive[-1])
    combination: list[list[Any]] = [[int(i == j) for i in range(n)] for j in range(n)]  # C_l by columns
    factors: list[Any] = [1] * n
    out: list[tuple[Ring, list[Any], list[Alive]]] = []
    matrix = None
    for level in range(len(swept.columns) - 1, -1, -1):
        event = swept.events[level] if level < len(swept.events) else None
        if event is not None:
            combination, factors = _earlier(event, combination, factors)
        if event is not None or matrix is None:
            order = sorted(range(len(factors)), key=lambda j: swept.alive[level][j][1])
            matrix = _like(swept.columns[level], len(order), _transposed([combination[j] for j in order]))
            ordered = [factors[j] for j in order]
            bars = [swept.alive[level][j] for j in order]
        out.append((swept.columns[level] * matrix, ordered, bars))
    return reversed(out)


def pattern(
    swept: Sweep, dims: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], tuple[Bar, ...], tuple[int, ...]]:
    """Slots of every level, gates of every site, bars and ranks."""
    slots = tuple(tuple(sorted(slot for _, slot in alive)) for alive in swept.alive)
    gates = []
    for before, after in zip(swept.alive, swept.alive[1:]):
        lives = {slot for _, slot in set(before) & set(after)}
        gates.append(tuple(int(slot in lives) for slot in range(max(dims))))
    return slots, tuple(gates), swept.bars, tuple(swept.ranks)


def missing_units(a: Ring) -> Ring:
    """Unit vectors that complete the column space of ``a``: e_f for every row f that depends on the rows above it."""
    reduced, _, rank = _echelon(a.transpose())
    pivots = set(_pivots(reduced, rank))
    rows = a.nrows()
    born = [f for f in range(rows) if f not in pivots]
    return _like(a, rows, [[int(i == f) for f in born] for i in range(rows)], len(born))


def _event(image: Ring, rank: int, width: int) -> Event:
    if rank == width:
        return Event(list(range(width)), [], [], [])
    reduced, den, _ = _echelon(image)
    pivots = _pivots(reduced, rank)
    kept = set(pivots)
    dead = [c for c in range(width) if c not in kept]
    factors, relations = [], []
    for c in dead:
        relation, factor = [reduced[i][c] for i in range(rank)], den
        if isinstance(den, flint.fmpz):  # the shortest integer relation
            common = den
            for x in relation:
                common = common.gcd(x)
            relation, factor = [x // common for x in relation], den // common
        factors.append(factor)
        relations.append(relation)
    return Event(pivots, dead, factors, relations)


def _earlier(event: Event, later: list[list[Any]], factors: list[Any]) -> tuple[list[list[Any]], list[Any]]:
    """C_l (by columns) and its factors from those of level l + 1."""
    n = len(event.pivots) + len(event.dead)
    columns: list[list[Any]] = [[0] * n for _ in range(n)]
    out: list[Any] = [1] * n
    for a, c in enumerate(event.pivots):
        out[c] = factors[a]
        for b, i in enumerate(event.pivots):
            columns[c][i] = later[a][b]
    for factor, relation, c in zip(event.factors, event.relations, event.dead):
        out[c] = columns[c][c] = factor
        for x, i in zip(relation, event.pivots):
            columns[c][i] = -x
    return columns, out


def _echelon(matrix: Ring) -> tuple[list[list[Any]], Any, int]:
    """Rows of the reduced echelon form times ``den``, ``den``, rank."""
    if isinstance(matrix, flint.fmpz_mat):
        reduced, den, rank = matrix.rref()
        return reduced.tolist(), flint.fmpz(den), rank
    reduced, rank = matrix.rref()
    return reduced.tolist(), 1, rank


def _pivots(rows: list[list[Any]], rank: int) -> list[int]:
    pivots, col = [], 0
    for row in rows[:rank]:
        while row[col] == 0:
            col += 1
        pivots.append(col)
        col += 1
    return pivots


def _like(model: Ring, rows: int, table: list[list[Any]], cols: int | None = None) -> Ring:
    """A matrix of ``model``'s type."""
    width = cols if cols is not None else len(table[0]) if table else 0
    entries = [x for row in table for x in row]
    if isinstance(model, flint.nmod_mat):
        return flint.nmod_mat(rows, width, entries, model.modulus())
    return type(model)(rows, width, entries)


def _select(matrix: Ring, keep: list[int]) -> Ring:
    return _like(matrix, matrix.nrows(), [[row[j] for j in keep] for row in matrix.tolist()], len(keep))


def _beside(left: Ring, right: Ring) -> Ring:
    if not left.ncols():
        return right
    rows = [[*a, *b] for a, b in zip(left.tolist(), right.tolist())]
    return _like(left, left.nrows(), rows, left.ncols() + right.ncols())


def _transposed(columns: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*columns)]


def _diagonal(values: list[flint.fmpq]) -> flint.fmpq_mat:
    n = len(values)
    entries: list[Any] = [0] * (n * n)
    entries[:: n + 1] = values
    return flint.fmpq_mat(n, n, entries)
