"""Predicates of the Taylor essay's claims: unrolled sums, carried norms, entropy, sweeps of general matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.mixers import (
    Mixed,
    column_sums,
    entropy,
    on_a_permutation,
    product,
    row_sums,
    square,
)
from streamgauge.proofs.ledger.sinkhorn_checks import columns, rows
from streamgauge.proofs.ledger.tools import quadratic, verdict
from streamgauge.theory import exact
from streamgauge.theory.exact import Floats
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Series:
    """Taylor coefficients at 0, a point and the function's value there."""

    coefficient: Callable[[int], Fraction]
    point: Fraction
    value: float


def converges(series: Series) -> Verdict:
    """After 80 terms the exact partial sum is the value to 1e-12, and the last term is below 1e-12."""
    terms = [series.coefficient(k) * series.point**k for k in range(81)]
    gap, last = abs(float(sum(terms)) - series.value), abs(float(terms[-1]))
    reason = f"partial sum off by {gap:.3g}, term 80 is {last:.3g}"
    return verdict(gap <= 1e-12 and last <= 1e-12, reason, error=gap, last_term=last)


def unrolls(value: tuple[int, flint.fmpq_mat, str]) -> Verdict:
    """y_L = x + sum_l F_l(u_l) exactly, F_l = l times a quadratic branch; u_l is y_{l-1} or, as a control, x."""
    depth, x, fed = value
    y, total = x, x
    for l in range(1, depth + 1):
        total = total + quadratic(y if fed == "own state" else x) * l
        y = y + quadratic(y) * l
    ok = y == total
    return verdict(ok, f"depth {depth}: {'equal' if ok else 'different'} exactly", output=y, unrolled=total)


@dataclass(frozen=True)
class Run:
    """A run of x' = H x + w over given mixers and writes, and the state it ended in."""

    mixers: tuple[flint.fmpq_mat, ...]
    writes: tuple[flint.fmpq_mat, ...]
    start: flint.fmpq_mat
    end: flint.fmpq_mat


def run(mixers: Sequence[flint.fmpq_mat], writes: Sequence[flint.fmpq_mat], start: flint.fmpq_mat) -> Run:
    """Step by step."""
    x = start
    for h, w in zip(mixers, writes):
        x = h * x + w
    return Run(tuple(mixers), tuple(writes), start, x)


def unrolled_left_to_right(value: Run) -> Verdict:
    """x_L = (H_1 H_2 .. H_L) x_0 + sum_l (H_{l+1} .. H_L) w_l, the products read in the order of their index."""
    return _unrolled(value, lambda hs: product(hs[::-1]))


def unrolled_last_on_the_left(value: Run) -> Verdict:
    """x_L = (H_L .. H_1) x_0 + sum_l (H_L .. H_{l+1}) w_l: the last mixer stands on the left."""
    return _unrolled(value, product)


def _unrolled(value: Run, ordered: Callable[[Sequence[flint.fmpq_mat]], flint.fmpq_mat]) -> Verdict:
    total = ordered(value.mixers) * value.start
    for l, w in enumerate(value.writes):
        later = value.mixers[l + 1 :]
        total = total + (ordered(later) * w if later else w)
    ok = total == value.end
    return verdict(ok, f"{'equal' if ok else 'different'} exactly", unrolled=total, stepped=value.end)


def norm_decides(mixers: Sequence[Floats]) -> Verdict:
    """All ||H||_2 > 1: the product's norm is at least min^(L/2); all < 1: at most max^L.  (Spectral norms.)"""
    norms = [float(np.linalg.norm(h, 2)) for h in mixers]
    composite = np.eye(len(mixers[0]))
    for h in mixers:
        composite = h @ composite
    size, depth = float(np.linalg.norm(composite, 2)), len(mixers)
    if min(norms) > 1:
        bound = min(norms) ** (depth / 2)
        reason = f"norms at least {min(norms):.4g}, product {size:.4g} over {depth} sites, explosion: {bound:.4g}"
        return verdict(size >= bound, reason, norms=norms[:2], product=size, explosion=bound, sites=depth)
    bound = max(norms) ** depth
    reason = f"norms at most {max(norms):.4g}, product {size:.4g} over {depth} sites, bound {bound:.4g}"
    return verdict(size <= bound * (1 + 1e-9), reason, norms=norms[:2], product=size, bound=bound, sites=depth)


