"""E16 to E23: Sinkhorn as the explainer describes it, against the released program, its limit and its rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.tools import fixed, verdict
from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import RECIPES, Recipe, sinkhorn, sinkhorn_limit, sweeps
from streamgauge.theory.verdict import Verdict

EPS = 1e-6
RELEASED = RECIPES["deepseek-v4"]
NO_EPS = RECIPES["paper"]
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
    """Logits s2 m + b as a function of s2."""

    dynamic: Floats
    bias: Floats

    def limit(self, scale: float) -> Floats:
        """The doubly stochastic scaling of exp(s2 m + b)."""
        return sinkhorn_limit(scale * self.dynamic + self.bias, tolerance=1e-11, max_sweeps=3000).matrix


def temperature_ends(value: Scaled) -> Verdict:
    """s2 = 0 gives the uniform matrix, and s2 = 40 a permutation matrix, within 1e-6."""
    n = len(value.dynamic)
    cold, hot = value.limit(40.0), value.limit(0.0)
    uniform = float(np.abs(hot - 1 / n).max())
    permutation = float(np.abs(cold - np.round(cold)).max())
    reason = f"s2 = 0: {uniform:.3g} from uniform; s2 = 40: {permutation:.3g} from a permutation"
    return verdict(
        max(uniform, permutation) <= 1e-6, reason, from_uniform=uniform, from_permutation=permutation, cold=cold
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

    hot = float(np.abs(value.limit(0.0) - scaled(np.exp(value.bias))).max())
    cold = float(np.abs(value.limit(40.0) - scaled(np.exp(value.bias) * mask)).max())
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


def errors_of(z: Floats, recipe: Recipe, most: int, floor: float) -> Errors:
    """The worse marginal error per sweep, until below ``floor``."""
    found: list[float] = []
    for s in sweeps(z, replace(recipe, iterations=most)):
        found.append(float(max(np.abs(s.sum(axis=0) - 1).max(), np.abs(s.sum(axis=1) - 1).max())))
        if found[-1] < floor and len(found) > 5:
            break
    return Errors(tuple(found), sinkhorn_limit(z, max_sweeps=5000).matrix)


def _made(iterations: int, *, mixer: bool = False) -> Iterator[Case]:
    recipe = replace(RELEASED, iterations=iterations)
    for seed in range(3):
        z = logits(4, seed)
        result = sinkhorn(z, recipe)
        yield Case(f"logits {seed}, R = {iterations}", Swept(z, iterations, result.mixer if mixer else result.matrix))


def _programs(level: Level) -> Iterator[Case]:
    for iterations in (1, 2, 20) if level is Level.QUICK else (1, 2, 3, 5, 10, 20):
        yield from _made(iterations)


def _applied(level: Level) -> Iterator[Case]:
    zero = np.zeros((4, 4))
    yield Case("all logits 0, the default start", Swept(zero, 20, sinkhorn(zero, RELEASED).mixer))
    yield from _made(20, mixer=True)


def _limits(level: Level) -> Iterator[Case]:
    for seed in range(4 if level is Level.QUICK else 20):
        z = logits(3 + seed % 3, seed)
        yield Case(f"logits {seed}, no eps", (np.exp(z), sinkhorn(z, replace(NO_EPS, iterations=400)).matrix))


def _limits_with_eps(level: Level) -> Iterator[Case]:
    yield from itertools.islice(_limits(level), 1)
    z = logits(4, 1)
    yield Case("logits 1, eps 1e-6", (np.exp(z), sinkhorn(z, replace(RELEASED, iterations=400)).matrix))


def _plans(level: Level) -> Iterator[Case]:
    for seed, tau in enumerate((1.0, 0.5, 2.0) if level is Level.QUICK else (1.0, 0.5, 2.0, 0.25, 4.0, 1.0, 1.5)):
        z = logits(3 + seed % 2, seed)
        yield Case(f"logits {seed}, tau = {tau}", Transport(z, tau, sinkhorn_limit(z / tau).matrix))


def _rates(level: Level) -> Iterator[Case]:
    yield Case("the reading note's logits", errors_of(BENIGN, NO_EPS, 60, 1e-12))
    for seed in range(3 if level is Level.QUICK else 12):
        yield Case(f"normal logits {seed}", errors_of(logits(4, seed), NO_EPS, 200, 1e-12))
    yield Case("logits of spread 3", errors_of(logits(4, 4, 3.0), NO_EPS, 3000, 1e-9))


def _rates_with_eps(level: Level) -> Iterator[Case]:
    yield from itertools.islice(_rates(level), 1)
    yield Case("the same logits, eps 1e-6, 40 iterations", errors_of(BENIGN, RELEASED, 40, 0.0))


DYNAMIC = -np.array([[0.0, 1, 2], [2, 0, 1], [1, 2, 0]])
TIED = -np.array([[0.0, 0, 2], [0, 0, 2], [2, 2, 0]])
ZERO, BIAS = np.zeros((3, 3)), np.array([[1.0, 0, 0], [0, 0, 0.5], [0, 0, 0]])
_AT = logits(4, 0)

CLAIMS = (
    Claim(
        "E16",
        "E",
        "Sinkhorn",
        r"The program starts with a softmax of every row of the logits, plus $\epsilon$.",
        "definition",
        "numeric reproduction",
        Check(
            "Compares the released program's first iteration with softmax, + eps, columns divided by sum + eps.",
            softmax_first,
            lambda level: _made(1),
            Case("a start without softmax", Swept(_AT, 1, sinkhorn(_AT, replace(NO_EPS, iterations=1)).matrix)),
        ),
        hypotheses=(CODE,),
    ),
    Claim(
        "E17",
        "E",
        "Sinkhorn",
        "After that start, R sweeps follow, each dividing the rows and then the columns.",
        "definition",
        "numeric reproduction",
        Check(
            "Runs the written program and compares with the released one, to 1e-14.",
            essay_program,
            _programs,
            Case("the paper's order", Swept(_AT, 2, sinkhorn(_AT, replace(NO_EPS, iterations=2)).matrix)),
        ),
        Repair(
            "The softmax is the first row step: the columns are divided once, then R - 1 times rows and columns.",
            Check(
                "Runs that program and compares with the released one, to 1e-14.",
                released_program,
                _programs,
                Case("the paper's order", Swept(_AT, 2, sinkhorn(_AT, replace(NO_EPS, iterations=2)).matrix)),
            ),
        ),
        hypotheses=(CODE,),
        note="The difference is of order n eps^2, about 1e-12: the rows of the start all sum to 1 + n eps, so the "
        "extra row step is one common factor that the column step removes up to eps. It matters for counting work, "
        "not for values.",
    ),
    Claim(
        "E18",
        "E",
        "mathematical form",
        r"The mix is $H_j' = \mathrm{post}_j y + \sum_k C_{jk} H_k$ with C the Sinkhorn output.",
        "definition",
        "numeric reproduction",
        Check(
            "Compares the mixer that acts with C as it comes out of the sweeps.",
            applied_as_written,
            _applied,
            Case("the mixer of other logits", Swept(_AT, 20, sinkhorn(logits(4, 1), RELEASED).matrix)),
        ),
        Repair(
            r"The released program applies $C^T$: the acting mixer's rows are the columns of C, divided last, so "
            "they are 1 - eps, and the inexact marginal is that of its columns.",
            Check(
                "Compares the mixer with the transposed output and measures both marginals.",
                applied_transposed,
                lambda level: _made(20, mixer=True),
                Case("not transposed", Swept(_AT, 20, sinkhorn(_AT, RELEASED).matrix)),
            ),
        ),
        hypotheses=(CODE,),
        note="With C applied as written, the convexity of each new stream (E05) would rest on the marginal that is "
        "only as good as the number of sweeps.",
    ),
    Claim(
        "E19",
        "E",
        "Sinkhorn",
        r"The sweeps converge to $C = D_1 K D_2$ with unit row and column sums.",
        "theorem",
        "numeric reproduction",
        Check(
            "After 400 sweeps: both marginals, and whether log C - log K is a row plus a column.",
            scaled_limit,
            _limits_with_eps,
            Case("another kernel's limit", (np.exp(logits(3, 0)), sinkhorn_limit(logits(3, 1)).matrix)),
        ),
        Repair(
            r"They do for $\epsilon = 0$.",
            Check(
                "The same on programs without eps.",
                scaled_limit,
                _limits,
                Case("another kernel's limit", (np.exp(logits(3, 0)), sinkhorn_limit(logits(3, 1)).matrix)),
            ),
            hypothesis="eps = 0 in the start and in the denominators",
        ),
        hypotheses=(POSITIVE, "Sinkhorn 1964; non-negative K: exactly under total support (Sinkhorn, Knopp 1967)"),
        note="With eps = 1e-6 added to the sums both marginals settle at 1 - 1e-6; C scales softmax + eps.",
    ),
    Claim(
        "E20",
        "E",
        "Sinkhorn",
        r"The limit is the KL projection of K on $B_n$: it minimises $\langle C, -S\rangle - \tau H(C)$ there.",
        "theorem",
        "numeric reproduction",
        Check(
            "Stationarity on B_n to 1e-9, and both objectives rise towards every permutation matrix.",
            transport_optimum,
            _plans,
            Case("the plan of another tau", Transport(logits(3, 0), 1.0, sinkhorn_limit(logits(3, 0) / 2).matrix)),
        ),
        hypotheses=(r"K = exp(S / tau), tau > 0",),
        note="Strict convexity makes the stationary plan the only minimiser.",
    ),
    Claim(
        "E21",
        "E",
        "Sinkhorn",
        r"$K = \exp(S)$ is the parametrisation with $\tau = 1$.",
        "definition",
        "symbolic",
        Check(
            "Solves the Lagrangian's stationarity for an entry and compares cross-ratios with exp(S).",
            kernel_of_temperature,
            fixed(Case("tau = 1", 1)),
            Case("tau = 2", 2),
        ),
    ),
    Claim(
        "E22",
        "E",
        "Sinkhorn",
        r"Large $s_2$ brings the mixer close to a permutation, small $s_2$ to the uniform average.",
        "theorem",
        "numeric reproduction",
        Check(
            "Limits at s2 = 0 and s2 = 40 of logits s2 m + b.",
            temperature_ends,
            fixed(
                Case("unique best assignment, b = 0", Scaled(DYNAMIC, ZERO)),
                Case("unique best assignment, b not 0", Scaled(DYNAMIC, BIAS)),
                Case("two best assignments, b = 0", Scaled(TIED, ZERO)),
            ),
            Case("two best assignments, b = 0", Scaled(TIED, ZERO)),
        ),
        Repair(
            r"$S = s_2 m + b$: as $s_2 \to 0$ the limit is the scaling of $\exp(b)$, uniform only for trivial b; as "
            r"$s_2 \to \infty$ it is the scaling of $\exp(b)$ on the entries of the best assignments of m, a "
            "permutation exactly when the best assignment is unique.",
            Check(
                "Compares with scalings computed on the entries of all best assignments.",
                temperature_faces,
                fixed(
                    Case("unique, b = 0", Scaled(DYNAMIC, ZERO)),
                    Case("unique, b not 0", Scaled(DYNAMIC, BIAS)),
                    Case("tied, b = 0", Scaled(TIED, ZERO)),
                    Case("tied, b not 0", Scaled(TIED, BIAS)),
                ),
                Case("nearly tied: the gap 1/100 is not resolved at s2 = 40", Scaled(TIED + 0.005 * np.eye(3), ZERO)),
            ),
        ),
        hypotheses=("eps = 0, converged sweeps",),
    ),
    Claim(
        "E23",
        "E",
        "Sinkhorn",
        "The error decreases linearly in the number of sweeps.",
        "theorem",
        "numeric reproduction",
        Check(
            r"Error ratio over the last four sweeps against $\sigma_2(C^*)^2$.",
            linear_rate,
            _rates_with_eps,
            Case("errors 1/k", Errors(tuple(1 / k for k in range(1, 40)), sinkhorn_limit(BENIGN).matrix)),
        ),
        Repair(
            r"It shrinks by $\sigma_2(C^*)^2$ a sweep, asymptotically.",
            Check(
                "The same without eps.",
                linear_rate,
                _rates,
                Case("errors 1/k", Errors(tuple(1 / k for k in range(1, 40)), sinkhorn_limit(BENIGN).matrix)),
            ),
            hypothesis="eps = 0, K positive (or total support), float64, late sweeps",
        ),
        note="The factor is 0.5304 on the reading note's logits. With eps the error stops at 1e-6, in float32 at "
        "1e-7; wide logits have a factor near 1, so 20 sweeps can leave an error of 0.1.",
    ),
)
