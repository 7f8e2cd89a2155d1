"""Ours: the counterexample in general: tails, both cases with every sign, the algebra, and the streams it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from streamgauge.proofs.counterexample import algebra, boxed, matching, tails
from streamgauge.proofs.counterexample.activations import (
    GELU,
    IDENTITY,
    KINDS,
    PHI,
    RELU,
    SIGMOID,
    SWISH,
    Branch,
    Kind,
    Unit,
    covered,
)
from streamgauge.proofs.counterexample.controls import up_biased
from streamgauge.proofs.counterexample.matching import TwoSite
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.gauge_counterexample_proof import (
    no_common_zero,
    random_network,
    with_cofactors,
    without,
)
from streamgauge.proofs.ledger.tools import fixed, verdict
from streamgauge.theory.verdict import Verdict

STATIC = ("static reads and writes, any signs", "two sites, d = 1", "any linear head")

CE01 = Claim(
    id="CE01",
    document="ours",
    section="counterexample",
    statement=r"swish, gelu, relu and the identity satisfy $|act(t) - p_\pm(t)| \leq |t|e^{-|t|}$ for "
    r"every real $t$, so "
    r"$|G(z) - \kappa_\pm z^2| \leq \sum |c_i| z^2e^{-|v_iz|} \leq \sum |c_i|\,4/(e^2v_i^2)$, $c_i = m_iw_iv_i$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("G is a bias-free gated branch of any width and weights",),
    literal=Check(
        "The bound of the activation on the whole line in ball arithmetic; the rest is the triangle inequality.",
        tails.activation_tail,
        fixed(*(Case(act.name, act) for act in (SWISH, GELU, RELU, IDENTITY))),
        Case("sigmoid against t", SIGMOID),
    ),
    note="The sup of t^2 e^-t is 4/e^2, at t = 2.",
)

CE02 = Claim(
    id="CE02",
    document="ours",
    section="counterexample",
    statement="The theorem covers SwiGLU, GeGLU, ReGLU and bilinear branches without biases, bias-free "
    r"ReLU$^2$, and SwiGLU with a down-projection bias.",
    kind="theorem",
    method="symbolic",
    hypotheses=("any width, any weights",),
    literal=Check(
        "Tail polynomials of a unit with symbolic weights: no power of z but 0 and 2, at either end.",
        covered,
        fixed(*(Case(name, KINDS[name]) for name in list(KINDS)[:6])),
        Case("SiLU", KINDS["SiLU"]),
    ),
    note="Not covered, and indeed able to represent the target: CE10.",
)

_HALF = Fraction(1, 2)
_RIGHT, _FLAT = Branch((Unit(), Unit(m=-2, v=_HALF)), name="kappa_+ = 0"), Branch((Unit(),), name="phi")
GROWTH = {
    "gamma = 0": TwoSite((1, -1), (1, 1), PHI, (1, -1), (1, 2), PHI),
    "c = 0": TwoSite((1, 1), (1, 0), PHI, (1, -2), (1, 2), PHI),
    "kappa = 0 on the side of c > 0": TwoSite((1, -1), (1, 0), Branch((Unit(v=-1),)), (1, 2), (1, 2), PHI),
    "kappa = 0 on the side of c < 0": TwoSite((-1, 1), (1, 0), PHI, (1, 2), (1, 2), PHI),
    "kappa = 0 by cancellation": TwoSite((1, -1), (3, 0), _RIGHT, (1, 2), (5, 2), PHI),
    "beta = 0": TwoSite((1, 1), (1, 0), PHI, (1, 0), (1, -1), PHI),
}
_GROWS = TwoSite((1, -1), (1, 0), PHI, (1, 2), (1, 2), PHI)


def _growth_cases(level: Level) -> Iterator[Case]:
    for name, net in GROWTH.items():
        yield Case(name, net)
    for seed in range(10 if level is Level.QUICK else 100):
        net = random_network(seed, sign=1)
        a = tuple(-abs(x) if i == 0 else abs(x) for i, x in enumerate(net.a))  # c < 0, all gates positive
        yield Case(f"kappa = 0, random network {seed}", replace(net, a=a))


CE03 = Claim(
    id="CE03",
    document="ours",
    section="counterexample",
    statement=r"If $\gamma\kappa c = 0$ the network is at most $A_0 + A_1Q + A_2Q^2$ on the zero-mean "
    r"line, with explicit "
    r"constants, and is not the target.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("bias-free gated branches of swish, gelu, relu, identity units; any width and weights", *STATIC),
    literal=Check(
        "gamma = 0, c = 0, kappa = 0 on either side or by cancellation: the bound in balls, and a Q* "
        "beyond which the "
        "target is larger.",
        matching.growth_case,
        _growth_cases,
        Case("gamma kappa c not 0", _GROWS),
    ),
)


def _signs(level: Level) -> Iterator[Case]:
    for c in (1, -1):
        for gamma in (1, -1):
            first = Branch((Unit(v=c, w=c),), name="quadratic on the side of c")
            second = Branch((Unit(v=1), Unit(m=3, v=-1)), name="both sides")
            yield Case(f"c = {c}, gamma = {gamma}", TwoSite((c, -c), (gamma, 0), first, (1, 2), (1, 2), second))
    for seed in range(12 if level is Level.QUICK else 150):
        yield Case(f"random network {seed}", random_network(seed))


_WRONG_TAIL = TwoSite((1, -1), (1, 0), PHI, (1, 2), (1, 2), up_biased())

CE04 = Claim(
    id="CE04",
    document="ours",
    section="counterexample",
    statement=r"If $\gamma\kappa c \neq 0$ the network is $c_4Q^4 + c_3Q^3 + c_2Q^2 + c_1Q$ up to an "
    r"explicit $R(Q) = o(Q^2)$ "
    r"from a $Q_0$ on, by the signs of $c$ and $\gamma\kappa$, and is not the target.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("bias-free gated branches of swish, gelu, relu, identity units", "h = e", *STATIC[:2]),
    literal=Check(
        "Four sign cases and random networks: polynomial and remainder in 300-bit balls at Q_0, 2 "
        "Q_0, 4 Q_0, 8 Q_0, and "
        "a Q* where the difference of the polynomials exceeds both remainders.",
        matching.tail_case,
        _signs,
        Case("a branch with biases, taken for bias-free", _WRONG_TAIL),
    ),
)


@dataclass(frozen=True)
class Stated:
    """Coefficients said to be those of Q^4, Q^3, Q^2; ``kind``: whose branches."""

    kind: Kind


def expansion_holds(value: Stated) -> Verdict:
    """The kind has only tails z^2 and 1, and with such tails everything beyond c_4, c_3, c_2 is "
    "o(Q^2), on symbols."""
    reach, expansion = covered(value.kind), matching.symbolic_remainder()
    if not reach:
        return verdict(False, reach.reason, **reach.witness)
    return verdict(expansion.ok, expansion.reason, **expansion.witness)


