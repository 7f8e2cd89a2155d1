"""Broken kernels, each one line away from the real ones, and by what each must die.

``dies`` "by running": the self test, in the interpreter, sees an error above tolerance in the situations named.
"by text": it runs correctly here, and the rules on the compiler's text find it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """``old``, which stands exactly once in kernels/``file``, becomes ``new``."""

    name: str
    file: str
    old: str
    new: str
    situations: tuple[str, ...]
    dies: str = "by running"


MUTANTS = (
    # the write
    Mutant("mixer not transposed in the write's backward", "triton_write.py",
           "apply_carry(factors, up, MODE, True)", "apply_carry(factors, up, MODE, False)", ("write full",)),
    Mutant("mixer transposed in the write", "triton_write.py",
           "apply_carry(factors, state, MODE, False)", "apply_carry(factors, state, MODE, True)", ("write full",)),
    Mutant("unmixed residual returned", "triton_write.py",
           "new = apply_carry(factors, state, MODE, False)", "new = state", ("write full", "write diag")),
    Mutant("mixer's gradient transposed", "triton_write.py",
           "up[:, :, None, :] * state[:, None, :, :]", "up[:, None, :, :] * state[:, :, None, :]", ("write full",)),
    Mutant("gate's gradient without the norm's term", "triton_write.py",
           "sum_carry = norm_gates_backward(g, sum_carry, n, eps, cap)",
           "sum_carry += 0.0 * g", ("write norm",)),
    Mutant("norm gate without its second term", "triton_common.py",
           "along = tl.where(moves, along, 0.0)", "along = along * 0.0", ("write norm",)),
    Mutant("norm gate's cap moves", "triton_common.py",
           "moves = (c <= cap) & (dead == 0)", "moves = dead == 0", ("write norm",)),
    Mutant("branch's gradient from one stream", "triton_write.py",
           "down = tl.sum(weights[:, :, None] * up, 1)",
           "down = tl.sum(tl.where((s == 0)[None, :, None], weights[:, :, None] * up, 0.0), 1)", ("write identity",)),
    Mutant("tail tile unwritten", "triton_write.py",
           "tl.store(out + places, rounded(new, out.dtype.element_ty), mask=inside)",
           "tl.store(out + places, rounded(new, out.dtype.element_ty), mask=inside & (c + BD <= d + tl.arange(0, BD))"
           "[None, None, :])", ("write identity",)),
    # the read
    Mutant("read's gradient of p from the first tile alone", "triton_read.py",
           "total += tl.sum(up[:, None, :] * state, 2)", "total = tl.sum(up[:, None, :] * state, 2)", ("read",)),
    Mutant("padding lanes leak", "triton_common.py",
           "tl.load(pointers, mask=mask, other=0.0)", "tl.load(pointers, mask=mask, other=1.0)", ("read",)),
    # Sinkhorn
    Mutant("Sinkhorn's backward is zero", "triton_sinkhorn.py",
           "    return q * size\n", "    return q * 0.0\n", ("sinkhorn log", "sinkhorn clamp")),
    Mutant("one sweep dropped in Sinkhorn's backward", "triton_sinkhorn.py",
           "tl.static_range(2 * ITERATIONS - 1, FROM - 1, -1)", "tl.static_range(2 * ITERATIONS - 1, FROM + 1, -1)",
           ("sinkhorn log", "sinkhorn clamp", "sinkhorn softmax+eps")),
    Mutant("wrong eps in Sinkhorn's backward", "triton_sinkhorn.py",
           "s, totals = sweeps(z, inside, eps, start_eps,", "s, totals = sweeps(z, inside, eps * 0.5, start_eps,",
           ("sinkhorn softmax+eps", "sinkhorn exp+eps")),
    Mutant("Sinkhorn's scalings held constant", "triton_sinkhorn.py",
           "q = q - tl.exp(s) * along", "q = q + 0.0 * along", ("sinkhorn log",)),
    Mutant("clamped sums still move", "triton_sinkhorn.py",
           "along = tl.where(t > eps, along, 0.0)", "along = along + 0.0", ("sinkhorn clamp",)),
    Mutant("columns and rows in the wrong order", "ops.py",
           '"FIRST": 2 if order == "rows" else 1', '"FIRST": 1 if order == "rows" else 2', ("sinkhorn log",)),
    # coefficients
    Mutant("RMS term dropped", "triton_streams.py",
           "[BT, NP, BD]) - pulled * tl.abs(pull)", "[BT, NP, BD]) - pulled * 0.0", ("coefficients raw",)),
    Mutant("metric only once in the pull of the norm", "triton_streams.py",
           "pulled = across(triangle, measured, True)", "pulled = measured",
           ("coefficients raw, metric",)),
    Mutant("pull of the norm without its sign", "triton_coefficients.py",
           "tl.where(total < 0, -root, root) / norm", "root / norm", ("coefficients raw",)),
    Mutant("metric's gradient without the pull's sign", "triton_streams.py",
           "tl.where(norm < 0, -outer, outer)", "outer", ("coefficients raw, metric",)),
    Mutant("factor 2 on the write missing", "triton_coefficients.py",
           "write_mult * tl.sigmoid(z) + write_eps", "tl.sigmoid(z) + write_eps", ("coefficients none",)),
    Mutant("factor 2 on the write missing in backward", "triton_coefficients.py",
           "* write_mult * slope(z)", "* slope(z)", ("coefficients none",)),
    Mutant("the two eps swapped", "functions_coefficients.py",
           "*controller, float(rms_eps), *activation.arguments)",
           "*controller, activation.read_eps, *_swapped(rms_eps, *activation.arguments))",
           ("coefficients none",)),
    Mutant("eps beside the root instead of under it", "ops_coefficients.py",
           "rms_eps**0.5", "rms_eps", ("coefficients raw",)),
    Mutant("mixer of the coefficients not transposed", "triton_coefficients.py",
           "carry + target, mixed", "carry + square(t, s, live, n, n * n, False)[2], mixed", ("coefficients mixer",)),
    Mutant("bfloat16 coefficients", "functions.py",
           "return value.float().expand(*lead, *tail)", "return value.bfloat16().float().expand(*lead, *tail)",
           ("write full", "read")),
    # the site
    Mutant("mixer not transposed in the state's whole gradient", "triton_streams.py",
           "(t * step)[:, None] + (i * n + s)[None, :]", "(t * step)[:, None] + (s * n + i)[None, :]",
           ("site full",)),
    Mutant("a piece's state taken for the next one's", "triton_streams.py",
           "held = fetched(x, du, grad, t, s, live, at + BD,", "held = fetched(x, du, grad, t, s, live, at,",
           ("coefficients raw",)),
    Mutant("read's part missing in the state's gradient", "triton_streams.py",
           "back += reads[:, :, None] * up.to(tl.float32)[:, None, :]", "back += 0.0 * reads[:, :, None]",
           ("site identity",)),
    Mutant("carry's gradient dropped on its way to the controller", "site_functions.py",
           "_, dy, dr, dcarry = ops.write_backward(", "_, dy, dr, dcarry = _without_carry(ops.write_backward, ",
           ("site diag",)),
    # what the interpreter cannot show
    Mutant("32-bit token offsets in the write", "triton_write.py",
           "t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)\n    s = tl.arange(0, NP).to(tl.int64)\n"
           "    c = tl.program_id(1)",
           "t = tl.program_id(0) * BT + tl.arange(0, BT)\n    s = tl.arange(0, NP)\n    c = tl.program_id(1)",
           ("write identity",), "by text"),
    Mutant("32-bit token offsets in the projection", "triton_coefficients.py",
           "t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)\n    split",
           "t = tl.program_id(0) * BT + tl.arange(0, BT)\n    split", ("coefficients none",), "by text"),
    Mutant("32-bit token offsets in the state's gradient", "triton_streams.py",
           "t = (start + tl.arange(0, BT)).to(tl.int64)", "t = start + tl.arange(0, BT)",
           ("coefficients none",), "by text"),
    Mutant("an atomic", "triton_write.py",
           "tl.store(dr + (t * n)[:, None] + s[None, :], sum_r, mask=streams)",
           "tl.atomic_add(dr + (t * n)[:, None] + s[None, :], sum_r, mask=streams)", ("write identity",), "by text"),
    Mutant("a masked load without fill", "triton_common.py",
           "tl.load(pointers, mask=mask, other=0.0)", "tl.load(pointers, mask=mask)", ("read",), "by text"),
)  # fmt: skip

PRELUDE = {
    "functions_coefficients.py": """

def _swapped(rms_eps, mode, recipe, numbers, *rest):
    return (mode, recipe, [rms_eps, *numbers[1:]], *rest)
""",
    "site_functions.py": """

def _without_carry(backward, *given):
    *found, dcarry = backward(*given)
    return (*found, torch.zeros_like(dcarry))
""",
}
"""What a mutant's file needs besides: appended to it."""
