"""T01 to T11: the Taylor essay on unrolled sums, on carried signals and on what training needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.mixer_cases import chains, mixed_states, random_state
from streamgauge.proofs.ledger.mixers import (
    HALF,
    ROWS_ONLY,
    closed_under_product,
    mean_kept,
    norm_not_raised,
)
from streamgauge.proofs.ledger.taylor_checks import (
    Run,
    Series,
    converges,
    neither_explodes_nor_vanishes,
    norm_decides,
    run,
    states_stay_apart,
    totals_kept,
    unrolled_last_on_the_left,
    unrolled_left_to_right,
    unrolls,
)
from streamgauge.proofs.ledger.tools import column, counted, fixed, rational, row
from streamgauge.proofs.ledger.training_checks import Experiment, stable_only_if_not_expanding

BIRKHOFF = "H in B_n: non-negative, every row and column sums to 1 exactly"
MIX = rational([["9/10", "1/10"], ["1/10", "9/10"]])
SHIFT = rational([[0, 1, 0], [0, 0, 1], [1, 0, 0]])
CORNERS = [column(*bits) for bits in itertools.product((0, 1), repeat=2)]


def _log(k: int) -> Fraction:
    return Fraction((-1) ** (k + 1), k) if k else Fraction(0)


def _chain(seed: int, *, commuting: bool = False) -> Run:
    n, sites = 3, 4
    if commuting:
        mixers = [SHIFT * a + SHIFT * SHIFT * b for a, b in ((1, 2), (3, -1), (2, 5), (1, 1))]
    else:
        mixers = [random_state(n, n, 10 * seed + l) for l in range(sites)]
    writes = [random_state(n, 2, 100 + 10 * seed + l) for l in range(sites)]
    return run(mixers, writes, random_state(n, 2, seed))


def _one_write_lost(found: Run) -> Run:
    return Run(found.mixers, (found.writes[0] * 0, *found.writes[1:]), found.start, found.end)


def _powers(matrix: list[list[float]], depth: int = 60) -> list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    return [np.array(matrix, dtype=np.float64)] * depth


def _alternating(depth: int) -> list[np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    return [np.diag([2.0, 0.25]), np.diag([0.25, 2.0])] * (depth // 2)


def _experiments(level: Level) -> Iterator[Case]:
    yield Case("random rotations times 2 (does not train)", Experiment("rotations", 2.0, steps=60))
    yield Case("doubly stochastic", Experiment("doubly stochastic"))
    if level is Level.FULL:
        yield Case("64 sites, random rotations times 1.02", Experiment("rotations", 1.02, sites=64))
    yield Case("identity times 1.05", Experiment("identity", 1.05))


def _permutation_chain(n: int, sites: int) -> tuple[flint.fmpq_mat, ...]:
    shift = rational([[int(j == (i + 1) % n) for j in range(n)] for i in range(n)])
    return (shift,) * sites


CLAIMS = (
    Claim(
        "T01",
        "T",
        "2, 4.1",
        "A Taylor series sums to its function where it converges, and its terms tend to 0 there.",
        "theorem",
        "numeric reproduction",
        Check(
            "Exact partial sums of 80 terms against the function, and the size of the last term.",
            converges,
            fixed(
                Case("exp at 3", Series(lambda k: Fraction(1, math.factorial(k)), Fraction(3), math.exp(3))),
                Case("1/(1 - x) at 1/2", Series(lambda k: Fraction(1), Fraction(1, 2), 2.0)),
                Case("log(1 + x) at 1/2", Series(_log, Fraction(1, 2), math.log(1.5))),
            ),
            Case("log(1 + x) at 2, outside", Series(_log, Fraction(2), math.log(3))),
        ),
        hypotheses=("analytic function, point inside the radius of convergence",),
    ),
    Claim(
        "T02",
        "T",
        "2, 4.2",
        r"Unrolled, a residual network is $y_L = x + \sum_l F_l(y_{l-1})$.",
        "theorem",
        "property test",
        Check(
            "Runs quadratic branches exactly and adds up what each site wrote.",
            unrolls,
            counted(4, 20, lambda i: Case(f"depth {1 + i % 4}", (1 + i % 4, row(1, -1), "own state"))),
            Case("branches fed with x itself", (3, row(1, -1), "x")),
        ),
        note="The terms are added up but not independent: each reads the sum of the earlier ones (the control).",
        hypotheses=(
            "residual networks $y_l = y_{l-1} + F_l(y_{l-1})$",
            "arbitrary branches",
        ),
    ),
    Claim(
        "T03",
        "T",
        "3.2, 4.3",
        r"Unrolled, HC is $x_L = (\prod_i H_i) x_0 + \sum_l (\prod_{j>l} H_j) h_l^T F_l$ (products in index order).",
        "theorem",
        "property test",
        Check(
            "Integer chains, stepped and unrolled exactly, products read from left to right.",
            unrolled_left_to_right,
            fixed(Case("mixers that commute", _chain(0, commuting=True)), Case("mixers that do not", _chain(1))),
            Case("other mixers that do not commute", _chain(2)),
        ),
        Repair(
            r"The last mixer stands on the left: $H_L .. H_1 x_0$ and $H_L .. H_{l+1}$.",
            Check(
                "The same with the products in that order.",
                unrolled_last_on_the_left,
                counted(6, 40, lambda i: Case(f"chain {i}", _chain(i))),
                Case("one write left out", _one_write_lost(_chain(1))),
            ),
        ),
        note="The essay writes two different index conventions and fixes no order for either.",
        hypotheses=(
            "mixers that are fixed along the trajectory",
            "arbitrary branches",
        ),
    ),
    Claim(
        "T04",
        "T",
        "4.3",
        r"$\|H\| > 1$ makes the signal explode exponentially, $\|H\| < 1$ makes it vanish exponentially.",
        "theorem",
        "numeric reproduction",
        Check(
            "Spectral norm of 60-site products against explosion at half the rate, and against the decay bound.",
            norm_decides,
            fixed(
                Case("2 I", _powers([[2, 0], [0, 2]])),
                Case("I / 2", _powers([[0.5, 0], [0, 0.5]])),
                Case("a contraction that is not normal", _powers([[0.5, 0.4], [0, 0.5]])),
                Case("diag(2, 1/4) and diag(1/4, 2) in turn", _alternating(60)),
            ),
            Case("nilpotent, norm 2", _powers([[0, 2], [0, 0]], 3)),
        ),
        note="A norm below 1 does force decay of the carry. A norm above 1 permits growth and does not force it: the "
        "alternating pair shrinks to (1/2)^30, a nilpotent mixer to 0, and row-stochastic mixers of norm above 1 "
        "stay bounded.",
        hypotheses=(
            "static mixers; the carry alone, without branches",
            "spectral norm at every site",
        ),
    ),
    Claim(
        "T05",
        "T",
        "4.4",
        "The composite mixer of the 27B HC model has an Amax gain of almost 3000.",
        "empirical",
        "literature",
        source="mHC paper, arXiv:2512.24880, figure 3",
    ),
    Claim(
        "T06",
        "T",
        "5.2",
        r"Column sums 1: $\bar{y} = \bar{x}$ for y = H x.",
        "theorem",
        "property test",
        Check(
            "Compares the mean before and after, exactly.",
            mean_kept,
            mixed_states(9, 200),
            Case("rows sum to 1, columns do not", (ROWS_ONLY, column(1, -1))),
        ),
        hypotheses=("column sums 1 exactly",),
    ),
    Claim(
        "T07",
        "T",
        "5.2",
        r"$\|H\|_2 \leq 1$, by Jensen on every row and the column sums.",
        "theorem",
        "property test",
        Check(
            "Both steps of the proof, exactly: each row's square, then the total.",
            norm_not_raised,
            mixed_states(12, 300),
            Case("rows sum to 1, columns do not", (ROWS_ONLY, column(1, 0))),
        ),
        hypotheses=(BIRKHOFF,),
        note="Equality holds: H 1 = 1, so the norm is exactly 1.",
    ),
    Claim(
        "T08",
        "T",
        "5.2",
        "Non-expansion is necessary for stable training: without it deep networks can hardly be trained.",
        "qualitative",
        "numeric reproduction",
        Check(
            "Trains a small network: where training is stable and ends as low as with doubly stochastic mixers, some "
            "mixer must be non-expanding.",
            stable_only_if_not_expanding,
            _experiments,
            Case("identity times 1.04", Experiment("identity", 1.04)),
        ),
        hypotheses=("4 streams, width 6, tanh branches, gradient descent with momentum and a bound on the gradient",),
        note="Evidence by example at small scale. A factor 2 a site is lost from the start. With rotations times "
        "1.05, five of seven seeds end lower than with doubly stochastic mixers and two higher; the loss rises at "
        "most 1.62 times above its least (doubly stochastic: 1.31). At scale: unconstrained HC beats the baseline "
        "(arXiv:2409.19606; 27B in the mHC paper's table 4, with a loss spike that it survives), and sHC "
        "(2603.20896) and oHC (2609.02672) train without B_n. Expansion that compounds is a risk, not a bar.",
    ),
    Claim(
        "T09",
        "T",
        "5.2",
        r"The product of doubly stochastic matrices is doubly stochastic.",
        "theorem",
        "property test",
        Check(
            "Multiplies chains exactly and tests membership.",
            closed_under_product,
            chains(6, 80),
            Case("a factor with row sums only", (ROWS_ONLY, HALF)),
        ),
        hypotheses=(BIRKHOFF,),
    ),
    Claim(
        "T10",
        "T",
        "5.2",
        "At any depth signals neither explode nor vanish.",
        "theorem",
        "exact certificate",
        Check(
            "Ratio of the 2-norms after and before the whole carry, at least 1/1000.",
            neither_explodes_nor_vanishes,
            fixed(
                Case("60 permutations", (_permutation_chain(3, 60), column(1, -2, 4))),
                Case("60 sites of weights 9 : 1, equal streams", ((MIX,) * 60, column(1, 1))),
                Case("60 sites of weights 9 : 1, opposite streams", ((MIX,) * 60, column(1, -1))),
            ),
            Case("J once, opposite streams", ((HALF,), column(1, -1))),
        ),
        hypotheses=(BIRKHOFF, "the carry path"),
        note="Explosion is excluded; the zero-mean part of the state may vanish, here like 0.8^L, with J at once.",
    ),
    Claim(
        "T11",
        "T",
        "5.2",
        "As water in pools: information is redistributed over the streams and its total is constant.",
        "qualitative",
        "exact certificate",
        Check(
            "Counts how many of four states are still different after mixing.",
            states_stay_apart,
            fixed(
                Case("a permutation", (rational([[0, 1], [1, 0]]), CORNERS)),
                Case("weights 9 : 1", (MIX, CORNERS)),
                Case("J", (HALF, CORNERS)),
            ),
            Case("rows only", (ROWS_ONLY, CORNERS)),
        ),
        Repair(
            "The total of the values over the streams is constant.",
            Check(
                "Sums over the streams before and after, exactly.",
                totals_kept,
                fixed(Case("J", (HALF, CORNERS)), Case("weights 9 : 1", (MIX, CORNERS))),
                Case("rows only", (ROWS_ONLY, CORNERS)),
            ),
        ),
        hypotheses=(BIRKHOFF,),
        note="What leaves pool j is column sum j, what enters pool i is row sum i; the essay has them exchanged.",
    ),
)
