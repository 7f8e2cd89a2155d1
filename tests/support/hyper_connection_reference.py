"""Float64 pieces that the transcriptions of DeepSeek-V4 and GLM-5.3 share: the hyper-connection and the experts.

Written from the documented formulas; nothing of the converter or of transformers is imported.  Shapes: tokens (B, T),
streams X (B, T, n, d), states (B, T, d).  Weights are a state dict, each tensor cast to float64 where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Branch = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Pass:
    """A forward pass in float64.

    ``output``: logits (B, T, V), or the last hidden states (B, T, d) of a model without a language-model head.
    ``choices``: by the name of the module that makes a discrete choice, what it chose, (B, T, candidates) of bool.
    """

    output: Tensor
    choices: Mapping[str, Tensor]


class Weights:
    """A state dict read in float64; :meth:`under` goes into a module by its name."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        self._state, self.prefix = state, prefix

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._state[self.prefix + name].detach()
        return tensor.double() if tensor.is_floating_point() else tensor

    def under(self, name: str) -> Weights:
        return Weights(self._state, f"{self.prefix}{name}.")

    def linear(self, name: str, x: Tensor) -> Tensor:
        """``x W^T`` with the weight of a layer without bias."""
        return x @ self[f"{name}.weight"].T


def rms_norm(x: Tensor, eps: float, gain: Tensor | None = None) -> Tensor:
    """``gain x / sqrt(mean(x^2) + eps)`` over the last axis."""
    out = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return out if gain is None else out * gain


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """``silu(min(gate, limit)) clip(up, -limit, limit)``."""
    return silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def sinkhorn(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Softmax over the last axis, + eps, columns; then rows and columns ``iterations - 1`` times, eps in each sum."""
    s = torch.exp(logits - logits.amax(-1, keepdim=True))
    s = s / s.sum(-1, keepdim=True) + eps
    for half in range(2 * iterations - 1):
        s = s / (s.sum(-1 if half % 2 else -2, keepdim=True) + eps)
    return s


def mixed(x: Tensor, weights: Weights, config: Any, branch: Branch) -> Tensor:
    """One site, ``X' = S^T X + post branch(pre X)``; ``weights``: its fn, base and scale."""
    n = x.shape[-2]
    z = rms_norm(x.flatten(-2), config.rms_norm_eps) @ weights["fn"].T
    z = z * weights["scale"].repeat_interleave(torch.tensor([n, n, n * n])) + weights["base"]
    pre = torch.sigmoid(z[..., :n]) + config.hc_eps
    post = 2 * torch.sigmoid(z[..., n : 2 * n])
    s = sinkhorn(z[..., 2 * n :].unflatten(-1, (n, n)), config.hc_sinkhorn_iters, config.hc_eps)
    y = branch(torch.einsum("btn,btnd->btd", pre, x))
    return torch.einsum("btjk,btjd->btkd", s, x) + torch.einsum("btn,btd->btnd", post, y)


def mlp(x: Tensor, weights: Weights, limit: float) -> Tensor:
    """A gated MLP of gate_proj, up_proj and down_proj."""
    hidden = swiglu(weights.linear("gate_proj", x), weights.linear("up_proj", x), limit)
    return weights.linear("down_proj", hidden)


def routed(x: Tensor, weights: Weights, amounts: Tensor, limit: float) -> Tensor:
    """``sum_e amounts_e expert_e(x)``, all experts evaluated; ``amounts`` (B, T, E), zero where not chosen."""
    gate, up = torch.einsum("eod,btd->bteo", weights["gate_up_proj"], x).chunk(2, -1)
    return torch.einsum("edo,bteo,bte->btd", weights["down_proj"], swiglu(gate, up, limit), amounts)


def shares(scores: Tensor, chosen: Tensor, scaling: float, *, normalised: bool = True) -> Tensor:
    """Amounts (B, T, E) of the experts ``chosen`` (B, T, k); one that is chosen twice counts twice."""
    picked = scores.gather(-1, chosen)
    if normalised:
        picked = picked / (picked.sum(-1, keepdim=True) + 1e-20)
    return torch.zeros_like(scores).scatter_add_(-1, chosen, picked * scaling)


def marked(chosen: Tensor, count: int) -> Tensor:
    """Indices (..., k) as marks (..., count) of bool; negative ones mark nothing."""
    marks = torch.zeros(*chosen.shape[:-1], count + 1, dtype=torch.bool)
    return marks.scatter_(-1, torch.where(chosen < 0, count, chosen.long()), True)[..., :count]
