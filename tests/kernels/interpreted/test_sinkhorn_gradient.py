"""The Sinkhorn gradient: finite differences, homogeneity, wide and saturated logits."""

from __future__ import annotations

from typing import Any

import kernel_formulas as truth
import pytest
import torch
from torch import Tensor

from streamgauge.kernels import dispatch

ORDINARY = torch.tensor(
    [[0.3, -1.2, 0.8, 0.1], [1.5, 0.2, -0.4, -0.9], [-0.7, 0.6, 1.1, 0.5], [0.9, -0.3, 0.4, -1.6]]
)
HARD = torch.tensor([[12.0, 0, 0, 0], [12, 0, 0, 0], [0, 12, 0, 0], [0, 0, 12, 0]])
SLOW = torch.tensor([[0.0, 0.0], [-30.0, 0.0]])
EMPTY = torch.tensor([[0.0, -200.0], [0.0, -200.0]])
MATRICES = {"ordinary": ORDINARY, "hard": HARD, "slow": SLOW, "empty column": EMPTY}
RECIPES: dict[str, dict[str, Any]] = {
    "deepseek": {"order": ("rows", "columns"), "start": "softmax", "start_eps": 1e-6, "eps": 1e-6, "eps_mode": "add"},
    "large eps": {"order": ("rows", "columns"), "start": "softmax", "start_eps": 0.03, "eps": 0.1, "eps_mode": "add"},
    "exp, large eps": {"order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 0.3, "eps_mode": "add"},
    "clamp": {"order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 1e-6, "eps_mode": "clamp"},
    "paper": {"order": ("columns", "rows"), "start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none"},
}


def cotangent(like: Tensor) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(5))


def gradient(z: Tensor, up: Tensor, recipe: dict[str, Any], iterations: int) -> Tensor:
    leaf = z.clone().requires_grad_()
    out = dispatch.sinkhorn(leaf, iterations=iterations, backend="triton", **recipe)
    (down,) = torch.autograd.grad(out, leaf, up)
    return down


def differences(z: Tensor, up: Tensor, recipe: dict[str, Any], iterations: int) -> Tensor:
    """Central differences of <up, S> in float64, of the formulas that know no gradient (error about 1e-9)."""
    step, z, up = 1e-5, z.double(), up.double()
    out = torch.zeros_like(z)
    for place in torch.cartesian_prod(torch.arange(len(z)), torch.arange(len(z))).tolist():
        value = []
        for sign in (1, -1):
            moved = z.clone()
            moved[tuple(place)] += sign * step
            value.append((up * truth.sinkhorn(moved, {**recipe, "iterations": iterations})).sum())
        out[tuple(place)] = (value[0] - value[1]) / (2 * step)
    return out


@pytest.mark.parametrize("iterations", [1, 3, 10, 20])
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_finite_differences(recipe: str, matrix: str, iterations: int) -> None:
    z = MATRICES[matrix]
    up = cotangent(z)
    true = differences(z, up, RECIPES[recipe], iterations)
    found = gradient(z, up, RECIPES[recipe], iterations).double()
    terms = 8 * iterations + int(4 * float(z.abs().max()))
    floor = float((up * dispatch.sinkhorn(z, iterations=iterations, **RECIPES[recipe])).abs().max())
    allowed = 2 * truth.UNIT * (8 + terms) * max(floor, float(true.abs().max())) + 1e-8
    assert float((found - true).abs().max()) <= allowed


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_test_above_can_fail(recipe: str) -> None:
    """Control: no gradient, the transposed one, and that of a sweep more or less are far outside the tolerance."""
    up = cotangent(ORDINARY)
    true, less, more = (differences(ORDINARY, up, RECIPES[recipe], iterations) for iterations in (3, 2, 4))
    assert all(float((other - true).abs().max()) > 1e-3 for other in (0 * true, true.mT, less, more))


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("matrix", ["ordinary", "hard"])
def test_homogeneous_in_the_upstream_gradient(recipe: str, matrix: str) -> None:
    z, up = MATRICES[matrix], cotangent(MATRICES[matrix])
    base = gradient(z, up, RECIPES[recipe], 20)
    assert float(base.abs().max()) > 1e-5
    for power in (-100, 13, 33, 100):  # 2^100 is 1.3e30
        scaled = gradient(z, up * 2.0**power, RECIPES[recipe], 20)
        assert torch.equal(scaled, base * 2.0**power)
    thirty = gradient(z, up * 1e30, RECIPES[recipe], 20)
    assert torch.isfinite(thirty).all()
    assert float((thirty / 1e30 - base).abs().max()) <= 1e-6 * float(base.abs().max()) + 1e-8 * float(up.abs().max())


@pytest.mark.parametrize("recipe", RECIPES)
def test_wide_logits(recipe: str) -> None:
    """Logits to 1e4: finite both ways, and right where float32 can hold the answer."""
    generator = torch.Generator().manual_seed(2)
    z = 1e4 * torch.randn(20, 5, 5, generator=generator)
    up = torch.randn(z.shape, generator=generator)
    out = dispatch.sinkhorn(z, iterations=20, backend="triton", **RECIPES[recipe])
    true = truth.sinkhorn(z.double(), {**RECIPES[recipe], "iterations": 20})
    assert float((out.double() - true).abs().max()) <= 2 * truth.UNIT * 4 * float(z.abs().max())
    assert torch.isfinite(gradient(z, up, RECIPES[recipe], 20)).all()
    offset = 1e4 * torch.randn(20, 5, 1, generator=generator).round(decimals=2)
    narrow = (torch.randn(20, 5, 5, generator=generator) * 64).round() / 64
    moved = (offset.round() + narrow).float()  # exact: rows far apart, entries near in each row
    if RECIPES[recipe]["order"][0] == "rows":
        first = gradient(moved, up, RECIPES[recipe], 3)
        second = gradient(narrow, up, RECIPES[recipe], 3)
        assert float((first - second).abs().max()) <= 2e-5 * float(second.abs().max())


def test_shift_invariance_where_there_is_no_eps() -> None:
    up = cotangent(ORDINARY)
    down = gradient(ORDINARY, up, RECIPES["paper"], 20)
    for axis in (0, 1):  # converged: adding a constant to a row or a column changes nothing
        assert float(down.sum(axis).abs().max()) <= 1e-6


def test_saturated_logits_have_small_finite_gradients() -> None:
    z = 10 * torch.eye(4)
    down = gradient(z, cotangent(z), RECIPES["deepseek"], 20)
    assert 1e-6 < float(down.abs().max()) < 1e-2


def test_golden_numbers() -> None:
    """Constants computed by others: 2 I, HARD and the slow matrix at 20 iterations."""
    recipe = {**RECIPES["deepseek"], "iterations": 20, "backend": "triton"}
    two = dispatch.sinkhorn(2 * torch.eye(4), **recipe)
    assert float(two[0, 0]) == pytest.approx(0.71123, abs=1e-5)
    assert float(two[0, 1]) == pytest.approx(0.09626, abs=1e-5)
    hard = dispatch.sinkhorn(HARD, **recipe)
    assert float((1 - hard.sum(-1)).abs().max()) == pytest.approx(0.02566, abs=1e-5)
    assert float((1 - hard.sum(-2)).abs().max()) == pytest.approx(1.03e-6, abs=2e-7)
    slow = dispatch.sinkhorn(SLOW, **recipe)
    assert float((1 - slow.sum(-1)).abs().max()) == pytest.approx(0.02436, abs=1e-5)
