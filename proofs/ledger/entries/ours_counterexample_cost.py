"""Ours: what approximating the counterexample costs, in weights, in floats, and for an adversary that searches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from streamgauge.proofs.counterexample import search
from streamgauge.proofs.counterexample.family import family_errors
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.tools import verdict
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Order:
    """The family at eps = 2^-k on a grid of that many Q, and the power of eps that its errors are said to follow."""

    exponents: range
    points: int
    power: int


def follows_power(value: Order) -> Verdict:
    """Exact errors over eps^power are within 10 % of constant below eps = 1/16; both float floors "
    "are near sqrt(u)."""
    small = [e for e in family_errors(value.exponents, value.points) if e.eps <= 1 / 16]
    ratios = [e.exact / e.eps**value.power for e in small]
    best = {"float64": min(e.float64 for e in small), "float32": min(e.float32 for e in small)}
    if max(ratios) > 1.1 * min(ratios):
        return verdict(False, f"not of order eps^{value.power}", first=ratios[0], last=ratios[-1])
    first = max(abs(e.exact / e.first_order - 1) for e in small)
    floors = 1e-8 < best["float64"] < 1e-5 and 1e-4 < best["float32"] < 1e-1
    turned = small[-1].float64 > best["float64"] or small[-1].float32 > best["float32"]
    reason = f"order eps^{value.power}; best in float64 {best['float64']:.2g}, in float32 {best['float32']:.2g}"
    return verdict(first < 0.1 and floors and turned, reason, constant=ratios[-1], best=best, largest_excess=first)


def _family(level: Level) -> Iterator[Case]:
    yield Case("eps = 2^-2 .. 2^-30", Order(range(2, 31, 2), 25, 1))


CE16 = Claim(
    id="CE16",
    document="ours",
    section="counterexample",
    statement=r"Pure iHC with weights $1/(2\epsilon)$ has error $\epsilon\max|Q\varphi'(\varphi(Q))| "
    r"+ O(\epsilon^2)$ on "
    r"$|Q| \leq 3$; rounding adds about $u/\epsilon$, so the best error in floats is of order $\sqrt{u}$.",
    kind="number",
    method="numeric reproduction",
    hypotheses=("two streams, |Q| <= 3, |S| <= 1",),
    literal=Check(
        "Errors on a grid in 200-bit balls, float64 and float32 for eps from 1/4 to 2^-30.",
        follows_power,
        _family,
        Case("order eps^2", Order(range(4, 9, 2), 9, 2)),
    ),
)


@dataclass(frozen=True)
class Job:
    """A search in networks of one kind."""

    kind: str
    width: int = 1
    starts: int = 16
    iterations: int = 20


def reaches_round_off(value: Job) -> Verdict:
    """Largest error at most 1e-11 (targets reach 73) with weights of norm at most 16."""
    found = search.search(value.kind, value.width, starts=value.starts, iterations=value.iterations)
    error = found.within(16.0)
    reason = f"{value.kind}, width {value.width}: {error:.2g} within norm 16"
    return verdict(error <= 1e-11, reason, error=error, best=found.best, norm=found.norms[-1], starts=found.starts)


def _searched(level: Level) -> Iterator[Case]:
    for kind in ("gated iHC", "mHC"):
        yield Case(kind, Job(kind, starts=20, iterations=12))
    if level is Level.FULL:
        for kind in ("gated iHC", "mHC"):
            yield Case(f"{kind}, more starts", Job(kind, starts=48))


CE17 = Claim(
    id="CE17",
    document="ours",
    section="counterexample",
    statement="Least squares from random starts reaches round-off with small weights in gated iHC "
    "and mHC, and never in "
    "pure iHC of the same shape.",
    kind="empirical",
    method="numeric reproduction",
    hypotheses=("two streams, SwiGLU branches, free entry, reads, writes and head", "|Q| <= 3, |S| <= 1"),
    literal=Check(
        "Batched Levenberg-Marquardt with a falling weight penalty; the control is the same search in pure iHC: with "
        "less of it gated iHC and mHC do not arrive either.",
        reaches_round_off,
        _searched,
        Case("pure iHC, the same budget", Job("pure iHC", starts=20, iterations=12)),
    ),
)

CLAIMS = (CE16, CE17)
