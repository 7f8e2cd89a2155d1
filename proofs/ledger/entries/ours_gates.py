"""Ours: cutting small gates, and what the norm gate does to the size of the state."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.tools import counted, fixed, plain, verdict
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_factor, norm_factor_squared
from streamgauge.theory.verdict import Verdict

Vector = tuple[Fraction, ...]
ONE, ZERO, HALF = Fraction(1), Fraction(0), Fraction(1, 2)
TILTED = (ONE, HALF, -HALF)
E_LOW = Fraction(2718281828, 10**9)
"""Below e."""


@dataclass(frozen=True)
class Gated:
    """A gated network (L sites, n slots) and the single site gates (site, slot) that are cut to zero."""

    gates: tuple[Vector, ...]
    reads: tuple[Vector, ...]
    writes: tuple[Vector, ...]
    cuts: frozenset[tuple[int, int]]
    tau: Fraction


def _kernel(net: Gated, *, cut: bool) -> dict[tuple[int, int], Fraction]:
    """K[t, j] = sum_s read_ts write_js prod of the gates of sites j+1 .. t-1."""
    out = {}
    for j, write in enumerate(net.writes):
        carried = list(write)
        for t in range(j + 1, len(net.reads)):
            out[t, j] = sum((p * x for p, x in zip(net.reads[t], carried)), Fraction(0))
            dropped = [cut and (t, s) in net.cuts for s in range(len(carried))]
            carried = [Fraction(0) if drop else g * x for drop, g, x in zip(dropped, net.gates[t], carried)]
    return out


def _small_change(net: Gated) -> Verdict:
    """K - K' is the sum over slots cut in between, exactly, and at most tau |read| |write|."""
    whole, cut = _kernel(net, cut=False), _kernel(net, cut=True)
    worst: tuple[Fraction, Fraction, int, int] | None = None
    for (t, j), value in whole.items():
        change, lost = value - cut[t, j], Fraction(0)
        for s, (p, r) in enumerate(zip(net.reads[t], net.writes[j])):
            if any(slot == s and j < l < t for l, slot in net.cuts):
                lost += p * r * math.prod((net.gates[l][s] for l in range(j + 1, t)), start=Fraction(1))
        if change != lost:
            return verdict(False, f"K[{t}, {j}] changes by {change}, formula {lost}", change=change, formula=lost)
        sizes = sum(x * x for x in net.reads[t]) * sum(x * x for x in net.writes[j])
        if lost**2 > net.tau**2 * sizes and (worst is None or abs(lost) > abs(worst[0])):
            worst = (lost, net.tau**2 * sizes, t, j)
    if worst is not None:
        size, bound, t, j = float(worst[0]), float(worst[1]) ** 0.5, *worst[2:]
        reason = f"K[{t}, {j}] changes by {size:.4g}, bound {bound:.4g}"
        return verdict(False, reason, read=t, write=j, change=size, bound=bound)
    return verdict(True, f"all {len(whole)} entries within tau |read| |write|, change by the formula", tau=net.tau)


def _random_gated(seed: int, *, sites: int = 6, n: int = 3, tau: Fraction = Fraction(1, 20)) -> Gated:
    """Gates in [0, 1], a third of them at most tau; those are cut."""
    dice = random.Random(seed)
    gates = tuple(
        tuple(
            tau * dice.randint(0, 10) / 10 if dice.random() < 0.3 else Fraction(dice.randint(50, 100), 100)
            for _ in range(n)
        )
        for _ in range(sites)
    )
    reads, writes = (
        tuple(tuple(Fraction(dice.randint(-9, 9), 9) for _ in range(n)) for _ in range(sites)) for _ in range(2)
    )
    cuts = frozenset((l, s) for l in range(sites) for s in range(n) if gates[l][s] <= tau)
    return Gated(gates, reads, writes, cuts, tau)


def _accumulated() -> Gated:
    """Gates 9/10 throughout; cut where the product since the entry is at most 1e-6: the wrong rule."""
    tau, sites = Fraction(1, 10**6), 136
    gate, one = (Fraction(9, 10),), (Fraction(1),)
    first = next(l for l in range(sites) if Fraction(9, 10) ** (l + 1) <= tau)
    return Gated((gate,) * sites, (one,) * sites, (one,) * sites, frozenset({(first, 0)}), tau)


@dataclass(frozen=True)
class Bounded:
    """A gated network with branches F_j(z) = lambda_j |z + 1| on one feature, and bounds of every |z_t - z'_t|."""

    net: Gated
    slopes: Vector
    bounds: Vector


