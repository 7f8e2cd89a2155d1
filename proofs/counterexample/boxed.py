"""The counterexample inside mHC's own parameter boxes: reads in (0, 1), writes in (0, 2), A_0 = J (proposition P4).

With S = x1 + x2 and t = p_1 x, the sum readout of the mHC with A_0 = J, reads p_1, p_2, writes r_1, r_2 is

    S + mu phi(t) + nu phi(omega S + rho phi(t)),    mu = 1.r_1,  nu = 1.r_2,  omega = p_2.1 / 2,  rho = p_2.r_1.

If p_1 is not parallel to (1, 1), nu != 0, rho > 0 and rho != mu omega, no two-stream pure iHC is this function.
Proof: h = (1, 1) by (T0).  Fix S, let t go to +infinity, and let the second read be d_s S + d_t t: t^4, t^3, the part
of t^2 in S and t^2 itself give f1 .. f4; alpha = u1 + u2 and gamma = (d_s e + d_t p_1).u are f5 and f6.  Growth
excludes gamma k = 0.
With rho = mu omega it *is* representable: a = p_1, b = omega e, u = r_1, v = r_2, h = e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample.algebra import Point, System
from streamgauge.proofs.counterexample.networks import HALF, E, J, Network, Row, Site, identity
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Boxed:
    """Reads and writes of the two sites; the numbers of P4 are the default."""

    p1: Row = (Fraction(3, 4), Fraction(1, 4))
    p2: Row = (Fraction(1, 2), Fraction(1, 3))
    r1: Row = (Fraction(1), Fraction(1, 2))
    r2: Row = (Fraction(1), Fraction(1))

    @property
    def mu(self) -> Fraction:
        """mu = 1^T r1."""
        return Fraction(sum(self.r1))

    @property
    def nu(self) -> Fraction:
        """nu = 1^T r2."""
        return Fraction(sum(self.r2))

    @property
    def omega(self) -> Fraction:
        """omega = p2 1 / 2."""
        return Fraction(sum(self.p2)) * HALF

    @property
    def rho(self) -> Fraction:
        """rho = p2 r1."""
        return Fraction(sum(x * y for x, y in zip(self.p2, self.r1)))

    def mhc(self) -> Network:
        """``A_0 = J``, ``A_1 = I`` (any matrix with unit column sums would do), sum readout."""
        return Network((Site(J, self.p1, self.r1), Site(identity(2), self.p2, self.r2)), (E,))

    def pure(self) -> Network:
        """The pure iHC that is the same function exactly when rho = mu omega."""
        read = (self.omega, self.omega)
        return Network((Site(identity(2), self.p1, self.r1), Site(identity(2), read, self.r2)), (E,))

    def target(self, x: Sequence[Any], psi: Any) -> Any:
        """``S + mu psi(t) + nu psi(omega S + rho psi(t))``."""
        s, t = x[0] + x[1], sum(sp.sympify(p) * y for p, y in zip(self.p1, x))
        mu, nu, omega, rho = (sp.sympify(v) for v in (self.mu, self.nu, self.omega, self.rho))
        return s + mu * psi(t) + nu * psi(sp.expand(omega * s + rho * psi(t)))


EQUAL = Boxed(p2=(HALF, HALF))
"""rho = mu omega = 3/4: representable by two streams."""


def in_boxes(network: Network) -> Verdict:
    """Reads in (0, 1), writes in (0, 2), mixers doubly stochastic: what mHC's sigmoids and Sinkhorn allow."""
    for l, site in enumerate(network.sites):
        if not all(0 < x < 1 for x in site.read):
            return Verdict(
                False, f"site {l}: a read is outside (0, 1)", {"site": l, "read": [str(x) for x in site.read]}
            )
        if not all(0 < x < 2 for x in site.write):
            facts = {"site": l, "write": [str(x) for x in site.write]}
            return Verdict(False, f"site {l}: a write is outside (0, 2)", facts)
        sums = [sum(row) for row in (*site.mixer, *zip(*site.mixer))]
        if any(x < 0 for row in site.mixer for x in row) or any(x != 1 for x in sums):
            return Verdict(False, f"site {l}: not doubly stochastic", {"site": l, "sums": [str(x) for x in sums]})
    return Verdict(True, "reads, writes and mixers are inside mHC's boxes", {"sites": len(network.sites)})


