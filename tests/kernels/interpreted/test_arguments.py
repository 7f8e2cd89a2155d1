"""Which gradients are wanted, which shapes are taken, what is refused and what is kept."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
import torch
from kernel_draws import CARRY, controller, draw, sites, write
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from streamgauge.kernels import dispatch
from streamgauge.kernels.site import Controller, site

# --- gradients wanted and not wanted


def masks(count: int) -> list[tuple[bool, ...]]:
    return [mask for mask in itertools.product((False, True), repeat=count) if any(mask)]


def assert_masks(run: Callable[..., Tensor], leaves: list[Tensor], chosen: list[tuple[bool, ...]]) -> None:
    """Each mask of wanted gradients: the same bits as when all are wanted, and inputs left as they were."""
    before = [leaf.clone() for leaf in leaves]
    with torch.no_grad():
        up = draw(*run(*leaves).shape, seed=99)
    everything = [leaf.clone().requires_grad_() for leaf in leaves]
    full = torch.autograd.grad(run(*everything), everything, up)
    for mask in chosen:
        given = [leaf.clone().requires_grad_(wanted) for leaf, wanted in zip(leaves, mask)]
        asked = [leaf for leaf, wanted in zip(given, mask) if wanted]
        found = torch.autograd.grad(run(*given), asked, up)
        for a, b in zip(found, [part for part, wanted in zip(full, mask) if wanted]):
            assert torch.equal(a, b), mask
        assert all(leaf.grad is None for leaf in given)
    assert all(torch.equal(a, b) for a, b in zip(before, leaves))
    assert all(float(part.abs().max()) > 0 for part in full)  # every argument is alive


@pytest.mark.parametrize("mode", CARRY)
def test_write_masks(mode: str) -> None:
    n, d, tokens = 3, 9, 4
    leaves = [draw(tokens, n, d), draw(tokens, d, seed=1), draw(tokens, n, seed=2)]
    if mode != "identity":
        leaves.append(draw(tokens, *((n, n) if mode == "full" else (n,)), seed=3))
    assert_masks(lambda x, y, r, carry=None: write(x, y, r, mode, carry), leaves, masks(len(leaves)))


def test_read_and_coefficient_masks() -> None:
    n, d, tokens = 3, 9, 4
    assert_masks(
        lambda x, p: dispatch.read(x, p, backend="triton"), [draw(tokens, n, d), draw(tokens, n, seed=1)], masks(2)
    )
    leaves = [draw(tokens, n, d), draw(5, n * d, seed=1), draw(5, seed=2), draw(5, seed=3), draw(n, n, seed=4)]
    assert_masks(
        lambda x, w, s, b, t: dispatch.coefficients(x, w, s, b, rms_eps=0.1, metric=t, backend="triton"),
        leaves,
        masks(5),
    )


@pytest.mark.parametrize("mode", CARRY)
def test_site_masks(mode: str) -> None:
    """Parameters inside the controller and the branch, each wanted alone and all but it wanted."""
    n, d, tokens = 3, 9, 4
    made = controller(n, d, CARRY[mode])
    leaves = [draw(tokens, n, d), made.weight, made.scale, made.base, draw(d, d, seed=6), draw(n, n, seed=7)]
    leaves += [draw(n, n, seed=8)]

    def run(x: Tensor, w: Tensor, s: Tensor, b: Tensor, mix: Tensor, gauge: Tensor, metric: Tensor) -> Tensor:
        used = Controller(w, s, b, made.activation, 1e-3, metric=metric, gauge_read=gauge)
        return site(x, lambda u: torch.tanh(u @ mix), mode=mode, controller=used, backend="triton")

    singles = [tuple(k == j for k in range(7)) for j in range(7)]
    assert_masks(run, leaves, singles + [tuple(not wanted for wanted in mask) for mask in singles])


@pytest.mark.parametrize("only", ["p", "r", "carry"])
@pytest.mark.parametrize("carry", ["gates", "mixer"])
def test_losses_on_one_output(only: str, carry: str) -> None:
    """The other outputs have no gradient at all; their rows of the weight then have none."""
    n, d = 3, 9
    made = controller(n, d, carry)
    weight = made.weight.clone().requires_grad_()
    out = dispatch.activated(
        draw(4, n, d), weight, made.scale, made.base, activation=made.activation, rms_eps=1e-3, backend="triton"
    )
    part = out[["p", "r", "carry"].index(only)]
    assert part is not None
    (down,) = torch.autograd.grad(part, weight, draw(*part.shape, seed=5))
    rows = {"p": slice(0, n), "r": slice(n, 2 * n), "carry": slice(2 * n, None)}[only]
    alive = down.abs().amax(1) > 0
    assert alive[rows].all()
    assert int(alive.sum()) == len(alive[rows])


def test_a_branch_that_ignores_its_input() -> None:
    n, d = 3, 9
    made = controller(n, d, "none")
    leaf = draw(4, n, d).requires_grad_()
    fixed = draw(4, d, seed=5)
    out = site(leaf, lambda u: fixed, mode="identity", controller=made, backend="triton")
    (down,) = torch.autograd.grad(out, leaf, draw(4, n, d, seed=6))
    assert torch.isfinite(down).all()


# --- shapes and refusals


def test_leading_axes_and_strides() -> None:
    """(batch, time, n, d), broadcast entries, transposed and sliced states: as the contiguous one, bit for bit."""
    n, d = 4, 11
    made = controller(n, d, "mixer")

    def run(x: Tensor) -> Tensor:
        return site(x, torch.tanh, mode="full", controller=made, backend="triton")

    flat = draw(6, n, d)
    expected = run(flat)
    assert torch.equal(run(flat.reshape(2, 3, n, d)).reshape(6, n, d), expected)
    assert torch.equal(run(flat.mT.contiguous().mT), expected)
    assert torch.equal(run(draw(12, n, d).index_copy(0, torch.arange(0, 12, 2), flat)[::2]), expected)
    entry = draw(6, 1, d, seed=3).expand(6, n, d)
    assert torch.equal(run(entry), run(entry.contiguous()))
    alone = run(flat[0])  # no token axis at all
    assert alone.shape == (n, d)
    assert torch.equal(alone, expected[0])
    leaf = flat.clone().requires_grad_()
    run(leaf).sum().backward()  # an expanded cotangent
    assert leaf.grad is not None


def test_partly_shared_coefficients() -> None:
    """(batch, 1, n) coefficients broadcast over time, with their summed gradient."""
    x, p = draw(2, 3, 4, 5), draw(2, 1, 4, seed=1).requires_grad_()
    u = dispatch.read(x, p, backend="triton")
    (down,) = torch.autograd.grad(u, p, draw(2, 3, 5, seed=2))
    assert torch.equal(u, dispatch.read(x, p.detach().expand(2, 3, 4), backend="triton"))
    assert down.shape == p.shape


RECIPE = {
    "order": ("rows", "columns"),
    "start": "exp",
    "start_eps": 0.0,
    "eps": 0.0,
    "eps_mode": "none",
    "iterations": 1,
}
REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "float64 state": (lambda: dispatch.read(draw(2, 3, 4).double(), draw(2, 3), backend="triton"), "read x: found"),
    "float64 coefficient": (lambda: dispatch.read(draw(2, 3, 4), draw(2, 3).double(), backend="triton"), "read p"),
    "17 streams": (lambda: dispatch.read(draw(2, 17, 4), draw(2, 17), backend="triton"), "n 1 to 16"),
    "wrong streams": (lambda: dispatch.read(draw(2, 3, 4), draw(2, 4), backend="triton"), "read p: found shape"),
    "wrong tokens": (lambda: write(draw(2, 3, 4), draw(3, 4), draw(2, 3), "identity"), "write y: found"),
    "tokens of p": (lambda: dispatch.read(draw(2, 3, 4), draw(5, 3), backend="triton"), "read p: found shape (5, 3)"),
    "tokens of the mixer": (
        lambda: write(draw(2, 3, 4), draw(2, 4), draw(2, 3), "full", draw(5, 3, 3)),
        "write mixer: found shape (5, 3, 3)",
    ),
    "temperature": (
        lambda: dispatch.sinkhorn(draw(2, 3, 3), backend="triton", **RECIPE, temperature=0.0),
        "sinkhorn temperature: found 0.0",
    ),
    "eps": (
        lambda: dispatch.sinkhorn(draw(2, 3, 3), backend="triton", **{**RECIPE, "eps": -1.0}),
        "sinkhorn eps: found -1.0",
    ),
    "no mixer": (lambda: write(draw(2, 3, 4), draw(2, 4), draw(2, 3), "full"), "write mixer: found None"),
    "mode": (lambda: write(draw(2, 3, 4), draw(2, 4), draw(2, 3), "half"), "write mode: found 'half'"),
    "cap": (lambda: write(draw(2, 3, 4), draw(2, 4), draw(2, 3), "norm", draw(2, 3), cap=0.0), "cap 0.0"),
    "weight": (
        lambda: dispatch.coefficients(draw(2, 3, 4), draw(5, 11), draw(5), draw(5), rms_eps=0.0, backend="triton"),
        "coefficients weight: found shape (5, 11), expected (5, 12)",
    ),
    "two sources": (
        lambda: site(draw(2, 3, 4), torch.tanh, mode="identity", controller=controller(3, 4, "none"), p=draw(3)),
        "site p: found two sources",
    ),
    "no carry": (
        lambda: site(draw(2, 3, 4), torch.tanh, mode="full", controller=controller(3, 4, "none")),
        "site carry: found none, expected ['mixer']",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str) -> None:
    call, text = REFUSALS[name]
    with pytest.raises(ValueError, match=re.escape(text)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_second_derivatives_raise() -> None:
    x, p = draw(2, 3, 4).requires_grad_(), draw(2, 3, seed=1).requires_grad_()
    u = dispatch.read(x, p, backend="triton")
    (down,) = torch.autograd.grad(u.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"autograd|backward"):
        down.square().sum().backward()


def test_checkpointing_gives_the_same_bits() -> None:
    n, d = 4, 21
    run, up = sites(n, d)["full"], draw(5, n, d, seed=1)
    found = []
    for wrapped in (run, lambda x: checkpoint(run, x, use_reentrant=False)):
        leaf = draw(5, n, d).requires_grad_()
        found.append(torch.autograd.grad(wrapped(leaf), leaf, up)[0])
    assert torch.equal(*found)


def test_the_identity_keeps_no_state() -> None:
    """What is saved for backward: y and r, not X; the gradient of X is the upstream one itself."""
    kept: list[tuple[int, ...]] = []

    def pack(t: Tensor) -> Tensor:
        kept.append(tuple(t.shape))
        return t

    x, y, r = (t.requires_grad_() for t in (draw(6, 4, 50), draw(6, 50, seed=1), draw(6, 4, seed=2)))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = write(x, y, r, "identity")
    assert (6, 4, 50) not in kept
    up = draw(6, 4, 50, seed=3)
    assert torch.equal(torch.autograd.grad(out, x, up)[0], up)
