"""Two-site networks of one feature over any ring (balls, symbols, numpy), and those of the counterexample.

A site is ``X' = A X + r F(p X)``; pure iHC has A = I.  ``entry`` (N, n) maps the input to the streams, the identity
when None; ``readout`` has one row per output.  Coefficients are exact; q = (1, -1), e = (1, 1), J = e e^T / 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample.activations import PHI, Branch, ball
from streamgauge.theory.verdict import Verdict

HALF = Fraction(1, 2)
Row = tuple[Any, ...]
Matrix = tuple[Row, ...]
E, Q = (1, 1), (1, -1)
J: Matrix = ((HALF, HALF), (HALF, HALF))


def identity(n: int) -> Matrix:
    """The n by n identity."""
    return tuple(tuple(int(i == j) for j in range(n)) for i in range(n))


@dataclass(frozen=True)
class Site:
    """``X' = mixer X + write F(read X)``."""

    mixer: Matrix
    read: Row
    write: Row
    branch: Branch = PHI


@dataclass(frozen=True)
class Network:
    """Sites with entry and readout; ``pure`` says whether every mixer is the identity."""

    sites: tuple[Site, ...]
    readout: Matrix
    entry: Matrix | None = None

    @property
    def pure(self) -> bool:
        """Pure iHC."""
        return all(site.mixer == identity(len(site.read)) for site in self.sites)

    def run(
        self,
        x: Sequence[Any],
        cast: Callable[[Any], Any] = ball,
        apply: Callable[[Branch, Any], Any] = lambda branch, z: branch(z),
    ) -> list[Any]:
        """The outputs for the input ``x``; ``cast`` takes coefficients into the ring, ``apply`` runs branches."""

        def times(matrix: Matrix, vector: Sequence[Any]) -> list[Any]:
            return [sum((cast(a) * y for a, y in zip(row, vector)), cast(0)) for row in matrix]

        state = list(x) if self.entry is None else times(self.entry, x)
        for site in self.sites:
            (z,) = times((site.read,), state)
            value = apply(site.branch, z)
            state = [y + cast(r) * value for y, r in zip(times(site.mixer, state), site.write)]
        return times(self.readout, state)


def target(x: Sequence[Any], psi: Callable[[Any], Any] = PHI) -> Any:
    """``x1 + x2 + psi(psi(x1 - x2))``."""
    return x[0] + x[1] + psi(psi(x[0] - x[1]))


PSI = sp.Function("psi")
SYMBOLS = sp.symbols("x1:9", real=True)


def same_function(network: Network, wanted: Callable[[Sequence[Any]], Sequence[Any]], inputs: int = 2) -> Verdict:
    """Whether the network is the wanted function *for every function psi*, by expansion over symbols.

    A branch called "phi" or "psi" is the undefined function psi; one called "psi - t/2" is ``psi(t) - t/2`` (that
    this is true of its units is :func:`streamgauge.proofs.counterexample.controls.is_shifted`'s to show).
    """

    def apply(branch: Branch, z: Any) -> Any:
        return PSI(sp.expand(z)) - (z / 2 if branch.name == "psi - t/2" else 0)

    x = SYMBOLS[:inputs]
    found = network.run(x, cast=sp.sympify, apply=apply)
    for i, (a, b) in enumerate(zip(found, wanted(x))):
        difference = sp.expand(a - b)
        if difference != 0:
            return Verdict(False, f"output {i} differs", {"output": i, "difference": str(difference)})
    return Verdict(True, "equal for every function psi", {"outputs": len(found)})


def computes_target(network: Network) -> Verdict:
    """:func:`same_function` with ``x1 + x2 + psi(psi(x1 - x2))``."""
    return same_function(network, lambda x: [target(x, PSI)])


