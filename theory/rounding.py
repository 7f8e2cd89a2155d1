"""An exact form rounded to float64, so that a network can run in it.

``A_l P_l = P_{l+1} D_l`` over Q becomes float64 ``P_l, D_l`` whose residual is one rounding per entry.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm


def floating_form(form: NormalForm) -> NormalForm:
    """``form`` in float64, on ``form.chain.floating()``; numeric forms return themselves.

    Raises :class:`InputError` naming the level where the gauge leaves the range of float64 (deep chains), or where
    a norm gate was already applied exactly (its scales are square roots: apply it after rounding).
    """
    chain = form.chain.floating()
    if not form.chain.exact or chain.exact:  # a chain without any number counts as exact
        return form
    if form.norm is not None:
        raise InputError("norm: found an exact norm form; round the base form first, then apply the norm gate")
    gauge = []
    for level, p in enumerate(form.gauge):
        try:
            dense = exact.to_floats(p)
        except OverflowError:
            raise InputError(f"gauge {level}: an entry is beyond float64; use the graded form") from None
        if not np.abs(dense).max(axis=0, initial=0.0).all():
            raise InputError(f"gauge {level}: a column underflows to zero in float64; use the graded form")
        gauge.append(dense)
    gates = []
    for l, gate in enumerate(form.gates):
        try:
            gates.append(np.array([float(g) for g in gate]))
        except OverflowError:
            raise InputError(f"site {l}: a gate is beyond float64; expected gates in its range") from None
    return replace(form, chain=chain, gauge=tuple(gauge), gates=tuple(gates))
