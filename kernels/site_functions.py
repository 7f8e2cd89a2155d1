# mypy: disable-error-code="no-untyped-call"
"""The two halves of a site around its branch, with the residual gradient handed from one to the other.

Enter gives u, the coefficients and the state again (an alias); Leave writes with that alias.  Backward, Leave gives
the alias the gradient dX' *as it is* and Enter, which knows the carry, puts A^T dX' + p du + the coefficients' part
into dX in one pass.  So the pair is a derivative, and neither half alone: the alias never leaves :func:`site`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import ops, ops_coefficients


class EnterFunction(torch.autograd.Function):
    """(x, p or None, controller or Nones, gauge or None, outer carry or None, mode, ..) -> (u, x again, r, carry).

    With p given there is no controller: r and carry come back empty.  ``outer`` is the carry Leave will use where the
    controller makes none; its gradient is Leave's.  ``gauge`` P makes the read ``p P``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        p: Tensor | None,
        weight: Tensor | None,
        scale: Tensor | None,
        base: Tensor | None,
        metric: Tensor | None,
        gauge: Tensor | None,
        outer: Tensor | None,
        mode: str,
        eps: float,
        cap: float,
        rms_eps: float,
        *activation: Any,
    ) -> Any:
        own = h = rms = None
        if weight is None:
            reads, r, carry = p, x.new_empty(0), x.new_empty(0)
        else:
            own, r, carry, h, rms = ops_coefficients.coefficients_forward(
                x, weight, scale, base, metric, rms_eps, *activation
            )
            reads = own if gauge is None else own @ gauge
        u = ops.read_forward(x, reads)
        used = carry if outer is None and mode != "identity" else outer
        ctx.save_for_backward(x, reads, own, weight, scale, base, metric, gauge, used, h, rms)
        ctx.residual, ctx.activation = (mode, eps, cap), activation
        return u, x.view_as(x), r, carry

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, reads, own, weight, scale, base, metric, gauge, used, h, rms = ctx.saved_tensors
        du, residual, dr, dcarry = (g.contiguous() for g in grads)
        needs = ctx.needs_input_grad
        need_controller = weight is not None and any(needs[:7])
        dp = dscale = dbase = dgauge = dh = pull = None
        if need_controller or needs[1]:
            _, dp = ops.read_backward(du, x, reads, False, True)
        if need_controller:
            dgauge = own.mT @ dp if gauge is not None and needs[6] else None
            n, d = x.shape[1:]
            dh, pull, dscale, dbase = ops_coefficients.coefficients_backward(
                dp if gauge is None else (dp @ gauge.mT).contiguous(),
                dr,
                dcarry,
                h,
                rms,
                scale,
                base,
                n,
                d,
                *ctx.activation,
            )
        need = [needs[0], need_controller and needs[2], need_controller and metric is not None and needs[5]]
        dx = dweight = dmetric = None
        if any(need):
            dx, dweight, dmetric = ops_coefficients.streams_backward(
                x, residual, used, *ctx.residual, du, reads, dh, pull, weight, metric, need
            )
        found = (dx, dp, dweight, dscale, dbase, dmetric, dgauge)
        wanted = (need[0], needs[1], need[1], needs[3], needs[4], need[2], needs[6])
        rest = len(needs) - len(found)
        return (*(g if w else None for g, w in zip(found, wanted)), *(None for _ in range(rest)))


class LeaveFunction(torch.autograd.Function):
    """(x again, y, r, carry or None, mode, eps, cap) -> X'; its gradient in x is dX', for Enter to carry back."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, r: Tensor, carry: Tensor | None, mode: str, eps: float, cap: float
    ) -> Tensor:
        ctx.save_for_backward(None if mode == "identity" else x, y, r, carry)
        ctx.residual = (mode, eps, cap)
        out: Tensor = ops.write_forward(x, y, r, carry, mode, eps, cap)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad = grads[0].contiguous()
        x, y, r, carry = ctx.saved_tensors
        needs = ctx.needs_input_grad
        _, dy, dr, dcarry = ops.write_backward(grad, x, y, r, carry, *ctx.residual, [False, *needs[1:4]])
        found = (grad, dy, dr, dcarry)
        return (*(g if w else None for g, w in zip(found, needs)), None, None, None)