def balls_meet(network: Network, wanted: Callable[[Any], Any], points: Sequence[Sequence[Fraction]]) -> Verdict:
    """The second route: the network and the target in 200-bit balls at rational points; never a proof of equality."""
    with flint.ctx.workprec(200):
        for point in points:
            x = [ball(v) for v in point]
            found, value = network.run(x)[0], target(x, wanted)
            if not found.overlaps(value):
                facts = {"x": [str(v) for v in point], "network": found.str(12), "target": value.str(12)}
                return Verdict(False, f"differs at {facts['x']}", facts)
    return Verdict(True, f"meets the target at {len(points)} points", {"points": len(points)})


def mhc() -> Network:
    """The essay's: ``X1 = J x + q phi(q x)``, ``X2 = X1 + e/2 phi(q X1 / 2)``, sum readout."""
    return Network((Site(J, Q, Q), Site(identity(2), (HALF, -HALF), (HALF, HALF))), (E,))


def gated() -> Network:
    """The same as gated iHC in the streams (S, Q): gates (1, 0), then all 1."""
    forget = ((1, 0), (0, 0))
    sites = (Site(forget, (0, 1), (0, 1)), Site(identity(2), (0, 1), (1, 0)))
    return Network(sites, ((1, 0),), (E, Q))


def three_streams() -> Network:
    """Pure iHC with a third stream that starts at zero: reads (1, -1, 0), (0, 0, 1), readout (1, 1, 0)."""
    sites = (Site(identity(3), (1, -1, 0), (0, 0, 1)), Site(identity(3), (0, 0, 1), (1, 0, 0)))
    return Network(sites, ((1, 1, 0),), ((1, 0), (0, 1), (0, 0)))


def near(eps: Fraction) -> Network:
    """Two-stream pure iHC with weights 1/(2 eps): the second branch reads phi(Q) + eps Q.

    It is mHC with ``J + 2 eps (I - J)`` in place of J, in the gauge of Theorem 1.
    """
    first = Site(identity(2), Q, (1 / (2 * eps), -1 / (2 * eps)))
    return Network((first, Site(identity(2), (eps, -eps), (HALF, HALF))), (E,))


def wide_q(n: int) -> Row:
    """q = e_1 - e_2 in n dimensions."""
    return (1, -1, *[0] * (n - 2))


def wide_mhc(n: int, v: Row) -> Network:
    """n streams, all read out: ``A_0 x + q phi(Q) + v phi(phi(Q))`` with A_0 = J + I, q = e_1 - e_2."""
    mixer = tuple(tuple(HALF if i < 2 and j < 2 else int(i == j) for j in range(n)) for i in range(n))
    q = wide_q(n)
    sites = (Site(mixer, q, q), Site(identity(n), tuple(x * HALF for x in q), v))
    return Network(sites, identity(n))


def one_more_stream(n: int, v: Row) -> Network:
    """The same function as pure iHC with n + 1 streams; the last starts at zero and holds phi(Q)."""
    a0 = wide_mhc(n, v).sites[0].mixer
    q = wide_q(n)
    s = sum(x * y for x, y in zip(q, v)) * HALF
    new = (*[0] * n, 1)
    back = tuple(y - x * s for x, y in zip(q, v))
    sites = (Site(identity(n + 1), (*q, 0), new), Site(identity(n + 1), new, (*back, s)))
    readout = tuple((*row, x) for row, x in zip(a0, q))
    return Network(sites, readout, (*identity(n), (0,) * n))


def wide_target(n: int, v: Row) -> Callable[[Sequence[Any]], list[Any]]:
    """``A_0 x + q psi(Q) + v psi(psi(Q))`` on symbols."""

    def wanted(x: Sequence[Any]) -> list[Any]:
        mean = (x[0] + x[1]) / 2
        inner = PSI(x[0] - x[1])
        return [
            (mean if i < 2 else x[i]) + qi * inner + sp.sympify(vi) * PSI(inner)
            for i, (qi, vi) in enumerate(zip(wide_q(n), v))
        ]

    return wanted
