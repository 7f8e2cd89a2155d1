"""The exact graded form of a rational chain: ``A_l P_l = P_{l+1} D_l`` over Q, columns as orthogonal as they get.

1. The interval basis B_l (gates 0 or 1) from a rational start: the anchor, then the rounded float backward frame, so
   that its columns are ordered by how strongly they survive; newborns from the same frame.
2. Every vector of a bar j may be changed by a constant multiple of an elder i that dies no later than j.  It is
   chosen to make j orthogonal to the part of i that is new against i's elders, where i ends, and rounded to few
   bits; the anchor's multiple is exact and puts the others into ker w_l.
3. Columns are scaled to max norm 1 (1-norm if only the columns of A sum to one); the scale is the gate, a rational.
   Gates are at most ||A_l|| in that norm: at most 1 for row-stochastic chains.  The anchor keeps gate 1.

The numbers grow with the chain, linearly in the length of its bars, as in the binary form: the integers of a level-l
vector have about l times the digits of a map.  Inner products are taken in flint balls of as many bits as certify
them.  Cost O(L n^3) long operations: 0.1 s for 64 sites of 4 streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import Bar, NormalForm, RankLabel
from streamgauge.theory.graded_anchor import SPREAD, choose_anchor, worst_marginals
from streamgauge.theory.graded_slots import backward_frames, float_field
from streamgauge.theory.interval import beside, interval_basis

START_BITS = 12
"""Bits of the entries of the start and of newborns."""
EXTRA_BITS = 16
"""Bits of an elder's multiple beyond those that cancel."""
MOST_BITS = 1 << 20


@dataclass(frozen=True)
class _Ends:
    """An exact anchor: entry e (n, 1) and readout c (1, n), with c Phi(L, 0) e != 0."""

    entry: flint.fmpq_mat
    readout: flint.fmpq_mat


def graded_exact(chain: Chain) -> NormalForm:
    """The exact graded form of an exact square chain; gates are Fractions.

    **Raises** :class:`InputError` where the chain is not exact or not square.
    """
    if not chain.exact or not chain.square:
        raise InputError("chain: found a float or rectangular one, expected an exact square chain")
    n, sites = chain.dims[0], len(chain)
    ranks = [a.rank() for a in chain.mixers]
    maps = np.array([_leading(a) for a in chain.mixers]).reshape(sites, n, n)
    frames = _frames(maps, [n - r for r in ranks], n)
    ends = _ends(chain, maps) if n else None
    basis = interval_basis(
        chain.mixers,
        chain.dims,
        start=_start(frames[0], ends),
        newborns=lambda level, image: _newborns(frames[level], image),
    )
    gauge = [exact.columns(p, range(n)) for p in basis.gauge]
    _orthogonalise(gauge, basis.bars, ends)
    rows, columns = _sum_to_one(chain, axis=1), _sum_to_one(chain, axis=0)
    gates = _scale(gauge, basis.gates, one_norm=columns and not rows, anchored=ends is not None)
    notes = [
        f"columns have {'1-norm' if columns and not rows else 'max norm'} 1",
        "slot 0 is the anchor" if ends else "no anchor: column 0 is graded like the others",
    ]
    return NormalForm(
        "graded",
        chain,
        tuple(gauge),
        (tuple(range(n)),) * (sites + 1),
        gates,
        basis.bars,
        tuple(RankLabel(r, True) for r in ranks),
        notes=tuple(notes),
    )


def _leading(a: flint.fmpq_mat) -> Floats:
    """A in float64 over its largest entry: the start needs directions only, and entries may exceed float64."""
    entries = [abs(x) for x in a.entries()]
    largest = max(entries, default=flint.fmpq(0))
    return exact.to_floats(a / largest) if largest else exact.to_floats(a)


def _frames(maps: Floats, deaths: list[int], n: int) -> list[Floats]:
    """Float backward frames of every level, as (n, n) with the strongest column first."""
    if not len(maps):
        return [np.eye(n)]
    sizes = [float(np.linalg.norm(a, 2)) if a.size else 0.0 for a in maps]
    frames = backward_frames(maps.tolist(), deaths, sizes, float_field(n * 2.0**-40))
    return [np.array(frame).reshape(n, n).T for frame in frames]


def _ends(chain: Chain, maps: Floats) -> _Ends | None:
    """The anchor's entry and readout, decided in float64, confirmed over Q."""
    n = chain.dims[0]
    ones = flint.fmpq_mat(n, 1, [1] * n)
    entry = chain.entry if chain.entry is not None and chain.entry.ncols() == 1 else None
    readout = chain.readout if chain.readout is not None and chain.readout.nrows() == 1 else None
    entry = None if entry is None or entry == exact.zeros(n, 1) else entry
    readout = None if readout is None or readout == exact.zeros(1, n) else readout
    stochastic = _sum_to_one(chain, axis=0) or _sum_to_one(chain, axis=1)
    if not stochastic and entry is None and readout is None:
        return None
    if stochastic:
        maps = np.array([exact.to_floats(a) for a in chain.mixers]).reshape(len(chain), n, n)
    vectors = [None if v is None else _leading(v).reshape(1, n) for v in (entry, readout)]
    found, use = choose_anchor(maps[None], vectors[0], vectors[1], *worst_marginals(maps[None]))
    if not use[0]:
        return None
    if found.ones[0] or (stochastic and entry is None):
        entry = ones
    if found.ones[0] or (stochastic and readout is None):
        readout = ones.transpose()
    if entry is None and readout is not None:
        entry = _through(chain, readout.transpose(), transpose=True)
    if entry is None:
        return None
    image = _through(chain, entry)
    readout = image.transpose() if readout is None else readout
    return _Ends(entry, readout) if (readout * image)[0, 0] != 0 else None


