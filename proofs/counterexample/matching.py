"""Both cases of the proof, on symbols and, with explicit constants, on any given two-stream pure iHC.

On the line x = (Q, -Q)/2 the network ``h.x + alpha G1(a.x) + beta G2(b.x + gamma G1(a.x))`` is a function of Q, with
c = a.q/2, d = b.q/2.  For Q >= 0, with K_i the growth and C_i the tail constants of ``tails``:

- gamma kappa c = 0 (growth): it is at most ``A_0 + A_1 Q + A_2 Q^2``, below ``Q^4 - 9/4 Q^4 e^{-Q}`` from some Q* on.
- otherwise (tail): with lambda the constant of G2 on the side sgn(gamma kappa),

      c_4 = beta lambda (gamma kappa c^2)^2,    c_3 = 2 beta lambda gamma kappa c^2 d,
      c_2 = beta lambda d^2 + alpha kappa c^2,

  and from some Q_0 on the network is ``c_4 Q^4 + c_3 Q^3 + c_2 Q^2 + c_1 Q`` up to R(Q) = o(Q^2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample import tails
from streamgauge.proofs.counterexample.activations import Branch, ball
from streamgauge.proofs.counterexample.networks import E, Network, Q, Row, Site, identity, target
from streamgauge.theory.verdict import Verdict

FURTHEST = 4096


def dot(x: Row, y: Row) -> Any:
    """The scalar product."""
    return sum(s * t for s, t in zip(x, y))


@dataclass(frozen=True)
class TwoSite:
    """A two-stream pure iHC: reads a, b, writes u, v, branches G1, G2, head h."""

    a: Row
    u: Row
    first: Branch
    b: Row
    v: Row
    second: Branch
    h: Row = E

    def network(self) -> Network:
        """As a network to run."""
        eye = identity(2)
        return Network((Site(eye, self.a, self.u, self.first), Site(eye, self.b, self.v, self.second)), (self.h,))

    @property
    def line(self) -> dict[str, Any]:
        """alpha, beta, gamma, c, d, c_1 and, by the sign cases, kappa of G1 and lambda of G2."""
        half = Fraction(1, 2)
        out = {
            "alpha": dot(self.h, self.u),
            "beta": dot(self.h, self.v),
            "gamma": dot(self.b, self.u),
            "c": dot(self.a, Q) * half,
            "d": dot(self.b, Q) * half,
            "c1": dot(self.h, Q) * half,
        }
        out["kappa"] = self.first.kappa(1 if out["c"] > 0 else -1) if out["c"] else 0
        direction = out["gamma"] * out["kappa"]
        out["lambda"] = self.second.kappa(1 if direction > 0 else -1) if direction else 0
        return out

    def along(self, q: flint.arb) -> flint.arb:
        """The output on the line."""
        (value,) = self.network().run([q / 2, -q / 2])
        return ball(value)


def symbolic_remainder() -> Verdict:
    """The expansion of the tail case for *every* branch and every S: what is left is o(Q^2).

    ``G1(cQ + c'S) = K (cQ + c'S)^2 + r``, ``G2(z) = L z^2 + s`` with r, s = o(1) for fixed S, and a constant z_0 in
    the inner argument (the bias of a down-projection).  Then, with k = K c^2 and p = K c c',

        Q^4: beta L gamma^2 k^2,    Q^3: 2 beta L gamma k (2 gamma p S + d),
        Q^2: beta L ((2 gamma p S + d)^2 + 2 gamma k (gamma K c'^2 S^2 + f S + z_0)) + alpha k,

    and every other monomial has degree below 2 in Q, or degree 2 and a factor r.
    """
    q, r, s, alpha, beta, gamma, d, f, big, lam, c, c2, side, z0, h1 = sp.symbols(
        "Q r s alpha beta gamma d f K L c c2 S z0 h1"
    )
    first = big * (c * q + c2 * side) ** 2 + r
    inner = d * q + f * side + z0 + gamma * first
    output = h1 * q + alpha * first + beta * (lam * inner**2 + s)
    k, mixed = big * c**2, 2 * gamma * big * c * c2 * side + d
    rest_of_square = gamma * big * c2**2 * side**2 + f * side + z0
    stated = (
        beta * lam * gamma**2 * k**2 * q**4
        + 2 * beta * lam * gamma * k * mixed * q**3
        + (beta * lam * (mixed**2 + 2 * gamma * k * rest_of_square) + alpha * k) * q**2
    )
    rest = sp.Poly(sp.expand(output - stated), q, r, s)
    bad = [str(m) for m in rest.monoms() if m[0] > 2 or (m[0] == 2 and m[1] == m[2] == 0)]
    if bad:
        return Verdict(False, "a term is not o(Q^2)", {"monomials of (Q, r, s)": bad})
    here = sp.expand(rest.as_expr().subs({side: 0, z0: 0}))
    return Verdict(True, "Q^4, Q^3, Q^2 as stated, the rest o(Q^2)", {"rest": str(here), "shown": "S = z0 = 0"})


def small(x: Any) -> flint.arb:
    """|x| as a ball."""
    return abs(ball(x))


def growth_bound(net: TwoSite) -> tuple[flint.arb, flint.arb, flint.arb]:
    """(A_0, A_1, A_2) with ``|network| <= A_0 + A_1 Q + A_2 Q^2`` for every Q >= 0, where gamma kappa c = 0."""
    n = net.line
    alpha, beta, gamma, c, d = (small(n[x]) for x in ("alpha", "beta", "gamma", "c", "d"))
    k1, k2 = tails.growth(net.first), tails.growth(net.second)
    zero = flint.arb(0)
    if n["gamma"] == 0 or n["c"] == 0:
        return zero, small(n["c1"]), alpha * k1 * c * c + beta * k2 * d * d
    e1 = tails.constant_bound(net.first)  # kappa = 0: G1(c Q) is its remainder
    inner = gamma * e1
    return alpha * e1 + beta * k2 * inner**2, small(n["c1"]) + 2 * beta * k2 * d * inner, beta * k2 * d * d


def growth_case(net: TwoSite, points: Sequence[int] = (1, 2, 5, 10, 30, 100)) -> Verdict:
    """The growth case of one network: the bound holds at the points, and from Q* on the target is above it."""
    n = net.line
    a0, a1, a2 = growth_bound(net)
    for q in map(flint.arb, points):
        bound, value = a0 + a1 * q + a2 * q * q, net.along(q)
        if abs(value) > bound:
            facts = {"Q": float(q), "network": float(value), "bound": float(bound), **_strings(n)}
            return Verdict(False, f"grows faster than its bound at Q = {float(q):g}", facts)
    star = next((q for q in _powers() if _least_target(q) > a0 + a1 * q + a2 * q * q), None)
    if star is None:
        return Verdict(False, "the target was not seen above the bound", _strings(n))
    which = next(name for name in ("gamma", "c", "kappa") if n[name] == 0)
    facts = {"case": f"{which} = 0", "bound": [float(a) for a in (a0, a1, a2)], "Q*": float(star)}
    return Verdict(True, f"growth, {which} = 0: no Q^4", facts)


def tail_case(net: TwoSite) -> Verdict:
    """The tail case of one network with h = e: polynomial and remainder hold at Q_0 2^i, and cannot be Q^4.

    Needs gamma kappa c != 0.  The witness holds the coefficients, the sign case and a Q* where the difference of the
    polynomials exceeds both remainders.
    """
    n = net.line
    if n["gamma"] * n["kappa"] * n["c"] == 0:
        return growth_case(net)
    alpha, beta, gamma, c, d = (ball(n[x]) for x in ("alpha", "beta", "gamma", "c", "d"))
    k, l = ball(n["kappa"]) * c * c, ball(n["lambda"])
    coefficients = (beta * l * (gamma * k) ** 2, 2 * beta * l * gamma * k * d, beta * l * d * d + alpha * k)
    e1, e2 = tails.constant_bound(net.first), tails.constant_bound(net.second)
    settled = next(q for q in _powers() if abs(gamma * k) * q * q > 2 * (abs(d) * q + abs(gamma) * e1))

    def rest(q: flint.arb) -> flint.arb:
        r = tails.remainder_bound(net.first, c * q)
        inner = 2 * (abs(d) * q + abs(gamma * k) * q * q) * r + abs(gamma) * r * r
        return abs(beta * l * gamma) * inner + abs(beta) * e2 + abs(alpha) * r

    def polynomial(q: flint.arb) -> flint.arb:
        return coefficients[0] * q**4 + coefficients[1] * q**3 + coefficients[2] * q * q + ball(n["c1"]) * q

    facts = {
        "signs": f"c {_sign(n['c'])}, gamma kappa {_sign(n['gamma'] * n['kappa'])}",
        "coefficients": [float(x) for x in coefficients],
        "Q0": float(settled),
        **_strings(n),
    }
    with flint.ctx.workprec(300):
        for i in range(4):
            q = settled * 2**i
            if abs(net.along(q) - polynomial(q)) > rest(q):
                return Verdict(False, f"not its tail polynomial at Q = {float(q):g}", {**facts, "Q": float(q)})
        star = next((q for q in _powers() if q >= settled and _apart(q, polynomial(q), rest(q))), None)
    if star is None:
        return Verdict(False, "the tail polynomial is the target's", facts)
    return Verdict(True, f"tail ({facts['signs']}): not Q^4", {**facts, "Q*": float(star)})


def _apart(q: flint.arb, polynomial: flint.arb, rest: flint.arb) -> bool:
    return bool(abs(polynomial - q**4) > rest + ball(Fraction(9, 4)) * q**4 * (-q).exp())


def _least_target(q: flint.arb) -> flint.arb:
    return q**4 - ball(Fraction(9, 4)) * q**4 * (-q).exp()


def _powers() -> list[flint.arb]:
    return [flint.arb(2) ** i for i in range(1, 200)]


def _strings(numbers: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in numbers.items()}


def _sign(x: Any) -> str:
    return "> 0" if x > 0 else "< 0" if x < 0 else "= 0"


def refuted(network: Network) -> Verdict:
    """A point where the network differs from the target for certain: disjoint balls.

    Small inputs convict a head that is not e, large Q on a few lines S = const everything else that the theorem
    covers.  Not ok: no such point among those tried.
    """
    with flint.ctx.workprec(400):
        tried = 0
        for q in (Fraction(2) ** i for i in (*range(-6, 8), *range(-12, -6), *range(8, FURTHEST.bit_length()))):
            for s in (Fraction(0), q, -q, Fraction(1), Fraction(-3)):
                x = ((s + q) / 2, (s - q) / 2)
                found, value = network.run([ball(v) for v in x])[0], target([ball(v) for v in x])
                tried += 1
                if not found.overlaps(value):
                    facts = {"x": [str(v) for v in x], "network": found.str(9), "target": value.str(9)}
                    return Verdict(True, f"differs at x = ({x[0]}, {x[1]})", facts)
    return Verdict(False, f"meets the target at {tried} points", {"points": tried})
