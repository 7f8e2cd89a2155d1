"""A converted network back in its source's stream basis: (norm-)gated iHC to mHC with stored matrices.

    A_l = P_{l+1} D_l P_l^{-1},    W = W' (P_l^{-1} (x) I_d),    e = P_0 e',    c = c' P_L^{-1}.

Reads and writes need nothing: the converted network stores p, r and their maps apart.  Mixers come back as float64
matrices (logits cannot: Sinkhorn is not injective); every other tensor takes its source's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamgauge.simulate import checkpoint
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.convert import gauged_weight
from streamgauge.simulate.formats.full import CONVERTED
from streamgauge.simulate.stored import carries, floats, inverse, put, stored_levels
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats


def restore(converted: Path, destination: Path, *, force: bool = False) -> ModelConfig:
    """Write the source form of the converted checkpoint to ``destination``.

    **Raises** :class:`InputError`, one line, where ``converted`` is no conversion, has lost its record, or came from
    another program's checkpoint (which a conversion never touches).
    """
    for name in (checkpoint.SIDECAR, CONVERTED):
        if (converted / name).is_file():
            raise InputError(
                f"{converted}: holds {name}, made beside a checkpoint that is as it was: nothing to restore, "
                "use that one"
            )
    checkpoint.refuse_existing(destination, force)
    checkpoint.refuse_within(destination, converted)
    given = checkpoint.read(converted)
    config, tensors = given.config, given.tensors
    record = given.metadata.get("conversion")
    if not config.gauge or not isinstance(record, Mapping):
        raise InputError(f"{converted}: not a converted checkpoint (no gauge or no 'conversion' record)")
    source = replace(ModelConfig.from_json(record.get("source_model")), mixer="matrix", recipe=None)
    if source.residual == "mean-gated":
        source = replace(source, residual="hc")
    dtypes = record.get("source_dtypes", {})
    kept = {k: v for k, v in given.metadata.items() if k != "conversion"}
    checkpoint.save(destination, source, _restored(source, config, tensors, dtypes), kept, force=force)
    return source


def _restored(
    source: ModelConfig, config: ModelConfig, tensors: Mapping[str, Any], dtypes: Mapping[str, str]
) -> dict[str, Any]:
    gauge = stored_levels(config, tensors)
    inverses = [inverse(p) for p in gauge]
    mixers = carries(config, tensors)
    out = {name: t for name, t in tensors.items() if not _replaced(name)}

    def back(name: str, array: Floats) -> None:
        out[name] = put(array, dtypes.get(name, "float64"))

    for l in range(len(config.sites)):
        back(f"sites.{l}.mixer.matrix", mixers[l])
        if config.coefficients == "dynamic":
            name = f"sites.{l}.coef.weight"
            back(name, gauged_weight(floats(tensors[name]), inverses[l]))
    if source.entry == "free":
        back("entry", gauge[0] @ floats(tensors["entry"]))
    if source.readout == "gate":
        back("head.weight", gauged_weight(floats(tensors["head.weight"]), inverses[-1]))
    elif source.readout == "linear":
        back("head.linear", floats(tensors["head.linear"]) @ inverses[-1])
    return out


def _replaced(name: str) -> bool:
    return ".gauge." in name or name.endswith(".gates") or name in ("entry", "head.linear")
