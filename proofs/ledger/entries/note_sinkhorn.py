"""Reading note, section 7: Sinkhorn with finitely many rounds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.tools import counted, fixed, plain, rational, vanishes, verdict
from streamgauge.theory.sinkhorn import sinkhorn
from streamgauge.theory.verdict import Verdict

LOGITS = ((8, 1, -1, 0), (7, 0, 1, -2), (0, 6, 1, -1), (1, 5, -2, 0))
"""The note's example."""
Order = tuple[str, str]
PAPER: Order = ("columns", "rows")
OTHER: Order = ("rows", "columns")


def swept(matrix: Sequence[Sequence[Any]], order: Order, rounds: int) -> list[list[Any]]:
    """Plain Sinkhorn over any field: Fractions, floats, balls or symbols."""
    m = [list(line) for line in matrix]
    for _ in range(rounds):
        for axis in order:
            if axis == "rows":
                m = [[x / sum(line[1:], line[0]) for x in line] for line in m]
            else:
                sums = [sum(col[1:], col[0]) for col in zip(*m)]
                m = [[x / s for x, s in zip(line, sums)] for line in m]
    return m


def errors(m: Sequence[Sequence[Any]]) -> tuple[Any, Any]:
    """max |row sum - 1|, max |column sum - 1|."""
    rows = max(abs(sum(line[1:], line[0]) - 1) for line in m)
    return rows, max(abs(sum(col[1:], col[0]) - 1) for col in zip(*m))


def _same_program(value: tuple[np.ndarray, Order, np.ndarray]) -> Verdict:
    logits, order, made = value
    wanted = np.array(swept(np.exp(logits).tolist(), order, 20))
    miss = float(np.abs(wanted - made).max())
    return verdict(miss < 1e-12, f"largest difference {miss:.3g} to {order[0]} then {order[1]}", difference=miss)


def _program_case(seed: int) -> Case:
    logits = np.random.default_rng(seed).normal(size=(4, 4))
    return Case(f"seed {seed}", (logits, PAPER, sinkhorn(logits, "paper").matrix))


def _converges(value: tuple[list[list[float]], int]) -> Verdict:
    matrix, rounds = value
    rows, cols = errors(swept(matrix, PAPER, rounds))
    reason = f"after {rounds} rounds row error {rows:.3g}, column error {cols:.3g}"
    return verdict(max(rows, cols) < 1e-12, reason, rows=rows, columns=cols)


def _positive(seed: int) -> Case:
    dice = random.Random(seed)
    n = 2 + seed % 4
    return Case(f"n = {n}, seed {seed}", ([[dice.uniform(0.1, 3.0) for _ in range(n)] for _ in range(n)], 300))


def _last_is_exact(value: tuple[list[list[Fraction]], Order]) -> Verdict:
    """Exactly: the sums divided last are 1, the others are not."""
    matrix, order = value
    rows, cols = errors(swept(matrix, order, 2))
    last, first = (rows, cols) if order[1] == "rows" else (cols, rows)
    reason = f"error of the {order[1]} {last}, of the {order[0]} {float(first):.3g}"
    return verdict(last == 0 and first > 0, reason, last=last, first=float(first))


def _integers(seed: int) -> Case:
    dice = random.Random(seed)
    order = PAPER if seed % 2 else OTHER
    return Case(
        f"{order[1]} last, seed {seed}", ([[Fraction(dice.randint(1, 9)) for _ in range(3)] for _ in range(3)], order)
    )


M = [[sympy.Symbol(f"m{i}{j}", positive=True) for j in range(3)] for i in range(3)]
SHIFT = sympy.Symbol("s", positive=True)


def _shift_free(factors: list[list[Any]]) -> Verdict:
    """exp(z - shifts) is M times factors: equal after the first half-step (columns), hence after every round.

    Entry (i, j) by cross-multiplication: m f_ij sum_k m_kj = m sum_k m_kj f_kj.
    """
    moved = [[m * f for m, f in zip(line, row)] for line, row in zip(M, factors)]
    sums, moved_sums = ([sum(col) for col in zip(*x)] for x in (M, moved))
    miss = [[x * sums[j] - M[i][j] * moved_sums[j] for j, x in enumerate(line)] for i, line in enumerate(moved)]
    return vanishes(sympy.Matrix(miss), "columns of the shifted logits minus columns of the logits")