def neither_explodes_nor_vanishes(value: tuple[Sequence[flint.fmpq_mat], flint.fmpq_mat]) -> Verdict:
    """||Phi x||_2 lies between ||x||_2 / 1000 and ||x||_2 over the whole depth."""
    mixers, x = value
    ratio = math.sqrt(exact.fraction(square(product(mixers) * x) / square(x)))
    reason = f"||Phi x|| / ||x|| = {ratio:.4g} over {len(mixers)} sites"
    return verdict(1e-3 <= ratio <= 1, reason, ratio=ratio, sites=len(mixers), start=x, mixer=mixers[0])


def states_stay_apart(value: tuple[flint.fmpq_mat, Sequence[flint.fmpq_mat]]) -> Verdict:
    """The mixer maps different states to different states: a uniform choice among them keeps its entropy."""
    a, states = value
    images = {str((a * x).tolist()) for x in states}
    reason = f"{len(states)} states, {len(images)} images"
    bits = math.log2(len(states)), math.log2(len(images))
    return verdict(len(images) == len(states), reason, mixer=a, states=len(states), images=len(images), bits=bits)


def totals_kept(value: tuple[flint.fmpq_mat, Sequence[flint.fmpq_mat]]) -> Verdict:
    """The sum over streams is the same after mixing, for every state."""
    a, states = value
    for x in states:
        if column_sums(x) != column_sums(a * x):
            return verdict(False, "a total changes", state=x, before=column_sums(x), after=column_sums(a * x))
    return verdict(True, f"totals of {len(states)} states unchanged", states=len(states))


def nothing_lost(value: Mixed) -> Verdict:
    """The transpose undoes the mixer, and the entries of A x are those of x in another order."""
    a, x = value
    back = a.transpose() * (a * x)
    moved = sorted(map(str, (a * x).entries())) == sorted(map(str, x.entries()))
    reason = f"transpose restores the state: {back == x}; same entries: {moved}"
    return verdict(back == x and moved, reason, state=x, image=a * x, back=back)


def norm_kept(value: Mixed) -> Verdict:
    """||A x||_2 = ||x||_2 exactly."""
    before, after = square(value[1]), square(value[0] * value[1])
    return verdict(
        before == after, f"||Ax||^2 = {after}, ||x||^2 = {before}", mixer=value[0], before=before, after=after
    )


def norm_not_above(value: Mixed) -> Verdict:
    """||A x||_2 <= ||x||_2 exactly."""
    before, after = square(value[1]), square(value[0] * value[1])
    return verdict(after <= before, f"||Ax||^2 = {after}, ||x||^2 = {before}", before=before, after=after)


def identity_restored(value: Mixed) -> Verdict:
    """Mean and norm of the state are both the same after mixing."""
    a, x = value
    return _mean_and(x, a * x, square(a * x) == square(x), "kept")


def mean_restored(value: Mixed) -> Verdict:
    """The mean is the same after mixing, the norm no larger."""
    a, x = value
    return _mean_and(x, a * x, square(a * x) <= square(x), "not above")


def _mean_and(x: flint.fmpq_mat, y: flint.fmpq_mat, norm: bool, word: str) -> Verdict:
    mean = column_sums(x) == column_sums(y)
    reason = f"mean kept: {mean}; norm {word}: {norm}"
    return verdict(mean and norm, reason, squares=(square(x), square(y)), sums=(column_sums(x), column_sums(y)))


