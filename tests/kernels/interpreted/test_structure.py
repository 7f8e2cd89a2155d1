"""Properties no tolerance can blur: exact permutations, liveness, isolation of tokens, masks of wanted gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from streamgauge.kernels import configs, dispatch
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site

CYCLE = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
CARRY = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": "none"}
FAST: dict[str, Any] = {"iterations": 3}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def write(x: Tensor, y: Tensor, r: Tensor, mode: str, carry: Tensor | None = None, **more: Any) -> Tensor:
    named = {} if carry is None else {CARRY[mode]: carry}
    return dispatch.write(x, y, r, mode=mode, backend="triton", **named, **more)


def controller(n: int, d: int, carry: str, seed: int = 3, **options: Any) -> Controller:
    made = Activation(carry=carry, **{**FAST, **options})
    m = made.rows(n)
    weight = draw(m, n * d, seed=seed) * (n * d) ** -0.5
    return Controller(weight, draw(m, seed=seed + 1), draw(m, seed=seed + 2), made, rms_eps=1e-3)


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


def sites(n: int, d: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """One function of the state per mode, every coefficient from the state."""
    out: dict[str, Callable[[Tensor], Tensor]] = {}
    for mode, carry in CARRY.items():
        made = controller(n, d, carry)
        out[mode] = lambda x, mode=mode, made=made: site(  # type: ignore[misc]
            x, torch.tanh, mode=mode, controller=made, backend="triton"
        )
    return out


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


# --- gradients wanted and not wanted


def masks(count: int) -> list[tuple[bool, ...]]:
    return [mask for mask in itertools.product((False, True), repeat=count) if any(mask)]


def check_masks(run: Callable[..., Tensor], leaves: list[Tensor], chosen: list[tuple[bool, ...]]) -> None:
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
    check_masks(lambda x, y, r, carry=None: write(x, y, r, mode, carry), leaves, masks(len(leaves)))


def test_read_and_coefficient_masks() -> None:
    n, d, tokens = 3, 9, 4
    check_masks(
        lambda x, p: dispatch.read(x, p, backend="triton"), [draw(tokens, n, d), draw(tokens, n, seed=1)], masks(2)
    )
    leaves = [draw(tokens, n, d), draw(5, n * d, seed=1), draw(5, seed=2), draw(5, seed=3), draw(n, n, seed=4)]
    check_masks(
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
    check_masks(run, leaves, singles + [tuple(not wanted for wanted in mask) for mask in singles])


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


REFUSALS: dict[str, tuple[Callable[[], object], str]] = {
    "float64 state": (lambda: dispatch.read(draw(2, 3, 4).double(), draw(2, 3), backend="triton"), "read x: found"),
    "float64 coefficient": (lambda: dispatch.read(draw(2, 3, 4), draw(2, 3).double(), backend="triton"), "read p"),
    "17 streams": (lambda: dispatch.read(draw(2, 17, 4), draw(2, 17), backend="triton"), "n 1 to 16"),
    "wrong streams": (lambda: dispatch.read(draw(2, 3, 4), draw(2, 4), backend="triton"), "read p: found shape"),
    "wrong tokens": (lambda: write(draw(2, 3, 4), draw(3, 4), draw(2, 3), "identity"), "write y: found"),
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
    with pytest.raises(ValueError, match="^") as caught:
        call()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_second_derivatives_raise() -> None:
    x, p = draw(2, 3, 4).requires_grad_(), draw(2, 3, seed=1).requires_grad_()
    u = dispatch.read(x, p, backend="triton")
    (down,) = torch.autograd.grad(u.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="autograd|backward"):
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
