"""The per-token triangular form: the statement about mixers that depend on the state which is exact.

Along the trajectory of one token, ``A_l = A_l(X_l)``.  Forward QR, in float64,

    A_l Q_l = Q_{l+1} R_l,   Q orthogonal, R_l upper triangular with diag(R_l) >= 0,   Q_0 = [1 / sqrt(n), ...]

needs nothing but the sites behind it, so a network can do it while it runs.  In ``Y_l = Q_l^T X_l`` the site reads

    z = W (Q_l (x) I) vec(Y_l) / sqrt(||Y_l||_F^2 / (nd) + eps) * scale + base
    p, r, A from z as before;   Y_{l+1} = R_l Y_l + (Q_{l+1}^T r) F_l(p Q_l Y_l)

with ``Y_0 = Q_0^T X_0``, and the head reads ``c(Y_L) Q_L Y_L``.  The metric T_l is the identity, Q being orthogonal;
singular A need nothing special.  Every token has its own Q_l, and branches, attention included, see ``p X`` alone:
nothing of one token's basis reaches another.  Diagonal gates for the token would be diag(R_l) and drop the rest.
X is never formed, nor anything kept of the source's own states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from streamgauge.kernels import reference
from streamgauge.simulate.attach import BRANCHES, streams_module
from streamgauge.simulate.hosted.models import shared_copy
from streamgauge.theory.errors import InputError

Seen = Callable[[int, Tensor, Tensor, Tensor, Tensor], None]
"""Called at every site with its number, A, Q_l, Q_{l+1} and R, all (B, T, n, n) in float64."""


class Frames:
    """Q_l of every token, (B, T, n, n), at the site that is running."""

    def __init__(self, seen: Seen | None = None) -> None:
        self.q = torch.empty(0)
        self._seen = seen

    def enter(self, x: Tensor) -> Tensor:
        """``Y_0 = Q_0^T X_0`` of streams (B, T, n, d)."""
        self.q = first_frame(x.shape[-2]).to(x.device).expand(*x.shape[:-2], -1, -1)
        return (self.q.mT @ x.double()).to(x.dtype)

    def step(self, site: int, mixer: Tensor) -> Tensor:
        """R_l of the mixers A_l (B, T, n, n); Q_{l+1} takes the place of Q_l."""
        before = self.q
        self.q, r = triangular_step(mixer, before)
        if self._seen is not None:
            self._seen(site, mixer, before, self.q, r)
        return r


def first_frame(n: int) -> Tensor:
    """An orthogonal (n, n) with first column 1 / sqrt(n): the direction that copied streams have, and A keeps."""
    start = torch.eye(n, dtype=torch.float64)
    start[:, 0] = 1
    return triangular_step(start, torch.eye(n, dtype=torch.float64))[0]


def triangular_step(mixer: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
    """``A Q = Q' R``: (Q', R) by Householder QR, signs such that diag(R) >= 0; any A, singular ones included."""
    q, r = torch.linalg.qr(mixer @ frame)
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(r.dtype)
    return q * sign[..., None, :], r * sign[..., :, None]


def turned(weight: Tensor, frame: Tensor, y: Tensor) -> Tensor:
    """``W (Q (x) I) vec(Y)``: weight (m, n, d), frames (B, T, n, n), states (B, T, n, d) to (B, T, m)."""
    m, n, d = weight.shape
    parts = (y @ weight.reshape(m * n, d).T).view(*y.shape[:-1], m, n)  # (B, T, i, m, s): row i of Y on stream s of W
    return torch.einsum("btims,btsi->btm", parts, frame)


class TriangularConnection(nn.Module):
    """Site l on Y: (Q_{l+1}^T r, R_l^T, p Q_l Y_l), as transformers' layers ask for it, of the source's tensors."""

    def __init__(self, source: Any, site: int, frames: Frames) -> None:
        super().__init__()
        self.source, self.site, self.frames = source, site, frames

    def forward(self, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Streams Y_l (B, T, n, d)."""
        source, frame, n = self.source, self.frames.q, streams.shape[-2]
        fn, base, scale = (tensor.double() for tensor in (source.fn, source.base, source.scale))
        z = _normed(fn, streams, frame, source.input_norm.eps)
        z = z * scale.repeat_interleave(torch.tensor([n, n, n * n], device=scale.device)) + base
        p = torch.sigmoid(z[..., :n]) + source.hc_eps
        r = 2 * torch.sigmoid(z[..., n : 2 * n])
        s = reference.sinkhorn(
            z[..., 2 * n :].unflatten(-1, (n, n)),
            order=("rows", "columns"),
            start="softmax",
            start_eps=source.hc_eps,
            eps=source.hc_eps,
            eps_mode="add",
            iterations=source.hc_sinkhorn_iters,
        )
        mixer = self.frames.step(self.site, s.mT)
        write = against(self.frames.q, r)
        return write, mixer.mT, reference.read(streams, along(p, frame))


