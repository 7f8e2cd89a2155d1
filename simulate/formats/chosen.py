"""Which constant matrix stands for each mixer: the choice ``--mixers``.

===========  =======================================================================  ============================
choice       A_l of the chain that is converted                                       what becomes of the rest
===========  =======================================================================  ============================
exact        the mixer itself                                                         refused if there is any
bias         the mixer at its bias                                                    dropped
mean         mean of A_l(x) over a calibration text                                   dropped
token-gates  the same mean; gates ``diag(P_{l+1}^{-1} A_l(x) P_l)`` token by token    off-diagonal part dropped
identity     I: plain iHC with the source's reads and writes                          dropped
===========  =======================================================================  ============================
"""

from __future__ import annotations

import numpy as np

from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.formats.evaluate import load
from streamgauge.simulate.formats.record import Mixer, ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.sinkhorn import Recipe

MIXERS = ("exact", "bias", "mean", "token-gates", "identity")
MEASURED = ("mean", "token-gates")
"""Choices that need a text."""
HOSTED = ("deepseek-v4", "glm5-next")
"""Formats whose models run in transformers, and so can be measured."""
ROUND_OFF = 1e-4
"""Largest difference between a static mixer and its mean in a running model, whose arithmetic is float32 or wider."""


def refuse_choice(mixers: str, measured: bool, norm: NormGate | None) -> None:
    """**Raises** :class:`InputError` for an unknown choice, one without its text, or one with what it excludes."""
    if mixers not in MIXERS:
        raise InputError(f"--mixers: found {mixers!r}, expected one of {', '.join(MIXERS)}")
    if mixers in MEASURED and not measured:
        raise InputError(f"--mixers {mixers}: is measured on a text, expected --text FILE with it")
    if mixers == "token-gates" and norm is not None:
        raise InputError("--norm: scales the streams by constant gates, expected other --mixers than token-gates")


def chosen_mixers(
    mixers: str, record: ModelRecord, shards: Shards, biases: list[Floats], measured: Calibration | None
) -> list[Floats]:
    """A_0 .. A_{L-1} of the choice; mixers that are static whatever the weights are taken as they are.

    **Raises** :class:`InputError` for a calibration of another model.
    """
    if mixers == "identity":
        return [np.eye(record.n) for _ in record.mixers]
    if mixers not in MEASURED or measured is None:
        return biases
    shapes = [mean.shape for mean in measured.mixers]
    if shapes != [(record.n, record.n)] * len(record.mixers):
        raise InputError(
            f"calibration: found {len(shapes)} mixers of shape {shapes[0] if shapes else ()}, expected "
            f"{len(record.mixers)} of shape {(record.n, record.n)} as in {shards.folder}"
        )
    pairs = zip(record.mixers, biases, measured.mixers)
    return [_static(mixer, a, m) if _still(mixer, record, shards) else m for mixer, a, m in pairs]


def _still(mixer: Mixer, record: ModelRecord, shards: Shards) -> bool:
    return load(mixer, shards, record.n, record.d, bases_only=True).mix.scale == 0


def _static(mixer: Mixer, stored: Floats, seen: Floats) -> Floats:
    away = float(np.abs(stored - seen).max())
    if not away <= ROUND_OFF:
        raise InputError(f"calibration: {mixer.name} is static and was seen {away:.2g} away from it: another model's")
    return stored


def gate_recipe(record: ModelRecord) -> Recipe:
    """The one Sinkhorn recipe by which all sites make A_l(x).

    **Raises** :class:`InputError` where there is none: gates by the token need it in the running model.
    """
    recipes = {mixer.mixing.recipe for mixer in record.mixers}
    recipe = next(iter(recipes))
    plain = all(
        mixer.mixing.kind == "sinkhorn" and mixer.mixing.blend is None and mixer.mix.squash == "none"
        for mixer in record.mixers
    )
    flat = all(mixer.norm.scope == "flat" and mixer.mix.weight and mixer.read.weight for mixer in record.mixers)
    if len(recipes) != 1 or recipe is None or not plain or not flat:
        raise InputError(
            f"--mixers token-gates: {record.format} makes its mixers another way, expected one Sinkhorn recipe of "
            "logits that depend on the state"
        )
    return recipe
