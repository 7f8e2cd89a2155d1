"""Predicates of the explainer's claims on the update, on mixers and on their products."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.mixers import (
    Mixed,
    column_sums,
    in_birkhoff,
    largest,
    product,
    row_sums,
)
from streamgauge.proofs.ledger.tools import column, rational, verdict
from streamgauge.theory import exact
from streamgauge.theory.verdict import Verdict

BIRKHOFF = "A in B_n: non-negative, every row and column sums to 1 exactly"
ESSAY_MIXER = rational([["0.5", "0.5", 0, 0], [0, "0.5", "0.5", 0], [0, 0, "0.5", "0.5"], ["0.5", 0, 0, "0.5"]])


def plain_residual(value: tuple[Any, Any, Any]) -> Verdict:
    """With one stream, A x + r F(p x) is x + F(x) as an expression in x and an unknown F."""
    a, p, r = (sympy.sympify(v) for v in value)
    x, branch = sympy.Symbol("x"), sympy.Function("F")
    rest = sympy.expand(a * x + r * branch(p * x) - x - branch(x))
    return verdict(rest == 0, f"difference from x + F(x): {rest}", difference=str(rest), read=str(p), write=str(r))


def unit_sums(a: flint.fmpq_mat) -> Verdict:
    """Every row and every column sums to 1 exactly."""
    for name, sums in (("row", row_sums(a)), ("column", column_sums(a))):
        for i, total in enumerate(sums):
            if total != 1:
                return verdict(False, f"{name} {i} sums to {total}", line=f"{name} {i}", total=total)
    return verdict(True, f"all {2 * a.nrows()} sums are 1", rows=row_sums(a), columns=column_sums(a))


def shifted(n: int, perm: Sequence[int]) -> flint.fmpq_mat:
    """(I + P) / 2 with P e_j -> row i reads stream perm[i]."""
    half = Fraction(1, 2)
    return rational([[half * (i == j) + half * (perm[i] == j) for j in range(n)] for i in range(n)])


def another_form(value: tuple[flint.fmpq_mat, Sequence[int]]) -> Verdict:
    """The given matrix and (I + P) / 2 are two different matrices."""
    a, perm = value
    same = a == shifted(a.nrows(), perm)
    words = "the same matrix" if same else "different matrices"
    return verdict(not same, f"C and (I + P)/2 with P = {tuple(perm)}: {words}", permutation=perm, matrix=a)


def half_shift(value: tuple[flint.fmpq_mat, Sequence[int]]) -> Verdict:
    """C = (I + P)/2 for the cyclic shift P; singular with kernel (1, -1, 1, ..) exactly when n is even."""
    a, perm = value
    n = a.nrows()
    if list(perm) != [(i + 1) % n for i in range(n)] or a != shifted(n, perm):
        return verdict(
            False, f"not half of identity plus cyclic shift: P = {tuple(perm)}", permutation=perm, matrix=a
        )
    alternating = column(*[(-1) ** i for i in range(n)])
    killed = not any(v != 0 for v in (a * alternating).entries())
    rank = a.rank()
    ok = rank == n - (n % 2 == 0) and killed == (n % 2 == 0)
    return verdict(ok, f"n = {n}: rank {rank}, alternating vector killed: {killed}", n=n, rank=rank, killed=killed)


def no_cancellation(value: Mixed) -> Verdict:
    """|sum_k A_jk X_kc| = sum_k |A_jk X_kc| for every stream and feature: contributions never cancel."""
    a, x = value
    mixed = a * x
    for j in range(a.nrows()):
        for c in range(x.ncols()):
            parts = [a[j, k] * x[k, c] for k in range(a.ncols())]
            size = sum((abs(v) for v in parts), flint.fmpq(0))
            if abs(mixed[j, c]) != size:
                reason = f"stream {j}: contributions {[str(v) for v in parts]} sum to {mixed[j, c]}"
                return verdict(False, reason, mixer=a, state=x, contributions=parts, total=mixed[j, c])
    return verdict(True, "no contributions cancel", state=x)


def content_kept(value: tuple[flint.fmpq_mat, flint.fmpq_mat, flint.fmpq_mat]) -> Verdict:
    """Two different states are still different after mixing."""
    a, x, y = value
    before, after = x != y, a * x != a * y
    reason = f"two different states become {'different' if after else 'equal'} states"
    sums = column_sums(x), column_sums(y)
    return verdict(before and after, reason, mixer=a, first=x, second=y, image=a * x, sums=sums)


def network_gain(value: Sequence[tuple[flint.fmpq_mat, flint.fmpq_mat, flint.fmpq_mat, Fraction]]) -> Verdict:
    """The max-norm gain of a stack of sites with linear branches F(z) = w z is at most 1.

    A site is (A, p, r, w): X -> A X + r w (p X), so its matrix is A + w r p.
    """
    sites = [a + r * p * exact.scalar(w) for a, p, r, w in value]
    gain = max(sum((abs(v) for v in line), flint.fmpq(0)) for line in product(sites).tolist())
    size = float(exact.fraction(gain))
    return verdict(gain <= 1, f"gain {size:.6g} over {len(sites)} sites", gain=size, sites=len(sites))


def makes_streams_equal(a: flint.fmpq_mat) -> Verdict:
    """The matrix is in B_n and maps every state to equal streams."""
    inside = in_birkhoff(a)
    if not inside:
        return inside
    lines = a.tolist()
    for j, line in enumerate(lines):
        if line != lines[0]:
            return verdict(False, f"streams 0 and {j} stay different", stream=j, row=line, first=lines[0])
    return verdict(True, f"in B_{a.nrows()}, all streams equal afterwards", row=lines[0])


def no_attenuation(value: Mixed) -> Verdict:
    """||A x|| lies between ||x|| / 1000 and ||x|| (max norm): neither amplified nor attenuated at will."""
    a, x = value
    ratio = largest(a * x) / largest(x)
    size = float(exact.fraction(ratio))
    reason = f"||Ax|| / ||x|| = {size:.6g}"
    return verdict(flint.fmpq(1, 1000) <= ratio <= 1, reason, mixer=a, state=x, ratio=ratio)


def exponential(value: tuple[flint.fmpq_mat, flint.fmpq_mat, Fraction, int]) -> Verdict:
    """A^L x = c^L x exactly with |c| != 1: growth or decay at a constant rate per site."""
    a, x, rate, depth = value
    c, out = exact.scalar(rate), product([a] * depth) * x
    gain = float(exact.fraction(largest(out) / largest(x)))
    ok = abs(rate) != 1 and out == x * c**depth
    return verdict(ok, f"gain {gain:.6g} over {depth} sites", gain=gain, depth=depth, rate=rate)
