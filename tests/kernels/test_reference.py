"""Reference operations against numpy sums, gradients by finite differences, and the traps of other codebases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy_network as second
import pytest
import torch
from torch import Tensor

from streamgauge.kernels import reference
from streamgauge.theory.sinkhorn import RECIPES
from streamgauge.theory.sinkhorn import sinkhorn as theory_sinkhorn

HARD4 = [[12.0, 0, 0, 0], [12, 0, 0, 0], [0, 12, 0, 0], [0, 0, 12, 0]]
PLAIN = {"order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none"}


def draw(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


def by_recipe(logits: Tensor, name: str) -> Tensor:
    recipe = RECIPES[name]
    return reference.sinkhorn(
        logits,
        order=recipe.order,
        start=recipe.start,
        start_eps=recipe.start_eps,
        eps=recipe.eps,
        eps_mode=recipe.eps_mode,
        iterations=recipe.iterations,
        temperature=recipe.temperature,
    )


# --- Sinkhorn


@pytest.mark.parametrize("name", RECIPES)
def test_sinkhorn_equals_numpy_for_every_recipe(name: str) -> None:
    logits = torch.stack([2 * draw(4, 4, seed=s) for s in range(5)] + [torch.tensor(HARD4).double()])
    logits = logits * (RECIPES[name].temperature if RECIPES[name].temperature < 1 else 1.0)
    expected = theory_sinkhorn(logits.numpy(), name).matrix
    np.testing.assert_allclose(by_recipe(logits, name).numpy(), expected, rtol=0, atol=1e-13)


def test_sinkhorn_in_the_deepseek_order_equals_plain_loops() -> None:
    logits = draw(4, 4, seed=3)
    mixer = by_recipe(logits, "deepseek-v4").mT.numpy()
    np.testing.assert_allclose(mixer, second.deepseek_mixer(logits.numpy()), rtol=0, atol=1e-14)


def test_the_orders_differ_visibly() -> None:
    """Control: a wrong order, or the transpose, is not within any tolerance used here."""
    matrix = by_recipe(torch.tensor(HARD4).double(), "deepseek-v4")
    rows, columns = (1 - matrix.sum(-1)).abs().max(), (1 - matrix.sum(-2)).abs().max()
    assert float(rows) == pytest.approx(0.02566, abs=1e-5)
    assert float(columns) == pytest.approx(1.03e-6, abs=1e-8)


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if recipe.eps_mode != "clamp"])
def test_sinkhorn_is_finite_for_wide_logits_in_float32(name: str) -> None:
    logits = 1e4 * draw(50, 4, 4, seed=1).float()
    assert torch.isfinite(by_recipe(logits, name)).all()


@pytest.mark.parametrize("name", RECIPES)
def test_sinkhorn_gradient(name: str) -> None:
    logits = draw(2, 3, 3, grad=True, seed=5)
    scale = RECIPES[name].temperature
    assert torch.autograd.gradcheck(lambda z: by_recipe(z * scale, name), (logits,))


# --- coefficients


def numpy_coefficients(
    x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, eps: float, metric: Tensor
) -> np.ndarray:
    n, d = x.shape
    out = np.empty(len(base))
    measured = metric.numpy() @ x.numpy()
    rms = math.sqrt(float((measured**2).sum()) / (n * d) + eps)
    for m in range(len(base)):
        dot = sum(float(weight[m, s * d + c] * x[s, c]) for s in range(n) for c in range(d))
        out[m] = float(scale[m]) * dot / rms + float(base[m])
    return out


@pytest.mark.parametrize("with_metric", [False, True], ids=["identity", "metric"])
@pytest.mark.parametrize("eps", [0.0, 1e-6, 0.5])
def test_coefficients_flatten_streams_first(with_metric: bool, eps: float) -> None:
    n, d, m = 3, 5, 6
    x, weight, scale, base = draw(2, 7, n, d), draw(m, n * d, seed=1), draw(m, seed=2), draw(m, seed=3)
    metric = draw(n, n, seed=4).triu() if with_metric else None
    got = reference.coefficients(x, weight, scale, base, rms_eps=eps, metric=metric)
    used = torch.eye(n).double() if metric is None else metric
    for b, t in itertools.product(range(2), range(7)):
        expected = numpy_coefficients(x[b, t], weight, scale, base, eps, used)
        np.testing.assert_allclose(got[b, t].numpy(), expected, rtol=1e-12, atol=1e-12)
    wrong = reference.coefficients(x.mT.reshape(2, 7, n, d), weight, scale, base, rms_eps=eps, metric=metric)
    assert (wrong - got).abs().max() > 0.1  # control: feature-first flattening


@pytest.mark.parametrize("size", [1e21, 1e-21, 1e30, 1e-30])
def test_coefficients_do_not_depend_on_the_size_of_the_state(size: float) -> None:
    x, weight, one, base = draw(5, 4, 6).float(), draw(8, 24, seed=1).float(), torch.ones(8), draw(8, seed=2).float()
    expected = reference.coefficients(x, weight, one, base, rms_eps=0.0)
    got = reference.coefficients(x * size, weight, one, base, rms_eps=0.0)
    torch.testing.assert_close(got, expected, rtol=2e-6, atol=2e-6)
    plain = (x * size).square().mean((-2, -1)).sqrt() / size
    true = x.double().square().mean((-2, -1)).sqrt()
    assert not ((plain - true).abs() < 1e-5 * true).any()  # control: the plain formula overflows or underflows


@pytest.mark.parametrize("size", [1e21, 1e-21])
def test_coefficients_with_a_scaled_metric(size: float) -> None:
    """A folded norm-gate scale: state times s, weight and metric divided by s, is the same function."""
    x, weight, one, base = draw(5, 4, 6).float(), draw(8, 24, seed=1).float(), torch.ones(8), draw(8, seed=2).float()
    metric = (draw(4, 4, seed=3).triu() + 3 * torch.eye(4)).float()
    expected = reference.coefficients(x, weight, one, base, rms_eps=1e-6, metric=metric)
    got = reference.coefficients(x * size, weight / size, one, base, rms_eps=1e-6, metric=metric / size)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_coefficients_of_a_zero_state_are_the_base_with_zero_gradient_elsewhere() -> None:
    x = torch.zeros(2, 3, 5, dtype=torch.float64, requires_grad=True)
    weight, base = draw(6, 15, grad=True), draw(6, seed=1)
    out = reference.coefficients(x, weight, torch.ones(6).double(), base, rms_eps=1e-6)
    assert torch.equal(out, base.expand(2, 6))
    out.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("with_metric", [False, True], ids=["identity", "metric"])
def test_coefficients_gradient(with_metric: bool) -> None:
    inputs = [draw(2, 3, 4, grad=True), draw(6, 12, seed=1, grad=True), draw(6, seed=2, grad=True)]
    inputs += [draw(6, seed=3, grad=True)]
    if with_metric:
        inputs.append(draw(3, 3, seed=4, grad=True))

    def f(x: Tensor, w: Tensor, s: Tensor, b: Tensor, metric: Tensor | None = None) -> Tensor:
        return reference.coefficients(x, w, s, b, rms_eps=1e-3, metric=metric)

    assert torch.autograd.gradcheck(f, inputs)


# --- read and write


def test_a_permutation_acts_in_the_published_orientation() -> None:
    """comb of the released model acts transposed: A = comb^T sends (1, 2, 3) to (3, 1, 2)."""
    comb = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    x, nothing = torch.tensor([[1.0], [2], [3]]), torch.zeros(1)
    right = reference.write(x, nothing, torch.zeros(3), mode="full", mixer=comb.mT)
    assert right.flatten().tolist() == [3, 1, 2]
    wrong = reference.write(x, nothing, torch.zeros(3), mode="full", mixer=comb)
    assert wrong.flatten().tolist() == [2, 3, 1]


@pytest.mark.parametrize("per_token", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("mode", ["full", "diag", "norm", "identity"])
def test_read_and_write_equal_sums(mode: str, per_token: bool) -> None:
    n, d = 3, 5
    lead = (2, 7) if per_token else ()
    x, y = draw(2, 7, n, d), draw(2, 7, d, seed=1)
    p, r, gates = draw(*lead, n, seed=2), draw(*lead, n, seed=3), draw(*lead, n, seed=4)
    mixer = draw(*lead, n, n, seed=5)
    given = {"mixer": mixer} if mode == "full" else {"gates": gates} if mode in ("diag", "norm") else {}
    u = reference.read(x, p)
    got = reference.write(x, y, r, mode=mode, eps=0.1, cap=1.2, **given)
    p, r, gates = (t.expand(2, 7, n) for t in (p, r, gates))
    mixer = mixer.expand(2, 7, n, n)
    for b, t in itertools.product(range(2), range(7)):
        c = second.norm_factor(gates[b, t].numpy(), 0.1, 1.2)
        carry = {
            "full": mixer[b, t].numpy(),
            "diag": np.diag(gates[b, t].numpy()),
            "norm": c * np.diag(gates[b, t].numpy()),
            "identity": np.eye(n),
        }[mode]
        state, new = x[b, t].numpy(), y[b, t].numpy()
        np.testing.assert_allclose(u[b, t].numpy(), sum(p[b, t, s].item() * state[s] for s in range(n)), atol=1e-13)
        expected = [sum(carry[i, j] * state[j] for j in range(n)) + r[b, t, i].item() * new for i in range(n)]
        np.testing.assert_allclose(got[b, t].numpy(), np.array(expected), atol=1e-13)


@pytest.mark.parametrize("mode", ["full", "diag", "norm", "identity"])
def test_read_and_write_gradients(mode: str) -> None:
    x, y, p, r = (
        draw(2, 3, 4, grad=True),
        draw(2, 4, seed=1, grad=True),
        draw(3, seed=2, grad=True),
        draw(2, 3, seed=3),
    )
    extra = draw(3, 3, seed=5, grad=True) if mode == "full" else draw(3, seed=5, grad=True)
    key = "mixer" if mode == "full" else "gates"

    def f(x: Tensor, y: Tensor, r: Tensor, extra: Tensor) -> Tensor:
        given = {} if mode == "identity" else {key: extra}
        return reference.write(x, y, r, mode=mode, eps=0.1, **given)

    assert torch.autograd.gradcheck(f, (x, y, r.requires_grad_(), extra))
    assert torch.autograd.gradcheck(reference.read, (x, p))


@pytest.mark.parametrize("state", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("mode", ["full", "diag", "norm", "identity"])
def test_write_computes_wide_and_rounds_once(mode: str, state: torch.dtype) -> None:
    x, y, r = draw(50, 4, 6).to(state), draw(50, 6, seed=1).to(state), draw(50, 4, seed=2).float()
    mixer, gates = draw(4, 4, seed=3).float(), draw(4, seed=4).float()
    given = {"mixer": mixer} if mode == "full" else {"gates": gates} if mode in ("diag", "norm") else {}
    got = reference.write(x, y, r, mode=mode, **given)
    assert got.dtype == state
    wide = {key: value.double() for key, value in given.items()}
    exact = reference.write(x.double(), y.double(), r.double(), mode=mode, **wide)
    unit = torch.finfo(state).eps / 2
    bound = unit * exact.abs() + 30 * torch.finfo(torch.float32).eps * 10
    assert ((got.double() - exact).abs() <= bound).all()
    assert reference.read(x, r).dtype == state


def test_write_by_identity_without_a_write_is_exact_and_leaves_its_input_alone() -> None:
    x = draw(3, 4, 5).float()
    before = x.clone()
    out = reference.write(x, torch.zeros(3, 5), torch.zeros(4), mode="identity")
    assert torch.equal(out, before)
    assert torch.equal(x, before)


def test_a_nan_stays_in_its_token() -> None:
    x, y, r = draw(4, 3, 5), draw(4, 5, seed=1), draw(4, 3, seed=2)
    x[2, 1, 3] = math.nan
    out = reference.write(x, y, r, mode="full", mixer=draw(3, 3, seed=3))
    hit = out.isnan().flatten(1).any(1)
    assert hit.tolist() == [False, False, True, False]
    z = reference.coefficients(x, draw(6, 15), torch.ones(6).double(), torch.zeros(6).double(), rms_eps=1e-6)
    assert z.isnan().any(1).tolist() == [False, False, True, False]


# --- the norm factor


@pytest.mark.parametrize(("eps", "cap"), [(0.0, None), (0.1, None), (0.0, 1.2), (0.05, 0.9)])
def test_norm_factor_value_and_gradient(eps: float, cap: float | None) -> None:
    g = draw(6, 4, grad=True)
    got = reference.norm_factor(g, eps, cap)
    expected = [second.norm_factor(row, eps, cap) for row in g.detach().numpy()]
    np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-14)
    assert torch.autograd.gradcheck(lambda t: reference.norm_factor(t, eps, cap), (g,))


def test_norm_factor_is_one_at_zero_with_zero_gradient() -> None:
    g = torch.tensor([[0.0, 0, 0], [1, 2, 2]], dtype=torch.float64, requires_grad=True)
    c = reference.norm_factor(g)
    assert c.tolist() == pytest.approx([1.0, math.sqrt(3) / 3])
    c.sum().backward()
    assert g.grad is not None
    assert g.grad[0].tolist() == [0, 0, 0]
    assert torch.isfinite(g.grad).all()
    assert float(reference.norm_factor(torch.zeros(3), 0.1, 0.5)) == 1.0


def test_norm_factor_scales() -> None:
    g = torch.tensor([3.0, 4.0]) * torch.tensor([[1e-25], [1.0], [1e25]])
    torch.testing.assert_close(
        reference.norm_factor(g) * g.norm(dim=-1).new_tensor([5e-25, 5, 5e25]), torch.full((3,), 2**0.5)
    )


def test_norm_gate_growth_over_sixty_sites() -> None:
    """claims E: 60 sites of (1, 1, 1, 0) multiply the survivors by (4/3)^30."""
    g = torch.tensor([1.0, 1, 1, 0], dtype=torch.float64)
    assert float((reference.norm_factor(g) * g[0]) ** 60) == pytest.approx((4 / 3) ** 30, rel=1e-12)


# --- bad arguments

X, Y, R = torch.zeros(2, 3, 4), torch.zeros(2, 4), torch.zeros(2, 3)
BAD = [
    ("logits", lambda: reference.sinkhorn(torch.zeros(3, 4), iterations=1, **PLAIN), "sinkhorn logits"),
    ("order", lambda: reference.sinkhorn(X[:, :, :3], iterations=1, **{**PLAIN, "order": ("rows", "rows")}), "order"),
    (
        "start",
        lambda: reference.sinkhorn(X[:, :, :3], iterations=1, **{**PLAIN, "start": "log"}),
        "start: found 'log'",
    ),
    (
        "mode of eps",
        lambda: reference.sinkhorn(X[:, :, :3], iterations=1, **{**PLAIN, "eps_mode": "max"}),
        "eps_mode",
    ),
    ("iterations", lambda: reference.sinkhorn(X[:, :, :3], iterations=0, **PLAIN), "at least 1"),
    (
        "eps",
        lambda: reference.sinkhorn(X[:, :, :3], iterations=1, **{**PLAIN, "eps": -1.0}),
        "sinkhorn eps: found -1.0",
    ),
    (
        "nan",
        lambda: reference.sinkhorn(X[:, :, :3], iterations=1, **{**PLAIN, "start_eps": float("nan")}),
        "start_eps",
    ),
    ("temperature", lambda: reference.sinkhorn(X[:, :, :3], iterations=1, temperature=0.0, **PLAIN), "temperature"),
    ("tokens of p", lambda: reference.read(X, torch.zeros(5, 3)), "read p: found shape (5, 3)"),
    ("tokens of r", lambda: reference.write(X, Y, torch.zeros(5, 3), mode="identity"), "write r: found shape (5, 3)"),
    ("tokens of y", lambda: reference.write(X, torch.zeros(5, 4), R, mode="identity"), "write y: found shape (5, 4)"),
    ("width of y", lambda: reference.write(X, torch.zeros(2, 1), R, mode="identity"), "write y: found shape (2, 1)"),
    (
        "tokens of the mixer",
        lambda: reference.write(X, Y, R, mode="full", mixer=torch.zeros(5, 3, 3)),
        "write mixer: found shape (5, 3, 3)",
    ),
    ("weight", lambda: reference.coefficients(X, torch.zeros(6, 11), R[0], R[0], rms_eps=0), "(m, 12)"),
    ("scale", lambda: reference.coefficients(X, torch.zeros(6, 12), R[0], R[0], rms_eps=0), "scale"),
    ("metric", lambda: reference.coefficients(X, torch.zeros(3, 12), R[0], R[0], rms_eps=0, metric=X), "metric"),
    ("rms_eps", lambda: reference.coefficients(X, torch.zeros(3, 12), R[0], R[0], rms_eps=-1.0), "rms_eps"),
    ("read", lambda: reference.read(X, torch.zeros(4)), "read p"),
    ("write", lambda: reference.write(X, Y, torch.zeros(2), mode="identity"), "write r"),
    ("mode", lambda: reference.write(X, Y, R, mode="half"), "mode: found 'half'"),
    ("mixer", lambda: reference.write(X, Y, R, mode="full"), "mixer: found shape None"),
    ("gates", lambda: reference.write(X, Y, R, mode="norm"), "gates: found None"),
    ("cap", lambda: reference.norm_factor(R, 0.0, 0.0), "cap 0.0"),
]


@pytest.mark.parametrize(("call", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_arguments(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"found") as caught:
        call()
    assert words in str(caught.value)
    assert "expected" in str(caught.value)
    assert "\n" not in str(caught.value)
