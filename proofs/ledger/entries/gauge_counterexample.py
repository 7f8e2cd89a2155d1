"""Gauge essay, section 4, first half: the primitive, the mHC network, the form of pure iHC, and the tails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import flint
import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample import tails
from streamgauge.proofs.counterexample.activations import PHI, Branch, Unit, Z, ball
from streamgauge.proofs.counterexample.boxed import in_boxes
from streamgauge.proofs.counterexample.controls import up_biased
from streamgauge.proofs.counterexample.networks import HALF, E, J, Network, Q, Site, computes_target, identity, mhc
from streamgauge.proofs.counterexample.tails import Ratio
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.tools import counted, fixed, vanishes, verdict
from streamgauge.theory.verdict import Verdict

# G13, G14: the primitive and the averaging matrix


def is_primitive(value: Branch) -> Verdict:
    """``t^2 sigma(t)`` as expressions, made of gated units without any bias."""
    biases = [value.bias, *(x for u in value.units for x in (u.c, u.b))]
    if any(x != 0 for x in biases):
        return verdict(False, "has a bias", biases=[str(x) for x in biases])
    return vanishes(value.expression() - Z**2 / (1 + sp.exp(-Z)), "t swish(t) - t^2 sigma(t)")


G13 = Claim(
    id="G13",
    document="G",
    section="4",
    statement=r"$\varphi(t) = t\,\mathrm{swish}(t) = t^2\sigma(t)$ is a scalar SwiGLU without biases.",
    kind="definition",
    method="symbolic",
    hypotheses=("all three weights 1, no bias",),
    literal=Check(
        "The unit with all weights 1 and all biases 0, as expressions.",
        is_primitive,
        fixed(Case("one unit", PHI), Case("both signs turned", Branch((Unit(m=-1, w=-1),)))),
        Case("a bias on the up-projection", up_biased()),
    ),
)


def averaging(value: Sequence[Sequence[Fraction]]) -> Verdict:
    """Doubly stochastic, rank 1, kills q = (1, -1), and equal to e e^T / 2; q.q = 2."""
    (a, b), (c, d) = value
    facts: dict[str, Any] = {
        "rows": [a + b, c + d],
        "columns": [a + c, b + d],
        "smallest": min(a, b, c, d),
        "determinant": a * d - b * c,
        "J q": [a * Q[0] + b * Q[1], c * Q[0] + d * Q[1]],
        "q.q": sum(x * x for x in Q),
    }
    ones = facts["rows"] == facts["columns"] == [1, 1] and facts["smallest"] >= 0
    ok = ones and facts["determinant"] == 0 and facts["J q"] == [0, 0] and facts["q.q"] == 2
    return verdict(ok, "doubly stochastic, rank 1, J q = 0" if ok else "not the averaging matrix", **facts)


_MILD = ((Fraction(9, 10), Fraction(1, 10)), (Fraction(1, 10), Fraction(9, 10)))
G14 = Claim(
    id="G14",
    document="G",
    section="4",
    statement=r"$J = \frac{1}{2}ee^T$ is doubly stochastic of rank 1 with $Jq = 0$, and $q^Tq = 2$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("n = 2, e = (1, 1), q = (1, -1)",),
    literal=Check(
        "Row and column sums, determinant, image of q.", averaging, fixed(Case("J", J)), Case("A(9/10)", _MILD)
    ),
)


# G15: what the mHC network computes


@dataclass(frozen=True)
class InClass:
    """A network and the class of parameters it is said to have: "free" or "sigmoid boxes"."""

    network: Network
    parameters: str


def computes_in_class(value: InClass) -> Verdict:
    """The target for every function phi, by symbols; and reads, writes and mixers of the stated class."""
    function = computes_target(value.network)
    if not function or value.parameters == "free":
        return function
    inside = in_boxes(value.network)
    return inside if not inside else function


_NO_RESET = Network(tuple(Site(identity(2), s.read, s.write, s.branch) for s in mhc().sites), (E,))
G15 = Claim(
    id="G15",
    document="G",
    section="4",
    statement=r"A two-site mHC with $A_0 = J$ computes $x_1 + x_2 + \varphi(\varphi(x_1 - x_2))$.",
    kind="theorem",
    method="symbolic",
    hypotheses=("n = 2, d = 1", "static mixers, reads and writes", "sum readout"),
    literal=Check(
        "The network over symbols with an undefined function phi, and its reads and writes in mHC's sigmoid boxes.",
        computes_in_class,
        fixed(Case("the essay's network as an mHC", InClass(mhc(), "sigmoid boxes"))),
        Case("I put for J", InClass(_NO_RESET, "free")),
    ),
    repair=Repair(
        r"It does with signed reads $(1, -1)$ and writes $(1, -1)$.",
        Check(
            "The network over symbols with an undefined function phi.",
            computes_in_class,
            fixed(Case("the essay's network", InClass(mhc(), "free"))),
            Case("I put for J", InClass(_NO_RESET, "free")),
        ),
        hypothesis="free signed reads and writes, not mHC's sigmoid boxes",
    ),
    note="The version inside the boxes is claim CE14.",
)


# G16: the form of a two-site pure iHC


@dataclass(frozen=True)
class Embedded:
    """A pure iHC on Y_0 = M x with reads a, b, writes u, v and head h."""

    m: tuple[tuple[int, int], tuple[int, int]]
    a: tuple[int, int]
    u: tuple[int, int]
    b: tuple[int, int]
    v: tuple[int, int]
    h: tuple[int, int]


def has_plain_form(value: Embedded) -> Verdict:
    """Whether some network on Y_0 = x has the same depth kernel: reads times M, and writes that solve for the rest.

    The reads and the head must be a M, b M, h M; writes u', v' must satisfy b M u' = b u, h M u' = h u, h M v' = h v.
    """
    m = flint.fmpq_mat(2, 2, [x for line in value.m for x in line])

    def line(x: tuple[int, int]) -> Any:
        return flint.fmpq_mat(1, 2, list(x))

    def column(x: tuple[int, int]) -> Any:
        return flint.fmpq_mat(2, 1, list(x))

    b, h = line(value.b), line(value.h)
    for name, rows, old in (("u", (b, h), value.u), ("v", (h,), value.v)):
        left = [e for r in rows for e in (r * m).entries()]
        right = [(r * column(old))[0, 0] for r in rows]
        system = flint.fmpq_mat(len(rows), 2, left)
        both = flint.fmpq_mat(len(rows), 3, [x for i, t in enumerate(right) for x in (*left[2 * i : 2 * i + 2], t)])
        if both.rank() > system.rank():
            return verdict(False, f"no write {name} fits", system=system, wanted=right, entry=value.m)
    return verdict(True, "the same kernel with Y_0 = x", entry=value.m)


_LOSES = Embedded(((1, 0), (0, 0)), (1, 0), (0, 1), (0, 1), (1, 0), (1, 0))


def _embedding(seed: int) -> Case:
    rng = random.Random(seed)
    low, up = rng.randint(-3, 3), rng.randint(-3, 3)
    m = ((1 + low * up, up), (low, 1))  # determinant 1
    vectors = [(rng.randint(-4, 4), rng.randint(-4, 4)) for _ in range(5)]
    return Case(f"M of determinant 1, number {seed}", Embedded(m, *vectors))


G16 = Claim(
    id="G16",
    document="G",
    section="4",
    statement=r"A two-site pure iHC has $Y_1 = x + uG_1(a^Tx)$, $Y_2 = Y_1 + vG_2(b^TY_1)$, head $h^TY_2$.",
    kind="definition",
    method="exact certificate",
    hypotheses=("n = 2, d = 1", "static reads and writes", "free linear head"),
    literal=Check(
        "For networks on a linear embedding M x: whether reads, writes and head on x give the same depth kernel.",
        has_plain_form,
        fixed(Case("an embedding that drops x2 and leaves a stream free", _LOSES)),
        Case("an embedding that drops x2 and leaves a stream free", _LOSES),
    ),
    repair=Repair(
        r"Every pure iHC on an invertible embedding has that form.",
        Check(
            "Embeddings of determinant 1.", has_plain_form, counted(10, 100, _embedding), Case("M singular", _LOSES)
        ),
        hypothesis="the streams start as an invertible linear map of the input",
    ),
    note="A singular embedding does not help either: claim CE09.",
)


# G17: nothing linear near 0


@dataclass(frozen=True)
class NearZero:
    """A branch, in both sites of a pure iHC with head h."""

    branch: Branch
    h: tuple[int, int]


def only_head_is_linear(value: NearZero) -> Verdict:
    """``G(0) = G'(0) = 0``, and ``(out(t w) - t h.w) / t`` shrinks like t for t = 2^-10, 2^-20, 2^-30."""
    g = value.branch.expression()
    constant, slope = (sp.simplify(f.subs(Z, 0)) for f in (g, sp.diff(g, Z)))
    if constant != 0 or slope != 0:
        return verdict(False, "has a linear or constant part at 0", constant=str(constant), slope=str(slope))
    sites = (Site(identity(2), (1, 2), (1, -3), value.branch), Site(identity(2), (2, -1), (1, 1), value.branch))
    net, sizes = Network(sites, (value.h,)), []
    with flint.ctx.workprec(200):
        for k in (10, 20, 30):
            t = flint.arb(2) ** -k
            away = net.run([t, -3 * t])[0] / t - ball(value.h[0] - 3 * value.h[1])
            sizes.append(float(abs(away)))
    ok = sizes[1] < sizes[0] / 500 and sizes[2] < sizes[1] / 500
    return verdict(ok, "the linear part is the head's", sizes=sizes)


