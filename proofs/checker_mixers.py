"""Mixers out of logits, in the standard library's decimal arithmetic of 50 digits: a second route to numpy's.

``checker_source.py`` runs this file by its path.  ``decimal`` rounds ``exp`` correctly, and everything after it adds
and divides positive numbers, so every entry has a relative error of about iterations * n * 1e-50.  Where a recipe
runs in the linear domain, an ``exp`` below the least float64 is zero, as in the programs whose recipe it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

Rows = list[list[Decimal]]
DIGITS = 50
TINY = Decimal(2) ** -1075
TOLERANCE = Fraction(1, 10**13)


def mixer(recipe: dict[str, Any], logits: Sequence[float], n: int, blend: float | None) -> tuple[Rows, Fraction]:
    """A as n rows, and how far a float64 evaluation may be from it.

    The allowance is 1e-13, times the largest scaled logit (which rounds before ``exp``) and the sweeps over 20.
    """
    with localcontext(Context(prec=DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        factor = Fraction(1)
        if recipe["kind"] == "matrix":
            made = _square([Decimal(x) for x in logits], n)
        elif recipe["kind"] == "permutations":
            made = _permutations(logits, n)
        else:
            warmth = float.fromhex(recipe["temperature"])
            made = _sinkhorn(recipe, _square([Decimal(x) / Decimal(warmth) for x in logits], n))
            largest = max(abs(Fraction(x) / Fraction(warmth)) for x in logits)
            factor = max(Fraction(1), largest, Fraction(recipe["iterations"], 20))
        if recipe["transpose"]:
            made = [list(column) for column in zip(*made)]
        if blend is not None:
            share = 1 / (1 + Decimal(-blend).exp())
            made = [[share * x + (1 - share) * (i == j) for j, x in enumerate(row)] for i, row in enumerate(made)]
        if recipe["kind"] == "matrix":
            factor = max(factor, *(abs(Fraction(x)) for x in logits))
        return made, TOLERANCE * factor


def _square(values: list[Decimal], n: int) -> Rows:
    return [values[i * n : (i + 1) * n] for i in range(n)]


def _permutations(logits: Sequence[float], n: int) -> Rows:
    """``sum_k softmax(z)_k Pi_k`` with Pi[i, pi(i)] = 1, pi in lexicographic order."""
    top = max(logits)
    weights = [(Decimal(x) - Decimal(top)).exp() for x in logits]
    total = sum(weights)
    made = [[Decimal(0)] * n for _ in range(n)]
    for weight, order in zip(weights, itertools.permutations(range(n))):
        for i, j in enumerate(order):
            made[i][j] += weight / total
    return made


def _sinkhorn(recipe: dict[str, Any], z: Rows) -> Rows:
    """Alternate half-steps; with "softmax" the start takes the place of the first one."""
    eps, start_eps = (Decimal(float.fromhex(recipe[name])) for name in ("eps", "start_eps"))
    linear = recipe["eps_mode"] != "none" or start_eps > 0
    if recipe["order"] == "columns":
        z = _turned(z)
    s = [[(x - max(row)).exp() for x in row] for row in z]
    if linear:
        s = [[x if x > TINY else Decimal(0) for x in row] for row in s]
        if recipe["start"] == "softmax":
            s = [[x / sum(row) for x in row] for row in s]
        s = [[x + start_eps for x in row] for row in s]
    for step in range(recipe["iterations"]):
        if step or recipe["start"] == "exp" or not linear:
            s = _half_step(s, recipe["eps_mode"], eps)
        s = _turned(_half_step(_turned(s), recipe["eps_mode"], eps))
    return _turned(s) if recipe["order"] == "columns" else s


def _half_step(s: Rows, mode: str, eps: Decimal) -> Rows:
    """Every row over its sum."""
    out = []
    for row in s:
        total = sum(row, Decimal(0))
        total = total + eps if mode == "add" else max(total, eps) if mode == "clamp" else total
        out.append([x / total for x in row])
    return out


def _turned(s: Rows) -> Rows:
    return [list(column) for column in zip(*s)]
