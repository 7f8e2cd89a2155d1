"""Predicates of the explainer's claims on coefficients, costs and use; counts are made by listing or by running."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.operations import Bench, dot, sweep
from streamgauge.proofs.ledger.tools import Network, column, same_kernel, verdict
from streamgauge.theory import exact
from streamgauge.theory.exact import Floats
from streamgauge.theory.verdict import Verdict

COUNTING = "counts, not times"


def coefficients(n: int) -> list[str]:
    """The names of a site's coefficients, one by one: reads, writes, mixing logits."""
    names = [f"read {j}" for j in range(n)] + [f"write {j}" for j in range(n)]
    return names + [f"mix {j} {k}" for j in range(n) for k in range(n)]


def _groups(n: int) -> set[str]:
    return {name.split()[0] for name in coefficients(n)}


def projection(n: int, d: int) -> Floats:
    """A matrix that takes vec of the n streams of width d to a site's coefficients."""
    return np.empty((len(coefficients(n)), np.empty((n, d)).size), dtype=np.float32)


def count_is(value: tuple[str, int, int]) -> Verdict:
    """A count made by listing equals the claimed number."""
    what, found, claimed = value
    return verdict(found == claimed, f"{what}: counted {found}, claimed {claimed}", counted=found, claimed=claimed)


def grows_at_most(value: tuple[str, Sequence[tuple[int, int]], int]) -> Verdict:
    """count / x^e at the largest x is at most twice that at the smallest: O(x^e) as far as seen."""
    what, points, exponent = value
    (x0, y0), (x1, y1) = points[0], points[-1]
    growth = (y1 / x1**exponent) / (y0 / x0**exponent)
    slope = math.log(y1 / points[-2][1]) / math.log(x1 / points[-2][0])
    reason = f"{what} over x^{exponent} grows {growth:.3g} times from x = {x0} to {x1}; local exponent {slope:.3f}"
    return verdict(growth <= 2, reason, growth=growth, exponent=slope, counts=points)


def sweep_operations(n: int) -> int:
    """Operations of one Sinkhorn sweep of an n by n matrix, counted while it runs."""
    bench = Bench()
    positive = [[x.apply(math.exp) for x in line] for line in bench.matrix(n, n)]
    before = bench.tally.operations
    sweep(positive)
    return bench.tally.operations - before


def product_operations(n: int) -> int:
    """Operations of a product of two n by n matrices."""
    bench = Bench()
    left, right = bench.matrix(n, n), bench.matrix(n, n)
    for line in left:
        for other in right:
            dot(line, other)
    return bench.tally.operations


def sigma(z: float) -> float:
    """1 / (1 + e^-z), without overflow."""
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def read_gate(value: tuple[float, float]) -> Verdict:
    """pre = sigma(z) + eps lies in [eps, 1 + eps] and is positive in floats."""
    z, eps = value
    pre = sigma(z) + eps
    reason = f"logit {z}: read {pre:.9g}"
    return verdict(pre > 0 and eps <= pre <= 1 + eps, reason, logit=z, read=pre, eps=eps)


def write_gate(scale: Any) -> Verdict:
    """c sigma(z) is 1 at z = 0, with positive slope there and values below and above 1: it can shrink and amplify."""
    z = sympy.Symbol("z", real=True)
    gate = sympy.sympify(scale) / (1 + sympy.exp(-z))
    start, slope = gate.subs(z, 0), sympy.diff(gate, z).subs(z, 0)
    low, high = sympy.limit(gate, z, -sympy.oo), sympy.limit(gate, z, sympy.oo)
    ok = start == 1 and slope > 0 and low < 1 < high
    reason = f"{scale} sigma: {start} at 0, slope {slope}, range ({low}, {high})"
    return verdict(ok, reason, start=str(start), slope=str(slope), low=str(low), high=str(high))


def read_bounded_by_input(value: tuple[Sequence[float], Floats]) -> Verdict:
    """Every read lies in (0, 1), and the read-out input is no larger than the largest stream (max norm)."""
    p, x = np.array(value[0]), value[1]
    gain = float(np.abs(p @ x).max() / np.abs(x).max())
    outside = [float(v) for v in p if not 0 < v < 1]
    words = f"{len(outside)} reads outside (0, 1), gain {gain:.9g}"
    return verdict(not outside and gain <= 1, words, outside=outside, gain=gain, reads=p)


def read_bounded_by_sum(value: tuple[Sequence[float], Floats]) -> Verdict:
    """Every read lies in (0, 1 + 1e-6], and the input is at most (sum of the reads) times the largest stream."""
    p, x = np.array(value[0]), value[1]
    gain = float(np.abs(p @ x).max() / np.abs(x).max())
    ok = bool((p > 0).all() and (p <= 1 + 1e-6).all()) and gain <= float(p.sum()) * (1 + 1e-12)
    return verdict(
        ok, f"gain {gain:.6g}, reads sum to {float(p.sum()):.6g}", gain=gain, total=float(p.sum()), reads=p
    )


@dataclass(frozen=True)
class Cache:
    """Streams, width, tokens, and from what the keys and values are made."""

    streams: int
    width: int
    tokens: int
    source: str


def memory_of_streams(value: Cache) -> Verdict:
    """The state holds n times as many numbers as one stream; the cached keys and values are as many as with one."""

    def sizes(n: int) -> tuple[int, int]:
        state = np.ones((value.tokens, n, value.width))
        read = np.einsum("n,tnd->td", np.full(n, 1 / n), state)
        made_of = read if value.source == "read" else state.reshape(value.tokens, -1)
        keys_values = made_of[:, : value.width // 2] if value.source == "read" else made_of
        return state.size, keys_values.size

    (one, cache_one), (many, cache_many) = sizes(1), sizes(value.streams)
    ok = many == value.streams * one and cache_many == cache_one
    reason = f"n = {value.streams}: state {one} -> {many}, cache {cache_one} -> {cache_many}"
    return verdict(ok, reason, state=(one, many), cache=(cache_one, cache_many))


def mixing_matters(net: Network) -> Verdict:
    """With the mixers replaced by the identity and the same reads and writes, the depth kernel is another one."""
    n = net.mixers[0].nrows()
    without = Network((exact.identity(n),) * len(net), net.reads, net.writes, net.entry, net.readout)
    found = same_kernel(net, without)
    reason = "the kernels agree" if found else f"without mixers {found.reason}"
    return verdict(not found, reason, **(found.witness or {"blocks": 0}))


def costs_more(value: tuple[str, int, int]) -> Verdict:
    """A site takes at least as many operations as the plain residual site with the same branch."""
    name, site, plain_site = value
    extra = site - plain_site
    return verdict(
        extra >= 0, f"{name}: {site} operations, {plain_site} without", extra=extra, share=extra / plain_site
    )


def routes(value: tuple[int, Sequence[int]]) -> Verdict:
    """Unit reads and writes, identity carry, n streams: site t receives what site j wrote iff on the same bus."""
    n, buses = value
    unit = [column(*[int(i == b % n) for i in range(n)]) for b in buses]
    for t in range(len(buses)):
        for j in range(t):
            weight = (unit[t].transpose() * unit[j])[0, 0]
            wanted = int(buses[t] == buses[j])
            if weight != wanted:
                reason = f"site {t} receives {weight} of site {j}'s output, wanted {wanted}"
                return verdict(False, reason, sites=(t, j), found=weight, wanted=wanted)
    return verdict(True, f"{len(set(buses))} buses kept apart on {n} streams", buses=buses)
