# mypy: disable-error-code="import-untyped"
"""Raw custom operations of the coefficients, and of the state's whole gradient; no autograd (``functions`` adds it).

``mode``: "raw" gives z alone; "identity", "diag", "full" give reads, writes and that carry.  ``recipe``:
(order, start, eps_mode), ``numbers``: (read_eps, write_mult, write_eps, start_eps, eps, temperature).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from streamgauge.kernels import configs
from streamgauge.kernels.ops import matrix_shapes, step, sweep_options, unused
from streamgauge.kernels.triton_coefficients import finish_backward_kernel, finish_kernel, project_kernel
from streamgauge.kernels.triton_common import INTERPRETED
from streamgauge.kernels.triton_streams import streams_backward_kernel

_RECIPE = "str mode, str[] recipe, float[] numbers, int iterations, bool transpose"


def exact(x: Tensor) -> bool:
    """Whether the state's numbers fit a tensor core's 11 bits."""
    return x.element_size() == 2


def project(x: Tensor, weight: Tensor, metric: Tensor | None) -> tuple[Tensor, Tensor]:
    """W vec X (splits, T, m) and the sums of squares of T X (splits, T, 2)."""
    tokens, n, d = x.shape
    m = weight.shape[0]
    if metric is None:
        n, d = 1, n * d  # the norm does not see the streams
    tile = configs.project_tile(n, d, m, interpreted=INTERPRETED)
    splits = min(configs.project_splits(n, d), triton.cdiv(d, tile.width))
    span = triton.cdiv(triton.cdiv(d, tile.width), splits) * tile.width
    projections = weight.new_empty(splits, tokens, m)
    squares = weight.new_empty(splits, tokens, 2)
    project_kernel[(triton.cdiv(tokens, tile.tokens), splits)](
        projections,
        squares,
        x,
        weight,
        weight if metric is None else metric,
        tokens,
        d,
        m,
        span,
        n=n,
        NP=configs.padded(n),
        MP=configs.rows_padded(m),
        METRIC=metric is not None,
        EXACT=exact(x),
        BT=tile.tokens,
        BD=tile.width,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return projections, squares


def carry_tail(mode: str, n: int) -> tuple[int, ...] | None:
    """The shape of one token's carry, None if it has none."""
    if mode == "full":
        return (n, n)
    return (n,) if mode == "diag" else None


def finish_options(mode: str, recipe: Sequence[str], numbers: Sequence[float], iterations: int) -> dict[str, Any]:
    """Mode and recipe as arguments of the two kernels that finish the coefficients."""
    order, start, eps_mode = recipe
    start_eps, eps, temperature = numbers[3:]
    return {
        **sweep_options(order, start, start_eps, eps, eps_mode, iterations),
        "temperature": temperature,
        "MODE": mode,
        "RAW": mode == "raw",
    }


