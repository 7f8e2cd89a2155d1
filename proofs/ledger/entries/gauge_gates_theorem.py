"""Gauge essay, sections 9 to 11: the cap, Theorem 3 and static mHC in norm-gated iHC, stability of pure iHC."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.gauge_cases import (
    chain_of,
    equation,
    network,
    network_of,
    reset_and_reuse,
    stochastic_mixers,
)
from streamgauge.proofs.ledger.gauge_checks import Equation, Pair, equation_holds, equivalent
from streamgauge.proofs.ledger.tools import Network, counted, diagonal, fixed, same_kernel, verdict
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import circulant_example, uniform
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_gate_matrix
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.verdict import Verdict

# G45: the cap


@dataclass(frozen=True)
class Capped:
    """A gate vector, the cap that is said to hold, and the matrix D(g) that was made."""

    g: tuple[float, ...]
    cap: float
    matrix: Floats


def capped(value: Capped) -> Verdict:
    """D = c diag(g) with one c, 0 < c <= cap, and c = min(cap, sqrt(n) / ||g||): no stream grows by more."""
    factors = [float(value.matrix[i, i]) / x for i, x in enumerate(value.g) if x != 0]
    free = math.sqrt(len(value.g)) / math.sqrt(sum(x * x for x in value.g))
    if max(factors) > value.cap * (1 + 1e-12):
        reason = f"a stream grows by {max(factors):.4g}, the cap is {value.cap}"
        return verdict(False, reason, g=value.g, factor=max(factors))
    expected = min(value.cap, free)
    if max(abs(f - expected) for f in factors) > 1e-12 * free or min(factors) <= 0:
        return verdict(False, "not min(cap, sqrt(n) / ||g||)", factors=factors, expected=expected)
    return verdict(True, f"c = {factors[0]:.6g}, uncapped {free:.6g}", factor=factors[0], uncapped=free)


def capped_gate(cap: float, *g: float, used: float | None = None) -> Capped:
    return Capped(g, cap, norm_gate_matrix(np.array(g), NormGate(0, cap if used is None else used)))


ONE_OF_NINE = (1.0,) + (0.0,) * 8


def _cap_cases(level: Level) -> Iterator[Case]:
    yield Case("one of nine alive, cap 3/2", capped_gate(1.5, *ONE_OF_NINE))
    yield Case("all alive, cap 3/2", capped_gate(1.5, 1, 1, 1))
    yield Case("cap 1: D = g", capped_gate(1.0, 1, 0.5, 0))
    dice = np.random.default_rng(11)
    for i in range(10 if level is Level.QUICK else 100):
        cap, g = float(dice.uniform(0.5, 2)), dice.uniform(0.01, 1, 2 + i % 7).tolist()
        yield Case(f"drawn gates {i}", capped_gate(cap, *g))


G45 = Claim(
    id="G45",
    document="G",
    section="9, 13",
    statement="A cap $c = \\min(c_{max}, \\sqrt{n}/||g||)$ bounds how much surviving streams are enlarged.",
    kind="definition",
    method="property test",
    hypotheses=("cap > 0, some gate not zero",),
    literal=Check(
        "The factor read off D(g), for drawn gates and caps.",
        capped,
        _cap_cases,
        Case("one of nine alive, no cap used", capped_gate(1.5, *ONE_OF_NINE, used=100.0)),
    ),
    note="A cap below sqrt(n/k) gives up the normalisation; c stays a non-zero scalar, so Theorem 3 still holds. "
    "Cap 1 with |g| <= 1 makes D = g: the plain gate.",
)


# G46: Theorem 3


def norm_gates_as_written(value: Pair) -> Verdict:
    """The carries of ``converted`` are D = c diag(g), g the gates of ``source``, with ``c^2 ||g||^2 = n`` and so
    ``||g|| != 0``; and the two networks have the same depth kernel."""
    for l, (e, d) in enumerate(zip(value.source.mixers, value.converted.mixers)):
        n = e.nrows()
        squared = sum((e[i, i] * e[i, i] for i in range(n)), flint.fmpq(0))
        if squared == 0:
            return verdict(False, f"site {l}: all gates are 0, c = sqrt({n}) / 0", site=l, norm=0, gates=e)
        factors = {str(d[i, i] / e[i, i]): d[i, i] / e[i, i] for i in range(n) if e[i, i] != 0}
        c = next(iter(factors.values()))
        if d != e * c or c * c * squared != n:
            return verdict(False, f"site {l}: not the norm gate of its gates", site=l, gates=e, carry=d)
    return same_kernel(value.source, value.converted)


def norm_gated(net: Network) -> Network:
    """The gated network in norm gates, with Z = s Y and s_{l+1} = s_l / c_l; for gates with rational c, c(0) := 1."""
    n, s = net.mixers[0].nrows(), Fraction(1)
    mixers, reads, writes = [], [], []
    for e, p, r in zip(net.mixers, net.reads, net.writes):
        squared = sum((exact.fraction(e[i, i]) ** 2 for i in range(n)), Fraction(0))
        ratio = Fraction(n) / squared if squared else Fraction(1)
        c = Fraction(math.isqrt(ratio.numerator), math.isqrt(ratio.denominator))
        reads.append(p * exact.scalar(s))
        s = s / c
        writes.append(r * exact.scalar(1 / s))
        mixers.append(e * exact.scalar(c))
    return Network(tuple(mixers), tuple(reads), tuple(writes), net.entry, net.readout * exact.scalar(s))


RATIONAL_GATES = (
    (1, 1, 1, 1),
    (1, 0, 0, 0),
    (Fraction(3, 5), Fraction(4, 5), 0, 0),
    (Fraction(1, 3), Fraction(2, 3), 0, Fraction(2, 3)),
    (Fraction(1, 10), Fraction(3, 10), Fraction(3, 10), Fraction(9, 10)),
    (0, Fraction(-3, 5), 0, Fraction(4, 5)),
)
"""Gate vectors of four streams with a rational norm, so that c is rational and everything exact."""


def theorem_3(gates: Sequence[Sequence[int | Fraction]], seed: int = 0) -> Pair:
    """A network with these static gates, and the norm-gated one."""
    net = network([diagonal(g) for g in gates], seed=seed, signed=True, ends="free")
    return Pair(net, norm_gated(net), "diagonal")


def _gated_case(seed: int) -> Case:
    gates = [RATIONAL_GATES[(seed * 7 + 5 * l * (seed + 1)) % 6] for l in range(1 + seed % 6)]
    return Case(f"{len(gates)} sites, first gates {', '.join(map(str, gates[0]))}", theorem_3(gates, seed))


def _unscaled() -> Pair:
    value = theorem_3([(1, 0, 0, 0), (1, 1, 1, 1)])
    return replace(value, converted=replace(value.converted, writes=value.source.writes))


G46 = Claim(
    id="G46",
    document="G",
    section="10",
    statement="Theorem 3: with $s_{l+1} = s_l / c_l$ absorbed, norm-gated iHC and gated iHC are the same functions.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("static gates; free reads, writes and head; as written, for every gate vector",),
    literal=Check(
        "Norm gates c(g) diag(g) with exact c, and depth kernels.",
        norm_gates_as_written,
        fixed(
            Case("gates (1,1,1,1), (1,0,0,0)", theorem_3([(1, 1, 1, 1), (1, 0, 0, 0)])),
            Case("a site where every gate is 0", theorem_3([(1, 1, 1, 1), (0, 0, 0, 0)])),
        ),
        Case("the scale not absorbed in the writes", _unscaled()),
    ),
    repair=Repair(
        "It holds where some gate is alive at every site, and everywhere with $c(0) = 1$ by convention.",
        Check(
            "Norm gates with exact c, and depth kernels, over up to six sites.",
            norm_gates_as_written,
            counted(12, 120, _gated_case),
            Case("the scale not absorbed in the writes", _unscaled()),
        ),
        hypothesis="some gate is not zero at every site (or c(0) := 1); doubly stochastic chains always meet it, "
        "since their mixers have rank at least 1",
    ),
    note="For gates that depend on the input the scale s_l(x) does too, and no static reads and writes absorb it.",
)


# G47: the scaled equation


@dataclass(frozen=True)
class Scaled:
    """``A P = P' E`` with squares of the factors c_l and of the scales s_l, and the last scale as it was quoted."""

    equation: Equation
    factors_squared: tuple[Fraction, ...]
    scales_squared: tuple[Fraction, ...]
    last: float | None = None


