"""Ours: what can be represented, what cannot, and how many streams it takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from streamgauge.proofs.counterexample import algebra, boxed
from streamgauge.proofs.counterexample.activations import KINDS, PHI, Branch, Kind, covered
from streamgauge.proofs.counterexample.boxed import EQUAL, Boxed, excluded, in_boxes
from streamgauge.proofs.counterexample.controls import CONTROLS, is_shifted, random_points, resetting
from streamgauge.proofs.counterexample.matching import refuted
from streamgauge.proofs.counterexample.networks import (
    PSI,
    Network,
    Row,
    Site,
    balls_meet,
    computes_target,
    identity,
    mhc,
    one_more_stream,
    same_function,
    three_streams,
    wide_mhc,
    wide_target,
)
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.gauge_counterexample_proof import (
    no_common_zero,
    random_network,
    with_cofactors,
    without,
)
from streamgauge.proofs.ledger.tools import fixed, verdict
from streamgauge.theory.verdict import Verdict

# CE10: with a linear part it can


def represented(value: tuple[Branch, Branch]) -> Verdict:
    """The pure iHC with branches F, psi is the target of psi: F = psi - t/2 as expressions, then over symbols.

    A second route: 200-bit balls of network and target meet at 12 rational points.
    """
    f, psi = value
    net = resetting(f, psi)
    for found in (is_shifted(f, psi), computes_target(net), balls_meet(net, psi, random_points(12))):
        if not found:
            return verdict(False, found.reason, **found.witness)
    return verdict(net.pure, "pure iHC of two streams, equal to the target", branch=str(f.expression()))


CE10 = Claim(
    id="CE10",
    document="ours",
    section="counterexample",
    statement=r"With gate biases or up-projection biases, and for plain ReLU, GELU, SiLU and GLU "
    r"branches, two-stream pure "
    r"iHC does compute $x_1 + x_2 + \psi(\psi(x_1 - x_2))$: $F(t) = \psi(t) - t/2$ is a branch, and "
    r"$x + qF(q^Tx) = Jx + "
    r"q\psi(q^Tx)$.",
    kind="theorem",
    method="symbolic",
    hypotheses=(
        "n = 2, two sites, Y_0 = x, sum readout",
        "psi = phi for biased SwiGLU, psi = the activation or GLU otherwise",
    ),
    literal=Check(
        "Each construction: the identity of F, the network over symbols, and balls at 12 points.",
        represented,
        lambda level: (Case(name, pair) for name, pair in CONTROLS.items()),
        Case("phi itself, which has no linear part", (PHI, PHI)),
    ),
)


# CE11: a down-projection bias alone cannot


@dataclass(frozen=True)
class Biased:
    """A kind of branch, and networks with such branches."""

    kind: Kind
    networks: tuple[Network, ...]


def bias_does_not_help(value: Biased) -> Verdict:
    """Tails z^2 and 1 only, the system of the route that needs nothing at 0, and a point that "
    "convicts each network."""
    reach = covered(value.kind)
    if not reach:
        return verdict(False, reach.reason, **reach.witness)
    cofactors = no_common_zero(with_cofactors(algebra.every_direction(2)))
    if not cofactors:
        return cofactors
    points = [refuted(net) for net in value.networks]
    ok = all(points)
    return verdict(
        ok, f"{cofactors.reason}; {len(points)} networks convicted", points=[p.witness["x"] for p in points]
    )


def _with_bias(seed: int) -> Network:
    rng, net = random.Random(seed), random_network(seed)
    b1, b2 = (Fraction(rng.randint(-9, 9), 4) for _ in range(2))
    h = (Fraction(rng.randint(-4, 4), 2), Fraction(rng.randint(-4, 4), 2))
    first, second = Branch(net.first.units, b1, "biased"), Branch(net.second.units, b2, "biased")
    eye = identity(2)
    return Network((Site(eye, net.a, net.u, first), Site(eye, net.b, net.v, second)), (h,))


def _biased_cases(level: Level) -> Iterator[Case]:
    count = 6 if level is Level.QUICK else 60
    nets = tuple(_with_bias(seed) for seed in range(count))
    yield Case("SwiGLU with down-projection biases", Biased(KINDS["SwiGLU, down-projection bias"], nets))


