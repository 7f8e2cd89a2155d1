"""Ours: pure iHC as a limit (closure), the weights that costs, and what floating point makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.ours_gauge import any_network, regauged
from streamgauge.proofs.ledger.entries.ours_width import SEED, positive_chain
from streamgauge.proofs.ledger.tools import (
    Network,
    column,
    counted,
    depth_kernel,
    fixed,
    quadratic,
    rational,
    row,
    run_exactly,
    verdict,
)
from streamgauge.theory.doubly import uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat
Family = Callable[[Fraction], tuple[Matrix, ...]]
EPS = tuple(Fraction(1, 10**k) for k in (3, 6, 9))


def _pure(net: Network, mixers: Sequence[Matrix], start: Matrix | None = None) -> Network:
    """The network with these invertible mixers in the gauge P_{l+1} = A_l P_l: mixers I on the same streams."""
    gauge = [start or identity(mixers[0].nrows())]
    for a in mixers:
        gauge.append(a * gauge[-1])
    return regauged(replace(net, mixers=tuple(mixers)), gauge)


def _distance(left: Network, right: Network) -> flint.fmpq:
    mine, theirs = depth_kernel(left), depth_kernel(right)
    return max(abs(x) for name, block in mine.items() for x in (block - theirs[name]).entries())


def _approaches(value: tuple[Network, Family]) -> Verdict:
    """Pure iHC networks of the same width come within O(eps) of the kernel: distance / eps stays bounded."""
    net, family = value
    n, quotients = net.entry.nrows(), []
    for eps in EPS:
        pure = _pure(net, family(eps))
        if any(a != identity(n) for a in pure.mixers):
            return verdict(False, f"eps = {eps}: a mixer is not I", eps=eps)
        quotients.append(float(_distance(net, pure) / flint.fmpq(eps.numerator, eps.denominator)))
    ok = all(q <= 2 * quotients[0] + 1e-9 for q in quotients)
    return verdict(ok, f"kernel distance / eps: {', '.join(f'{q:.4g}' for q in quotients)}", quotients=quotients)


def _outputs_approach(value: tuple[Network, Family]) -> Verdict:
    """The same for the functions: outputs over eps on a grid of inputs, quadratic branches with a bias."""
    net, family = value
    branches = [quadratic] * len(net)
    inputs = [rational([[a, 1], [b, -1]]) / 4 for a in (-4, 0, 3) for b in (-2, 4)]
    quotients = []
    for eps in EPS:
        pure = _pure(net, family(eps))
        gaps = (run_exactly(net, x, branches) - run_exactly(pure, x, branches) for x in inputs)
        quotients.append(
            float(max(abs(y) for gap in gaps for y in gap.entries()) / flint.fmpq(eps.numerator, eps.denominator))
        )
    ok = all(q <= 2 * quotients[0] + 1e-9 for q in quotients)
    return verdict(ok, f"output distance / eps: {', '.join(f'{q:.4g}' for q in quotients)}", quotients=quotients)


def _shifted(net: Network) -> Family:
    """A + t I with t = eps or, where that is singular, a little more."""
    n = net.mixers[0].nrows()

    def family(eps: Fraction) -> tuple[Matrix, ...]:
        out = []
        for a in net.mixers:
            t = flint.fmpq(eps.numerator, eps.denominator)
            while (a + identity(n) * t).det() == 0:
                t = t * flint.fmpq(101, 100)
            out.append(a + identity(n) * t)
        return tuple(out)

    return family


def _closing(seed: int) -> Case:
    net = any_network(seed)
    return Case(f"seed {seed}", (net, _shifted(net)))


@dataclass(frozen=True)
class Weights:
    """One slot with ``deaths`` zero gates replaced by eps, its basis scaled by eps^start at level 0."""

    deaths: int
    start: Fraction
    stated: Fraction


def _largest_weight(value: Weights) -> Verdict:
    """The largest read, write or entry of the pure network is eps^-stated; no other start exponent does better."""
    root = Fraction(1, 100)  # eps = root^2, so that eps^(k/2) is rational
    k, n_free = value.deaths, value.start != 0
    net = Network((rational([[root**2]]),) * k, (row(1),) * k, (column(1),) * k, column(1), row(1))

    def largest(start: Fraction) -> Fraction:
        pure = _pure(net, net.mixers, rational([[root ** int(2 * start)]]))
        parts = [*pure.reads, *pure.writes, pure.readout, pure.entry]
        return max(abs(Fraction(int(x.p), int(x.q))) for m in parts for x in m.entries())

    found, wanted = largest(value.start), root ** int(-2 * value.stated)
    others = [largest(Fraction(s, 2)) for s in range(-2 * k, 2 * k + 1)] if n_free else [found]
    reason = f"{k} deaths: largest weight {float(found):.3g}, eps^-{value.stated} = {float(wanted):.3g}"
    return verdict(found == wanted <= min(others), reason, largest=float(found), stated=float(wanted))


TwoStreams = tuple[Matrix, Matrix, Matrix, Matrix, Matrix, Matrix]
"""Reads a (of site 0) and b (of site 1), readout c, entry M, writes u and v."""


def _needs_weight(value: TwoStreams) -> Verdict:
    """With kernel error delta < 1 to the normalised seed: |a u| >= ((1-d)^3 - d^2 (1+d)) / (d (1+d))."""
    a, b, c, m, u, v = value
    wanted = (
        (a * m, row(1, -1)),
        (b * m, row(0, 0)),
        (c * m, row(1, 1)),
        (b * u, row(1)),
        (c * u, row(0)),
        (c * v, row(1)),
    )
    delta = max(abs(x) for found, target in wanted for x in (found - target).entries())
    if not 0 < delta < 1:
        return verdict(False, f"kernel error {delta}, expected between 0 and 1", delta=delta)
    bound = ((1 - delta) ** 3 - delta**2 * (1 + delta)) / (delta * (1 + delta))
    found = abs((a * u)[0, 0])
    reason = f"kernel error {float(delta):.4g}: |read 0 . write 0| = {float(found):.6g}, bound {float(bound):.6g}"
    return verdict(found >= bound, reason, delta=delta, product=found, bound=bound)


def _near_seed(seed: int) -> Case:
    """The family with weights 1/eps, every number shaken by a fraction of eps."""
    dice, eps = random.Random(seed), Fraction(1, (2, 5, 10, 100, 10**4)[seed % 5])

    def shaken(*lines: Sequence[Any]) -> Matrix:
        return rational([[Fraction(x) + eps * dice.randint(-10, 10) / 200 for x in line] for line in lines])

    a, b, c = shaken((0, 1)), rational([[0, eps]]), rational([[1, eps**2 * dice.randint(-10, 10) / 20]])
    m, u, v = shaken((1, 1), (1, -1)), rational([[0], [1 / eps]]), shaken((1,), (0,))
    return Case(f"eps {eps}, seed {seed}", (a, b, c, m, u, v))


THREE_STREAMS: TwoStreams = (
    row(1, -1, 0),
    row(Fraction(1, 10), 0, 1),
    row(1, 1, 0),
    rational([[1, 0], [0, 1], [0, 0]]),
    column(0, 0, 1),
    column(1, 0, 0),
)


@dataclass(frozen=True)
class Swamping:
    """Writes of size [1, 2) into one stream at scale 2^(m k): the reset by round-off, ``resets`` times."""

    dtype: str
    bits: int
    start: int
    resets: int


def _resets_exactly(value: Swamping) -> Verdict:
    """After every write the stream, read at its scale, is the new value bit for bit."""
    kind = np.dtype(value.dtype).type
    digits = np.finfo(kind).nmant
    dice = random.Random(value.bits)
    state = kind(0)
    for k in range(value.resets + 1):
        fraction = dice.getrandbits(digits) if k % 2 else 2**digits - 1 if k % 4 == 0 else 1
        fresh = kind(1 + fraction / 2**digits)
        with np.errstate(over="ignore"):
            scaled = np.ldexp(fresh, value.start + value.bits * k).astype(kind)
            state = kind(state + scaled)
            seen = np.ldexp(state, -(value.start + value.bits * k)).astype(kind)
        if seen != fresh:
            reason = f"write {k}: read {seen!r} instead of {fresh!r}"
            return verdict(False, reason, write=k, read=float(seen), written=float(fresh))
    return verdict(True, f"{value.resets} resets in {value.dtype}, bit for bit", resets=value.resets)


def most_resets(dtype: str, *, centred: bool) -> Swamping:
    """As many resets as the exponent range holds with m = p + 1 bits each, p the precision."""
    info = np.finfo(np.dtype(dtype).type)
    bits, start = info.nmant + 2, (info.minexp if centred else 0)
    return Swamping(dtype, bits, start, (info.maxexp - 1 - start) // bits)


def _resets_number(value: tuple[str, bool, int]) -> Verdict:
    """So many resets work, and one more leaves the exponent range."""
    dtype, centred, stated = value
    most = most_resets(dtype, centred=centred)
    works = _resets_exactly(most)
    more = _resets_exactly(replace(most, resets=most.resets + 1))
    ok = bool(works) and not more and most.resets == stated
    reason = f"{dtype}{' centred' if centred else ''}: {most.resets} resets of {most.bits} bits, stated {stated}"
    return verdict(ok, reason, resets=most.resets, stated=stated, next=more.reason)


@dataclass(frozen=True)
class Floor:
    """An all-J network of k deaths run as a pure iHC in float32: in the basis of its maps, or slots as streams."""

    deaths: int
    aligned: bool = False


def _unaligned_floor(value: Floor) -> Verdict:
    """The smallest error over eps = 2^-1 .. 2^-30 lies within a factor 10 of u^(1/(k+1)), and is not zero."""
    k = value.deaths
    u = 2.0**-24
    errors = [max(_error(value, 2.0**-m, seed) for seed in range(6)) for m in range(1, 31)]
    least, wanted = min(errors), u ** (1 / (k + 1))
    reason = f"k = {k}: least error {least:.3g}, u^(1/{k + 1}) = {wanted:.3g}"
    return verdict(
        wanted / 10 <= least <= 10 * wanted,
        reason,
        least=least,
        order=wanted,
        best_eps=2.0 ** -(1 + errors.index(least)),
    )


def _error(value: Floor, eps: float, seed: int) -> float:
    """Largest error of the site inputs, float32 streams against exact numbers, branches' outputs fixed."""
    net = positive_chain([uniform(2)] * (value.deaths + 1), free=True, seed=seed)
    q = np.array([[1.0, 1.0], [1.0, -1.0]])  # J = q diag(1, 0) q^-1, and q^-1 = q / 2
    true = np.array([0.7, -0.4 + seed / 7])
    state = (q @ true / 2 if value.aligned else true).astype(np.float32)
    worst = 0.0
    for l, (p, r) in enumerate(zip(net.reads, net.writes)):
        read, write = (np.array([float(x) for x in v.entries()]) for v in (p, r))
        seen = np.float32(0)
        for weight, x in zip((read @ _gauge(q, eps**l, value.aligned)).astype(np.float32), state):
            seen = np.float32(seen + np.float32(weight * x))
        worst = max(worst, abs(float(seen) - float(read @ true)))
        branch = 1.0 + 0.3 * (-1) ** l
        coordinates = np.array([1.0, eps ** -(l + 1)]) * (q @ write / 2)
        weights = (coordinates if value.aligned else q @ coordinates).astype(np.float32)
        state = (state + weights * np.float32(branch)).astype(np.float32)
        true = np.array([true.mean()] * 2) + write * branch
    return worst


