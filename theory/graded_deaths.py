"""The graded form of one float64 chain with deaths: candidates, a Newton step, the best of them.

1. The sweep of ``graded_slots`` with newborns placed last, as the elder rule has it.
2. Where that misses a death or is ill-conditioned: newborns placed by strength wherever that leaves no residual, then
   wherever it leaves little.
3. Both again, each death given to the youngest slot that carries a real part of the kernel, instead of the first
   that leaves nothing; the Newton steps of ``graded_polish`` take the residual back to round-off.
4. Where none of them solves the equation in float64 with a gauge that float64 can invert: ``graded_precise``, in as
   many bits as it takes, with both ways of giving deaths.

Each candidate has exactly n - rank A_l deaths at every site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamgauge.theory import frames
from streamgauge.theory.conditioning import condition_numbers
from streamgauge.theory.exact import Floats
from streamgauge.theory.graded_anchor import vector_norms
from streamgauge.theory.graded_polish import polish
from streamgauge.theory.graded_precise import precise_slots
from streamgauge.theory.graded_slots import Dying, HiddenDeath, Slots, float_field, graded_slots

ILL = 1e3
"""Above this condition number the next candidate is tried."""
HOPELESS = 1e12
"""Above this, more bits are tried."""
MOST = 1e300
"""Counted for a singular gauge: it still solves the equation, which comes first."""
ATTEMPTS = 6
"""How often placing by strength is retried, each time with the offending newborns last."""
SLACK = 2.0**-48
"""What an older bar's coefficient on a newborn may be at its birth: a residual of round-off size."""
LOOSE = 2.0**-30
"""The same with Newton steps to mend it."""
PART = 1e-3
"""The share of a kernel vector's size from which a slot carries a real part of it."""
ACCEPTED = 2.0**-46
"""Largest residual, relative to the largest entry of the chain, of a candidate."""


def with_deaths(
    maps: Floats,
    deaths: list[int],
    sizes: list[float],
    covectors: Floats | None,
    gauge: Floats,
    gates: Floats,
    norm: Any,
    relative: float,
) -> bool:
    """Fill gauge (L+1, n, n) and gates (L, n) of the chain maps (L, n, n); whether it took more bits than float64.

    ``covectors`` (L+1, n): w_l of the anchor, whose column 0 and gates stand there already, or None.
    """
    skip = 0 if covectors is None else 1
    norms = np.array([norm])
    limit = ACCEPTED * max(float(np.abs(maps).max(initial=0.0)), 1e-300)
    best, least = (gauge, gates), np.inf

    def judged(columns: Floats, factors: Floats) -> tuple[tuple[Floats, Floats], float]:
        """The candidate, polished, and its condition number; inf where it does not solve the equation."""
        p, g = gauge.copy(), gates.copy()
        (p[..., skip:],), (g[:, skip:],) = normalised(columns[None], factors[None], norms)
        polish(maps, p, g, skip)
        (p[..., skip:],), (g[:, skip:],) = normalised(p[None, ..., skip:], g[None, :, skip:], norms)
        gap = np.abs(maps @ p[:-1] - p[1:] * g[:, None, :]).max()
        return (p, g), min(float(condition_numbers(p).max()), MOST) if gap <= limit else np.inf

    for candidate in _candidates(maps, deaths, sizes, covectors, relative):
        made, condition = judged(*candidate)
        if condition < least:
            best, least = made, condition
        if least <= ILL:
            break
    precise = not least <= HOPELESS
    if precise:
        covector = None if covectors is None else covectors[-1]
        for dying in (youngest_part, None):
            slots = precise_slots(maps, deaths, covector, dying)
            made, condition = judged(np.array(slots.columns).swapaxes(-1, -2), np.array(slots.factors))
            if condition < least or (dying is None and least == np.inf):
                best, least = made, condition
    gauge[...], gates[...] = best
    return precise


def normalised(columns: Floats, factors: Floats, norms: Any) -> tuple[Floats, Floats]:
    """Columns (B, L+1, n, m) scaled to norm 1, and factors (B, L, m) as the gates that go with it."""
    sizes = np.ones((*columns.shape[:2], columns.shape[-1]))
    for j in range(columns.shape[-1]):
        sizes[..., j] = vector_norms(columns[..., j], norms)
    sizes[sizes == 0] = 1.0
    return columns / sizes[:, :, None, :], factors * (sizes[:, 1:] / sizes[:, :-1])


def _candidates(
    maps: Floats, deaths: list[int], sizes: list[float], covectors: Floats | None, relative: float
) -> Iterator[tuple[Floats, Floats]]:
    """Covariant columns (L+1, n, m) and factors (L, m), one candidate after another."""
    n = maps.shape[-1]
    bases = None if covectors is None else frames.complements(covectors)
    rows = (maps if bases is None else bases[1:].swapaxes(-1, -2) @ (maps @ bases[:-1])).tolist()
    field = float_field(4 * max(relative, n * 2.0**-44))

    def unfolded(slots: Slots) -> tuple[Floats, Floats]:
        columns = np.array(slots.columns).swapaxes(-1, -2)
        return columns if bases is None else bases @ columns, np.array(slots.factors)

    def attempt(by_age: Callable[[int], bool], slack: float, dying: Dying | None) -> Slots | None:
        try:
            return graded_slots(rows, deaths, sizes, field, by_age=by_age, slack=slack, dying=dying)
        except HiddenDeath:
            return None

    for dying in (None, youngest_part):
        slots = attempt(lambda level: True, 0.0, dying)
        if slots is not None:
            yield unfolded(slots)
        for slack in (SLACK, LOOSE):
            late: frozenset[int] = frozenset()
            for _ in range(ATTEMPTS):
                slots = attempt(late.__contains__, slack, dying)
                if slots is None or not slots.broken:
                    break
                late |= slots.broken
            if slots is not None and not slots.broken:
                yield unfolded(slots)
            if not late:
                break


def youngest_part(images: list[list[float]], count: int) -> set[int]:
    """Which of the vectors depend on those before them: the last that carries a real part of each kernel vector."""
    kernel = np.linalg.svd(np.array(images).T)[2][-count:]
    chosen: set[int] = set()
    for _ in range(count):
        part = np.abs(kernel).max(axis=0)
        part[list(chosen)] = 0.0
        place = int(np.flatnonzero(part >= PART * part.max())[-1])
        row = int(np.abs(kernel[:, place]).argmax())
        chosen.add(place)
        pivot = kernel[row] / kernel[row, place]
        rest = np.delete(kernel, row, axis=0)
        rest = rest - rest[:, [place]] * pivot
        if len(rest):
            kernel = np.linalg.qr(rest.T)[0].T
    return chosen
