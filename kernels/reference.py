"""Reference operations on streams, in plain torch: differentiable, any floating dtype, the meaning of the kernels.

Shapes: state ``x`` (..., n, d), stream-major; branch output ``y`` (..., d); reads ``p`` and writes ``r`` (..., n),
broadcast over the leading token axes.  A mixer is always applied as ``A X`` (row i of A makes new stream i).
Arithmetic runs in the wider of the state's and the coefficients' dtype and is rounded once, to the state's dtype.
Bad arguments raise ``ValueError`` with one line.
"""

from __future__ import annotations

import torch
from torch import Tensor

_AXES = {"rows": -1, "columns": -2}


def sinkhorn(
    logits: Tensor,
    *,
    order: tuple[str, str],
    start: str,
    start_eps: float,
    eps: float,
    eps_mode: str,
    iterations: int,
    temperature: float = 1.0,
) -> Tensor:
    """Alternate normalisation of (..., n, n) ``logits``, returned in the logits' own orientation.

    - ``order``: ("rows", "columns") or the reverse; "rows" divides by sums over the last axis.
    - ``start``: "exp": ``exp(logits / temperature)``, shifted by the maximum along ``order[0]`` (the first half-step
      removes the shift up to eps), plus ``start_eps``, then ``iterations`` full sweeps.  "softmax": the softmax along
      ``order[0]`` plus ``start_eps`` stands for the first half-step; the half-step ``order[1]`` and
      ``iterations - 1`` full sweeps follow.
    - ``eps_mode``: "add": divide by (sum + eps); "clamp": by max(sum, eps); "none": by the sum.  Without any eps the
      sweeps run in the log domain, where nothing is lost by underflow.

    Cost: 2 ``iterations`` passes over n^2 numbers (Sinkhorn and Knopp 1967; the DeepSeek-V4 order is "softmax").
    """
    if logits.ndim < 2 or logits.shape[-1] != logits.shape[-2]:
        raise ValueError(f"sinkhorn logits: found shape {tuple(logits.shape)}, expected (..., n, n)")
    if set(order) != {"rows", "columns"} or len(order) != 2:
        raise ValueError(f"sinkhorn order: found {order!r}, expected ('rows', 'columns') or ('columns', 'rows')")
    if eps_mode not in ("add", "clamp", "none"):
        raise ValueError(f"sinkhorn eps_mode: found {eps_mode!r}, expected 'add', 'clamp' or 'none'")
    if iterations < 1:
        raise ValueError(f"sinkhorn iterations: found {iterations}, expected at least 1")
    check_numbers(start_eps, eps, temperature)
    first, second = (_AXES[name] for name in order)

    in_logs = eps_mode == "none" and start_eps == 0

    def half(s: Tensor, axis: int) -> Tensor:
        if in_logs:
            return torch.log_softmax(s, axis)
        total = s.sum(axis, keepdim=True)
        if eps_mode == "add":
            total = total + eps
        elif eps_mode == "clamp":
            total = total.clamp(min=eps)
        return s / total

    scaled = logits / temperature
    if start == "softmax":
        s = torch.log_softmax(scaled, first) if in_logs else torch.softmax(scaled, first) + start_eps
        s = half(s, second)
        remaining = iterations - 1
    elif start == "exp":
        s = scaled if in_logs else torch.exp(scaled - scaled.amax(first, keepdim=True)) + start_eps
        remaining = iterations
    else:
        raise ValueError(f"sinkhorn start: found {start!r}, expected 'exp' or 'softmax'")
    for _ in range(remaining):
        s = half(half(s, first), second)
    return s.exp() if in_logs else s


def coefficients(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    rms_eps: float,
    metric: Tensor | None = None,
) -> Tensor:
    """``scale * (weight vec X) / sqrt(||T X||_F^2 / (n d) + rms_eps) + base``, shape (..., m), weight's dtype.

    ``weight`` (m, n*d) with column s*d + c for stream s, feature c; ``scale`` and ``base`` (m,); ``metric`` T (n, n),
    the identity if None.  The norm is taken of ``T X`` divided by its largest entry, so that states of size 1e21 or
    1e-21 neither overflow nor vanish in float32.  With ``rms_eps`` = 0 the zero state gives nan (0 / 0).
    """
    n, d = x.shape[-2:]
    m = weight.shape[0]
    if weight.shape != (m, n * d):
        raise ValueError(f"coefficients weight: found shape {tuple(weight.shape)}, expected (m, {n * d})")
    for name, given in (("scale", scale), ("base", base)):
        if given.shape != (m,):
            raise ValueError(f"coefficients {name}: found shape {tuple(given.shape)}, expected ({m},)")
    if not rms_eps >= 0:
        raise ValueError(f"coefficients rms_eps: found {rms_eps}, expected at least 0")
    wide = x.to(weight.dtype)
    measured = wide
    if metric is not None:
        if metric.shape != (n, n):
            raise ValueError(f"coefficients metric: found shape {tuple(metric.shape)}, expected ({n}, {n})")
        measured = metric @ wide
    # The quotient does not depend on `unit`, so its gradient through `unit` is zero: it may be detached.
    root = rms_eps**0.5
    unit = measured.detach().abs().amax((-2, -1)).clamp(min=max(root, torch.finfo(weight.dtype).tiny))
    rms = ((measured / unit[..., None, None]).square().mean((-2, -1)) + (root / unit).square()).sqrt()
    projected = wide.flatten(-2) @ weight.mT
    out: Tensor = scale * (projected / unit[..., None]) / rms[..., None] + base
    return out


