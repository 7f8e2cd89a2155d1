"""What no tolerance can blur: exact fixtures, the norm gate, permutations, tokens that do not see one another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_draws import CARRY, controller, draw, sites, write
from torch import Tensor

from streamgauge.kernels import configs, dispatch
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site

CYCLE = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])

# --- exact fixtures


def test_the_cycle_is_not_transposed() -> None:
    x = torch.tensor([1.0, 2, 3]).reshape(1, 3, 1)
    out = write(x, torch.zeros(1, 1), torch.zeros(1, 3), "full", CYCLE.mT)
    assert out.flatten().tolist() == [3, 1, 2]  # the released models' comb is CYCLE, and A = comb^T
    leaf = x.clone().requires_grad_()
    write(leaf, torch.zeros(1, 1), torch.zeros(1, 3), "full", CYCLE.mT).backward(torch.tensor([[[1.0], [0], [0]]]))
    assert leaf.grad is not None
    assert leaf.grad.flatten().tolist() == [0, 0, 1]


def test_the_mixed_residual_is_returned() -> None:
    x = torch.tensor([1.0, 2]).reshape(1, 2, 1)
    out = write(x, torch.zeros(1, 1), torch.zeros(1, 2), "full", torch.tensor([[0.0, 1], [1, 0]]))
    assert out.flatten().tolist() == [2, 1]


def test_zero_logits() -> None:
    """All-zero z: p = 1/2 + read_eps, r = write_mult / 2, mixer uniform, gates 1/2."""
    n, d = 4, 6
    for carry in ("none", "gates", "mixer"):
        made = Activation(carry=carry, read_eps=0.25, write_mult=2.0, eps=0.0, start_eps=0.0)
        m = made.rows(n)
        zero = torch.zeros(m)
        p, r, got = dispatch.activated(
            draw(5, n, d), torch.zeros(m, n * d), zero, zero, activation=made, rms_eps=1e-6, backend="triton"
        )
        assert (p == 0.75).all()
        assert (r == 1.0).all()
        if got is not None:
            torch.testing.assert_close(got, torch.full_like(got, 0.5 if carry == "gates" else 0.25))


def test_four_eps_do_four_different_things() -> None:
    """Each of rms_eps, read_eps, write_eps, the Sinkhorn's eps and start_eps moves exactly its own output."""
    n, d = 3, 5
    x = 1e-2 * draw(4, n, d)
    base: dict[str, Any] = {"read_eps": 1e-2, "write_eps": 1e-3, "eps": 1e-1, "start_eps": 1e-4, "rms_eps": 1e-5}

    def outputs(**changed: float) -> tuple[Tensor, Tensor, Tensor]:
        given = {**base, **changed}
        made = controller(n, d, "mixer", **{k: v for k, v in given.items() if k != "rms_eps"})
        p, r, a = dispatch.activated(
            x, made.weight, made.scale, made.base, activation=made.activation, rms_eps=given["rms_eps"],
            backend="triton",
        )  # fmt: skip
        assert a is not None
        return p, r, a

    before = outputs()
    expected = {"read_eps": (1, 0, 0), "write_eps": (0, 1, 0), "eps": (0, 0, 1), "start_eps": (0, 0, 1)}
    expected["rms_eps"] = (1, 1, 1)
    for name, moves in expected.items():
        after = outputs(**{name: base[name] * 30})
        assert tuple(int(not torch.equal(a, b)) for a, b in zip(before, after)) == moves, name


def test_coefficients_stay_in_float32_with_bfloat16_states() -> None:
    n, d = 4, 50
    made = controller(n, d, "mixer", iterations=20)
    x = draw(64, n, d, dtype=torch.bfloat16)
    p, r, a = dispatch.activated(
        x, made.weight, made.scale, made.base, activation=made.activation, rms_eps=1e-6, backend="triton"
    )
    assert a is not None
    assert {t.dtype for t in (p, r, a)} == {torch.float32}
    assert float((a.sum(1) - 1).abs().max()) < 1e-5


@pytest.mark.filterwarnings("ignore:overflow encountered")  # one of the two sums of squares is meant to
@pytest.mark.parametrize("size", [1e-30, 1e-21, 1.0, 1e21, 1e30])
@pytest.mark.parametrize("with_metric", [False, True], ids=["identity", "metric"])
def test_the_norm_knows_no_scale(size: float, with_metric: bool) -> None:
    n, d, m = 4, 33, 6
    x, weight = draw(5, n, d, seed=1), draw(m, n * d, seed=2)
    metric = draw(n, n, seed=3) if with_metric else None
    one, base = torch.ones(m), draw(m, seed=4)

    def run(times: float) -> tuple[Tensor, Tensor]:
        leaf = (times * x).requires_grad_()
        z = dispatch.coefficients(leaf, weight, one, base, rms_eps=0.0, metric=metric, backend="triton")
        (down,) = torch.autograd.grad(z, leaf, draw(5, m, seed=5))
        return z, down * times

    for got, expected in zip(run(size), run(1.0)):
        assert float((got - expected).abs().max()) <= 1e-5 * float(expected.abs().max())


