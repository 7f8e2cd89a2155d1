"""A function that two streams compute with a reset and cannot compute without: by hand, then as a certificate.

python examples/counterexample.py
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from streamgauge.proofs import checker
from streamgauge.proofs.counterexample import algebra, tails
from streamgauge.proofs.counterexample.activations import KINDS, covered
from streamgauge.proofs.counterexample.search import search


def phi(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """t swish(t), a SwiGLU of one unit and no bias."""
    return np.asarray(t * t / (1 + np.exp(-t)))


# mHC: the first mixer averages the two streams, so their difference is forgotten and its place is free again.
x = np.random.default_rng(0).uniform(-3, 3, size=(2, 1000))
average, q = np.full((2, 2), 0.5), np.array([1.0, -1.0])
first = average @ x + np.outer(q, phi(q @ x))
second = first + np.outer([0.5, 0.5], phi(q @ first / 2))
away = np.abs(second.sum(axis=0) - (x.sum(axis=0) + phi(phi(q @ x)))).max()
print(f"mHC minus x1 + x2 + phi(phi(x1 - x2)): {away:.1e}")

# Pure iHC keeps the difference Q, and (d Q + Q^2)^2 has a Q^3; the target is Q^4 up to an exponential, on all Q >= 0.
tail = tails.proved_on_ray(tails.second_remainder(), Fraction(1, 2), Fraction(9, 4))
print(tail.reason)

# What two streams of pure iHC would have to satisfy has no solution: sum h_i f_i = 2, multiplied out by the checker.
result = checker.check_text(algebra.seed().certificate().text)
print(result.reason)

# It is about branches without a linear part.
for name in ("SwiGLU", "ReGLU", "ReLU"):
    verdict = covered(KINDS[name])
    print(f"{name:8s}", "pure iHC cannot" if verdict else f"pure iHC can ({verdict.reason})")

# An adversary: least squares finds the gated network, and never a pure one.
found = {kind: search(kind, 1, starts=16, iterations=15).within(16) for kind in ("pure iHC", "gated iHC")}
print("least error found:", {kind: f"{error:.1e}" for kind, error in found.items()})

checks = (away < 1e-12, tail.ok, result.accepted, found["gated iHC"] < 1e-9 < 1e-6 < found["pure iHC"])
if not all(checks):
    raise SystemExit(f"expected every check to hold, found {checks}")
