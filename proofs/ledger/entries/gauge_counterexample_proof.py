"""Gauge essay, sections 4 and 5, second half of the counterexample: from the tails to the contradiction."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs import checker
from streamgauge.proofs.counterexample import algebra, matching
from streamgauge.proofs.counterexample.activations import KINDS, PHI, Branch, Kind, Unit, ball, covered
from streamgauge.proofs.counterexample.controls import CONTROLS, is_shifted, resetting
from streamgauge.proofs.counterexample.matching import TwoSite
from streamgauge.proofs.counterexample.networks import E, Q, computes_target, near
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.tools import counted, fixed, vanishes, verdict
from streamgauge.proofs.nullstellensatz import nullstellensatz_certificate
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

# G21: where a Q^4 comes from


def fourth_power_from_positive_tails(value: TwoSite) -> Verdict:
    """``N(Q) / Q^4`` at Q = 2^60 is ``beta lambda (gamma kappa c^2)^2`` with the *positive* tails kappa, lambda."""
    n = value.line
    stated = n["beta"] * value.second.kappa(1) * (n["gamma"] * value.first.kappa(1) * n["c"] ** 2) ** 2
    with flint.ctx.workprec(600):
        q = flint.arb(2) ** 60
        found = value.along(q) / q**4
        ok = bool(abs(found - ball(stated)) < flint.arb(2) ** -40 * (1 + abs(ball(stated))))
    reason = f"coefficient of Q^4: {float(found):.6g}, stated {stated}"
    return verdict(ok, reason, found=float(found), stated=str(stated), c=str(n["c"]), gamma=str(n["gamma"]))


_LEFT = Branch((Unit(v=-1, w=-1),), name="z^2 sigma(-z)")
_POSITIVE = TwoSite(Q, (1, 0), PHI, (2, 1), (1, 1), PHI)
_NEGATIVE = TwoSite((-1, 1), (1, 0), _LEFT, (2, 1), (1, 1), PHI)


def _positive(seed: int) -> Case:
    rng = random.Random(seed)

    def number() -> Fraction:
        return Fraction(rng.randint(1, 9), rng.randint(1, 4))

    def branch() -> Branch:
        return Branch(tuple(Unit(m=number(), w=number(), v=number()) for _ in range(2)))

    net = TwoSite(
        (number(), -number()), (number(), 0), branch(), (number(), number()), (number(), number()), branch()
    )
    return Case(f"c > 0, gamma kappa > 0, number {seed}", net)


G21 = Claim(
    id="G21",
    document="G",
    section="4",
    statement=r"A $Q^4$ needs $\kappa \neq 0$ in the quadratic tail $G_1(cQ) \sim \kappa Q^2$ of site 1; then it is "
    r"$\beta\lambda\gamma^2\kappa^2Q^4$.",
    kind="theorem",
    method="numeric reproduction",
    hypotheses=(
        "bias-free SwiGLU of finite width",
        "n = 2, zero-mean line, Q to +infinity",
        "static reads and writes",
    ),
    literal=Check(
        "The coefficient of Q^4 in 600-bit balls against the formula with the tails of G1, G2 at +infinity.",
        fourth_power_from_positive_tails,
        fixed(Case("c = 1", _POSITIVE), Case("c = -1, G1 = z^2 sigma(-z)", _NEGATIVE)),
        Case("c = -1, G1 = z^2 sigma(-z)", _NEGATIVE),
    ),
    repair=Repair(
        r"With $c > 0$ and $\gamma\kappa > 0$ the tails at $+\infty$ are the ones that count.",
        Check(
            "Random networks with positive c and gamma kappa.",
            fourth_power_from_positive_tails,
            counted(6, 40, _positive),
            Case("c = -1", _NEGATIVE),
        ),
        hypothesis="c > 0 and gamma kappa > 0",
    ),
    note="In general kappa is the tail of G1 on the side sgn c, lambda that of G2 on the side sgn(gamma kappa): "
    "all four sign cases, and gamma = 0, c = 0, kappa = 0, are claims CE03 and CE04.",
)


# G22: what "~" can say


def lower_coefficients(value: TwoSite) -> Verdict:
    """``N - c_4 Q^4 - c_3 Q^3 - c_2 Q^2 = o(Q^2)``: its size over Q^2 at Q = 2^20, 2^40, 2^60 falls to 0."""
    n = value.line
    k = n["kappa"] * n["c"] ** 2
    c4, c3 = n["beta"] * n["lambda"] * (n["gamma"] * k) ** 2, 2 * n["beta"] * n["lambda"] * n["gamma"] * k * n["d"]
    c2 = n["beta"] * n["lambda"] * n["d"] ** 2 + n["alpha"] * k
    sizes = []
    with flint.ctx.workprec(600):
        for power in (20, 40, 60):
            q = flint.arb(2) ** power
            rest = value.along(q) - ball(c4) * q**4 - ball(c3) * q**3 - ball(c2) * q**2
            sizes.append(float(abs(rest) / q**2 / (1 + abs(ball(c4)))))
    ok = sizes[0] < 1e-3 and sizes[2] < 1e-12
    return verdict(ok, "lower coefficients as stated" if ok else "another Q^2 or Q^3", over_q2=sizes, c4=str(c4))


_BIASED = Branch((Unit(c=1),), name="(z + 1) swish(z)")
_MISREAD = TwoSite(Q, (1, 0), PHI, (2, 1), (1, 1), _BIASED)


def _tail_network(seed: int) -> Case:
    net = random_network(seed, sign=1)  # gates of site 1 on the side that c Q goes to: kappa is not 0
    a = tuple(abs(x) if i == 0 else -abs(x) for i, x in enumerate(net.a))
    return Case(f"bias-free, number {seed}", replace(net, a=a))


def random_network(seed: int, sign: int | None = None) -> TwoSite:
    """A random bias-free two-site pure iHC with head e; ``sign``: the sign of every gate weight of site 1."""
    rng = random.Random(seed)

    def number() -> Fraction:
        return Fraction(rng.choice([-1, 1]) * rng.randint(1, 9), rng.randint(1, 4))

    def branch(side: int | None) -> Branch:
        units = [
            (number(), number(), number() if side is None else side * abs(number())) for _ in range(1 + seed % 3)
        ]
        return Branch(tuple(Unit(m=m, w=w, v=v) for m, w, v in units), name="SwiGLU")

    rows = [(number(), number()) for _ in range(4)]
    return TwoSite(rows[0], rows[1], branch(sign), rows[2], rows[3], branch(None))


G22 = Claim(
    id="G22",
    document="G",
    section="4",
    statement=r"From $G_2(z) \sim \lambda z^2$ the terms $\lambda(dQ + \gamma\kappa Q^2)^2$ give the coefficients of "
    r"$Q^3$ and $Q^2$.",
    kind="theorem",
    method="numeric reproduction",
    hypotheses=(r"$\gamma\kappa c \neq 0$, Q to +infinity on the zero-mean line", "n = 2, two sites"),
    literal=Check(
        "Branches with G ~ lambda z^2: what remains after the stated Q^4, Q^3, Q^2, over Q^2, as Q grows.",
        lower_coefficients,
        fixed(Case("phi", _POSITIVE), Case("(z + 1) swish(z) ~ z^2", _MISREAD)),
        Case("(z + 1) swish(z) ~ z^2", _MISREAD),
    ),
    repair=Repair(
        r"With $G(z) = \kappa_\pm z^2 + o(1)$ at $\pm\infty$ they do.",
        Check(
            "Random bias-free SwiGLU, whose remainder is O(z^2 exp(-c |z|)).",
            lower_coefficients,
            counted(8, 60, _tail_network),
            Case("(z + 1) swish(z), remainder z", _MISREAD),
        ),
    ),
    note="The sharpened statement is also proved on symbols: every term of the rest is o(Q^2).",
)


# G23: the algebra


@dataclass(frozen=True)
class Cofactors:
    """Polynomials, cofactors, and a point that may be a zero of all of them."""

    polynomials: tuple[Any, ...]
    cofactors: tuple[Any, ...]
    candidate: Mapping[str, Any] | None = None


def no_common_zero(value: Cofactors) -> Verdict:
    """Groebner basis {1} over Q, and the cofactors multiplied out by the standard-library checker."""
    if value.candidate is not None:
        zero = algebra.vanish_at(value.polynomials, value.candidate)
        if zero:
            return verdict(False, "a common zero", zero={k: str(v) for k, v in value.candidate.items()})
    variables = sorted(set().union(*(f.free_symbols for f in value.polynomials)), key=str)
    basis = algebra.basis_is_one(value.polynomials, variables)
    if not basis:
        return verdict(False, basis.reason, **basis.witness)
    try:
        made = nullstellensatz_certificate(value.polynomials, value.cofactors)
    except InputError as error:
        return verdict(False, str(error), polynomials=len(value.polynomials))
    result = checker.check_text(made.text)
    return verdict(result.accepted, result.reason, constant=made.data["constant"], digest=made.digest)


def with_cofactors(system: algebra.System) -> Cofactors:
    """The system as it stands."""
    return Cofactors(system.polynomials, system.cofactors)


def without(system: algebra.System, i: int) -> Cofactors:
    """The system without its i-th polynomial, and the zero that the rest has."""
    cofactors = system.cofactors[:i] + system.cofactors[i + 1 :]
    return Cofactors(system.dropped(i), cofactors, system.without[i])


G23 = Claim(
    id="G23",
    document="G",
    section="4",
    statement=r"No $Q^3$ gives $d = 0$, so $b \parallel e$; no $Q^2$ gives $\alpha = 0$, so $u \parallel q$; "
    r"then $\gamma = b^Tu = 0$, a contradiction.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("n = 2, Y_0 = x, h = e", r"$\gamma\kappa \neq 0$", "any field of characteristic not 2"),
    literal=Check(
        "Six polynomials in ten unknowns: Groebner basis {1}, and cofactors checked by exact multiplication.",
        no_common_zero,
        fixed(Case("the six polynomials", with_cofactors(algebra.seed()))),
        Case("without 2d = b1 - b2", without(algebra.seed(), 5)),
    ),
)


# G24: the theorem


def not_representable(value: Kind) -> Verdict:
    """No two-stream pure iHC with such branches is the target: tails of that kind, the expansion, the algebra.

    Where the theorem does not cover the kind, the witness is a network that *is* the target, checked over symbols.
    """
    reach = covered(value)
    if not reach:
        f, psi = CONTROLS[value.name]
        net = resetting(f, psi)
        if net.pure and computes_target(net) and is_shifted(f, psi):
            return verdict(
                False,
                f"{value.name}: represented exactly",
                network={"reads": [s.read for s in net.sites], "writes": [s.write for s in net.sites], "head": E},
                branch=str(f.expression()),
                why=reach.reason,
            )
        return verdict(False, reach.reason, **reach.witness)
    expansion, cofactors = matching.symbolic_remainder(), no_common_zero(with_cofactors(algebra.every_direction(2)))
    ok = expansion.ok and cofactors.ok
    return verdict(ok, f"{reach.reason}; {cofactors.reason}", kind=value.name, tails=reach.witness["tails"])


def _kinds(level: Level) -> Iterator[Case]:
    for kind in KINDS.values():
        yield Case(kind.name, kind)


def _covered_kinds(level: Level) -> Iterator[Case]:
    for name in ("SwiGLU", "GeGLU", "ReGLU", "bilinear", "ReLU^2"):
        yield Case(name, KINDS[name])


G24 = Claim(
    id="G24",
    document="G",
    section="4",
    statement=r"No pure iHC of the same depth computes $x_1 + x_2 + \varphi(\varphi(x_1 - x_2))$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("n = 2 streams, d = 1, two sites, Y_0 = x", "static reads and writes of any sign, free linear head"),
    literal=Check(
        "Every kind of branch of an MLP: tails decide whether the theorem covers it; else a network "
        "that is the target.",
        not_representable,
        _kinds,
        Case("plain ReLU", KINDS["ReLU"]),
    ),
    repair=Repair(
        r"None whose branches are products without biases: tails $\kappa_\pm z^2 + o(1)$.",
        Check(
            "SwiGLU, GeGLU, ReGLU, bilinear, ReLU^2.",
            not_representable,
            _covered_kinds,
            Case("SwiGLU with a gate bias", KINDS["SwiGLU, gate bias"]),
        ),
        hypothesis="bias-free gated branches, n = 2",
    ),
    note="False with gate or up-projection biases, for plain ReLU, GELU or SiLU MLPs, and with three streams.",
)


# G25: not about approximation


@dataclass(frozen=True)
class Approximates:
    """A pure iHC of the family with weights 1/(2 eps), said to be within ``tolerance`` for \\|Q\\| <= 3."""

    eps: Fraction
    tolerance: Fraction


def approximates(value: Approximates) -> Verdict:
    """``|phi(phi(Q) + eps Q) - phi(phi(Q))| <= tolerance`` on [-3, 3], by the mean value on balls that cover it."""
    psi, x = sp.Function("psi"), sp.symbols("x1 x2")
    out = near(value.eps).run(x, cast=sp.sympify, apply=lambda branch, z: psi(sp.expand(z)))[0]
    q, eps = x[0] - x[1], sp.Rational(str(value.eps))
    if sp.expand(out - x[0] - x[1] - psi(sp.expand(psi(q) + eps * q))) != 0:
        return verdict(False, "not S + phi(phi(Q) + eps Q)", out=str(out))
    worst = flint.arb(0)
    pieces = 192
    for i in range(pieces):
        ball_q = ball(Fraction(6 * (2 * i + 1), 2 * pieces) - 3) + flint.arb(0, 3 / pieces)
        between = PHI(ball_q) + ball(value.eps) * ball_q * (flint.arb(0.5) + flint.arb(0, 0.5))
        slope = _slope(between)
        worst = worst.max((abs(ball_q) * abs(slope) * ball(value.eps)).upper())
    ok = bool(worst <= ball(value.tolerance))
    if ok:
        return verdict(True, f"within {value.tolerance} for every |Q| <= 3", eps=value.eps, bound=float(worst))
    there = PHI(PHI(flint.arb(3)) + 3 * ball(value.eps)) - PHI(PHI(flint.arb(3)))
    return verdict(False, f"not shown within {value.tolerance}", eps=value.eps, at_3=float(there), bound=float(worst))


def _slope(t: flint.arb) -> flint.arb:
    s = 1 / (1 + (-t).exp())
    return s * (2 * t + t * t * (1 - s))


def _tolerances(level: Level) -> Iterator[Case]:
    for k in range(1, 5 if level is Level.QUICK else 13):
        tolerance = Fraction(1, 10**k)
        yield Case(f"tolerance 1e-{k}", Approximates(tolerance / 128, tolerance))


G25 = Claim(
    id="G25",
    document="G",
    section="4",
    statement="The counterexample is about exact representation; it does not say that wide models "
    "cannot approximate.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("n = 2, |Q| <= 3 and any S", "exact arithmetic"),
    literal=Check(
        "For every tolerance a two-stream pure iHC within it on |Q| <= 3, any S, by ball arithmetic.",
        approximates,
        _tolerances,
        Case("eps = 1/2, tolerance 1e-3", Approximates(Fraction(1, 2), Fraction(1, 1000))),
    ),
    note="The weights grow like 1/eps; see claims CE16 and CE17 for what that costs.",
)


# G26: the contamination


def contamination(value: Mapping[int, str]) -> Verdict:
    """``(d Q + gamma Q^2)^2`` has exactly these coefficients by power of Q."""
    q = sp.Symbol("Q")
    stated = sum(sp.sympify(c, locals={"gamma": sp.Symbol("gamma")}) * q**power for power, c in value.items())
    return vanishes((sp.Symbol("d") * q + sp.Symbol("gamma") * q**2) ** 2 - stated, "(dQ + gamma Q^2)^2 - stated")


G26 = Claim(
    id="G26",
    document="G",
    section="5",
    statement=r"$(dQ + \gamma Q^2)^2 = \gamma^2Q^4 + 2d\gamma Q^3 + d^2Q^2$: what was not reset pollutes.",
    kind="theorem",
    method="symbolic",
    hypotheses=("real d, gamma, Q",),
    literal=Check(
        "Expansion over symbols.",
        contamination,
        fixed(Case("as stated", {4: "gamma**2", 3: "2*d*gamma", 2: "d**2"})),
        Case("without the Q^3 term", {4: "gamma**2", 2: "d**2"}),
    ),
)

CLAIMS = (G21, G22, G23, G24, G25, G26)
