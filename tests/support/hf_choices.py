"""The discrete choices that a transformers model makes in a forward pass: experts, and entries to attend to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hyper_connection_reference import marked
from torch import Tensor


def forward_with_choices(model: Any, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Its output (B, T, .) and, by module name, what top-k routers and indexers chose, (B, T, candidates) of bool."""
    chosen: dict[str, Tensor] = {}

    def watch(name: str) -> Any:
        def hook(module: Any, given: Any, out: Any) -> None:
            # a router gives (logits, weights, indices), an indexer the indices alone
            chosen[name] = (out[2] if isinstance(out, tuple) else out).unflatten(0, (len(tokens), -1)).flatten(1, -2)

        return hook

    kinds = ("TopKRouter", "TopkRouter", "Indexer")
    watched = [(name, module) for name, module in model.named_modules() if type(module).__name__.endswith(kinds)]
    handles = [module.register_forward_hook(watch(name)) for name, module in watched]
    try:
        with torch.no_grad():
            out = model(tokens)
    finally:
        for handle in handles:
            handle.remove()
    found: Tensor = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return found, chosen


def flips(chosen: Mapping[str, Tensor], reference: Mapping[str, Tensor]) -> int:
    """At how many places, a token in a module, the set ``chosen`` (indices) is not the reference's (marks)."""
    if chosen.keys() != reference.keys():
        raise ValueError(f"choices of {sorted(chosen)} and of {sorted(reference)}, expected the same modules")
    return sum(
        int((marked(found, reference[name].shape[-1]) != reference[name]).any(-1).sum())
        for name, found in chosen.items()
    )
