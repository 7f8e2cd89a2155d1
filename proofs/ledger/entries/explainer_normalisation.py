"""E16 to E23: Sinkhorn as the explainer describes it, against the released program, its limit and its rate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.sinkhorn_checks import (
    BENIGN,
    CODE,
    POSITIVE,
    Errors,
    Scaled,
    Swept,
    Transport,
    applied_as_written,
    applied_transposed,
    essay_program,
    kernel_of_temperature,
    linear_rate,
    logits,
    released_program,
    scaled_limit,
    softmax_first,
    temperature_ends,
    temperature_faces,
    transport_optimum,
)
from streamgauge.proofs.ledger.tools import fixed
from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import RECIPES, Recipe, sinkhorn, sinkhorn_limit, sweeps

RELEASED = RECIPES["deepseek-v4"]
NO_EPS = RECIPES["paper"]


def errors_of(z: Floats, recipe: Recipe, most: int, floor: float) -> Errors:
    """The worse marginal error per sweep, until below ``floor``."""
    found: list[float] = []
    for s in sweeps(z, replace(recipe, iterations=most)):
        found.append(float(max(np.abs(s.sum(axis=0) - 1).max(), np.abs(s.sum(axis=1) - 1).max())))
        if found[-1] < floor and len(found) > 5:
            break
    return Errors(tuple(found), sinkhorn_limit(z, max_sweeps=5000).matrix)


def scaled(dynamic: Floats, bias: Floats) -> Scaled:
    """Logits s2 m + b with their limits at both ends."""
    hot, cold = (
        sinkhorn_limit(scale * dynamic + bias, tolerance=1e-11, max_sweeps=3000).matrix for scale in (0.0, 40.0)
    )
    return Scaled(dynamic, bias, hot, cold)


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
    for name, z in (("wide logits", WIDE), ("logits 1", logits(4, 1))):
        yield Case(f"{name}, eps 1e-6", (np.exp(z), sinkhorn(z, replace(RELEASED, iterations=2000)).matrix))


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


WIDE = np.array([[0.0, -20], [0, -24]])
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
        note="With eps = 1e-6 both marginals settle at 1 - 1e-6, and the result scales softmax + eps instead of K. "
        "That is another matrix once logits spread over more than about 14: for [[0, -20], [0, -24]] the first entry "
        "is 0.50 instead of 0.12, with marginals that look converged.",
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
                Case("unique best assignment, b = 0", scaled(DYNAMIC, ZERO)),
                Case("unique best assignment, b not 0", scaled(DYNAMIC, BIAS)),
                Case("two best assignments, b = 0", scaled(TIED, ZERO)),
            ),
            Case("two best assignments, b = 0", scaled(TIED, ZERO)),
        ),
        Repair(
            r"$S = s_2 m + b$: as $s_2 \to 0$ the limit is the scaling of $\exp(b)$, uniform only for trivial b; as "
            r"$s_2 \to \infty$ it is the scaling of $\exp(b)$ on the entries of the best assignments of m, a "
            "permutation exactly when the best assignment is unique.",
            Check(
                "Compares with scalings computed on the entries of all best assignments.",
                temperature_faces,
                fixed(
                    Case("unique, b = 0", scaled(DYNAMIC, ZERO)),
                    Case("unique, b not 0", scaled(DYNAMIC, BIAS)),
                    Case("tied, b = 0", scaled(TIED, ZERO)),
                    Case("tied, b not 0", scaled(TIED, BIAS)),
                ),
                Case("nearly tied: the gap 1/100 is not resolved at s2 = 40", scaled(TIED + 0.005 * np.eye(3), ZERO)),
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
        "1e-7. Wide logits have a factor near 1: normal ones of deviation 6 leave up to 0.08 after 20 iterations.",
        hypotheses=(
            "finite logits, so a positive start",
            "read for the released loop as well: any eps, float64",
        ),
    ),
)