# --- norm gate


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_norm_gate_at_zero(eps: float) -> None:
    """g = 0 carries nothing, has c = 1 and the gradient of that; nothing becomes nan, and huge states stay away."""
    n, d = 4, 7
    x = 1e30 * draw(3, n, d)
    g = draw(3, n, seed=1)
    g[1] = 0
    leaves = [x.requires_grad_(), draw(3, d, seed=2).requires_grad_(), draw(3, n, seed=3).requires_grad_(), g]
    g.requires_grad_()
    out = write(leaves[0], leaves[1], leaves[2], "norm", g, eps=eps)
    assert torch.equal(out[1], leaves[2][1][:, None] * leaves[1][1][None, :])
    up = draw(3, n, d, seed=4)
    down = torch.autograd.grad(out, leaves, up)
    assert all(torch.isfinite(part).all() for part in down)
    assert (down[0][1] == 0).all()
    torch.testing.assert_close(down[3][1], (up[1] * x.detach()[1]).sum(-1))


@pytest.mark.parametrize("size", [1e-38, 1e-30, 1e-10, 1e10, 1e30])
def test_norm_gate_of_any_size(size: float) -> None:
    """Without eps the gate only sees the direction of g; its gradient is orthogonal to g and shrinks as 1 / |g|."""
    n, d = 4, 5
    x, y, r, g = draw(6, n, d), draw(6, d, seed=1), draw(6, n, seed=2), draw(6, n, seed=3)
    plain = write(x, y, r, "norm", g)
    torch.testing.assert_close(write(x, y, r, "norm", g * size), plain, rtol=2e-6, atol=2e-6)
    if size >= 1e-30:
        leaf = (g * size).requires_grad_()
        up = draw(6, n, d, seed=4)
        (down,) = torch.autograd.grad(write(x, y, r, "norm", leaf), leaf, up)
        other = g.clone().requires_grad_()
        (unit,) = torch.autograd.grad(write(x, y, r, "norm", other), other, up)
        torch.testing.assert_close(down * size, unit, rtol=1e-5, atol=1e-5)
        assert float((unit * g).sum(-1).abs().max()) <= 1e-5


def test_a_capped_gate_is_linear() -> None:
    n, d = 4, 5
    x, y, r = draw(6, n, d), draw(6, d, seed=1), draw(6, n, seed=2)
    g = (0.1 * draw(6, n, seed=3)).requires_grad_()
    up = draw(6, n, d, seed=4)
    (down,) = torch.autograd.grad(write(x, y, r, "norm", g, cap=0.7), g, up)
    torch.testing.assert_close(down, 0.7 * (up * x).sum(-1))


# --- permutations


@pytest.mark.parametrize("mode", CARRY)
def test_permuting_the_streams(mode: str) -> None:
    """Everything permuted along: (P X, P A P^T, P r, p P^T) gives P X' and permuted gradients, bit for bit if n = 2
    sums agree; here up to the order of sums."""
    n, d, tokens = 5, 37, 6
    order = torch.tensor([3, 0, 4, 1, 2])
    x, y, r = draw(tokens, n, d), draw(tokens, d, seed=1), draw(tokens, n, seed=2)
    carry = {"full": draw(tokens, n, n, seed=3), "identity": None}.get(mode, draw(tokens, n, seed=3))
    up = draw(tokens, n, d, seed=4)

    def run(state: Tensor, weights: Tensor, kept: Tensor | None, down: Tensor) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (state, y, weights, kept) if t is not None]
        out = write(leaves[0], leaves[1], leaves[2], mode, leaves[3] if kept is not None else None)
        return [out.detach(), *torch.autograd.grad(out, leaves, down)]

    moved = None if carry is None else (carry[:, order][:, :, order] if mode == "full" else carry[:, order])
    plain, permuted = run(x, r, carry, up), run(x[:, order], r[:, order], moved, up[:, order])
    back = [plain[0][:, order], plain[1][:, order], plain[2], plain[3][:, order]]
    if carry is not None:
        back.append(plain[4][:, order][:, :, order] if mode == "full" else plain[4][:, order])
    for a, b in zip(permuted, back):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_asymmetric_permutation_is_exact_both_ways(dtype: torch.dtype) -> None:
    n, d, tokens = 3, 70, 9
    x, up = draw(tokens, n, d, dtype=dtype), draw(tokens, n, d, seed=1, dtype=dtype)
    leaf = x.clone().requires_grad_()
    out = write(leaf, torch.zeros(tokens, d, dtype=dtype), torch.zeros(n), "full", CYCLE)
    assert torch.equal(out, x[:, [1, 2, 0]])
    (down,) = torch.autograd.grad(out, leaf, up)
    assert torch.equal(down, up[:, [2, 0, 1]])
    whole = site(
        leaf, lambda u: 0 * u, mode="full", p=torch.zeros(n), r=torch.zeros(n), mixer=CYCLE, backend="triton"
    )
    (down,) = torch.autograd.grad(whole, leaf, up)
    assert torch.equal(down, up[:, [2, 0, 1]])


