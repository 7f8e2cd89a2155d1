"""The binary form (Theorem 2): every static chain is a gated iHC whose gates are 0 or 1, exactly.

A_l P_l = P_{l+1} E_l,    E_l 0/1 diagonal in slot order,    P_l invertible over Q.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

import flint

from streamgauge.theory.chain import Chain
from streamgauge.theory.form import Bar, NormalForm, RankLabel
from streamgauge.theory.interval import IntervalBasis, interval_basis


def binary_form(chain: Chain, *, integral: bool = False) -> NormalForm:
    """The canonical 0/1 form of ``chain``, square or rectangular.

    A float64 chain is taken as the dyadic rationals it holds; the form's ``chain`` is then ``chain.rational()``.
    ``integral``: multiply every bar, over its whole life, by the one constant that makes its columns integers
    without common factor, so that P_l is integral and E_l still 0/1.

    Cost: O(L n^3) rational operations; entries grow linearly with the longest bar.  Source: Theorem 2.
    """
    rational = chain.rational()
    basis = interval_basis(rational.mixers, rational.dims)
    gauge = _integral(basis) if integral else basis.gauge
    gates = tuple(tuple(Fraction(x) for x in gate) for gate in basis.gates)
    ranks = tuple(RankLabel(rank, exact=True) for rank in basis.ranks)
    return NormalForm("binary", rational, gauge, basis.slots, gates, basis.bars, ranks)


def _integral(basis: IntervalBasis) -> tuple[flint.fmpq_mat, ...]:
    at = [{slot: j for j, slot in enumerate(slots)} for slots in basis.slots]
    factors: list[dict[int, flint.fmpq]] = [{} for _ in basis.gauge]
    for bar in basis.bars:
        factor = _constant(basis, bar, at)
        for level in range(bar.birth, bar.death + 1):
            factors[level][at[level][bar.slot]] = factor
    scaled = []
    for p, constants in zip(basis.gauge, factors):
        diagonal = flint.fmpq_mat(p.ncols(), p.ncols())
        for j, x in constants.items():
            diagonal[j, j] = x
        scaled.append(p * diagonal)
    return tuple(scaled)


def _constant(basis: IntervalBasis, bar: Bar, at: list[dict[int, int]]) -> flint.fmpq:
    """The positive constant that makes the bar's columns integers without common factor."""
    denominators, numerators = 1, 0
    for level in range(bar.birth, bar.death + 1):
        p, j = basis.gauge[level], at[level][bar.slot]
        column = [p[i, j] for i in range(p.nrows())]
        denominators = lcm(denominators, *(int(x.q) for x in column))
        numerators = gcd(numerators, *(int(x.p) for x in column))
    return flint.fmpq(denominators, numerators)
