"""The graded form of one chain with deaths and births, over any ordered field: floats, or flint balls for many bits.

Forward: Gram-Schmidt (twice) of ``A_l q_s`` in order of age gives ``A_l q_s = sum_{t elder} R_ts q'_t``.  A residual
of no size is a death: the slot is refilled by a newborn orthogonal to the survivors, placed last in age.  The number
of deaths must be n - rank A_l, known beforehand; otherwise :class:`HiddenDeath`.

Columns: for the bar j = [b, d] find ``p_j = q_j + sum_i x_i q_i`` over its elders i with ``A_l p_j = R_jj p_j'``, and
0 at l = d.  Row i is the first-order ``recurrence`` in x_i.  If i outlives j, x_i(d) is given by ``A_d p_j = 0``.
Otherwise x_i is free by one number and is pinned to zero where ``prod R_jj / R_ii`` is smallest.

Backward frames choose the first basis and the newborns: Gram-Schmidt of ``A_l^T q``, with its own deaths, so that a
direction that dies later enters as the kernel of ``A_l``.  Neighbours are exchanged when the later one grows faster
on the way back: the order inside a birth group is free, and a strong direction placed after a weak one, even if it
dies first, would swallow the weak one in rounding.

Newborns that outgrow older bars are the other trap.  Placed last, as the elder rule asks, they pollute their elders
with rounding until the two are parallel (condition 1e16).  Placed by strength they do not, and the elder rule then
asks that an older bar's coefficient on the newborn vanish at its birth.  Where it is of round-off size, it does: the
form is that of a chain within round-off of the given one, and well-conditioned.  Cost O(L n^3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streamgauge.theory.recurrence import solved, weakest_level

Vector = list[Any]
Rows = Sequence[Sequence[Any]]
_Triangles = list[dict[int, dict[int, Any]]]
"""R[l][t][s] by slots."""
Dying = Callable[[list[Vector], int], set[int]]


@dataclass(frozen=True)
class Field:
    """What the sweep needs to know about its numbers.

    ``dead``: a residual at most this times the site's size (2-norm) counts as zero.  ``clean`` drops error radii.
    """

    one: Any
    sqrt: Callable[[Any], Any]
    clean: Callable[[Any], Any]
    log: Callable[[Any], float]
    dead: Any


def float_field(dead: float) -> Field:
    """Python floats."""
    return Field(1.0, math.sqrt, lambda x: x, math.log, dead)


class HiddenDeath(ArithmeticError):
    """The sweep found another number of deaths than n - rank; ``site`` says where."""

    def __init__(self, site: int) -> None:
        super().__init__(f"site {site}")
        self.site = site


@dataclass(frozen=True)
class Slots:
    """``columns[l][s]``: the vector of slot s at level l; ``factors[l][s]``: its multiplier across site l, 0 at a
    death.  ``broken``: levels whose newborns, placed before older bars, leave a residual there above ``slack``."""

    columns: list[list[Vector]]
    factors: list[list[Any]]
    broken: frozenset[int] = frozenset()


@dataclass(eq=False)
class _Life:
    """A bar under way: slot, birth and death levels; ``x[i][l]``: its coefficient on the bar i before it."""

    slot: int
    birth: int
    death: int = -1
    x: dict[int, dict[int, Any]] | None = None


def graded_slots(
    maps: Sequence[Rows],
    deaths: Sequence[int],
    sizes: Sequence[Any],
    field: Field,
    *,
    by_age: Callable[[int], bool],
    slack: float,
    dying: Dying | None = None,
) -> Slots:
    """The covariant columns of a square chain with ``deaths[l]`` = n - rank A_l; ``sizes[l]`` = ||A_l||_2.

    ``by_age(level)``: whether newborns of that level come last.  Otherwise they take their place by strength, and the
    equations of older bars at the site before hold only if their coefficients on the newborns happen to vanish there.

    ``dying(images, count)``: which positions of the order die, in place of the test for a residual of no size.

    Raises :class:`HiddenDeath` where the sweep disagrees with ``deaths``.
    """
    frames, triangles, alive, lives = _forward(
        maps, deaths, sizes, field, backward_frames(maps, deaths, sizes, field), by_age, dying
    )
    broken: set[int] = set()
    for k in range(len(lives)):
        broken |= _coefficients(k, lives, triangles, field, slack)
    slots = [sorted(level, key=_slot) for level in alive]
    columns = [[_column(life, l, frames[l], lives, field) for life in slots[l]] for l in range(len(frames))]
    factors = [
        [row[life.slot][life.slot] if life.death > l else 0 * field.one for life in slots[l]]
        for l, row in enumerate(triangles)
    ]
    return Slots(columns, factors, frozenset(broken))


def backward_frames(
    maps: Sequence[Rows], deaths: Sequence[int], sizes: Sequence[Any], field: Field
) -> list[list[Vector]]:
    """Orthonormal frames of every level, last to first, strongest first (see the module)."""
    n = len(maps[0])
    frame = [[field.one * int(i == j) for i in range(n)] for j in range(n)]
    out, grown = [frame], [0.0] * n
    for l in range(len(maps) - 1, -1, -1):
        transposed = list(zip(*maps[l]))
        kept: list[Vector] = []
        gains: list[float] = []
        for q, gain in zip(frame, grown):
            rest, _ = _project([_dot(row, q) for row in transposed], kept, field)
            norm = field.sqrt(_dot(rest, rest))
            if not norm > (field.dead * sizes[l] if deaths[l] else 0):
                continue
            kept.append([field.clean(v / norm) for v in rest])
            gains.append(gain + field.log(norm))
        if len(kept) < n:  # the kernel of A_l enters last; growth is compared from here on
            kept += [q for _, q in _completion(n, kept, [], field)]
            gains = [0.0] * n
        for j in range(n - 1, 0, -1):
            if gains[j] > gains[j - 1] + math.log(4.0):
                kept[j - 1], kept[j], gains[j - 1], gains[j] = kept[j], kept[j - 1], gains[j], gains[j - 1]
        frame, grown = kept, gains
        out.append(frame)
    return out[::-1]


def _forward(
    maps: Sequence[Rows],
    deaths: Sequence[int],
    sizes: Sequence[Any],
    field: Field,
    back: list[list[Vector]],
    by_age: Callable[[int], bool],
    dying: Dying | None,
) -> tuple[list[dict[int, Vector]], _Triangles, list[list[_Life]], list[_Life]]:
    """Frames by slot, triangles ``R[l][t][s]`` by slot, living bars of every level in order, all bars in order."""
    order = [_Life(slot, 0) for slot in range(len(maps[0]))]
    frame = dict(enumerate(back[0]))
    frames, alive, lives, triangles = [frame], [order], list(order), []
    for l, a in enumerate(maps):
        kept: list[Vector] = []
        survivors: list[_Life] = []
        triangle: dict[int, dict[int, Any]] = {}
        images = [[_dot(row, frame[life.slot]) for row in a] for life in order]
        chosen = dying(images, deaths[l]) if dying and deaths[l] else None
        for place, (life, image) in enumerate(zip(order, images)):
            rest, parts = _project(image, kept, field)
            norm = field.sqrt(_dot(rest, rest))
            for elder, part in zip(survivors, parts):
                triangle[elder.slot][life.slot] = part
            alive_here = norm > (field.dead * sizes[l] if deaths[l] else 0) if chosen is None else place not in chosen
            if not alive_here:
                life.death = l
                continue
            kept.append([field.clean(v / norm) for v in rest])
            survivors.append(life)
            triangle[life.slot] = {life.slot: field.clean(norm)}
        if len(kept) != len(order) - deaths[l]:
            raise HiddenDeath(l)
        frame = {life.slot: q for life, q in zip(survivors, kept)}
        triangles.append(triangle)
        if deaths[l]:
            free = sorted(life.slot for life in order if life.death == l)
            order = list(survivors)
            for slot, (place, q) in zip(free, _completion(len(a), kept, back[l + 1], field)):
                frame[slot] = q
                last = by_age(l + 1) or place >= len(order)
                lives.insert(len(lives) if last else lives.index(order[place]), _Life(slot, l + 1))
                order = [life for life in lives if life.death < 0]
        frames.append(frame)
        alive.append(order)
    for life in order:
        life.death = len(maps)
    return frames, triangles, alive, lives


def _coefficients(own: int, lives: list[_Life], triangles: _Triangles, field: Field, slack: float) -> set[int]:
    """Solve for the coefficients of ``lives[own]`` on the bars before it, the nearest first; the broken levels."""
    life = lives[own]
    x: dict[int, dict[int, Any]] = {}
    life.x = x
    broken = set()
    for i in range(own - 1, -1, -1):
        other = lives[i]
        first, last = max(other.birth, life.birth), min(other.death, life.death)
        if first > last:
            continue
        sites = range(first, min(last + 1, other.death))
        forcing = [_forcing(other, life, l, lives, triangles, x) for l in sites]
        elder, mine = ([triangles[l][bar.slot][bar.slot] for l in range(first, last)] for bar in (other, life))
        outlived = other.death > life.death
        if outlived:  # A_d p = 0 decides
            pin, value = last - first, -forcing[-1] / triangles[last][other.slot][other.slot]
        else:
            pin, value = weakest_level(elder, mine, field.log), 0 * field.one
        found = solved(elder, mine, forcing, pin, value, field.clean)
        if other.birth > life.birth and abs(float(found[0])) > slack:
            if outlived:
                broken.add(first)
            else:
                found = solved(elder, mine, forcing, 0, 0 * field.one, field.clean)
        x[i] = dict(enumerate(found, start=first))
    return broken


def _forcing(
    other: _Life, life: _Life, l: int, lives: list[_Life], triangles: _Triangles, x: dict[int, dict[int, Any]]
) -> Any:
    """What the bars between ``other`` and ``life`` put into the row of ``other`` at site l."""
    row = triangles[l][other.slot]
    total = row[life.slot]
    for m, values in x.items():
        if l in values:
            total = total + row[lives[m].slot] * values[l]
    return total


def _column(life: _Life, level: int, frame: dict[int, Vector], lives: list[_Life], field: Field) -> Vector:
    out = list(frame[life.slot])
    for i, values in (life.x or {}).items():
        if level in values:
            out = [v + values[level] * q for v, q in zip(out, frame[lives[i].slot])]
    return [field.clean(v) for v in out]


def _project(v: Vector, basis: Sequence[Vector], field: Field) -> tuple[Vector, list[Any]]:
    """v minus its parts along the orthonormal basis, twice, and the parts."""
    total = [0 * field.one] * len(basis)
    for _ in range(2):
        for k, q in enumerate(basis):
            part = field.clean(_dot(q, v))
            total[k] = total[k] + part
            v = [field.clean(a - part * b) for a, b in zip(v, q)]
    return v, total


def _completion(n: int, basis: list[Vector], candidates: Sequence[Vector], field: Field) -> list[tuple[int, Vector]]:
    """Unit vectors that complete an orthonormal set to a basis, from the candidates in order, then from I; each with
    its place among the candidates.

    Of any orthonormal basis at least one vector keeps a residual of 1/sqrt(n); half of that is accepted.
    """
    units = [[field.one * int(i == j) for i in range(n)] for j in range(n)]
    found: list[tuple[int, Vector]] = []
    for place, v in enumerate([*candidates, *units]):
        if len(basis) + len(found) == n:
            break
        rest, _ = _project(v, [*basis, *(q for _, q in found)], field)
        square = _dot(rest, rest)
        if 4 * n * square >= 1:
            norm = field.sqrt(square)
            found.append((place, [field.clean(a / norm) for a in rest]))
    return found


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum(x * y for x, y in zip(a, b))


def _slot(life: _Life) -> int:
    return life.slot