def scaled_equation(value: Scaled) -> Verdict:
    """``A Q = Q' D`` for Q = s P, D = c E: the base equation, c^2 k = n and s'^2 c^2 = s^2, with s_0 = 1."""
    found = equation_holds(value.equation)
    if not found:
        return found
    if value.scales_squared[0] != 1:
        return verdict(False, "s_0 is not 1", scale_squared=value.scales_squared[0])
    for l, e in enumerate(value.equation.carries):
        k = sum(x != 0 for x in e.entries())
        if value.factors_squared[l] * k != e.nrows():
            return verdict(False, f"site {l}: c^2 = {value.factors_squared[l]} with {k} alive", site=l, alive=k)
        if value.scales_squared[l + 1] * value.factors_squared[l] != value.scales_squared[l]:
            found_scales = value.scales_squared[l : l + 2]
            return verdict(False, f"site {l}: s' is not s / c", site=l, scales_squared=found_scales)
    last = math.sqrt(value.scales_squared[-1])
    if value.last is not None and abs(last / value.last - 1) > 1e-4:
        return verdict(False, f"s_L is {last:.5g}, written {value.last}", scale=last)
    return verdict(True, f"A Q = Q' D at all sites, s_L = {last:.5g}", scale=last, writes_grow_by=1 / last)


