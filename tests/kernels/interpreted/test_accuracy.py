"""Every operation, forward and every gradient, against float64 formulas, over covering arrays and corners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kernel_formulas as truth
import pytest
import torch
from torch import Tensor

from streamgauge.kernels import dispatch
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHAPES: dict[str, Sequence[Any]] = {
    "n": [1, 2, 3, 4, 5, 7, 8],
    "tokens": [1, 2, 3, 31, 33],
    "d": [1, 5, 64, 65, 150],
    "dtype": list(DTYPES),
}
RECIPES: dict[str, dict[str, Any]] = {
    "softmax add": {"start": "softmax", "start_eps": 1e-6, "eps": 1e-6, "eps_mode": "add"},
    "softmax add, large eps": {"start": "softmax", "start_eps": 0.05, "eps": 0.02, "eps_mode": "add"},
    "softmax clamp, started": {"start": "softmax", "start_eps": 0.1, "eps": 1.05, "eps_mode": "clamp"},
    "exp clamp": {"start": "exp", "start_eps": 0.0, "eps": 0.9, "eps_mode": "clamp"},
    "exp add": {"start": "exp", "start_eps": 0.0, "eps": 0.1, "eps_mode": "add"},
    "exp started": {"start": "exp", "start_eps": 0.03, "eps": 0.1, "eps_mode": "add"},
    "log": {"start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none"},
    "log softmax": {"start": "softmax", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none"},
}
ORDERS = [("rows", "columns"), ("columns", "rows")]


def ident(row: Mapping[str, Any]) -> str:
    return "-".join(f"{k}{v}" for k, v in row.items()).replace(" ", "_")


class Draw:
    """Normal leaves with gradients from one seed, in the order asked."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.leaves: dict[str, Tensor] = {}

    def __call__(self, name: str, *shape: int, dtype: torch.dtype = torch.float32, times: float = 1.0) -> Tensor:
        leaf = (times * torch.randn(*shape, generator=self.generator)).to(dtype).requires_grad_()
        self.leaves[name] = leaf
        return leaf

    def wide(self) -> dict[str, Tensor]:
        return {name: leaf.detach().double().requires_grad_() for name, leaf in self.leaves.items()}


def assert_agreement(
    draw: Draw,
    kernels: Callable[..., list[Tensor]],
    formulas: Callable[..., list[Tensor]],
    terms: int,
    roundings: int = 1,
    only: int | None = None,
) -> None:
    """Outputs and gradients in every leaf, for random cotangents (of output ``only``, if given)."""
    wide = draw.wide()
    got, expected = kernels(**draw.leaves), formulas(**wide)
    for k, (a, b) in enumerate(zip(got, expected)):
        truth.assert_agrees(f"output {k}", a, b, terms, roundings)
    chosen = range(len(got)) if only is None else [only]
    cotangents = [torch.randn(got[k].shape, generator=draw.generator).to(got[k].dtype) for k in chosen]
    down = torch.autograd.grad([got[k] for k in chosen], list(draw.leaves.values()), cotangents, allow_unused=True)
    true = torch.autograd.grad(
        [expected[k] for k in chosen], list(wide.values()), [c.double() for c in cotangents], allow_unused=True
    )
    for name, a, b in zip(wide, down, true):
        found = torch.zeros_like(draw.leaves[name]) if a is None else a
        assert found.dtype == draw.leaves[name].dtype
        truth.assert_agrees(
            f"gradient of {name}", found, torch.zeros_like(wide[name]) if b is None else b, terms, roundings
        )


# --- read and write


@pytest.mark.parametrize("row", truth.covering({**SHAPES, "shared": [False, True]}), ids=ident)
def test_read(row: dict[str, Any]) -> None:
    n, tokens, d = row["n"], row["tokens"], row["d"]
    draw = Draw(1)
    draw("x", tokens, n, d, dtype=DTYPES[row["dtype"]])
    draw("p", *(() if row["shared"] else (tokens,)), n)
    assert_agreement(
        draw,
        lambda x, p: [dispatch.read(x, p, backend="triton")],
        lambda x, p: [truth.read(x, p)],
        terms=n + d + tokens,
    )


