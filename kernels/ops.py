# mypy: disable-error-code="import-untyped"
"""Raw custom operations of read, write and Sinkhorn: one launch each, no autograd (``functions`` adds it).

Shapes: state ``x`` (T, n, d), row ``y`` (T, d), coefficients float32 with leading size T or 1 (shared by all tokens).
Gradients of shared coefficients come back summed, with leading size 1.  A gradient not asked for is an empty tensor.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from streamgauge.kernels import configs
from streamgauge.kernels.triton_common import INTERPRETED
from streamgauge.kernels.triton_read import read_backward_kernel, read_forward_kernel
from streamgauge.kernels.triton_sinkhorn import sinkhorn_backward_kernel, sinkhorn_forward_kernel
from streamgauge.kernels.triton_write import write_backward_kernel, write_forward_kernel


def step(coefficient: Tensor) -> int:
    """Elements from one token's coefficients to the next: 0 if they are shared."""
    return 0 if coefficient.shape[0] == 1 else math.prod(coefficient.shape[1:])


def shared(gradient: Tensor, like: Tensor) -> Tensor:
    """Per-token gradients in the shape of ``like``: summed over tokens where the coefficient is shared."""
    if gradient.shape == like.shape:
        return gradient
    return gradient.sum(0, keepdim=True)


def unused(like: Tensor) -> Tensor:
    """The empty tensor that stands for a gradient not asked for."""
    return like.new_empty(0)


def shapes(x: Tensor, tile: configs.Tile) -> dict[str, int]:
    """What every kernel on the state x (T, n, d) is told of its shape and tile."""
    return {**matrix_shapes(x.shape[1], tile), "BD": tile.width}


def matrix_shapes(n: int, tile: configs.Tile) -> dict[str, int]:
    """The same for a kernel that sees no features: whole tokens, each with its n streams."""
    return {"n": n, "NP": configs.padded(n), "BT": tile.tokens, "num_warps": tile.warps}


@torch.library.custom_op(
    "streamgauge::write_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor y, Tensor r, Tensor? carry, str mode, float eps, float cap) -> Tensor",
)
def write_forward(x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None, mode: str, eps: float, cap: float) -> Tensor:
    """X' = A X + r y."""
    out = torch.empty_like(x)
    tokens, n, d = x.shape
    if not x.numel():
        return out
    given = r if carry is None else carry
    tile = configs.stream_tile(n, d, interpreted=INTERPRETED)
    grid = (triton.cdiv(tokens, tile.tokens), triton.cdiv(d, tile.width))
    write_forward_kernel[grid](
        out, x, y, r, given, tokens, d, step(r), step(given), eps, cap, MODE=mode, **shapes(x, tile)
    )
    return out


