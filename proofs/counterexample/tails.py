"""Tail bounds with explicit constants on the whole ray: ball arithmetic on a compact part, monotonicity beyond.

With phi(t) = t^2 sigma(t), for every Q >= 0 (all constants sharp enough for the proof, none sampled):

    Q^2 / (1 + e^Q)  =  Q^2 - phi(Q)  <=  Q^2 e^{-Q}  <=  4 / e^2,
    Q^4 e^{-Q} / 2  <=  Q^4 - phi(phi(Q))  <=  9/4 Q^4 e^{-Q},      0 <= phi(phi(-Q)) <= Q^4 e^{-2Q},

and for a bias-free gated branch with units ``m_i (w_i z) act(v_i z)``, act one of swish, gelu, relu, identity:

    |G(z) - kappa_pm z^2|  <=  sum |m_i w_i v_i| z^2 e^{-|v_i z|}  <=  sum |m_i w_i / v_i| 4 / e^2   (v_i != 0).

Each inequality is brought to ``ratio(Q) <= C``: the ratio is evaluated on balls that cover [0, Q_0], and on
[Q_0, infinity] bounded by its values at Q_0 through monotone factors, named where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import flint
import sympy as sp  # type: ignore[import-untyped]

from streamgauge.proofs.counterexample.activations import (
    GELU,
    IDENTITY,
    PHI,
    RELU,
    SWISH,
    Activation,
    Branch,
    ball,
    sigmoid,
)
from streamgauge.theory.verdict import Verdict

MOST_BALLS, NARROWEST = 20_000, Fraction(1, 2**40)
SAMPLES = {10: 0.907937, 20: 6.59569e-4, 40: 2.17516e-11, 80: 1.47853e-27}
"""Q^4 - phi(phi(Q)) at Q, six digits."""


@dataclass(frozen=True)
class Ratio:
    """A positive function on [0, infinity): its balls, and (low, high) for all of [q, infinity)."""

    name: str
    at: Callable[[flint.arb], flint.arb]
    beyond: Callable[[flint.arb], tuple[flint.arb, flint.arb]]


def hull(low: Fraction, high: Fraction) -> flint.arb:
    """The ball of [low, high]."""
    return ball((low + high) / 2) + flint.arb(0, ball((high - low) / 2).upper())


def proved_on_ray(ratio: Ratio, low: Fraction, high: Fraction, *, start: int = 8) -> Verdict:
    """Whether ``low <= ratio(Q) <= high`` for every Q >= 0.

    [0, start] is covered by balls, halved until each is decided; beyond, the monotone bounds decide.  The witness
    holds the number of balls and the bounds beyond ``start``, or a point where the inequality fails for certain.
    """
    bottom, top = ball(low), ball(high)
    todo = [(Fraction(i), Fraction(i + 1)) for i in range(start)]
    used = 0
    while todo:
        left, right = todo.pop()
        used += 1
        value = ratio.at(hull(left, right))
        if value >= bottom and value <= top:
            continue
        for point in (left, (left + right) / 2, right):
            there = ratio.at(ball(point))
            if there < bottom or there > top:
                return _fails(ratio, point, there, low, high)
        if used > MOST_BALLS or right - left < NARROWEST:
            return Verdict(False, f"{ratio.name}: undecided near {float(left):.4g}", {"Q": str(left), "balls": used})
        todo += [(left, (left + right) / 2), ((left + right) / 2, right)]
    least, most = ratio.beyond(flint.arb(start))
    if least >= bottom and most <= top:
        facts = {"balls": used, "from": start, "beyond": [_digits(least), _digits(most)]}
        return Verdict(True, f"{low} <= {ratio.name} <= {high} for every Q >= 0", facts)
    for power in range(start.bit_length(), 12):
        there = ratio.at(flint.arb(2**power))
        if there < bottom or there > top:
            return _fails(ratio, Fraction(2**power), there, low, high)
    return Verdict(False, f"{ratio.name}: undecided beyond {start}", {"Q": start, "beyond": _digits(most)})


def _fails(ratio: Ratio, point: Fraction, value: flint.arb, low: Fraction, high: Fraction) -> Verdict:
    witness = {"Q": str(point), "ratio": _digits(value), "bounds": [str(low), str(high)]}
    return Verdict(False, f"{ratio.name} is {_digits(value)} at Q = {point}, not in [{low}, {high}]", witness)


def _digits(value: flint.arb) -> str:
    return str(value.mid().str(8, radius=False)) if value.is_finite() else "infinite"


def first_remainder(rate: Fraction = Fraction(1)) -> Ratio:
    """``(Q^2 - phi(Q)) e^{rate Q} / Q^2 = sigma(Q) e^{(rate - 1) Q}``; the remainder is Q^2 sigma(-Q).

    Beyond q: sigma increases to 1; the exponential is monotone, with limit 0, 1 or infinity by the sign of rate - 1.
    """
    slope = ball(rate - 1)

    def beyond(q: flint.arb) -> tuple[flint.arb, flint.arb]:
        if rate == 1:
            return sigmoid(q), flint.arb(1)
        if rate < 1:
            return flint.arb(0), (slope * q).exp()
        return sigmoid(q) * (slope * q).exp(), flint.arb("inf")

    return Ratio(f"(Q^2 - phi(Q)) e^({rate} Q) / Q^2", lambda q: sigmoid(q) * (slope * q).exp(), beyond)


def second_remainder() -> Ratio:
    """``(Q^4 - phi(phi(Q))) e^Q / Q^4 = sigma(Q) (2 - sigma(-Q)) + sigma(Q)^2 e^Q / (1 + e^{phi(Q)})``.

    From phi(Q) = Q^2 - delta, delta = Q^2 sigma(-Q):  Q^4 - phi^2 = 2 Q^2 delta - delta^2, and phi^2 - phi(phi) =
    phi^2 sigma(-phi).  Beyond q >= 2: sigma increases, sigma(-Q) decreases, and e^{Q - phi(Q)} decreases because
    Q - phi(Q) = Q (1 - Q sigma(Q)) is Q times a decreasing negative number.
    """

    def at(q: flint.arb) -> flint.arb:
        s = sigmoid(q)
        return s * (2 - sigmoid(-q)) + s * s / ((-q).exp() + (q * q * s - q).exp())

    def beyond(q: flint.arb) -> tuple[flint.arb, flint.arb]:
        s = sigmoid(q)
        return s * (2 - sigmoid(-q)), 2 + (q - q * q * s).exp()

    return Ratio("(Q^4 - phi(phi(Q))) e^Q / Q^4", at, beyond)


def negative_side() -> Ratio:
    """``phi(phi(-Q)) e^{2Q} / Q^4 = sigma(Q)^2 sigma(phi(-Q))``, at most 1: phi(-Q) = Q^2 sigma(-Q) >= 0.

    Beyond q: sigma(Q) increases and sigma of something non-negative is at least 1/2.
    """

    def at(q: flint.arb) -> flint.arb:
        return sigmoid(q) ** 2 * sigmoid(q * q * sigmoid(-q))

    return Ratio("phi(phi(-Q)) e^(2Q) / Q^4", at, lambda q: (sigmoid(q) ** 2 / 2, flint.arb(1)))


def activation_ratio(act: Activation) -> Ratio:
    """``|act(t) - p(t)| e^{|t|} / |t|`` at |t| = Q, the same on both sides for these four.

    swish: sigma(Q).  gelu: Phi(-Q) e^Q, with Phi(-Q) <= e^{-Q^2/2} / 2 (the difference is 0 at 0 and at infinity,
    and first increases, then decreases), so below e^{q - q^2/2} / 2 beyond q >= 1.  relu, identity: 0.
    """
    zero = flint.arb(0)
    if act is SWISH:
        return Ratio("|swish(t) - p(t)| e^|t| / |t|", sigmoid, lambda q: (sigmoid(q), flint.arb(1)))
    if act is GELU:
        return Ratio(
            "|gelu(t) - p(t)| e^|t| / |t|",
            lambda q: (q / flint.arb(2).sqrt()).erfc() / 2 * q.exp(),
            lambda q: (zero, (q - q * q / 2).exp() / 2),
        )
    if act in (RELU, IDENTITY):
        return Ratio(f"|{act.name}(t) - p(t)| e^|t| / |t|", lambda q: zero, lambda q: (zero, zero))
    return Ratio(  # no claim: the quotient itself, unbounded near 0 or at infinity
        f"|{act.name}(t) - t| e^|t| / |t|",
        lambda q: abs(act.ball(q) - q) * q.exp() / q,
        lambda q: (zero, flint.arb("inf")),
    )


def activation_tail(act: Activation) -> Verdict:
    """``|act(t) - p(t)| <= |t| e^{-|t|}`` on the whole line."""
    return proved_on_ray(activation_ratio(act), Fraction(0), Fraction(1))


def largest_of_square_times_exponential() -> Verdict:
    """``sup_{t >= 0} t^2 e^{-t} = 4 / e^2``, at t = 2: the derivative is ``t (2 - t) e^{-t}``."""
    t = sp.Symbol("t", positive=True)
    f = t**2 * sp.exp(-t)
    slope = sp.simplify(sp.diff(f, t) / sp.exp(-t))
    signs = [slope.subs(t, x) for x in (1, 2, 3)]
    ok = sp.expand(slope - t * (2 - t)) == 0 and signs[0] > 0 == signs[1] and signs[2] < 0
    value = f.subs(t, 2)
    return Verdict(
        bool(ok and sp.simplify(value - 4 / sp.E**2) == 0), "t^2 e^-t <= 4/e^2", {"at": 2, "value": "4/e^2"}
    )


def remainder_bound(branch: Branch, z: flint.arb) -> flint.arb:
    """``sum |m_i w_i v_i| z^2 e^{-|v_i z|}`` for a bias-free gated branch of the four activations."""
    terms = (abs(ball(u.m) * ball(u.w) * ball(u.v)) * z * z * (-abs(ball(u.v) * z)).exp() for u in branch.units)
    return sum(terms, flint.arb(0))


def constant_bound(branch: Branch) -> flint.arb:
    """``sum |m_i w_i / v_i| 4 / e^2``, for every z; units with v_i = 0 vanish."""
    four = 4 / flint.arb(2).exp()
    terms = (abs(ball(u.m) * ball(u.w) / ball(u.v)) * four for u in branch.units if u.v != 0)
    return sum(terms, flint.arb(0))


def growth(branch: Branch) -> flint.arb:
    """K with ``|G(z)| <= K z^2`` for every z: sum |m_i w_i v_i|, as |act(t)| <= |t| for the four activations."""
    return sum((abs(ball(u.m) * ball(u.w) * ball(u.v)) for u in branch.units), flint.arb(0))


def composed_remainder(q: int, *, negative: bool = False) -> flint.arb:
    """``Q^4 - phi(phi(Q))``, or phi(phi(-Q)), as a ball of relative radius far below six digits."""
    with flint.ctx.workprec(256):
        x = flint.arb(q)
        return PHI(PHI(-x)) if negative else x**4 - PHI(PHI(x))