def entropy_not_lower(value: tuple[flint.fmpq_mat, flint.fmpq_mat]) -> Verdict:
    """p is a probability vector, A p is majorised by p (exactly), so S(A p) >= S(p); equal only if reordered."""
    a, p = value
    before = sorted((exact.fraction(v) for v in p.entries()), reverse=True)
    after = sorted((exact.fraction(v) for v in (a * p).entries()), reverse=True)
    if before[-1] < 0 or sum(before) != 1:
        return verdict(False, "not a probability vector", p=p)
    majorised = sum(after) == 1 and all(
        x <= y for x, y in zip(itertools.accumulate(after), itertools.accumulate(before))
    )
    low, high = entropy(before), entropy(after)
    reason = f"S(p) = {low:.6g}, S(Ap) = {high:.6g}, majorised: {majorised}"
    ok = majorised and (high > low if before != after else high == low)
    return verdict(ok, reason, before=low, after=high, image=a * p)


def entropy_bounded(value: tuple[flint.fmpq_mat, flint.fmpq_mat]) -> Verdict:
    """Neither concentrated nor spread to the end: S(p) <= S(A p), and S(A p) below log n unless p was uniform."""
    found = entropy_not_lower(value)
    n = value[1].nrows()
    uniform = len({str(v) for v in value[1].entries()}) == 1
    after = found.witness.get("after", math.inf)
    spread = after >= math.log(n) - 1e-12 and not uniform
    reason = f"{found.reason}, log n = {math.log(n):.6g}"
    return verdict(
        bool(found) and not spread, reason, after=after, most=math.log(n), p=value[1], image=value[0] * value[1]
    )


def swept(matrix: flint.fmpq_mat, count: int = 400) -> Floats:
    """``count`` sweeps (columns, rows) in float64; nan where a sum is 0."""
    s = exact.to_floats(matrix)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(count):
            s = rows(columns(s, 0.0), 0.0)
    return s


def is_scaling(matrix: flint.fmpq_mat, s: Floats) -> tuple[bool, str]:
    """Whether S is doubly stochastic and D1 M D2 with positive diagonals, within 1e-6; and what is off."""
    if not np.isfinite(s).all():
        return False, "a sum is zero"
    error = float(max(np.abs(s.sum(axis=0) - 1).max(), np.abs(s.sum(axis=1) - 1).max()))
    m = exact.to_floats(matrix)
    cells = [(i, j) for i, j in itertools.product(*map(range, m.shape)) if m[i, j] != 0]
    if any(m[c] < 0 or s[c] <= 0 for c in cells):
        return False, "entries that are not positive"
    n = len(m)
    design = np.zeros((len(cells), 2 * n))
    for k, (i, j) in enumerate(cells):
        design[k, i] = design[k, n + j] = 1
    target = np.array([math.log(s[c] / m[c]) for c in cells])
    rest = float(np.abs(design @ np.linalg.lstsq(design, target, rcond=None)[0] - target).max())
    return max(error, rest) <= 1e-6, f"marginals off by {error:.3g}, scaling by {rest:.3g}"


def sweeps_reach(matrix: flint.fmpq_mat) -> Verdict:
    """400 sweeps lead to a doubly stochastic D1 M D2."""
    ok, words = is_scaling(matrix, swept(matrix))
    return verdict(ok, f"after 400 sweeps: {words}", matrix=matrix, found=words)


def sweeps_reach_iff_total_support(value: tuple[flint.fmpq_mat, Floats]) -> Verdict:
    """For non-negative M: the swept matrix is a doubly stochastic D1 M D2 iff M has total support (all n! tried)."""
    matrix, s = value
    reached, words = is_scaling(matrix, s)
    total = min(matrix.entries()) >= 0 and on_a_permutation(matrix)
    return verdict(
        reached == total, f"total support: {total}; {words}", matrix=matrix, support=total, reached=reached
    )


@dataclass(frozen=True)
class OrderedSweeps:
    """A positive start, how many sweeps, and the matrix that came out."""

    start: Floats
    iterations: int
    matrix: Floats


def columns_first(value: OrderedSweeps) -> Verdict:
    """M^(t) = T_r(T_c(M^(t-1))): columns divided first, rows last, to 1e-13; so the row sums are 1 to round-off."""
    s = value.start
    for _ in range(value.iterations):
        s = rows(columns(s, 0.0), 0.0)
    gap, row = float(np.abs(s - value.matrix).max()), float(np.abs(value.matrix.sum(axis=1) - 1).max())
    return verdict(
        max(gap, row) <= 1e-13, f"difference {gap:.3g}, row sums off by {row:.3g}", difference=gap, rows=row
    )


