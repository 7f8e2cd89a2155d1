"""Doubly stochastic matrices: marginals, a verdict, and exact random ones by construction.

The set B_n of non-negative matrices with unit row and column sums is the convex hull of the permutation matrices
(Birkhoff 1946); it is closed under products.  Everything here is exact on rational matrices.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain, Matrix
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Marginals:
    """Row sums, column sums and the smallest entry: Fractions of an exact matrix, floats of a float64 one."""

    rows: tuple[Any, ...]
    columns: tuple[Any, ...]
    smallest: Any

    @property
    def row_error(self) -> Any:
        """max |row sum - 1|."""
        return max(abs(s - 1) for s in self.rows)

    @property
    def column_error(self) -> Any:
        """max |column sum - 1|."""
        return max(abs(s - 1) for s in self.columns)


def as_matrix(given: Any) -> Matrix:
    """One non-empty matrix in any form a :class:`Chain` takes: ``fmpq_mat`` if exact, float64 array if not."""
    try:
        matrix = Chain([given]).mixers[0]
    except InputError as error:
        raise InputError(str(error).replace("mixer 0", "matrix", 1)) from None
    if 0 in shape(matrix):
        raise InputError(f"matrix: found shape {shape(matrix)}, expected at least one row and one column")
    return matrix


def as_square(given: Any) -> Matrix:
    """:func:`as_matrix`, refusing a matrix that is not square."""
    matrix = as_matrix(given)
    rows, cols = shape(matrix)
    if rows != cols:
        raise InputError(f"matrix: found shape {(rows, cols)}, expected a square one")
    return matrix


def shape(matrix: Matrix) -> tuple[int, int]:
    """(rows, columns)."""
    if isinstance(matrix, flint.fmpq_mat):
        return matrix.nrows(), matrix.ncols()
    return int(matrix.shape[0]), int(matrix.shape[1])


def rows_of(matrix: Matrix) -> list[list[Any]]:
    """The entries row by row, as Fractions or Python floats."""
    if isinstance(matrix, flint.fmpq_mat):
        return [[exact.fraction(x) for x in row] for row in matrix.tolist()]
    return [[float(x) for x in row] for row in matrix]


def marginals(matrix: Any) -> Marginals:
    """Row and column sums of any matrix, exactly on exact input."""
    rows = rows_of(as_matrix(matrix))
    return Marginals(
        tuple(sum(row) for row in rows), tuple(sum(col) for col in zip(*rows)), min(min(row) for row in rows)
    )


def doubly_stochastic(matrix: Any, *, tolerance: float | None = None) -> Verdict:
    """Whether a square matrix is non-negative with unit row and column sums.

    Exact matrices: exactly.  Float64: every sum within ``tolerance`` (default 1e-12) of 1 and no entry below
    -``tolerance``.  The witness has both marginal errors, the smallest entry and, on failure, the place.
    """
    found = as_square(matrix)
    is_exact = isinstance(found, flint.fmpq_mat)
    bound = 0 if is_exact and tolerance is None else 1e-12 if tolerance is None else tolerance
    sums = marginals(found)
    witness = {"row_error": sums.row_error, "column_error": sums.column_error, "smallest": sums.smallest}
    for i, row in enumerate(rows_of(found)):
        for j, x in enumerate(row):
            if x < -bound:
                return Verdict(
                    False, f"entry ({i}, {j}) is {_shown(x)}, expected at least {-bound:g}", {**witness, "at": (i, j)}
                )
    for name, totals in (("row", sums.rows), ("column", sums.columns)):
        for i, total in enumerate(totals):
            if abs(total - 1) > bound:
                within = "" if bound == 0 else f" within {bound:g}"
                reason = f"{name} {i} sums to {_shown(total)}, expected 1{within}"
                return Verdict(False, reason, {**witness, name: i})
    how = "exactly" if bound == 0 else f"within {float(max(sums.row_error, sums.column_error)):.3g}"
    return Verdict(True, f"doubly stochastic, {how}", witness)


def _shown(value: Any) -> str:
    return exact.shown(value) if isinstance(value, Fraction) else str(value)


def exact_sweeps(matrix: Any, order: Sequence[str] = ("columns", "rows"), *, count: int) -> Iterator[flint.fmpq_mat]:
    """``count`` Sinkhorn sweeps of a non-negative rational matrix, exactly; yields the matrix after each.

    The order names what is divided first, as in a :class:`~streamgauge.theory.sinkhorn.Recipe`.  The last marginal
    is exactly 1.  Entries grow by a factor of about n in length with every half-step, so n = 4 ends near four sweeps.

    **Raises** :class:`InputError` for floats, negative entries, or a row or column of zeros.
    """
    current = as_square(matrix)
    if not isinstance(current, flint.fmpq_mat):
        raise InputError(
            "matrix: found float64 entries, expected exact ones (int, Fraction, sympy or flint rational)"
        )
    if sorted(order) != ["columns", "rows"]:
        raise InputError(f"order: found {order!r}, expected ('rows', 'columns') or ('columns', 'rows')")
    if min(current.entries()) < 0:
        raise InputError(f"matrix: smallest entry is {min(current.entries())}, expected none below 0")
    n = current.nrows()
    ones = flint.fmpq_mat(n, 1, [1] * n)
    for name, sums in (("row", current * ones), ("column", current.transpose() * ones)):
        for i in range(n):
            if sums[i, 0] == 0:
                raise InputError(f"matrix: {name} {i} is zero, expected a positive sum")
    for _ in range(count):
        for axis in order:
            current = _divided(current, ones) if axis == "rows" else _divided(current.transpose(), ones).transpose()
        yield current


def _divided(matrix: flint.fmpq_mat, ones: flint.fmpq_mat) -> flint.fmpq_mat:
    n, sums = matrix.nrows(), matrix * ones
    return flint.fmpq_mat(n, n, [1 / sums[i, 0] if i == j else 0 for i in range(n) for j in range(n)]) * matrix


def random_doubly_stochastic(
    n: int, *, seed: int | random.Random, rank: int | None = None, terms: int | None = None, weight: int = 9
) -> flint.fmpq_mat:
    """An exact doubly stochastic n by n matrix: ``terms`` random permutations with integer weights 1 .. ``weight``.

    ``rank`` plants the rank: blocks of averages (a direct sum of ``rank`` matrices J, of random sizes) between two
    invertible doubly stochastic factors, in each of which one permutation has more than half of the weight.
    Without it the rank is what it turns out to be. Same seed, same matrix. ``terms`` defaults to n.

    **Raises** :class:`InputError` unless n, terms and weight are at least 1 and 1 <= rank <= n.
    """
    dice = seed if isinstance(seed, random.Random) else random.Random(seed)
    terms = n if terms is None else terms
    if n < 1 or terms < 1 or weight < 1:
        raise InputError(f"n, terms, weight: found {(n, terms, weight)}, expected each at least 1")
    if rank is None:
        return _mixture(n, dice, [dice.randint(1, weight) for _ in range(terms)])
    if not 1 <= rank <= n:
        raise InputError(f"rank: found {rank}, expected 1 to {n} (a doubly stochastic matrix is never zero)")
    left, right = (_mixture(n, dice, _dominant(dice, terms, weight)) for _ in range(2))
    return left * _averages(n, rank, dice) * right


def _dominant(dice: random.Random, terms: int, weight: int) -> list[int]:
    rest = [dice.randint(1, weight) for _ in range(terms - 1)]
    return [sum(rest) + dice.randint(1, weight), *rest]


def _mixture(n: int, dice: random.Random, weights: Sequence[int]) -> flint.fmpq_mat:
    counts = [0] * (n * n)
    for w in weights:
        for i, j in enumerate(dice.sample(range(n), n)):
            counts[i * n + j] += w
    return flint.fmpq_mat(n, n, counts) / sum(weights)


def _averages(n: int, blocks: int, dice: random.Random) -> flint.fmpq_mat:
    cuts = [0, *sorted(dice.sample(range(1, n), blocks - 1)), n]
    out = exact.zeros(n, n)
    for low, high in itertools.pairwise(cuts):
        for i in range(low, high):
            for j in range(low, high):
                out[i, j] = flint.fmpq(1, high - low)
    return out


def circulant_example() -> flint.fmpq_mat:
    """(I + S) / 2 with the cyclic shift S on four streams: doubly stochastic and *singular*, rank 3.

    Singular values 1, 1/sqrt 2, 1/sqrt 2, 0; kernel (1, -1, 1, -1). Theorem 1 does not apply to it.
    """
    return flint.fmpq_mat(4, 4, [int(j in (i, (i + 1) % 4)) for i in range(4) for j in range(4)]) / 2


def uniform(n: int) -> flint.fmpq_mat:
    """J = 11^T / n, the doubly stochastic matrix of rank 1."""
    return flint.fmpq_mat(n, n, [1] * (n * n)) / n