def _swiglu(seed: int, width: int | None = None) -> Branch:
    rng = random.Random(seed)

    def number() -> Fraction:
        return Fraction(rng.choice([-1, 1]) * rng.randint(1, 9), rng.randint(1, 4))

    return Branch(
        tuple(Unit(m=number(), w=number(), v=number()) for _ in range(width or 1 + seed % 3)), name="SwiGLU"
    )


G17 = Claim(
    id="G17",
    document="G",
    section="4",
    statement=r"A SwiGLU without biases is $O(z^2)$ at 0, so the head must be $h = e$.",
    kind="theorem",
    method="symbolic",
    hypotheses=(
        "branches are bias-free SwiGLU of any finite width and weights",
        "two sites, static reads and writes",
    ),
    literal=Check(
        "Value and slope at 0 as expressions; the linear part of a network by shrinking inputs in ball arithmetic.",
        only_head_is_linear,
        counted(4, 20, lambda i: Case(f"SwiGLU of width {1 + i % 3}", NearZero(_swiglu(i), (1, 1 + i % 2)))),
        Case("biases on the up-projection", NearZero(up_biased(), E)),
    ),
)


# G18: the non-linear part


def nonlinear_part(value: Mapping[str, Any]) -> Verdict:
    """``out - e.x = alpha G1(a.x) + beta G2(b.x + gamma G1(a.x))`` over symbols, for every G1 and G2."""
    first, second = (sp.Function(name) for name in ("G1", "G2"))
    net = Network(
        (
            Site(identity(2), sp.symbols("a1 a2"), sp.symbols("u1 u2"), Branch((), name="G1")),
            Site(identity(2), sp.symbols("b1 b2"), sp.symbols("v1 v2"), Branch((), name="G2")),
        ),
        (E,),
    )
    x = sp.symbols("x1 x2")
    out = net.run(x, cast=sp.sympify, apply=lambda branch, z: sp.Function(branch.name)(sp.expand(z)))[0]
    alpha, beta, gamma = (value[name] for name in ("alpha", "beta", "gamma"))
    inner = first(sp.expand(sp.sympify("a1*x1 + a2*x2")))
    stated = alpha * inner + beta * second(sp.expand(sp.sympify("b1*x1 + b2*x2") + gamma * inner))
    return vanishes(sp.expand(out - x[0] - x[1] - stated), "network minus the stated form")