@write_forward.register_fake
def _(x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None, mode: str, eps: float, cap: float) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op(
    "streamgauge::write_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor? x, Tensor y, Tensor r, Tensor? carry, str mode, float eps, float cap, bool[] need)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def write_backward(
    grad: Tensor,
    x: Tensor | None,
    y: Tensor,
    r: Tensor,
    carry: Tensor | None,
    mode: str,
    eps: float,
    cap: float,
    need: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(dX, dy, dr, dcarry) of the write; ``need`` says which.  ``x`` may be None where dcarry is not needed."""
    tokens, n, d = grad.shape
    need_dx, need_dy, need_dr, need_dcarry = need
    dx = torch.empty_like(grad) if need_dx else unused(grad)
    dy = torch.empty_like(y) if need_dy else unused(y)
    dr = r.new_empty(tokens, n) if need_dr else unused(r)
    given = r if carry is None else carry
    dcarry = given.new_empty(tokens, *given.shape[1:]) if need_dcarry else unused(r)
    if grad.numel() and any(need):
        tile = configs.stream_tile(n, d, interpreted=INTERPRETED)
        write_backward_kernel[(triton.cdiv(tokens, tile.tokens),)](
            dx,
            dy,
            dr,
            dcarry,
            grad,
            grad if x is None else x,
            y,
            r,
            given,
            tokens,
            d,
            step(r),
            step(given),
            eps,
            cap,
            MODE=mode,
            NEED_DX=need_dx,
            NEED_DY=need_dy,
            NEED_DR=need_dr,
            NEED_DCARRY=need_dcarry,
            **shapes(grad, tile),
        )
    return dx, dy, shared(dr, r) if need_dr else dr, shared(dcarry, given) if need_dcarry else dcarry


@write_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor | None,
    y: Tensor,
    r: Tensor,
    carry: Tensor | None,
    mode: str,
    eps: float,
    cap: float,
    need: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    parts = (grad, y, r, r if carry is None else carry)
    dx, dy, dr, dcarry = (torch.empty_like(p) if wanted else unused(p) for p, wanted in zip(parts, need))
    return dx, dy, dr, dcarry


@torch.library.custom_op("streamgauge::read_forward", mutates_args=(), schema="(Tensor x, Tensor p) -> Tensor")
def read_forward(x: Tensor, p: Tensor) -> Tensor:
    """u = p X."""
    tokens, n, d = x.shape
    out = x.new_empty(tokens, d)
    if not x.numel():
        return out
    tile = configs.stream_tile(n, d, interpreted=INTERPRETED)
    grid = (triton.cdiv(tokens, tile.tokens), triton.cdiv(d, tile.width))
    read_forward_kernel[grid](out, x, p, tokens, d, step(p), **shapes(x, tile))
    return out


@read_forward.register_fake
def _(x: Tensor, p: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[2])


@torch.library.custom_op(
    "streamgauge::read_backward",
    mutates_args=(),
    schema="(Tensor du, Tensor x, Tensor p, bool need_dx, bool need_dp) -> (Tensor, Tensor)",
)
def read_backward(du: Tensor, x: Tensor, p: Tensor, need_dx: bool, need_dp: bool) -> tuple[Tensor, Tensor]:
    """(dX, dp) of the read."""
    tokens, n, d = x.shape
    dx = torch.empty_like(x) if need_dx else unused(x)
    dp = p.new_empty(tokens, n) if need_dp else unused(p)
    if x.numel() and (need_dx or need_dp):
        tile = configs.stream_tile(n, d, interpreted=INTERPRETED)
        read_backward_kernel[(triton.cdiv(tokens, tile.tokens),)](
            dx, dp, du, x, p, tokens, d, step(p), NEED_DX=need_dx, NEED_DP=need_dp, **shapes(x, tile)
        )
    return dx, shared(dp, p) if need_dp else dp


@read_backward.register_fake
def _(du: Tensor, x: Tensor, p: Tensor, need_dx: bool, need_dp: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x) if need_dx else unused(x), torch.empty_like(p) if need_dp else unused(p)


def sweep_options(
    order: str, start: str, start_eps: float, eps: float, eps_mode: str, iterations: int
) -> dict[str, Any]:
    """A recipe as the kernels' arguments; ``order`` names the axis that goes first."""
    logs = start_eps == 0
    if logs:
        eps = math.log(eps) if eps > 0 else -math.inf
    return {
        "eps": eps,
        "start_eps": start_eps,
        "ITERATIONS": iterations,
        "FIRST": 2 if order == "rows" else 1,
        "SOFTMAX": start == "softmax",
        "EPS_MODE": eps_mode,
        "LOGS": logs,
    }


@torch.library.custom_op(
    "streamgauge::sinkhorn_forward",
    mutates_args=(),
    schema="(Tensor logits, str order, str start, float start_eps, float eps, str eps_mode, int iterations,"
    " float temperature) -> Tensor",
)
def sinkhorn_forward(
    logits: Tensor,
    order: str,
    start: str,
    start_eps: float,
    eps: float,
    eps_mode: str,
    iterations: int,
    temperature: float,
) -> Tensor:
    """(T, n, n) float32 logits to the swept matrix."""
    out = torch.empty_like(logits)
    tokens, n, _ = logits.shape
    if tokens:
        tile = configs.matrix_tile(n, interpreted=INTERPRETED)
        sinkhorn_forward_kernel[(triton.cdiv(tokens, tile.tokens),)](
            out,
            logits,
            tokens=tokens,
            temperature=temperature,
            **sweep_options(order, start, start_eps, eps, eps_mode, iterations),
            **matrix_shapes(n, tile),
        )
    return out


@sinkhorn_forward.register_fake
def _(logits: Tensor, *_recipe: object) -> Tensor:
    return torch.empty_like(logits)


@torch.library.custom_op(
    "streamgauge::sinkhorn_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor logits, str order, str start, float start_eps, float eps, str eps_mode,"
    " int iterations, float temperature) -> Tensor",
)
def sinkhorn_backward(
    grad: Tensor,
    logits: Tensor,
    order: str,
    start: str,
    start_eps: float,
    eps: float,
    eps_mode: str,
    iterations: int,
    temperature: float,
) -> Tensor:
    """The gradient in the logits, of exactly the sweeps done."""
    out = torch.empty_like(logits)
    tokens, n, _ = logits.shape
    if tokens:
        tile = configs.matrix_tile(n, interpreted=INTERPRETED)
        sinkhorn_backward_kernel[(triton.cdiv(tokens, tile.tokens),)](
            out,
            grad,
            logits,
            tokens=tokens,
            temperature=temperature,
            **sweep_options(order, start, start_eps, eps, eps_mode, iterations),
            **matrix_shapes(n, tile),
        )
    return out


@sinkhorn_backward.register_fake
def _(grad: Tensor, logits: Tensor, *_recipe: object) -> Tensor:
    return torch.empty_like(logits)
