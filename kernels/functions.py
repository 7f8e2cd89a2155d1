# mypy: disable-error-code="no-untyped-call"
"""Autograd around the raw operations of read and write, for any leading token axes.

The state may have any strides; one that is not contiguous (a broadcast entry, say) is copied once.  Coefficients are
taken in float32.  A second derivative raises: the backward operations have no formula of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import ops
from streamgauge.kernels.reference import check_numbers

STATE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_STREAMS = 16


def check_state(where: str, x: Tensor) -> None:
    """**Raises** ValueError unless x is (..., n, d) with n from 1 to 16, in a dtype the kernels take."""
    if x.ndim < 2 or not 1 <= x.shape[-2] <= MOST_STREAMS or x.shape[-1] < 1:
        raise ValueError(f"{where} x: found shape {tuple(x.shape)}, expected (..., n, d) with n 1 to {MOST_STREAMS}")
    if x.dtype not in STATE_DTYPES:
        raise ValueError(
            f"{where} x: found {x.dtype}, expected float32, bfloat16 or float16 (or backend='reference')"
        )


def flat_state(x: Tensor) -> Tensor:
    """(..., n, d) as contiguous (T, n, d)."""
    return x.contiguous().reshape(-1, *x.shape[-2:])


def flat_coefficient(where: str, value: Tensor, lead: torch.Size, tail: tuple[int, ...]) -> Tensor:
    """(..., *tail) as float32 (T, *tail), or (1, *tail) where it has no token axis.

    **Raises** ValueError for another shape, or for float64, which the kernels would round.
    """
    axes = value.ndim - len(tail)
    fits = 0 <= axes <= len(lead) and tuple(value.shape[axes:]) == tail
    if not fits or any(a not in (1, b) for a, b in zip(value.shape[:axes], lead[len(lead) - axes :])):
        expected = f"(..., {', '.join(map(str, tail))})"
        raise ValueError(f"{where}: found shape {tuple(value.shape)}, expected {expected} for tokens {tuple(lead)}")
    if value.dtype == torch.float64 or not value.is_floating_point():
        raise ValueError(f"{where}: found {value.dtype}, expected float32 (or backend='reference')")
    if value.shape[:axes].numel() == 1:
        return value.float().reshape(1, *tail).contiguous()
    return value.float().expand(*lead, *tail).reshape(-1, *tail).contiguous()


class WriteFunction(torch.autograd.Function):
    """(x (T, n, d), y (T, d), r, carry or None) -> X'."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None, mode: str, eps: float, cap: float
    ) -> Tensor:
        # The identity's backward does not look at the state: do not keep it alive.
        ctx.save_for_backward(None if mode == "identity" else x, y, r, carry)
        ctx.mode, ctx.eps, ctx.cap = mode, eps, cap
        out: Tensor = ops.write_forward(x, y, r, carry, mode, eps, cap)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (grad,) = grads
        x, y, r, carry = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:4])
        same = ctx.mode == "identity" and wanted[0]  # dX is dX' itself
        need = [wanted[0] and not same, *wanted[1:]]
        dx, dy, dr, dcarry = ops.write_backward(grad.contiguous(), x, y, r, carry, ctx.mode, ctx.eps, ctx.cap, need)
        found = (grad if same else dx, dy, dr, dcarry)
        return (*(g if w else None for g, w in zip(found, wanted)), None, None, None)


