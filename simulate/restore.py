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

import numpy as np

from streamgauge.simulate import checkpoint
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.convert import Floats, floats, gauged_weight, put
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_factor


def restore(converted: Path, destination: Path, *, force: bool = False) -> ModelConfig:
    """Write the source form of the converted checkpoint to ``destination``.

    **Raises** :class:`InputError`, one line, where ``converted`` is no conversion or has lost its record.
    """
    checkpoint.refuse_existing(destination, force)
    if destination.resolve() == converted.resolve():
        raise InputError(f"{destination}: is the converted checkpoint itself, expected another path")
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
    gauge = _levels(config, tensors)
    inverse = [np.linalg.inv(p) for p in gauge]
    out = {name: t for name, t in tensors.items() if not _replaced(name)}

    def back(name: str, array: Floats) -> None:
        out[name] = put(array, dtypes.get(name, "float64"))

    for l in range(len(config.sites)):
        back(f"sites.{l}.mixer.matrix", gauge[l + 1] @ np.diag(_gates(config, tensors, l)) @ inverse[l])
        if config.coefficients == "dynamic":
            name = f"sites.{l}.coef.weight"
            back(name, gauged_weight(floats(tensors[name]), inverse[l]))
    if source.entry == "free":
        back("entry", gauge[0] @ floats(tensors["entry"]))
    if source.readout == "gate":
        back("head.weight", gauged_weight(floats(tensors["head.weight"]), inverse[-1]))
    elif source.readout == "linear":
        back("head.linear", floats(tensors["head.linear"]) @ inverse[-1])
    return out


def _replaced(name: str) -> bool:
    return ".gauge." in name or name.endswith(".gates") or name in ("entry", "head.linear")


def _levels(config: ModelConfig, tensors: Mapping[str, Any]) -> list[Floats]:
    sites = len(config.sites)
    levels = [floats(tensors[f"sites.{l}.gauge.read"]) for l in range(sites)]
    if config.readout == "gate":
        return [*levels, floats(tensors["head.gauge.read"])]
    return [*levels, np.linalg.inv(floats(tensors[f"sites.{sites - 1}.gauge.write"]))]


def _gates(config: ModelConfig, tensors: Mapping[str, Any], l: int) -> Floats:
    if config.residual == "ihc":
        return np.ones(config.streams)
    gates = floats(tensors[f"sites.{l}.gates"])
    if config.norm_gate is None or config.residual != "norm-gated":
        return gates
    return gates * norm_factor(gates, NormGate(config.norm_gate.eps, config.norm_gate.cap))