def _run(net: Gated, slopes: Vector, *, cut: bool) -> tuple[list[Fraction], list[Fraction]]:
    """Site inputs z_t = 1 + sum_j K_tj F_j(z_j), and branch outputs."""
    kernel = _kernel(net, cut=cut)
    inputs: list[Fraction] = []
    outputs: list[Fraction] = []
    for t, slope in enumerate(slopes):
        z = 1 + sum((kernel[t, j] * outputs[j] for j in range(t)), Fraction(0))
        inputs.append(z)
        outputs.append(slope * abs(z + 1))
    return inputs, outputs


def _within(value: Bounded) -> Verdict:
    whole, cut = (_run(value.net, value.slopes, cut=c)[0] for c in (False, True))
    worst = Fraction(0)
    for t, (x, y, bound) in enumerate(zip(whole, cut, value.bounds)):
        if abs(x - y) > bound:
            reason = f"input of site {t} moves by {float(abs(x - y)):.4g}, bound {float(bound):.4g}"
            return verdict(False, reason, site=t, moved=abs(x - y), bound=bound)
        worst = max(worst, abs(x - y) / bound if bound else worst)
    return verdict(True, f"every input within its bound, at most {float(worst):.3g} of it", largest=float(worst))


def _output_case(seed: int, *, propagate: bool = True) -> Case:
    """(I - |K'| Lambda)^-1 |dK| f by forward substitution; without the inverse where ``propagate`` is False."""
    net = _random_gated(seed, sites=7)
    dice = random.Random(seed)
    slopes = tuple(Fraction(dice.randint(5, 20), 10) for _ in net.reads)
    whole, cut = _kernel(net, cut=False), _kernel(net, cut=True)
    outputs = _run(net, slopes, cut=False)[1]
    bounds: list[Fraction] = []
    for t in range(len(slopes)):
        own = sum((abs(whole[t, j] - cut[t, j]) * abs(outputs[j]) for j in range(t)), Fraction(0))
        passed = sum((abs(cut[t, j]) * slopes[j] * bounds[j] for j in range(t)), Fraction(0))
        bounds.append(own + passed if propagate else own)
    return Case(f"seed {seed}", Bounded(net, slopes, tuple(bounds)))


def _norm_of(value: tuple[Vector, Fraction]) -> Verdict:
    """With c^2 given: c^2 sum g^2 = n, ||D||_2^2 >= 1 >= det D^2, and equality exactly for equal |g_i|."""
    g, square = value
    n = len(g)
    total = square * sum(x * x for x in g)
    gain, det = square * max(x * x for x in g), math.prod((square * x * x for x in g), start=Fraction(1))
    equal = len({abs(x) for x in g}) == 1
    ok = total == n and gain >= 1 >= det and (gain == 1) == equal and (det == 1) == equal
    reason = f"||D||_F^2 = {float(total):.4g} of n = {n}, ||D||_2^2 = {float(gain):.4g}, det^2 = {float(det):.4g}"
    return verdict(ok, reason, frobenius=total, gain=gain, determinant=det)


def _some_gates(seed: int) -> Case:
    dice = random.Random(seed)
    n = 1 + seed % 5
    g = tuple(Fraction(dice.choice((-3, -2, -1, 1, 2, 3)) if seed % 3 else dice.choice((-2, 2))) for _ in range(n))
    if seed % 4 == 1 and n > 1:
        g = (*g[:-1], Fraction(0))
    return Case(f"gates {plain(g)}", (g, norm_factor_squared(g, NormGate())))


def _growth(value: tuple[Vector, int, Fraction]) -> Verdict:
    """(c^2)^sites for a fixed pattern of gates 0 and 1, squared growth of the survivors."""
    g, sites, stated = value
    found = Fraction(len(g)) ** sites / sum(x * x for x in g) ** sites
    reason = f"{sites} sites multiply the survivors by {float(found) ** 0.5:.6g}, stated {float(stated) ** 0.5:.6g}"
    return verdict(found == stated, reason, growth=float(found) ** 0.5, stated=float(stated) ** 0.5)


def _shrinks(value: tuple[Vector, float, float, str]) -> Verdict:
    """The factor is sqrt(n) / (||g|| + eps), and ||D(g)||_2 below 1, to three digits as stated."""
    g, eps, factor, stated = value
    own = len(g) ** 0.5 / (float(sum(x * x for x in g)) ** 0.5 + eps)
    gain = factor * float(max(abs(x) for x in g))
    reason = f"||D||_2 = {gain:.6g} with eps = {eps}, stated {stated}"
    return verdict(abs(own - factor) < 1e-12 and gain < 1 and f"{gain:.3f}" == stated, reason, gain=gain, gates=g)


