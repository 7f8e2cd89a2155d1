"""GLM-5.3-Flash (``glm5_next``): DeepSeek-V4's mixers, fn stored in bfloat16, and the plain mean as head.

The mean is linear, so the converted head is the constant row ``(1/n) 1^T P_L``.  The MTP block beyond the last layer
has no mixers.
"""

from __future__ import annotations

from streamgauge.simulate.formats import deepseek_keys as keys
from streamgauge.simulate.formats.adapter import Adapter, says
from streamgauge.simulate.formats.record import Head, ModelRecord, Reader
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a GLM-5.3-Flash folder; head tensors, if any, are unused by the model."""
    found, given = keys.find(shards), keys.numbers(settings)
    mixers = keys.mixers(shards, found, given, "glm5-next")
    dropped = dict.fromkeys(found.head.values(), "the model's head is the mean of the streams")
    readers = tuple(Reader(f"layers.{layer}", len(mixers)) for layer in keys.beyond(found, given.layers, settings))
    return ModelRecord(
        "glm5-next",
        found.spelling,
        given.n,
        given.d,
        mixers,
        Head("mean"),
        readers=readers,
        dropped=dropped,
        settings=settings.used,
    )


def fits(shards: Shards) -> bool:
    """Three scales a mixer; a head, if there is one, is not the model's."""
    return keys.fits(shards, 3)


FORMAT = Adapter("glm5-next", "GLM-5.3-Flash", fits, says("glm5_next", "glm5_next_text"), record)
