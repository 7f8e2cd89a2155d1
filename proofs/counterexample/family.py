"""The approximating family in floating point: error against eps, with its floor.

The pure iHC of :func:`networks.near` reads ``phi(Q) + eps Q`` in its second branch, so in exact arithmetic

    out - target = phi(phi(Q) + eps Q) - phi(phi(Q)) = eps Q phi'(phi(Q)) + O(eps^2),

first order in eps on every bounded set of Q (and unbounded without one).  Its weights are 1 / (2 eps), and the sum
readout cancels streams of that size: rounding adds about u phi(Q) / eps, so the best is near eps = sqrt(u).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.counterexample.activations import PHI, ball
from streamgauge.proofs.counterexample.networks import near, target

REACH = 3
"""Q runs over [-REACH, REACH], S over [-1, 1]."""


@dataclass(frozen=True)
class FamilyError:
    """Largest errors over the grid, exactly and in floats; ``first_order`` is eps max |Q phi'(phi(Q))|."""

    eps: float
    exact: float
    first_order: float
    float64: float
    float32: float


def family_errors(exponents: range = range(2, 31, 2), points: int = 25) -> list[FamilyError]:
    """Errors for eps = 2^-k on a grid of Q and S.  The exact ones are 200-bit balls; cost about 3 ms each."""
    qs = [Fraction(REACH * (2 * i - points + 1), points - 1) for i in range(points)]
    pairs = [((s + q) / 2, (s - q) / 2) for q in qs for s in (Fraction(-1), Fraction(1, 3), Fraction(1))]
    with flint.ctx.workprec(200):
        wanted = [target([ball(v) for v in pair]) for pair in pairs]
        return [_errors(k, pairs, wanted) for k in exponents]


def slope(q: flint.arb) -> flint.arb:
    """``Q phi'(phi(Q))``, with phi'(t) = sigma(t) (2 t + t^2 sigma(-t))."""
    t = PHI(q)
    s = 1 / (1 + (-t).exp())
    return q * s * (2 * t + t * t * (1 - s))


def _errors(k: int, pairs: list[Any], wanted: list[flint.arb]) -> FamilyError:
    eps = Fraction(1, 2**k)
    network = near(eps)
    exact = [float(abs(network.run([ball(v) for v in pair])[0] - value)) for pair, value in zip(pairs, wanted)]
    first = max(float(abs(slope(ball(x - y)))) for x, y in pairs)
    found = {}
    for dtype in (np.float64, np.float32):
        x = [np.array([float(pair[i]) for pair in pairs], dtype=dtype) for i in (0, 1)]

        def cast(value: Any, kind: Any = dtype) -> Any:
            return kind(float(value))

        given = network.run(x, cast=cast, apply=lambda branch, z: branch.array(z))[0]
        true = _float_targets(x)
        found[dtype] = float(np.abs(given.astype(np.float64) - true).max())
    return FamilyError(float(eps), max(exact), float(eps) * first, found[np.float64], found[np.float32])


def _float_targets(x: list[Any]) -> Any:
    """The target at the float inputs as they are (float32 inputs are rounded), correct to float64."""
    values = [target([flint.arb(float(a)), flint.arb(float(b))]) for a, b in zip(*x)]
    return np.array([float(v) for v in values])
