"""Train the DeepSeek-V4 of examples/data/deepseek, from a fixed seed, on one CPU thread (some 7 minutes):

    python -m streamgauge.examples.train_deepseek FOLDER

transformers' own ``deepseek_v4`` with bytes as tokens: 6 layers = 12 sites, n = 4, d = 96, sliding and both kinds of
compressed attention, hash and top-k routing, every hyper-connection coefficient dynamic.  FOLDER gets what
``save_pretrained`` writes, and ``training.json`` (losses, and how far each site's mixer varies over tokens).
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.nn import functional as F

from streamgauge.simulate.data import as_tokens, bigram_loss, heldout_text, random_batch, training_text
from streamgauge.simulate.hosted.calibrate import calibrate
from streamgauge.simulate.hosted.text import text_of
from streamgauge.simulate.train import Plan

CONTEXT = 128
LAYERS = 6
N = 4
SIZES: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 96,
    "hc_mult": N,
    "num_hidden_layers": LAYERS,
    "layer_types": [
        "sliding_attention",
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
    "mlp_layer_types": ["hash_moe"] * 2 + ["moe"] * 4,
    "sliding_window": 32,
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
    "num_attention_heads": 4,
    "head_dim": 32,
    "qk_rope_head_dim": 16,
    "q_lora_rank": 48,
    "o_lora_rank": 32,
    "o_groups": 2,
    "index_topk": 8,
    "index_n_heads": 2,
    "index_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "max_position_embeddings": CONTEXT,
    "num_nextn_predict_layers": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
PLAN = Plan(steps=1500, batch=8, lr=3e-3, coefficient_lr=1e-3, weight_decay=0.1, seed=0)
"""How far the mixers move from token to token hangs on ``coefficient_lr`` and ``SCALE``: see benchmarks/README.md."""
MARGIN = 0.3
"""Nats per byte by which the trained model must beat an add-one bigram model on the held-out text."""
DIAGONAL, SPREAD = 2.0, 0.5
"""Of the mixers' logits at the start: what is added on the diagonal, and the deviation of what is random."""
SCALE = 0.01
"""What multiplies the state's part of every coefficient at the start: alpha of the mHC paper."""


def start(seed: int = 0, scale: float = SCALE) -> Any:
    """The untrained model; ``scale`` multiplies the state's part of every coefficient.

    transformers starts all mixers at the uniform matrix, where the streams stay equal for ever.  Here each has its
    own logits, with more weight on the diagonal.  The first mixer gets no gradient: what it mixes are equal streams.
    """
    from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

    torch.manual_seed(seed)
    model: Any = DeepseekV4ForCausalLM(DeepseekV4Config(**SIZES))
    model.set_experts_implementation("eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_hc.base"):
                parameter.copy_(SPREAD * torch.randn(parameter.shape))
                parameter[2 * N :] += (DIAGONAL * torch.eye(N)).flatten()
            elif name.endswith("hc_head.hc_base"):
                parameter.copy_(SPREAD * torch.randn(parameter.shape))
            elif name.endswith(("_hc.scale", "hc_head.hc_scale")):
                parameter.fill_(scale)
        for name, buffer in model.named_buffers():
            if name.endswith("tid2eid"):
                ranks = torch.rand(len(buffer), model.config.n_routed_experts).argsort(1)
                buffer.copy_(ranks[:, : buffer.shape[1]])
    return model


def train(model: Any, text: bytes, plan: Plan, console: Console | None = None) -> list[float]:
    """Train in place; the loss of every step, in nats per byte."""
    optimizer = torch.optim.AdamW(parameter_groups(model, plan), betas=(0.9, 0.98), eps=1e-9)
    generator, tokens = torch.Generator().manual_seed(plan.seed), as_tokens(text)
    losses: list[float] = []
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    model.train()
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=console is None) as progress:
        task = progress.add_task("training", total=plan.steps, loss=float("nan"))
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * plan.rate(step)
            inputs, targets = random_batch(tokens, CONTEXT, plan.batch, generator)
            out = model(inputs, use_cache=False, output_router_logits=True)
            loss = F.cross_entropy(out.logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss + model.config.router_aux_loss_coef * out.aux_loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
            optimizer.step()
            losses.append(float(loss.detach()))
            progress.update(task, advance=1, loss=losses[-1])
    model.eval()
    return losses


def parameter_groups(model: Any, plan: Plan) -> list[dict[str, Any]]:
    """Weight decay on every matrix, the controllers of the hyper-connections included; none on vectors.

    The hyper-connections have the plan's ``coefficient_lr``.
    """
    kinds: dict[tuple[float, float], list[Any]] = {}
    for name, parameter in model.named_parameters():
        rate = plan.coefficient_lr if "_hc." in name or "hc_head." in name else plan.lr
        decay = plan.weight_decay if parameter.ndim > 1 else 0.0
        kinds.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
        for (rate, decay), parameters in kinds.items()
    ]


@torch.no_grad()
def heldout_loss(model: Any, text: bytes, *, batch: int = 16) -> float:
    """Nats per byte over windows of ``CONTEXT`` bytes: all but the first byte of the text are predicted once."""
    tokens = as_tokens(text)
    whole = (len(tokens) - 1) // CONTEXT * CONTEXT
    groups = list(torch.split(tokens[: whole + 1].unfold(0, CONTEXT + 1, CONTEXT), batch)) if whole else []
    if whole < len(tokens) - 1:
        groups.append(tokens[None, whole:])
    total = 0.0
    for group in groups:
        logits = model(group[:, :-1], use_cache=False).logits.double()
        total += float(F.cross_entropy(logits.flatten(0, 1), group[:, 1:].flatten(), reduction="sum"))
    return total / (len(tokens) - 1)


def main() -> None:
    """Train, save, and say the figures; the model must beat the bigram model by ``MARGIN``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--scale", type=float, default=SCALE, help="of the state's part of coefficients, at the start"
    )
    parser.add_argument("--rate", type=float, default=PLAN.coefficient_lr, help="of the hyper-connections' tensors")
    given = parser.parse_args()
    folder, plan = given.folder, replace(PLAN, coefficient_lr=given.rate)
    if folder.exists():
        raise SystemExit(f"{folder}: exists already, expected a new folder")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    console = Console(stderr=True)

    text, held = training_text(), heldout_text()
    baseline, model = bigram_loss(text, held), start(plan.seed, given.scale)
    console.print(f"{sum(p.numel() for p in model.parameters())} parameters; add-one bigram {baseline:.4f}")
    losses = train(model, text, plan, console)
    model.save_pretrained(folder)
    loss, seen = heldout_loss(model, held), calibrate(model, text_of(text, "training text", model, limit=1 << 16))
    document = {
        "text": "pydoc_data.topics",
        "training_bytes": len(text),
        "plan": asdict(plan),
        "scale": given.scale,
        "bigram_heldout_loss": baseline,
        "heldout_loss": loss,
        "dynamic_share": [round(share, 4) for share in seen.shares],
        "training_loss": [round(x, 4) for x in losses],
    }
    (folder / "training.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    shares = ", ".join(f"{share:.3f}" for share in seen.shares)
    console.print(f"held-out loss {loss:.4f} nats per byte; dynamic share of A by site {shares}")
    if loss > baseline - MARGIN:
        raise SystemExit(f"held-out loss {loss:.4f}, expected at most {baseline - MARGIN:.4f}")


if __name__ == "__main__":
    main()
