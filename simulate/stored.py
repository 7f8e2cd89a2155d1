"""What a checkpoint stores about its streams, as float64 arrays: mixers, gates, gauge levels, carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from streamgauge.simulate.config import ModelConfig
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import mean_preserving_gate, norm_factor
from streamgauge.theory.sinkhorn import recipe_named, sinkhorn

Tensors = Mapping[str, Any]


def floats(tensor: Any) -> Floats:
    """A torch tensor as a float64 array."""
    return np.asarray(tensor.detach().double().numpy(), dtype=np.float64)


def put(array: Any, dtype: str = "float64") -> Any:
    """An array as a contiguous torch tensor of that dtype (a strided one would be stored scrambled)."""
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float64)).to(getattr(torch, dtype))


def inverse(matrix: Floats) -> Floats:
    """The inverse in float64."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def static_mixers(config: ModelConfig, tensors: Tensors) -> Floats:
    """A_0 .. A_{L-1}, shape (L, n, n), as they act: ``A_l X_l``.

    Stored matrices are taken as they are; logits go through the checkpoint's Sinkhorn recipe, its transpose
    included, in float64; a mean-preserving gate g is ``J + g (I - J)``.
    """
    n, sites = config.streams, len(config.sites)
    out = np.empty((sites, n, n))
    for l in range(sites):
        if config.residual == "mean-gated":
            out[l] = mean_preserving_gate(n, float(tensors[f"sites.{l}.gates"]))
        elif config.mixer == "matrix":
            out[l] = floats(tensors[f"sites.{l}.mixer.matrix"])
        elif config.recipe is None:
            raise InputError("config model.recipe: found none, expected the Sinkhorn recipe of the mixing logits")
        else:
            out[l] = sinkhorn(floats(tensors[f"sites.{l}.mixer.logits"]), recipe_named(config.recipe)).mixer
    return out


def acting_gates(config: ModelConfig, tensors: Tensors) -> Floats:
    """g_0 .. g_{L-1}, shape (L, n), as they act: with the factor c(g) under a norm gate, ones for a pure iHC."""
    out = np.ones((len(config.sites), config.streams))
    if config.gated:
        for l in range(len(out)):
            out[l] = floats(tensors[f"sites.{l}.gates"])
            if config.residual == "norm-gated" and config.norm_gate is not None:
                out[l] *= norm_factor(out[l], NormGate(config.norm_gate.eps, config.norm_gate.cap))
    return out


def stored_levels(config: ModelConfig, tensors: Tensors) -> list[Floats]:
    """P_0 .. P_L of a converted checkpoint: its read maps; the last from the head, or from the last write map."""
    levels = [floats(tensors[f"sites.{l}.gauge.read"]) for l in range(len(config.sites))]
    if "head.gauge.read" in tensors:
        return [*levels, floats(tensors["head.gauge.read"])]
    return [*levels, inverse(floats(tensors[f"sites.{len(levels) - 1}.gauge.write"]))]


def carries(config: ModelConfig, tensors: Tensors) -> Floats:
    """What carries the streams over each site, (L, n, n), in the *source's* stream basis.

    A converted network's carry is ``P_{l+1} D_l P_l^{-1}``: the mixer it stands for.
    """
    if config.mixes or config.residual == "mean-gated":
        return static_mixers(config, tensors)
    gates = acting_gates(config, tensors)
    if not config.gauge:
        return gates[:, :, None] * np.eye(config.streams)
    levels = stored_levels(config, tensors)
    out = np.empty((len(gates), config.streams, config.streams))
    for l, gate in enumerate(gates):
        out[l] = (levels[l + 1] * gate) @ inverse(levels[l])
    return out
