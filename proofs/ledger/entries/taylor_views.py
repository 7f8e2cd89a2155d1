"""T12 to T24: the Taylor essay on Birkhoff's polytope, entropy, Sinkhorn, results and other constraints."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.mixer_cases import decomposed, mixed_states, random_state
from streamgauge.proofs.ledger.mixers import (
    COLUMNS_ONLY,
    HALF,
    ROWS_ONLY,
    Mixed,
    permutation_mixture,
)
from streamgauge.proofs.ledger.operations import hyper_site, residual_site
from streamgauge.proofs.ledger.sinkhorn_checks import logits, softmax_start
from streamgauge.proofs.ledger.taylor_checks import (
    OrderedSweeps,
    columns_first,
    entropy_bounded,
    entropy_not_lower,
    identity_restored,
    mean_restored,
    norm_kept,
    norm_not_above,
    nothing_lost,
    orders_of_magnitude,
    other_sets,
    percent_gain,
    point_gain,
    same_operations,
    shape_not_size,
    share_falls_with_width,
    sweeps_reach,
    sweeps_reach_iff_total_support,
    swept,
)
from streamgauge.proofs.ledger.tools import column, counted, diagonal, fixed, rational
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.sinkhorn import Recipe, sinkhorn, sinkhorn_limit

BIRKHOFF = "H in B_n: non-negative, every row and column sums to 1 exactly"
POINTS = "BBH and DROP of the 27B models, mHC paper (arXiv:2512.24880), table 4: HC 48.9 and 51.6, mHC 51.0 and 53.9"
SWAP = rational([[0, 1], [1, 0]])
UNBALANCED = rational([[1, 1], [0, 1]])
DIFFERENCE = column(1, -1)


def _permuted(i: int) -> Case:
    n = 2 + i % 5
    order = np.random.default_rng(i).permutation(n)
    a = rational([[int(order[k] == j) for j in range(n)] for k in range(n)])
    return Case(f"permutation {i}, n = {n}", (a, random_state(n, 2, i)))


def _mixture(i: int) -> Case:
    n = 2 + i % 4
    return Case(f"mixer {i}, n = {n}", decomposed(random_doubly_stochastic(n, seed=50 + i, terms=2 * n)))


def _distribution(i: int) -> Case:
    n = 2 + i % 5
    weights = [abs(x) for x in random_state(n, 1, i).entries()]
    p = flint.fmpq_mat(n, 1, weights) / sum(weights, flint.fmpq(0))
    return Case(f"distribution {i}, n = {n}", (random_doubly_stochastic(n, seed=i), p))


def _swept_matrices(level: Level) -> Iterator[Case]:
    shapes = {
        "positive": [[8, 1, 2], [3, 5, 1], [1, 4, 6]],
        "total support, zeros": [[1, 2, 0], [3, 1, 0], [0, 0, 5]],
        "support, not total": [[1, 1, 0], [0, 1, 1], [0, 0, 1]],
        "no support": [[1, 1, 1], [1, 0, 0], [1, 0, 0]],
        "2 x 2, not total": [[1, 1], [0, 1]],
    }
    for name, cells in shapes.items():
        matrix = rational(cells)
        yield Case(name, (matrix, swept(matrix)))
    for seed in range(0 if level is Level.QUICK else 40):
        dice = np.random.default_rng(seed)
        matrix = rational([[int(x) for x in line] for line in dice.integers(0, 3, (3, 3)) + np.eye(3, dtype=int)])
        yield Case(f"random non-negative matrix {seed}", (matrix, swept(matrix)))


def _orders(level: Level) -> Iterator[Case]:
    for seed, count in enumerate((1, 2, 20) if level is Level.QUICK else (1, 2, 5, 10, 20, 50)):
        z = logits(4, seed)
        recipe = Recipe("columns first", order=("columns", "rows"), iterations=count)
        yield Case(f"logits {seed}, {count} sweeps", OrderedSweeps(np.exp(z), count, sinkhorn(z, recipe).matrix))


def _other(kind: str) -> tuple[str, flint.fmpq_mat, flint.fmpq_mat]:
    matrices = {
        "orthogonal": rational([["3/5", "-4/5"], ["4/5", "3/5"]]),
        "row-stochastic": rational([["1/2", "1/2"], [1, 0]]),
        "contraction": diagonal([Fraction(1, 2), Fraction(1, 3)]),
    }
    return kind, matrices[kind], column(2, 5)


def _sites(level: Level) -> Iterator[Case]:
    for sweeps in (0,) if level is Level.QUICK else (0, 20):
        points = [(d, hyper_site(4, d, sweeps=sweeps), residual_site(d)) for d in (32, 64)]
        yield Case(f"n = 4, {sweeps} sweeps", points)


def _one_site() -> tuple[str, int, int]:
    return "n = 4, d = 8", hyper_site(4, 8, sweeps=0), residual_site(8)


_START = np.exp(logits(4, 0))
_SMALL = logits(3, 7)
_ROWS_FIRST = Recipe("rows first", order=("rows", "columns"), iterations=3)
_WIDER = [(d, residual_site(d, factor=8), residual_site(d)) for d in (4, 8)]
_CASE_HALF: Mixed = (HALF, DIFFERENCE)

CLAIMS = (
    Claim(
        "T12",
        "T",
        "6.1",
        r"Every doubly stochastic matrix is $\sum_k \lambda_k P_k$ with $\lambda_k \geq 0$, $\sum_k \lambda_k = 1$.",
        "theorem",
        "exact certificate",
        Check(
            "Adds up the given weighted permutations exactly.",
            permutation_mixture,
            counted(6, 60, _mixture),
            Case("weights that sum to 3/2", (HALF, (Fraction(1, 2), Fraction(1)), ((0, 1), (1, 0)))),
        ),
        hypotheses=(BIRKHOFF,),
        note="Existence for all matrices is the theorem of Birkhoff and von Neumann; every case has its terms.",
    ),
    Claim(
        "T13",
        "T",
        "6.2",
        "A permutation changes the order of the entries and loses nothing.",
        "theorem",
        "property test",
        Check(
            "The transpose restores the state, and the entries are the same as a multiset.",
            nothing_lost,
            counted(6, 60, _permuted),
            Case("J on (1, -1)", _CASE_HALF),
        ),
        hypotheses=("any state, mixed by the permutation alone",),
    ),
    Claim(
        "T14",
        "T",
        "6.3",
        r"Norm conservation: $\|Hx\| \leq \|x\|$.",
        "definition",
        "exact certificate",
        Check(
            "Conservation as the word says: equal norms, exactly.",
            norm_kept,
            fixed(Case("a permutation", (SWAP, DIFFERENCE)), Case("J on (1, -1)", _CASE_HALF)),
            Case("columns only", (COLUMNS_ONLY, column(1, 1))),
        ),
        Repair(
            "The inequality holds: non-expansion, not conservation.",
            Check(
                "Norms before and after, exactly.",
                norm_not_above,
                mixed_states(9, 200),
                Case("columns only", (COLUMNS_ONLY, column(1, 1))),
            ),
        ),
        hypotheses=(BIRKHOFF,),
    ),
    Claim(
        "T15",
        "T",
        "6.3",
        r"$S(Hp) \geq S(p)$ for probability vectors p.",
        "theorem",
        "property test",
        Check(
            "H p is majorised by p (exact partial sums), which implies it; both entropies are computed as well.",
            entropy_not_lower,
            counted(10, 200, _distribution),
            Case("columns only, p uniform", (COLUMNS_ONLY, column("1/2", "1/2"))),
        ),
        hypotheses=(BIRKHOFF, "p non-negative with sum 1; nothing is said of signed features"),
        note="Equality exactly when H p is a permutation of p.",
    ),
    Claim(
        "T16",
        "T",
        "6.3",
        "Entropy is bounded: information neither concentrates nor disperses too much.",
        "qualitative",
        "exact certificate",
        Check(
            "Entropy not below that of p, and below log n unless p was uniform.",
            entropy_bounded,
            fixed(
                Case("weights 9 : 1 on (1, 0)", (rational([["9/10", "1/10"], ["1/10", "9/10"]]), column(1, 0))),
                Case("J on (1, 0, 0)", (uniform(3), column(1, 0, 0))),
            ),
            Case("columns only, p uniform", (COLUMNS_ONLY, column("1/2", "1/2"))),
        ),
        Repair(
            r"$S(p) \leq S(Hp) \leq \log n$: mixing only pushes towards uniform; it prevents concentration, not "
            "dispersal.",
            Check(
                "Majorisation and both entropies.",
                entropy_not_lower,
                fixed(
                    Case("J on (1, 0, 0)", (uniform(3), column(1, 0, 0))),
                    *(_distribution(i) for i in range(4)),
                ),
                Case("columns only, p uniform", (COLUMNS_ONLY, column("1/2", "1/2"))),
            ),
        ),
        hypotheses=(BIRKHOFF, "probability vectors"),
    ),
    Claim(
        "T17",
        "T",
        "7",
        "Sinkhorn-Knopp projects any matrix onto the doubly stochastic ones.",
        "theorem",
        "numeric reproduction",
        Check(
            "400 sweeps; then both marginals, and whether the result is D1 M D2.",
            sweeps_reach,
            fixed(
                Case("a positive matrix", rational([[8, 1, 2], [3, 5, 1], [1, 4, 6]])),
                Case("[[1, 1], [0, 1]]: support, not total", UNBALANCED),
            ),
            Case("a zero column", ROWS_ONLY),
        ),
        Repair(
            r"For non-negative M the sweeps lead to a doubly stochastic $D_1 M D_2$ iff M has total support; "
            "every positive matrix, such as an exponential, has it.",
            Check(
                "Compares what 400 sweeps reach with total support decided over all permutations.",
                sweeps_reach_iff_total_support,
                _swept_matrices,
                Case("another matrix's result", (rational([[1, 2], [3, 1]]), swept(rational([[1, 5], [1, 1]])))),
            ),
        ),
        note="It is a KL projection, not the nearest matrix (N34). Later the essay does say exp makes it positive.",
        hypotheses=("read for every square non-negative matrix, alternate row and column division, no eps",),
    ),
    Claim(
        "T18",
        "T",
        "7.1",
        r"$M^{(t)} = T_r(T_c(M^{(t-1)}))$: columns first, then rows.",
        "definition",
        "numeric reproduction",
        Check(
            "Iterates that and compares with the columns-first recipe; rows, divided last, are exact.",
            columns_first,
            _orders,
            Case("rows first", OrderedSweeps(_START, 3, sinkhorn(logits(4, 0), _ROWS_FIRST).matrix)),
        ),
        source="mHC paper, arXiv:2512.24880, eq. (9)",
        note="Released code differs in order and orientation (E17, E18).",
    ),
    Claim(
        "T19",
        "T",
        "5.2, 8.1",
        "A gain of 1.6 instead of 3000 is three orders of magnitude less.",
        "number",
        "exact certificate",
        Check(
            "Rounds log10 of the ratio, 1875.",
            orders_of_magnitude,
            fixed(Case("1.6 and 3000", (Fraction(8, 5), Fraction(3000), 3))),
            Case("1.6 and 300", (Fraction(8, 5), Fraction(300), 3)),
        ),
    ),
    Claim(
        "T20",
        "T",
        "8.2",
        "Over HC, mHC gains +2.1 % on BBH and +2.3 % on DROP.",
        "number",
        "exact certificate",
        Check(
            "Relative gains from the published scores.",
            percent_gain,
            fixed(
                Case("BBH", (Fraction("48.9"), Fraction("51.0"), Fraction("2.1"))),
                Case("DROP", (Fraction("51.6"), Fraction("53.9"), Fraction("2.3"))),
            ),
            Case("DROP", (Fraction("51.6"), Fraction("53.9"), Fraction("2.3"))),
        ),
        Repair(
            "2.1 and 2.3 points.",
            Check(
                "Differences of the published scores.",
                point_gain,
                fixed(
                    Case("BBH", (Fraction("48.9"), Fraction("51.0"), Fraction("2.1"))),
                    Case("DROP", (Fraction("51.6"), Fraction("53.9"), Fraction("2.3"))),
                ),
                Case("BBH over the baseline", (Fraction("43.8"), Fraction("51.0"), Fraction("2.1"))),
            ),
        ),
        source=POINTS,
        note="In percent they are 4.3 and 4.5.",
    ),
    Claim(
        "T21",
        "T",
        "8.3",
        "mHC partly restores the identity mapping: mean and norm are conserved.",
        "qualitative",
        "exact certificate",
        Check(
            "Mean and norm of a state before and after, exactly.",
            identity_restored,
            fixed(Case("a permutation", (SWAP, DIFFERENCE)), Case("J on (1, -1)", _CASE_HALF)),
            Case("rows only", (ROWS_ONLY, DIFFERENCE)),
        ),
        Repair(
            "The mean is conserved; the norm does not grow.",
            Check(
                "Mean equal, norm not above, exactly.",
                mean_restored,
                mixed_states(9, 200),
                Case("rows only", (ROWS_ONLY, DIFFERENCE)),
            ),
        ),
        hypotheses=(BIRKHOFF,),
    ),
    Claim(
        "T22",
        "T",
        "9.1",
        r"Orthogonal mixers keep the 2-norm; row-stochastic ones need not keep the mean; $\|H\|_2 < 1$ loses signal.",
        "theorem",
        "exact certificate",
        Check(
            "One exact example of each kind, its defining property included.",
            other_sets,
            fixed(*(Case(kind, _other(kind)) for kind in ("orthogonal", "row-stochastic", "contraction"))),
            Case("a row-stochastic one whose mean stays", ("row-stochastic", HALF, column(2, 5))),
        ),
        hypotheses=("one fixed mixer; the carry alone",),
    ),
    Claim(
        "T23",
        "T",
        "3.2",
        "HC adds connections at unchanged FLOPs.",
        "number",
        "numeric reproduction",
        Check(
            "Counts the operations of a site against the plain residual site while both run.",
            same_operations,
            lambda level: iter([Case("n = 4, d = 8", _one_site())]),
            Case("n = 1, d = 4", ("n = 1, d = 4", hyper_site(1, 4, sweeps=0), residual_site(4))),
        ),
        Repair(
            "It adds a share that falls about as 1/d: below 1 % at d = 2560, n = 4.",
            Check(
                "Counts at two widths; the share at d = 2560 extrapolated as 1/d.",
                share_falls_with_width,
                _sites,
                Case("a branch twice as wide", _WIDER),
            ),
        ),
        hypotheses=("counts with a two-layer branch of factor 4", "n = 4"),
        note="Memory traffic is what grows: 34/3 times at n = 4, unfused (N38).",
    ),
    Claim(
        "T24",
        "T",
        "9.2",
        "The constraint is a geometric regulariser: it restricts the shape of the mixer, not the size of parameters.",
        "qualitative",
        "numeric reproduction",
        Check(
            "Mixers of the same logits times 0.01, 1 and 4: all doubly stochastic.",
            shape_not_size,
            lambda level: iter([Case("n = 3", [(s, sinkhorn_limit(s * _SMALL).matrix) for s in (0.01, 1.0, 4.0)])]),
            Case("a row softmax", [(s, softmax_start(s * _SMALL, 0.0)) for s in (0.01, 1.0, 4.0)]),
        ),
        note="Weight decay on the logits acts on their size and alone pulls the mixer towards J.",
    ),
)