def scaled(mixers: Sequence[flint.fmpq_mat], last: float | None = None) -> Scaled:
    """The binary form with a norm gate on top; ``c(0) := 1`` never arises for doubly stochastic mixers."""
    base = equation(mixers, "binary", "binary")
    norm = normal_form(Chain(mixers), "binary", norm=NormGate()).norm
    squares = (norm.factors_squared, norm.scales_squared) if norm else (None, None)
    return Scaled(base, squares[0] or (), squares[1] or (), last)


def _scaled_case(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 6
    ranks = [1 + (seed + l) % n for l in range(sites)]
    return Case(f"n = {n}, ranks {ranks}", scaled(stochastic_mixers(n, sites, seed=seed, ranks=ranks)))


def _scaled_cases(level: Level) -> Iterator[Case]:
    yield Case("rank 3 of 4 at 60 sites: s = 1.7858e-4", scaled([circulant_example()] * 60, 1.7858e-4))
    halves = flint.fmpq_mat(4, 4, [int(i // 2 == j // 2) for i in range(4) for j in range(4)]) / 2
    yield Case("rank 2 of 4 at 60 sites: s = 9.3132e-10", scaled([halves] * 60, 9.3132e-10))
    yield from counted(8, 60, _scaled_case)(level)


def _inverted() -> Scaled:
    value = scaled([uniform(2)])
    return replace(value, scales_squared=(Fraction(1), value.factors_squared[0]))


G47 = Claim(
    id="G47",
    document="G",
    section="10",
    statement="With $Q_l = s_l P_l$ and $s_{l+1} = s_l / c_l$: $A_l Q_l = Q_{l+1} D_l$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("static mixers; at least one direction alive at every site",),
    literal=Check(
        "The binary equation and the squares of c and s, exactly (c itself is irrational in general).",
        scaled_equation,
        _scaled_cases,
        Case("s' = s c", _inverted()),
    ),
    note="The writes grow by 1/s: 5.6e3 over 60 sites with three of four alive, 1.07e9 with two.",
)


# G48: static mHC in norm-gated iHC


@dataclass(frozen=True)
class Normed:
    """A network beside its 0/1 gated form, and the scaled equation that turns its gates into norm gates."""

    pair: Pair
    scaled: Scaled


def norm_gated_equivalent(value: Normed) -> Verdict:
    """The gated form is the same function under the demands on its entry, and its gates are norm gates up to s."""
    found = equivalent(value.pair)
    return scaled_equation(value.scaled) if found else found


def normed(net: Network, *, same_entry: bool = False) -> Normed:
    """A network with its 0/1 gated form and the scaled equation."""
    form = normal_form(chain_of(net), "binary")
    return Normed(Pair(net, network_of(form), "binary", same_entry=same_entry), scaled(net.mixers))


def _normed_case(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 5
    ranks = [1 + (seed + 2 * l) % n for l in range(sites)]
    net = network(stochastic_mixers(n, sites, seed=seed, ranks=ranks), seed=seed, signed=True, ends="free")
    return Case(f"n = {n}, ranks {ranks}", normed(net))


def _no_reset() -> Normed:
    value = normed(reset_and_reuse())
    kept = replace(value.pair.converted, mixers=(exact.identity(2),) * 2)
    return replace(value, pair=replace(value.pair, converted=kept))


G48 = Claim(
    id="G48",
    document="G",
    section="10",
    statement="Every static mHC is a norm-gated iHC (read as stated: the input as before).",
    kind="theorem",
    method="exact certificate",
    hypotheses=("static doubly stochastic mixers; reads, writes and head free",),
    literal=Check(
        "Depth kernels, exact runs, squares of factors and scales, and the same entry.",
        norm_gated_equivalent,
        fixed(
            Case("I twice", normed(network([exact.identity(2)] * 2, ends="free"), same_entry=True)),
            Case("the essay's own counterexample", normed(reset_and_reuse(), same_entry=True)),
        ),
        Case("its gates left out", _no_reset()),
    ),
    repair=Repair(
        "It holds with a free entry and at least one direction alive at every site.",
        Check(
            "Depth kernels, exact runs, squares of factors and scales.",
            norm_gated_equivalent,
            counted(10, 80, _normed_case),
            Case("its gates left out", _no_reset()),
        ),
        hypothesis="free entry, free signed reads, writes and head, rank at least 1 at every site (or c(0) := 1)",
    ),
)


# G49: stability of pure iHC


@dataclass(frozen=True)
class Driven:
    """Write vectors and carries of a network whose branches give 1 at every site, from the zero state."""

    writes: tuple[flint.fmpq_mat, ...]
    carries: tuple[flint.fmpq_mat, ...]


def state_bounded(value: Driven) -> Verdict:
    """With branch outputs of size 1 the state stays below 10 in every stream."""
    x = flint.fmpq_mat(value.writes[0].nrows(), 1)
    for a, r in zip(value.carries, value.writes):
        x = a * x + r
    largest = max(abs(float(exact.fraction(v))) for v in x.entries())
    return verdict(largest < 10, f"state of size {largest:.4g} after {len(value.writes)} sites", state=largest)


def carry_is_identity(value: Driven) -> Verdict:
    """The carry of every stretch is I, so carried gradients are exactly 1; the state is at most the sum of |r_l|."""
    n = value.writes[0].nrows()
    product, x = exact.identity(n), flint.fmpq_mat(n, 1)
    for a, r in zip(value.carries, value.writes):
        product, x = a * product, a * x + r
    if product != exact.identity(n):
        return verdict(False, "the carry is not I", carry=product)
    totals = [sum(abs(exact.fraction(r[i, 0])) for r in value.writes) for i in range(n)]
    for i, total in enumerate(totals):
        if abs(exact.fraction(x[i, 0])) > total:
            return verdict(False, "state above the sum of the writes", stream=i, state=x[i, 0])
    return verdict(True, f"carry I over {len(value.writes)} sites; the state is the sum of the writes", state=x)


def driven(sites: int, gates: Sequence[int | Fraction] = (1, 1)) -> Driven:
    """Writes and gates of a network whose sites all have these gates."""
    net = network([diagonal(gates)] * sites, seed=sites)
    return Driven(net.writes, net.mixers)


G49 = Claim(
    id="G49",
    document="G",
    section="11",
    statement="The identity path of pure iHC is completely stable.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("writes in (0, 2), branch outputs bounded by 1",),
    literal=Check(
        "The size of the state after 3 and after 60 sites.",
        state_bounded,
        fixed(Case("3 sites", driven(3)), Case("60 sites", driven(60))),
        Case("200 sites", driven(200)),
    ),
    repair=Repair(
        "The carry itself is exactly I at every depth; the state may grow in proportion to the depth.",
        Check(
            "Products of the carries and sums of the writes.",
            carry_is_identity,
            fixed(Case("3 sites", driven(3)), Case("60 sites", driven(60)), Case("200 sites", driven(200))),
            Case("gates 9/10", driven(10, (Fraction(9, 10), 1))),
        ),
    ),
)

CLAIMS = (G45, G46, G47, G48, G49)
