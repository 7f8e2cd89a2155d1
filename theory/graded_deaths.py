"""The graded form of one float64 chain with deaths: candidates, a Newton step, the best of them.

1. The sweep of ``graded_slots`` with newborns placed last, as the elder rule has it.
2. Where that misses a death or is ill-conditioned: newborns placed by strength wherever strength leaves no residual.
3. The same within ``LOOSE`` instead of round-off, each death given to the youngest slot that carries a real part of
   the kernel; the Newton steps of ``graded_polish`` take the residual back to round-off.
4. Where none of them solves the equation: ``graded_precise``, in as many bits as it takes.

Each candidate has exactly n - rank A_l deaths at every site.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamgauge.theory import frames
from streamgauge.theory.exact import Floats
from streamgauge.theory.graded_anchor import vector_norms
from streamgauge.theory.graded_polish import polish
from streamgauge.theory.graded_precise import precise_slots
from streamgauge.theory.graded_slots import HiddenDeath, Slots, float_field, graded_slots

ILL = 1e3
"""Above this condition number the next candidate is tried."""
ATTEMPTS = 6
"""How often placing by strength is retried, each time with the offending newborns last."""
SLACK = 2.0**-48
"""What an older bar's coefficient on a newborn may be at its birth: a residual of round-off size."""
LOOSE = 2.0**-20
"""The same where Newton steps follow."""
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
    best, least = None, np.inf

    def complete(columns: Floats, factors: Floats) -> tuple[Floats, Floats]:
        p, g = gauge.copy(), gates.copy()
        (p[..., skip:],), (g[:, skip:],) = normalised(columns[None], factors[None], norms)
        polish(maps, p, g, skip)
        (p[..., skip:],), (g[:, skip:],) = normalised(p[None, ..., skip:], g[None, :, skip:], norms)
        return p, g

    for columns, factors in _candidates(maps, deaths, sizes, covectors, relative):
        p, g = complete(columns, factors)
        condition = _condition(p)
        gap = np.abs(maps @ p[:-1] - p[1:] * g[:, None, :]).max()
        if gap <= limit and condition < least:
            best, least = (p, g), condition
        if least <= ILL:
            break
    precise = best is None
    if best is None:
        slots = precise_slots(maps, deaths, None if covectors is None else covectors[-1])
        best = complete(np.array(slots.columns).swapaxes(-1, -2), np.array(slots.factors))
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

    try:
        yield unfolded(graded_slots(rows, deaths, sizes, field, by_age=lambda level: True, slack=0.0))
    except HiddenDeath:
        pass
    for slack, dying in ((SLACK, None), (LOOSE, youngest_part)):
        late: frozenset[int] = frozenset()
        for _ in range(ATTEMPTS):
            try:
                slots = graded_slots(rows, deaths, sizes, field, by_age=late.__contains__, slack=slack, dying=dying)
            except HiddenDeath:
                break
            if not slots.broken:
                yield unfolded(slots)
                break
            late |= slots.broken


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


def _condition(gauge: Floats) -> float:
    if not np.isfinite(gauge).all():
        return float("inf")
    sigma = np.linalg.svd(gauge, compute_uv=False)
    return float((sigma[:, 0] / np.maximum(sigma[:, -1], 1e-300)).max()) if sigma.shape[-1] else 1.0
