"""Tiny models whose mixers depend on the state, what their mixers do on tokens, and texts for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hf_models import GLM, tiny
from torch import Tensor

from streamgauge.simulate.hosted.models import connections
from streamgauge.simulate.hosted.text import Text
from streamgauge.theory.exact import Floats

VISION: dict[str, Any] = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip


def moving(kind: str, scale: float = 0.5, **changed: Any) -> Any:
    """:func:`hf_models.tiny` with mixing scales; 0 leaves the mixers static."""
    model = tiny(kind, **{"gain": 2, **changed})
    with torch.no_grad():
        for module in mixers_of(model):
            module.scale[2] = scale
    return model


def whole_glm(scale: float = 0.5) -> Any:
    """GLM-5.3 with its vision tower and language-model head, 256 tokens."""
    from transformers.models.glm5_next import Glm5NextConfig, Glm5NextForConditionalGeneration

    torch.manual_seed(0)
    config = Glm5NextConfig(text_config={**GLM, "vocab_size": 256}, vision_config=VISION)
    model = Glm5NextForConditionalGeneration(config)
    model.model.language_model.load_state_dict(moving("glm5_next", scale, vocab_size=256).state_dict())
    with torch.no_grad():
        model.lm_head.weight.mul_(6)
    return model.eval()


def mixers_of(model: Any) -> list[Any]:
    """The source's modules, or those of an attached model, in depth order."""
    return connections(model)[:-1]


def windows(rows: int = 6, context: int = 32, vocabulary: int = 64, seed: int = 1) -> Text:
    """Random tokens as a text."""
    generator = torch.Generator().manual_seed(seed)
    return Text(torch.randint(vocabulary, (rows, context), generator=generator), "random", "0" * 64, "bytes")


def text_file(path: Path, size: int = 1280, seed: int = 0) -> Path:
    """Random bytes."""
    path.write_bytes(np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes())
    return path


@contextmanager
def heard(model: Any) -> Iterator[tuple[list[list[Tensor]], list[list[Tensor]]]]:
    """By site, the states (tokens, n, d) and ``comb^T`` (tokens, n, n) of every forward pass inside."""
    modules = mixers_of(model)
    states: list[list[Tensor]] = [[] for _ in modules]
    matrices: list[list[Tensor]] = [[] for _ in modules]

    def listen(site: int) -> Any:
        def hook(module: Any, given: tuple[Tensor, ...], made: tuple[Tensor, ...]) -> None:
            states[site].append(given[0].detach().flatten(0, 1).clone())
            matrices[site].append(made[1].detach().flatten(0, -3).mT.clone())

        return hook

    handles = [module.register_forward_hook(listen(site)) for site, module in enumerate(modules)]
    try:
        yield states, matrices
    finally:
        for handle in handles:
            handle.remove()


def seen(model: Any, text: Text) -> tuple[list[Floats], list[Floats]]:
    """States and A(x) by site in one forward pass over the whole text, float64."""
    with heard(model) as (states, matrices), torch.no_grad():
        model(text.tokens)
    return tuple([torch.cat(part).double().numpy() for part in parts] for parts in (states, matrices))  # type: ignore[return-value]
