# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"
"""Pieces every kernel shares: rounding on store, the carry of a residual mode, the norm gate.

Notation in kernels: tiles have axes (t, s, c) = (token, stream, feature), of padded sizes (BT, NP, BD); a carry has
axes (t, i, j).  Everything is upcast to float32 right after its load, and rounded once at its store.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _probe():
    pass


# The mode is fixed when triton is first imported: what the decorator made tells it, the environment does not.
INTERPRETED = not isinstance(_probe, triton.JITFunction)
EMULATE_ROUNDING = tl.constexpr(INTERPRETED)


@triton.jit
def rounded(value, dtype: tl.constexpr):
    """float32 to the stored dtype, to nearest even (the interpreter's own cast to bfloat16 truncates)."""
    if EMULATE_ROUNDING and dtype == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True).to(tl.int64)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
        value = tl.where(value == value, bits.to(tl.uint32).to(tl.float32, bitcast=True), value)
    return value.to(dtype)


@triton.jit
def load_wide(pointers, mask):
    """A masked load, padding 0, in float32."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def square(t, s, live, n, step, TRANSPOSE: tl.constexpr):
    """Matrices (t, i, j), one for each token, ``step`` apart; TRANSPOSE: entry (i, j) lies where (j, i) would.

    Which entries are no padding (1, i, j), which of those belong to a live token, and their places.
    """
    pair = ((s[:, None] < n) & (s[None, :] < n))[None, :, :]
    entry = s[None, :] * n + s[:, None] if TRANSPOSE else s[:, None] * n + s[None, :]
    return pair, live[:, None, None] & pair, (t * step)[:, None, None] + entry[None, :, :]


@triton.jit
def norm_parts(g, n, eps, cap):
    """Of gates g (t, s), padding 0: the unit vector g/|g|, |g|, c(g), and whether c is free to move.

    c = min(cap, sqrt(n) / (|g| + eps)); c(0) = 1 with gradient 0.  Dividing by the sum of |g_s| first keeps the
    squares in range.
    """
    total = tl.sum(tl.abs(g), 1)
    dead = total == 0
    total = tl.where(dead, 1.0, total)
    inner = g / total[:, None]
    size = tl.sqrt(tl.sum(inner * inner, 1))
    size = tl.where(dead, 1.0, size)
    length = tl.where(dead, 0.0, size * total)
    ceiling = tl.sqrt(n * 1.0)
    c = ceiling / tl.where(dead, 1.0, length + eps)
    moves = (c <= cap) & (dead == 0)
    c = tl.where(dead, 1.0, tl.where(c > cap, cap, c))
    return inner / size[:, None], length, c, moves


@triton.jit
def norm_gates(g, n, eps, cap):
    """c(g) g, without forming c where it would overflow."""
    unit, length, c, moves = norm_parts(g, n, eps, cap)
    share = length / tl.where(length == 0, 1.0, length + eps)
    return tl.where(moves[:, None], unit * (tl.sqrt(n * 1.0) * share)[:, None], c[:, None] * g)


@triton.jit
def norm_gates_backward(g, upstream, n, eps, cap):
    """Gradient of g -> c(g) g: c (u - g/|g| |g|/(|g|+eps) <g/|g|, u>), without the second term where c is held."""
    unit, length, c, moves = norm_parts(g, n, eps, cap)
    share = tl.where(moves, length / tl.where(length == 0, 1.0, length + eps), 0.0)
    along = tl.sum(unit * upstream, 1) * share
    # Where, not a product with 0: nothing may flow from a held factor.
    along = tl.where(moves, along, 0.0)
    return c[:, None] * (upstream - tl.where(moves[:, None], unit * along[:, None], 0.0))


@triton.jit
def load_carry(carry, t, s, live, n: tl.constexpr, step, eps, cap, MODE: tl.constexpr):
    """The carry of each token: (t, i, j) for "full", factors (t, s) otherwise; ``step`` 0 shares one among tokens."""
    NP: tl.constexpr = s.shape[0]
    if MODE == "full":
        _, inside, places = square(t, s, live, n, step, False)
        out = load_wide(carry + places, inside)
    elif MODE == "identity":
        out = tl.full([1, NP], 1.0, tl.float32)
    else:
        out = load_wide(carry + (t * step)[:, None] + s[None, :], live[:, None] & (s < n)[None, :])
        if MODE == "norm":
            out = norm_gates(out, n, eps, cap)
    return out


@triton.jit
def apply_carry(carry, tile, MODE: tl.constexpr, TRANSPOSE: tl.constexpr):
    """A X, or A^T X: products summed over the stream axis (never a dot: n is too small for one)."""
    if MODE == "full":
        if TRANSPOSE:
            out = tl.sum(carry[:, :, :, None] * tile[:, :, None, :], 1)
        else:
            out = tl.sum(carry[:, :, :, None] * tile[:, None, :, :], 2)
    elif MODE == "identity":
        out = tile
    else:
        out = carry[:, :, None] * tile
    return out


@triton.jit
def halves(v):
    """v as a sum of two float32 numbers: the first has the 11 leading bits a tensor core keeps."""
    lead = (v.to(tl.uint32, bitcast=True) & 0xFFFFE000).to(tl.float32, bitcast=True)
    return lead, v - lead


@triton.jit
def near_dot(a, b, total):
    """total + a b with 16 bits of each factor kept, as two bfloat16 numbers: enough for a sum stored in 16 bits.

    Half the registers of :func:`wide_dot`.  The interpreter, whose bfloat16 products are not numbers, keeps all bits.
    """
    if EMULATE_ROUNDING:
        total = tl.dot(a, b, total)
    else:
        lead_a = a.to(tl.bfloat16)
        lead_b = b.to(tl.bfloat16)
        rest_a = (a - lead_a.to(tl.float32)).to(tl.bfloat16)
        rest_b = (b - lead_b.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(lead_a, rest_b, total)
        total = tl.dot(rest_a, lead_b, total)
        total = tl.dot(lead_a, lead_b, total)
    return total


@triton.jit
def times_brief(a, b, total):
    """total + a b in float32 accuracy for a in bfloat16: b is split into three bfloat16 numbers."""
    if EMULATE_ROUNDING:
        total = tl.dot(a.to(tl.float32), b, total)
    else:
        lead = b.to(tl.bfloat16)
        rest = b - lead.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        last = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(a, last, total)
        total = tl.dot(a, middle, total)
        total = tl.dot(a, lead, total)
    return total


@triton.jit
def wide_dot(a, b, total, EXACT_A: tl.constexpr, EXACT_B: tl.constexpr):
    """total + a b in float32 accuracy on tensor cores; EXACT: a factor has at most 11 significant bits already."""
    if EMULATE_ROUNDING:
        total = tl.dot(a, b, total)
    elif EXACT_A:
        lead, rest = halves(b)
        total = tl.dot(a, rest, total, input_precision="tf32")
        total = tl.dot(a, lead, total, input_precision="tf32")
    elif EXACT_B:
        lead, rest = halves(a)
        total = tl.dot(rest, b, total, input_precision="tf32")
        total = tl.dot(lead, b, total, input_precision="tf32")
    else:
        total = tl.dot(a, b, total, input_precision="tf32x3")
    return total
