"""One door to the normal forms: ``A_l P_l = P_{l+1} D_l``.

==========  ===================  =============================  ==============================================
form        D_l                  holds for                      module
==========  ===================  =============================  ==============================================
identity    I                    every A_l invertible           :mod:`streamgauge.theory.identity` (Theorem 1)
binary      0/1 diagonal         any static chain, exactly      :mod:`streamgauge.theory.binary` (Theorem 2)
graded      diagonal, [0, 1]     any square static chain        :mod:`streamgauge.theory.graded`
norm gate   c(g) diag(g)         on top of any of them          :mod:`streamgauge.theory.norm` (Theorem 3)
==========  ===================  =============================  ==============================================
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm, NormGate

FORMS = ("identity", "binary", "graded")


def normal_form(chain: Chain, form: str = "graded", *, norm: NormGate | None = None, **options: Any) -> NormalForm:
    """The normal form of ``chain``: "identity", "binary" or "graded"; with a norm gate on top if ``norm`` is given.

    ``options`` go to the form: ``gauge`` (identity: "left", "right", "balanced"), ``integral`` (binary),
    ``tolerance`` (graded).

    **Raises** :class:`InputError` for a form or option of another name, and what the form itself refuses.
    """
    if not isinstance(chain, Chain):
        raise InputError(f"chain: found {type(chain).__name__}, expected a Chain (Chain(mixers) makes one)")
    if form not in FORMS:
        raise InputError(f"form: found {form!r}, expected one of {', '.join(FORMS)}")
    make = getattr(import_module(f"streamgauge.theory.{form}"), f"{form}_form")
    known = [name for name in inspect.signature(make).parameters if name != "chain"]
    for name in options:
        if name not in known:
            raise InputError(f"option {name!r}: the {form} form has {', '.join(known) or 'no options'}")
    base: NormalForm = make(chain, **options)
    if norm is None:
        return base
    normed: NormalForm = import_module("streamgauge.theory.norm").norm_form(base, norm)
    return normed
