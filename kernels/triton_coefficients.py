# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"
"""Coefficients from the state: projection and norm in one pass over X, then the small work of each token.

    h = (W vec X) / rms,   rms = sqrt(||T X||^2 / (n d) + rms_eps),   z = scale h + base,

then, unless RAW, p = sigmoid(z) + read_eps, r = write_mult sigmoid(z) + write_eps, and the carry: Sinkhorn of the
last n^2 numbers ("full") or gates sigmoid(z) ("diag").  Rows of z: n reads, n writes, the carry.  ``h`` and ``rms``
are kept for the backward pass.  Split sums are written apart and added in order: no atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamgauge.kernels.triton_common import load_wide, square, times_brief, wide_dot
from streamgauge.kernels.triton_sinkhorn import sweeps, sweeps_backward

# ||X||^2 of states from 1e-30 to the end of float32: two sums, of X scaled by 2^40 and by 2^-66.
UP = tl.constexpr(2.0**40)
DOWN = tl.constexpr(2.0**-66)


@triton.jit(do_not_specialize=["tokens", "span"])
def project_kernel(
    projections,
    squares,
    x,
    weight,
    metric,
    tokens,
    d,
    m,
    span,
    n: tl.constexpr,
    NP: tl.constexpr,
    MP: tl.constexpr,
    METRIC: tl.constexpr,
    EXACT: tl.constexpr,
    BT: tl.constexpr,
    BD: tl.constexpr,
):
    """Per split of d: W vec X (splits, T, m) and the two sums of squares of T X (splits, T, 2).

    EXACT: X has at most 11 significant bits.  Without a metric the caller passes n = 1 and d = n d.
    """
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    split = tl.program_id(1).to(tl.int64)
    s = tl.arange(0, NP).to(tl.int64)
    row = tl.arange(0, MP).to(tl.int64)
    live = t < tokens
    if METRIC:
        pair = (s[:, None] < n) & (s[None, :] < n)
        triangle = load_wide(metric + s[:, None] * n + s[None, :], pair)[None, :, :]
    out = tl.zeros([BT, MP], tl.float32)
    low = tl.zeros([BT], tl.float32)
    high = tl.zeros([BT], tl.float32)
    begin = tl.program_id(1) * span
    for start in range(begin, min(begin + span, d), BD):
        c = start + tl.arange(0, BD).to(tl.int64)
        fits = (s < n)[:, None] & (c < d)[None, :]
        inner = (s * d)[:, None] + c[None, :]
        inside = live[:, None, None] & fits[None, :, :]
        given = tl.load(x + (t * (n * d))[:, None, None] + inner[None, :, :], mask=inside, other=0.0)
        state = given.to(tl.float32)
        rows = load_wide(
            weight + (row * (n * d))[:, None, None] + inner[None, :, :], (row < m)[:, None, None] & fits[None, :, :]
        )
        columns = tl.trans(tl.reshape(rows, [MP, NP * BD]))
        if x.dtype.element_ty == tl.bfloat16:
            out = times_brief(tl.reshape(given, [BT, NP * BD]), columns, out)
        else:
            out = wide_dot(tl.reshape(state, [BT, NP * BD]), columns, out, EXACT, False)
        measured = state
        if METRIC:
            measured = tl.sum(triangle[:, :, :, None] * state[:, None, :, :], 2)
        up = measured * UP
        down = measured * DOWN
        low += tl.sum(tl.sum(up * up, 2), 1)
        high += tl.sum(tl.sum(down * down, 2), 1)
    places = split * tokens + t
    tl.store(projections + (places * m)[:, None] + row[None, :], out, mask=live[:, None] & (row < m)[None, :])
    tl.store(squares + places * 2, low, mask=live)
    tl.store(squares + places * 2 + 1, high, mask=live)


@triton.jit
def root_mean_square(squares, t, live, tokens, splits, size, root):
    """sqrt(mean square + root^2), from the split sums, for any size of state."""
    low = load_wide(squares + t * 2, live)
    high = load_wide(squares + t * 2 + 1, live)
    for split in range(1, splits):
        places = (split * tokens.to(tl.int64) + t) * 2
        low += load_wide(squares + places, live)
        high += load_wide(squares + places + 1, live)
    # A sum that overflowed, or is nan, is not below infinity.
    fine = low < float("inf")
    norm = tl.where(fine, tl.sqrt(tl.where(fine, low, 0.0)) / UP, tl.sqrt(tl.where(fine, 0.0, high)) / DOWN)
    norm = norm / tl.sqrt(size * 1.0)
    larger = tl.where(norm > root, norm, root)
    smaller = tl.where(norm > root, root, norm)
    ratio = smaller / tl.where(larger == 0, 1.0, larger)
    return larger * tl.sqrt(1.0 + ratio * ratio)


@triton.jit
def shifted(scale, base, h, row, exists):
    """z = scale h + base."""
    return load_wide(scale + row, exists) * h + load_wide(base + row, exists)


@triton.jit
def normalised(h, projections, scale, base, first, row, mask, exists, splits, stride, rms):
    """z in the given rows; h, the split sums added in order over rms, is stored."""
    places = first + row
    total = load_wide(projections + places, mask)
    for split in range(1, splits):
        total += load_wide(projections + split * stride + places, mask)
    value = total / rms
    tl.store(h + places, value, mask=mask)
    return shifted(scale, base, value, row, exists)


@triton.jit(do_not_specialize=["tokens", "splits"])
def finish_kernel(
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
    m,
    splits,
    root,
    read_eps,
    write_mult,
    write_eps,
    eps,
    start_eps,
    temperature,
    n: tl.constexpr,
    NP: tl.constexpr,
    MP: tl.constexpr,
    RAW: tl.constexpr,
    MODE: tl.constexpr,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
    TRANSPOSE: tl.constexpr,
    BT: tl.constexpr,
):
    """p (z if RAW), r, carry, h, rms of each token."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    live = t < tokens
    stride = tokens.to(tl.int64) * m
    size = root_mean_square(squares, t, live, tokens, splits, n * d, root)
    tl.store(rms + t, size, mask=live)
    size = tl.where(live, size, 1.0)[:, None]
    first = (t * m)[:, None]
    if RAW:
        row = tl.arange(0, MP).to(tl.int64)[None, :]
        mask = live[:, None] & (row < m)
        z = normalised(h, projections, scale, base, first, row, mask, row < m, splits, stride, size)
        tl.store(p + first + row, z, mask=mask)
    else:
        s = tl.arange(0, NP).to(tl.int64)
        row = s[None, :]
        real = row < n
        mask = live[:, None] & real
        target = (t * n)[:, None] + row
        z = normalised(h, projections, scale, base, first, row, mask, real, splits, stride, size)
        tl.store(p + target, tl.sigmoid(z) + read_eps, mask=mask)
        z = normalised(h, projections, scale, base, first, n + row, mask, real, splits, stride, size)
        tl.store(r + target, write_mult * tl.sigmoid(z) + write_eps, mask=mask)
        if MODE == "diag":
            z = normalised(h, projections, scale, base, first, 2 * n + row, mask, real, splits, stride, size)
            tl.store(carry + target, tl.sigmoid(z), mask=mask)
        if MODE == "full":
            pair, inside, target = square(t, s, live, n, n * n, TRANSPOSE)
            row = 2 * n + (s[:, None] * n + s[None, :])[None, :, :]
            first, size = first[:, :, None], size[:, :, None]
            z = normalised(h, projections, scale, base, first, row, inside, pair, splits, stride, size)
            mixed, _ = sweeps(z / temperature, pair, eps, start_eps, ITERATIONS, FIRST, SOFTMAX, EPS_MODE, LOGS)
            if LOGS:
                mixed = tl.exp(mixed)
            tl.store(carry + target, mixed, mask=inside)


