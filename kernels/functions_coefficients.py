# mypy: disable-error-code="no-untyped-call"
"""Autograd around the raw operation of the coefficients, for any leading token axes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import ops_coefficients as ops
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.functions import check_state, flat_state

# What the raw operation takes where there is no activation: z itself.
RAW = ("raw", ["rows", "softmax", "none"], [0.0, 1.0, 0.0, 0.0, 0.0, 1.0], 1, False)


def flat_controller(
    x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, rms_eps: float, metric: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The controller's tensors, checked, contiguous and in float32.  **Raises** ValueError naming the argument."""
    n, d = x.shape[-2:]
    m = weight.shape[0]
    given = [("weight", weight, (m, n * d)), ("scale", scale, (m,)), ("base", base, (m,))]
    if metric is not None:
        given.append(("metric", metric, (n, n)))
    for name, value, expected in given:
        if tuple(value.shape) != expected:
            raise ValueError(f"coefficients {name}: found shape {tuple(value.shape)}, expected {expected}")
        if value.dtype == torch.float64 or not value.is_floating_point():
            raise ValueError(f"coefficients {name}: found {value.dtype}, expected float32 (or backend='reference')")
    if not rms_eps >= 0:
        raise ValueError(f"coefficients rms_eps: found {rms_eps}, expected at least 0")
    flat = [value.float().contiguous() for _, value, _ in given]
    return flat[0], flat[1], flat[2], flat[3] if metric is not None else None


class CoefficientsFunction(torch.autograd.Function):
    """(x (T, n, d), weight, scale, base, metric or None, rms_eps, activation arguments) -> z, or (p, r, carry)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        base: Tensor,
        metric: Tensor | None,
        rms_eps: float,
        *activation: Any,
    ) -> Any:
        p, r, carry, h, rms = ops.coefficients_forward(x, weight, scale, base, metric, rms_eps, *activation)
        ctx.save_for_backward(x, weight, scale, base, metric, h, rms)
        ctx.activation = activation
        return p, r, carry

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, weight, scale, base, metric, h, rms = ctx.saved_tensors
        needs = ctx.needs_input_grad
        dp, dr, dcarry = (g.contiguous() for g in grads)
        n, d = x.shape[1:]
        dh, pull, dscale, dbase = ops.coefficients_backward(
            dp, dr, dcarry, h, rms, scale, base, n, d, *ctx.activation
        )
        need = [needs[0], needs[1], metric is not None and needs[4]]
        dx = dweight = dmetric = None
        if any(need):
            dx, dweight, dmetric = ops.streams_backward(
                x, None, None, "none", 0.0, 1.0, None, None, dh, pull, weight, metric, need
            )
        found = (dx, dweight, dscale, dbase, dmetric)
        wanted = (need[0], need[1], needs[2], needs[3], need[2])
        return (*(g if w else None for g, w in zip(found, wanted)), None, *(None for _ in ctx.activation))


def coefficients(
    x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, *, rms_eps: float, metric: Tensor | None = None
) -> Tensor:
    """:func:`streamgauge.kernels.reference.coefficients` on the kernels; float32 out."""
    check_state("coefficients", x)
    controller = flat_controller(x, weight, scale, base, rms_eps, metric)
    z: Tensor = CoefficientsFunction.apply(flat_state(x), *controller, float(rms_eps), *RAW)[0]
    return z.reshape(*x.shape[:-2], weight.shape[0])


def activated(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    activation: Activation,
    rms_eps: float,
    metric: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Reads and writes (..., n) and the carry, in two launches; the meaning is ``activation.apply(z, n)``."""
    check_state("coefficients", x)
    lead, n = x.shape[:-2], x.shape[-2]
    if weight.shape[0] != activation.rows(n):
        raise ValueError(f"coefficients weight: found {weight.shape[0]} rows, expected {activation.rows(n)}")
    controller = flat_controller(x, weight, scale, base, rms_eps, metric)
    p, r, carry = CoefficientsFunction.apply(flat_state(x), *controller, float(rms_eps), *activation.arguments)
    shaped = carry.reshape(*lead, *carry.shape[1:]) if activation.carry != "none" else None
    return p.reshape(*lead, n), r.reshape(*lead, n), shaped
