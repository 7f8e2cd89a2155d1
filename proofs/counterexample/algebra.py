"""The polynomial systems of the counterexample: no common zero, by cofactors; a zero once any polynomial is dropped.

Each system collects what a pure iHC would have to satisfy in the case gamma kappa != 0 (the growth case needs no
algebra).  Letters: b = beta, l = lambda, g = gamma, k = kappa c^2, a = alpha; E = b l g k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs import checker
from streamgauge.proofs.certificate import Certificate
from streamgauge.proofs.nullstellensatz import nullstellensatz_certificate
from streamgauge.theory.verdict import Verdict

Point = Mapping[str, Any]
SMALL = 6


@dataclass(frozen=True)
class System:
    """``polynomials`` f with ``cofactors`` h, sum h f a non-zero constant.

    ``without[i]``: a rational zero of all polynomials but the i-th, so that each of them is needed.
    ``in_two``: a zero over the field of two elements, where the factor 2 has gone.
    """

    name: str
    polynomials: tuple[Any, ...]
    cofactors: tuple[Any, ...]
    without: tuple[Point, ...]
    in_two: Point

    @property
    def variables(self) -> list[Any]:
        """Symbols, by name."""
        return sorted(set().union(*(f.free_symbols for f in self.polynomials)), key=str)

    def dropped(self, i: int) -> tuple[Any, ...]:
        """All polynomials but the i-th."""
        return self.polynomials[:i] + self.polynomials[i + 1 :]

    def certificate(self) -> Certificate:
        """For the standard-library checker."""
        return nullstellensatz_certificate(self.polynomials, self.cofactors)


def basis_is_one(polynomials: Sequence[Any], variables: Sequence[Any], modulus: int | None = None) -> Verdict:
    """Whether the Groebner basis is {1}: no common zero over an algebraic closure (of Q, or of F_p)."""
    options = {} if modulus is None else {"modulus": modulus}
    found = sp.groebner([f for f in polynomials if f != 0], *variables, order="grevlex", **options)
    one = len(found.exprs) == 1 and found.exprs[0] == 1
    return Verdict(one, "basis {1}" if one else "the ideal is proper", {"elements": len(found.exprs)})


def vanish_at(polynomials: Sequence[Any], point: Point, modulus: int | None = None) -> Verdict:
    """Whether every polynomial is zero at the point (unnamed variables are 0), in Q or modulo a prime."""
    values = []
    for f in polynomials:
        symbols = {s: sp.Rational(str(point.get(str(s), 0))) for s in f.free_symbols}
        value = sp.Rational(f.subs(symbols)) if symbols else f
        values.append(value if modulus is None else value % modulus)
    ok = all(v == 0 for v in values)
    return Verdict(
        ok, "a common zero" if ok else "no zero", {"values": [str(v) for v in values], "point": dict(point)}
    )


def has_no_zero(system: System) -> Verdict:
    """Two routes: the cofactors multiplied out by the independent checker, and the Groebner basis over Q."""
    made = system.certificate()
    result = checker.check_text(made.text)
    if not result.accepted:
        return Verdict(False, result.reason, {"system": system.name})
    basis = basis_is_one(system.polynomials, system.variables)
    facts = {"system": system.name, "polynomials": len(system.polynomials), "constant": made.data["constant"]}
    return Verdict(basis.ok, f"cofactors sum to {facts['constant']}; Groebner {basis.reason}", facts)


def every_polynomial_is_needed(system: System) -> Verdict:
    """Dropping any one leaves a proper ideal, with a rational zero of the rest."""
    for i, point in enumerate(system.without):
        zero = vanish_at(system.dropped(i), point)
        small = len(system.polynomials) <= SMALL  # the zero alone proves it; the basis is a second route where cheap
        if not zero or (small and basis_is_one(system.dropped(i), system.variables)):
            return Verdict(False, f"{system.name} without f{i + 1}: {zero.reason}", zero.witness)
    points = [{k: str(v) for k, v in point.items()} for point in system.without]
    return Verdict(True, f"{system.name}: each of {len(points)} polynomials is needed", {"zeros": points})


def _dots(*pairs: tuple[str, str], n: int = 2) -> list[Any]:
    """Scalar products of vectors of symbols by their letters: u = (u1, u2)."""
    return [sum(sp.Symbol(f"{x}{i}") * sp.Symbol(f"{y}{i}") for i in range(1, n + 1)) for x, y in pairs]


def seed() -> System:
    """The essay's: with h = e, on S = 0.  d = 0 from f2, a = 0 from f3, b1 = b2 from f6, so g = b1 a = 0."""
    b, l, g, k, a, d, u1, u2, b1, b2 = sp.symbols("b l g k a d u1 u2 b1 b2")
    polynomials = (
        b * l * g**2 * k**2 - 1,
        2 * b * l * d * g * k,
        a * k + b * l * d**2,
        a - (u1 + u2),
        g - (b1 * u1 + b2 * u2),
        2 * d - (b1 - b2),
    )
    e = b * l * g * k
    cofactors = (
        sp.Integer(-1), -k * u2 - b1 * b * l * d / 2, b1 * e, -b1 * e * k, e * k, u2 * e * k,
    )  # fmt: skip
    half = Fraction(1, 2)
    unit = dict.fromkeys("blgk", 1)
    without: tuple[Point, ...] = (
        {},
        {**unit, "d": 1, "a": -1, "u1": half, "u2": -3 * half, "b1": 2},
        {**unit, "a": 1, "u1": 1, "b1": 1, "b2": 1},
        {**unit, "u1": 1, "b1": 1, "b2": 1},
        unit,
        {**unit, "u1": half, "u2": -half, "b1": 1, "b2": -1},
    )
    in_two = {**unit, "a": 1, "d": 1, "u1": 1, "b1": 1, "b2": 1}
    return System("six polynomials", polynomials, cofactors, without, in_two)


