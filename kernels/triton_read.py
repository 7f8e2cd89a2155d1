# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"
"""The read u = p X in one pass, and its backward in one pass.

Traffic a token, in state elements: forward (n + 1) d; backward reads X, du and writes dX, (2n + 1) d; without dX
(the site adds it elsewhere) (n + 1) d.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamgauge.kernels.triton_common import load_wide, rounded


@triton.jit(do_not_specialize=["tokens", "p_step"])
def read_forward_kernel(
    out,
    x,
    p,
    tokens,
    d,
    p_step,
    n: tl.constexpr,
    NP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    """out (T, d) = p X, one tile of tokens and features."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    c = tl.program_id(1).to(tl.int64) * BD + tl.arange(0, BD)
    live = t < tokens
    streams = live[:, None] & (s < n)[None, :]
    places = ((t * n)[:, None, None] + s[None, :, None]) * d + c[None, None, :]
    weights = load_wide(p + (t * p_step)[:, None] + s[None, :], streams)
    state = load_wide(x + places, streams[:, :, None] & (c < d)[None, None, :])
    mixed = tl.sum(weights[:, :, None] * state, 1)
    row = live[:, None] & (c < d)[None, :]
    tl.store(out + (t * d)[:, None] + c[None, :], rounded(mixed, out.dtype.element_ty), mask=row)


@triton.jit(do_not_specialize=["tokens", "p_step"])
def read_backward_kernel(
    dx,
    dp,
    du,
    x,
    p,
    tokens,
    d,
    p_step,
    n: tl.constexpr,
    NP: tl.constexpr,
    NEED_DX: tl.constexpr,
    NEED_DP: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    """dX = p^T du, and dp = du X^T of each token, summed over the whole width."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    live = t < tokens
    streams = live[:, None] & (s < n)[None, :]
    if NEED_DX:
        weights = load_wide(p + (t * p_step)[:, None] + s[None, :], streams)
    total = tl.zeros([BT, NP], tl.float32)
    for start in range(0, d, BD):
        c = start + tl.arange(0, BD).to(tl.int64)
        inside = streams[:, :, None] & (c < d)[None, None, :]
        places = ((t * n)[:, None, None] + s[None, :, None]) * d + c[None, None, :]
        up = load_wide(du + (t * d)[:, None] + c[None, :], live[:, None] & (c < d)[None, :])
        if NEED_DX:
            back = weights[:, :, None] * up[:, None, :]
            tl.store(dx + places, rounded(back, dx.dtype.element_ty), mask=inside)
        if NEED_DP:
            state = load_wide(x + places, inside)
            total += tl.sum(up[:, None, :] * state, 2)
    if NEED_DP:
        tl.store(dp + (t * n)[:, None] + s[None, :], total, mask=streams)
