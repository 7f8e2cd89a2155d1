"""Small networks for conversion tests: random, or with the mixers given."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.model import ByteLM, initialise

BASE = ModelConfig(
    context=16,
    width=8,
    streams=3,
    sites=("attention", "mlp") * 3,
    heads=2,
    hidden=12,
    residual="mhc",
    mixer="logits",
    recipe="deepseek-v4",
    readout="gate",
)

J2 = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
MIX = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
CYCLE = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def network(config: ModelConfig = BASE, seed: int = 0) -> ByteLM:
    """A network with random weights."""
    model = ByteLM(config)
    initialise(model, seed)
    return model


def with_mixers(config: ModelConfig, mixers: list[Any], seed: int = 0) -> ByteLM:
    """A network whose mixers are the matrices given, repeated over the sites."""
    model = network(config, seed)
    with torch.no_grad():
        for l, site in enumerate(model.sites):
            site.mixer.matrix.copy_(torch.tensor(np.array(mixers[l % len(mixers)], dtype=float)))
    return model


def random_tokens(config: ModelConfig = BASE, batch: int = 4) -> torch.Tensor:
    """Tokens (batch, context) from a fixed seed."""
    return torch.randint(0, config.vocab, (batch, config.context), generator=torch.Generator().manual_seed(1))