_FORM = {k: sp.sympify(v) for k, v in {"alpha": "u1 + u2", "beta": "v1 + v2", "gamma": "b1*u1 + b2*u2"}.items()}
G18 = Claim(
    id="G18",
    document="G",
    section="4",
    statement=r"With $h = e$ the non-linear part is $\alpha G_1(A) + \beta G_2(B + \gamma G_1(A))$, "
    r"$\alpha = e^Tu$, $\beta = e^Tv$, $\gamma = b^Tu$.",
    kind="theorem",
    method="symbolic",
    hypotheses=("n = 2, d = 1, Y_0 = x", "static reads and writes of any sign", "any functions G1, G2"),
    literal=Check(
        "The network over symbols with undefined functions G1 and G2.",
        nonlinear_part,
        fixed(Case("as stated", _FORM)),
        Case("gamma = a.u", {**_FORM, "gamma": sp.sympify("a1*u1 + a2*u2")}),
    ),
)


# G19, G20: tails


@dataclass(frozen=True)
class RayClaim:
    """``low <= ratio(Q) <= high`` for every Q >= 0; ``direct`` is the ratio from its definition; samples to agree."""

    ratio: Ratio
    direct: Callable[[flint.arb], flint.arb]
    low: Fraction
    high: Fraction
    samples: Mapping[int, float] = field(default_factory=dict)