MODES = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": None}
GATES: dict[str, Sequence[Any]] = {"eps": [0.0, 0.3], "cap": [None, 0.9]}


@pytest.mark.parametrize(
    "row", truth.covering({**SHAPES, "mode": list(MODES), "shared": [False, True], **GATES}), ids=ident
)
def test_write(row: dict[str, Any]) -> None:
    n, tokens, d, mode = row["n"], row["tokens"], row["d"], row["mode"]
    dtype, lead = DTYPES[row["dtype"]], () if row["shared"] else (tokens,)
    draw = Draw(2)
    draw("x", tokens, n, d, dtype=dtype)
    draw("y", tokens, d, dtype=dtype)
    draw("r", *lead, n)
    if mode != "identity":
        draw("carry", *lead, *((n, n) if mode == "full" else (n,)))

    def kernels(x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None = None) -> list[Tensor]:
        named: dict[str, Any] = {} if carry is None else {str(MODES[mode]): carry}
        return [dispatch.write(x, y, r, mode=mode, eps=row["eps"], cap=row["cap"], backend="triton", **named)]

    def formulas(x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None = None) -> list[Tensor]:
        return [truth.write(x, y, r, mode, carry, row["eps"], float("inf") if row["cap"] is None else row["cap"])]

    assert_agreement(draw, kernels, formulas, terms=2 * n + d + tokens)


# --- Sinkhorn


@pytest.mark.parametrize(
    "row",
    truth.covering(
        {
            "n": [1, 2, 3, 4, 5, 7, 8, 16],
            "tokens": [1, 2, 33],
            "recipe": list(RECIPES),
            "order": ORDERS,
            "iterations": [1, 2, 5, 20],
            "size": [1.0, 6.0],
            "temperature": [1.0, 0.5],
        }
    ),
    ids=ident,
)
def test_sinkhorn(row: dict[str, Any]) -> None:
    recipe = {**RECIPES[row["recipe"]], "order": row["order"], "iterations": row["iterations"]}
    recipe["temperature"] = row["temperature"]
    draw = Draw(3)
    z = draw("z", row["tokens"], row["n"], row["n"], times=row["size"])
    # A half-step is a few operations and a sum; on log S an error is relative to the logits.
    terms = 8 * row["iterations"] + int(4 * float(z.detach().abs().max()) / row["temperature"]) + row["n"]
    wide = draw.wide()["z"]
    got, expected = dispatch.sinkhorn(z, backend="triton", **recipe), truth.sinkhorn(wide, recipe)
    truth.assert_agrees("matrix", got, expected, terms)
    cotangent = torch.randn(got.shape, generator=draw.generator)
    (down,) = torch.autograd.grad(got, z, cotangent)
    (true,) = torch.autograd.grad(expected, wide, cotangent.double())
    # Its parts are as large as <cotangent, S>, whatever is left after they cancel.
    floor = float((cotangent.double() * expected.detach()).abs().max()) / row["temperature"]
    error = float((down.double() - true).abs().max())
    assert error <= 2 * truth.UNIT * (8 + terms) * max(float(true.abs().max()), floor), error


# --- coefficients


@pytest.mark.parametrize(
    "row", truth.covering({**SHAPES, "rows": [1, 6, 17], "metric": [False, True], "rms_eps": [0.4, 3.0]}), ids=ident
)
def test_coefficients(row: dict[str, Any]) -> None:
    n, tokens, d, m = row["n"], row["tokens"], row["d"], row["rows"]
    draw = Draw(4)
    draw("x", tokens, n, d, dtype=DTYPES[row["dtype"]])
    draw("weight", m, n * d, times=(n * d) ** -0.5)
    draw("scale", m)
    draw("base", m)
    if row["metric"]:
        draw("metric", n, n)
    assert_agreement(
        draw,
        lambda **leaves: [dispatch.coefficients(rms_eps=row["rms_eps"], backend="triton", **leaves)],
        lambda **leaves: [truth.coefficients(rms_eps=row["rms_eps"], **leaves)],
        terms=4 * (m + n) + n * d + tokens,
    )


