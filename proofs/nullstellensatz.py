"""Certificates that polynomials have no common zero: cofactors h_i with ``sum h_i f_i = C``, a non-zero integer.

Then no point of any field whose characteristic does not divide C is a zero of all f_i.  Hilbert's Nullstellensatz
says that such cofactors exist whenever there is no common zero over the complex numbers; here they are given, and
multiplied out by the standard-library checker (kind ``nullstellensatz``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm
from typing import Any

import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.certificate import Certificate, sealed
from streamgauge.theory.errors import InputError


def nullstellensatz_certificate(
    polynomials: Sequence[Any], cofactors: Sequence[Any], *, variables: Sequence[Any] | None = None
) -> Certificate:
    """The certificate of ``sum h_i f_i = C`` with everything cleared to integers.

    - ``polynomials``, ``cofactors``: sympy expressions (or strings) with rational coefficients, as many of each.
      f_i is multiplied by its denominators, and nothing is divided out of it: in some characteristic that is a zero.
    - ``variables``: symbols in the order of the file; default: all that occur, by name.

    Cost: one expansion.  **Raises** :class:`InputError` where the sum is no non-zero constant, a cofactor is zero, or
    an expression is no polynomial over the rationals.
    """
    fs, hs = ([sp.sympify(p) for p in side] for side in (polynomials, cofactors))
    if len(fs) != len(hs) or not fs:
        raise InputError(
            f"cofactors: found {len(hs)}, expected one for each of the {len(fs)} polynomials, at least one"
        )
    found = sorted(set().union(*(p.free_symbols for p in (*fs, *hs))), key=str)
    names = found if variables is None else [sp.sympify(v) for v in variables]
    scales, f_polys = zip(*(_poly(p, names, f"polynomials[{i}]").clear_denoms() for i, p in enumerate(fs)))
    h_polys = [_poly(h, names, f"cofactors[{i}]") * (1 / s) for i, (h, s) in enumerate(zip(hs, scales))]
    total = sum((h * f for h, f in zip(h_polys, f_polys)), sp.Poly(0, *names, domain="QQ"))
    if not total.is_ground or total.is_zero:
        raise InputError(f"cofactors: sum h f = {str(total.as_expr())[:80]}, expected a constant that is not zero")
    numbers = [c for h in h_polys for c in h.coeffs()] + [total.nth(*[0] * len(names))]
    factor = sp.Rational(lcm(*(int(c.q) for c in numbers)))
    common = gcd(*(int(c * factor) for c in numbers))
    factor *= sp.Rational(-1 if numbers[-1] < 0 else 1, common)
    body = {
        "variables": [str(v) for v in names],
        "polynomials": [_terms(f) for f in f_polys],
        "cofactors": [_terms(h * factor) for h in h_polys],
        "constant": str(numbers[-1] * factor),
    }
    return sealed("nullstellensatz", "rational", body)


def _poly(expression: Any, names: Sequence[Any], place: str) -> Any:
    try:
        poly = sp.Poly(expression, *names, domain="QQ")
    except (sp.PolynomialError, sp.CoercionFailed):
        raise InputError(
            f"{place}: {str(expression)[:60]} is no polynomial over Q in {len(names)} variables"
        ) from None
    if poly.is_zero:
        raise InputError(f"{place}: is zero, expected a polynomial that takes part in the sum")
    return poly


def _terms(poly: Any) -> list[list[Any]]:
    terms = sorted(poly.terms(), reverse=True)
    return [[str(c), [int(e) for e in exponents]] for exponents, c in terms]
