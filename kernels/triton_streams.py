# mypy: disable-error-code="assignment,var-annotated,no-untyped-def,untyped-decorator,import-untyped"
"""The gradient of the state, once: residual, read and coefficient parts added in registers, X read one time.

    dX = A^T dX' + p du + W^T dh / rms - T^T T X <dh, h> / (n d rms^2)

A program owns a slice of the width and walks its share of the tokens, so the gradient of W accumulates in registers:
dW = sum over tokens of (dh / rms) X^T, one sum per share, added afterwards in order.  Traffic a token, in state
elements: X, dX', du and dX, (3n + 1) d, plus the token's coefficients once per slice.  A slice is PARTS pieces of
width BD, one after the other: the sums of all pieces fit the registers, their states only one at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamgauge.kernels.triton_common import (
    apply_carry,
    load_carry,
    load_wide,
    near_dot,
    rounded,
    times_brief,
    wide_dot,
)


@triton.jit
def coefficient_part(state, dh, along, size, rows, triangle, METRIC: tl.constexpr, EXACT: tl.constexpr):
    """W^T dh / rms minus the pull of the norm, and X / rms and T X / rms."""
    BT: tl.constexpr = state.shape[0]
    NP: tl.constexpr = state.shape[1]
    BD: tl.constexpr = state.shape[2]
    through = tl.zeros([NP * BD, BT], tl.float32)
    if EXACT:
        through = near_dot(tl.trans(rows), tl.trans(dh), through)
    else:
        through = wide_dot(tl.trans(rows), tl.trans(dh), through, False, False)
    through = tl.trans(through)
    scaled = state / size
    measured = scaled
    pulled = scaled
    if METRIC:
        measured = tl.sum(triangle[:, :, :, None] * scaled[:, None, :, :], 2)
        pulled = tl.sum(triangle[:, :, :, None] * measured[:, :, None, :], 1)
    return tl.reshape(through, [BT, NP, BD]) - pulled * (along / size), scaled, measured


@triton.jit
def piece(k, s, first, n, d, BD: tl.constexpr):
    """Features of the slice's piece k; which lanes (s, c) are no padding; their places in a token or a row of W."""
    c = first + k * BD + tl.arange(0, BD)
    return c, (s < n)[:, None] & (c < d)[None, :], (s * d)[:, None] + c[None, :]


@triton.jit
def slab(k, s, row, first, n, d, m, BD: tl.constexpr):
    """Places of piece k in W (m, n d), as (row, s, c), and which are no padding."""
    _, fits, inner = piece(k, s, first, n, d, BD)
    return (row * (n * d))[:, None, None] + inner[None, :, :], (row < m)[:, None, None] & fits[None, :, :]


@triton.jit
def add_weight(total, given, state, errors, EXACT: tl.constexpr):
    """total + X^T (dh / rms) of one piece, (s c, row); ``given``: the state as it was stored."""
    K: tl.constexpr = total.shape[0]
    BT: tl.constexpr = state.shape[0]
    if given.dtype == tl.bfloat16:
        total = times_brief(tl.trans(tl.reshape(given, [BT, K])), errors, total)
    else:
        total = wide_dot(tl.trans(tl.reshape(state, [BT, K])), errors, total, EXACT, False)
    return total


