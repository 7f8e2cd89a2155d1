"""DeepSeek-V4.1 (``deepseek_v41``): DeepSeek-V4's mixers with the read lagged by one site, and no head tensors.

Site k reads ``p(X_{k-1}) X_k``, site 0 reads stream 0, and the head is the last mixer's p on X_L.  In the new basis
the read is ``p(X_{k-1}) P_k``: coefficients from basis k - 1, applied in basis k.  Engram layers rewrite the streams
(a norm per stream): they get ``X = P Y`` and give their result back through ``P^{-1}``.
"""

from __future__ import annotations

import re

from streamgauge.simulate.formats import deepseek_keys as keys
from streamgauge.simulate.formats.adapter import Adapter, says
from streamgauge.simulate.formats.record import Head, ModelRecord, Reader
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards

_ENGRAM = re.compile(keys.PREFIX + r"layers\.(\d+)\.engram\..*")
_MTP = re.compile(r"(?:model\.)?(mtp\.\d+)\..*")


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a DeepSeek-V4.1 folder."""
    found, given = keys.find(shards), keys.numbers(settings)
    mixers = keys.mixers(shards, found, given, "deepseek-v4.1")
    engrams = {int(match[1]) for match in map(_ENGRAM.fullmatch, shards.entries) if match}
    readers = [Reader(f"layers.{layer}.engram", 2 * layer, writes=True) for layer in sorted(engrams)]
    drafters = {match[1] for match in map(_MTP.fullmatch, shards.entries) if match}
    drafters |= {f"layers.{layer}" for layer in keys.beyond(found, given.layers, settings)}
    readers += [Reader(name, len(mixers)) for name in sorted(drafters)]
    return ModelRecord(
        "deepseek-v4.1",
        found.spelling,
        given.n,
        given.d,
        mixers,
        Head("lagged"),
        lagged=True,
        readers=tuple(readers),
        settings=settings.used,
    )


def fits(shards: Shards) -> bool:
    """Three scales a mixer, and no head."""
    return keys.fits(shards, 3) and not keys.find(shards).head


FORMAT = Adapter("deepseek-v4.1", "DeepSeek-V4.1", fits, says("deepseek_v41", "deepseek_v41_text"), record)