def _column_error(value: tuple[int, Order, str]) -> Verdict:
    """The larger marginal error of the note's example to as many digits as stated, in balls of 200 bits."""
    rounds, order, stated = value
    before, flint.ctx.prec = flint.ctx.prec, 200
    try:
        rows, cols = errors(swept([[flint.arb(z).exp() for z in line] for line in LOGITS], order, rounds))
        error = float((cols if order[1] == "rows" else rows).mid())
    finally:
        flint.ctx.prec = before
    digits = len(stated.split("e")[0].replace(".", "")) - 1
    found = f"{error:.{digits}e}"
    return verdict(
        found == f"{float(stated):.{digits}e}", f"{rounds} rounds: error {found}, stated {stated}", error=error
    )


SERIES = {1: "9.225e-2", 5: "3.495e-4", 10: "1.067e-5", 15: "4.593e-7", 20: "1.931189e-8", 30: "3.402e-11"}


def _series(level: Level) -> Iterator[Case]:
    yield Case("20 rounds, as stated", (20, PAPER, "1.93e-8"))
    for rounds, stated in SERIES.items():
        yield Case(f"{rounds} rounds", (rounds, PAPER, stated))


def _gram_bound(value: flint.fmpq_mat) -> Verdict:
    """(1 + eps) I - A^T A as squares plus a non-negative diagonal, eps the excess of the largest column sum.

    b = A^T A >= 0: sum_{i<j} b_ij (e_i - e_j)(e_i - e_j)^T + diag(1 + eps - row sums of b).
    """
    n = value.nrows()
    b = value.transpose() * value
    sums = [sum((value[i, j] for i in range(n)), flint.fmpq(0)) for j in range(n)]
    bound = max([flint.fmpq(1), *sums])
    totals = [sum((b[i, j] for j in range(n)), flint.fmpq(0)) for i in range(n)]
    slack = [bound - t for t in totals]
    ok = min(value.entries()) >= 0 and min(slack) >= 0
    norm = float(np.linalg.norm(np.array([[float(x) for x in line] for line in value.tolist()]), 2))
    reason = f"||A||_2 = {norm:.6g}, bound {float(bound) ** 0.5:.6g}, smallest slack {min(slack)}"
    return verdict(ok, reason, norm=norm, bound=float(bound) ** 0.5, slack=plain(slack))


def _row_stochastic(seed: int, n: int = 4) -> flint.fmpq_mat:
    dice = random.Random(seed)
    matrix = [[Fraction(dice.randint(1, 30)) for _ in range(n)] for _ in range(n)]
    return rational(swept(matrix, PAPER, 1))


def _product_bound(value: Sequence[flint.fmpq_mat]) -> Verdict:
    """||prod A||_2 <= prod sqrt(1 + eps_l) <= exp(sum eps_l / 2), eps_l the excess of the largest column sum."""
    arrays = [np.array([[float(x) for x in line] for line in a.tolist()]) for a in value]
    eps = [max(0.0, float(a.sum(axis=0).max()) - 1) for a in arrays]
    product = np.linalg.multi_dot(arrays[::-1])
    norm, middle, bound = (
        float(np.linalg.norm(product, 2)),
        float(np.prod(np.sqrt(1 + np.array(eps)))),
        float(np.exp(sum(eps) / 2)),
    )
    ok = norm <= middle * (1 + 1e-12) and middle <= bound * (1 + 1e-12)
    return verdict(ok, f"norm {norm:.6g} <= {middle:.6g} <= {bound:.6g}", norm=norm, product=middle, bound=bound)


def _nearer(value: tuple[flint.fmpq_mat, flint.fmpq_mat, flint.fmpq_mat]) -> Verdict:
    """For a positive 2 x 2 matrix: S doubly stochastic with M's cross ratio (its Sinkhorn limit), T nearer to M."""
    m, s, t = value
    ones = rational([[1], [1]])
    for name, x in (("S", s), ("T", t)):
        if x * ones != ones or x.transpose() * ones != ones or min(x.entries()) < 0:
            return verdict(False, f"{name} is not doubly stochastic", matrix=x)
    cross = [x[0, 0] * x[1, 1] / (x[0, 1] * x[1, 0]) for x in (m, s)]
    far, near = (sum((y * y for y in (m - x).entries()), flint.fmpq(0)) for x in (s, t))
    reason = f"squared distance {far} of the Sinkhorn limit, {near} of another doubly stochastic matrix"
    return verdict(cross[0] == cross[1] and near < far, reason, cross_ratios=cross, distances=(far, near))


def _two(a: Fraction) -> flint.fmpq_mat:
    return rational([[a, 1 - a], [1 - a, a]])


QUARTER = Fraction(1, 4)
RATIONAL_M = rational([[1, QUARTER], [QUARTER, QUARTER]])
HYPOTHESES = ("A non-negative, rows sum to 1",)

