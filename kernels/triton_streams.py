# mypy: disable-error-code="assignment,var-annotated,no-untyped-def,untyped-decorator,import-untyped"
"""The gradient of the state, once: residual, read and coefficient parts added in registers, X read one time.

    dX = A^T dX' + p du + W^T dh / rms - |pull| pull T^T T X,    |pull| pull = <dh, h> / (n d rms^2)

A program owns a slice of the width and walks its share of the tokens, so the gradient of W accumulates in registers:
dW = sum over tokens of (dh / rms) X^T, one sum per share, added afterwards in order.  Traffic a token, in state
elements: X, dX', du and dX, (3n + 1) d, plus the token's coefficients once per slice; :mod:`.floors` says why not
less.  A slice is PARTS pieces of width BD, one after the other: the sums of all pieces fit the registers, their
states only one at a time, and the next one on its way.
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
def across(matrix, tile, TRANSPOSE: tl.constexpr):
    """M X or M^T X for one M (1, i, j), a stream of X at a time: no tile is larger than the state's."""
    NP: tl.constexpr = tile.shape[1]
    s = tl.arange(0, NP)
    out = tl.zeros(tile.shape, tl.float32)
    for j in tl.static_range(NP):
        stream = tl.sum(tl.where((s == j)[None, :, None], tile, 0.0), 1)
        if TRANSPOSE:
            factors = tl.sum(tl.where((s == j)[None, :, None], matrix, 0.0), 1)
        else:
            factors = tl.sum(tl.where((s == j)[None, None, :], matrix, 0.0), 2)
        out += factors[:, :, None] * stream[:, None, :]
    return out


@triton.jit
def coefficient_part(state, dh, pull, rows, triangle, METRIC: tl.constexpr, EXACT: tl.constexpr):
    """W^T dh / rms minus the pull of the norm, and pull X and pull T X."""
    BT: tl.constexpr = state.shape[0]
    NP: tl.constexpr = state.shape[1]
    BD: tl.constexpr = state.shape[2]
    through = tl.zeros([NP * BD, BT], tl.float32)
    if EXACT:
        through = near_dot(tl.trans(rows), tl.trans(dh), through)
    else:
        through = wide_dot(tl.trans(rows), tl.trans(dh), through, False, False)
    through = tl.trans(through)
    scaled = state * pull
    measured = scaled
    pulled = scaled
    if METRIC:
        measured = across(triangle, scaled, False)
        pulled = across(triangle, measured, True)
    return tl.reshape(through, [BT, NP, BD]) - pulled * tl.abs(pull), scaled, measured


@triton.jit
def slab(row, s, at, n, d, m, BD: tl.constexpr):
    """Places of a piece in W (m, n d), as (row, s, c), from its first feature ``at`` on; which are no padding."""
    c = tl.arange(0, BD)
    fits = (s < n)[:, None] & (c < d - at)[None, :]
    inner = (s * d)[:, None] + c[None, :]
    return (row * (n * d))[:, None, None] + inner[None, :, :], (row < m)[:, None, None] & fits[None, :, :]


@triton.jit
def box(t, s, live, at, n, d, BD: tl.constexpr):
    """The same in X (T, n, d), as (t, s, c).  Places are without ``at``: one set serves all pieces."""
    c = tl.arange(0, BD)
    inside = (live[:, None] & (s < n)[None, :])[:, :, None] & (c < d - at)[None, None, :]
    # Inside one token, and inside W, 32 bits reach far enough; tokens are counted in 64.
    inner = (s * d)[:, None] + c[None, :]
    return (t * (n * d))[:, None, None] + inner[None, :, :], inside


@triton.jit
def fetched(
    x,
    du,
    grad,
    t,
    s,
    live,
    at,
    n: tl.constexpr,
    d,
    BD: tl.constexpr,
    MODE: tl.constexpr,
    READ: tl.constexpr,
    COEFFICIENTS: tl.constexpr,
):
    """A piece of X, du and dX', as they are stored; dX' stream by stream for "full"."""
    places, inside = box(t, s, live, at, n, d, BD)
    c = tl.arange(0, BD)
    row = live[:, None] & (c < d - at)[None, :]
    given = 0
    up = 0
    residual = ()
    if COEFFICIENTS:
        given = tl.load(x + at + places, mask=inside, other=0.0)
    if READ:
        up = tl.load(du + at + (t * d)[:, None] + c[None, :], mask=row, other=0.0)
    if MODE == "full":
        start = (t * (n * d))[:, None] + c[None, :]
        for i in tl.static_range(n):
            stream = tl.load(grad + (at + i * d) + start, mask=row, other=0.0)
            residual = residual + (stream,)  # noqa: RUF005 (the compiler has no unpacking)
    elif MODE != "none":
        residual = (tl.load(grad + at + places, mask=inside, other=0.0),)
    return given, up, residual


