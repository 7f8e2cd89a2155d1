"""What a normal form costs in floating point: cond(P_l), the sizes of reads and writes, and what no form can avoid.

A lower bound for every diagonal form.  Images ``im Phi(l, k)`` and kernels ``ker Phi(m, l)`` are spanned by columns
of P_l whatever the form: by the bars born at k or before, and by those dead before m.  If two coordinate subspaces
meet only in their common columns, and theta is the smallest angle between what is left of them, unit vectors x = P a,
y = P b with disjoint supports give

    cond(P_l) >= ||x + y|| / ||x - y|| = cot(theta / 2).

Example: A_0 = e1 e1^T, A_1 = [[delta, -1], [0, 0]]: the image is e1, the kernel (1, delta), the bound 2 / delta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm
from streamgauge.theory.spectrum import identity_log10_condition

ILL = 1e4
"""From this condition number on the notes say where it is and whether every form shares it."""


@dataclass(frozen=True)
class Conditioning:
    """Numbers of a form.

    - ``condition``: cond_2(P_l) for l = 0 .. L; ``worst`` the largest, at ``worst_level``.
    - ``intrinsic``: a lower bound for cond_2 at that level in *every* diagonal form (1 where none is known).
    - ``largest_read`` max |p_l P_l|, ``largest_write`` max |P_{l+1}^{-1} r_l|: None where the chain has none.
    - ``gate_range``: smallest non-zero and largest gate (nan if there is none); ``zero_gates``: how many are zero.
    - ``identity_log10``: log10 of the largest condition number of the identity gauge of the same chain, inf where a
      map is singular, nan for rectangular chains.
    """

    condition: tuple[float, ...]
    worst: float
    worst_level: int
    intrinsic: float
    largest_read: float | None
    largest_write: float | None
    gate_range: tuple[float, float]
    zero_gates: int
    identity_log10: float
    notes: tuple[str, ...]


def conditioning(form: NormalForm) -> Conditioning:
    """The report of a form, exact or float.  Cost O(L n^3), and O(L^2 n^2) at the worst level.

    Raises :class:`InputError` where an exact gauge leaves the range of float64 (use the graded form).
    """
    gauge = [_dense(p, f"gauge {l}") for l, p in enumerate(form.gauge)]
    condition = tuple(float(condition_numbers(p)) for p in gauge)
    worst_level = int(np.argmax(condition))
    worst = condition[worst_level]
    intrinsic = intrinsic_bound(form, worst_level)
    gates = [_size(g) for row in form.gates for g in row]
    positive = [g for g in gates if g > 0]
    identity = _identity(form)
    notes = []
    if worst >= ILL:
        shared = (
            f"every diagonal form of this chain has at least {intrinsic:.3g} there"
            if intrinsic > worst / 100
            else f"only {intrinsic:.3g} of it is known to be shared by every diagonal form"
        )
        notes.append(f"ill-conditioned: cond(P_{worst_level}) = {worst:.3g}; {shared}")
    return Conditioning(
        condition,
        worst,
        worst_level,
        intrinsic,
        _largest(form.reads),
        _largest(form.writes),
        (min(positive), max(positive)) if positive else (float("nan"), float("nan")),
        len(gates) - len(positive),
        identity,
        (*form.notes, *notes),
    )


def condition_numbers(matrices: Floats) -> Floats:
    """cond_2 of a stack of matrices, (..., n, n) -> (...): inf where singular or not finite, 1 for n = 0."""
    if not matrices.size:
        return np.ones(matrices.shape[:-2])
    finite = np.isfinite(matrices).all(axis=(-1, -2), keepdims=True)
    sigma = np.linalg.svd(np.where(finite, matrices, 0.0), compute_uv=False)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(sigma[..., -1] > 0, sigma[..., 0] / sigma[..., -1], np.inf)


def intrinsic_bound(form: NormalForm, level: int) -> float:
    """The lower bound of the module for cond_2(P_level) in every diagonal form."""
    p = _dense(form.gauge[level], f"gauge {level}")
    lives = {bar.slot: bar for bar in form.bars if bar.birth <= level <= bar.death}
    births = np.array([lives[slot].birth for slot in form.slots[level]])
    deaths = np.array([lives[slot].death for slot in form.slots[level]])
    bound = 1.0
    for born in sorted(set(births.tolist()))[:-1]:
        for dead in sorted(set(deaths.tolist()))[:-1]:
            image, kernel = births <= born, deaths <= dead
            bound = max(bound, _angle_bound(p[:, image & kernel], p[:, image & ~kernel], p[:, kernel & ~image]))
    return bound


def _angle_bound(common: Floats, first: Floats, second: Floats) -> float:
    """cot(theta / 2) of the smallest angle between two spans, both modulo the common one."""
    if not first.shape[1] or not second.shape[1]:
        return 1.0
    base = np.linalg.qr(common)[0]
    a, b = (np.linalg.qr(x - base @ (base.T @ x))[0] for x in (first, second))
    u, _, v = np.linalg.svd(a.T @ b)
    x, y = a @ u[:, 0], b @ v[0]
    gap = np.linalg.norm(x - y)
    return float(np.linalg.norm(x + y) / gap) if gap > 0 else float("inf")


def _identity(form: NormalForm) -> float:
    if not form.chain.square or form.chain.dims[0] == 0:
        return float("nan")
    if not len(form):
        return 0.0
    mixers = np.array([_dense(a, f"mixer {l}") for l, a in enumerate(form.chain.mixers)])
    return float(identity_log10_condition(mixers).max())


def _dense(matrix: Any, where: str) -> Floats:
    if isinstance(matrix, np.ndarray):
        return matrix
    try:
        return exact.to_floats(matrix)
    except OverflowError:
        raise InputError(
            f"{where}: an entry is beyond float64; expected a gauge in range (the graded form)"
        ) from None


def _size(gate: Any) -> float:
    try:
        return abs(float(gate))
    except OverflowError:  # an exact gate
        return float("inf")


def _largest(parts: tuple[Any, ...] | None) -> float | None:
    if parts is None:
        return None
    return max((float(np.abs(_dense(m, "read or write")).max(initial=0.0)) for m in parts), default=0.0)
