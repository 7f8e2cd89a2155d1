"""Which mixers train: a small network trained with expanding, free and doubly stochastic ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from streamgauge.proofs.ledger.tools import verdict
from streamgauge.proofs.small_network import Training, fresh_network, teacher_task, train
from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn
from streamgauge.theory.verdict import Verdict

CONVERGED = replace(RECIPES["paper"], iterations=400)
STREAMS, WIDTH, HIDDEN, OUTPUTS, SAMPLES = 4, 6, 12, 3, 64


@dataclass(frozen=True)
class Experiment:
    """A training run: mixers, their common factor, depth, schedule and seed; equal seeds differ in mixers alone."""

    mixers: Literal["doubly stochastic", "rotations", "identity", "free"]
    scale: float = 1.0
    sites: int = 16
    steps: int = 300
    rate: float = 0.05
    seed: int = 1


def mixers_of(experiment: Experiment) -> Floats:
    """(L, n, n): Sinkhorn of normal logits + 2 I, random orthogonal matrices, or the identity, times the factor."""
    dice = np.random.default_rng(experiment.seed + 100)
    shape = (experiment.sites, STREAMS, STREAMS)
    if experiment.mixers == "doubly stochastic":
        return sinkhorn(dice.standard_normal(shape) + 2 * np.eye(STREAMS), CONVERGED).matrix
    if experiment.mixers == "rotations":
        return experiment.scale * np.linalg.qr(dice.standard_normal(shape))[0]
    return experiment.scale * np.broadcast_to(np.eye(STREAMS), shape)


@lru_cache(maxsize=64)
def trained(experiment: Experiment) -> Training:
    """The run; remembered, for the same reference serves several cases."""
    seed = experiment.seed
    task = teacher_task(width=WIDTH, outputs=OUTPUTS, samples=SAMPLES, seed=seed)
    net = fresh_network(mixers_of(experiment), width=WIDTH, hidden=HIDDEN, outputs=OUTPUTS, seed=seed)
    kind: Literal["free", "fixed"] = "free" if experiment.mixers == "free" else "fixed"
    return train(net, task, kind=kind, steps=experiment.steps, rate=experiment.rate)


def stable_only_if_not_expanding(experiment: Experiment) -> Verdict:
    """If training is stable, then some mixer was non-expanding (spectral norm at most 1.001).

    Stable: every loss is finite, none is above 1.25 times the least so far, and the end is no worse than that of the
    doubly stochastic run with the same data, start, reads, writes and schedule.
    """
    found = trained(experiment)
    reference = trained(replace(experiment, mixers="doubly stochastic", scale=1.0))
    least, last = float(found.norms.min()), float(found.losses[-1])
    stable = found.spike <= 1.25 and last <= float(reference.losses[-1])
    expanding = least > 1.001
    reason = (
        f"least mixer norm {least:.4g}, carry {found.carry:.4g}; loss {found.losses[0]:.3g} to {last:.3g} "
        f"(doubly stochastic: {reference.losses[-1]:.3g}), spike {found.spike:.3g} ({reference.spike:.3g})"
    )
    return verdict(
        not (stable and expanding),
        reason,
        mixer_norms=(least, float(found.norms.max())),
        carry_norm=found.carry,
        losses=found.losses[:: max(1, len(found.losses) // 6)],
        final_loss=last,
        reference_loss=float(reference.losses[-1]),
        spike=found.spike,
        reference_spike=reference.spike,
        gradient=found.gradient,
    )
