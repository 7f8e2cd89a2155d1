"""Predicates on Sinkhorn programs, limits and rates, with their own sweeps; the library's are not imported."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.tools import verdict
from streamgauge.theory.exact import Floats
from streamgauge.theory.verdict import Verdict

EPS = 1e-6
BENIGN = np.array([[8.0, 1, -1, 0], [7, 0, 1, -2], [0, 6, 1, -1], [1, 5, -2, 0]])
POSITIVE = "K = exp(S) positive"
CODE = "Released inference code of DeepSeek-V4 as ported in Hugging Face transformers (models/deepseek_v4)"


@dataclass(frozen=True)
class Swept:
    """Logits and the matrix that a program made of them in ``iterations``."""

    logits: Floats
    iterations: int
    matrix: Floats


def logits(n: int, seed: int, spread: float = 1.0) -> Floats:
    """Normal logits (n, n)."""
    return spread * np.random.default_rng(seed).standard_normal((n, n))


def rows(s: Floats, eps: float) -> Floats:
    """Every row divided by its sum + eps."""
    return np.asarray(s / (s.sum(axis=1, keepdims=True) + eps))


def columns(s: Floats, eps: float) -> Floats:
    """Every column divided by its sum + eps."""
    return np.asarray(s / (s.sum(axis=0, keepdims=True) + eps))


def softmax_start(z: Floats, eps: float) -> Floats:
    """Softmax of every row, plus eps."""
    k = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(k / k.sum(axis=1, keepdims=True) + eps)


def close(found: Floats, expected: Floats, what: str, tolerance: float) -> Verdict:
    """Whether two arrays agree within ``tolerance``, with the largest difference."""
    gap = float(np.abs(found - expected).max())
    at = [int(i) for i in np.unravel_index(np.abs(found - expected).argmax(), found.shape)]
    reason = f"{what}: largest difference {gap:.3g}"
    return verdict(gap <= tolerance, reason, difference=gap, at=at, tolerance=tolerance)


def softmax_first(value: Swept) -> Verdict:
    """One iteration of the program is: softmax of the rows, + eps, columns divided by their sum + eps."""
    return close(value.matrix, columns(softmax_start(value.logits, EPS), EPS), "after one iteration", 1e-14)


def essay_program(value: Swept) -> Verdict:
    """The result is R times (rows, columns) after the softmax start, to round-off."""
    s = softmax_start(value.logits, EPS)
    for _ in range(value.iterations):
        s = columns(rows(s, EPS), EPS)
    return close(value.matrix, s, f"R = {value.iterations}, R sweeps (rows, columns)", 1e-14)


def released_program(value: Swept) -> Verdict:
    """The result is columns, then R - 1 times (rows, columns), after the softmax start, to round-off."""
    s = columns(softmax_start(value.logits, EPS), EPS)
    for _ in range(value.iterations - 1):
        s = columns(rows(s, EPS), EPS)
    return close(value.matrix, s, f"R = {value.iterations}, columns and R - 1 sweeps (rows, columns)", 1e-14)


def applied_as_written(value: Swept) -> Verdict:
    """The mixer of X' = A X is C itself, C the Sinkhorn output in the orientation of its logits."""
    s = columns(softmax_start(value.logits, EPS), EPS)
    for _ in range(value.iterations - 1):
        s = columns(rows(s, EPS), EPS)
    return close(value.matrix, s, "A against C", 1e-12)


def applied_transposed(value: Swept) -> Verdict:
    """A = C^T, and A's rows are within 2 eps of 1 while A's columns are at least as far off."""
    flipped = applied_as_written(replace(value, matrix=value.matrix.T))
    row = float(np.abs(value.matrix.sum(axis=1) - 1).max())
    col = float(np.abs(value.matrix.sum(axis=0) - 1).max())
    ok = bool(flipped) and row <= 2 * EPS and col >= row - 1e-12
    gap = flipped.witness["difference"]
    reason = f"A against C^T: {gap:.3g}; rows of A off by {row:.3g}, columns by {col:.3g}"
    return verdict(ok, reason, difference=gap, rows=row, columns=col)


def scaled_limit(value: tuple[Floats, Floats]) -> Verdict:
    """C = D1 K D2 (log C - log K is a row plus a column) with both marginals 1, within 1e-9."""
    k, c = value
    row, col = (float(np.abs(c.sum(axis=axis) - 1).max()) for axis in (1, 0))
    rest = np.log(c) - np.log(k)
    rest = rest - rest.mean(axis=1, keepdims=True) - rest.mean(axis=0) + rest.mean()
    gap = float(np.abs(rest).max())
    reason = f"marginals off by {row:.3g} and {col:.3g}, scaling by {gap:.3g}"
    return verdict(max(row, col, gap) <= 1e-9, reason, rows=row, columns=col, scaling=gap)


@dataclass(frozen=True)
class Transport:
    """Logits, the temperature tau and the proposed minimiser C."""

    logits: Floats
    tau: float
    plan: Floats