CE11 = Claim(
    id="CE11",
    document="ours",
    section="counterexample",
    statement=r"A down-projection bias alone does not help: along every line $x_1 + x_2 = S$ the "
    r"coefficients of $Q^3$ and "
    r"$SQ^2$ give $d = 0$ and $f = 0$, so $b = 0$ and $\gamma = 0$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=(
        "n = 2, two sites, Y_0 = x, static reads and writes",
        "SwiGLU of any width, biases on the down-projection only",
        "any linear head; nothing is asked at 0",
    ),
    literal=Check(
        "Tails on symbols, four polynomials with cofactors; random biased networks each convicted at "
        "a point in balls.",
        bias_does_not_help,
        _biased_cases,
        Case("a bias on the up-projection", Biased(KINDS["SwiGLU, up-projection bias"], ())),
    ),
)


# CE12: streams


@dataclass(frozen=True)
class Wide:
    """A network and the function of n inputs it is said to be."""

    network: Network
    n: int
    wanted: Callable[[Sequence[Any]], Sequence[Any]]
    streams: int
    pure: bool


def is_wide_function(value: Wide) -> Verdict:
    """The stated function for every phi, over symbols, with so many streams, pure iHC where said."""
    net = value.network
    if len(net.sites[0].read) != value.streams or net.pure != value.pure:
        return verdict(False, "another shape", streams=len(net.sites[0].read), pure=net.pure)
    found = same_function(net, value.wanted, value.n)
    return verdict(found.ok, found.reason, streams=value.streams, **found.witness)


def _seed_target(x: Sequence[Any]) -> list[Any]:
    return [x[0] + x[1] + PSI(PSI(x[0] - x[1]))]


def _vector(n: int) -> Row:
    return tuple(Fraction(i + 1, 3) for i in range(n))


def _wide(level: Level) -> Iterator[Case]:
    yield Case("scalar readout, three streams", Wide(three_streams(), 2, _seed_target, 3, True))
    for n in (2, 3, 5) if level is Level.QUICK else range(2, 9):
        wanted = wide_target(n, _vector(n))
        yield Case(f"n = {n}: mHC with {n} streams", Wide(wide_mhc(n, _vector(n)), n, wanted, n, False))
        yield Case(f"n = {n}: pure iHC with {n + 1}", Wide(one_more_stream(n, _vector(n)), n, wanted, n + 1, True))


_SAME_WIDTH = Network(
    tuple(Site(identity(2), s.read, s.write) for s in mhc().sites),
    mhc().readout,
)

CE12 = Claim(
    id="CE12",
    document="ours",
    section="counterexample",
    statement=r"For every $n \geq 2$ the mHC $A_0x + q\varphi(Q) + v\varphi(\varphi(Q))$, $A_0 = J_2 "
    r"\oplus I$, is a pure iHC "
    r"with $n + 1$ streams; the scalar target of two inputs is one with three.",
    kind="theorem",
    method="symbolic",
    hypotheses=("all n streams read out", r"$Q = x_1 - x_2$, $q = e_1 - e_2$"),
    literal=Check(
        "The networks over symbols with an undefined function phi.",
        is_wide_function,
        _wide,
        Case("two streams and no reset", Wide(_SAME_WIDTH, 2, _seed_target, 2, True)),
    ),
)


def _directions(level: Level) -> Iterator[Case]:
    for n in (2, 3, 4) if level is Level.QUICK else range(2, 9):
        yield Case(f"n = {n}", with_cofactors(algebra.every_direction(n)))


CE13 = Claim(
    id="CE13",
    document="ours",
    section="counterexample",
    statement=r"For every $n \geq 2$ no pure iHC with $n$ streams is $A_0x + q\varphi(Q) + "
    r"v\varphi(\varphi(Q))$, $v \neq 0$: "
    r"in coordinates $Q, S_1, .., S_{n-1}$ the coefficients of $Q^3$ and $S_jQ^2$ make $b = 0$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=(
        "branches with tails $\\kappa_\\pm z^2 + const + o(1)$",
        "two sites, static reads and writes, any linear head",
        "streams start as an invertible linear map of the n inputs",
    ),
    literal=Check(
        "The system of each n with cofactors, and its Groebner basis.",
        no_common_zero,
        _directions,
        Case("n = 3 without the second direction", without(algebra.every_direction(3), 3)),
    ),
    note="A singular entry M loses a direction y that the target shows: A_0 y = 0 only along q, "
    "where Q changes.  The "
    "condition that v is not parallel to q, which an argument at 0 would use, is not needed.",
)


