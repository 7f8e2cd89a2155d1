"""Gauge essay, sections 12 and 13: dynamic mixers, initialisation, gates that reach 0 and 1, anchors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.gauge_cases import cyclic_family, mean_gate, network, stochastic_mixers
from streamgauge.proofs.ledger.gauge_checks import carry_fault, dynamic_obstruction
from streamgauge.proofs.ledger.tools import Network, counted, depth_kernel, diagonal, row, verdict
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import uniform
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.verdict import Verdict

# G50: dynamic mixers


def gauge_depends(value: Sequence[Sequence[flint.fmpq_mat]]) -> Verdict:
    """``P_l(x) = A_{l-1}(x) .. A_0(x)`` differs between inputs, and with it the read p P_l(x): no fixed rewriting."""
    gauges = []
    for mixers in value:
        product = exact.identity(mixers[0].nrows())
        for a in mixers:
            product = a * product
        gauges.append(product)
    n = gauges[0].nrows()
    p = row(*range(1, n + 1))
    for i, other in enumerate(gauges[1:], 1):
        if p * other != p * gauges[0]:
            why = dynamic_obstruction([value[0][0], value[i][0]])
            reason = f"inputs 0 and {i} need the reads {(p * gauges[0]).entries()} and {(p * other).entries()}"
            return verdict(True, reason, reads=(p * gauges[0], p * other), obstruction=why)
    return verdict(False, "one gauge serves all inputs", gauge=gauges[0])


def _trajectories(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 4
    inputs = [stochastic_mixers(n, sites, seed=seed + 50 * k) for k in range(2)]
    return Case(f"two inputs, n = {n}, L = {sites}", inputs)


def _dynamic_cases(level: Level) -> Iterator[Case]:
    yield Case("I at one input, half a cyclic shift at another", [[a] for a in cyclic_family()])
    yield from counted(5, 40, _trajectories)(level)


G50 = Claim(
    id="G50",
    document="G",
    section="12",
    statement="For dynamic mixers the basis $P_l(x)$ depends on the input, so the proof is no reparametrisation.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("mixers $A_l(x)$ that differ between inputs",),
    literal=Check(
        "Cumulative gauges at two inputs, and the reads they would need.",
        gauge_depends,
        _dynamic_cases,
        Case("the same mixers at both inputs", [[mean_gate(2, Fraction(1, 2))]] * 2),
    ),
    note="Two facts stay exact: along a trajectory the rewriting holds with P_l(x) recomputed, and in a fixed basis "
    "[1, zero-sum] every doubly stochastic A(x) is 1 + B(x) block diagonal.",
)


# G51: initialisation


@dataclass(frozen=True)
class NearIdentity:
    """A gated network and the delta that its carries are said to be within of 1."""

    gated: Network
    delta: Fraction


def near_ihc(value: NearIdentity) -> Verdict:
    """Every block of the depth kernel is within L delta (sum of |p| |r|) (1 + delta)^L of pure iHC's."""
    net, n, delta = value.gated, value.gated.mixers[0].nrows(), value.delta
    pure = depth_kernel(replace(net, mixers=(exact.identity(n),) * len(net)))
    reads, writes = (tuple(_absolute(v) for v in part) for part in (net.reads, net.writes))
    carries = (exact.identity(n),) * len(net)
    absolute = Network(carries, reads, writes, _absolute(net.entry), _absolute(net.readout))
    sizes, found, worst = depth_kernel(absolute), depth_kernel(net), Fraction(0)
    factor = (1 + delta) ** len(net) - 1
    for name, block in found.items():
        for i in range(block.nrows()):
            for j in range(block.ncols()):
                miss = abs(exact.fraction(block[i, j] - pure[name][i, j]))
                bound = factor * exact.fraction(sizes[name][i, j])
                worst = max(worst, miss)
                if miss > bound:
                    reason = f"{name} misses pure iHC by {float(miss):.3g}, the bound is {float(bound):.3g}"
                    return verdict(False, reason, block=name, miss=float(miss), bound=float(bound))
    return verdict(True, f"kernel within {float(worst):.3g} of pure iHC's", largest=float(worst), delta=delta)


def _absolute(matrix: flint.fmpq_mat) -> flint.fmpq_mat:
    return flint.fmpq_mat(matrix.nrows(), matrix.ncols(), [abs(x) for x in matrix.entries()])


def _near(seed: int) -> Case:
    n, sites, delta = 2 + seed % 3, 1 + seed % 8, Fraction(1, 10 ** (1 + seed % 4))
    gates = [[1 - delta * Fraction((seed + 3 * l + i) % 5, 4) for i in range(n)] for l in range(sites)]
    net = network([diagonal(g) for g in gates], seed=seed, signed=True)
    return Case(f"{sites} sites, gates in [1 - {delta}, 1]", NearIdentity(net, delta))


def _init_cases(level: Level) -> Iterator[Case]:
    gates = np.array([0.99, 0.985, 1.0])
    normed = [Fraction(float(x)) for x in gates * np.sqrt(3) / np.sqrt((gates**2).sum())]
    yield Case("norm gates of (0.99, 0.985, 1)", NearIdentity(network([diagonal(normed)] * 4), Fraction(1, 50)))
    yield from counted(8, 60, _near)(level)


