"""The interval basis of a chain (Theorem 2): ``A_l P_l = P_{l+1} E_l`` with every E_l 0/1 diagonal in slot order.

Elder rule by one row reduction a site.  With the columns of ``P_l`` kept in birth order, the reduced echelon form of
``M = A_l P_l`` has its pivots at the bars that live on; a column without a pivot depends on *elder* columns,
``M_c = sum_i R_ic M_piv(i)``, and its bar dies after subtracting that relation at every level of its life.  The
survivors' images, completed by unit vectors, are the columns at level l + 1.

Three facts make it cheap.

- The subtractions need no sweep of their own.  Bars alive at two levels are a prefix of the birth order, and elders
  live at least as long before, so all corrections together are one unipotent matrix a level, ``P_l := P_l C_l``, with
  ``C_l[piv, piv] = C_{l+1}[:r, :r]`` and ``C_l[:, c] = e_c - sum_i R_ic e_piv(i)``: copied, never multiplied.
- A corrected column is needed only where its bar is born: after that ``p_{l+1} = A_l p_l``.
- A factor at a site is a gauge: the sweep runs on the integer matrices ``q_l A_l``; births are scaled back.

Cost: O(L n^3) ring operations; entries grow linearly in length with the longest bar.  The same code runs over GF(p).
Sources: Gabriel 1972; Carlsson and de Silva, Found. Comput. Math. 10 (2010); Jacquard, Nanda and Tillmann 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
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
    integers = [a for a, _ in split]
    weights: dict[Alive, Any] = {}  # what a bar's first column was multiplied by to be integral; default 1
    first = _sparse(flint.fmpz_mat(0, 0), dims[0], [{j: 1} for j in range(dims[0])])
    if start is not None:
        if (start.nrows(), start.ncols()) != (dims[0], dims[0]) or start.rank() < dims[0]:
            raise InputError(f"start: expected an invertible matrix of shape ({dims[0]}, {dims[0]})")
        first, factor = start.numer_denom()
        weights = {(0, j): factor for j in range(dims[0])}

    def complete(level: int, image: Ring, survivors: list[Alive], born: list[Alive]) -> Ring:
        if newborns is None:
            return missing_units(integers[level - 1])
        grown = [weights.get(bar, 1) * prod(q for _, q in split[bar[0] : level]) for bar in survivors]
        columns = newborns(level, _divided(image, grown))
        found, wanted = (columns.nrows(), columns.ncols()), (image.nrows(), len(born))
        if found != wanted:
            raise InputError(f"newborns of level {level}: found shape {found}, expected {wanted}")
        integral, factor = columns.numer_denom()
        if beside(image, integral).rank() < wanted[0]:
            raise InputError(f"newborns of level {level}: found columns that depend on the image, expected a basis")
        weights.update((bar, factor) for bar in born)
        return integral

    swept = sweep(integers, dims, first, complete)
    born = {
        level: _divided(columns, [factor * weights.get(bar, 1) for bar, factor in zip(bars, factors)])
        for level, (columns, factors, bars) in firsts(swept).items()
    }
    return IntervalBasis(carried(mixers, swept, born), *pattern(swept, dims))


def sweep_rational(mixers: Sequence[flint.fmpq_mat], dims: Sequence[int]) -> Sweep:
    """The forward pass over Q from the identity, on the integer matrices q_l A_l: bars and ranks, no gauge."""
    integers = [a.numer_denom()[0] for a in mixers]
    first = _sparse(flint.fmpz_mat(0, 0), dims[0], [{j: 1} for j in range(dims[0])])
    return sweep(integers, dims, first, lambda level, image, survivors, born: missing_units(integers[level - 1]))


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
        free = [slot for slot in range(max(dims)) if slot not in taken]
        born = [(l + 1, slot) for slot in free[: dims[l + 1] - rank]]
        image = image * _sparse(image, dims[l], [{j: 1} for j in event.pivots])
        if born:
            image = beside(image, complete(l + 1, image, survivors, born))
        events.append(event)
        columns.append(image)
        alive.append(survivors + born)
    last = len(mixers)
    bars += [Bar(birth, last, slot) for birth, slot in alive[-1]]
    return Sweep(columns, alive, events, ranks, tuple(sorted(bars)))


def firsts(swept: Sweep) -> dict[int, tuple[Ring, list[Any], list[Alive]]]:
    """For level 0 and every level with births: the newborns' corrected columns, the factor each was multiplied by to
    stay in the ring, and the newborn bars."""
    last = swept.alive[-1]
    combination: list[dict[int, Any]] = [{j: 1} for j in range(len(last))]  # C_l by columns, non-zero entries
    factors: list[Any] = [1] * len(last)
    out = {}
    for level in range(len(swept.columns) - 1, -1, -1):
        event = swept.events[level] if level < len(swept.events) else None
        if event is not None:
            combination, factors = _earlier(event, combination, factors)
        alive, columns = swept.alive[level], swept.columns[level]
        born = [j for j, (birth, _) in enumerate(alive) if birth == level]
        if born or level == 0:
            chosen = columns * _sparse(columns, len(alive), [combination[j] for j in born])
            out[level] = chosen, [factors[j] for j in born], [alive[j] for j in born]
    return out


def carried(mixers: Sequence[Any], swept: Sweep, born: dict[int, Any]) -> tuple[Any, ...]:
    """P_0 .. P_L in slot order: ``born`` columns, carried by the maps as long as their bars live."""
    gauge = [born[0]]
    for l, (a, event) in enumerate(zip(mixers, swept.events)):
        image = a * gauge[-1]
        if event is not None:
            before, after = (sorted(slot for _, slot in swept.alive[level]) for level in (l, l + 1))
            if before != after:
                at = {slot: j for j, slot in enumerate(before)}
                image = image * _sparse(image, len(before), [{at[slot]: 1} if slot in at else {} for slot in after])
            newborn = [slot for birth, slot in swept.alive[l + 1] if birth == l + 1]
            for j, slot in enumerate(newborn):
                column = after.index(slot)
                for i in range(image.nrows()):
                    image[i, column] = born[l + 1][i, j]
        gauge.append(image)
    return tuple(gauge)


def pattern(
    swept: Sweep, dims: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], tuple[Bar, ...], tuple[int, ...]]:
    """Slots of every level, gates of every site, bars and ranks."""
    slots = tuple(tuple(sorted(slot for _, slot in alive)) for alive in swept.alive)
    gates, width = [], max(dims)
    for before, event in zip(swept.alive, swept.events):
        lives = {slot for _, slot in before} if event is None else {before[j][1] for j in event.pivots}
        gates.append(tuple(int(slot in lives) for slot in range(width)))
    return slots, tuple(gates), swept.bars, tuple(swept.ranks)


def missing_units(a: Ring) -> Ring:
    """Unit vectors that complete the column space of ``a``: e_f for every row f that depends on the rows above it."""
    rows, _, rank = _echelon(a.transpose())
    pivots = set(_pivots(rows, rank))
    return _sparse(a, a.nrows(), [{f: 1} for f in range(a.nrows()) if f not in pivots])


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


def _earlier(event: Event, later: list[dict[int, Any]], factors: list[Any]) -> tuple[list[dict[int, Any]], list[Any]]:
    """C_l (by columns) and its factors from those of level l + 1."""
    pivots = event.pivots
    columns: list[dict[int, Any]] = [{}] * (len(pivots) + len(event.dead))
    out: list[Any] = [1] * len(columns)
    for a, c in enumerate(pivots):
        out[c] = factors[a]
        columns[c] = {pivots[b]: x for b, x in later[a].items()}
    for factor, relation, c in zip(event.factors, event.relations, event.dead):
        out[c] = factor
        columns[c] = {c: factor, **{i: -x for i, x in zip(pivots, relation) if x != 0}}
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


def _sparse(model: Ring, rows: int, columns: list[dict[int, Any]]) -> Ring:
    """The matrix of ``model``'s type with these columns; setting entries is much cheaper than passing them all."""
    shape = (rows, len(columns))
    out = flint.nmod_mat(*shape, model.modulus()) if isinstance(model, flint.nmod_mat) else type(model)(*shape)
    for j, column in enumerate(columns):
        for i, x in column.items():
            out[i, j] = x
    return out


def beside(left: Ring, right: Ring) -> Ring:
    """[left | right], by two products with unit columns."""
    a, b = left.ncols(), right.ncols()
    first = _sparse(left, a, [{j: 1} if j < a else {} for j in range(a + b)])
    second = _sparse(left, b, [{j - a: 1} if j >= a else {} for j in range(a + b)])
    return left * first + right * second


def _divided(columns: flint.fmpz_mat, by: list[Any]) -> flint.fmpq_mat:
    """Every column divided by its number."""
    scale = _sparse(flint.fmpq_mat(0, 0), len(by), [{j: flint.fmpq(1, x)} for j, x in enumerate(by)])
    out: flint.fmpq_mat = flint.fmpq_mat(columns) * scale
    return out
