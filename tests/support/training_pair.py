"""Trains one tiny network on the reference and on the interpreted kernels, and prints both loss curves as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch

from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.simulate.train import Plan, train

STEPS = 200
TEXT = b"the streams mix, the streams part; " * 8


def losses(backend: str, residual: str) -> list[float]:
    config = ModelConfig(
        context=4, width=8, streams=3, sites=("mlp",), heads=2, hidden=8, residual=residual,
        coefficients="dynamic", mixer="logits", recipe="deepseek-v4", readout="linear",
    )  # fmt: skip
    model = ByteLM(config)
    initialise(model, 0)
    plan = Plan(steps=STEPS, batch=2, lr=1e-2, coefficient_lr=1e-2, warmup=20, save_every=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        return list(train(model, TEXT, plan, Path(folder), backend=backend).losses)


if __name__ == "__main__":
    torch.set_num_threads(1)
    residual = sys.argv[1]
    print(json.dumps({backend: losses(backend, residual) for backend in ("reference", "triton")}))