CE05 = Claim(
    id="CE05",
    document="ours",
    section="counterexample",
    statement=r"With tails $\kappa_\pm z^2 + const + o(1)$ and $\gamma\kappa c \neq 0$ the network is, for every "
    r"$S$, $\beta\lambda\gamma^2k^2Q^4 + 2\beta\lambda\gamma k(2\gamma pS + d)Q^3 + c_2(S)Q^2 + o(Q^2)$, where "
    r"$k = \kappa c^2$, $p = \kappa cc'$ and the part of $c_2$ linear in $S$ is $2\beta\lambda\gamma(kf + 2pd)$.",
    kind="theorem",
    method="symbolic",
    hypotheses=("G locally bounded", *STATIC),
    literal=Check(
        "Expansion over symbols with remainders r, s: every other term has degree below 2 in Q, or 2 and a factor r.",
        expansion_holds,
        fixed(*(Case(name, Stated(KINDS[name])) for name in list(KINDS)[:6])),
        Case("GELU, whose tail is z", Stated(KINDS["GELU"])),
    ),
)


def _systems(level: Level) -> Iterator[Case]:
    systems = [algebra.seed(), algebra.every_direction(2), boxed.general_system()]
    for system in systems:
        yield Case(system.name, with_cofactors(system))


CE06 = Claim(
    id="CE06",
    document="ours",
    section="counterexample",
    statement=r"The polynomial systems have no common zero over any field of characteristic other than 2.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("systems of the six polynomials, of two streams with any head, and of the boxed networks",),
    literal=Check(
        "Cofactors with sum 2 (or a power of 2), checked by the standard-library checker; Groebner basis {1} over Q.",
        no_common_zero,
        _systems,
        Case("the six without the first", without(algebra.seed(), 0)),
    ),
)

