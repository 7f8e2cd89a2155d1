"""The stream operations written again in float64 torch: the second route of the kernels' tests.

Imports nothing of the package.  Also the pairwise covering array and the tolerance of the kernel tests.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

UNIT = 2.0**-24  # of float32


def sinkhorn(z: Tensor, recipe: Mapping[str, Any]) -> Tensor:
    """On log S where no ``start_eps`` forces plain sums; every divisor is a logarithm of sums of exponentials."""
    z = z / recipe.get("temperature", 1.0)
    axes = [{"rows": -1, "columns": -2}[name] for name in recipe["order"]]
    eps, mode, plain = recipe["eps"], recipe["eps_mode"], recipe["start_eps"] > 0
    floor = math.log(eps) if eps > 0 else -math.inf
    steps = [axes[k % 2] for k in range(2 * recipe["iterations"])]
    if recipe["start"] == "softmax":
        log = z - torch.logsumexp(z, axes[0], keepdim=True)
        steps = steps[1:]
    else:
        log = z - z.amax(axes[0], keepdim=True)
    if plain:
        s = log.exp() + recipe["start_eps"]
        for axis in steps:
            total = s.sum(axis, keepdim=True)
            total = {"add": total + eps, "clamp": torch.maximum(total, torch.tensor(eps).double()), "none": total}[
                mode
            ]
            s = s / total
        return s
    for axis in steps:
        total = torch.logsumexp(log, axis, keepdim=True)
        low = torch.full_like(total, floor)
        total = {"add": torch.logaddexp(total, low), "clamp": torch.maximum(total, low), "none": total}[mode]
        log = log - total
    return log.exp()


def coefficients(
    x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, rms_eps: float, metric: Tensor | None = None
) -> Tensor:
    n, d = x.shape[-2:]
    seen = x if metric is None else torch.einsum("ij,tjc->tic", metric, x)
    rms = torch.sqrt((seen**2).sum((1, 2)) / (n * d) + rms_eps)
    dots = torch.einsum("msc,tsc->tm", weight.reshape(-1, n, d), x)
    return base + scale * dots / rms[:, None]


def activate(z: Tensor, n: int, options: Mapping[str, Any]) -> list[Tensor]:
    """p, r and the carry; ``options``: carry, read_eps, write_mult, write_eps, transpose and a recipe."""
    half = [1 / (1 + torch.exp(-z[:, :n])), 1 / (1 + torch.exp(-z[:, n : 2 * n]))]
    out = [half[0] + options["read_eps"], options["write_mult"] * half[1] + options["write_eps"]]
    if options["carry"] == "gates":
        out.append(1 / (1 + torch.exp(-z[:, 2 * n :])))
    if options["carry"] == "mixer":
        matrix = sinkhorn(z[:, 2 * n :].reshape(-1, n, n), options)
        out.append(matrix.transpose(1, 2) if options["transpose"] else matrix)
    return out


def read(x: Tensor, p: Tensor) -> Tensor:
    return (p[..., :, None] * x).sum(-2)


def write(x: Tensor, y: Tensor, r: Tensor, mode: str, carry: Tensor | None, eps: float, cap: float) -> Tensor:
    n = x.shape[-2]
    if mode == "full":
        assert carry is not None
        rows = [sum(carry[..., i, j, None] * x[..., j, :] for j in range(n)) for i in range(n)]
        kept = torch.stack([row if isinstance(row, Tensor) else x[..., 0, :] for row in rows], -2)
    elif mode == "identity":
        kept = x
    else:
        assert carry is not None
        factor = torch.ones(carry.shape[:-1], dtype=x.dtype)
        if mode == "norm":
            factor = torch.clamp(math.sqrt(n) / (torch.sqrt((carry**2).sum(-1)) + eps), max=cap)
        kept = (factor[..., None] * carry)[..., None] * x
    return kept + r[..., :, None] * y[..., None, :]


def covering(axes: Mapping[str, Sequence[Any]], seed: int = 0) -> list[dict[str, Any]]:
    """Rows in which every pair of values of two axes occurs: greedy, the best of 30 random rows each time."""
    rng = random.Random(seed)
    names = list(axes)
    places = {name: range(len(axes[name])) for name in names}
    missing = {(a, i, b, j) for a, b in itertools.combinations(names, 2) for i in places[a] for j in places[b]}
    rows = []
    while missing:
        a, i, b, j = min(missing)
        best: dict[str, int] = {}
        gain: set[Any] = set()
        for _ in range(30):
            row = {name: rng.choice(places[name]) for name in names} | {a: i, b: j}
            covers = {(p, row[p], q, row[q]) for p, q in itertools.combinations(names, 2)} & missing
            if len(covers) > len(gain):
                best, gain = row, covers
        missing -= gain
        rows.append({name: axes[name][k] for name, k in best.items()})
    return rows


def assert_agrees(name: str, got: Tensor, expected: Tensor, terms: int, roundings: int = 1) -> None:
    """|got - expected| within the largest expected entry times: half a unit in the last place of got's dtype for each
    rounding to it, and two units of float32 for each of ``terms`` operations on the way."""
    assert got.shape == expected.shape, (name, got.shape, expected.shape)
    if not expected.numel():
        return
    assert torch.isfinite(got).all(), name
    stored = 0.0 if got.dtype == torch.float32 else roundings * torch.finfo(got.dtype).eps / 2
    error = float((got.detach().double() - expected.detach()).abs().max())
    largest = float(expected.abs().max())
    assert error <= (stored + 2 * UNIT * (8 + terms)) * largest, (name, error / largest, terms)
