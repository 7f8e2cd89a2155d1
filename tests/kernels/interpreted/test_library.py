"""The operations inside torch: opcheck of every raw one, torch.compile of every public one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from streamgauge.kernels import dispatch, ops, ops_coefficients
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.functions_coefficients import RAW
from streamgauge.kernels.site import Controller, site

N, D, TOKENS = 3, 9, 4
MADE = Activation(carry="mixer", iterations=2)
ROWS = MADE.rows(N)
RECIPE = ("rows", "exp", 0.0, 0.0, "none", 2, 1.0)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y, R, P = draw(TOKENS, N, D), draw(TOKENS, D, seed=1), draw(TOKENS, N, seed=2), draw(1, N, seed=3)
A, G = draw(TOKENS, N, N, seed=4), draw(1, N, seed=5)
WEIGHT, SCALE, BASE = draw(ROWS, N * D, seed=6), draw(ROWS, seed=7), draw(ROWS, seed=8)
METRIC = draw(N, N, seed=9)


def finished() -> tuple[Tensor, ...]:
    return ops_coefficients.coefficients_forward(X, WEIGHT, SCALE, BASE, None, 0.1, *MADE.arguments)


def spread() -> tuple[Tensor, ...]:
    p, r, carry, h, rms = finished()
    return ops_coefficients.coefficients_backward(p, r, carry, h, rms, SCALE, BASE, N, D, *MADE.arguments)


OPERATIONS: dict[str, tuple[Any, Callable[[], tuple[Any, ...]]]] = {
    "write full": (ops.write_forward, lambda: (X, Y, R, A, "full", 0.0, 1.0)),
    "write norm": (ops.write_forward, lambda: (X, Y, R, G, "norm", 0.1, 1.0)),
    "write identity": (ops.write_forward, lambda: (X, Y, P, None, "identity", 0.0, 1.0)),
    "write backward full": (ops.write_backward, lambda: (X, X, Y, R, A, "full", 0.0, 1.0, [True] * 4)),
    "write backward shared": (ops.write_backward, lambda: (X, X, Y, P, G, "norm", 0.1, 1.0, [True] * 4)),
    "write backward partly": (
        ops.write_backward,
        lambda: (X, None, Y, R, None, "identity", 0.0, 1.0, [False, True, False, False]),
    ),
    "read": (ops.read_forward, lambda: (X, R)),
    "read backward": (ops.read_backward, lambda: (Y, X, P, True, True)),
    "read backward partly": (ops.read_backward, lambda: (Y, X, R, False, True)),
    "sinkhorn": (ops.sinkhorn_forward, lambda: (A, *RECIPE)),
    "sinkhorn backward": (ops.sinkhorn_backward, lambda: (A, A, *RECIPE)),
    "coefficients raw": (ops_coefficients.coefficients_forward, lambda: (X, WEIGHT, SCALE, BASE, METRIC, 0.1, *RAW)),
    "coefficients": (
        ops_coefficients.coefficients_forward,
        lambda: (X, WEIGHT, SCALE, BASE, None, 0.1, *MADE.arguments),
    ),
    "coefficients backward": (
        ops_coefficients.coefficients_backward,
        lambda: (*finished(), SCALE, BASE, N, D, *MADE.arguments),
    ),
    "streams backward": (
        ops_coefficients.streams_backward,
        lambda: (
            X, X, A, "full", 0.0, 1.0, Y, R, *spread()[:2], WEIGHT, METRIC, [True] * 3,
        ),
    ),
    "streams backward, read alone": (
        ops_coefficients.streams_backward,
        lambda: (
            X, X, None, "identity", 0.0, 1.0, Y, P, None, None, None, None, [True, False, False],
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_opcheck(name: str) -> None:
    operation, arguments = OPERATIONS[name]
    opcheck(operation, arguments())


def test_every_raw_operation_is_checked() -> None:
    checked = {operation._qualname for operation, _ in OPERATIONS.values()}
    found = [value for module in (ops, ops_coefficients) for value in vars(module).values()]
    assert checked == {value._qualname for value in found if isinstance(value, torch.library.CustomOpDef)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_zero_tokens(name: str) -> None:
    """No launch, empty per-token results, zero sums."""
    operation, arguments = OPERATIONS[name]
    given = [a[:0] if isinstance(a, Tensor) and len(a) == TOKENS else a for a in arguments()]
    made = operation(*given)
    for out in [made] if isinstance(made, Tensor) else made:
        assert not out.numel() or (out == 0).all()


def whole(x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, mix: Tensor) -> Tensor:
    made = Controller(weight, scale, base, MADE, 1e-3)
    return site(x, lambda u: torch.tanh(u @ mix), mode="full", controller=made, backend="triton")


def swept(z: Tensor) -> Tensor:
    return dispatch.sinkhorn(
        z, order=("rows", "columns"), start="softmax", start_eps=1e-6, eps=1e-6, eps_mode="add", iterations=3,
        backend="triton",
    )  # fmt: skip


def active(x: Tensor, weight: Tensor, scale: Tensor, base: Tensor) -> Tensor:
    p, r, a = dispatch.activated(x, weight, scale, base, activation=MADE, rms_eps=1e-3, backend="triton")
    assert a is not None
    return p.sum() + (r**2).sum() + (a**3).sum()


PUBLIC: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "read": (lambda x, p: dispatch.read(x, p, backend="triton"), [X, R]),
    "write full": (lambda x, y, r, a: dispatch.write(x, y, r, mode="full", mixer=a, backend="triton"), [X, Y, R, A]),
    "write norm": (lambda x, y, r, g: dispatch.write(x, y, r, mode="norm", gates=g, backend="triton"), [X, Y, R, G]),
    "write identity": (lambda x, y, r: dispatch.write(x, y, r, mode="identity", backend="triton"), [X, Y, R]),
    "sinkhorn": (swept, [A]),
    "coefficients": (
        lambda x, w, s, b: dispatch.coefficients(x, w, s, b, rms_eps=0.1, backend="triton"),
        [X, WEIGHT, SCALE, BASE],
    ),
    "activated": (active, [X, WEIGHT, SCALE, BASE]),
    "site": (whole, [X, WEIGHT, SCALE, BASE, draw(D, D, seed=10)]),
}


def assert_compiles(name: str, backend: str) -> None:
    """One graph, the same bits as eager for the operations themselves, forward and backward."""
    torch._dynamo.reset()
    run, inputs = PUBLIC[name]
    leaves = [leaf.clone().requires_grad_() for leaf in inputs]
    eager = run(*leaves)
    up = draw(*eager.shape, seed=11)
    expected = [eager.detach(), *torch.autograd.grad(eager, leaves, up)]
    out = torch.compile(run, backend=backend, fullgraph=True)(*leaves)
    found = [out.detach(), *torch.autograd.grad(out, leaves, up)]
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PUBLIC)
def test_compiles_into_one_graph(name: str) -> None:
    assert_compiles(name, "aot_eager")


def test_inductor() -> None:
    assert_compiles("site", "inductor")