def _gauge(q: np.ndarray, power: float, aligned: bool) -> np.ndarray:
    """The map J + eps (I - J) to a power, on the streams or on the slots (mean, difference)."""
    slots = q @ np.diag([1.0, power])
    return slots if aligned else slots @ q / 2


def _floors(level: Level) -> Iterator[Case]:
    for k in (1, 2, 3):
        yield Case(f"k = {k}", Floor(k))


def _stuck(net: Network) -> Family:
    """A family that does not tend to the singular map: the dead direction keeps gate 1."""
    return lambda eps: (identity(2),) * len(net)


CLAIMS = (
    Claim(
        "P18",
        "ours",
        "closure",
        r"The kernels of gated iHC with $N$ streams are limits of those of pure iHC with $N$ streams: "
        r"$A + \epsilon I$ is invertible for small $\epsilon$ and its kernel is within $O(\epsilon)$.",
        "theorem",
        "exact certificate",
        Check(
            "Integer networks of all ranks; pure networks of the same width at eps = 1e-3, 1e-6, 1e-9, exactly.",
            _approaches,
            counted(5, 40, _closing),
            Case("the seed with its reset left out", (SEED, _stuck(SEED))),
        ),
        hypotheses=("kernel level", "static A of any rank"),
        note="No more: Hankel ranks cannot rise in a limit, so the closure is exactly {max rank of H_t at most N}.",
    ),
    Claim(
        "P49",
        "ours",
        "closure",
        r"On compact sets the functions are within $O(\epsilon)$ too, for locally Lipschitz branches.",
        "theorem",
        "exact certificate",
        Check(
            "Outputs on a grid of inputs, quadratic branches with a bias, exactly.",
            _outputs_approach,
            counted(4, 20, lambda i: Case(f"seed {i}", (any_network(i, sites=3), _shifted(any_network(i, sites=3))))),
            Case("the seed with its reset left out", (SEED, _stuck(SEED))),
        ),
        hypotheses=("a compact set of inputs", "locally Lipschitz branches, static A"),
    ),
    Claim(
        "P19",
        "ours",
        "closure",
        r"With $k$ deaths of one slot before its last used write the weights are $\epsilon^{-k}$; $\epsilon^{-k/2}$ "
        r"if the entry is free.",
        "theorem",
        "exact certificate",
        Check(
            "One slot, exact powers; with free entry every half-integer start exponent tried.",
            _largest_weight,
            fixed(
                *(Case(f"{k} deaths, entry fixed", Weights(k, Fraction(0), Fraction(k))) for k in (1, 2, 4)),
                *(Case(f"{k} deaths, entry free", Weights(k, Fraction(-k, 2), Fraction(k, 2))) for k in (1, 2, 4)),
            ),
            Case("k/2 with the entry fixed", Weights(2, Fraction(0), Fraction(1))),
        ),
    ),
    Claim(
        "P20",
        "ours",
        "closure",
        r"Any two-stream pure iHC within kernel error $\delta < 1$ of the seed has $|read_0 \cdot write_0| \geq "
        r"((1-\delta)^3 - \delta^2(1+\delta)) / (\delta(1+\delta))$, about $1/\delta$.",
        "theorem",
        "exact certificate",
        Check(
            "Two-stream networks near the seed, shaken; exact rationals.",
            _needs_weight,
            counted(10, 100, _near_seed),
            Case("three streams", THREE_STREAMS),
        ),
        hypotheses=("two streams, free entry, signed weights", "kernel entries normalised to 1, max norm"),
        note="Proof: read 1 = alpha read 0 + gamma readout on the two streams, with |alpha|, |gamma| at most "
        "delta (1 + delta) / (1 - delta)^2; write 0 must still reach read 1.",
    ),
    Claim(
        "P21",
        "ours",
        "floating point",
        r"Where slots are streams, $\epsilon = 2^{-m}$ with $m > p$ (p bits of precision) resets a stream bit for "
        r"bit: round-off swallows the old value.",
        "theorem",
        "numeric reproduction",
        Check(
            "Values in [1, 2), all-ones significands included, in numpy float16, float32, float64.",
            _resets_exactly,
            fixed(
                *(
                    Case(f"{d}{', centred' if c else ''}", most_resets(d, centred=c))
                    for d in ("float16", "float32", "float64")
                    for c in (False, True)
                )
            ),
            Case("m = p in float32", Swamping("float32", 24, 0, 4)),
        ),
        note="m = p, i.e. eps = u, is one bit too few for values of one binade: a sticky half ulp rounds up.",
    ),
    Claim(
        "P22",
        "ours",
        "floating point",
        r"It ends with the exponent range: 1 reset in float16, 5 in float32, 18 in float64; twice as many when the "
        r"scale starts at the smallest normal exponent.",
        "number",
        "numeric reproduction",
        Check(
            "That many resets work and one more does not.",
            _resets_number,
            fixed(
                Case("float16", ("float16", False, 1)),
                Case("float32", ("float32", False, 5)),
                Case("float64", ("float64", False, 18)),
                Case("float16 centred", ("float16", True, 2)),
                Case("float32 centred", ("float32", True, 10)),
                Case("float64 centred", ("float64", True, 37)),
            ),
            Case("float32, 6", ("float32", False, 6)),
        ),
        note="Counts of 19 in float64 need m = p = 53, which is not bit for bit for every value.",
    ),
    Claim(
        "P23",
        "ours",
        "floating point",
        r"Where the dead direction is no stream, the error is about $C_1 \epsilon + C_2 u \epsilon^{-k}$ and has a "
        r"floor of order $u^{1/(k+1)}$.",
        "number",
        "numeric reproduction",
        Check(
            "All-J networks as pure iHC in float32, k = 1, 2, 3, the best of thirty eps for six networks together.",
            _unaligned_floor,
            _floors,
            Case("aligned slots", Floor(2, aligned=True)),
        ),
        hypotheses=("float32 streams and weights", "within a factor of 10"),
    ),
)
