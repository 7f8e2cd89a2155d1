"""Figures of the graded form: residual, gates, conditioning and time on Sinkhorn chains and on planted deaths."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from streamgauge.theory.conditioning import condition_numbers
from streamgauge.theory.exact import Floats
from streamgauge.theory.graded_anchor import worst_marginals
from streamgauge.theory.graded_batch import GradedBatch, graded_batch
from streamgauge.theory.spectrum import identity_log10_condition

CHUNK = 4096
"""Matrices normalised at a time, so that they stay in cache."""


@dataclass(frozen=True)
class GradedRow:
    """``chains`` Sinkhorn chains of ``sites`` mixers (n, n), converted in one batch; ``timed`` of them also alone.

    - ``residual``: max |A P - P' D|.  ``gate_excess``: max of gate - sqrt(1 + max marginal error of its chain);
      ``tight_excess``: max of gate - 1 over the ``tight`` chains with both marginals within 1e-13 (nan if none).
    - ``median``, ``p95``, ``worst``: max over levels of cond(P_l), over chains.
    - ``identity_median``, ``identity_worst``: log10 of the same for the identity gauge.
    - ``batch_ms``, ``single_ms``: milliseconds a chain.
    """

    n: int
    sites: int
    chains: int
    residual: float
    gate_excess: float
    tight: int
    tight_excess: float
    median: float
    p95: float
    worst: float
    identity_median: float
    identity_worst: float
    batch_ms: float
    single_ms: float


@dataclass(frozen=True)
class DeathRow:
    """``chains`` planted chains whose slots die and return; ``kind`` "hidden": one direction, much stronger than the
    others, dies after 40 sites.

    - ``deaths`` planted, ``dropped`` = sum of n - rank as decided, ``found`` = zero gates; ``precise``: chains that
      needed more bits than float64.
    - ``residual``: max |A P - P' D| / max(1, |A|); ``median``, ``worst``: max over levels of cond(P_l);
      ``single_ms``: milliseconds a chain.
    """

    kind: str
    chains: int
    deaths: int
    dropped: int
    found: int
    precise: int
    residual: float
    median: float
    worst: float
    single_ms: float


def graded_figures(
    *, n: int = 4, sites: int = 120, chains: int = 1000, timed: int = 20, seed: int = 0
) -> tuple[GradedRow | DeathRow, ...]:
    """One row of Sinkhorn chains and two rows of planted deaths (a tenth as many chains)."""
    few = max(1, chains // 10)
    return (
        sinkhorn_figures(n=n, sites=sites, chains=chains, timed=timed, seed=seed),
        death_figures("often", n=n, sites=sites, chains=few, seed=seed),
        death_figures("hidden", n=n, sites=sites, chains=few, seed=seed),
    )


def sinkhorn_figures(*, n: int, sites: int, chains: int, timed: int, seed: int) -> GradedRow:
    """The row of :func:`sinkhorn_chains`."""
    mixers = sinkhorn_chains(n=n, sites=sites, chains=chains, seed=seed)
    started = time.perf_counter()
    batch = graded_batch(mixers)
    batch_ms = 1e3 * (time.perf_counter() - started) / chains
    alone = min(timed, chains)
    started = time.perf_counter()
    for b in range(alone):
        graded_batch(mixers[b : b + 1])
    single_ms = 1e3 * (time.perf_counter() - started) / max(1, alone)
    error = np.maximum(*worst_marginals(mixers))
    gates = batch.gates.max(axis=(1, 2))
    tight = error <= 1e-13
    condition = condition_numbers(batch.gauge).max(axis=1)
    identity = identity_log10_condition(mixers).max(axis=1)
    return GradedRow(
        n,
        sites,
        chains,
        float(residual(batch).max()),
        float((gates - np.sqrt(1 + error)).max()),
        int(tight.sum()),
        float((gates[tight] - 1).max()) if tight.any() else float("nan"),
        float(np.median(condition)),
        float(np.percentile(condition, 95)),
        float(condition.max()),
        float(np.median(identity)),
        float(identity.max()),
        batch_ms,
        single_ms,
    )


def death_figures(kind: str, *, n: int, sites: int, chains: int, seed: int) -> DeathRow:
    """The row of :func:`planted_deaths`, every chain alone."""
    rng = np.random.default_rng(seed)
    planted = dropped = found = precise = 0
    worst_residual, condition, spent = 0.0, [], 0.0
    for _ in range(chains):
        mixers, gates = planted_deaths(kind, rng, n=n, sites=sites)
        started = time.perf_counter()
        batch = graded_batch(mixers[None])
        spent += time.perf_counter() - started
        planted += int((gates == 0).sum())
        dropped += int((n - batch.ranks).sum())
        found += int((batch.gates == 0).sum())
        precise += int(batch.precise[0])
        worst_residual = max(worst_residual, float(residual(batch).max()) / max(1.0, float(np.abs(mixers).max())))
        condition.append(float(condition_numbers(batch.gauge[0]).max()))
    return DeathRow(
        kind,
        chains,
        planted,
        dropped,
        found,
        precise,
        worst_residual,
        float(np.median(condition)),
        max(condition),
        1e3 * spent / chains,
    )


def sinkhorn_chains(*, n: int, sites: int, chains: int, sweeps: int = 300, seed: int = 0) -> Floats:
    """(chains, sites, n, n): exp(diag I + N(0, 1)), diag uniform in 0 .. 6, after ``sweeps`` normalisations."""
    rng = np.random.default_rng(seed)
    diagonal = rng.uniform(0.0, 6.0, size=(chains, 1, 1, 1))
    logits = diagonal * np.eye(n) + rng.normal(size=(chains, sites, n, n))
    weights = np.exp(logits - logits.max(axis=(-1, -2), keepdims=True)).reshape(-1, n, n).transpose(1, 2, 0).copy()
    for start in range(0, weights.shape[-1], CHUNK):
        part = weights[..., start : start + CHUNK].copy()
        for _ in range(sweeps):
            part /= part.sum(axis=1, keepdims=True)
            part /= part.sum(axis=0, keepdims=True)
        weights[..., start : start + CHUNK] = part
    return np.ascontiguousarray(weights.transpose(2, 0, 1)).reshape(chains, sites, n, n)


def planted_deaths(kind: str, rng: np.random.Generator, *, n: int, sites: int) -> tuple[Floats, Floats]:
    """Mixers ``A_l = P_{l+1} D_l P_l^{-1}`` (sites, n, n) and gates (sites, n) with zeros; P random, cond 1 to 10.

    "often": gates in 0.3 .. 1, a third of the sites lose one slot.  "hidden": gates in 0.2 .. 0.6 but one slot 1 for
    40 sites, then 0, then 1 again.
    """
    gauge = [
        np.linalg.qr(rng.normal(size=(n, n)))[0] @ (np.eye(n) + 0.5 * np.triu(rng.normal(size=(n, n)), 1))
        for _ in range(sites + 1)
    ]
    if kind == "hidden":
        gates = rng.uniform(0.2, 0.6, size=(sites, n))
        slot = int(rng.integers(n))
        gates[:, slot] = 1.0
        gates[40::45, slot] = 0.0
    else:
        gates = rng.uniform(0.3, 1.0, size=(sites, n))
        sites_hit = np.flatnonzero(rng.random(sites) < 1 / 3)
        gates[sites_hit, rng.integers(n, size=len(sites_hit))] = 0.0
    mixers = [gauge[l + 1] * gates[l] @ np.linalg.inv(gauge[l]) for l in range(sites)]
    return np.array(mixers), gates


def residual(batch: GradedBatch) -> Floats:
    """max |A_l P_l - P_{l+1} D_l| of every chain."""
    left = batch.mixers @ batch.gauge[:, :-1]
    gap = np.abs(left - batch.gauge[:, 1:] * batch.gates[:, :, None, :])
    out: Floats = gap.max(axis=(1, 2, 3), initial=0.0)
    return out
