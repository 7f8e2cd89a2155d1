"""Predicates on mixers and on what they do to a state, shared by the entries of several documents; no constructor.

Everything is exact (``flint.fmpq_mat``) and multiplied here; ``A`` is (n, n), a state ``X`` is (n, d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import Any

import flint

from streamgauge.proofs.ledger.tools import rational, verdict
from streamgauge.theory import exact
from streamgauge.theory.verdict import Verdict

Mixed = tuple[flint.fmpq_mat, flint.fmpq_mat]
"""A mixer and a state."""

ROWS_ONLY = rational([[1, 0], [1, 0]])
"""Unit row sums, column sums 2 and 0: the second stream is lost, the first one doubled."""
COLUMNS_ONLY = rational([[1, 1], [0, 0]])
"""Unit column sums, row sums 2 and 0."""
HALF = rational([["1/2", "1/2"], ["1/2", "1/2"]])
"""J for two streams."""


def row_sums(a: flint.fmpq_mat) -> list[flint.fmpq]:
    """Sums over the last axis."""
    return [sum(line, flint.fmpq(0)) for line in a.tolist()]


def column_sums(a: flint.fmpq_mat) -> list[flint.fmpq]:
    """Sums over the first axis."""
    return row_sums(a.transpose())


def in_birkhoff(a: flint.fmpq_mat) -> Verdict:
    """Whether a matrix lies in B_n exactly: no negative entry, every row and column sum 1."""
    least = min(a.entries())
    if least < 0:
        return verdict(False, f"an entry is {least}", smallest=least)
    for name, sums in (("row", row_sums(a)), ("column", column_sums(a))):
        for i, total in enumerate(sums):
            if total != 1:
                reason = f"{name} {i} sums to {float(exact.fraction(total)):.12g}, not to 1"
                return verdict(
                    False, reason, line=f"{name} {i}", total=total, excess=float(exact.fraction(total - 1))
                )
    return verdict(True, f"in B_{a.nrows()} exactly", smallest=least)


def product(mixers: Sequence[flint.fmpq_mat]) -> flint.fmpq_mat:
    """A_{L-1} .. A_0: the first mixer acts first."""
    out = mixers[0]
    for a in mixers[1:]:
        out = a * out
    return out


def largest(x: flint.fmpq_mat) -> flint.fmpq:
    """max |entry|."""
    return max(abs(v) for v in x.entries())


def square(x: flint.fmpq_mat) -> flint.fmpq:
    """Sum of squares of the entries."""
    return sum((v * v for v in x.entries()), flint.fmpq(0))


def rows_convex(value: Mixed) -> Verdict:
    """Every mixed stream's max norm is at most the largest max norm of the streams."""
    a, x = value
    mixed, bound = a * x, largest(x)
    for j, line in enumerate(mixed.tolist()):
        norm = max(abs(v) for v in line)
        if norm > bound:
            return verdict(
                False, f"stream {j} has max norm {norm}, inputs at most {bound}", stream=j, norm=norm, bound=bound
            )
    return verdict(True, f"max norm {largest(mixed)} of the mixed streams, at most {bound}", bound=bound)


def mean_kept(value: Mixed) -> Verdict:
    """The stream mean of A X is the stream mean of X, feature by feature."""
    a, x = value
    before, after = column_sums(x), column_sums(a * x)
    for c, (old, new) in enumerate(zip(before, after)):
        if old != new:
            n = x.nrows()
            return verdict(
                False, f"feature {c}: mean {old / n} becomes {new / n}", feature=c, before=old / n, after=new / n
            )
    return verdict(True, f"{len(before)} feature means unchanged", sums=before)


def norm_not_raised(value: Mixed) -> Verdict:
    """The two steps of the proof: (A x)_i^2 <= sum_j A_ij x_j^2 for every row, and the total at most ||x||^2."""
    a, x = value
    n, d = x.nrows(), x.ncols()
    mixed = a * x
    for c in range(d):
        for i in range(n):
            jensen = sum((a[i, j] * x[j, c] ** 2 for j in range(n)), flint.fmpq(0))
            if mixed[i, c] ** 2 > jensen:
                return verdict(
                    False,
                    f"row {i}: square {mixed[i, c] ** 2} above the weighted squares {jensen}",
                    row=i,
                    step="Jensen",
                )
    before, after = square(x), square(mixed)
    return verdict(
        after <= before, f"||Ax||^2 = {after}, ||x||^2 = {before}", before=before, after=after, step="column sums"
    )


def closed_under_product(mixers: Sequence[flint.fmpq_mat]) -> Verdict:
    """The product of the mixers is in B_n exactly."""
    return in_birkhoff(product(mixers))


def composite_norm_one(mixers: Sequence[flint.fmpq_mat]) -> Verdict:
    """The induced max norm of the product, i.e. its largest absolute row sum, is exactly 1."""
    norm = max(sum((abs(v) for v in line), flint.fmpq(0)) for line in product(mixers).tolist())
    words = f"norm {float(exact.fraction(norm)):.12g} over {len(mixers)} sites"
    return verdict(norm == 1, words, norm=norm, sites=len(mixers))


def permutation_mixture(value: tuple[flint.fmpq_mat, Sequence[Fraction], Sequence[Sequence[int]]]) -> Verdict:
    """The weights are positive with sum 1, the permutations are permutations, at most (n-1)^2 + 1, and sum to A."""
    a, weights, perms = value
    n = a.nrows()
    if min(weights) <= 0 or sum(weights) != 1:
        return verdict(False, f"weights sum to {sum(weights)}, least {min(weights)}", total=sum(weights))
    if len(weights) > (n - 1) ** 2 + 1 or len(weights) != len(perms):
        return verdict(False, f"{len(weights)} terms, at most {(n - 1) ** 2 + 1}", terms=len(weights))
    total = exact.zeros(n, n)
    for w, perm in zip(weights, perms):
        if sorted(perm) != list(range(n)):
            return verdict(False, f"{tuple(perm)} is no permutation", permutation=perm)
        for i, j in enumerate(perm):
            total[i, j] += exact.scalar(w)
    for i in range(n):
        for j in range(n):
            if total[i, j] != a[i, j]:
                reason = f"entry ({i}, {j}) of the sum is {total[i, j]}, expected {a[i, j]}"
                return verdict(False, reason, at=(i, j), found=total[i, j], expected=a[i, j])
    return verdict(True, f"{len(weights)} permutations", terms=len(weights), weights=weights)


def on_a_permutation(a: flint.fmpq_mat) -> bool:
    """Whether every positive entry lies on a permutation through positive entries (all n! tried) and there is one."""
    n = a.nrows()
    positive = {(i, j) for i in range(n) for j in range(n) if a[i, j] > 0}
    covered: set[tuple[int, int]] = set()
    for perm in permutations(range(n)):
        if all((i, j) in positive for i, j in enumerate(perm)):
            covered.update(enumerate(perm))
    return bool(covered) and covered == positive


def entropy(p: Sequence[Any]) -> float:
    """- sum p log p in nats, of exact or float probabilities."""
    return sum(float(x) * -math.log(float(x)) for x in map(exact_or_float, p) if x > 0)


def exact_or_float(x: Any) -> Any:
    """A flint rational as a Fraction; anything else as it is."""
    return exact.fraction(x) if isinstance(x, flint.fmpq) else x
