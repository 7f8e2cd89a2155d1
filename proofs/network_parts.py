"""Parts of networks for the end-to-end statements: what a basis change absorbs, and what it does not.

Absorbed: branches with biases, dropout with a mask of its own seed.  Not absorbed, each a small change of the network
in :mod:`streamgauge.simulate.network`: gates that depend on the token under a norm gate, a norm of every single
stream before the read, a basis that differs from token to token, a stack applied twice with the same weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.kernels.backends import operations
from streamgauge.simulate.branches import RMSNorm
from streamgauge.simulate.network import HyperNetwork, Site


class BiasedMLP(nn.Module):
    """SwiGLU with a bias on gate, up and down projection, after an RMS norm: no part of it is homogeneous."""

    def __init__(self, width: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.norm = RMSNorm(width, eps)
        self.gate = nn.Linear(width, hidden)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        out: Tensor = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return out


class Dropped(nn.Module):
    """A branch with dropout on its output; the mask comes from ``seed``, so two networks can share it."""

    def __init__(self, branch: nn.Module, rate: float, seed: int) -> None:
        super().__init__()
        self.branch, self.rate, self.seed = branch, rate, seed

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.branch(x)
        drawn = torch.rand(y.shape, generator=torch.Generator().manual_seed(self.seed))
        return y * (drawn >= self.rate).to(y) / (1 - self.rate)


class TokenGated(Site):
    """A gated site whose gates depend on the token: ``g(X) = g * sigmoid(1 + 3 direction . X / ||X||_F)``.

    The factor sees the state divided by its norm, so it is the same for X and for any multiple of X: a gated network
    and its norm-gated rewriting get the same g(X) as long as their states are proportional.
    """

    direction: Tensor

    @classmethod
    def of(cls, site: Site, direction: Tensor) -> TokenGated:
        """The same site with token-dependent gates; ``direction`` (n, n, d), one (n, d) pattern per gate."""
        made = cls.__new__(cls)
        made.__dict__ = {**site.__dict__, "_buffers": {**site._buffers}}
        made.register_buffer("direction", direction)
        return made

    def gates_of(self, x: Tensor) -> Tensor:
        """g(X), (..., n)."""
        gates = x.new_ones(self.n) if self.gates is None else self.gates
        size = x.flatten(-2).norm(dim=-1)[..., None]
        pattern = torch.einsum("isd,...sd->...i", self.direction.to(x), x) / size
        return gates * torch.sigmoid(1 + 3 * pattern)

    def forward(self, x: Tensor) -> Tensor:
        p, r = self.reads_writes(x)
        y = self.branch(operations().read(x, p))
        mode = "norm" if self.rule == "norm-gated" else "diag"
        eps, cap = self.norm_gate.eps, self.norm_gate.cap
        out: Tensor = operations().write(x, y, r, mode=mode, gates=self.gates_of(x), eps=eps, cap=cap)
        return out


class StreamNormed(Site):
    """A site that reads from streams which were each divided by their own RMS."""

    @classmethod
    def of(cls, site: Site) -> StreamNormed:
        """The same site with a norm of every stream before the read."""
        made = cls.__new__(cls)
        made.__dict__ = dict(site.__dict__)
        return made

    def forward(self, x: Tensor) -> Tensor:
        p, r = self.reads_writes(x)
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-12)
        y = self.branch(operations().read(normed, p))
        if self.gates is None and self.mixer is None:
            out: Tensor = operations().write(x, y, r, mode="identity")
            return out
        mixed: Tensor = operations().write(x, y, r, mode="full", mixer=self.carry())
        return mixed


class TokenBasis(HyperNetwork):
    """A network whose odd tokens enter in another basis: the first two streams exchanged."""

    def enter(self, x: Tensor) -> Tensor:
        state = super().enter(x)
        order = [1, 0, *range(2, state.shape[-2])]
        odd = (torch.arange(x.shape[-2], device=x.device) % 2 == 1)[:, None, None]
        return torch.where(odd, state[..., order, :], state)


class Twice(HyperNetwork):
    """A network whose stack is applied twice with the same weights."""

    def run(self, x: Tensor) -> Tensor:
        state = self.enter(x)
        for _ in range(2):
            for site in self.sites:
                state = site(state)
        return self.leave(state)