G51 = Claim(
    id="G51",
    document="G",
    section="13",
    statement="Started at $g_l \\approx 1$ the network is near pure iHC.",
    kind="theorem",
    method="numeric reproduction",
    hypotheses=("carries within delta of 1; then the kernels differ by at most $(1 + \\delta)^L - 1$ of its size",),
    literal=Check(
        "Every block of the depth kernel against pure iHC's with the same reads and writes, exactly.",
        near_ihc,
        _init_cases,
        Case("gates 1/2 said to be within 1/100", NearIdentity(network([mean_gate(2, 1) / 2] * 3), Fraction(1, 100))),
    ),
    note="With the norm gate any equal gates give I exactly, also far from 1.",
)


# G52: sigmoid gates


def strictly_between(gate: Any) -> Verdict:
    """0 < gate(z) < 1 for every real z: by sympy's positivity of the gate and of its complement, with a point where
    either is not positive as the witness; and at 25 points to 120 digits."""
    z = next(iter(gate.free_symbols))
    for k in range(-12, 13):
        for name, part in (("gate", gate), ("1 - gate", 1 - gate)):
            at = part.subs(z, 25 * k)
            if not at.evalf(120) > 0:
                return verdict(False, f"{name} is {at} at z = {25 * k}", z=25 * k, value=str(at))
    complement = sympy.simplify(1 - gate)
    if not (gate.is_positive and complement.is_positive):
        return verdict(False, "positivity not established", gate=str(gate), complement=str(complement))
    return verdict(
        True, f"{gate} and {complement} are positive for real z", gate=str(gate), complement=str(complement)
    )


def _sigmoid(scale: int = 1) -> Any:
    z = sympy.Symbol("z", real=True)
    return 1 / (1 + sympy.exp(-z / scale))


def _hard_sigmoid() -> Any:
    z = sympy.Symbol("z", real=True)
    return sympy.Min(1, sympy.Max(0, z / 6 + sympy.Rational(1, 2)))


G52 = Claim(
    id="G52",
    document="G",
    section="13",
    statement="A sigmoid gate lies in (0, 1): it cannot reset exactly.",
    kind="theorem",
    method="symbolic",
    hypotheses=("finite logits, real arithmetic",),
    literal=Check(
        "Positivity of the sigmoid and of one minus it, for a real symbol.",
        strictly_between,
        lambda level: iter([Case("sigmoid", _sigmoid()), Case("sigmoid of z/20", _sigmoid(20))]),
        Case("hard sigmoid", _hard_sigmoid()),
    ),
    note="Nor can it carry exactly (g = 1). In floating point it does both: float64 rounds it to 1 above z = 37 and "
    "to 0 below z = -745.",
)


# G53: the anchor


@dataclass(frozen=True)
class Anchored:
    """Mixers, a gauge and diagonal carries with ``A P = P' D``, whose slot 0 is said to be always on."""

    mixers: tuple[flint.fmpq_mat, ...]
    gauge: tuple[flint.fmpq_mat, ...]
    carries: tuple[flint.fmpq_mat, ...]


def anchor_on(value: Anchored) -> Verdict:
    """The equation holds, slot 0 has gate exactly 1 at every site and its column is 1 (the mean stream) at every
    level; so no site kills every stream and the norm gate's c is defined."""
    for l, (a, d) in enumerate(zip(value.mixers, value.carries)):
        if carry_fault(d, "diagonal") or a * value.gauge[l] != value.gauge[l + 1] * d:
            return verdict(False, f"site {l}: A P is not P' D", site=l, carry=d)
        if d[0, 0] != 1:
            return verdict(False, f"site {l}: the anchor's gate is {d[0, 0]}", site=l, carry=d)
    for l, p in enumerate(value.gauge):
        if p.det() == 0 or any(p[i, 0] != 1 for i in range(p.nrows())):
            return verdict(False, f"level {l}: the anchor is not 1", level=l, gauge=p)
    return verdict(True, f"mean stream carried with gate 1 over {len(value.mixers)} sites", sites=len(value.mixers))


def anchored(mixers: Sequence[flint.fmpq_mat]) -> Anchored:
    """A chain with the basis and gates of its graded form."""
    form = normal_form(Chain(mixers), "graded")
    return Anchored(tuple(mixers), form.gauge, tuple(form.diagonal(l) for l in range(len(form))))


def _anchor_case(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 6
    ranks = [1 + (seed + 2 * l) % n for l in range(sites)]
    return Case(f"n = {n}, ranks {ranks}", anchored(stochastic_mixers(n, sites, seed=seed, ranks=ranks)))


def _anchor_cases(level: Level) -> Iterator[Case]:
    yield Case("J of three streams, twice", anchored([uniform(3)] * 2))
    yield from counted(8, 60, _anchor_case)(level)


def _all_off() -> Anchored:
    value = anchored([uniform(2)])
    return replace(value, mixers=(exact.zeros(2, 2),), carries=(exact.zeros(2, 2),))


G53 = Claim(
    id="G53",
    document="G",
    section="13",
    statement="One direction may be kept always on as an anchor: $g_0 = 1$.",
    kind="definition",
    method="property test",
    hypotheses=("doubly stochastic mixers, where the anchor is canonical",),
    literal=Check(
        "Diagonal forms of doubly stochastic chains of any ranks: slot 0 is the mean stream, with gate exactly 1.",
        anchor_on,
        _anchor_cases,
        Case("a site that kills every stream", _all_off()),
    ),
)


CLAIMS = (G50, G51, G52, G53)
