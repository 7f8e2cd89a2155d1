"""Singular value decomposition of a long product without forming it: ``A_{L-1} .. A_0 = U diag(s) V^T``.

Two passes of QR and one of Jacobi.  Backwards, ``A_l^T Q_{l+1} = Q_l R`` sorts the directions by how strongly they
survive; forwards from that Q_0, ``A_l Q_l = Q_{l+1} R_l`` gives the product ``Q_L T Q_0^T`` with ``T = D B``: D the
diagonal of products of pivots (kept as logarithms), B unit upper triangular of moderate size.  One-sided Jacobi on
``T^T = B^T D`` has small *relative* error for every singular value, however graded D is (Demmel and Veselic 1992);
the SVD of the multiplied-out product loses every value below u s_1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats

_LOG_RANGE = 600.0  # exp(+-600) and its square root stay normal numbers in float64


@dataclass(frozen=True)
class ProductSVD:
    """``U`` and ``V`` (n, n) orthogonal, ``log_s`` the natural logarithms of the singular values, decreasing."""

    left: Floats
    log_s: Floats
    right: Floats


def product_svd(mixers: Sequence[Floats], n: int) -> ProductSVD:
    """The SVD of ``A_{L-1} .. A_0`` for invertible (n, n) float64 maps.  Cost: O(L n^3) + Jacobi sweeps of O(n^3).

    **Raises** :class:`InputError` where singular values spread over more than float64's range.
    """
    frame = np.eye(n)
    for a in reversed(mixers):
        frame, _ = np.linalg.qr(a.T @ frame)
    first = frame
    logs, unit = np.zeros(n), np.eye(n)
    for a in mixers:
        frame, r = np.linalg.qr(a @ frame)
        pivots = np.abs(np.diag(r))
        grown = logs + np.log(pivots)
        # B' = D'^{-1} R D B, entry (i, j) of D'^{-1} R D: r_ij d_j / (d_i |r_ii|)
        step = np.triu(r) * np.exp(np.triu(logs[None, :] - grown[:, None]))
        unit = step @ unit
        logs = grown
    top = logs.max(initial=0.0) if n else 0.0
    if n and logs.min() - top < -_LOG_RANGE:
        raise InputError(
            f"product of {len(mixers)} mixers: singular values spread over 1e{(top - logs.min()) / np.log(10):.0f}, "
            "beyond float64; expected an exact chain or the graded form"
        )
    rotated, w = _jacobi((np.exp(logs - top)[:, None] * unit).T)
    sizes = np.linalg.norm(rotated, axis=0)
    order = np.argsort(-sizes, kind="stable")
    u = frame @ w[:, order]
    v = first @ (rotated[:, order] / sizes[order])
    return ProductSVD(u, np.log(sizes[order]) + top, v)


def _jacobi(x: Floats, sweeps: int = 40) -> tuple[Floats, Floats]:
    """(X J, J) with orthogonal J and X J of orthogonal columns, to relative accuracy column by column."""
    x, n = x.copy(), x.shape[1]
    j = np.eye(n)
    for _ in range(sweeps):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                a, b = float(np.linalg.norm(x[:, p])), float(np.linalg.norm(x[:, q]))
                cosine = float((x[:, p] / a) @ (x[:, q] / b))
                if abs(cosine) <= 4 * np.finfo(float).eps:
                    continue
                rotated = True
                zeta = (b / a - a / b) / (2 * cosine)
                t = np.copysign(1.0, zeta) / (abs(zeta) + np.hypot(1.0, zeta))
                c = 1 / np.hypot(1.0, t)
                turn = np.array([[c, c * t], [-c * t, c]])
                x[:, [p, q]] = x[:, [p, q]] @ turn
                j[:, [p, q]] = j[:, [p, q]] @ turn
        if not rotated:
            break
    return x, j