def excluded(boxed: Boxed) -> Verdict:
    """Whether the condition of P4 holds, so that no two-stream pure iHC is this function."""
    gap = boxed.rho - boxed.mu * boxed.omega
    facts = {name: str(getattr(boxed, name)) for name in ("mu", "nu", "omega", "rho")} | {"gap": str(gap)}
    ok = boxed.p1[0] != boxed.p1[1] and boxed.nu != 0 and boxed.rho > 0 and gap != 0
    return Verdict(ok, f"rho - mu omega = {gap}", facts)


def general_system() -> System:
    """For all numbers at once: mu, nu, omega, rho and p_1 are variables, ``z nu rho^2 (rho - mu omega) = 1``."""
    mu, nu, omega, rho, p1, p2, z = sp.symbols("mu nu omega rho p1 p2 z")
    polynomials, cofactors = _parts(mu, nu, omega, rho, p1, p2)
    gap = nu * rho**2 * (rho - mu * omega)
    unit, numbers = dict.fromkeys("blgk", 1), {"nu": 1, "rho": 1}
    without: tuple[Point, ...] = (
        {**numbers, "z": 1},
        {**unit, **numbers, "z": 1, "dt": 1, "p1": 1, "u1": 1, "u2": -1, "mu": 1},
        {**unit, **numbers, "z": 1, "ds": 1, "a": 1, "u1": 1, "mu": 1},
        {**unit, **numbers, "z": -1, "ds": 1, "a": 1, "u1": 1, "mu": 2, "omega": 1},
        {**unit, **numbers, "z": -1, "ds": 1, "a": 2, "u1": 1, "mu": 2, "omega": 1},
        {**unit, **numbers, "z": 1},
        {**unit, **numbers, "ds": 1, "a": 1, "u1": 1, "mu": 1, "omega": 1},
    )
    in_two = {**unit, **numbers, "z": 1, "ds": 1, "a": 1, "u1": 1, "mu": 1}
    return System(
        "boxed, all numbers",
        (*polynomials, z * gap - 1),
        (*(z * rho * h for h in cofactors), sp.Integer(-2)),
        without,
        in_two,
    )


def system(boxed: Boxed) -> System:
    """The six polynomials with the numbers of one boxed network; the sum is ``2 nu rho (rho - mu omega)``."""
    numbers = [sp.Rational(str(v)) for v in (boxed.mu, boxed.nu, boxed.omega, boxed.rho, *boxed.p1)]
    polynomials, cofactors = _parts(*numbers)
    return System("boxed", polynomials, cofactors, (), {})


def _parts(mu: Any, nu: Any, omega: Any, rho: Any, p1: Any, p2: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """f1 .. f6 and cofactors with ``sum h f = 2 nu rho (rho - mu omega)``."""
    b, l, g, k, a, ds, dt, u1, u2 = sp.symbols("b l g k a ds dt u1 u2")
    e, pu = b * l * g * k, p1 * u1 + p2 * u2
    polynomials = (
        b * l * g**2 * k**2 - nu * rho**2,
        2 * e * dt,
        2 * (e * ds - nu * omega * rho),
        a * k + b * l * dt**2 - mu,
        a - (u1 + u2),
        g - (ds * (u1 + u2) + dt * pu),
    )
    cofactors = (
        -2 + 2 * omega / rho * b * l * dt**2,
        k * pu - omega / rho * b * l * dt * g * k,
        k * (u1 + u2),
        2 * nu * omega * rho,
        -2 * nu * omega * rho * k,
        2 * e * k,
    )
    return polynomials, cofactors