CARRIES = ["none", "gates", "mixer"]
OPTIONS = {"read_eps": 0.07, "write_mult": 1.7, "write_eps": 0.02}


def activation(carry: str, recipe: str, order: tuple[str, str], transpose: bool) -> dict[str, Any]:
    return {
        **OPTIONS, **RECIPES[recipe], "carry": carry, "order": order, "iterations": 3, "transpose": transpose,
        "temperature": 1.0,
    }  # fmt: skip


def rows_of(carry: str, n: int) -> int:
    return 2 * n + {"none": 0, "gates": n, "mixer": n * n}[carry]


def controller(draw: Draw, carry: str, n: int, d: int, metric: bool) -> None:
    m = rows_of(carry, n)
    draw("weight", m, n * d, times=(n * d) ** -0.5)
    draw("scale", m)
    draw("base", m)
    if metric:
        draw("metric", n, n)


ACTIVE = {**SHAPES, "carry": CARRIES, "recipe": list(RECIPES), "order": ORDERS, "transpose": [False, True]}


@pytest.mark.parametrize("row", truth.covering({**ACTIVE, "only": [None, 0, 1, -1]}), ids=ident)
def test_activated(row: dict[str, Any]) -> None:
    n, tokens, d = row["n"], row["tokens"], row["d"]
    options = activation(row["carry"], row["recipe"], row["order"], row["transpose"])
    draw = Draw(5)
    draw("x", tokens, n, d, dtype=DTYPES[row["dtype"]])
    controller(draw, row["carry"], n, d, metric=False)
    made = Activation(**options)

    def kernels(**leaves: Tensor) -> list[Tensor]:
        out = dispatch.activated(activation=made, rms_eps=0.3, backend="triton", **leaves)
        return [part for part in out if part is not None]

    only = None if row["only"] is None else row["only"] % (2 if row["carry"] == "none" else 3)
    assert_agreement(
        draw,
        kernels,
        lambda **leaves: truth.activate(truth.coefficients(rms_eps=0.3, **leaves), n, options),
        terms=8 * rows_of(row["carry"], n) + n * d + tokens + 100,
        only=only,
    )


# --- site


KINDS = ["static", "controlled, static carry", "controlled", "converted"]


@pytest.mark.parametrize(
    "row",
    truth.covering({**SHAPES, "dtype": ["float32"], "mode": list(MODES), "kind": KINDS, "shared": [False, True]}),
    ids=ident,
)
def test_site(row: dict[str, Any]) -> None:
    n, tokens, d, mode, kind = row["n"], row["tokens"], row["d"], row["mode"], row["kind"]
    lead = () if row["shared"] else (tokens,)
    carry = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": "none"}[mode]
    made = carry if kind in ("controlled", "converted") else "none"
    options = activation(made, "softmax add, large eps", ORDERS[0], True)
    draw = Draw(6)
    draw("x", tokens, n, d)
    draw("mix", d, d, times=d**-0.5)
    if kind == "static":
        draw("p", *lead, n)
        draw("r", *lead, n)
    else:
        controller(draw, made, n, d, metric=kind == "converted")
    if kind == "converted":
        draw("gauge_read", n, n)
        draw("gauge_write", n, n)
    if made == "none" and carry != "none":
        draw("carry", *lead, *((n, n) if mode == "full" else (n,)))
    parts = ("weight", "scale", "base", "metric", "gauge_read", "gauge_write")

    def kernels(x: Tensor, mix: Tensor, **leaves: Tensor) -> list[Tensor]:
        named = {k: leaves.pop(k) for k in parts if k in leaves}
        if "carry" in leaves:
            leaves[carry] = leaves.pop("carry")
        made_by = Controller(activation=Activation(**options), rms_eps=0.2, **named) if named else None
        given: dict[str, Any] = {**leaves, "eps": 0.1, "cap": 1.1, "controller": made_by}
        return [site(x, lambda u: torch.tanh(u @ mix), mode=mode, backend="triton", **given)]

    def formulas(x: Tensor, mix: Tensor, **leaves: Tensor) -> list[Tensor]:
        p, r, used = leaves.get("p"), leaves.get("r"), leaves.get("carry")
        if "weight" in leaves:
            z = truth.coefficients(x, leaves["weight"], leaves["scale"], leaves["base"], 0.2, leaves.get("metric"))
            p, r, *own = truth.activate(z, n, options)
            used = own[0] if own else used
            if "gauge_read" in leaves:
                p = torch.einsum("ti,ij->tj", p, leaves["gauge_read"])
                r = torch.einsum("ij,tj->ti", leaves["gauge_write"], r)
        assert p is not None
        assert r is not None
        y = torch.tanh(truth.read(x, p) @ mix)
        return [truth.write(x, y, r, mode, used, 0.1, 1.1)]

    terms = 8 * rows_of(made, n) + n * d + 2 * d + tokens + 200
    assert_agreement(draw, kernels, formulas, terms)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", list(MODES))
