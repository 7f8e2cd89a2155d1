"""One scalar recurrence behind every covariant gauge: ``elder_l x_l + forcing_l = own_l x_{l+1}``, l = 0 .. k-1.

It is what ``A_l p = g p'`` leaves for the coefficient x of one direction on another: ``elder`` and ``own`` are their
pivots or gates, never zero here.  One number is free, so x is given at one level and solved backwards before it and
forwards after it.  Where nothing fixes it, x = 0 at the level where ``prod own / elder`` is smallest keeps x small:
with that product as rho, ``x_l = (K + S_l) / rho_l``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any


def solved(
    elder: Sequence[Any],
    own: Sequence[Any],
    forcing: Sequence[Any],
    pin: int,
    value: Any,
    clean: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """x_0 .. x_k with ``x_pin = value``, for k = len(own), over any field; ``clean`` is applied to every number."""
    kept = clean or (lambda x: x)
    x = [kept(value)] * (len(own) + 1)
    for l in range(pin - 1, -1, -1):
        x[l] = kept((own[l] * x[l + 1] - forcing[l]) / elder[l])
    for l in range(pin, len(own)):
        x[l + 1] = kept((elder[l] * x[l] + forcing[l]) / own[l])
    return x


def weakest_level(elder: Sequence[Any], own: Sequence[Any], log: Callable[[Any], float] = math.log) -> int:
    """The first level 0 .. k where ``prod own / elder`` is smallest."""
    pin, ratio, least = 0, 0.0, 0.0
    for l, (a, b) in enumerate(zip(elder, own)):
        ratio += log(b) - log(a)
        if ratio < least:
            pin, least = l + 1, ratio
    return pin
