"""Reading note, sections 4 to 6: what double stochasticity does and does not guarantee."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.tools import (
    column,
    counted,
    diagonal,
    drawn_cases,
    fixed,
    rational,
    same_matrix,
    vanishes,
    verdict,
)
from streamgauge.theory import strategies
from streamgauge.theory.birkhoff import birkhoff
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat
HALF = Fraction(1, 2)
FIRST = rational([[1, 0], [1, 0]])
SWAP = rational([[0, 1], [1, 0]])
EXTRAPOLATES = rational([[2, -1], [-1, 2]])


def two_streams(a: Fraction) -> Matrix:
    """A(a) = [[a, 1-a], [1-a, a]]."""
    return rational([[a, 1 - a], [1 - a, a]])


def ones(n: int) -> Matrix:
    """The (n, 1) column of ones."""
    return column(*[1] * n)


def square(v: Matrix) -> flint.fmpq:
    """v^T v."""
    return (v.transpose() * v)[0, 0]


def is_doubly_stochastic(a: Matrix) -> bool:
    """No negative entry, and all row and column sums 1, exactly."""
    unit = ones(a.nrows())
    return min(a.entries()) >= 0 and a * unit == unit and a.transpose() * unit == unit


def _dimension(value: tuple[int, int]) -> Verdict:
    """Affine dimension of all permutation matrices, and each of them a vertex: n^2 independent active constraints."""
    n, stated = value
    orders = list(itertools.permutations(range(n)))
    flat = [[int(j == order[i]) - int(i == j) for i in range(n) for j in range(n)] for order in orders]
    dimension = rational(flat).rank()
    sums = [[int(i == k) for i in range(n) for j in range(n)] for k in range(n)]
    sums += [[int(j == k) for i in range(n) for j in range(n)] for k in range(n)]
    for order in orders[:: max(1, len(orders) // 12)]:
        zeros = [
            [int((i, j) == (k, m)) for i in range(n) for j in range(n)]
            for k in range(n)
            for m in range(n)
            if m != order[k]
        ]
        if rational(sums + zeros).rank() != n * n:
            return verdict(False, f"permutation {order} is no vertex", n=n, permutation=order)
    reason = f"n = {n}: dimension {dimension}, stated {stated}; permutations are vertices"
    return verdict(dimension == stated, reason, n=n, dimension=dimension)


def _stays_between(value: tuple[Matrix, Matrix]) -> Verdict:
    a, x = value
    y = a * x
    for j in range(x.ncols()):
        before = [x[i, j] for i in range(x.nrows())]
        for i in range(y.nrows()):
            if not min(before) <= y[i, j] <= max(before):
                reason = f"output stream {i} is {y[i, j]}, outside [{min(before)}, {max(before)}]"
                return verdict(False, reason, matrix=a, state=x, output=y)
    return verdict(True, "every output stream between the smallest and largest input, feature by feature", output=y)


def _mean_kept(a: Any) -> Verdict:
    n = a.cols
    x = sympy.Matrix(sympy.symbols(f"x1:{n + 1}"))
    return vanishes(sum(a * x) / n - sum(x) / n, "mean of A x minus mean of x")


def _unit_columns(n: int) -> Any:
    """A matrix of free entries whose last row makes every column sum to one."""
    top = sympy.Matrix(n - 1, n, sympy.symbols(f"a1:{(n - 1) * n + 1}"))
    return top.col_join(sympy.Matrix([[1 - sum(top[:, j]) for j in range(n)]]))


def _loses_streams(a: Matrix) -> Verdict:
    """Rows sum to one, every output is stream 0, rank 1, and the mean of some state changes."""
    n = a.nrows()
    x = column(*range(n))
    y = a * x
    moved = [sum(v.entries(), flint.fmpq(0)) / n for v in (x, y)]
    ok = a * ones(n) == ones(n) and a.rank() == 1 and all(v == x[0, 0] for v in y.entries()) and moved[0] != moved[1]
    return verdict(ok, f"rank {a.rank()}; mean {moved[0]} becomes {moved[1]}", rank=a.rank(), means=moved, output=y)


def _jensen(value: tuple[Matrix, Matrix]) -> Verdict:
    """Both steps of the proof, and the exact gap: |v|^2 - |Av|^2 = sum_i sum_{j<k} a_ij a_ik (v_j - v_k)^2."""
    a, v = value
    n = a.nrows()
    squares = column(*(Fraction(int(x.p), int(x.q)) ** 2 for x in v.entries()))
    after, middle, before = square(a * v), sum((a * squares).entries(), flint.fmpq(0)), square(v)
    gap = sum(
        (a[i, j] * a[i, k] * (v[j, 0] - v[k, 0]) ** 2 for i in range(n) for j in range(n) for k in range(j)),
        flint.fmpq(0),
    )
    ok = after <= middle == before and before - after == gap >= 0
    return verdict(
        ok, f"|Av|^2 = {after}, middle {middle}, |v|^2 = {before}", matrix=a, v=v, steps=(after, middle, before)
    )


def _norm_one(a: Matrix) -> Verdict:
    """A 1 = 1, and I - A^T A = sum_{i<j} b_ij (e_i - e_j)(e_i - e_j)^T with b = A^T A >= 0: a sum of squares."""
    n = a.nrows()
    b = a.transpose() * a
    laplacian = diagonal([sum((b[i, j] for j in range(n) if j != i), flint.fmpq(0)) for i in range(n)])
    for i in range(n):
        for j in range(n):
            if i != j:
                laplacian[i, j] -= b[i, j]
    if min(b.entries()) < 0 or a * ones(n) != ones(n):
        return verdict(False, "A^T A has a negative entry or A 1 is not 1", gram=b)
    return same_matrix(identity(n) - b, laplacian, "I - A^T A as a sum of squares")


def _convex_sum(value: tuple[Matrix, Sequence[Fraction], Sequence[Sequence[int]]]) -> Verdict:
    """A = sum w_k P_k with w >= 0 of sum 1: then |Av| <= sum w_k |P_k v| = |v|, checked on a vector too."""
    a, weights, orders = value
    n = a.nrows()
    total = flint.fmpq_mat(n, n)
    for w, order in zip(weights, orders):
        if sorted(order) != list(range(n)):
            return verdict(False, f"{order} is no permutation", order=order)
        total += rational([[int(order[i] == j) for j in range(n)] for i in range(n)]) * flint.fmpq(
            w.numerator, w.denominator
        )
    if min(weights) < 0 or sum(weights) != 1:
        return verdict(False, f"weights sum to {sum(weights)}, smallest {min(weights)}", weights=weights)
    v = column(*(i * i - 3 for i in range(n)))
    if square(a * v) > square(v):
        return verdict(False, "a vector grows", v=v)
    return same_matrix(total, a, f"convex sum of {len(orders)} permutations")


def _closed(matrices: Sequence[Matrix]) -> Verdict:
    product = identity(matrices[0].nrows())
    for a in matrices:
        product = a * product
    for name, m in (("product", product), ("transpose", product.transpose())):
        if not is_doubly_stochastic(m):
            return verdict(False, f"the {name} is not doubly stochastic", **{name: m})
    return verdict(True, f"product of {len(matrices)} and its transpose are doubly stochastic", product=product)


def _with_vector(a: Matrix, seed: int) -> tuple[Matrix, Matrix]:
    dice = random.Random(seed)
    return a, column(*(dice.randint(-9, 9) for _ in range(a.nrows())))


def _random_pair(i: int) -> Case:
    n = 2 + i % 4
    return Case(f"n = {n}, seed {i}", _with_vector(random_doubly_stochastic(n, seed=i), i))


def _decomposed(i: int) -> Case:
    a = random_doubly_stochastic(2 + i % 4, seed=i)
    made = birkhoff(a)
    return Case(f"n = {a.nrows()}, seed {i}", (a, made.weights, made.permutations))


def _several(i: int) -> Case:
    n, dice = 2 + i % 4, random.Random(i)
    return Case(f"{3 + i % 3} of n = {n}", [random_doubly_stochastic(n, seed=dice) for _ in range(3 + i % 3)])


DRAWN = drawn_cases("drawn", strategies.doubly_stochastic(4), quick=20, full=200, start=12)


def note_claim(id_: str, section: str, statement: str, check: Check, **more: Any) -> Claim:
    return Claim(
        id_,
        "N",
        section,
        statement,
        more.pop("kind", "theorem"),
        more.pop("method", "exact certificate"),
        check,
        **more,
    )


CLAIMS = (
    note_claim(
        "N07",
        "4",
        r"The Birkhoff polytope has dimension $(n-1)^2$ and has vertices: it is not a manifold without boundary.",
        Check(
            "Affine rank of all permutation matrices; n^2 independent active constraints at them.",
            _dimension,
            lambda level: (Case(f"n = {n}", (n, (n - 1) ** 2)) for n in range(1, 5 if level is Level.QUICK else 6)),
            Case("n(n-1)", (3, 6)),
        ),
        hypotheses=("doubly stochastic matrices of one size $n$, as a polytope",),
    ),
    note_claim(
        "N08",
        "4.1",
        r"Non-negative rows of sum 1: every output stream lies, feature by feature, between the smallest and the "
        r"largest input.",
        Check(
            "Exact products on seeded doubly stochastic and row-stochastic matrices.",
            _stays_between,
            counted(15, 100, lambda i: _random_pair(i) if i else Case("rows (1, 0)", (FIRST, column(3, -5)))),
            Case("a negative weight", (EXTRAPOLATES, column(1, 0))),
        ),
        method="property test",
        hypotheses=(
            "every row non-negative with sum 1",
            "any state, mixed by the carry alone",
        ),
    ),
    note_claim(
        "N09",
        "4.1",
        r"Columns of sum 1: the mean over the streams is conserved.",
        Check(
            "Free entries, the last row fixed by the column sums; free state.",
            _mean_kept,
            fixed(*(Case(f"n = {n}", _unit_columns(n)) for n in (2, 3, 4, 5))),
            Case("rows (1, 0)", sympy.Matrix([[1, 0], [1, 0]])),
        ),
        method="symbolic",
        hypotheses=(
            "every column has sum 1; entries of any sign",
            "any state, mixed by the carry alone",
        ),
    ),
    note_claim(
        "N10",
        "4.1",
        r"If every row is $(1, 0, \ldots, 0)$, rows sum to 1, but all other streams are lost and the mean changes.",
        Check(
            "Rank, output and mean, n = 2 to 6.",
            _loses_streams,
            fixed(*(Case(f"n = {n}", rational([[1] + [0] * (n - 1)] * n)) for n in range(2, 7))),
            Case("J", uniform(3)),
        ),
        hypotheses=(
            "two streams or more",
            "the carry alone",
        ),
    ),
    note_claim(
        "N11",
        "4.2",
        r"$\|Av\|_2 \leq \|v\|_2$ by convexity on rows and then the column sums.",
        Check(
            "Both steps of the proof and the exact gap, on seeded matrices and vectors.",
            _jensen,
            counted(20, 200, _random_pair),
            Case("rows only", (FIRST, column(1, 0))),
        ),
        hypotheses=("A exactly doubly stochastic",),
    ),
    note_claim(
        "N12",
        "4.2",
        r"$\|A\|_2 = 1$ exactly for a doubly stochastic $A$.",
        Check(
            "A 1 = 1, and I - A^T A written as a sum of squares, on matrices drawn by hypothesis.",
            _norm_one,
            DRAWN,
            Case("rows only", FIRST),
        ),
        hypotheses=("$A$ exactly doubly stochastic",),
    ),
    note_claim(
        "N14",
        "4.2",
        r"The same bound from Birkhoff's theorem: $A = \sum_k \lambda_k P_k$ and the triangle inequality.",
        Check(
            "Decompositions added up again, exactly.",
            _convex_sum,
            counted(10, 80, _decomposed),
            Case("weights of sum 3/2", (uniform(2), [HALF, Fraction(1)], [(0, 1), (1, 0)])),
        ),
        hypotheses=("$A$ exactly doubly stochastic, so a convex combination of permutations",),
    ),
    note_claim(
        "N15",
        "4.3",
        r"Products and transposes of doubly stochastic matrices are doubly stochastic.",
        Check(
            "Exact products of three to five.",
            _closed,
            counted(10, 80, _several),
            Case("one factor with rows only", [SWAP, FIRST, SWAP]),
        ),
        hypotheses=("exactly doubly stochastic factors of one size",),
    ),
)
