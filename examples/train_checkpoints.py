"""Make the two checkpoints in examples/data, from fixed seeds, on one CPU thread (some 6 and 3 minutes):

    python -m streamgauge.examples.train_checkpoints RUNS static      # mHC: static mixers as logits, dynamic the rest
    python -m streamgauge.examples.train_checkpoints RUNS deficient   # from it: mixers as matrices, some singular

RUNS is a folder for the runs; add ``--resume`` to continue one.  The result is RUNS/NAME/checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from streamgauge.simulate import checkpoint
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.data import bigram_loss, heldout_loss, heldout_text, training_text
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.simulate.network import precompute_mixers
from streamgauge.simulate.train import Plan, train

STATIC = ModelConfig(
    context=128,
    width=80,
    streams=4,
    sites=("attention", "mlp") * 6,
    heads=4,
    hidden=224,
    residual="mhc",
    coefficients="dynamic",
    mixer="logits",
    recipe="deepseek-v4",
    entry="copy",
    readout="gate",
)

SINGULAR: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((2, 2, 0, 0), (2, 2, 0, 0), (0, 0, 3, 1), (0, 0, 1, 3)),  # J_2 beside an invertible block: rank 3
    5: ((2, 2, 0, 0), (2, 2, 0, 0), (0, 0, 2, 2), (0, 0, 2, 2)),  # two J_2: rank 2
    7: ((2, 0, 0, 2), (2, 2, 0, 0), (0, 2, 2, 0), (0, 0, 2, 2)),  # (I + cycle) / 2: rank 3
    10: ((0, 0, 2, 2), (4, 0, 0, 0), (0, 4, 0, 0), (0, 0, 2, 2)),  # a permuted J_2: rank 3
}
"""Site to 4 A_l: doubly stochastic, exact in float32, singular over the rationals.

What site 7 forgets is not close to what site 5 leaves.  With J_2 on streams (0, 2) and (1, 3) at site 5 it would be,
and every diagonal form of the chain would be ill-conditioned there (cond 1000 instead of 6).
"""
MARGIN = 0.3
"""Nats per byte by which a trained model must beat an add-one bigram model on the held-out text."""


def static_start(seed: int = 0) -> ByteLM:
    """The untrained mHC network; logits far enough from the identity that the chain mixes over its depth."""
    model = ByteLM(STATIC)
    initialise(model, seed, diagonal=(2.0, 3.0))
    return model


def deficient_start(trained: ByteLM) -> ByteLM:
    """The trained network with its mixers as matrices, those of ``SINGULAR`` replaced."""
    model = precompute_mixers(trained)
    with torch.no_grad():
        for l, quarters in SINGULAR.items():
            model.get_parameter(f"sites.{l}.mixer.matrix").copy_(torch.tensor(quarters) / 4)
    return model


def describe(model: ByteLM) -> str:
    """Singular values and the condition of the running product, in a few lines."""
    lines, product, worst = [], np.eye(model.config.streams), 1.0
    for l, carry in enumerate(model.carries()):
        a = carry.detach().double().numpy()
        product = a @ product
        worst = max(worst, float(np.linalg.cond(product)))
        sigma = ", ".join(f"{s:.3f}" for s in np.linalg.svd(a, compute_uv=False))
        lines.append(f"  site {l:2d}: singular values {sigma}")
    return "\n".join([*lines, f"  identity-gauge condition {worst:.3g}"])


def main() -> None:
    """Train the checkpoint that the command line names; it must beat the bigram model by ``MARGIN``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("name", choices=("static", "deficient"))
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    console = Console(stderr=True)

    text, held = training_text(), heldout_text()
    if given.name == "static":
        model, plan = static_start(), Plan(steps=1500, seed=0)
    else:
        model = deficient_start(checkpoint.load(given.runs / "static" / "checkpoint"))
        plan = Plan(steps=800, lr=1.5e-3, coefficient_lr=1.5e-3, seed=1, freeze=("mixer",))
    baseline = bigram_loss(text, held)
    metadata = {"text": "pydoc_data.topics", "training_bytes": len(text), "bigram_heldout_loss": baseline}
    console.print(f"{sum(p.numel() for p in model.parameters())} parameters; add-one bigram {baseline:.4f}")
    run = train(model, text, plan, given.runs / given.name, metadata=metadata, resume=given.resume, console=console)
    loss = heldout_loss(model, held)
    console.print(f"step {run.step}: held-out loss {loss:.4f} nats per byte\n{describe(model)}")
    if not run.interrupted and loss > baseline - MARGIN:
        raise SystemExit(f"held-out loss {loss:.4f}, expected at most {baseline - MARGIN:.4f}")


if __name__ == "__main__":
    main()
