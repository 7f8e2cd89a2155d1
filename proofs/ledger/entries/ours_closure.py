"""Ours: pure iHC as a limit (closure), and the weights that costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim
from streamgauge.proofs.ledger.entries.ours_gauge import any_network, cut, regauged
from streamgauge.proofs.ledger.entries.ours_width import SEED
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
from streamgauge.theory.exact import from_floats, identity, to_floats
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


def _stays_away(value: tuple[Network, Network, int]) -> Verdict:
    """Some entry of the kernels differs by sigma_N / sqrt(rows x columns) or more, N the rank of the cut."""
    net, other, level = value
    block = cut(net, level)
    numbers = to_floats(block)
    sigma = float(np.linalg.svd(numbers, compute_uv=False)[block.rank() - 1])
    bound, found = sigma / float(numbers.size**0.5), float(_distance(net, other))
    reason = f"level {level}, rank {block.rank()}: kernel distance {found:.4g}, bound {bound:.4g}"
    return verdict(found >= bound * (1 - 1e-9), reason, distance=found, bound=bound, rank=block.rank())


def _narrowed(seed: int) -> Case:
    """The network squeezed through the best N - 1 directions where its cut has the largest rank N."""
    net = any_network(seed)
    ranks = [cut(net, t).rank() for t in range(1, len(net) + 1)]
    most = max(ranks)
    level = 1 + ranks.index(most)
    states = to_floats(net.entry)
    for a, r in zip(net.mixers[:level], net.writes[:level]):
        states = np.hstack([to_floats(a) @ states, to_floats(r)])
    kept = np.linalg.svd(to_floats(cut(net, level)))[2][: most - 1].T
    narrow = from_floats(states @ kept) * from_floats(kept.T @ np.linalg.pinv(states))
    mixers, writes = list(net.mixers), list(net.writes)
    mixers[level - 1], writes[level - 1] = narrow * mixers[level - 1], narrow * writes[level - 1]
    squeezed = replace(net, mixers=tuple(mixers), writes=tuple(writes))
    return Case(f"seed {seed}, rank {most}", (net, squeezed, level))


def _almost(net: Network) -> Network:
    return replace(net, readout=net.readout * flint.fmpq(1001, 1000))


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
        note="No more, by P50: the closure is exactly the kernels whose cuts have rank at most N.",
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
        "P50",
        "ours",
        "closure",
        r"A kernel with a cut of rank $N$ is no limit of fewer streams: some entry of theirs is off by at least "
        r"$\sigma_N / \sqrt{rows \cdot columns}$ of the cut.",
        "theorem",
        "property test",
        Check(
            "Seeded networks against the same ones squeezed through the best N - 1 directions at the cut.",
            _stays_away,
            counted(8, 60, _narrowed),
            Case("as many streams, readout off by 1/1000", (SEED, _almost(SEED), 1)),
        ),
        note="Eckart and Young: a matrix of rank N - 1 is at least sigma_N away in the 2-norm.",
        hypotheses=("static reads and writes; kernels as matrices over the reals",),
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
        hypotheses=(
            r"static 0/1 gates, each 0 replaced by $\epsilon$; weights of the pure iHC that absorbs the gates",
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
)