# CE14: inside the boxes


def boxed_counterexample(value: Boxed) -> Verdict:
    """Inside mHC's boxes, its function as stated over symbols, the condition, and cofactors for its numbers."""
    net = value.mhc()
    for found in (in_boxes(net), same_function(net, lambda x: [value.target(x, PSI)])):
        if not found:
            return found
    condition = excluded(value)
    if not condition:
        pure = same_function(value.pure(), lambda x: [value.target(x, PSI)])
        return verdict(False, condition.reason, **condition.witness, represented=pure.ok)
    system = boxed.system(value)
    cofactors = no_common_zero(with_cofactors(system))
    return verdict(cofactors.ok, f"{condition.reason}; {cofactors.reason}", **condition.witness)


def _boxed(level: Level) -> Iterator[Case]:
    yield Case("p_1 = (3/4, 1/4), p_2 = (1/2, 1/3)", Boxed())
    rng = random.Random(3)
    for i in range(3 if level is Level.QUICK else 30):
        reads = [tuple(Fraction(rng.randint(1, 11), 12) for _ in range(2)) for _ in range(2)]
        writes = [tuple(Fraction(rng.randint(1, 11), 6) for _ in range(2)) for _ in range(2)]
        drawn = Boxed(*reads, *writes)
        if reads[0][0] != reads[0][1] and excluded(drawn):  # equality is a null set: none is met with this seed
            yield Case(f"random reads and writes {i}", drawn)


CE14 = Claim(
    id="CE14",
    document="ours",
    section="P4",
    statement=r"Inside mHC's boxes: $S + \mu\varphi(t) + \nu\varphi(\omega S + \rho\varphi(t))$ is no "
    r"two-stream pure iHC if "
    r"$p_1$ is not parallel to $(1,1)$, $\nu \neq 0$, $\rho > 0$ and $\rho \neq \mu\omega$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("A_0 = J, reads in (0,1), writes in (0,2), sum readout", "bias-free gated branches; (T0)"),
    literal=Check(
        "Boxes, the function over symbols, the condition, and six polynomials with cofactors.",
        boxed_counterexample,
        _boxed,
        Case("equality: p_2 = (1/2, 1/2)", EQUAL),
    ),
    note="For p_1 = (3/4, 1/4), p_2 = (1/2, 1/3), r_1 = (1, 1/2), r_2 = (1, 1): rho - mu omega = 1/24.",
)


def equality_represented(value: Boxed) -> Verdict:
    """The pure iHC with a = p_1, b = omega e, u = r_1, v = r_2, h = e is the boxed mHC's function, over symbols."""
    for net in (value.mhc(), value.pure()):
        found = same_function(net, lambda x: [value.target(x, PSI)])
        if not found:
            return verdict(False, found.reason, **found.witness, gap=str(value.rho - value.mu * value.omega))
    return verdict(value.pure().pure, "represented by two streams", rho=value.rho, mu_omega=value.mu * value.omega)


CE15 = Claim(
    id="CE15",
    document="ours",
    section="P4",
    statement=r"With $\rho = \mu\omega$ the boxed function is a two-stream pure iHC: the condition is sharp.",
    kind="theorem",
    method="symbolic",
    hypotheses=("n = 2, A_0 = J, sum readout, static reads and writes", "any function phi"),
    literal=Check(
        "Both networks over symbols with an undefined function phi.",
        equality_represented,
        fixed(Case("p_2 = (1/2, 1/2)", EQUAL), Case("r_1 = (1, 1)", Boxed(r1=(Fraction(1), Fraction(1))))),
        Case("rho - mu omega = 1/24", Boxed()),
    ),
)


CLAIMS = (CE10, CE11, CE12, CE13, CE14, CE15)
