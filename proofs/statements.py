"""What a certificate states, as JSON values: numbers in their canonical spelling and bounds computed over Q.

The arithmetic is flint's (the checker has its own on Python integers), so the two are a second route to each other.
Floats are the dyadic rationals they are.  Every bound is the least float64 not below the exact value.  Norms are the
largest row sum; formulas: the docstring of ``proofs/checker.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_factor

Json = Any
MAX_DIGITS = 4300
_SLACK = Fraction(1, 2**100)


def float_text(value: float) -> str:
    """``float.hex`` of a finite float64."""
    if not math.isfinite(value):
        raise InputError(f"certificate: found {value}, expected a finite number")
    return float(value).hex()


def rational_text(value: Any) -> str:
    """ "p" or "p/q" in lowest terms. **Raises** :class:`InputError` beyond the checker's digits."""
    scalar = exact.scalar(value)
    for part in (scalar.p, scalar.q):
        if part.height_bits() > MAX_DIGITS * math.log2(10) - 4:
            raise InputError(
                f"certificate: an integer of {part.height_bits()} bits, expected at most {MAX_DIGITS} digits"
            )
    return str(scalar)


def table(matrix: Any) -> list[list[str]]:
    """A matrix (``fmpq_mat`` or float64 array) as rows of number strings."""
    if isinstance(matrix, flint.fmpq_mat):
        return (
            [[rational_text(x) for x in row] for row in matrix.tolist()] if matrix.ncols() else [[]] * matrix.nrows()
        )
    return [[float_text(x) for x in row] for row in matrix]


def rational(matrix: Any) -> flint.fmpq_mat:
    """The matrix over Q."""
    return matrix if isinstance(matrix, flint.fmpq_mat) else exact.from_floats(np.asarray(matrix, dtype=np.float64))


def norm(matrix: flint.fmpq_mat) -> Fraction:
    """The largest row sum of absolute values."""
    rows, cols = matrix.nrows(), matrix.ncols()
    sums = [sum((abs(matrix[i, j]) for j in range(cols)), flint.fmpq(0)) for i in range(rows)]
    return exact.fraction(max(sums, default=flint.fmpq(0)))


def above(value: Fraction) -> str:
    """The least float64 not below ``value``, spelled."""
    try:
        near = float(value)
    except OverflowError:
        raise InputError("certificate: a bound is beyond float64") from None
    return float_text(near if Fraction(near) >= value else math.nextafter(near, math.inf))


def inverse(gauge: Any, level: int) -> Any:
    """P^{-1}, exact or rounded. **Raises** :class:`InputError` naming the level of a singular P."""
    try:
        if isinstance(gauge, flint.fmpq_mat):
            return gauge.inv()
        out = np.asarray(np.linalg.inv(gauge), dtype=np.float64)
    except (np.linalg.LinAlgError, ZeroDivisionError):
        raise InputError(f"gauge {level}: singular, expected an invertible matrix") from None
    if not np.isfinite(out).all():
        raise InputError(f"gauge {level}: its inverse is beyond float64, expected an invertible matrix")
    return out


class Level:
    """P_l with its approximate inverse Q_l over Q, and rho_l = ||I - P_l Q_l|| < 1.

    **Raises** :class:`InputError` naming the level where rho_l is not below 1 (then nothing can be certified).
    """

    def __init__(self, level: int, gauge: Floats, inverse: Floats, metric: Floats | None = None) -> None:
        self.gauge, self.inverse = rational(gauge), rational(inverse)
        rest = exact.identity(len(gauge)) - self.gauge * self.inverse
        self.rho, columns = norm(rest), norm(rest.transpose())
        if max(self.rho, columns) >= 1:
            found = float(min(max(self.rho, columns), Fraction(10) ** 300))
            raise InputError(f"gauge {level}: ||I - P Q|| is {found:.3g}, expected below 1 (too ill-conditioned)")
        self.json: dict[str, Json] = {"gauge": table(gauge), "inverse": table(inverse), "rho": above(self.rho)}
        if metric is not None:
            t = rational(metric)
            gap = self.inverse.transpose() * (t.transpose() * t - self.gauge.transpose() * self.gauge) * self.inverse
            self.json["metric"] = table(metric)
            self.json["metric_bound"] = above(norm(gap) / ((1 - self.rho) * (1 - columns)))