def embedded() -> System:
    """Y_0 = M x: m = M q, p = M e, ``h.m = e.q = 0``, ``h.p = e.e = 2``, and m != 0 (s.m = 1 for some s).

    Else the output would ignore Q.  b and h are both orthogonal to m, so parallel, and gamma is a multiple of alpha.
    """
    b, l, g, k, a, d, u1, u2, b1, b2, h1, h2, p1, p2, s1, s2 = sp.symbols("b l g k a d u1 u2 b1 b2 h1 h2 p1 p2 s1 s2")
    hu, bu, bm, hm, hp, sm, bp = _dots(
        ("h", "u"), ("b", "u"), ("b", "m"), ("h", "m"), ("h", "p"), ("s", "m"), ("b", "p")
    )
    e = b * l * g * k
    polynomials = (
        b * l * g**2 * k**2 - 1, 2 * b * l * d * g * k, a * k + b * l * d**2,
        a - hu, g - bu, 2 * d - bm, hm, hp - 2, sm - 1,
    )  # fmt: skip
    cross, w = b1 * h2 - b2 * h1, p2 * u1 - p1 * u2
    by_b, by_h = s1 * h2 - s2 * h1, s2 * b1 - s1 * b2  # cross (s.m) = by_b (b.m) + by_h (h.m)
    cofactors = (
        sp.Integer(-2),
        -bp * b * l * d / 2 + k * w * by_b,
        bp * e,
        -bp * e * k,
        e * k * hp,
        -k * w * by_b * e,
        k * w * by_h * e,
        -e * k * g,
        -k * w * cross * e,
    )
    half = Fraction(1, 2)
    unit = dict.fromkeys("blgk", 1)
    plane = {"h1": 1, "h2": 1, "p1": 1, "p2": 1, "m1": 1, "m2": -1, "s1": half, "s2": -half}
    as_seed = [{**plane, **point} for point in seed().without]
    without: tuple[Point, ...] = (
        *as_seed,
        {**unit, "m1": 1, "s1": 1, "b2": 1, "u2": 1, "h1": 1, "p1": 2},
        {**unit, "m1": 1, "m2": -1, "s1": 1, "b1": 1, "b2": 1, "u1": 1},
        {**unit, "h1": 1, "h2": 1, "u1": 1, "u2": -1, "b1": 1, "p1": 1, "p2": 1},
    )
    in_two = {**unit, "d": 1, "a": 1, "m1": 1, "s1": 1, "h2": 1, "u2": 1, "b1": 0, "b2": 1, "p1": 1}
    return System("free embedding", polynomials, cofactors, without, in_two)


def every_direction(n: int = 2) -> System:
    """The theorem's own route for n streams: S_1 .. S_{n-1} are coordinates beside Q, ``b.x = d Q + sum f_j S_j``.

    p_j = kappa c c_j.  No condition at 0, any head, a down-projection bias allowed: gamma = d u0 + sum f_j w_j, and
    the coefficients of Q^3 and of S_j Q^2 give d = 0 and f_j = 0.
    """
    b, l, g, k, d, u0 = sp.symbols("b l g k d u0")
    ps, fs, ws = (sp.symbols(f"{x}1:{n}") for x in "pfw")
    e = b * l * g * k
    mixed = [2 * b * l * g * (k * f + 2 * p * d) for f, p in zip(fs, ps)]
    polynomials = (
        b * l * g**2 * k**2 - 1, 2 * b * l * d * g * k, *mixed, g - d * u0 - sum(f * w for f, w in zip(fs, ws)),
    )  # fmt: skip
    cofactors = (
        sp.Integer(-2), k * u0 - 2 * sum(p * w for p, w in zip(ps, ws)), *(k * w for w in ws), 2 * k * e,
    )  # fmt: skip
    unit = dict.fromkeys("blgk", 1)
    seen = {"d": 1, **{f"p{j}": Fraction(1, 2) for j in range(1, n)}, **{f"f{j}": -1 for j in range(1, n)}, "u0": 1}
    without: tuple[Point, ...] = (
        {},
        {**unit, **seen},
        *({**unit, f"f{j}": 1, f"w{j}": 1} for j in range(1, n)),
        unit,
    )
    return System(f"every direction of {n} streams", polynomials, cofactors, without, {**unit, "d": 1, "u0": 1})
