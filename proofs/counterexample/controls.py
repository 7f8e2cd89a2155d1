"""What *can* be represented: where a branch has a linear part it carries its own reset.

If F(t) = psi(t) - t/2 is a branch, then ``x + q F(q.x) = J x + q psi(q.x)`` because ``x - q (q.x)/2 = J x``: pure iHC
forgets Q at the same width, and the rest of the mHC network can be copied.  Such F exist:

    up-projection bias   (t - 1/2) swish(t) + 1/2 swish(-t)          = t swish(t) - t/2
    gate bias            t swish(t) - t swish(0 t + 1) / (2 swish(1))  = t swish(t) - t/2
    plain ReLU, GELU, SiLU   act(t)/2 + act(-t)/2                    = act(t) - t/2
    GLU                  t sigma(t) - t sigma(0)                     = t sigma(t) - t/2

the first three by ``act(t) - act(-t) = t``.  (For a plain MLP the target is made of psi = act.)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample.activations import GELU, PHI, RELU, SIGMOID, SWISH, Activation, Branch, Unit
from streamgauge.proofs.counterexample.networks import HALF, E, Network, Q, Site, identity
from streamgauge.theory.verdict import Verdict

SHIFTED = "psi - t/2"


def plain(act: Activation) -> Branch:
    """A plain MLP of one unit, act(t)."""
    return Branch((Unit(act, w=0, c=1),), name="psi")


def plain_shifted(act: Activation) -> Branch:
    """``act(t)/2 + act(-t)/2``."""
    return Branch((Unit(act, HALF, w=0, c=1), Unit(act, HALF, w=0, c=1, v=-1)), name=SHIFTED)


def up_biased() -> Branch:
    """``(t - 1/2) swish(t) + 1/2 swish(-t)``: biases on the up-projection only."""
    return Branch((Unit(c=-HALF), Unit(m=HALF, w=0, c=1, v=-1)), name=SHIFTED)


def gate_biased() -> Branch:
    """``t swish(t) - t swish(1) / (2 swish(1))``: one bias, on the gate of a unit whose gate weight is 0."""
    return Branch((Unit(), Unit(m=-(1 + sp.exp(-1)) / 2, v=0, b=1)), name=SHIFTED)


def linear_gated() -> tuple[Branch, Branch]:
    """GLU: ``t sigma(t) - t sigma(0)``, its own linear unit being the one whose gate weight is 0."""
    return Branch((Unit(SIGMOID), Unit(SIGMOID, m=-1, v=0)), name=SHIFTED), Branch((Unit(SIGMOID),), name="psi")


CONTROLS: dict[str, tuple[Branch, Branch]] = {
    "SwiGLU, up-projection bias": (up_biased(), PHI),
    "SwiGLU, gate bias": (gate_biased(), PHI),
    "ReLU": (plain_shifted(RELU), plain(RELU)),
    "GELU": (plain_shifted(GELU), plain(GELU)),
    "SiLU": (plain_shifted(SWISH), plain(SWISH)),
    "GLU": linear_gated(),
}
"""Kind of branch -> (F, psi) with F(t) = psi(t) - t/2."""


def resetting(f: Branch, psi: Branch) -> Network:
    """Pure iHC: site 0 reads q and writes q F, site 1 reads q/2 and writes e/2 psi, sum readout."""
    return Network((Site(identity(2), Q, Q, f), Site(identity(2), (HALF, -HALF), (HALF, HALF), psi)), (E,))


def is_shifted(f: Branch, psi: Branch) -> Verdict:
    """Whether F(t) = psi(t) - t/2 for every real t: as expressions on t > 0 and on t < 0 (at 0 both vanish)."""
    for side in (1, -1):
        t = sp.Symbol("t", positive=True)
        difference = _simple(f.expression(side * t) - psi.expression(side * t) + side * t / 2)
        if difference != 0:
            return Verdict(False, "F(t) is not psi(t) - t/2", {"side": side, "difference": str(difference)})
    return Verdict(True, "F(t) = psi(t) - t/2", {"F": str(f.expression()), "psi": str(psi.expression())})


def _simple(expression: Any) -> Any:
    """Rational in e^t after ``erf`` of t is one symbol; Max has gone because t is positive."""
    t = next(iter(expression.free_symbols), sp.Symbol("t"))
    w = sp.Symbol("w", positive=True)
    return sp.simplify(sp.together(sp.expand(expression).subs(sp.exp(-t), 1 / w).subs(sp.exp(t), w)))


def random_points(count: int, seed: int = 0) -> list[tuple[Fraction, Fraction]]:
    """Rational points in [-6, 6]^2."""
    import random

    rng = random.Random(seed)
    return [(Fraction(rng.randint(-600, 600), 100), Fraction(rng.randint(-600, 600), 100)) for _ in range(count)]
