"""The graded form of many float64 chains at once: ``A_l P_l = P_{l+1} D_l`` with gates in [0, 1] where possible.

1. Singular values of all sites decide the ranks.  2. The anchor (``graded_anchor``) splits off column 0.
3. Chains of full rank go together through ``frames``; a chain with deaths goes alone through ``graded_deaths``.
4. Columns are scaled to norm 1 (2-norm, max norm or 1-norm by the chain's marginals); the scale is the gate:
``D_jj = ||A p_j|| / ||p_j|| <= ||A||``.

Residual: a few round-offs times ||A||.  Cost O(B L n^3): 0.6 ms a chain of 120 sites in a batch of 1000, n = 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgauge.theory import frames
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import Bar, NormalForm, RankLabel
from streamgauge.theory.graded_anchor import anchor_columns, choose_anchor, column_norms, worst_marginals
from streamgauge.theory.graded_deaths import normalised, with_deaths

RELATIVE_TOLERANCE = 2.0**-44
"""Default: a singular value at most n times this times the largest of its site counts as zero."""
EXPONENT = 64
"""Sites whose largest entry lies outside 2^(-64 .. 64) are scaled by a power of two on the way."""


@dataclass(frozen=True)
class GradedBatch:
    """``A_l P_l = P_{l+1} D_l`` for B chains; column j of every gauge carries slot j.

    - ``mixers`` (B, L, n, n), ``gauge`` (B, L+1, n, n), ``gates`` (B, L, n).
    - ``ranks``, ``tolerances``, ``smallest_kept``, ``largest_dropped`` (B, L): how the ranks were decided.
    - ``norms`` (B,): "two", "max" or "one", the norm of the columns; ``anchored`` (B,): whether slot 0 is the anchor.
    - ``precise`` (B,): whether float64 missed a death, or a gauge it can invert, and more bits were tried.
    """

    mixers: Floats
    gauge: Floats
    gates: Floats
    ranks: np.ndarray
    tolerances: Floats
    smallest_kept: Floats
    largest_dropped: Floats
    norms: np.ndarray
    anchored: np.ndarray
    precise: np.ndarray

    def __len__(self) -> int:
        return len(self.mixers)

    def form(self, b: int, chain: Chain | None = None) -> NormalForm:
        """The normal form of chain b (``chain``: the same chain with its reads, writes, entry and readout)."""
        sites, n = self.gates.shape[1:]
        names = {"two": "2-norm", "max": "max norm", "one": "1-norm"}
        notes = [f"columns have {names[str(self.norms[b])]} 1"]
        notes.append("slot 0 is the anchor" if self.anchored[b] else "no anchor: column 0 is graded like the others")
        if self.precise[b]:
            notes.append(
                "float64 misses a death or a usable gauge: rank-deficient maps were truncated and swept in more bits"
            )
        labels = zip(self.ranks[b], self.tolerances[b], self.smallest_kept[b], self.largest_dropped[b])
        return NormalForm(
            "graded",
            self._chain(b) if chain is None else chain,
            tuple(self.gauge[b]),
            (tuple(range(n)),) * (sites + 1),
            tuple(self.gates[b]),
            bars_of(self.gates[b], n),
            tuple(RankLabel(int(r), False, float(t), float(k), float(d)) for r, t, k, d in labels),
            notes=tuple(notes),
        )

    def _chain(self, b: int) -> Chain:
        # a chain without any number would count as exact: an entry of floats says what it is
        mixers, n = self.mixers[b], self.gates.shape[-1]
        return Chain(list(mixers)) if len(mixers) else Chain([], entry=np.ones(n))


def bars_of(gates: Any, n: int) -> tuple[Bar, ...]:
    """The intervals that gates (L rows of n slots) describe: a gate 0 at site l ends a bar at level l."""
    sites = len(gates)
    bars = []
    for slot in range(n):
        birth = 0
        for l in range(sites):
            if gates[l][slot] == 0:
                bars.append(Bar(birth, l, slot))
                birth = l + 1
        bars.append(Bar(birth, sites, slot))
    return tuple(sorted(bars))


def graded_batch(
    mixers: Floats,
    *,
    entry: Floats | None = None,
    readout: Floats | None = None,
    tolerance: float | None = None,
) -> GradedBatch:
    """The graded forms of B square chains, mixers (B, L, n, n) float64.

    ``entry``, ``readout`` (n,) or (B, n): what the anchor starts from and is read by.  ``tolerance``: relative to the
    largest singular value of a site, default n 2^-44.

    **Raises** :class:`InputError` for wrong shapes, non-finite entries, gates outside the range of float64, and a
    rank that no number of bits confirms.
    """
    mixers = _checked(mixers)
    batch, sites, n, _ = mixers.shape
    relative = n * RELATIVE_TOLERANCE if tolerance is None else float(tolerance)
    if not 0 <= relative < 1:
        raise InputError(f"tolerance: found {relative}, expected at least 0 and below 1 (relative to ||A||)")
    maps, exponents = _scaled(mixers)
    sigma: Floats = np.zeros((batch, sites, n))
    if maps.size:
        sigma[...] = np.linalg.svd(maps, compute_uv=False)
    kept = sigma > relative * sigma[..., :1]
    labels = _labels(sigma, kept, relative, exponents)
    rows, columns = worst_marginals(mixers)
    norms = column_norms(rows, columns)
    ends = _stack(entry, "entry", batch, n), _stack(readout, "readout", batch, n)
    found, anchored = choose_anchor(maps, *ends, rows, columns)
    gauge, gates = np.zeros((batch, sites + 1, n, n)), np.zeros((batch, sites, n))
    some = np.flatnonzero(anchored)
    if len(some):
        gauge[some, ..., 0], gates[some, :, 0] = anchor_columns(found.part(some), norms[some])
    precise = np.zeros(batch, dtype=bool)
    full = (labels["ranks"] == n).all(axis=1)
    for use in (False, True):
        group = np.flatnonzero(full & (anchored == use))
        if len(group):
            columns, factors = _full(maps[group], found.covectors[group] if use else None)
            gauge[group, ..., int(use) :], gates[group, :, int(use) :] = normalised(columns, factors, norms[group])
    for b in np.flatnonzero(~full):
        deaths, sizes = (n - labels["ranks"][b]).tolist(), sigma[b, :, 0].tolist()
        covectors = found.covectors[b] if anchored[b] else None
        precise[b] = with_deaths(maps[b], deaths, sizes, covectors, gauge[b], gates[b], norms[b], relative)
    _restore(gates, exponents)
    return GradedBatch(mixers, gauge, gates, **labels, norms=norms, anchored=anchored, precise=precise)


def _full(maps: Floats, covectors: Floats | None) -> tuple[Floats, Floats]:
    """Covariant columns (B, L+1, n, m) and factors (B, L, m) of chains of full rank; m = n - 1 beside an anchor."""
    bases = None if covectors is None else frames.complements(covectors)
    small = maps if bases is None else bases[:, 1:].swapaxes(-1, -2) @ (maps @ bases[:, :-1])
    levels, triangles = frames.forward_frames(small, frames.backward_frame(small))
    columns = levels @ frames.covariant_columns(triangles)
    return columns if bases is None else bases @ columns, np.diagonal(triangles, axis1=-2, axis2=-1)


def _labels(sigma: Floats, kept: Any, relative: float, exponents: Any) -> dict[str, Any]:
    ranks = kept.sum(axis=-1)
    with np.errstate(over="ignore"):
        true = np.ldexp(sigma, exponents[..., None])
    smallest = np.where(kept, true, np.inf).min(axis=-1, initial=np.inf)
    largest = np.where(kept, -1.0, true).max(axis=-1, initial=-1.0)
    first = true[..., 0] if true.shape[-1] else np.zeros(ranks.shape)
    return {
        "ranks": ranks,
        "tolerances": relative * first,
        "smallest_kept": np.where(ranks > 0, smallest, np.nan),
        "largest_dropped": np.where(ranks < sigma.shape[-1], largest, np.nan),
    }


def _scaled(mixers: Floats) -> tuple[Floats, Any]:
    """Sites of extreme size times a power of two, and its exponents (B, L)."""
    exponents = np.frexp(np.abs(mixers).max(axis=(-1, -2), initial=0.0))[1]
    exponents = np.where(np.abs(exponents) > EXPONENT, exponents, 0)
    if not exponents.any():
        return mixers, exponents
    return np.ldexp(mixers, -exponents[..., None, None]), exponents


def _restore(gates: Floats, exponents: Any) -> None:
    """Put the powers of two back into the gates; refuse what float64 cannot hold."""
    if not exponents.any():
        return
    with np.errstate(over="ignore"):
        true = np.ldexp(gates, exponents[..., None])
    lost = ~np.isfinite(true) | ((true == 0) & (gates != 0))
    if lost.any():
        b, l, j = np.argwhere(lost)[0]
        raise InputError(
            f"mixer {l}: gate {j} is {gates[b, l, j]:.3g} * 2^{exponents[b, l]}, expected within the range of float64"
        )
    gates[...] = true


def _checked(mixers: Any) -> Floats:
    array = np.asarray(mixers, dtype=np.float64)
    if array.ndim != 4 or array.shape[-1] != array.shape[-2]:
        raise InputError(f"mixers: found shape {array.shape}, expected (chains, sites, n, n)")
    if not np.isfinite(array).all():
        b, l, i, j = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"mixer {l} of chain {b}: entry ({i}, {j}) is {array[b, l, i, j]}, expected a finite number")
    return array


def _stack(vector: Floats | None, name: str, batch: int, n: int) -> Floats | None:
    if vector is None:
        return None
    array = np.asarray(vector, dtype=np.float64)
    if array.shape not in ((n,), (batch, n)):
        raise InputError(f"{name}: found shape {array.shape}, expected ({n},) or ({batch}, {n})")
    return np.array(np.broadcast_to(array, (batch, n)))