_REDUNDANT = replace(
    algebra.seed(),
    polynomials=(*algebra.seed().polynomials, algebra.seed().polynomials[5]),
    without=(*algebra.seed().without, algebra.seed().without[5]),
)


def _needed(level: Level) -> Iterator[Case]:
    for system in (algebra.seed(), algebra.embedded(), algebra.every_direction(3), boxed.general_system()):
        yield Case(system.name, system)


CE07 = Claim(
    id="CE07",
    document="ours",
    section="counterexample",
    statement="Dropping any one of the polynomials makes the ideal proper.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("the six polynomials; the embedded, the three-stream and the boxed system", "over Q"),
    literal=Check(
        "For each polynomial a rational zero of all the others, and for small systems the Groebner "
        "basis of the rest.",
        algebra.every_polynomial_is_needed,
        _needed,
        Case("the six with the last twice", _REDUNDANT),
    ),
)


@dataclass(frozen=True)
class Modulo:
    """A system over the closure of the field of p elements, and a point to try."""

    system: algebra.System
    prime: int


def no_zero_modulo(value: Modulo) -> Verdict:
    """Groebner basis {1} over F_p; where it is not, the point named by the system, if it is a zero."""
    polynomials = value.system.polynomials
    found = algebra.basis_is_one(polynomials, value.system.variables, value.prime)
    if found:
        return verdict(True, f"basis {{1}} modulo {value.prime}", prime=value.prime)
    zero = algebra.vanish_at(polynomials, value.system.in_two, value.prime)
    return verdict(False, f"proper modulo {value.prime}", prime=value.prime, zero=zero.ok, point=value.system.in_two)


CE08 = Claim(
    id="CE08",
    document="ours",
    section="counterexample",
    statement=r"Over $F_p$ with $p = 3, 5, 7, 101$ there is no common zero; over $F_2$ there is one.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("the six polynomials, over an algebraic closure",),
    literal=Check(
        "Groebner bases of the six polynomials modulo p.",
        no_zero_modulo,
        fixed(*(Case(f"p = {p}", Modulo(algebra.seed(), p)) for p in (3, 5, 7, 101))),
        Case("p = 2", Modulo(algebra.seed(), 2)),
    ),
    note="In characteristic 2 the zero is a = b = d = g = k = l = b1 = u1 = 1, b2 = 1, u2 = 0: squares are additive.",
)

CE09 = Claim(
    id="CE09",
    document="ours",
    section="counterexample",
    statement=r"A free linear embedding $Y_0 = Mx$ does not help: with $m = Mq \neq 0$, $h^Tm = 0$ "
    r"and $d = b^Tm/2 = 0$ make "
    r"$b \parallel h$, so $\gamma$ is a multiple of $\alpha = 0$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("two streams; (T0), so that h M = e; if Mq = 0 the output ignores Q", *STATIC[:2]),
    literal=Check(
        "Nine polynomials in 18 unknowns with cofactors, and the Groebner basis.",
        no_common_zero,
        fixed(Case("free embedding", with_cofactors(algebra.embedded()))),
        Case("without s.m = 1: M q may vanish", without(algebra.embedded(), 8)),
    ),
)

CLAIMS = (CE01, CE02, CE03, CE04, CE05, CE06, CE07, CE08, CE09)