def test_site_in_16_bits_rounds_as_its_parts_do(dtype: str, mode: str) -> None:
    """The same bits forward as read, branch, write apart; gradients as float64 ones up to the branch's roundings."""
    n, tokens, d = 4, 17, 70
    draw = Draw(7)
    x = draw("x", tokens, n, d, dtype=DTYPES[dtype])
    p, r = draw("p", tokens, n), draw("r", tokens, n)
    named = {} if mode == "identity" else {"carry": draw("carry", *((n, n) if mode == "full" else (n,)))}
    given: dict[str, Any] = {str(MODES[mode]): named["carry"]} if named else {}
    whole = site(x, lambda u: u, mode=mode, p=p, r=r, backend="triton", **given)
    u = dispatch.read(x, p, backend="triton")
    apart = dispatch.write(x, u, r, mode=mode, backend="triton", **given)
    assert torch.equal(whole, apart)
    wide = draw.wide()
    true = truth.write(
        wide["x"], truth.read(wide["x"], wide["p"]), wide["r"], mode, wide.get("carry"), 0.0, float("inf")
    )
    cotangent = torch.randn(whole.shape, generator=draw.generator).to(DTYPES[dtype])
    down = torch.autograd.grad(whole, list(draw.leaves.values()), cotangent)
    right = torch.autograd.grad(true, list(wide.values()), cotangent.double())
    unit = torch.finfo(DTYPES[dtype]).eps / 2
    for name, a, b in zip(wide, down, right):
        # u and du are rounded, each entry by a unit of itself; both are at most a few times the largest result.
        assert float((a.double() - b).abs().max()) <= 8 * unit * float(b.abs().max()), name


# --- corners that are always in


@pytest.mark.parametrize("tokens", [0, 5])
def test_zero_tokens_and_sixteen_streams(tokens: int) -> None:
    n, d = 16, 9
    draw = Draw(8)
    x = draw("x", tokens, n, d)
    options = activation("mixer", "softmax add", ORDERS[0], True)
    controller(draw, "mixer", n, d, metric=False)
    leaves = {k: v for k, v in draw.leaves.items() if k != "x"}
    out = site(
        x,
        lambda u: 2 * u,
        mode="full",
        controller=Controller(activation=Activation(**options), rms_eps=1e-3, **leaves),
        backend="triton",
    )
    wide = draw.wide()
    z = truth.coefficients(wide["x"], wide["weight"], wide["scale"], wide["base"], 1e-3)
    p, r, carry = truth.activate(z, n, options)
    true = truth.write(wide["x"], 2 * truth.read(wide["x"], p), r, "full", carry, 0.0, 1.0)
    truth.assert_agrees("state", out, true, 8 * rows_of("mixer", n))
    cotangent = torch.randn(out.shape, generator=draw.generator)
    down = torch.autograd.grad(out, list(draw.leaves.values()), cotangent)
    right = torch.autograd.grad(true, list(wide.values()), cotangent.double())
    for name, a, b in zip(wide, down, right):
        truth.assert_agrees(name, a, b, 8 * rows_of("mixer", n))
