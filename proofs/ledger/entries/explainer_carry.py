"""E01 to E15: what the explainer says of the update, of doubly stochastic mixers and of their products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.carry_checks import (
    BIRKHOFF,
    ESSAY_MIXER,
    another_form,
    content_kept,
    exponential,
    half_shift,
    makes_streams_equal,
    network_gain,
    no_attenuation,
    no_cancellation,
    plain_residual,
    shifted,
    unit_sums,
)
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.mixer_cases import chains, decomposed, mixed_states
from streamgauge.proofs.ledger.mixers import (
    COLUMNS_ONLY,
    HALF,
    ROWS_ONLY,
    closed_under_product,
    composite_norm_one,
    in_birkhoff,
    mean_kept,
    permutation_mixture,
    rows_convex,
)
from streamgauge.proofs.ledger.tools import column, diagonal, fixed, rational
from streamgauge.theory import exact
from streamgauge.theory.doubly import exact_sweeps, random_doubly_stochastic, uniform


def _decompositions(level: Level) -> Iterator[Case]:
    for i in range(8 if level is Level.QUICK else 60):
        n = 2 + i % 5
        yield Case(f"mixer {i}, n = {n}", decomposed(random_doubly_stochastic(n, seed=i)))


def _stack(sites: int, weight: int) -> list[tuple[flint.fmpq_mat, flint.fmpq_mat, flint.fmpq_mat, Fraction]]:
    a = rational([["9/10", "1/10"], ["1/10", "9/10"]])
    return [(a, rational([["1/2", "1/2"]]), column(1, 1), Fraction(weight))] * sites


def _swept(level: Level) -> Iterator[Case]:
    yield Case("a start that is doubly stochastic already", HALF)
    start = [[8, 1, 2], [3, 5, 1], [1, 4, 6]]
    for i, matrix in enumerate(exact_sweeps(rational(start), ("rows", "columns"), count=3)):
        yield Case(f"a positive 3 x 3 matrix after {i + 1} sweeps", matrix)


def _near(a: int, b: int) -> flint.fmpq_mat:
    x, y = Fraction(a, a + b), Fraction(b, a + b)
    return rational([[x, y], [y, x]])


ONE_SWEEP = next(exact_sweeps(rational([[8, 1], [3, 5]]), ("rows", "columns"), count=1))
SWAP = rational([[0, 1], [1, 0]])
DIFFERENCE = column(1, -1)

CLAIMS = (
    Claim(
        "E01",
        "E",
        "mathematical form",
        r"With one stream, $p = r = 1$ and $C = [1]$ the update is the plain residual $x + F(x)$.",
        "theorem",
        "symbolic",
        Check(
            "Expands the one-stream update with an unknown branch and compares it with x + F(x).",
            plain_residual,
            fixed(Case("A = p = r = 1", (1, 1, 1))),
            Case("the sigmoid read at logit 10", (1, 1 / (1 + sympy.exp(-10)), 1)),
        ),
        hypotheses=("n = 1", "the branch holds its own norm"),
        note="A read that is a sigmoid is below 1 for every finite logit, so the trained form only approaches this.",
    ),
    Claim(
        "E02",
        "E",
        "intuition",
        "In the 4 x 4 example (half on the diagonal, half on the next stream) every row and column sums to 1.",
        "number",
        "exact certificate",
        Check(
            "Adds up the rows and columns of the printed matrix exactly.",
            unit_sums,
            fixed(Case("the printed matrix", ESSAY_MIXER)),
            Case("one entry moved by 1/100", ESSAY_MIXER + diagonal([Fraction(1, 100), 0, 0, 0])),
        ),
    ),
    Claim(
        "E03",
        "E",
        "intuition",
        r"The example keeps half of each stream and passes half on; $(I + P)/2$ is another common form.",
        "definition",
        "exact certificate",
        Check(
            "Compares the printed matrix with (I + P)/2.",
            another_form,
            fixed(
                Case("P swaps neighbours in pairs", (ESSAY_MIXER, (1, 0, 3, 2))),
                Case("P is the cyclic shift", (ESSAY_MIXER, (1, 2, 3, 0))),
            ),
            Case("n = 3, cyclic shift", (shifted(3, (1, 2, 0)), (1, 2, 0))),
        ),
        Repair(
            r"The example is $(I + P)/2$ with the cyclic shift $P$. For even n it is singular (rank n - 1, kernel "
            r"$(1, -1, 1, -1, ..)$), so the theorem on invertible mixers does not cover it; for odd n it is not.",
            Check(
                "Rebuilds (I + P)/2, compares, and takes the exact rank.",
                half_shift,
                fixed(
                    Case("the printed matrix", (ESSAY_MIXER, (1, 2, 3, 0))),
                    *(Case(f"n = {n}", (shifted(n, p), p)) for n in (3, 5, 6, 8) for p in [[*range(1, n), 0]]),
                ),
                Case("P swaps neighbours in pairs", (ESSAY_MIXER, (1, 0, 3, 2))),
            ),
        ),
    ),
    Claim(
        "E04",
        "E",
        "intuition",
        "Every doubly stochastic matrix is a convex combination of permutation matrices (Birkhoff, von Neumann).",
        "theorem",
        "exact certificate",
        Check(
            "Adds up the given weighted permutations exactly; at most (n - 1)^2 + 1 terms.",
            permutation_mixture,
            _decompositions,
            Case("a row-stochastic matrix", (ROWS_ONLY, (Fraction(1, 2), Fraction(1, 2)), ((0, 1), (1, 0)))),
        ),
        hypotheses=(BIRKHOFF,),
        note="Existence for all matrices is Birkhoff's theorem; the check verifies a decomposition of every case.",
    ),
    Claim(
        "E05",
        "E",
        "guarantees",
        r"Row sums 1: $\|\sum_k C_{jk} H_k\|_\infty \leq \max_k \|H_k\|_\infty$ for every stream j.",
        "theorem",
        "property test",
        Check(
            "Compares max norms before and after mixing, exactly.",
            rows_convex,
            mixed_states(),
            Case("the row (10, -9): sum 1, signed", (rational([[10, -9], [0, 1]]), DIFFERENCE)),
        ),
        hypotheses=("non-negative rows with sum 1 exactly, in the orientation in which the matrix is applied",),
        note="Released kernels apply the transposed matrix, whose rows are the marginal that is only nearly 1 (E18).",
    ),
    Claim(
        "E06",
        "E",
        "guarantees",
        "Non-negative entries rule out cancellation between streams.",
        "theorem",
        "exact certificate",
        Check(
            "Looks for contributions to one entry whose sum is smaller than the sum of their sizes.",
            no_cancellation,
            fixed(Case("J on equal signs (1, 1)", (HALF, column(1, 1))), Case("J on (1, -1)", (HALF, DIFFERENCE))),
            Case("a signed mixer on (1, 2)", (rational([[2, -1], [-1, 2]]), column(1, 2))),
        ),
        hypotheses=(BIRKHOFF, "states of any sign"),
        note="The weights have one sign, the features do not. The reading note says so itself (N23).",
    ),
    Claim(
        "E07",
        "E",
        "guarantees",
        r"Column sums 1: the stream mean $(1/n) \sum_j H_j$ is the same after mixing.",
        "theorem",
        "property test",
        Check(
            "Compares the stream mean before and after, exactly.",
            mean_kept,
            mixed_states(),
            Case("rows sum to 1, columns do not", (ROWS_ONLY, DIFFERENCE)),
        ),
        hypotheses=("column sums 1 exactly",),
    ),
    Claim(
        "E08",
        "E",
        "intuition; interview 3",
        "Column sums 1: a stream's content is handed on entirely, neither lost nor added.",
        "qualitative",
        "exact certificate",
        Check(
            "Asks whether two different states are still different after mixing.",
            content_kept,
            fixed(
                Case("a permutation", (SWAP, DIFFERENCE, column(0, 0))),
                Case("J on (1, -1) and (0, 0)", (HALF, DIFFERENCE, column(0, 0))),
            ),
            Case("columns only", (COLUMNS_ONLY, DIFFERENCE, column(0, 0))),
        ),
        hypotheses=(BIRKHOFF,),
        note="Only the sum over streams is conserved: both states have sum 0 and both become 0.",
    ),
    Claim(
        "E09",
        "E",
        "guarantees",
        r"$B_n$ is closed under products.",
        "theorem",
        "property test",
        Check(
            "Multiplies chains exactly and tests membership.",
            closed_under_product,
            chains(),
            Case("a factor with row sums only", (ROWS_ONLY, HALF)),
        ),
        hypotheses=(BIRKHOFF,),
    ),
    Claim(
        "E10",
        "E",
        "guarantees",
        r"The composite mixer has induced $\ell_\infty$ norm exactly 1 at any depth.",
        "theorem",
        "property test",
        Check(
            "Largest absolute row sum of the exact product.",
            composite_norm_one,
            chains(),
            Case("three mixers after one exact sweep that ends on columns", (ONE_SWEEP,) * 3),
        ),
        hypotheses=(BIRKHOFF,),
        note="Exactly doubly stochastic mixers only; truncated Sinkhorn output is not (E15).",
    ),
    Claim(
        "E11",
        "E",
        "guarantees",
        "Depth brings no new freedom of gain.",
        "qualitative",
        "exact certificate",
        Check(
            "Max-norm gain of stacks of sites with linear branches.",
            network_gain,
            fixed(
                Case("60 sites, branches off", _stack(60, 0)),
                Case("60 sites, branch F(z) = z, reads 1/2, writes 1", _stack(60, 1)),
            ),
            Case("branches off, a signed row", [(rational([[10, -9], [0, 1]]), *_stack(1, 0)[0][1:])]),
        ),
        Repair(
            "The carry path alone has gain at most 1 at any depth.",
            Check(
                "The same gain with branches off.",
                network_gain,
                fixed(*(Case(f"{sites} sites, branches off", _stack(sites, 0)) for sites in (1, 60, 200))),
                Case("a signed row", [(rational([[10, -9], [0, 1]]), *_stack(1, 0)[0][1:])]),
            ),
            hypothesis="only the carry path is counted, not what branches write",
        ),
        hypotheses=(BIRKHOFF, "reads and writes inside mHC's boxes"),
    ),
    Claim(
        "E12",
        "E",
        "guarantees; interview 5",
        r"$J = 11^T/n$ is doubly stochastic, so the constraint does not forbid streams becoming equal.",
        "theorem",
        "exact certificate",
        Check(
            "Tests membership in B_n and that all rows agree.",
            makes_streams_equal,
            fixed(*(Case(f"J, n = {n}", uniform(n)) for n in range(2, 9))),
            Case("the identity", exact.identity(3)),
        ),
        hypotheses=("any number of streams",),
    ),
    Claim(
        "E13",
        "E",
        "guarantees; interview 5",
        "The constraint excludes arbitrary amplification and attenuation.",
        "qualitative",
        "exact certificate",
        Check(
            "Ratio of the max norms after and before mixing.",
            no_attenuation,
            fixed(
                Case("a permutation", (SWAP, DIFFERENCE)),
                Case("(1, 1), the mean direction", (_near(9, 1), column(1, 1))),
                Case("weights 5001 : 4999 on (1, -1)", (_near(5001, 4999), DIFFERENCE)),
                Case("J on (1, -1)", (HALF, DIFFERENCE)),
            ),
            Case("2 I, outside B_n", (diagonal([2, 2]), DIFFERENCE)),
        ),
        hypotheses=(BIRKHOFF,),
        note="Amplification is excluded. Attenuation is not: weights a, 1 - a scale (1, -1) by 2a - 1, any number "
        "from -1 to 1, and J by 0.",
    ),
    Claim(
        "E14",
        "E",
        "core insight",
        "Products of free mixers can grow or decay exponentially with depth.",
        "qualitative",
        "exact certificate",
        Check(
            "Exact powers along an eigenvector.",
            exponential,
            fixed(
                Case(
                    "growth 11/10", (rational([["3/5", "1/2"], ["1/2", "3/5"]]), column(1, 1), Fraction(11, 10), 60)
                ),
                Case("decay 9/10", (rational([["1/2", "2/5"], ["2/5", "1/2"]]), column(1, 1), Fraction(9, 10), 60)),
            ),
            Case("a mixer of B_2 on its mean direction", (_near(9, 1), column(1, 1), Fraction(11, 10), 60)),
        ),
        hypotheses=("free real mixers",),
        note=f"Growth 1.1 per site is {math.pow(1.1, 60):.1f} after 60 sites.",
    ),
    Claim(
        "E15",
        "E",
        "core insight; interview 4",
        "Sinkhorn puts the mixer exactly into the set at every step.",
        "qualitative",
        "exact certificate",
        Check(
            "Sweeps in exact rational arithmetic, then tests membership in B_n.",
            in_birkhoff,
            _swept,
            Case("no sweep at all", rational([[8, 1, 2], [3, 5, 1], [1, 4, 6]])),
        ),
        hypotheses=("positive start", "finitely many sweeps, no round-off, no eps"),
        note="After finitely many sweeps one marginal is exact and the other is not. The same answer later calls it "
        "an approximate projection. How far off it is depends on the logits (E23).",
    ),
)