@torch.library.custom_op(
    "streamgauge::coefficients_forward",
    mutates_args=(),
    schema=f"(Tensor x, Tensor weight, Tensor scale, Tensor base, Tensor? metric, float rms_eps, {_RECIPE})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def coefficients_forward(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    base: Tensor,
    metric: Tensor | None,
    rms_eps: float,
    mode: str,
    recipe: Sequence[str],
    numbers: Sequence[float],
    iterations: int,
    transpose: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(p, or z if raw; r; carry; h; rms), float32."""
    tokens, n, d = x.shape
    p, r, carry, h, rms = _coefficient_outputs(x, weight, mode)
    if tokens:
        projections, squares = project(x, weight, metric)
        tile = configs.matrix_tile(n, interpreted=INTERPRETED)
        finish_kernel[(triton.cdiv(tokens, tile.tokens),)](
            p,
            r,
            carry,
            h,
            rms,
            projections,
            squares,
            scale,
            base,
            tokens,
            d,
            weight.shape[0],
            projections.shape[0],
            rms_eps**0.5,
            *numbers[:3],
            **finish_options(mode, recipe, numbers, iterations),
            **matrix_shapes(n, tile),
            MP=configs.rows_padded(weight.shape[0]),
            TRANSPOSE=transpose,
        )
    return p, r, carry, h, rms


def _coefficient_outputs(x: Tensor, weight: Tensor, mode: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tokens, n, _ = x.shape
    raw = mode == "raw"
    tail = carry_tail(mode, n)
    return (
        weight.new_empty(tokens, weight.shape[0] if raw else n),
        weight.new_empty(0) if raw else weight.new_empty(tokens, n),
        weight.new_empty(0) if tail is None else weight.new_empty(tokens, *tail),
        weight.new_empty(tokens, weight.shape[0]),
        weight.new_empty(tokens),
    )


@coefficients_forward.register_fake
def _(
    x: Tensor, weight: Tensor, scale: Tensor, base: Tensor, metric: Tensor | None, rms_eps: float, mode: str, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _coefficient_outputs(x, weight, mode)


@torch.library.custom_op(
    "streamgauge::coefficients_backward",
    mutates_args=(),
    schema=f"(Tensor dp, Tensor? dr, Tensor? dcarry, Tensor h, Tensor rms, Tensor scale, Tensor base, int n, int d,"
    f" {_RECIPE}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def coefficients_backward(
    dp: Tensor,
    dr: Tensor | None,
    dcarry: Tensor | None,
    h: Tensor,
    rms: Tensor,
    scale: Tensor,
    base: Tensor,
    n: int,
    d: int,
    mode: str,
    recipe: Sequence[str],
    numbers: Sequence[float],
    iterations: int,
    transpose: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(dh / rms (T, m), pull (T,), dscale, dbase): all that the state's gradient needs to know."""
    tokens, m = h.shape
    dh, pull = torch.empty_like(h), torch.empty_like(rms)
    if not tokens:
        return dh, pull, torch.zeros_like(scale), torch.zeros_like(base)
    tile = configs.matrix_tile(n, interpreted=INTERPRETED)
    programs = triton.cdiv(tokens, tile.tokens)
    sums = h.new_empty(2, programs, m)
    finish_backward_kernel[(programs,)](
        dh,
        pull,
        sums,
        dp,
        dp if dr is None else dr,
        dp if dcarry is None else dcarry,
        h,
        rms,
        scale,
        base,
        tokens,
        programs,
        d,
        m,
        numbers[1],
        **finish_options(mode, recipe, numbers, iterations),
        **matrix_shapes(n, tile),
        MP=configs.rows_padded(m),
        TRANSPOSE=transpose,
    )
    dscale, dbase = sums.sum(1)
    return dh, pull, dscale.clone(), dbase.clone()


@coefficients_backward.register_fake
def _(
    dp: Tensor, dr: Tensor | None, dcarry: Tensor | None, h: Tensor, rms: Tensor, scale: Tensor, base: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(h), torch.empty_like(rms), torch.empty_like(scale), torch.empty_like(base)


@torch.library.custom_op(
    "streamgauge::streams_backward",
    mutates_args=(),
    schema="(Tensor x, Tensor? grad, Tensor? carry, str mode, float eps, float cap, Tensor? du, Tensor? p,"
    " Tensor? dh, Tensor? pull, Tensor? weight, Tensor? metric, bool[] need)"
    " -> (Tensor, Tensor, Tensor)",
)
def streams_backward(
    x: Tensor,
    grad: Tensor | None,
    carry: Tensor | None,
    mode: str,
    eps: float,
    cap: float,
    du: Tensor | None,
    p: Tensor | None,
    dh: Tensor | None,
    pull: Tensor | None,
    weight: Tensor | None,
    metric: Tensor | None,
    need: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """(dX, dW, dT) of the parts that are given: residual (grad, carry), read (du, p), coefficients (dh, ..)."""
    tokens, n, d = x.shape
    need_dx, need_dweight, need_dmetric = need
    m = 1 if weight is None else weight.shape[0]
    tile = configs.slice_tile(n, d, m, size=x.element_size(), metric=metric is not None, interpreted=INTERPRETED)
    slices = triton.cdiv(d, tile.width * tile.parts)
    parts = configs.shares(tokens, slices, tile, interpreted=INTERPRETED)
    span = triton.cdiv(triton.cdiv(tokens, tile.tokens), parts) * tile.tokens
    parts = triton.cdiv(tokens, span) if span else 0
    dx = torch.empty_like(x) if need_dx else unused(x)
    dweight = x.new_empty(parts, m, n * d, dtype=torch.float32) if need_dweight else unused(x).float()
    dmetric = x.new_empty(parts * slices, n, n, dtype=torch.float32) if need_dmetric else unused(x).float()
    if parts:
        none = x  # stands for a pointer that is not followed
        streams_backward_kernel[(slices, parts)](
            dx,
            dweight,
            dmetric,
            none if grad is None else grad,
            none if carry is None else carry,
            none if du is None else du,
            none if p is None else p,
            x,
            none if dh is None else dh,
            none if pull is None else pull,
            none if weight is None else weight,
            none if metric is None else metric,
            tokens,
            span,
            d,
            m,
            0 if carry is None else step(carry),
            0 if p is None else step(p),
            eps,
            cap,
            n=n,
            NP=configs.padded(n),
            MP=configs.rows_padded(m),
            MODE=mode if grad is not None and need_dx else "none",
            READ=du is not None and need_dx,
            COEFFICIENTS=dh is not None,
            METRIC=metric is not None,
            NEED_DX=need_dx,
            NEED_DWEIGHT=need_dweight,
            NEED_DMETRIC=need_dmetric,
            EXACT=exact(x),
            BT=tile.tokens,
            BD=tile.width,
            PARTS=tile.parts,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return (
        dx,
        dweight.sum(0) if need_dweight else dweight,
        dmetric.sum(0) if need_dmetric else dmetric,
    )


@streams_backward.register_fake
def _(
    x: Tensor,
    grad: Tensor | None,
    carry: Tensor | None,
    mode: str,
    eps: float,
    cap: float,
    du: Tensor | None,
    p: Tensor | None,
    dh: Tensor | None,
    pull: Tensor | None,
    weight: Tensor | None,
    metric: Tensor | None,
    need: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    n = x.shape[1]
    m = 1 if weight is None else weight.shape[0]
    return (
        torch.empty_like(x) if need[0] else unused(x),
        x.new_empty(m, n * x.shape[2], dtype=torch.float32) if need[1] else unused(x).float(),
        x.new_empty(n, n, dtype=torch.float32) if need[2] else unused(x).float(),
    )
