"""``W' = W (P (x) I_d)`` with a bound on what rounding left between the two, and what a finishing step is told.

The bound costs one more product and no arithmetic but float64: with u = 2^-53 and W~ another evaluation of the same
sums of n products, ``|W' - W (P (x) I)| <= |W' - W~| + gamma |W| (|P| (x) I)`` an entry, gamma = k u / (1 - k u)
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamgauge.simulate.convert import gauged_weight
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm

FOLDED = 4
"""Roundings of a weight before the product: gamma's offset and gamma itself, and two to spare."""


class Bound(NamedTuple):
    """Of one controller: at least max over rows of sum |W' - W (P (x) I)|, and at most max over rows of sum |W|."""

    away: float
    size: float


Bounds = dict[str, Bound]


@dataclass(frozen=True)
class Written:
    """A conversion whose tensors are written and whose folder has not appeared yet.

    - ``path``: the file; ``prefix``: what its tensors' names start with ("" or "streamgauge.").
    - ``record``, ``shards``: the source; ``form``: of the chain that was converted.
    - ``bounds``: :func:`controller_bound` of every controller by its name.
    """

    path: Path
    prefix: str
    record: ModelRecord
    shards: Shards
    bounds: Mapping[str, Bound]
    form: NormalForm


def gauged(name: str, weight: Floats, gauge: Floats, bounds: Bounds) -> Floats:
    """``W (P (x) I_d)``; its bound goes to ``bounds[name]``."""
    made = gauged_weight(weight, gauge)
    bounds[name] = controller_bound(weight, made, gauge)
    return made


def controller_bound(weight: Floats, made: Floats, gauge: Floats) -> Bound:
    """The bound for W and W' of shape (m, n d), stream-major columns, and P of shape (n, n)."""
    if not weight.any() and not made.any():
        return Bound(0.0, 0.0)  # reads and writes that do not depend on the state
    n, rows = gauge.shape[0], weight.shape[0]
    blocks, found = (array.reshape(rows, n, -1) for array in (weight, made))
    terms = n + FOLDED
    gamma = terms * 2.0**-53 / (1 - terms * 2.0**-53)
    away = np.abs(found - gauge.T @ blocks).sum(axis=(1, 2))
    size = np.abs(blocks).sum(axis=2) @ np.abs(gauge).sum(axis=1)
    # the two sums round too, by less than their number of terms times u; underflow costs at most 2^-1074 an entry
    slack = 1 + 2 * made[0].size * 2.0**-53
    worst = float(((away + gamma * size) * slack).max(initial=0.0)) + made[0].size * n * 2.0**-1074
    whole = float(np.abs(blocks).sum(axis=(1, 2)).max(initial=0.0)) / slack
    return Bound(math.nextafter(worst, math.inf), math.nextafter(whole, 0.0))