def float_site(
    mixer: Floats,
    gates: Floats,
    diagonal: Floats,
    before: Level,
    after: Level,
    norm_gate: tuple[NormGate, float] | None = None,
) -> dict[str, Json]:
    """The mixer and its gates with ||P' c D - A P|| and the distance of A~ = P' c D P^{-1} from A.

    ``diagonal``: D, the gates by the slots of both levels; ``norm_gate``: the rule and its c(g) in float64 (else 1).
    """
    rule, factor = norm_gate or (None, 1.0)
    gap = Fraction(0) if rule is None else factor_gap(gates, rule, factor)
    carried = after.gauge * rational(diagonal)
    error = carried * flint.fmpq(*factor.as_integer_ratio()) - rational(mixer) * before.gauge
    distance = norm(error * before.inverse)
    if gap:
        distance += gap * norm(carried * before.inverse)
    out: dict[str, Json] = {"mixer": table(mixer), "gates": [float_text(g) for g in gates]}
    if rule is not None:
        out["factor"] = float_text(factor)
    return {**out, "residual": above(norm(error)), "distance": above(distance / (1 - before.rho))}


def stored_site(mixer: Floats, gates: Floats, before: Level, after: Level, rule: NormGate | None) -> dict[str, Json]:
    """:func:`float_site` of a checkpoint's gates (n,), one a stream; c(g) is computed as the network does."""
    norm_gate = None if rule is None else (rule, norm_factor(gates, rule))
    return float_site(mixer, gates, np.diag(gates), before, after, norm_gate)


def norm_rule(document: Mapping[str, Any] | None) -> NormGate | None:
    """The norm gate of a checkpoint's config or record ({"eps", "cap"}, or None)."""
    if document is None:
        return None
    cap = document["cap"]
    return NormGate(float(document["eps"]), None if cap is None else float(cap))


def rule_json(rule: NormGate) -> dict[str, Json]:
    """The same in the certificate."""
    return {"eps": float_text(float(rule.eps)), "cap": None if rule.cap is None else float_text(float(rule.cap))}


def float_pair(name: str, source: Floats, stored: Floats, level: Level) -> dict[str, Json]:
    """A row (read, readout) stored for ``source P``, or a column (write, entry) stored for ``P^{-1} source``."""
    if name in ("read", "readout"):
        error = rational(stored) - rational(source) * level.gauge
        distance = norm(error * level.inverse) / (1 - level.rho)
    else:
        distance = norm(level.gauge * rational(stored) - rational(source))
    return {"source": table(source), "stored": table(stored), "distance": above(distance)}


def exact_pair(source: flint.fmpq_mat, stored: flint.fmpq_mat) -> dict[str, Json]:
    """The same over Q, where nothing is lost."""
    return {"source": table(source), "stored": table(stored)}


def factor_gap(gates: Floats, gate: NormGate, factor: float) -> Fraction:
    """How far the real ``c(g) = min(cap, sqrt(n) / (||g|| + eps))`` may be from ``factor`` (ball arithmetic)."""
    squares = sum((Fraction(float(g)) ** 2 for g in gates), Fraction(0))
    if squares == 0:
        return abs(Fraction(factor) - 1)
    with flint.ctx.workprec(256):
        size = flint.arb(flint.fmpq(squares.numerator, squares.denominator)).sqrt()
        true = flint.arb(len(gates)).sqrt() / (size + flint.arb(float(gate.eps)))
        if gate.cap is not None:
            true = true.min(flint.arb(float(gate.cap)))
        away = (true - flint.arb(factor)).abs_upper()
        top, exponent = away.man_exp()
    return Fraction(int(top)) * Fraction(2) ** int(exponent) + _SLACK * Fraction(factor)


def controller_bound(weight: Floats, stored: Floats, level: Level) -> str:
    """``||W' - W (P (x) I_d)||`` for W, W' of shape (m, n d), columns stream-major."""
    n = level.gauge.nrows()
    total = Fraction(0)
    for row, new in zip(weight, stored):
        error = rational(new.reshape(n, -1).T) - rational(row.reshape(n, -1).T) * level.gauge
        parts = sum((abs(x) for x in error.entries()), flint.fmpq(0))
        total = max(total, exact.fraction(parts))
    return above(total)


def slots_json(slots: Sequence[Sequence[int]]) -> list[list[int]]:
    """Slots as plain integers."""
    return [[int(s) for s in row] for row in slots]
