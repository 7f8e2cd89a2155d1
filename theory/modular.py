"""The exact core over GF(p): reduction of rational chains, the interval basis there, and the primes that change it.

Reduction mod p keeps every rank unless p divides all minors of that size: then the barcode over GF(p) differs.
:func:`divided_minor` exhibits such a minor, so that a disagreement with Q is always explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError
from streamgauge.theory.interval import IntervalBasis, Sweep, carried, firsts, missing_units, pattern, sweep
from streamgauge.theory.ranks import composite, rank_table


@dataclass(frozen=True)
class DividedMinor:
    """``minor`` = determinant of rows x columns of the composite from level ``start`` to level ``stop``: not zero, of
    the composite's rank over Q, and divisible by ``prime``."""

    prime: int
    start: int
    stop: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    minor: Fraction


def reduce(matrix: flint.fmpq_mat, prime: int, where: str = "matrix") -> flint.nmod_mat:
    """``matrix`` over GF(p).

    **Raises** :class:`InputError` where ``prime`` is no prime below 2^64, or divides a denominator (entry named).
    """
    _check_prime(prime)
    numerators, denominator = matrix.numer_denom()
    if denominator % prime == 0:
        for i, row in enumerate(matrix.tolist()):
            for j, x in enumerate(row):
                if x.q % prime == 0:
                    raise InputError(
                        f"{where}: entry ({i}, {j}) = {x} has a denominator divisible by {prime}; "
                        "expected a prime that divides none"
                    )
    inverse = pow(int(denominator) % prime, -1, prime)
    return flint.nmod_mat(numerators, prime) * inverse


def sweep_modular(mixers: Sequence[flint.nmod_mat], dims: Sequence[int], prime: int) -> Sweep:
    """The forward pass of the interval basis over GF(p)."""
    n = dims[0]
    first = flint.nmod_mat(n, n, [int(i == j) for i in range(n) for j in range(n)], prime)
    return sweep(mixers, dims, first, lambda level, image, survivors, born: missing_units(mixers[level - 1]))


def interval_basis_modular(mixers: Sequence[flint.fmpq_mat], dims: Sequence[int], prime: int) -> IntervalBasis:
    """:func:`streamgauge.theory.interval.interval_basis` over GF(p); the gauge holds ``flint.nmod_mat``."""
    reduced = [reduce(a, prime, f"mixer {l}") for l, a in enumerate(mixers)]
    _check_prime(prime)
    swept = sweep_modular(reduced, dims, prime)
    born = {level: columns for level, (columns, _, _) in firsts(swept).items()}
    return IntervalBasis(carried(reduced, swept, born), *pattern(swept, dims))


def divided_minor(mixers: Sequence[flint.fmpq_mat], dims: Sequence[int], prime: int) -> DividedMinor | None:
    """A minor that ``prime`` divides and that shows why the ranks over GF(p) are smaller; None where they are not.

    None therefore means: Q and GF(p) have the same barcode.
    """
    reduced = [reduce(a, prime, f"mixer {l}") for l, a in enumerate(mixers)]
    over_q, over_p = rank_table(mixers, dims), rank_table(reduced, dims)
    for (i, j), rank in sorted(over_q.items(), key=lambda item: item[0][1] - item[0][0]):
        if over_p[i, j] < rank:
            product = composite(mixers, i, j)
            columns = exact.pivot_columns(*product.rref())
            rows = exact.pivot_columns(*product.transpose().rref())
            entries = [product[a, b] for a in rows for b in columns]
            minor = exact.fraction(flint.fmpq_mat(rank, rank, entries).det())
            return DividedMinor(prime, i, j, tuple(rows), tuple(columns), minor)
    return None


def _check_prime(prime: int) -> None:
    if (
        isinstance(prime, bool)
        or not isinstance(prime, int)
        or not 1 < prime < 2**64
        or not flint.fmpz(prime).is_prime()
    ):
        raise InputError(f"prime: found {prime!r}, expected a prime number below 2^64")
