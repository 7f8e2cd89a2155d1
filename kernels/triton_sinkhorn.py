# mypy: disable-error-code="assignment,no-untyped-def,untyped-decorator,import-untyped"
"""Sinkhorn on one matrix per token, and the exact gradient of the truncated iteration, recomputed on chip.

A half-step is S' = S / t, with t the sums along one axis plus eps, or clamped at eps.  Backward replays the sweeps
keeping only the t's (n numbers a half-step), then walks them in reverse with q = S dS, the gradient in log S:

    S = S' t,    q = q' - S' sum(q'),

in which nothing is divided, so nothing overflows however small the t's.  Without ``start_eps`` the sweeps run on
log S (LOGS: S' = S / t is a difference), where no entry underflows; with it every entry is at least ``start_eps``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from streamgauge.kernels.triton_common import load_wide, square


@triton.jit
def top_along(z, inside, axis: tl.constexpr):
    """The maximum along ``axis``, 0 where everything is padding."""
    top = tl.max(tl.where(inside, z, -float("inf")), axis, keep_dims=True)
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def log_divisor(z, inside, eps, axis: tl.constexpr, EPS_MODE: tl.constexpr):
    """log t of a half-step on log S = z (``eps`` is log eps); 0 where everything is padding."""
    top = top_along(z, inside, axis)
    total = tl.sum(tl.exp(tl.where(inside, z - top, -float("inf"))), axis, keep_dims=True)
    t = top + tl.log(tl.where(total == 0, 1.0, total))
    if EPS_MODE == "add":
        low = tl.where(t < eps, t, eps)
        high = tl.where(t < eps, eps, t)
        t = high + tl.log(1.0 + tl.exp(low - high))
    elif EPS_MODE == "clamp":
        t = tl.where(t < eps, eps, t)
    return t


@triton.jit
def divisor(s, eps, axis: tl.constexpr, EPS_MODE: tl.constexpr):
    """t of a half-step on S = s; 1 where everything is padding."""
    total = tl.sum(s, axis, keep_dims=True)
    absent = total == 0
    if EPS_MODE == "add":
        total += eps
    elif EPS_MODE == "clamp":
        total = tl.where(total < eps, eps, total)
    return tl.where(absent, 1.0, total)


@triton.jit
def start_shares(z, inside, axis: tl.constexpr, SOFTMAX: tl.constexpr):
    """exp(z - max) along ``axis``, 0 in padding; the softmax if SOFTMAX."""
    e = tl.exp(tl.where(inside, z - top_along(z, inside, axis), -float("inf")))
    if SOFTMAX:
        total = tl.sum(e, axis, keep_dims=True)
        e = e / tl.where(total == 0, 1.0, total)
    return e


@triton.jit
def sweeps(
    z,
    inside,
    eps,
    start_eps,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
):
    """S (its log if LOGS) after the sweeps over scaled logits z (t, i, j), and t (its log) of every half-step.

    ``inside`` (1, i, j) is false in padding.  FIRST: 2 if rows (sums over j) come first, else 1.
    """
    totals = ()
    if LOGS:
        s = z
        if not SOFTMAX and EPS_MODE != "none":
            s = z - top_along(z, inside, FIRST)
        s = tl.where(inside, s, -float("inf"))
        for k in tl.static_range(0, 2 * ITERATIONS):
            if k == 0 and SOFTMAX:
                t = log_divisor(s, inside, eps, FIRST, "none")
            elif k % 2 == 0:
                t = log_divisor(s, inside, eps, FIRST, EPS_MODE)
            else:
                t = log_divisor(s, inside, eps, 3 - FIRST, EPS_MODE)
            s = tl.where(inside, s - t, -float("inf"))
            totals = totals + (t,)  # noqa: RUF005 (the compiler has no unpacking)
    else:
        s = tl.where(inside, start_shares(z, inside, FIRST, SOFTMAX) + start_eps, 0.0)
        # The softmax is itself the first half-step.
        for k in tl.static_range(1 if SOFTMAX else 0, 2 * ITERATIONS):
            t = divisor(s, eps, FIRST, EPS_MODE) if k % 2 == 0 else divisor(s, eps, 3 - FIRST, EPS_MODE)
            s = s / t
            totals = totals + (t,)  # noqa: RUF005
    return s, totals


@triton.jit
def unswept(s, q, t, inside, eps, axis: tl.constexpr, EPS_MODE: tl.constexpr, LOGS: tl.constexpr):
    """One half-step backwards: (log) S before it, and q there."""
    along = tl.sum(q, axis, keep_dims=True)
    if EPS_MODE == "clamp":
        along = tl.where(t > eps, along, 0.0)
    if LOGS:
        q = q - tl.exp(s) * along
        s = tl.where(inside, s + t, -float("inf"))
    else:
        q = q - s * along
        s = s * t
    return s, q


@triton.jit
def sweeps_backward(
    z,
    up,
    inside,
    eps,
    start_eps,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
):
    """Gradient of <up, S> in the scaled logits; homogeneous in ``up`` while the result itself is in range."""
    FROM: tl.constexpr = 1 if SOFTMAX and not LOGS else 0
    s, totals = sweeps(z, inside, eps, start_eps, ITERATIONS, FIRST, SOFTMAX, EPS_MODE, LOGS)
    size = tl.max(tl.max(tl.abs(up), 2, keep_dims=True), 1, keep_dims=True)
    size = tl.where(size == 0, 1.0, size)
    q = up / size * (tl.exp(s) if LOGS else s)
    for k in tl.static_range(2 * ITERATIONS - 1, FROM - 1, -1):
        if k == 0 and SOFTMAX:
            s, q = unswept(s, q, totals[k - FROM], inside, eps, FIRST, "none", LOGS)
        elif k % 2 == 0:
            s, q = unswept(s, q, totals[k - FROM], inside, eps, FIRST, EPS_MODE, LOGS)
        else:
            s, q = unswept(s, q, totals[k - FROM], inside, eps, 3 - FIRST, EPS_MODE, LOGS)
    if not LOGS:
        shares = start_shares(z, inside, FIRST, SOFTMAX)
        q = q * shares / tl.where(inside, shares + start_eps, 1.0)
        if SOFTMAX:
            q = q - shares * tl.sum(q, FIRST, keep_dims=True)
    if not SOFTMAX and EPS_MODE != "none":
        # The shift by the maximum is part of the function, since eps sees it.  Ties share its gradient.
        highest = (z == top_along(z, inside, FIRST)) & inside
        ties = tl.sum(highest.to(tl.float32), FIRST, keep_dims=True)
        along = tl.sum(q, FIRST, keep_dims=True) / tl.where(ties == 0, 1.0, ties)
        q = q - tl.where(highest, along, 0.0)
    return q * size


@triton.jit(do_not_specialize=["tokens"])
def sinkhorn_forward_kernel(
    out,
    logits,
    tokens,
    eps,
    start_eps,
    temperature,
    n: tl.constexpr,
    NP: tl.constexpr,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
    BT: tl.constexpr,
):
    """out (T, n, n) = the swept logits / temperature."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    inside, mask, places = square(t, s, t < tokens, n, n * n, False)
    z = load_wide(logits + places, mask) / temperature
    mixed, _ = sweeps(z, inside, eps, start_eps, ITERATIONS, FIRST, SOFTMAX, EPS_MODE, LOGS)
    if LOGS:
        mixed = tl.exp(mixed)
    tl.store(out + places, mixed, mask=mask)


@triton.jit(do_not_specialize=["tokens"])
def sinkhorn_backward_kernel(
    dlogits,
    grad,
    logits,
    tokens,
    eps,
    start_eps,
    temperature,
    n: tl.constexpr,
    NP: tl.constexpr,
    ITERATIONS: tl.constexpr,
    FIRST: tl.constexpr,
    SOFTMAX: tl.constexpr,
    EPS_MODE: tl.constexpr,
    LOGS: tl.constexpr,
    BT: tl.constexpr,
):
    """dlogits (T, n, n) from the gradient of the swept matrix."""
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    s = tl.arange(0, NP).to(tl.int64)
    inside, mask, places = square(t, s, t < tokens, n, n * n, False)
    z = load_wide(logits + places, mask) / temperature
    up = load_wide(grad + places, mask)
    back = sweeps_backward(z, up, inside, eps, start_eps, ITERATIONS, FIRST, SOFTMAX, EPS_MODE, LOGS)
    tl.store(dlogits + places, back / temperature, mask=mask)
