"""Ours: pure iHC with weights 1/eps in floating point: resets by round-off, and the floor without them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.ours_width import positive_chain
from streamgauge.proofs.ledger.tools import (
    fixed,
    verdict,
)
from streamgauge.theory.doubly import uniform
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Format:
    """A binary float format: bits of precision, smallest normal and largest exponent, and what computes it."""

    precision: int
    smallest: int
    largest: int
    kind: type[np.floating[Any]]


FORMATS = {
    "float16": Format(11, -14, 15, np.float16),
    "bfloat16": Format(8, -126, 127, np.float32),
    "float32": Format(24, -126, 127, np.float32),
    "float64": Format(53, -1022, 1023, np.float64),
}


def stored(x: Any, name: str) -> Any:
    """``x`` rounded to nearest even into the format; bfloat16 as the upper half of a float32."""
    value = FORMATS[name].kind(x)
    if name != "bfloat16":
        return value
    bits = int(np.float32(value).view(np.uint32))
    return np.uint32((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


@dataclass(frozen=True)
class Swamping:
    """Writes of size [1, 2) into one stream at scale 2^(m k): the reset by round-off, ``resets`` times."""

    format: str
    bits: int
    start: int
    resets: int


def _resets_exactly(value: Swamping) -> Verdict:
    """After every write the stream, read at its scale, is the new value bit for bit."""
    digits = FORMATS[value.format].precision - 1
    dice = random.Random(value.bits)
    state = stored(0, value.format)
    for k in range(value.resets + 1):
        fraction = dice.getrandbits(digits) if k % 2 else 2**digits - 1 if k % 4 == 0 else 1
        fresh = stored(1 + fraction / 2**digits, value.format)
        scale = value.start + value.bits * k
        with np.errstate(over="ignore"):
            state = stored(state + stored(np.ldexp(fresh, scale), value.format), value.format)
            seen = stored(np.ldexp(state, -scale), value.format)
        if seen != fresh:
            reason = f"write {k}: read {float(seen)!r} instead of {float(fresh)!r}"
            return verdict(False, reason, write=k, read=str(seen), written=float(fresh))
    return verdict(True, f"{value.resets} resets in {value.format}, bit for bit", resets=value.resets)


def most_resets(name: str, *, centred: bool) -> Swamping:
    """As many resets as the exponent range holds with m = p + 1 bits each, p the precision."""
    info = FORMATS[name]
    bits, start = info.precision + 1, (info.smallest if centred else 0)
    return Swamping(name, bits, start, (info.largest - start) // bits)


def _resets_number(value: tuple[str, bool, int]) -> Verdict:
    """So many resets work, and one more leaves the exponent range."""
    name, centred, stated = value
    most = most_resets(name, centred=centred)
    works = _resets_exactly(most)
    more = _resets_exactly(replace(most, resets=most.resets + 1))
    ok = bool(works) and not more and most.resets == stated
    reason = f"{name}{' centred' if centred else ''}: {most.resets} resets of {most.bits} bits, stated {stated}"
    return verdict(ok, reason, resets=most.resets, stated=stated, next=more.reason)


COUNTS = {  # format: resets from scale 1, and from the smallest normal exponent
    "float16": (1, 2),
    "bfloat16": (14, 28),
    "float32": (5, 10),
    "float64": (18, 37),
}


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


CLAIMS = (
    Claim(
        "P21",
        "ours",
        "floating point",
        r"Where slots are streams, $\epsilon = 2^{-m}$ with $m > p$ (p bits of precision) resets a stream bit for "
        r"bit: round-off swallows the old value.",
        "theorem",
        "numeric reproduction",
        Check(
            "Values in [1, 2), all-ones significands included, in float16, bfloat16, float32, float64.",
            _resets_exactly,
            fixed(
                *(
                    Case(f"{name}{', centred' if centred else ''}", most_resets(name, centred=centred))
                    for name in FORMATS
                    for centred in (False, True)
                )
            ),
            Case("m = p in float32", Swamping("float32", 24, 0, 4)),
        ),
        note="m = p, i.e. eps = u, is one bit too few for values of one binade: a sticky half ulp rounds up.",
        hypotheses=(
            "binary floating point, rounding to nearest",
            "slots are streams: the dead direction is one stream",
        ),
    ),
    Claim(
        "P22",
        "ours",
        "floating point",
        r"It ends with the exponent range: 1 reset in float16, 14 in bfloat16, 5 in float32, 18 in float64; twice as "
        r"many when the scale starts at the smallest normal exponent.",
        "number",
        "numeric reproduction",
        Check(
            "That many resets work and one more does not.",
            _resets_number,
            fixed(
                *(
                    Case(f"{name}{', centred' if centred else ''}", (name, centred, counts[centred]))
                    for name, counts in COUNTS.items()
                    for centred in (False, True)
                )
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
