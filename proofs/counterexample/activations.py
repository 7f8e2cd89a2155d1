"""Branches of one scalar input, their tails, and which kinds of branch the theorem covers.

A unit is ``m (w z + c) act(v z + b)``: up-projection (w, c), gate (v, b), down-projection m.  A plain MLP has w = 0,
c = 1.  A branch is a sum of units plus a constant (the bias of the down-projection).

Every activation here equals a polynomial p_+ at +infinity and p_- at -infinity up to an exponentially small
remainder, so the tail of a unit is the polynomial ``m (w z + c) p(v z + b)`` and everything is decided exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import sympy as sp  # type: ignore[import-untyped]
from scipy.special import erf, expit  # type: ignore[import-untyped]

from streamgauge.theory.verdict import Verdict

Scalar = Any
"""int, Fraction or an exact sympy number."""
Z = sp.Symbol("z", real=True)


def ball(value: Scalar) -> flint.arb:
    """An exact scalar as a ball (sympy numbers at the working precision)."""
    if isinstance(value, flint.arb):
        return value
    if isinstance(value, int | np.integer):
        return flint.arb(int(value))
    if isinstance(value, Fraction):
        return flint.arb(flint.fmpq(value.numerator, value.denominator))
    number = sp.sympify(value)
    if number.is_Rational:
        return flint.arb(flint.fmpq(int(number.p), int(number.q)))
    return flint.arb(str(sp.N(number, 60))) + flint.arb(0, 1e-50)  # 1e-50: what sympy's digits may be off by


def sigmoid(x: flint.arb) -> flint.arb:
    """1 / (1 + e^-x), written on either side so that nothing overflows."""
    return 1 / (1 + (-x).exp()) if x.mid() >= 0 else x.exp() / (1 + x.exp())


@dataclass(frozen=True)
class Activation:
    """``act(t) = p(t) + remainder``, p = ``plus`` at +infinity and ``minus`` at -infinity (ascending coefficients).

    For the first four below ``|remainder| <= |t| e^{-|t|}`` on the whole line (:func:`tails.activation_tail`);
    ``value`` is act(0), ``slopes`` the derivatives at 0 from the left and from the right.
    """

    name: str
    plus: tuple[int, ...]
    minus: tuple[int, ...]
    value: Fraction
    slopes: tuple[Fraction, Fraction]
    ball: Callable[[flint.arb], flint.arb]
    expression: Callable[[Any], Any]
    array: Callable[[Any], Any]


_HALF = Fraction(1, 2)
_NONE, _ONE = (Fraction(0), Fraction(0)), (Fraction(1), Fraction(1))
SWISH = Activation(
    "swish", (0, 1), (), Fraction(0), (_HALF, _HALF),
    lambda t: t * sigmoid(t), lambda t: t / (1 + sp.exp(-t)), lambda t: t * expit(t),
)  # fmt: skip
GELU = Activation(
    "gelu", (0, 1), (), Fraction(0), (_HALF, _HALF),
    lambda t: t * (-t / flint.arb(2).sqrt()).erfc() / 2,
    lambda t: t * (1 + sp.erf(t / sp.sqrt(2))) / 2,
    lambda t: t * (1 + erf(t / np.sqrt(2))) / 2,
)  # fmt: skip
RELU = Activation(
    "relu", (0, 1), (), Fraction(0), (Fraction(0), Fraction(1)),
    lambda t: t.max(flint.arb(0)), lambda t: sp.Max(t, 0), lambda t: np.maximum(t, 0),
)  # fmt: skip
IDENTITY = Activation("identity", (0, 1), (0, 1), Fraction(0), _ONE, lambda t: t, lambda t: t, lambda t: t)
SIGMOID = Activation(
    "sigmoid", (1,), (), _HALF, (Fraction(1, 4), Fraction(1, 4)), sigmoid, lambda t: 1 / (1 + sp.exp(-t)), expit
)
RELU_SQUARED = Activation(
    "relu^2", (0, 0, 1), (), Fraction(0), _NONE,
    lambda t: t.max(flint.arb(0)) ** 2, lambda t: sp.Max(t, 0) ** 2, lambda t: np.maximum(t, 0) ** 2,
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """``m (w z + c) act(v z + b)``; the defaults are a bias-free gated unit of weight 1."""

    act: Activation = SWISH
    m: Scalar = 1
    w: Scalar = 1
    v: Scalar = 1
    c: Scalar = 0
    b: Scalar = 0

    def tail(self, side: int) -> tuple[Scalar, ...]:
        """Ascending coefficients of the tail polynomial at ``side`` infinity (+1 or -1); needs b = 0 where v = 0."""
        if self.v == 0:
            act: Any = (self.act.value,) if self.b == 0 else (self.act.expression(sp.sympify(self.b)),)
        else:
            sign = sp.sign(sp.sympify(self.v))
            act = self.act.plus if sign * side > 0 else self.act.minus
        shifted: list[Scalar] = []
        for coefficient in reversed(act):  # Horner in (v z + b)
            shifted = _plus(_times(shifted, (self.b, self.v)), (coefficient,))
        return tuple(self.m * x for x in _times(shifted, (self.c, self.w)))


@dataclass(frozen=True)
class Branch:
    """A sum of units plus ``bias``; the default is phi(t) = t swish(t), the scalar bias-free SwiGLU."""

    units: tuple[Unit, ...] = (Unit(),)
    bias: Scalar = 0
    name: str = "phi"

    def tail(self, side: int) -> tuple[Scalar, ...]:
        """The tail polynomial, ascending, without trailing zeros."""
        total: list[Scalar] = [self.bias]
        for unit in self.units:
            total = _plus(total, unit.tail(side))
        while total and sp.simplify(total[-1]) == 0:
            total.pop()
        return tuple(total)

    def kappa(self, side: int) -> Scalar:
        """The coefficient of z^2 at ``side`` infinity."""
        tail = self.tail(side)
        return tail[2] if len(tail) > 2 else 0

    def __call__(self, z: flint.arb) -> flint.arb:
        total = ball(self.bias)
        for u in self.units:
            total += ball(u.m) * (ball(u.w) * z + ball(u.c)) * u.act.ball(ball(u.v) * z + ball(u.b))
        return total

    def expression(self, z: Any = Z) -> Any:
        """As a sympy expression."""
        one = sp.sympify
        units = (one(u.m) * (one(u.w) * z + one(u.c)) * u.act.expression(one(u.v) * z + one(u.b)) for u in self.units)
        return sum(units, one(self.bias))

    def array(self, z: Any) -> Any:
        """In numpy, in the dtype of ``z``."""
        total = np.zeros_like(z) + z.dtype.type(float(self.bias))
        for u in self.units:
            m, w, c, v, b = (z.dtype.type(float(x)) for x in (u.m, u.w, u.c, u.v, u.b))
            total = total + m * (w * z + c) * u.act.array(v * z + b)
        return total


def _plus(a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    return [x + (short[i] if i < len(short) else 0) for i, x in enumerate(long)]


def _times(a: Sequence[Scalar], b: Sequence[Scalar]) -> list[Scalar]:
    out: list[Scalar] = [0] * (len(a) + len(b) - 1) if a and b else []
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            out[i + j] = out[i + j] + x * y
    return out


PHI = Branch()


@dataclass(frozen=True)
class Kind:
    """A kind of branch: all sums of units with this activation, any weights, and biases where they are allowed."""

    name: str
    act: Activation
    gated: bool = True
    up_bias: bool = False
    gate_bias: bool = False
    down_bias: bool = False


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("SwiGLU", SWISH),
        Kind("GeGLU", GELU),
        Kind("ReGLU", RELU),
        Kind("bilinear", IDENTITY),
        Kind("ReLU^2", RELU_SQUARED, gated=False),
        Kind("SwiGLU, down-projection bias", SWISH, down_bias=True),
        Kind("SwiGLU, up-projection bias", SWISH, up_bias=True),
        Kind("SwiGLU, gate bias", SWISH, gate_bias=True),
        Kind("SiLU", SWISH, gated=False),
        Kind("GELU", GELU, gated=False),
        Kind("ReLU", RELU, gated=False),
        Kind("GLU", SIGMOID),
    )
}


def covered(kind: Kind) -> Verdict:
    """Whether the theorem speaks of this kind of branch, decided from the tails of its activation.

    Needed for *every* choice of weights: the tail polynomial ``(w z + c) p(v z + b)`` at either end, and the line
    ``(w z + c) act(0)`` of a unit with v = b = 0, have no term but z^2 and 1; and some z^2 to make the target of.
    The witness names the first coefficient that is in the way, as a polynomial in the weights.
    """
    z, w, c, v, b = sp.symbols("z w c v b")
    up = w * z * int(kind.gated) + (c if kind.up_bias else 0) + int(not kind.gated)
    inner = v * z + (b if kind.gate_bias else 0)
    tails = {
        "+infinity": sp.expand(up * sum(x * inner**i for i, x in enumerate(kind.act.plus))),
        "-infinity": sp.expand(up * sum(x * inner**i for i, x in enumerate(kind.act.minus))),
        "a gate that is off (v = b = 0)": sp.expand(up * sp.Rational(str(kind.act.value))),
    }
    witness: dict[str, Any] = {"kind": kind.name, "tails": {end: str(tail) for end, tail in tails.items()}}
    for end, tail in tails.items():
        for (power,), coefficient in sorted(sp.Poly(tail, z).terms()):
            if power not in (0, 2) and coefficient != 0:
                witness |= {"end": end, "power": power, "coefficient": str(coefficient)}
                return Verdict(False, f"{kind.name}: z^{power} with coefficient {coefficient} at {end}", witness)
    if all(sp.Poly(tail, z).degree() < 2 for tail in tails.values()):
        return Verdict(False, f"{kind.name}: no quadratic tail to make the target of", witness)
    condition = "T0 and Tinf" if vanishes_at_zero(kind) else "Tinf up to a constant"
    return Verdict(True, f"{kind.name}: covered ({condition})", witness)


def vanishes_at_zero(kind: Kind) -> bool:
    """(T0), G(z) = o(z) at 0 for every choice of weights: value and both slopes of a unit at 0 vanish."""
    if kind.down_bias or kind.up_bias or kind.gate_bias:
        return False
    return kind.act.value == 0 and (kind.gated or kind.act.slopes == _NONE)