def _through(chain: Chain, vector: flint.fmpq_mat, transpose: bool = False) -> flint.fmpq_mat:
    """Phi(L, 0) v, or Phi(L, 0)^T v."""
    for a in reversed(chain.mixers) if transpose else chain.mixers:
        vector = (a.transpose() if transpose else a) * vector
    return vector


def _sum_to_one(chain: Chain, axis: int) -> bool:
    n = chain.dims[0]
    ones = flint.fmpq_mat(n, 1, [1] * n)
    return all((a if axis else a.transpose()) * ones == ones for a in chain.mixers)


def _rounded(columns: Floats) -> flint.fmpq_mat:
    """Columns over their largest entries, rounded to multiples of 2^-START_BITS."""
    scaled = columns / np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1e-300)
    integers = np.rint(scaled * 2**START_BITS).astype(np.int64)
    rows, cols = integers.shape
    out: flint.fmpq_mat = flint.fmpq_mat(rows, cols, integers.ravel().tolist()) / 2**START_BITS
    return out


def _start(frame: Floats, ends: _Ends | None) -> flint.fmpq_mat:
    """Level 0: the rounded frame, or the anchor's entry followed by the frame's parts orthogonal to it."""
    n = len(frame)
    if ends is None:
        return _rounded(frame)
    unit = _leading(ends.entry)
    kept = _orthonormal_parts(frame, unit / np.linalg.norm(unit), n - 1)
    out: flint.fmpq_mat = beside(ends.entry, _rounded(kept))
    return out


def _newborns(frame: Floats, image: flint.fmpq_mat) -> flint.fmpq_mat:
    """The parts of the frame outside the image, in the frame's order, rounded: they complete it to a basis."""
    n, rank = image.nrows(), image.ncols()
    reduced, _ = image.transpose().rref()
    pivots = exact.pivot_columns(reduced, rank)
    free = [j for j in range(n) if j not in pivots]
    normals = exact.zeros(n, n - rank)  # the orthogonal complement, exactly: the image itself may look singular
    for k, j in enumerate(free):
        normals[j, k] = flint.fmpq(1)
        for i, p in enumerate(pivots):
            normals[p, k] = -reduced[i, j]
    dense = np.hstack([_leading(exact.columns(normals, [k])) for k in range(n - rank)])
    q, _ = np.linalg.qr(dense)
    return _rounded(_orthonormal_parts(q @ (q.T @ frame), np.zeros((n, 0)), n - rank))


def _orthonormal_parts(candidates: Floats, basis: Floats, count: int) -> Floats:
    """``count`` orthonormal parts of the candidates outside the basis; those that keep too little are passed."""
    n = len(candidates)
    kept = basis
    for v in [*candidates.T, *(candidates @ candidates.T)]:
        if kept.shape[1] == basis.shape[1] + count:
            break
        rest = v
        for _ in range(2):
            rest = rest - kept @ (kept.T @ rest)
        norm = float(np.linalg.norm(rest))
        if norm >= 0.5 / np.sqrt(n):
            kept = np.hstack([kept, rest[:, None] / norm])
    return kept[:, basis.shape[1] :]


def _orthogonalise(gauge: list[flint.fmpq_mat], bars: Sequence[Bar], ends: _Ends | None) -> None:
    """Step 2 of the module, in place."""
    order = sorted(bars, key=lambda bar: (bar.birth, bar.slot))
    last = len(gauge) - 1
    for bar in order:
        # bars with unrelated denominators would double the digits of every later sum
        numerators, denominator = exact.columns(gauge[bar.birth], [bar.slot]).numer_denom()
        _multiply(gauge, bar, flint.fmpq(denominator, _content(numerators.entries())))
    if ends is not None:
        anchor = order[0]
        image = ends.readout * gauge[-1]
        for bar in order[1:]:
            if bar.death == last:
                _add(gauge, bar, anchor, -image[0, bar.slot] / image[0, anchor.slot])
        order = order[1:]
    directions: dict[Bar, list[Any]] = {}
    for level in sorted({bar.death for bar in order}):
        alive = [bar for bar in order if bar.birth <= level <= bar.death]
        columns = [_integers(gauge[level], bar.slot) for bar in alive]
        parts = _directions([numerators for numerators, _ in columns])
        directions.update((bar, part) for bar, part in zip(alive, parts) if bar.death == level)
        for k, bar in enumerate(alive):
            elders = [elder for elder in alive[:k] if elder.death == level]
            _correct(gauge, bar, elders, directions, _log2(parts[k]) - _log2(columns[k][1]))