@triton.jit
def load_back(carry, t, s, live, n: tl.constexpr, step, eps, cap, MODE: tl.constexpr):
    """The carry as :func:`carried_back` takes it: for "full" the mixer's rows, (t, j) each."""
    if MODE == "full":
        factors = ()
        for i in tl.static_range(n):
            row = load_wide(carry + (t * step)[:, None] + (i * n + s)[None, :], live[:, None] & (s < n)[None, :])
            factors = factors + (row,)  # noqa: RUF005
    else:
        factors = load_carry(carry, t, s, live, n, step, eps, cap, MODE)
    return factors


@triton.jit
def carried_back(factors, residual, n: tl.constexpr, MODE: tl.constexpr):
    """A^T dX', for "full" a stream of dX' at a time."""
    if MODE == "full":
        back = factors[0][:, :, None] * residual[0].to(tl.float32)[:, None, :]
        for i in tl.static_range(1, n):
            back += factors[i][:, :, None] * residual[i].to(tl.float32)[:, None, :]
    else:
        back = apply_carry(factors, residual[0].to(tl.float32), MODE, True)
    return back


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
    pull,
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
    """MODE "none": no residual gradient; without dX neither that nor READ.

    Shapes: dweight (shares, m, n d), dmetric (shares, slices, n, n).
    """
    share = tl.program_id(1).to(tl.int64)
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
            cells, real = slab(row, s, first + k * BD, n, d, m, BD)
            part = tl.reshape(load_wide(weight + (first + k * BD) + cells, real), [MP, NP * BD])
        rows = rows + (part,)  # noqa: RUF005
        # Columns of W first: long enough for the matrix units, which then take both factors from shared memory.
        sums = sums + (tl.zeros([NP * BD, MP], tl.float32),)  # noqa: RUF005
    sum_metric = tl.zeros([NP, NP], tl.float32)

    begin = tl.program_id(1) * span
    for start in range(begin, min(begin + span, tokens), BT):
        t = (start + tl.arange(0, BT)).to(tl.int64)
        live = t < tokens
        held = fetched(x, du, grad, t, s, live, first, n, d, BD, MODE, READ, COEFFICIENTS)
        if COEFFICIENTS:
            errors = load_wide(dh + (t * m)[:, None] + row[None, :], live[:, None] & (row < m)[None, :])
            norm = load_wide(pull + t, live)[:, None, None]
        if READ:
            reads = load_wide(p + (t * p_step)[:, None] + s[None, :], live[:, None] & (s < n)[None, :])
        if MODE != "none":
            factors = load_back(carry, t, s, live, n, carry_step, eps, cap, MODE)
        added = ()
        for k in tl.static_range(PARTS):
            at = first + k * BD
            given, up, residual = held
            if k + 1 < PARTS:
                held = fetched(x, du, grad, t, s, live, at + BD, n, d, BD, MODE, READ, COEFFICIENTS)
            back = tl.zeros([BT, NP, BD], tl.float32)
            sum_weight = sums[k]
            if COEFFICIENTS:
                state = given.to(tl.float32)
                if NEED_DWEIGHT:
                    sum_weight = add_weight(sum_weight, given, state, errors, EXACT)
                back, scaled, measured = coefficient_part(state, errors, norm, rows[k], triangle, METRIC, EXACT)
                if NEED_DMETRIC:
                    outer = tl.sum(measured[:, :, None, :] * scaled[:, None, :, :], 3)
                    sum_metric -= tl.sum(tl.where(norm < 0, -outer, outer), 0)
            added = added + (sum_weight,)  # noqa: RUF005
            if READ:
                back += reads[:, :, None] * up.to(tl.float32)[:, None, :]
            if MODE != "none":
                back += carried_back(factors, residual, n, MODE)
            if NEED_DX:
                places, inside = box(t, s, live, at, n, d, BD)
                tl.store(dx + at + places, rounded(back, dx.dtype.element_ty), mask=inside)
        sums = added

    if NEED_DWEIGHT:
        for k in tl.static_range(PARTS):
            cells, real = slab(row, s, first + k * BD, n, d, m, BD)
            found = tl.reshape(tl.trans(sums[k]), [MP, NP, BD])
            tl.store(dweight + share * m * (n * d) + (first + k * BD) + cells, found, mask=real)
    if NEED_DMETRIC:
        part_of = (share * tl.num_programs(0) + tl.program_id(0)) * (n * n)
        tl.store(dmetric + part_of + corner, sum_metric, mask=pair)
