"""The static mixers of a checkpoint as float64 matrices: A_l as it acts, ``A_l X_l``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamgauge.simulate.config import ModelConfig
from streamgauge.theory.gates import mean_preserving_gate
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn


def static_mixers(config: ModelConfig, tensors: Mapping[str, Any]) -> NDArray[np.float64]:
    """A_0 .. A_{L-1}, shape (L, n, n).

    Stored matrices are taken as they are; logits go through the checkpoint's Sinkhorn recipe, its transpose
    included, in float64; a mean-preserving gate g is ``J + g (I - J)``.
    """
    n, sites = config.streams, len(config.sites)
    out = np.empty((sites, n, n))
    for l in range(sites):
        if config.residual == "mean-gated":
            out[l] = mean_preserving_gate(n, float(tensors[f"sites.{l}.gates"]))
        elif config.mixer == "matrix":
            out[l] = tensors[f"sites.{l}.mixer.matrix"].detach().double().numpy()
        else:
            logits = tensors[f"sites.{l}.mixer.logits"].detach().double().numpy()
            out[l] = sinkhorn(logits, RECIPES[config.recipe]).mixer
    return out