CLAIMS = (
    Claim(
        "N26",
        "N",
        "7",
        r"Equation (9) normalises columns first and rows second in every round.",
        "definition",
        "numeric reproduction",
        Check(
            "The package's recipe 'paper' against a plain loop, 20 rounds.",
            _same_program,
            counted(4, 30, _program_case),
            Case("rows first", (np.array(LOGITS, float), OTHER, sinkhorn(LOGITS, "paper").matrix)),
        ),
        source="arXiv:2512.24880v2, eq. (9)",
    ),
    Claim(
        "N27",
        "N",
        "7",
        r"For a positive matrix the rounds converge to a doubly stochastic one.",
        "theorem",
        "numeric reproduction",
        Check(
            "Both marginals after 300 rounds of seeded positive matrices.",
            _converges,
            counted(6, 40, _positive),
            Case("positive but for one zero, no total support", ([[1.0, 1.0], [0.0, 1.0]], 300)),
        ),
        source="Sinkhorn, Ann. Math. Statist. 35 (1964)",
        hypotheses=("entries positive; no eps",),
    ),
    Claim(
        "N28",
        "N",
        "7",
        r"The sums divided last are exact, the others are not: rows of sum 1 are no test of convergence.",
        "theorem",
        "exact certificate",
        Check(
            "Two rounds over Q in both orders.",
            _last_is_exact,
            counted(6, 40, _integers),
            Case("both exact for equal entries", ([[Fraction(2)] * 3] * 3, PAPER)),
        ),
        hypotheses=("finitely many rounds; no eps",),
    ),
    Claim(
        "N29",
        "N",
        "7",
        r"Subtracting one constant from all logits changes nothing.",
        "theorem",
        "symbolic",
        Check(
            "The first half-step of nine free positive entries, cross-multiplied.",
            _shift_free,
            fixed(
                Case("one constant", [[SHIFT] * 3] * 3),
                Case("a constant per column, divided first", [[SHIFT, SHIFT**2, 1]] * 3),
            ),
            Case("one entry", [[SHIFT, 1, 1], [1, 1, 1], [1, 1, 1]]),
        ),
        hypotheses=("exponential of the logits; no eps; no underflow",),
    ),
    Claim(
        "N30",
        "N",
        "7",
        r"For the note's logits the largest column error after 20 rounds is about $1.93 \cdot 10^{-8}$.",
        "number",
        "numeric reproduction",
        Check(
            "Columns then rows in 200-bit balls; the whole series over the number of rounds.",
            _column_error,
            _series,
            Case("rows first leave 4.223e-6", (20, OTHER, "1.93e-8")),
        ),
        hypotheses=("columns first, rows last", "no eps", "float64 or better"),
        note="1.931189e-8. A benign example: wide logits leave errors of 0.1 to 0.5 after as many rounds.",
    ),
    Claim(
        "N32",
        "N",
        "7",
        r"$A \geq 0$ with rows of sum 1 and columns of at most $1 + \epsilon$: $\|A\|_2 \leq \sqrt{1 + \epsilon}$.",
        "theorem",
        "exact certificate",
        Check(
            "(1 + eps) I - A^T A written as squares plus a non-negative diagonal.",
            _gram_bound,
            counted(8, 60, lambda i: Case(f"seed {i}", _row_stochastic(i))),
            Case("rows of sum 2", rational([[1, 1], [0, 0]])),
        ),
        hypotheses=HYPOTHESES,
    ),
    Claim(
        "N33",
        "N",
        "7",
        r"$\|\prod_l A_l\|_2 \leq \prod_l \sqrt{1 + \epsilon_l} \leq \exp(\frac{1}{2}\sum_l \epsilon_l)$.",
        "theorem",
        "property test",
        Check(
            "Products of three to twelve seeded factors.",
            _product_bound,
            counted(5, 40, lambda i: Case(f"seed {i}", [_row_stochastic(100 * i + k) for k in range(3 + i % 10)])),
            Case("rows of sum 2", [rational([[1, 1], [0, 0]])] * 3),
        ),
        hypotheses=HYPOTHESES,
        note="A gain of 1.6 over sixty sites needs a mean eps of about 0.0157 in this bound.",
    ),
    Claim(
        "N34",
        "N",
        "7",
        r"Sinkhorn is not the Euclidean projection.",
        "theorem",
        "exact certificate",
        Check(
            "Sinkhorn limits with rational entries and a doubly stochastic matrix that is strictly nearer.",
            _nearer,
            fixed(Case("2 x 2", (RATIONAL_M, _two(Fraction(2, 3)), _two(Fraction(11, 16))))),
            Case("a doubly stochastic start", (_two(Fraction(2, 3)),) * 3),
        ),
        hypotheses=("positive start; Euclidean (Frobenius) distance; converged rounds",),
    ),
)
