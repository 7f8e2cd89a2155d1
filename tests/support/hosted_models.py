"""A tiny DeepSeek-V4: bytes as tokens, mixers that depend on the state, routers of both kinds; and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import moving_mixers
import torch

import streamgauge as sg

CONTEXT = 32
ROUTED = ("hash_moe", "moe", "moe", "moe")


def moving(seed: int = 0, **changed: Any) -> Any:
    """The model; its mixers move from token to token."""
    options: dict[str, Any] = {"vocab_size": 256, "mlp_layer_types": list(ROUTED), "max_position_embeddings": 128}
    return moving_mixers.moving("deepseek_v4", 2.0, **{"seed": seed, "gain": 6, **options, **changed})


def files(folder: Path) -> Path:
    """``folder`` with "source", its sidecar "out" at the biases, "full", and a text "text.txt" of 40 windows."""
    moving().save_pretrained(folder / "source")
    sg.sidecar(folder / "source", folder / "out", mixers="bias")
    sg.sidecar(folder / "source", folder / "full", mixers="bias", full=True)
    words = torch.randint(32, 127, (40 * CONTEXT + 5,), generator=torch.Generator().manual_seed(7))
    (folder / "text.txt").write_bytes(bytes(words.tolist()))
    return folder
