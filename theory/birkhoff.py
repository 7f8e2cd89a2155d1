"""Birkhoff's theorem as an algorithm: a doubly stochastic matrix as a convex sum of permutations, and back.

    M = sum_k w_k Pi_k,   w_k > 0,   sum_k w_k = 1,   at most (n - 1)^2 + 1 terms.

Birkhoff, Univ. Nac. Tucuman Rev. A 5 (1946).  The reverse direction, a softmax over all permutations, is how
mHC-lite (arXiv:2601.05732) gets mixers that are doubly stochastic without iterating.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike

from streamgauge.theory.chain import Matrix
from streamgauge.theory.doubly import as_square, doubly_stochastic, rows_of
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats, scalar
from streamgauge.theory.support import perfect_matching

MAX_PERMUTED = 7
"""Largest n of a mixture over all n! permutations (5040 weights)."""


@dataclass(frozen=True)
class Birkhoff:
    """``sum_k weights[k] * permutation matrix``; ``permutations[k][i]`` is the column of row i.

    ``residual``: max |M - sum|, 0 for an exact matrix.  Weights are Fractions of an exact matrix, floats otherwise.
    """

    weights: tuple[Any, ...]
    permutations: tuple[tuple[int, ...], ...]
    residual: float
    exact: bool

    def __len__(self) -> int:
        return len(self.weights)

    def matrix(self) -> Matrix:
        """The sum: ``fmpq_mat`` if exact, else float64."""
        n = len(self.permutations[0])
        cells: list[list[Any]] = [[0] * n for _ in range(n)]
        for weight, permutation in zip(self.weights, self.permutations):
            for i, j in enumerate(permutation):
                cells[i][j] += weight
        if self.exact:
            return flint.fmpq_mat(n, n, [scalar(x) for row in cells for x in row])
        return np.array(cells, dtype=np.float64)


def birkhoff(matrix: Any, *, tolerance: float = 1e-12) -> Birkhoff:
    """The greedy decomposition: take a permutation through positive entries, as much of it as fits, and repeat.

    Exact matrices decompose exactly; every step reaches a proper face of a polytope of dimension (n-1)^2, hence the
    number of terms.  Float64 matrices: entries at most ``tolerance`` count as zero, and by Hall's condition what is
    left over is at most (n^2 + 2n) ``tolerance``.  Cost O(n^2) matchings of O(n^2.5).

    **Raises** :class:`InputError` for a matrix that is not doubly stochastic (float64: within ``tolerance``).
    """
    found = as_square(matrix)
    is_exact = isinstance(found, flint.fmpq_mat)
    verdict = doubly_stochastic(found, tolerance=None if is_exact else tolerance)
    if not verdict:
        raise InputError(f"matrix: {verdict.reason}; expected a doubly stochastic one")
    left, zero = rows_of(found), 0 if is_exact else tolerance
    weights: list[Any] = []
    permutations: list[tuple[int, ...]] = []
    while True:
        matched = perfect_matching([[j for j, x in enumerate(row) if x > zero] for row in left])
        if matched is None:
            break
        weight = min(left[i][j] for i, j in enumerate(matched))
        for i, j in enumerate(matched):
            left[i][j] -= weight
        weights.append(weight)
        permutations.append(tuple(matched))
    residual = float(max(abs(x) for row in left for x in row))
    return Birkhoff(tuple(weights), tuple(permutations), residual, is_exact)


def permutation_mixture(logits: ArrayLike, n: int) -> Floats:
    """The mHC-lite mixer of logits (..., n!): ``A = S^T``, S = sum over permutations in lexicographic order.

    The weights are a softmax, so both marginals of A are 1 to round-off. Result (..., n, n), float64.

    **Raises** :class:`InputError` for n outside 1 .. 7 or logits that are not finite numbers, n! of them.
    """
    if not 1 <= n <= MAX_PERMUTED:
        raise InputError(f"n: found {n}, expected 1 to {MAX_PERMUTED} (n! weights)")
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim < 1 or z.shape[-1] != math.factorial(n):
        raise InputError(f"logits: found shape {z.shape}, expected (..., {math.factorial(n)}), one per permutation")
    if not np.isfinite(z).all():
        raise InputError("logits: found an entry that is not finite, expected finite numbers")
    weights = np.exp(z - z.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    stack = np.array([np.eye(n)[list(p)] for p in itertools.permutations(range(n))])
    return np.asarray(np.einsum("...k,kij->...ji", weights, stack))