def _correct(
    gauge: list[flint.fmpq_mat], bar: Bar, elders: Sequence[Bar], directions: dict[Bar, list[Any]], own: int
) -> None:
    """Make ``bar`` nearly orthogonal to the directions of elders that end at this level, the nearest first.

    ``own``: log2 of what the bar keeps beside its elders; an error of 2^-EXTRA_BITS of it is enough.
    """
    level = elders[0].death if elders else 0
    for elder in reversed(elders):
        direction = directions[elder]
        (v, v_den), (e, e_den) = _integers(gauge[level], bar.slot), _integers(gauge[level], elder.slot)
        d = [_rational(x) for x in direction]
        factor = -_dot(d, v) / _dot(d, e) * e_den / v_den
        shift = EXTRA_BITS - own + (_log2(e) - _log2(e_den))
        _add(gauge, bar, elder, (factor * flint.fmpq(2) ** shift + flint.fmpq(1, 2)).floor() / flint.fmpq(2) ** shift)


def _content(integers: list[flint.fmpz]) -> flint.fmpz:
    common = flint.fmpz(0)
    for x in integers:
        common = common.gcd(x)
    return common


def _multiply(gauge: list[flint.fmpq_mat], bar: Bar, factor: flint.fmpq) -> None:
    """Multiply the bar by a constant on its whole life."""
    for p in gauge[bar.birth : bar.death + 1]:
        for i in range(p.nrows()):
            p[i, bar.slot] = p[i, bar.slot] * factor


def _add(gauge: list[flint.fmpq_mat], bar: Bar, elder: Bar, factor: flint.fmpq) -> None:
    """Add a multiple of the elder to the bar on all levels where both live."""
    if factor == 0:
        return
    for level in range(bar.birth, min(bar.death, elder.death) + 1):
        p = gauge[level]
        for i in range(p.nrows()):
            p[i, bar.slot] = p[i, bar.slot] + factor * p[i, elder.slot]


def _integers(p: flint.fmpq_mat, slot: int) -> tuple[list[Any], Any]:
    """A column as integers over one denominator."""
    numerators, denominator = exact.columns(p, [slot]).numer_denom()
    return numerators.entries(), denominator


def _directions(columns: list[list[Any]]) -> list[list[Any]]:
    """For every column its part orthogonal to the columns before it (unnormalised balls), certified to 32 bits."""
    bits = 192
    while bits <= MOST_BITS:
        with flint.ctx.workprec(bits):
            found: list[list[Any]] = []
            for column in columns:
                v = [flint.arb(x) for x in column]
                for q in found:
                    part = _dot(q, v) / _dot(q, q)
                    v = [a - part * b for a, b in zip(v, q)]
                if not _dot(v, v).rel_accuracy_bits() >= 32:
                    break
                found.append([x.mid() for x in v])
            else:
                return found
        bits *= 2
    raise InputError(f"gauge: found columns that {MOST_BITS} bits do not separate, expected a basis")


def _rational(x: Any) -> flint.fmpq:
    mantissa, exponent = x.man_exp()
    return flint.fmpq(int(mantissa)) * flint.fmpq(2) ** int(exponent)


def _log2(given: Any) -> int:
    """k with the number, or the largest entry of the vector, about 2^k."""
    values = given if isinstance(given, list) else [given]
    parts = [x.man_exp() if isinstance(x, flint.arb) else (int(x), 0) for x in values if x != 0]
    return max(int(m).bit_length() + int(e) for m, e in parts)


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum(x * y for x, y in zip(a, b))


def _scale(
    gauge: list[flint.fmpq_mat], lives: Sequence[Sequence[int]], *, one_norm: bool, anchored: bool
) -> tuple[tuple[Fraction, ...], ...]:
    """Scale the columns to norm 1 in place; the gates."""
    n = gauge[0].ncols()
    sizes = [[_size([p[i, j] for i in range(n)], one_norm) for j in range(n)] for p in gauge]
    if anchored:
        own = [level[0] for level in sizes]
        if max(own) <= flint.fmpq(int(SPREAD)) * min(own):
            for level in sizes:
                level[0] = own[0]
    for p, level in zip(gauge, sizes):
        for j in range(n):
            for i in range(n):
                p[i, j] = p[i, j] / level[j]
    gates = [[b / a if alive else flint.fmpq(0) for a, b, alive in zip(*row)] for row in zip(sizes, sizes[1:], lives)]
    return tuple(tuple(exact.fraction(g) for g in row) for row in gates)


def _size(column: list[flint.fmpq], one_norm: bool) -> flint.fmpq:
    absolute = [abs(x) for x in column]
    return sum(absolute, flint.fmpq(0)) if one_norm else max(absolute)