def transport_optimum(value: Transport) -> Verdict:
    """C in B_n minimises <C, -S> - tau H(C), and KL(C || exp(S / tau)): stationarity, and against other plans.

    Stationarity on B_n: tau log C - S is a row plus a column; the objective is strictly convex, so that is enough.
    The comparison moves C towards every permutation matrix; both objectives must rise.
    """
    s, tau, c = value.logits, value.tau, value.plan
    n = len(s)
    if float(max(np.abs(c.sum(axis=0) - 1).max(), np.abs(c.sum(axis=1) - 1).max())) > 1e-9:
        return verdict(False, "the plan is not doubly stochastic", rows=c.sum(axis=1), columns=c.sum(axis=0))
    rest = tau * np.log(c) - s
    rest = rest - rest.mean(axis=1, keepdims=True) - rest.mean(axis=0) + rest.mean()

    def objectives(plan: Floats) -> tuple[float, float]:
        entropic = float((-plan * s + tau * plan * np.log(plan)).sum())
        divergence = float((plan * (np.log(plan) - s / tau) - plan + np.exp(s / tau)).sum())
        return entropic, divergence

    here, gap, worst = objectives(c), float(np.abs(rest).max()), np.inf
    for perm in itertools.permutations(range(n)):
        other = objectives(0.9 * c + 0.1 * np.eye(n)[list(perm)])
        worst = min(worst, other[0] - here[0], other[1] - here[1])
    reason = f"stationarity off by {gap:.3g}; least rise towards a permutation {worst:.3g}"
    return verdict(gap <= 1e-9 and worst > 0, reason, stationarity=gap, rise=worst, tau=tau)


def kernel_of_temperature(tau: Any) -> Verdict:
    """The minimiser of <C, -S> - tau H(C) under linear marginals is exp(S) up to row and column factors.

    The Lagrangian's stationary point is solved symbolically; its cross-ratio is compared with that of exp(S).
    """
    c = sympy.Symbol("c", positive=True)
    logit, multiplier = sympy.symbols("logit multiplier", real=True)
    s = sympy.symbols("s_11 s_12 s_21 s_22", real=True)
    row_1, row_2, col_1, col_2 = sympy.symbols("a_1 a_2 b_1 b_2", real=True)
    tau = sympy.sympify(tau)
    lagrangian = -logit * c + tau * c * sympy.log(c) - multiplier * c
    entry = sympy.log(sympy.solve(sympy.diff(lagrangian, c), c)[0])
    logs = [
        sympy.expand_log(entry.subs({logit: x, multiplier: m}), force=True)
        for x, m in zip(s, (row_1 + col_1, row_1 + col_2, row_2 + col_1, row_2 + col_2))
    ]
    exponent = logs[0] + logs[3] - logs[1] - logs[2]
    rest = sympy.simplify(exponent - (s[0] + s[3] - s[1] - s[2]))
    return verdict(rest == 0, f"tau = {tau}: log cross-ratio differs from exp(S)'s by {rest}", difference=str(rest))


@dataclass(frozen=True)
class Scaled:
    """Logits s2 m + b, and the proposed doubly stochastic scalings at s2 = 0 and s2 = 40."""

    dynamic: Floats
    bias: Floats
    hot: Floats
    cold: Floats


def temperature_ends(value: Scaled) -> Verdict:
    """s2 = 0 gives the uniform matrix, and s2 = 40 a permutation matrix, within 1e-6."""
    n = len(value.dynamic)
    uniform = float(np.abs(value.hot - 1 / n).max())
    permutation = float(np.abs(value.cold - np.round(value.cold)).max())
    reason = f"s2 = 0: {uniform:.3g} from uniform; s2 = 40: {permutation:.3g} from a permutation"
    return verdict(
        max(uniform, permutation) <= 1e-6, reason, from_uniform=uniform, from_permutation=permutation, cold=value.cold
    )


def temperature_faces(value: Scaled) -> Verdict:
    """s2 = 0 gives the scaling of exp(b); s2 = 40 that of exp(b) on the entries of optimal assignments of m.

    The optimal assignments are found by trying all n!; the scaling on their entries is iterated here.
    """
    n = len(value.dynamic)
    totals = {p: float(sum(value.dynamic[i, j] for i, j in enumerate(p))) for p in itertools.permutations(range(n))}
    best = [p for p, total in totals.items() if total > max(totals.values()) - 1e-9]
    mask = np.zeros((n, n))
    for p in best:
        mask[range(n), p] = 1

    def scaled(s: Floats) -> Floats:
        for _ in range(2000):
            s = columns(rows(s, 0.0), 0.0)
        return s

    hot = float(np.abs(value.hot - scaled(np.exp(value.bias))).max())
    cold = float(np.abs(value.cold - scaled(np.exp(value.bias) * mask)).max())
    reason = f"{len(best)} optimal assignments; differences {hot:.3g} at s2 = 0, {cold:.3g} at s2 = 40"
    return verdict(max(hot, cold) <= 1e-6, reason, assignments=len(best), hot=hot, cold=cold)


@dataclass(frozen=True)
class Errors:
    """Marginal errors after 1, 2, .. sweeps, and the limit that they should lead to."""

    errors: tuple[float, ...]
    limit: Floats


def linear_rate(value: Errors) -> Verdict:
    """Over the last four sweeps the error shrinks by sigma_2(C*)^2 < 1 a sweep, within 5 %."""
    measured = (value.errors[-1] / value.errors[-5]) ** 0.25
    rate = float(np.linalg.svd(value.limit, compute_uv=False)[1] ** 2)
    reason = f"factor {measured:.5f} a sweep, sigma_2^2 = {rate:.5f}, error {value.errors[-1]:.3g}"
    ok = rate < 1 and abs(measured - rate) <= 0.05 * rate
    return verdict(ok, reason, measured=measured, rate=rate, last=value.errors[-1], sweeps=len(value.errors))
