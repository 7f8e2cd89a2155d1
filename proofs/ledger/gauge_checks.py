"""Predicates of the gauge essay's claims: two networks are one function, level by level, in the class that was named.

They get both networks as data and multiply for themselves; nothing here knows how a normal form is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.tools import (
    Network,
    depth_kernel,
    quadratic,
    run_exactly,
    same_kernel,
    same_matrix,
    verdict,
)
from streamgauge.theory import exact
from streamgauge.theory.verdict import Verdict

RUN_SITES = 5
"""Exact runs up to here: the branch squares, so the degree doubles at every site."""


@dataclass(frozen=True)
class Pair:
    """A network and the one that is said to replace it.

    ``carry``: what the replacement's residual path may be: "identity", "binary" (0/1 diagonal) or "diagonal".
    ``boxed``: its reads must lie in (0, 1) and its writes in (0, 2), as sigmoid and 2 sigmoid make them.
    ``same_entry``: its entry must be the source's.
    """

    source: Network
    converted: Network
    carry: str
    boxed: bool = False
    same_entry: bool = False


def equivalent(pair: Pair) -> Verdict:
    """Same depth and width, carry of the class named, same depth kernel, same outputs of an exact run; then entry
    and boxes where they are demanded."""
    widths = [(a.nrows(), a.ncols()) for a in pair.source.mixers]
    if [(a.nrows(), a.ncols()) for a in pair.converted.mixers] != widths:
        return verdict(False, "the replacement has another depth or width", expected=widths)
    for l, a in enumerate(pair.converted.mixers):
        fault = carry_fault(a, pair.carry)
        if fault:
            return verdict(False, f"site {l}: the carry is not {pair.carry}: {fault}", site=l, carry=a)
    found = same_kernel(pair.source, pair.converted)
    if not found:
        return found
    if len(pair.source) <= RUN_SITES:
        run = _same_run(pair.source, pair.converted)
        if not run:
            return run
    if pair.same_entry and pair.converted.entry != pair.source.entry:
        why = fixed_entry_obstruction(pair.source)
        reason = "the entry had to change" + (f"; {why}" if why else "")
        return verdict(False, reason, entry=pair.converted.entry, source_entry=pair.source.entry, obstruction=why)
    if pair.boxed:
        boxed = _in_boxes(pair)
        if not boxed:
            return boxed
    return found


def carry_fault(a: flint.fmpq_mat, carry: str) -> str:
    """Why ``a`` is not a carry of that class, or an empty text."""
    allowed = {"identity": (1,), "binary": (0, 1)}
    for i in range(a.nrows()):
        for j in range(a.ncols()):
            if i != j and a[i, j] != 0:
                return f"entry ({i}, {j}) is {a[i, j]}"
            if i == j and carry in allowed and a[i, i] not in allowed[carry]:
                return f"entry ({i}, {i}) is {a[i, i]}"
    return ""


def _same_run(source: Network, converted: Network) -> Verdict:
    k = source.entry.ncols()
    x = flint.fmpq_mat(k, 2, [flint.fmpq(3 * i + 1, 2 + i) * (-1) ** i for i in range(2 * k)])
    branches = [quadratic] * len(source)
    return same_matrix(
        run_exactly(converted, x, branches), run_exactly(source, x, branches), "output of an exact run"
    )


def _in_boxes(pair: Pair) -> Verdict:
    for name, vectors, top in (("read", pair.converted.reads, 1), ("write", pair.converted.writes, 2)):
        for l, v in enumerate(vectors):
            for i, x in enumerate(v.entries()):
                if not 0 < x < top:
                    why = boxed_obstruction(pair.source) if pair.carry == "identity" else ""
                    reason = f"{name} {l}, stream {i} is {x}, outside (0, {top})" + (f"; {why}" if why else "")
                    return verdict(
                        False, reason, part=f"{name} {l}", stream=i, value=x, box=(0, top), obstruction=why
                    )
    return verdict(True, "all reads in (0, 1), all writes in (0, 2)")


def boxed_obstruction(net: Network) -> str:
    """Why *no* boxed pure iHC of two streams with copied entry and summed readout equals ``net``; empty if unknown.

    With entry 1 and readout 1^T the sums s_t of reads and w_j of writes are fixed by the kernel, and in the
    coordinates "half difference" the rest is ``k_tj = K_tj - s_t w_j / 2 = 2 alpha_t beta_j`` with ``|alpha_t| <
    min(s_t, 2 - s_t) / 2`` and ``|beta_j| < min(w_j, 4 - w_j) / 2``.  Hence ``k_20 * (2 alpha_1 beta_1) =
    k_10 k_21``, where no kernel shows the second factor, but the boxes bound it.
    """
    two = all(a.nrows() == a.ncols() == 2 for a in net.mixers)
    ones = flint.fmpq_mat(2, 1, [1, 1])
    if not two or len(net) < 3 or net.entry != ones or net.readout != ones.transpose():
        return ""
    kernel = depth_kernel(net)
    s = [kernel[f"read {t} of input"][0, 0] for t in range(3)]
    w = [kernel[f"output of write {j}"][0, 0] for j in range(3)]

    def centred(t: int, j: int) -> Fraction:
        return abs(exact.fraction(kernel[f"read {t} of write {j}"][0, 0] - s[t] * w[j] / 2))

    alpha, beta = (exact.fraction(min(x, m - x)) / 2 for x, m in ((s[1], 2), (w[1], 4)))
    least = centred(1, 0) * centred(2, 1)
    reached = 2 * alpha * beta * centred(2, 0)
    if reached >= least:
        return ""
    return (
        "no other reads and writes inside the boxes do it with copied entry and summed readout: the centred kernel "
        f"k needs 2 max|alpha_1| max|beta_1| |k_20| = {reached} of at least |k_10 k_21| = {least}"
    )


def fixed_entry_obstruction(net: Network) -> str:
    """Why *no* diagonal gates at all do it with entry I: an output that sees every input needs every gate non-zero,
    so a read that sees no input is the zero read, and sees no write either.  Empty if that does not apply."""
    kernel = depth_kernel(net)
    if net.entry != exact.identity(net.entry.nrows()) or 0 in kernel["output of input"].entries():
        return ""
    for t in range(len(net)):
        blind = all(x == 0 for x in kernel[f"read {t} of input"].entries())
        for j in range(t):
            if blind and any(x != 0 for x in kernel[f"read {t} of write {j}"].entries()):
                return f"no diagonal gates do it: read {t} sees no input, yet write {j}, and every gate must be alive"
    return ""


@dataclass(frozen=True)
class Levels:
    """Two networks and the gauge between them: ``X_l = P_l Y_l`` at every level."""

    source: Network
    converted: Network
    gauge: tuple[flint.fmpq_mat, ...]


def levels_agree(value: Levels) -> Verdict:
    """Run both networks exactly, branch by branch, and compare X_l with P_l Y_l at every level, then the outputs."""
    k = value.source.entry.ncols()
    z = flint.fmpq_mat(k, 2, [flint.fmpq(i + 1, 3) for i in range(2 * k)])
    x, y = value.source.entry * z, value.converted.entry * z
    for l in range(len(value.source) + 1):
        found = same_matrix(value.gauge[l] * y, x, f"level {l}: P Y against X")
        if not found:
            return found
        if l < len(value.source):
            a, b = value.source, value.converted
            seen = same_matrix(b.reads[l] * y, a.reads[l] * x, f"site {l}: what the branch reads")
            if not seen:
                return seen
            x = a.mixers[l] * x + a.writes[l] * quadratic(a.reads[l] * x)
            y = b.mixers[l] * y + b.writes[l] * quadratic(b.reads[l] * y)
    outputs = same_matrix(value.converted.readout * y, value.source.readout * x, "output")
    return outputs and verdict(
        True, f"X = P Y at all {len(value.gauge)} levels and equal outputs", levels=len(value.gauge)
    )


@dataclass(frozen=True)
class Equation:
    """``A_l P_l = P_{l+1} D_l`` as data, exact; ``carry`` as in :class:`Pair`."""

    mixers: Sequence[flint.fmpq_mat]
    gauge: Sequence[flint.fmpq_mat]
    carries: Sequence[flint.fmpq_mat]
    carry: str


def equation_holds(value: Equation) -> Verdict:
    """The equation by multiplication, every P_l with non-zero determinant, every D_l of its class."""
    for l, p in enumerate(value.gauge):
        if p.det() == 0:
            return verdict(False, f"P_{l} has determinant 0", level=l, gauge=p)
    for l, (a, d) in enumerate(zip(value.mixers, value.carries)):
        fault = carry_fault(d, value.carry)
        if fault:
            return verdict(False, f"site {l}: not {value.carry}: {fault}", site=l, carry=d)
        found = same_matrix(a * value.gauge[l], value.gauge[l + 1] * d, f"site {l}: A P against P' D")
        if not found:
            return found
    ranks = [sum(x != 0 for x in d.entries()) for d in value.carries]
    return verdict(True, f"A P = P' D at all {len(ranks)} sites, determinants non-zero", alive=ranks)


@dataclass(frozen=True)
class Family:
    """One network at several inputs: only the mixers depend on the input. ``converted`` likewise: only its gates."""

    sources: tuple[Network, ...]
    converted: tuple[Network, ...]


def family_equivalent(value: Family) -> Verdict:
    """One set of reads, writes, entry and readout, diagonal gates that may depend on the input, the same function.

    Where that fails at one site with invertible mixers, the reason says whether *any* static gauge could do it: then
    A_1^{-1} A_2 would be diagonalisable over the reals.
    """
    first = value.converted[0]
    for other in value.converted[1:]:
        parts = (other.reads, other.writes, other.entry, other.readout)
        if parts != (first.reads, first.writes, first.entry, first.readout):
            return verdict(False, "the replacement's reads, writes or ends depend on the input", entry=other.entry)
    for i, (source, converted) in enumerate(zip(value.sources, value.converted)):
        found = equivalent(Pair(source, converted, "diagonal"))
        if not found:
            why = dynamic_obstruction([net.mixers[0] for net in value.sources])
            reason = f"input {i}: {found.reason}" + (f"; {why}" if why else "")
            return verdict(False, reason, input=i, obstruction=why, **found.witness)
    return verdict(True, f"one static gauge serves all {len(value.sources)} input(s)", inputs=len(value.sources))


def dynamic_obstruction(mixers: Sequence[flint.fmpq_mat]) -> str:
    """Why no static P, P' make all of ``P'^{-1} A(x) P`` diagonal: a quotient with non-real eigenvalues."""
    if len(mixers) < 2 or any(a.det() == 0 for a in mixers):
        return ""
    quotient = mixers[0].inv() * mixers[1]
    t = sympy.Symbol("t")
    table = sympy.Matrix(quotient.nrows(), quotient.ncols(), [sympy.Rational(str(x)) for x in quotient.entries()])
    polynomial = sympy.Poly(table.charpoly(t).as_expr(), t)
    distinct = polynomial.sqf_part()
    real = distinct.count_roots()
    if real == distinct.degree():
        return ""
    return f"no static gauge does both: of {distinct.degree()} eigenvalues of A_1^(-1) A_2 only {real} are real"
