# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"
"""The write X' = A X + r y in one pass, and its backward in one pass.

Traffic a token, in state elements: forward reads X, y and writes X', (2n + 1) d; backward reads dX', X, y and writes
dX, dy, (3n + 2) d; without dX (the deferred path, and always for the identity) n d less; the identity never reads X.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamgauge.kernels.triton_common import apply_carry, load_carry, load_wide, norm_gates_backward, rounded, square

_ANY = ["tokens", "r_step", "carry_step"]  # not specialised: one binary for every token count


@triton.jit(do_not_specialize=_ANY)
def write_forward_kernel(
    out,
    x,
    y,
    r,
    carry,
    tokens,
    d,
    r_step,
    carry_step,
    eps,
    cap,
    n: tl.constexpr,
    NP: tl.constexpr,
    MODE: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    """out (T, n, d) = A X + r y, one tile of tokens and features."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    c = tl.program_id(1).to(tl.int64) * BD + tl.arange(0, BD)
    live = t < tokens
    streams = live[:, None] & (s < n)[None, :]
    inside = streams[:, :, None] & (c < d)[None, None, :]
    places = ((t * n)[:, None, None] + s[None, :, None]) * d + c[None, None, :]

    factors = load_carry(carry, t, s, live, n, carry_step, eps, cap, MODE)
    weights = load_wide(r + (t * r_step)[:, None] + s[None, :], streams)
    state = load_wide(x + places, inside)
    branch = load_wide(y + (t * d)[:, None] + c[None, :], live[:, None] & (c < d)[None, :])
    new = apply_carry(factors, state, MODE, False) + weights[:, :, None] * branch[:, None, :]
    tl.store(out + places, rounded(new, out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_ANY)
def write_backward_kernel(
    dx,
    dy,
    dr,
    dcarry,
    grad,
    x,
    y,
    r,
    carry,
    tokens,
    d,
    r_step,
    carry_step,
    eps,
    cap,
    n: tl.constexpr,
    NP: tl.constexpr,
    MODE: tl.constexpr,
    NEED_DX: tl.constexpr,
    NEED_DY: tl.constexpr,
    NEED_DR: tl.constexpr,
    NEED_DCARRY: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    """dX = A^T dX', dy = r^T dX', and dr = dX' y^T and dcarry of each token, summed over the whole width."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    live = t < tokens
    streams = live[:, None] & (s < n)[None, :]
    if NEED_DX:
        factors = load_carry(carry, t, s, live, n, carry_step, eps, cap, MODE)
    if NEED_DY:
        weights = load_wide(r + (t * r_step)[:, None] + s[None, :], streams)
    sum_r = tl.zeros([BT, NP], tl.float32)
    sum_carry = tl.zeros([BT, NP, NP], tl.float32) if MODE == "full" else tl.zeros([BT, NP], tl.float32)

    for start in range(0, d, BD):
        c = start + tl.arange(0, BD).to(tl.int64)
        inside = streams[:, :, None] & (c < d)[None, None, :]
        row = live[:, None] & (c < d)[None, :]
        places = ((t * n)[:, None, None] + s[None, :, None]) * d + c[None, None, :]
        row_places = (t * d)[:, None] + c[None, :]
        up = load_wide(grad + places, inside)
        if NEED_DX:
            back = apply_carry(factors, up, MODE, True)
            tl.store(dx + places, rounded(back, dx.dtype.element_ty), mask=inside)
        if NEED_DY:
            down = tl.sum(weights[:, :, None] * up, 1)
            tl.store(dy + row_places, rounded(down, dy.dtype.element_ty), mask=row)
        if NEED_DR:
            branch = load_wide(y + row_places, row)
            sum_r += tl.sum(up * branch[:, None, :], 2)
        if NEED_DCARRY:
            state = load_wide(x + places, inside)
            if MODE == "full":
                sum_carry += tl.sum(up[:, :, None, :] * state[:, None, :, :], 3)
            else:
                sum_carry += tl.sum(up * state, 2)

    if NEED_DR:
        tl.store(dr + (t * n)[:, None] + s[None, :], sum_r, mask=streams)
    if NEED_DCARRY:
        if MODE == "full":
            _, entries, spots = square(t, s, live, n, n * n, False)
            tl.store(dcarry + spots, sum_carry, mask=entries)
        else:
            if MODE == "norm":
                g = load_wide(carry + (t * carry_step)[:, None] + s[None, :], streams)
                sum_carry = norm_gates_backward(g, sum_carry, n, eps, cap)
            tl.store(dcarry + (t * n)[:, None] + s[None, :], sum_carry, mask=streams)
