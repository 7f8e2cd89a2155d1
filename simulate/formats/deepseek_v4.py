"""DeepSeek-V4 (``deepseek_v4``): mHC with dynamic mixers, a learned head, and MTP blocks with mixers of their own.

    x^ = vec X / sqrt(mean x^2 + rms_norm_eps),  z = scale * fn x^ + base
    p = sigmoid(z) + hc_eps,  r = 2 sigmoid(z),  A = S^T,  S = row softmax + hc_eps, then columns last

An MTP block (``mtp.N``) starts from X_L itself; its mixers are a chain apart and stay as they are, so it needs
``X_L = P_L Y_L``.
"""

from __future__ import annotations

import re

from streamgauge.simulate.formats import deepseek_keys as keys
from streamgauge.simulate.formats.adapter import Adapter, says
from streamgauge.simulate.formats.record import ModelRecord, Reader
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards

_MTP = re.compile(r"(?:model\.)?(mtp\.\d+)\..*")


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a DeepSeek-V4 folder."""
    found, given = keys.find(shards), keys.numbers(settings)
    mixers = keys.mixers(shards, found, given, "deepseek-v4")
    head = keys.gated_head(shards, found, given)
    blocks = {match[1] for match in map(_MTP.fullmatch, shards.entries) if match}
    blocks |= {f"layers.{layer}" for layer in keys.beyond(found, given.layers, settings)}
    readers = tuple(Reader(block, len(mixers)) for block in sorted(blocks))
    notes = ("the MTP blocks keep their own mixers and read X_L = P_L Y_L",) if readers else ()
    return ModelRecord(
        "deepseek-v4",
        found.spelling,
        given.n,
        given.d,
        mixers,
        head,
        readers=readers,
        settings=settings.used,
        notes=notes,
    )


def fits(shards: Shards) -> bool:
    """Three scales a mixer, and a head."""
    return keys.fits(shards, 3) and bool(keys.find(shards).head)


FORMAT = Adapter("deepseek-v4", "DeepSeek-V4", fits, says("deepseek_v4"), record)