def read(x: Tensor, p: Tensor) -> Tensor:
    """The branch input ``p X``: (..., d), in the state's dtype."""
    _same_streams("read p", p, x)
    wide = torch.promote_types(x.dtype, p.dtype)
    return (p.to(wide)[..., None, :] @ x.to(wide)).squeeze(-2).to(x.dtype)


def write(
    x: Tensor,
    y: Tensor,
    r: Tensor,
    *,
    mode: str,
    mixer: Tensor | None = None,
    gates: Tensor | None = None,
    eps: float = 0.0,
    cap: float | None = None,
) -> Tensor:
    """The new state ``carry + r y`` (..., n, d), in the state's dtype.

    ``mode``: "full" carries ``mixer @ X`` (mixer (..., n, n)); "diag" ``diag(gates) X`` (gates (..., n)); "norm"
    ``c(gates) diag(gates) X`` with c of :func:`norm_factor`; "identity" ``X``.
    """
    _same_streams("write r", r, x)
    if y.ndim < 1 or y.shape[-1] != x.shape[-1] or not _meet(y.shape[:-1], x.shape[:-2]):
        raise ValueError(f"write y: found shape {tuple(y.shape)}, expected (..., d) with state {tuple(x.shape)}")
    wide = torch.promote_types(x.dtype, r.dtype)
    state = x.to(wide)
    if mode == "full":
        square = (x.shape[-2], x.shape[-2])
        if mixer is None or mixer.shape[-2:] != square or not _meet(mixer.shape[:-2], x.shape[:-2]):
            found = None if mixer is None else tuple(mixer.shape)
            raise ValueError(f"write mixer: found shape {found}, expected (..., {x.shape[-2]}, {x.shape[-2]})")
        # einsum, not matmul: matmul picks its kernel by requires_grad, and the last bit with it (and is slower here).
        carry = torch.einsum("...ij,...jd->...id", mixer.to(wide), state)
    elif mode in ("diag", "norm"):
        if gates is None:
            raise ValueError(f"write gates: found None, expected (..., {x.shape[-2]}) for mode {mode!r}")
        _same_streams("write gates", gates, x)
        factor = norm_factor(gates, eps, cap)[..., None] * gates if mode == "norm" else gates
        carry = factor.to(wide)[..., None] * state
    elif mode == "identity":
        carry = state
    else:
        raise ValueError(f"write mode: found {mode!r}, expected 'full', 'diag', 'norm' or 'identity'")
    return torch.addcmul(carry, r.to(wide)[..., None], y.to(wide)[..., None, :]).to(x.dtype)


def norm_factor(g: Tensor, eps: float = 0.0, cap: float | None = None) -> Tensor:
    """``c(g) = min(cap, sqrt(n) / (||g||_2 + eps))`` over the last axis; ``c(0) = 1`` with gradient 0 by convention.

    c has no limit at g = 0 when eps = 0; the convention keeps it finite where every direction is reset (k = 0).
    """
    if not eps >= 0 or (cap is not None and not cap > 0):
        raise ValueError(f"norm gate: found eps {eps}, cap {cap}; expected eps >= 0 and cap > 0 or None")
    unit = g.detach().abs().amax(-1)
    dead = unit == 0
    unit = torch.where(dead, 1.0, unit)
    # Inner where: the square root must not see 0, or its infinite slope times 0 makes the gradient nan.
    safe = torch.where(dead[..., None], 1.0, g) / unit[..., None]
    factor = g.shape[-1] ** 0.5 / (unit * safe.square().sum(-1).sqrt() + eps)
    if cap is not None:
        factor = factor.clamp(max=cap)
    return torch.where(dead, 1.0, factor)


def check_numbers(start_eps: float, eps: float, temperature: float) -> None:
    """**Raises** ValueError unless a Sinkhorn recipe's numbers are such that it stays finite."""
    for name, value in (("start_eps", start_eps), ("eps", eps)):
        if not 0 <= value < float("inf"):
            raise ValueError(f"sinkhorn {name}: found {value}, expected a number of at least 0")
    if not 0 < temperature < float("inf"):
        raise ValueError(f"sinkhorn temperature: found {temperature}, expected a number above 0")


def _meet(given: torch.Size, tokens: torch.Size) -> bool:
    """Whether the two broadcast."""
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(given), reversed(tokens)))


def _same_streams(where: str, given: Tensor, x: Tensor) -> None:
    fits = x.ndim >= 2 and given.ndim >= 1 and given.shape[-1] == x.shape[-2]
    if not fits or not _meet(given.shape[:-1], x.shape[:-2]):
        raise ValueError(f"{where}: found shape {tuple(given.shape)}, expected (..., n) with state {tuple(x.shape)}")
