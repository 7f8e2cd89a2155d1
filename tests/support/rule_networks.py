"""Small networks for tests: every residual rule, random tensors away from their initial values."""

from __future__ import annotations

from typing import Any

import torch

from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.model import ByteLM

BASE: dict[str, Any] = {
    "vocab": 17,
    "context": 8,
    "width": 8,
    "streams": 3,
    "sites": ["attention", "mlp", "attention"],
    "heads": 2,
    "hidden": 5,
    "residual": "mhc",
    "coefficients": "dynamic",
    "mixer": "matrix",
    "readout": "gate",
}

CASES: dict[str, dict[str, Any]] = {
    "residual": {"residual": "residual", "streams": 1, "coefficients": "static", "readout": "sum"},
    "hc": {"residual": "hc"},
    "hc-static": {"residual": "hc", "coefficients": "static", "readout": "linear"},
    "mhc-logits": {"mixer": "logits", "recipe": "deepseek-v4", "entry": "free"},
    "mhc-logits-static": {
        "mixer": "logits",
        "recipe": "megatron-dev",
        "coefficients": "static",
        "readout": "linear",
        "entry": "free",
    },
    "mhc-matrix": {},
    "ihc": {"residual": "ihc"},
    "ihc-static": {"residual": "ihc", "coefficients": "static", "readout": "sum"},
    "gated": {"residual": "gated", "readout": "linear", "entry": "free"},
    "mean-gated": {"residual": "mean-gated", "entry": "free"},
    "norm-gated": {"residual": "norm-gated"},
    "norm-gated-capped": {"residual": "norm-gated", "norm_gate": {"eps": 0.1, "cap": 0.9}, "readout": "mean"},
    "looped": {"mixer": "logits", "recipe": "deepseek-v4", "loops": 2, "sites": ["mlp", "attention"]},
    "converted-ihc": {"residual": "ihc", "gauge": True, "entry": "free"},
    "converted-gated": {"residual": "gated", "gauge": True, "entry": "free", "readout": "linear"},
    "converted-norm-gated": {"residual": "norm-gated", "gauge": True, "entry": "free"},
    "converted-static": {"residual": "gated", "gauge": True, "entry": "free", "coefficients": "static"},
}


def config(**changes: Any) -> ModelConfig:
    """The base configuration with changes."""
    return ModelConfig.from_json({**BASE, **changes})


def network(case: str | None = None, *, seed: int = 0, **changes: Any) -> ByteLM:
    """A float64 network with every tensor random: nothing hides at an initial value."""
    model = ByteLM(config(**{**(CASES[case] if case else {}), **changes})).to_precision("float64").eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name.endswith("norm.weight"):
                drawn = 1 + 0.3 * drawn
            elif name.endswith(("gauge.read", "gauge.write", "gauge.metric", "mixer.matrix")):
                drawn = torch.eye(len(tensor), dtype=torch.float64) + 0.4 * drawn
                drawn = drawn.triu() if name.endswith("metric") else drawn
            elif name.endswith("weight"):
                drawn = drawn * tensor.shape[-1] ** -0.5
            tensor.copy_(drawn)
    return model


def tokens(model: ByteLM, *, batch: int = 2, length: int = 6, seed: int = 0) -> torch.Tensor:
    """Random tokens (batch, length)."""
    return torch.randint(model.config.vocab, (batch, length), generator=torch.Generator().manual_seed(seed))
