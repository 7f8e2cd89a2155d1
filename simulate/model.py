"""A small byte-level language model: embedding, hyper-connection network, final norm, output matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.simulate.branches import MLP, Attention, RMSNorm
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.network import HyperNetwork, is_coefficient
from streamgauge.theory.errors import InputError


class ByteLM(HyperNetwork):
    """Logits (B, T, vocab) of tokens (B, T), int64, T <= context.  Parameters are made in float32.

    **Raises** :class:`InputError` for tokens of another dtype, shape, length or range.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, [make_branch(config, kind) for kind in config.sites])
        self.embed = nn.Embedding(config.vocab, config.width)
        self.final_norm = RMSNorm(config.width, config.rms_eps)
        self.lm_head = nn.Linear(config.width, config.vocab, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits(self.run(self._embedded(tokens)))

    def logits(self, x: Tensor) -> Tensor:
        """Logits of the readout vectors x (..., d)."""
        out: Tensor = self.lm_head(self.final_norm(x))
        return out

    def streams(self, tokens: Tensor) -> list[Tensor]:
        """``[X_0, .., X_L]``, each (B, T, n, d): what per-site comparisons need."""
        return self.states(self._embedded(tokens))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats per byte, in float32 at least."""
        logits = self(tokens)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return F.cross_entropy(logits.to(wide).flatten(0, -2), targets.flatten())

    def _embedded(self, tokens: Tensor) -> Tensor:
        if tokens.dtype != torch.int64 or tokens.ndim != 2 or not 0 < tokens.shape[1] <= self.config.context:
            found = f"{tokens.dtype} of shape {tuple(tokens.shape)}"
            raise InputError(f"tokens: found {found}, expected int64 (batch, 1 to {self.config.context})")
        if tokens.numel() and (int(tokens.min()) < 0 or int(tokens.max()) >= self.config.vocab):
            found = f"{int(tokens.min())} to {int(tokens.max())}"
            raise InputError(f"tokens: found values {found}, expected 0 to {self.config.vocab - 1}")
        out: Tensor = self.embed(tokens)
        return out


def make_branch(config: ModelConfig, kind: str) -> nn.Module:
    """The branch module of that kind."""
    if kind == "attention":
        return Attention(config.width, config.heads, config.context, config.rms_eps)
    return MLP(config.width, config.hidden, config.rms_eps)


def initialise(model: ByteLM, seed: int, *, diagonal: tuple[float, float] = (1.0, 2.0), spread: float = 1.0) -> None:
    """Draw starting values, all from ``seed``.

    - mixing logits ``u I + spread N(0, 1)`` with u uniform in ``diagonal``; a stored matrix is the recipe-free I;
    - controllers: weight N(0, 1 / (n d)), so that z has unit variance over tokens; reads start near 1 / n, writes
      near post_mult / 2, with unit-variance noise on the base so that the streams differ;
    - branches and embedding: N(0, 0.02)-like, output matrices divided by sqrt(2 L).
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    n, depth = config.streams, max(1, len(config.sites))
    low, high = diagonal

    def normal(shape: torch.Size, std: float) -> Tensor:
        return torch.randn(shape, generator=generator) * std

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            last = name.rsplit(".", 1)[-1]
            if name.endswith("mixer.logits"):
                u = low + (high - low) * torch.rand((), generator=generator)
                parameter.copy_(u * torch.eye(n) + normal(parameter.shape, spread))
            elif name.endswith(("coef.base", "head.base")):
                noise = normal(parameter.shape, 1.0)
                noise[:n] -= math.log(max(n - 1, 1))
                parameter.copy_(noise)
            elif is_coefficient(name) and last == "weight":
                parameter.copy_(normal(parameter.shape, (n * config.width) ** -0.5))
            elif not is_coefficient(name) and parameter.ndim == 2:
                std = parameter.shape[1] ** -0.5 if name != "embed.weight" else 1.0
                if name.endswith((".out.weight", ".down.weight")):
                    std /= math.sqrt(2 * depth)
                parameter.copy_(normal(parameter.shape, std))
