"""Gates by the token: a mixer that depends on the state, seen in a constant gauge, without its off-diagonal part.

    z = scale * W' vec(Y) / rms(T_l Y) + base,   A_l(x) = sinkhorn(z_mix),   g(x) = diag(P_{l+1}^{-1} A_l(x) P_l)

P is a form of the chain of means, so that the mean of the off-diagonal part is zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from streamgauge.kernels.backends import operations
from streamgauge.simulate.network import mixer_from_logits
from streamgauge.theory.sinkhorn import Recipe


class MixingController(nn.Module):
    """z (..., 2n + n^2) for read, write and mixer: ``scale_g (weight vec Y) / rms(T Y) + base``, three scales."""

    def __init__(self, n: int, width: int, rms_eps: float) -> None:
        super().__init__()
        self.sizes, self.rms_eps = (n, n, n * n), rms_eps
        rows = sum(self.sizes)
        self.weight = nn.Parameter(torch.zeros(rows, n * width))
        self.scale = nn.Parameter(torch.ones(len(self.sizes)))
        self.base = nn.Parameter(torch.zeros(rows))

    def forward(self, y: Tensor, metric: Tensor) -> Tensor:
        scale = torch.cat([self.scale[i].expand(size) for i, size in enumerate(self.sizes)])
        z: Tensor = operations().coefficients(y, self.weight, scale, self.base, rms_eps=self.rms_eps, metric=metric)
        return z


def token_gates(logits: Tensor, recipe: Recipe, read: Tensor, write: Tensor) -> Tensor:
    """``diag(write A read)``, shape (..., n), for the mixer's logits (..., n^2) and P_l = ``read`` and
    P_{l+1}^{-1} = ``write``, both (n, n)."""
    mixer = mixer_from_logits(logits.view(*logits.shape[:-1], *read.shape), recipe)
    return ((write @ mixer) * read.mT).sum(-1)