def holds_on_ray(value: RayClaim) -> Verdict:
    """The ratio is what it is said to be (at 12 points), the bounds hold on the whole ray, the samples agree."""
    with flint.ctx.workprec(300):
        for i in range(1, 13):
            q = ball(Fraction(i * i, 6))
            if not value.ratio.at(q).overlaps(value.direct(q)):
                return verdict(False, "not the ratio of its definition", Q=float(q))
        for point, sample in value.samples.items():
            found = float(value.direct(flint.arb(point)) * flint.arb(point) ** 4 * (-flint.arb(point)).exp())
            if abs(found - sample) > 5e-6 * sample:
                return verdict(False, f"a sample differs at Q = {point}", Q=point, found=found, stated=sample)
    proof = tails.proved_on_ray(value.ratio, value.low, value.high)
    return verdict(proof.ok, proof.reason, **proof.witness, samples={str(k): v for k, v in value.samples.items()})


def _first(q: flint.arb) -> flint.arb:
    return (q * q - PHI(q)) * q.exp() / (q * q)


def _second(q: flint.arb) -> flint.arb:
    return (q**4 - PHI(PHI(q))) * q.exp() / q**4


G19 = Claim(
    id="G19",
    document="G",
    section="4",
    statement=r"$\varphi(Q) \sim Q^2$ as $Q \rightarrow +\infty$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("phi(t) = t swish(t), real Q",),
    literal=Check(
        "Q^2 - phi(Q) lies between 2/5 and 1 times Q^2 e^-Q for every Q >= 0, in ball arithmetic.",
        holds_on_ray,
        fixed(Case("the whole ray", RayClaim(tails.first_remainder(), _first, Fraction(2, 5), Fraction(1)))),
        Case(
            "a remainder of e^-2Q",
            RayClaim(tails.first_remainder(Fraction(2)), lambda q: _first(q) * q.exp(), Fraction(0), Fraction(1)),
        ),
    ),
    note="Exactly: phi(Q) = Q^2 - Q^2 / (1 + e^Q), and the remainder is at most 4/e^2.",
)


def _cubic() -> RayClaim:
    base = tails.second_remainder()
    shifted = Ratio("(Q^4 + Q^3 - phi(phi(Q))) e^Q / Q^4", lambda q: base.at(q) + q.exp() / q, base.beyond)
    return RayClaim(shifted, lambda q: _second(q) + q.exp() / q, Fraction(1, 2), Fraction(9, 4))


def _second_cases(level: Level) -> Iterator[Case]:
    claim = RayClaim(tails.second_remainder(), _second, HALF, Fraction(9, 4), tails.SAMPLES)
    yield Case("the whole ray, and four samples", claim)


G20 = Claim(
    id="G20",
    document="G",
    section="4",
    statement=r"$\varphi(\varphi(Q)) \sim Q^4$, and its positive tail has no $Q^3$ term.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("phi(t) = t swish(t), real Q",),
    literal=Check(
        "Q^4 - phi(phi(Q)) lies between 1/2 and 9/4 times Q^4 e^-Q for every Q >= 0, in ball arithmetic.",
        holds_on_ray,
        _second_cases,
        Case("a tail Q^4 + Q^3", _cubic()),
    ),
    note="At Q = 20 and 40 the remainder is 6.59569e-4 and 2.17516e-11, about 2 Q^4 e^-Q.",
)

CLAIMS = (G13, G14, G15, G16, G17, G18, G19, G20)