class TriangularHead(nn.Module):
    """``c(Y) Q_L Y``: (B, T, n, d) to (B, T, d); c of the source's head, or 1/n where that is a mean."""

    def __init__(self, source: Any, frames: Frames) -> None:
        super().__init__()
        self.source, self.frames = source, frames

    def forward(self, streams: Tensor) -> Tensor:
        """Streams Y_L (B, T, n, d)."""
        source, frame, n = self.source, self.frames.q, streams.shape[-2]
        if not hasattr(source, "hc_fn"):
            c = torch.full(streams.shape[:-1], 1 / n, dtype=torch.float64, device=streams.device)
        else:
            z = _normed(source.hc_fn.double(), streams, frame, source.input_norm.eps)
            c = torch.sigmoid(z * source.hc_scale.double() + source.hc_base.double()) + source.eps
        return reference.read(streams, along(c, frame))


def along(p: Tensor, frame: Tensor) -> Tensor:
    """``p Q``: a read (..., n) for the turned streams."""
    return (p[..., None, :] @ frame).squeeze(-2)


def against(frame: Tensor, r: Tensor) -> Tensor:
    """``Q^T r``: a write (..., n) for the turned streams."""
    return (frame.mT @ r[..., None]).squeeze(-1)


def triangular_twin(model: Any, seen: Seen | None = None) -> Any:
    """A model like ``model`` whose streams run in the per-token triangular form; all its tensors are shared.

    To be called without a cache.  ``seen`` is told of every site as it runs.  **Raises** :class:`InputError` for a
    model without hyper-connections that mix, or whose tensors are not in memory.
    """
    made = shared_copy(model)
    streams, frames = streams_module(made), Frames(seen)
    for index, layer in enumerate(streams.layers):
        for part, name in enumerate(BRANCHES):
            source = getattr(layer, name)
            place = f"layers.{index}.{name}"
            if not hasattr(source, "hc_sinkhorn_iters"):
                raise InputError(f"pointwise: {place} is a {type(source).__name__}, expected the source's own mixer")
            if source.fn.is_meta:
                raise InputError(f"pointwise: {place} is offloaded, expected its tensors in memory")
            setattr(layer, name, TriangularConnection(source, 2 * index + part, frames))
    streams.hc_head = TriangularHead(streams.hc_head, frames)

    def enter(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (frames.enter(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": frames.enter(kwargs["hidden_states"])}

    streams.layers[0].register_forward_pre_hook(enter, with_kwargs=True)
    return made.eval()


def _normed(weight: Tensor, y: Tensor, frame: Tensor, eps: float) -> Tensor:
    """``W vec(X) / sqrt(||X||^2 / (nd) + eps)`` of X = Q Y, by Y: the norm is the same."""
    n, d = y.shape[-2:]
    wide = y.double()
    rms = (wide.square().mean((-2, -1)) + eps).sqrt()
    return turned(weight.view(-1, n, d), frame, wide) / rms[..., None]