def _shrinking(eps: float) -> tuple[Vector, float, float, str]:
    return (HALF, HALF), eps, norm_factor([0.5, 0.5], NormGate(eps=eps)), "0.876"


def _factor_one(value: tuple[Vector, int, Fraction]) -> Verdict:
    """The squared factor is min(cap^2, n / sum g^2), and it is 1 (or g = 0, where D = 0 anyway)."""
    g, cap, square = value
    total = sum(x * x for x in g)
    own = min(Fraction(cap**2), len(g) / total) if total else Fraction(1)
    return verdict(square == own == 1, f"c^2 = {square} for gates {plain(g)}, cap {cap}", factor_squared=square)


def _capped(seed: int, cap: int = 1) -> Case:
    dice = random.Random(seed)
    g = tuple(Fraction(dice.randint(-10, 10), 10) for _ in range(1 + seed % 5))
    return Case(f"gates {plain(g)}", (g, cap, norm_factor_squared(g, NormGate(cap=cap))))


def _bounded_between_resets(patterns: Sequence[Vector]) -> Verdict:
    """The squared growth of any slot between two of its resets stays below e."""
    n = len(patterns[0])
    run = [Fraction(1)] * n
    largest = Fraction(1)
    for l, g in enumerate(patterns):
        square = Fraction(n) / sum(x * x for x in g)
        run = [x * square if gate else Fraction(1) for x, gate in zip(run, g)]
        largest = max(largest, *run)
        if largest >= E_LOW:
            return verdict(
                False, f"squared growth {float(largest):.4g} after site {l}", site=l, growth_squared=largest
            )
    return verdict(True, f"largest squared growth {float(largest):.6g}, e = 2.71828", growth_squared=largest)


def _in_turn(n: int) -> Sequence[Vector]:
    return [tuple(Fraction(int(s != l % n)) for s in range(n)) for l in range(6 * n)]


Gate = Callable[[Vector], Vector]


def _squares(gate: NormGate) -> Gate:
    """The squared diagonal of D(g), exactly."""
    return lambda g: tuple(norm_factor_squared(g, gate) * x * x for x in g)


def _plain_squares(g: Vector) -> Vector:
    return tuple(x * x for x in g)


def _jumps_at_zero(value: tuple[Gate, Vector]) -> Verdict:
    """D(t g) = D(g) for t down to 1e-30, and D(0) = 0: no limit at 0."""
    gate, g = value
    away = gate(g)
    if any(gate(tuple(Fraction(0) for _ in g))):
        return verdict(False, "D(0) is not 0", at_zero=gate(tuple(Fraction(0) for _ in g)))
    for k in (1, 10, 30):
        near = gate(tuple(x / 10**k for x in g))
        if near != away:
            return verdict(False, f"at 1e-{k} of g, D^2 is {[float(x) for x in near]}", near=near, away=away)
    return verdict(True, f"D^2 = {plain(away)} along the whole ray, 0 at its end", away=away)


def _turns(level: Level) -> Iterator[Case]:
    for n in (2, 3, 4, 8) if level is Level.QUICK else (2, 3, 4, 5, 8, 16, 32):
        yield Case(f"n = {n}", _in_turn(n))


