"""A small many-stream residual network with its gradients by hand, to see which mixers train.

    z_l = p_l X_l,    X_{l+1} = A_l X_l + r_l tanh(z_l U_l) V_l,    output = (1/n) 1^T X_L H,

n streams, width d, L sites, l site; X is (B, n, d) and X_0 = 1 x.  The branches U_l (d, k), V_l (k, d) and the head
H (d, m) are trained on the mean squared error by gradient descent with momentum and a bound on the gradient's norm,
as language models are.  Reads p_l and writes r_l are drawn and fixed; the mixers A_l are fixed, or trained as free
matrices.  Only numpy is needed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats

MixerKind = Literal["fixed", "free"]


@dataclass(frozen=True)
class Task:
    """A regression problem: inputs (B, d) and targets (B, m)."""

    inputs: Floats
    targets: Floats


@dataclass(frozen=True)
class Training:
    """What a run did.

    - ``losses``: (steps + 1,), before every step and at the end; stops early once a loss is not finite.
    - ``norms``: (L,), the largest spectral norm that each A_l had during training; ``smallest``: the least one.
    - ``carry``: spectral norm of A_{L-1} .. A_0 at the end; ``gradient``: largest gradient norm met.
    """

    losses: Floats
    norms: Floats
    smallest: Floats
    carry: float
    gradient: float

    @property
    def spike(self) -> float:
        """max over steps of loss / least loss so far: 1 for a loss that never rises, inf for one that overflows."""
        if not np.isfinite(self.losses).all():
            return float("inf")
        return float((self.losses / np.minimum.accumulate(self.losses)).max())


def teacher_task(*, width: int, outputs: int, samples: int, seed: int) -> Task:
    """A smooth nonlinear target: a random two-layer tanh network of the inputs, unit variance inputs."""
    dice = np.random.default_rng(seed)
    x = dice.standard_normal((samples, width))
    inner, outer = dice.standard_normal((width, 2 * width)), dice.standard_normal((2 * width, outputs))
    return Task(x, np.tanh(x @ inner / np.sqrt(width)) @ outer / np.sqrt(2 * width))


@dataclass
class Network:
    """mixers (L, n, n), reads and writes (L, n), inner (L, d, k), outer (L, k, d), head (d, m)."""

    mixers: Floats
    reads: Floats
    writes: Floats
    inner: Floats
    outer: Floats
    head: Floats

    def parameters(self, kind: MixerKind) -> list[Floats]:
        """What gradient descent changes, in the order of :func:`gradients`."""
        return [self.inner, self.outer, self.head, *([self.mixers] if kind == "free" else [])]


def fresh_network(mixers: Floats, *, width: int, hidden: int, outputs: int, seed: int) -> Network:
    """Random branches, reads (positive, sum 1) and writes in (0, 2): mHC's ranges; equal seeds differ in A alone."""
    mixers = np.array(mixers, dtype=np.float64)
    if mixers.ndim != 3 or mixers.shape[1] != mixers.shape[2]:
        raise InputError(f"mixers: found shape {mixers.shape}, expected (sites, n, n)")
    dice = np.random.default_rng(seed)
    sites, n, _ = mixers.shape
    reads = dice.dirichlet(np.ones(n), size=sites)
    writes = dice.uniform(0, 2, (sites, n))
    inner = dice.standard_normal((sites, width, hidden)) / np.sqrt(width)
    outer = dice.standard_normal((sites, hidden, width)) / np.sqrt(hidden * sites)
    head = dice.standard_normal((width, outputs)) / np.sqrt(width)
    return Network(mixers, reads, writes, inner, outer, head)


def gradients(net: Network, task: Task) -> tuple[float, list[Floats]]:
    """The loss mean (output - target)^2 / 2 summed over outputs, and its gradients (inner, outer, head, mixers)."""
    sites, n, _ = net.mixers.shape
    state = np.repeat(task.inputs[:, None, :], n, axis=1)
    states, hidden = [state], []
    for l in range(sites):
        hidden.append(np.tanh(np.einsum("n,bnd->bd", net.reads[l], state) @ net.inner[l]))
        state = (
            np.einsum("ij,bjd->bid", net.mixers[l], state)
            + net.writes[l][:, None] * (hidden[l] @ net.outer[l])[:, None, :]
        )
        states.append(state)
    pooled = state.mean(axis=1)
    error = pooled @ net.head - task.targets
    samples = len(error)
    loss = float((error**2).sum() / (2 * samples))
    back = np.repeat((error @ net.head.T / (n * samples))[:, None, :], n, axis=1)
    grads = [
        np.zeros_like(net.inner),
        np.zeros_like(net.outer),
        pooled.T @ error / samples,
        np.zeros_like(net.mixers),
    ]
    for l in reversed(range(sites)):
        grads[3][l] = np.einsum("bid,bjd->ij", back, states[l])
        written = np.einsum("n,bnd->bd", net.writes[l], back)
        grads[1][l] = hidden[l].T @ written
        inside = (written @ net.outer[l].T) * (1 - hidden[l] ** 2)
        grads[0][l] = np.einsum("n,bnd->bd", net.reads[l], states[l]).T @ inside
        back = np.einsum("ij,bid->bjd", net.mixers[l], back)
        back = back + net.reads[l][:, None] * (inside @ net.inner[l].T)[:, None, :]
    return loss, grads


def train(
    net: Network, task: Task, *, kind: MixerKind, steps: int, rate: float, momentum: float = 0.9, bound: float = 1.0
) -> Training:
    """Gradient descent with momentum on the whole batch, gradient norm at most ``bound``; changes ``net`` in place.

    Cost: about 30 small numpy products per site and step.  Overflow ends the run and stands in ``losses``.
    """
    parameters = net.parameters(kind)
    speed = [np.zeros_like(p) for p in parameters]
    losses: list[float] = []
    norms = np.linalg.norm(net.mixers, 2, axis=(1, 2))
    smallest, largest_gradient = norms.copy(), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for step in itertools.count():
            loss, grads = gradients(net, task)
            losses.append(loss)
            if step == steps or not np.isfinite(loss):
                break
            grads = grads[: len(parameters)]
            size = float(np.sqrt(sum((g**2).sum() for g in grads)))
            largest_gradient, step_size = max(largest_gradient, size), rate * min(1.0, bound / max(size, 1e-300))
            for p, v, g in zip(parameters, speed, grads):
                v *= momentum
                v -= step_size * g
                p += v
            if kind == "free" and np.isfinite(net.mixers).all():
                now = np.linalg.norm(net.mixers, 2, axis=(1, 2))
                norms, smallest = np.maximum(norms, now), np.minimum(smallest, now)
    carry = reduce(lambda product, mixer: mixer @ product, net.mixers)
    return Training(np.array(losses), norms, smallest, float(np.linalg.norm(carry, 2)), largest_gradient)
