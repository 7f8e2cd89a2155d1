"""The two gates of the essay besides the plain one: mean-preserving ``J + g (I - J)`` and norm gate ``c(g) diag(g)``.

    c(g) = min(cap, sqrt(n) / (||g||_2 + eps)),    c(0) := 1.

The norm gate keeps the *mean square* gain, ``(1/n) ||D(g)||_F^2 = 1`` (eps = 0, no cap, g != 0), not the size of the
state: ``||D(g)||_2 = sqrt(n) ||g||_inf / ||g||_2 >= 1 >= |det D(g)|``, with equality only where all |g_i| are equal.
With eps > 0 the lower bound fails, and for eps = 0 D is discontinuous at 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import ArrayLike

from streamgauge.theory import exact
from streamgauge.theory.chain import Matrix
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.verdict import Verdict


def mean_preserving_gate(n: int, g: Any) -> Matrix:
    """``J + g (I - J)`` with J = 11^T / n: every stream keeps the mean and scales its difference from it by g.

    A float g gives a float64 array, an exact g (int, Fraction, sympy or flint rational) an ``fmpq_mat``.
    Rows and columns sum to 1 for every g.  **Raises** :class:`InputError` for n < 1 or a g that is not finite.
    """
    if n < 1:
        raise InputError(f"mean gate: n is {n}, expected at least 1")
    if isinstance(g, float | np.floating):
        if not np.isfinite(g):
            raise InputError(f"mean gate: g is {g}, expected a finite number")
        return (1 - g) / n + g * np.eye(n)
    try:
        value = exact.scalar(g)
    except TypeError as error:
        raise InputError(f"mean gate: {error}; expected a float or an exact scalar") from None
    off = (1 - value) / n
    return flint.fmpq_mat(n, n, [off + value if i == j else off for i in range(n) for j in range(n)])


def mean_gate_doubly_stochastic(n: int, g: Any) -> Verdict:
    """Whether ``J + g (I - J)`` is doubly stochastic: iff ``-1/(n-1) <= g <= 1`` (any g for n = 1).

    The sums are 1 always; off the diagonal stands (1 - g)/n, on it (1 + (n-1) g)/n.  Decided on the exact value of g.
    """
    if n < 1:
        raise InputError(f"mean gate: n is {n}, expected at least 1")
    try:
        value = Fraction(float(g)) if isinstance(g, float | np.floating) else exact.fraction(exact.scalar(g))
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"mean gate: g is {g}, expected a finite float or an exact scalar") from None
    low = -Fraction(1, n - 1) if n > 1 else None
    ok = low is None or low <= value <= 1
    interval = f"[{low}, 1]" if low is not None else "all numbers"
    reason = f"g = {g} is {'in' if ok else 'outside'} {interval}"
    return Verdict(ok, reason, {"g": value, "low": low, "high": 1 if n > 1 else None})


def norm_factor(g: ArrayLike, gate: NormGate) -> float:
    """c(g) for one gate vector (n,), as float64; 1 where every gate is zero, with eps and cap or without.

    At g = 0 the diagonal D = 0 whatever c is, so c := 1 leaves the scales s_l alone (the k = 0 convention).
    The norm is computed scale-safe.

    **Raises** :class:`InputError` for gates that are not a non-empty finite vector, an eps that is not a finite
    number >= 0, a cap that is not a finite number > 0, and where c itself leaves float64 (name the cap or eps then).
    """
    eps, cap = _rule(gate)
    vector = _vector(g)
    top = float(np.abs(vector).max())
    if top == 0:
        return 1.0
    norm = top * math.sqrt(float(((vector / top) ** 2).sum()))
    total = norm + eps
    if not math.isfinite(total):
        raise InputError(f"norm gate: ||g||_2 is {norm:.3g} for gates up to {top:.3g}, expected a finite norm")
    if total < 1e-300:  # the quotient may overflow, but a cap makes c finite
        if cap is None:
            raise InputError(f"norm gate: ||g||_2 is {norm:.3g}, so c is beyond 1e300; set a cap")
        return cap
    factor = math.sqrt(len(vector)) / total
    return factor if cap is None else min(factor, cap)


def norm_factor_squared(g: Iterable[Any], gate: NormGate) -> Fraction:
    """c(g)^2 = min(cap^2, n / sum g_i^2) exactly, for exact gates; 1 where every gate is zero.

    **Raises** :class:`InputError` unless eps is exactly 0 (sqrt(n) and ||g|| do not combine to a rational square
    otherwise) and the cap an int or Fraction.
    """
    if gate.eps != 0:
        raise InputError(f"norm gate: eps is {gate.eps}, expected 0 on an exact base (c^2 is irrational otherwise)")
    if gate.cap is not None and not isinstance(gate.cap, int | Fraction):
        raise InputError(f"norm gate: cap is {gate.cap!r}, expected an int or Fraction on an exact base")
    _rule(gate)
    squares = [exact.fraction(exact.scalar(x)) ** 2 for x in g]
    total = sum(squares, Fraction(0))
    if total == 0:
        return Fraction(1)
    square = len(squares) / total
    return square if gate.cap is None else min(square, Fraction(gate.cap) ** 2)


def norm_gate_matrix(g: ArrayLike, gate: NormGate) -> Floats:
    """D(g) = c(g) diag(g), shape (n, n), float64."""
    return np.diag(norm_factor(g, gate) * _vector(g))


def norm_gate_gain(g: ArrayLike, gate: NormGate) -> float:
    """``||D(g)||_2 = c(g) ||g||_inf``; without eps and cap ``sqrt(n) ||g||_inf / ||g||_2``, at least 1."""
    return norm_factor(g, gate) * float(np.abs(_vector(g)).max())


@dataclass(frozen=True)
class NormGrowth:
    """How a stack of norm gates treats the state, in log2 (the numbers leave every dtype at depth).

    - ``gain``: (L+1,), log2 of ``||D_{l-1} .. D_0||_2``, -inf once every slot has been reset.
    - ``bound``: (L+1,), log2 of the product of the ``||D_j||_2``: what a *fixed* death pattern attains, and what
      resets in turn stay under.
    - ``slots``: (L+1, n), log2 of each slot's own product.
    - ``since_reset``: largest log2 gain of a slot between two of its resets.
    - ``scale``: (L+1,), log2 s_l, with s_{l+1} = s_l / c_l.
    """

    gain: Floats
    bound: Floats
    slots: Floats
    since_reset: float
    scale: Floats


def norm_growth(gates: Sequence[ArrayLike], gate: NormGate) -> NormGrowth:
    """Growth over L sites with the gate vectors given (L of shape (n,)). Cost O(L n)."""
    vectors = [_vector(g) for g in gates]
    if not vectors or len({len(g) for g in vectors}) != 1:
        raise InputError(f"norm gate: found gate vectors of lengths {[len(g) for g in vectors]}, expected equal ones")
    factors = np.array([norm_factor(g, gate) for g in vectors])
    with np.errstate(divide="ignore"):
        logs = np.log2(np.abs(np.array(vectors)))
    steps = logs + np.log2(factors)[:, None]
    run, best = np.zeros(steps.shape[1]), 0.0
    for step in steps:
        run = np.where(np.isneginf(step), 0.0, run + step)
        best = max(best, float(run.max()))
    slots = np.vstack([np.zeros(steps.shape[1]), np.cumsum(steps, axis=0)])
    bound = np.concatenate([[0.0], np.cumsum(steps.max(axis=1))])
    scale = np.concatenate([[0.0], -np.cumsum(np.log2(factors))])
    return NormGrowth(slots.max(axis=1), bound, slots, best, scale)


def _rule(gate: NormGate) -> tuple[float, float | None]:
    eps = _number(gate.eps)
    if not (math.isfinite(eps) and eps >= 0):
        raise InputError(f"norm gate: eps is {gate.eps}, expected a finite number of at least 0")
    if gate.cap is None:
        return eps, None
    cap = _number(gate.cap)
    if not (math.isfinite(cap) and cap > 0):
        raise InputError(f"norm gate: cap is {gate.cap}, expected a finite number above 0, or None")
    return eps, cap


def _number(value: Any) -> float:
    """The value as a float; nan where it is none, inf beyond the range (both are refused by the rule)."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
    except OverflowError:
        return math.inf


def _vector(g: ArrayLike) -> Floats:
    try:
        vector = np.asarray(g, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"gates: {error}; expected (n,) finite numbers") from None
    if vector.ndim != 1 or vector.size == 0:
        raise InputError(f"gates: found shape {vector.shape}, expected (n,) with n at least 1")
    if not np.isfinite(vector).all():
        at = int(np.argwhere(~np.isfinite(vector))[0, 0])
        raise InputError(f"gates: entry {at} is {vector[at]}, expected a finite number")
    return vector