def orders_of_magnitude(value: tuple[Fraction, Fraction, int]) -> Verdict:
    """log10 of the ratio, rounded, is the claimed number."""
    small, big, claimed = value
    orders = math.log10(big / small)
    reason = f"ratio {float(big / small):.6g}, {orders:.3f} orders"
    return verdict(round(orders) == claimed, reason, ratio=big / small, orders=orders, claimed=claimed)


def percent_gain(value: tuple[Fraction, Fraction, Fraction]) -> Verdict:
    """(new - old) / old is the claimed number of percent, to a tenth."""
    old, new, claimed = value
    gain = 100 * (new - old) / old
    ok = abs(gain - claimed) <= Fraction(1, 20)
    return verdict(ok, f"{float(old)} to {float(new)}: {float(gain):.3g} %", percent=float(gain), claimed=claimed)


def point_gain(value: tuple[Fraction, Fraction, Fraction]) -> Verdict:
    """new - old is the claimed number of points exactly."""
    old, new, claimed = value
    return verdict(new - old == claimed, f"{float(new - old):.3g} points", points=new - old, claimed=claimed)


def other_sets(value: tuple[str, flint.fmpq_mat, flint.fmpq_mat]) -> Verdict:
    """Orthogonal: A^T A = I and the norm is kept.  Row-stochastic: the mean moves.  Contraction: the norm falls.

    A contraction is recognised by a squared Frobenius norm below 1.
    """
    kind, a, x = value
    before, after, n = square(x), square(a * x), a.nrows()
    if kind == "orthogonal":
        ok = a.transpose() * a == exact.identity(n) and after == before
    elif kind == "row-stochastic":
        inside = min(a.entries()) >= 0 and row_sums(a) == [flint.fmpq(1)] * n
        ok = inside and column_sums(a * x) != column_sums(x)
    else:
        ok = square(a) < 1 and after < before
    sums = column_sums(x), column_sums(a * x)
    return verdict(ok, f"{kind}: squares {before} -> {after}", kind=kind, squares=(before, after), sums=sums)


def same_operations(value: tuple[str, int, int]) -> Verdict:
    """A site takes exactly as many operations as the plain residual site with the same branch."""
    name, site, plain_site = value
    extra = site - plain_site
    return verdict(extra == 0, f"{name}: {extra} more than {plain_site}", extra=extra, share=extra / plain_site)


def share_falls_with_width(points: Sequence[tuple[int, int, int]]) -> Verdict:
    """Extra operations are positive; their share falls by 1.6 or more when d doubles, to below 1 % at d = 2560."""
    shares = [(d, (site - plain_site) / plain_site) for d, site, plain_site in points]
    ok = all(share > 0 for _, share in shares) and all(
        e == 2 * d and t * Fraction(8, 5) <= s for (d, s), (e, t) in itertools.pairwise(shares)
    )
    wide = shares[-1][1] * shares[-1][0] / 2560
    reason = ", ".join(f"d = {d}: {share:.3g}" for d, share in shares) + f"; about {wide:.3g} at d = 2560"
    return verdict(ok and wide < 0.01, reason, shares=shares, at_2560=wide)


def shape_not_size(value: Sequence[tuple[float, Floats]]) -> Verdict:
    """Mixers of logits whose norms differ 100-fold are all doubly stochastic (1e-9): the size is not constrained."""
    sizes = [size for size, _ in value]
    worst: Any = max(float(max(np.abs(m.sum(axis=0) - 1).max(), np.abs(m.sum(axis=1) - 1).max())) for _, m in value)
    spread = max(sizes) / min(sizes)
    reason = f"logit norms differ {spread:.3g} times, marginals off by {worst:.3g}"
    return verdict(spread >= 100 and worst <= 1e-9, reason, spread=spread, worst=worst)