CLAIMS = (
    Claim(
        "P24",
        "ours",
        "cutting gates",
        r"Gates in $[0,1]$, single site gates of at most $\tau$ cut to zero: $dK_{tj}$ is the sum over slots cut "
        r"between j and t of read x write x gates, hence $|dK_{tj}| \leq \tau \|read_t\|_2 \|write_j\|_2$.",
        "theorem",
        "exact certificate",
        Check(
            "Seeded networks over Q, every entry of the kernel.",
            _small_change,
            counted(5, 50, lambda i: Case(f"seed {i}", _random_gated(i))),
            Case("cut where the accumulated product is small, gates 9/10", _accumulated()),
        ),
        hypotheses=("static gates in [0, 1]", "the rule is about one site, not about a product since birth"),
        note="Cutting at an accumulated product of 1e-6 with gates 0.9 changes the kernel by 0.9.",
    ),
    Claim(
        "P25",
        "ours",
        "cutting gates",
        r"With $f_j = \|F_j(z_j)\|$ on the original run and Lipschitz constants $\Lambda$, the site inputs move "
        r"by at most $(I - |K'| \Lambda)^{-1} |dK| f$.",
        "theorem",
        "exact certificate",
        Check(
            "Networks with branches lambda |z + 1| run over Q with and without the cuts.",
            _within,
            counted(5, 50, _output_case),
            Case("without the inverse", _output_case(2, propagate=False).value),
        ),
        hypotheses=("causal kernel: the inverse is a forward substitution", "Lipschitz branches"),
    ),
    Claim(
        "P26",
        "ours",
        "norm gate",
        r"For $\epsilon = 0$ and $g \neq 0$: $\|D(g)\|_F^2 = n$ and $\|D(g)\|_2 \geq 1 \geq |\det D(g)|$, with "
        r"equality iff all $|g_i|$ are equal.",
        "theorem",
        "exact certificate",
        Check(
            "Squares over Q, signed gates and zeros.",
            _norm_of,
            counted(12, 100, _some_gates),
            Case(
                "factor of eps = 1/10", ((HALF, HALF), Fraction(2) / (Fraction(7071, 10000) + Fraction(1, 10)) ** 2)
            ),
        ),
        hypotheses=("no cap", "eps = 0"),
        note="The mean-square gain is 1 when the streams carry equal energy; the geometric mean gain is at most 1.",
    ),
    Claim(
        "P27",
        "ours",
        "norm gate",
        r"Sixty norm gates of $(1, 1, 1, 0)$ multiply the survivors by $(4/3)^{30} = 5599.67$; of $(1, 1, 0, 0)$ by "
        r"$2^{30}$.",
        "number",
        "exact certificate",
        Check(
            "Exact squares.",
            _growth,
            fixed(
                Case("(1, 1, 1, 0)", ((ONE, ONE, ONE, ZERO), 60, Fraction(4, 3) ** 60)),
                Case("(1, 1, 0, 0)", ((ONE, ONE, ZERO, ZERO), 60, Fraction(2) ** 60)),
            ),
            Case("all alive", ((ONE,) * 4, 60, Fraction(4, 3) ** 60)),
        ),
    ),
    Claim(
        "P28",
        "ours",
        "norm gate",
        r"With $\epsilon > 0$ the lower bound $\|D(g)\|_2 \geq 1$ fails: $g = (1/2, 1/2)$ and $\epsilon = 0.1$ "
        r"give 0.876.",
        "number",
        "numeric reproduction",
        Check(
            "The factor evaluated.",
            _shrinks,
            fixed(Case("eps = 1/10", _shrinking(0.1))),
            Case("eps = 0", _shrinking(0.0)),
        ),
    ),
    Claim(
        "P29",
        "ours",
        "norm gate",
        r"With cap 1 and $|g_i| \leq 1$ the norm gate is the plain gate: $D = diag(g)$.",
        "theorem",
        "exact certificate",
        Check(
            "Seeded gates in [-1, 1].",
            _factor_one,
            counted(12, 100, _capped),
            Case("cap 2", _capped(3, cap=2).value),
        ),
        hypotheses=(r"$\epsilon = 0$; at least one gate not 0, or $c(0) = 1$",),
    ),
    Claim(
        "P30",
        "ours",
        "norm gate",
        r"Deaths in turn keep the growth of a slot between two of its resets below $\sqrt{e}$, where a fixed death "
        r"pattern grows without bound.",
        "theorem",
        "exact certificate",
        Check(
            "One slot resets per site, in turn; squared growth over Q.",
            _bounded_between_resets,
            _turns,
            Case("slot 3 dies always", [(ONE, ONE, ONE, ZERO)] * 24),
        ),
        hypotheses=("eps = 0, no cap", "gates 0 and 1"),
    ),
    Claim(
        "P31",
        "ours",
        "norm gate",
        r"For $\epsilon = 0$, $D(g)$ is discontinuous at 0: $D(tg) = D(g)$ for all $t > 0$, $D(0) = 0$.",
        "theorem",
        "exact certificate",
        Check(
            "Squared diagonals along a ray, over Q.",
            _jumps_at_zero,
            fixed(
                Case("equal gates", (_squares(NormGate()), (ONE, ONE))),
                Case("tilted gates", (_squares(NormGate()), TILTED)),
            ),
            Case("the plain gate", (_plain_squares, TILTED)),
        ),
        hypotheses=(r"no cap; $g \neq 0$",),
    ),
)