def test_streams_permuted_through_a_whole_site() -> None:
    """A controller whose weight and rows are permuted with the streams makes the permuted site."""
    n, d, tokens = 4, 21, 5
    order = torch.tensor([2, 0, 3, 1])
    made = controller(n, d, "mixer")
    pair = (order[:, None] * n + order[None, :]).flatten()
    rows = torch.cat([order, n + order, 2 * n + pair])
    weight = made.weight.reshape(-1, n, d)[rows][:, order].reshape(-1, n * d)
    other = Controller(weight, made.scale[rows], made.base[rows], made.activation, made.rms_eps)
    x, up = draw(tokens, n, d, seed=8), draw(tokens, n, d, seed=9)
    results = []
    for state, used, down in ((x, made, up), (x[:, order], other, up[:, order])):
        leaf = state.clone().requires_grad_()
        out = site(leaf, torch.tanh, mode="full", controller=used, backend="triton")
        results.append((out.detach(), *torch.autograd.grad(out, leaf, down)))
    for a, b in zip(results[1], results[0]):
        torch.testing.assert_close(a, b[:, order], rtol=1e-5, atol=1e-5)


# --- tokens do not see one another


@pytest.mark.parametrize("mode", CARRY)
def test_nan_stays_in_its_token(mode: str) -> None:
    n, d, tokens = 3, 70, 19
    x = draw(tokens, n, d)
    x[7, 1, 66] = float("nan")
    leaf = x.clone().requires_grad_()
    out = sites(n, d)[mode](leaf)
    (down,) = torch.autograd.grad(out, leaf, draw(tokens, n, d, seed=1))
    others = [t for t in range(tokens) if t != 7]
    for got in (out.detach(), down):
        assert torch.isfinite(got[others]).all()
        assert torch.isnan(got[7]).all()


def test_nan_in_a_read_or_a_matrix_stays_too() -> None:
    x = draw(5, 3, 70)
    x[2, 1, 3] = float("nan")
    u = dispatch.read(x, draw(5, 3, seed=1), backend="triton")
    assert torch.isnan(u[2, 3])
    assert int(torch.isnan(u).sum()) == 1
    z = draw(5, 3, 3)
    z[4, 0, 0] = float("nan")
    for name in ("none", "add"):
        made = dispatch.sinkhorn(
            z, order=("rows", "columns"), start="exp", start_eps=0.0, eps=1e-6, eps_mode=name, iterations=2,
            backend="triton",
        )  # fmt: skip
        assert torch.isnan(made[4]).all()
        assert torch.isfinite(made[:4]).all()


@pytest.mark.parametrize("tiles", ["interpreter", "device"])
@pytest.mark.parametrize("mode", CARRY)
def test_a_token_does_not_depend_on_its_batch(mode: str, tiles: str) -> None:
    """The same bits alone, in a part and in the whole, forward and in dX, and twice the same.

    Parts begin where a tile of 16 begins: numpy's exp and products, not the kernels, see a token's place in it.
    """
    n, d, tokens = 4, 70, 21 if tiles == "interpreter" else 5
    made, x, up = controller(n, d, CARRY[mode]), draw(tokens, n, d), draw(tokens, n, d, seed=1)

    def run(state: Tensor) -> Tensor:
        return site(state, lambda u: 2 * u, mode=mode, controller=made, backend="triton")

    def both(part: slice) -> tuple[Tensor, Tensor]:
        leaf = x[part].clone().requires_grad_()
        out = run(leaf)
        return out.detach(), torch.autograd.grad(out, leaf, up[part])[0]

    if tiles == "device":
        with configs.device_tiles():
            whole, parts = both(slice(None)), [slice(0, 1), slice(0, 4), slice(0, 5)]
            found = [both(part) for part in parts]
    else:
        whole, parts = both(slice(None)), [slice(0, 1), slice(0, 20), slice(16, 21), slice(0, 21)]
        found = [both(part) for part in parts]
    for part, pair in zip(parts, found):
        assert torch.equal(pair[0], whole[0][part])
        assert torch.equal(pair[1], whole[1][part])


def test_the_split_of_the_width_changes_nothing_but_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    x, made = draw(9, 3, 200), controller(3, 200, "mixer")
    out = []
    for splits in (1, 2, 5):
        monkeypatch.setattr(configs, "project_splits", lambda n, d, splits=splits: splits)
        out.append(
            dispatch.coefficients(x, made.weight, made.scale, made.base, rms_eps=1e-3, backend="triton").clone()
        )
    assert not torch.equal(out[0], out[2])
    torch.testing.assert_close(out[1], out[0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(out[2], out[0], rtol=2e-6, atol=2e-6)