@triton.jit(do_not_specialize=["tokens", "span", "carry_step", "p_step"])
def streams_backward_kernel(
    dx,
    dweight,
    dmetric,
    grad,
    carry,
    du,
    p,
    x,
    dh,
    along,
    rms,
    weight,
    metric,
    tokens,
    span,
    d,
    m,
    carry_step,
    p_step,
    eps,
    cap,
    n: tl.constexpr,
    NP: tl.constexpr,
    MP: tl.constexpr,
    MODE: tl.constexpr,
    READ: tl.constexpr,
    COEFFICIENTS: tl.constexpr,
    METRIC: tl.constexpr,
    NEED_DX: tl.constexpr,
    NEED_DWEIGHT: tl.constexpr,
    NEED_DMETRIC: tl.constexpr,
    EXACT: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
    PARTS: tl.constexpr,
):
    """MODE "none": no residual gradient.  Shapes: dweight (shares, m, n d), dmetric (shares, slices, n, n)."""
    share = tl.program_id(1).to(tl.int64)
    # Inside one token, and inside W, 32 bits reach far enough; tokens are counted in 64.
    s = tl.arange(0, NP)
    row = tl.arange(0, MP)
    first = tl.program_id(0) * (PARTS * BD)
    pair = (s[:, None] < n) & (s[None, :] < n)
    corner = s[:, None] * n + s[None, :]
    triangle = tl.zeros([1, NP, NP], tl.float32)
    if METRIC:
        triangle = load_wide(metric + corner, pair)[None, :, :]
    rows = ()
    sums = ()
    for k in tl.static_range(PARTS):
        part = tl.zeros([MP, NP * BD], tl.float32)
        if COEFFICIENTS:
            cells, real = slab(k, s, row, first, n, d, m, BD)
            part = tl.reshape(load_wide(weight + cells, real), [MP, NP * BD])
        rows = rows + (part,)  # noqa: RUF005 (the compiler has no unpacking)
        # Columns of W first: long enough for the matrix units, which then take both factors from shared memory.
        sums = sums + (tl.zeros([NP * BD, MP], tl.float32),)  # noqa: RUF005
    sum_metric = tl.zeros([NP, NP], tl.float32)

    begin = tl.program_id(1) * span
    for start in range(begin, min(begin + span, tokens), BT):
        t = (start + tl.arange(0, BT)).to(tl.int64)
        live = t < tokens
        streams = live[:, None] & (s < n)[None, :]
        if COEFFICIENTS:
            errors = load_wide(dh + (t * m)[:, None] + row[None, :], live[:, None] & (row < m)[None, :])
            size = tl.load(rms + t, mask=live, other=1.0)[:, None, None]
            pull = load_wide(along + t, live)[:, None, None]
        if READ and NEED_DX:
            reads = load_wide(p + (t * p_step)[:, None] + s[None, :], streams)
        if MODE != "none" and NEED_DX:
            factors = load_carry(carry, t, s, live, n, carry_step, eps, cap, MODE)
        added = ()
        for k in tl.static_range(PARTS):
            c, fits, inner = piece(k, s, first, n, d, BD)
            places = (t * (n * d))[:, None, None] + inner[None, :, :]
            inside = live[:, None, None] & fits[None, :, :]
            back = tl.zeros([BT, NP, BD], tl.float32)
            sum_weight = sums[k]
            if COEFFICIENTS:
                given = tl.load(x + places, mask=inside, other=0.0)
                state = given.to(tl.float32)
                if NEED_DWEIGHT:
                    sum_weight = add_weight(sum_weight, given, state, errors, EXACT)
                back, scaled, measured = coefficient_part(state, errors, pull, size, rows[k], triangle, METRIC, EXACT)
                if NEED_DMETRIC:
                    outer = tl.sum(measured[:, :, None, :] * scaled[:, None, :, :], 3)
                    sum_metric -= tl.sum(outer * pull, 0)
            added = added + (sum_weight,)  # noqa: RUF005
            if READ and NEED_DX:
                up = load_wide(du + (t * d)[:, None] + c[None, :], live[:, None] & (c < d)[None, :])
                back += reads[:, :, None] * up[:, None, :]
            if MODE != "none" and NEED_DX:
                back += apply_carry(factors, load_wide(grad + places, inside), MODE, True)
            if NEED_DX:
                tl.store(dx + places, rounded(back, dx.dtype.element_ty), mask=inside)
        sums = added

    if NEED_DWEIGHT:
        for k in tl.static_range(PARTS):
            cells, real = slab(k, s, row, first, n, d, m, BD)
            found = tl.reshape(tl.trans(sums[k]), [MP, NP, BD])
            tl.store(dweight + share * m * (n * d) + cells, found, mask=real)
    if NEED_DMETRIC:
        part_of = (share * tl.num_programs(0) + tl.program_id(0)) * (n * n)
        tl.store(dmetric + part_of + corner, sum_metric, mask=pair)
