"""Branches F: (B, T, d) -> (B, T, d), the whole sequence at once, each with its RMS norm inside.

A branch of a site may be any module of that signature; these two make a transformer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """``weight * x / sqrt(mean(x^2) + eps)``, computed in float32 at least and rounded once."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (scaled * self.weight.to(wide.dtype)).to(x.dtype)


class Attention(nn.Module):
    """Causal multi-head self-attention with rotary positions (Su et al. 2021, arXiv:2104.09864)."""

    angles: Tensor

    def __init__(self, width: int, heads: int, context: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = RMSNorm(width, eps)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        half = width // heads // 2
        rates = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(context, dtype=torch.float64)[:, None] * rates
        self.register_buffer("angles", angles, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        cos, sin = (t.to(x.dtype) for t in (self.angles[:length].cos(), self.angles[:length].sin()))
        mixed = F.scaled_dot_product_attention(_rotate(q, cos, sin), _rotate(k, cos, sin), v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class MLP(nn.Module):
    """SwiGLU: ``down(silu(gate(x)) * up(x))`` without biases (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.norm = RMSNorm(width, eps)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        out: Tensor = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return out


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