class ReadFunction(torch.autograd.Function):
    """(x (T, n, d), p) -> u (T, d)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor) -> Tensor:
        ctx.save_for_backward(x, p)
        out: Tensor = ops.read_forward(x, p)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, p = ctx.saved_tensors
        need_dx, need_dp = ctx.needs_input_grad
        dx, dp = ops.read_backward(grads[0].contiguous(), x, p, need_dx, need_dp)
        return dx if need_dx else None, dp if need_dp else None


class SinkhornFunction(torch.autograd.Function):
    """(logits (T, n, n), the recipe's numbers) -> the swept matrix."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *recipe: Any) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.recipe = recipe
        out: Tensor = ops.sinkhorn_forward(logits, *recipe)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (logits,) = ctx.saved_tensors
        return ops.sinkhorn_backward(grads[0].contiguous(), logits, *ctx.recipe), *(None for _ in ctx.recipe)


def write(
    x: Tensor,
    y: Tensor,
    r: Tensor,
    *,
    mode: str,
    mixer: Tensor | None = None,
    gates: Tensor | None = None,
    eps: float = 0.0,
    cap: float | None = None,
) -> Tensor:
    """:func:`streamgauge.kernels.reference.write` on the kernels."""
    check_state("write", x)
    lead, n, d = x.shape[:-2], x.shape[-2], x.shape[-1]
    if tuple(y.shape) != (*lead, d) or y.dtype not in STATE_DTYPES:
        raise ValueError(f"write y: found {tuple(y.shape)} {y.dtype}, expected {(*lead, d)}, at most 32 bits")
    if mode == "full":
        if mixer is None:
            raise ValueError(f"write mixer: found None, expected (..., {n}, {n}) for mode 'full'")
        carry = flat_coefficient("write mixer", mixer, lead, (n, n))
    elif mode in ("diag", "norm"):
        if gates is None:
            raise ValueError(f"write gates: found None, expected (..., {n}) for mode {mode!r}")
        carry = flat_coefficient("write gates", gates, lead, (n,))
    elif mode == "identity":
        carry = None
    else:
        raise ValueError(f"write mode: found {mode!r}, expected 'full', 'diag', 'norm' or 'identity'")
    if not eps >= 0 or (cap is not None and not cap > 0):
        raise ValueError(f"norm gate: found eps {eps}, cap {cap}; expected eps >= 0 and cap > 0 or None")
    weights = flat_coefficient("write r", r, lead, (n,))
    ceiling = float("inf") if cap is None else float(cap)
    row = y.contiguous().reshape(-1, d)
    new: Tensor = WriteFunction.apply(flat_state(x), row, weights, carry, mode, float(eps), ceiling)
    return new.reshape(x.shape)


def read(x: Tensor, p: Tensor) -> Tensor:
    """:func:`streamgauge.kernels.reference.read` on the kernels."""
    check_state("read", x)
    lead, n, d = x.shape[:-2], x.shape[-2], x.shape[-1]
    weights = flat_coefficient("read p", p, lead, (n,))
    u: Tensor = ReadFunction.apply(flat_state(x), weights)
    return u.reshape(*lead, d)


def sinkhorn(
    logits: Tensor,
    *,
    order: tuple[str, str],
    start: str,
    start_eps: float,
    eps: float,
    eps_mode: str,
    iterations: int,
    temperature: float = 1.0,
) -> Tensor:
    """:func:`streamgauge.kernels.reference.sinkhorn` on the kernels; float32 out."""
    if logits.ndim < 2 or logits.shape[-1] != logits.shape[-2] or not 1 <= logits.shape[-1] <= MOST_STREAMS:
        raise ValueError(f"sinkhorn logits: found shape {tuple(logits.shape)}, expected (..., n, n), n 1 to 16")
    if set(order) != {"rows", "columns"} or len(order) != 2:
        raise ValueError(f"sinkhorn order: found {order!r}, expected ('rows', 'columns') or ('columns', 'rows')")
    if start not in ("exp", "softmax"):
        raise ValueError(f"sinkhorn start: found {start!r}, expected 'exp' or 'softmax'")
    if eps_mode not in ("add", "clamp", "none"):
        raise ValueError(f"sinkhorn eps_mode: found {eps_mode!r}, expected 'add', 'clamp' or 'none'")
    if iterations < 1:
        raise ValueError(f"sinkhorn iterations: found {iterations}, expected at least 1")
    check_numbers(start_eps, eps, temperature)
    n = logits.shape[-1]
    flat = flat_coefficient("sinkhorn logits", logits, logits.shape[:-2], (n, n))
    numbers = (order[0], start, float(start_eps), float(eps), eps_mode, iterations, float(temperature))
    out: Tensor = SinkhornFunction.apply(flat, *numbers)
    return out.reshape(logits.shape)