@triton.jit
def kept(h, scale, base, first, row, mask, exists):
    """h, the factor dz -> dh, and z."""
    value = load_wide(h + first + row, mask)
    return value, load_wide(scale + row, exists), shifted(scale, base, value, row, exists)


@triton.jit
def slope(z):
    """The derivative of the sigmoid."""
    s = tl.sigmoid(z)
    return s * (1.0 - s)


@triton.jit
def spread(dh, sums, dz, value, factor, first, row, mask, exists, rms, m, programs):
    """Stores dh / rms, and this program's parts of dscale and dbase; returns dh h, entry by entry."""
    dz = tl.where(mask, dz, 0.0)
    tl.store(dh + first + row, dz * factor / rms, mask=mask)
    here = tl.program_id(0).to(tl.int64) * m + row
    tl.store(sums + here, tl.sum(dz * value, 0, keep_dims=True), mask=exists)
    tl.store(sums + programs.to(tl.int64) * m + here, tl.sum(dz, 0, keep_dims=True), mask=exists)
    return dz * factor * value


@triton.jit(do_not_specialize=["tokens", "programs"])
def finish_backward_kernel(
    dh,
    pull,
    sums,
    dp,
    dr,
    dcarry,
    h,
    rms,
    scale,
    base,
    tokens,
    programs,
    d,
    m,
    write_mult,
    eps,
    start_eps,
    temperature,
    n: tl.constexpr,
    NP: tl.constexpr,
    MP: tl.constexpr,
    RAW: tl.constexpr,
    MODE: tl.constexpr,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
    TRANSPOSE: tl.constexpr,
    BT: tl.constexpr,
):
    """From the gradients of p (z if RAW), r and the carry: dh / rms, the norm's pull, and parts of dscale, dbase.

    The pull is the root of <dh, h> / (n d), with its sign, over rms: rms^2 itself may not be in float32's range.
    """
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    live = t < tokens
    norm = tl.load(rms + t, mask=live, other=1.0)
    size = norm[:, None]
    first = (t * m)[:, None]
    if RAW:
        row = tl.arange(0, MP).to(tl.int64)[None, :]
        mask = live[:, None] & (row < m)
        value, factor, _ = kept(h, scale, base, first, row, mask, row < m)
        up = load_wide(dp + first + row, mask)
        total = tl.sum(spread(dh, sums, up, value, factor, first, row, mask, row < m, size, m, programs), 1)
    else:
        s = tl.arange(0, NP).to(tl.int64)
        row = s[None, :]
        real = row < n
        mask = live[:, None] & real
        source = (t * n)[:, None] + row
        value, factor, z = kept(h, scale, base, first, row, mask, real)
        up = load_wide(dp + source, mask) * slope(z)
        total = tl.sum(spread(dh, sums, up, value, factor, first, row, mask, real, size, m, programs), 1)
        value, factor, z = kept(h, scale, base, first, n + row, mask, real)
        up = load_wide(dr + source, mask) * write_mult * slope(z)
        total += tl.sum(spread(dh, sums, up, value, factor, first, n + row, mask, real, size, m, programs), 1)
        if MODE == "diag":
            value, factor, z = kept(h, scale, base, first, 2 * n + row, mask, real)
            up = load_wide(dcarry + source, mask) * slope(z)
            total += tl.sum(spread(dh, sums, up, value, factor, first, 2 * n + row, mask, real, size, m, programs), 1)
        if MODE == "full":
            pair, inside, source = square(t, s, live, n, n * n, TRANSPOSE)
            row = 2 * n + (s[:, None] * n + s[None, :])[None, :, :]
            first, size = first[:, :, None], size[:, :, None]
            value, factor, z = kept(h, scale, base, first, row, inside, pair)
            up = load_wide(dcarry + source, inside)
            z = z / temperature
            up = (
                sweeps_backward(z, up, pair, eps, start_eps, ITERATIONS, FIRST, SOFTMAX, EPS_MODE, LOGS) / temperature
            )
            parts = spread(dh, sums, up, value, factor, first, row, inside, pair, size, m, programs)
            total += tl.sum(tl.sum(parts, 2), 1)
    root = tl.sqrt(tl.abs(total) / (n * d))
    tl.store(pull + t, tl.where(total < 0, -root, root) / norm, mask=live)
