"""Theorem 3: the norm-gated form of any normal form.

With c_l = c(g_l), s_0 = 1 and s_{l+1} = s_l / c_l, the base equation ``A_l P_l = P_{l+1} D_l`` becomes

    A_l (s_l P_l) = (s_{l+1} P_{l+1}) (c_l D_l),

so a gauge that absorbs one scalar per level turns gates into norm gates.  It holds because g_l is static: a
token-dependent c(g(x)) would need a token-dependent s_l(x), which no static gauge absorbs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm, NormGate, NormScales
from streamgauge.theory.gates import norm_factor, norm_factor_squared
from streamgauge.theory.verdict import Verdict

RANGE_LOG2 = 1000.0
"""Largest |log2 s_l| of a numeric form: beyond it the state X / s_l leaves float64 (2^-1022 to 2^1024)."""


def norm_form(base: NormalForm, gate: NormGate) -> NormalForm:
    """The base form with its gates replaced by norm gates; ``form`` keeps the base's name, ``norm`` holds the scales.

    Numeric base: gauge s_l P_l and gates c_l g_l.  Exact base: gauge and gates stay, ``norm`` has the exact c_l^2
    and s_l^2.  n in c is the number of slots (rectangular chains: the largest n_l, idle slots counting as gates 0).
    A note reports the sum of log2 c_l, i.e. by how many powers of two the converted state outgrows the source's.
    Cost O(L n^2).

    **Raises** :class:`InputError`: a base that has a norm gate already; an eps or cap that cannot be used (exact
    bases: eps must be 0 and the cap rational); a numeric base whose scales leave float64 at some level, with the
    cap that would keep them in.
    """
    if base.norm is not None:
        raise InputError("norm gate: the form has one already, expected a base form without")
    scales = _exact_scales(base, gate) if base.chain.exact else _float_scales(base, gate)
    total = 0.0 - float(scales.log2_scales[-1])  # not -0
    changed: dict[str, Any] = {}
    if not base.chain.exact:
        changed["gauge"] = tuple(s * p for s, p in zip(_scales(scales.factors), base.gauge))
        changed["gates"] = tuple(c * np.asarray(g) for c, g in zip(scales.factors, base.gates))
    note = f"norm gate: sum of log2 c is {total:.6g}; the state grows by that many powers of two over the base form's"
    return replace(base, norm=scales, notes=(*base.notes, note), **changed)


def state_growth_log2(form: NormalForm, gate: NormGate | None = None) -> Floats:
    """log2 (1/s_l) for l = 0..L: the growth of a norm-gated state over the base form's, level by level.

    For a form with a norm gate, its own; for a base form, what ``gate`` (default: eps 0, no cap) would cause.
    Nothing is refused here, so this is the place to look when choosing a cap; :func:`safe_cap` gives one.
    """
    if form.norm is not None and gate is None:
        return -form.norm.log2_scales
    base_gates: Sequence[Any] = form.gates if form.norm is None else form.norm.base_gates
    rule = gate or NormGate()
    logs = [math.log2(norm_factor(np.asarray(g, dtype=np.float64), rule)) for g in base_gates]
    return np.concatenate([[0.0], np.cumsum(logs)])


def safe_cap(sites: int, bits: float = RANGE_LOG2) -> float:
    """2^(bits / L): a cap with which L sites cannot grow the state by more than ``bits`` powers of two."""
    return float(2.0 ** (bits / max(1, sites)))


def _floor4(x: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(x)) - 3)
    return math.floor(x / unit) * unit  # rounded to nearest, the cap named would be refused again


def _float_scales(base: NormalForm, gate: NormGate) -> NormScales:
    factors = np.empty(len(base))
    for l, g in enumerate(base.gates):
        try:
            factors[l] = norm_factor(np.asarray(g), gate)
        except InputError as error:
            raise InputError(f"site {l}: {error}") from None
    log2_scales = np.concatenate([[0.0], -np.cumsum(np.log2(factors))])
    outside = np.flatnonzero(np.abs(log2_scales) > RANGE_LOG2)
    if outside.size:
        level = int(outside[0])
        if log2_scales[level] < 0:
            remedy = f"set a cap (at most {_floor4(safe_cap(len(base))):.4g} keeps it in range)"
        else:
            remedy = "the gates exceed 1, which a cap does not change: scale the base gauge's columns instead"
        raise InputError(
            f"norm gate: log2 of the scale s at level {level} is {log2_scales[level]:.5g}, expected within "
            f"+-{RANGE_LOG2:g} (the state would leave float64); {remedy}"
        )
    # by division, not by exp2 of the sum: that would cost log2 s round-offs in A P = P' D
    log2_scales = np.log2(_scales(factors))
    return NormScales(gate, tuple(np.asarray(g) for g in base.gates), factors, log2_scales)


def _exact_scales(base: NormalForm, gate: NormGate) -> NormScales:
    squares = tuple(norm_factor_squared(g, gate) for g in base.gates)
    scales = [Fraction(1)]
    for square in squares:
        scales.append(scales[-1] / square)
    factors = np.array([_root(q) for q in squares])
    logs = np.array([exact.log2(q) / 2 for q in scales])
    return NormScales(gate, tuple(tuple(g) for g in base.gates), factors, logs, squares, tuple(scales))


def _root(q: Fraction) -> float:
    half = exact.log2(q) / 2
    if abs(half) > RANGE_LOG2:
        raise InputError(f"norm gate: log2 c is {half:.5g}, expected within +-{RANGE_LOG2:g}; set a cap")
    return math.sqrt(q) if abs(half) < 500 else 2.0**half  # the square itself may not fit float64


def _scales(factors: Floats) -> list[float]:
    scales = [1.0]
    for c in factors:
        scales.append(scales[-1] / float(c))
    return scales


def check_norm(form: NormalForm, tolerance: float = 1e-12) -> Verdict:
    """Whether a norm form's factors follow its rule and its scales the recursion s_{l+1} = s_l / c_l, s_0 = 1.

    Exact: c_l^2, s_l^2 and the base gates exactly, their float64 readings within ``tolerance``.  Numeric: c_l, the
    gates c_l g_l and log2 s_l within ``tolerance``.  With the scaled equation (``form.residuals``, which no column
    scale can hide anything from) that gives the base equation for gauge / s_l.
    """
    norm = form.norm
    if norm is None:
        return Verdict(True, "no norm gate")
    found = (len(norm.base_gates), len(norm.factors), len(norm.log2_scales))
    if found != (len(form), len(form), len(form) + 1):
        return Verdict(False, f"norm gate: found {found} gates, factors, scales for {len(form)} sites", {})
    start = norm.scales_squared[0] if form.chain.exact and norm.scales_squared else 2.0 ** norm.log2_scales[0]
    if start != 1:
        return Verdict(False, f"norm gate: s at level 0 is {start}, expected 1", {"level": 0})
    site = _exact_site if form.chain.exact else _float_site
    for l in range(len(form)):
        fault = site(form, norm, l, tolerance)
        if fault:
            return Verdict(False, f"site {l}: norm gate: {fault}", {"site": l})
    return Verdict(True, f"norm factors and scales follow the rule at all {len(form)} sites")


def _exact_site(form: NormalForm, norm: NormScales, l: int, tolerance: float) -> str:
    if norm.factors_squared is None or norm.scales_squared is None or len(norm.scales_squared) != len(form) + 1:
        return "an exact form needs c^2 and s^2 for every site"
    if tuple(norm.base_gates[l]) != tuple(form.gates[l]):
        return "base gates differ from the form's gates"
    square, wanted = norm.factors_squared[l], norm_factor_squared(form.gates[l], norm.gate)
    if square != wanted:
        return f"c^2 is {exact.shown(square)}, expected {exact.shown(wanted)}"
    before, after = norm.scales_squared[l], norm.scales_squared[l + 1]
    if after * square != before:
        return f"s^2 goes from {exact.shown(before)} to {exact.shown(after)}, expected {exact.shown(before / square)}"
    if abs(math.log2(norm.factors[l]) - exact.log2(square) / 2) > tolerance:
        return f"c is {norm.factors[l]}, but its square {exact.shown(square)}"
    logs = exact.log2(after) / 2
    if abs(norm.log2_scales[l + 1] - logs) > tolerance * max(1.0, abs(logs)):
        return f"log2 s is {norm.log2_scales[l + 1]}, but log2 of the exact s {logs}"
    return ""


def _float_site(form: NormalForm, norm: NormScales, l: int, tolerance: float) -> str:
    base, factor = np.asarray(norm.base_gates[l]), float(norm.factors[l])
    wanted = norm_factor(base, norm.gate)
    if not abs(factor - wanted) <= tolerance * wanted:
        return f"c is {factor}, expected {wanted}"
    gates = np.asarray(form.gates[l])
    if gates.shape != base.shape or not np.allclose(gates, factor * base, rtol=tolerance, atol=0):
        return "gates differ from c times the base gates"
    before, after = float(norm.log2_scales[l]), float(norm.log2_scales[l + 1])
    if not abs(before - after - math.log2(factor)) <= tolerance * max(1.0, abs(before)):
        return f"log2 s goes from {before} to {after}, expected {before - math.log2(factor)}"
    return ""
