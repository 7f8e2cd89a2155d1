"""Newton steps on ``A_l P_l = P_{l+1} D_l``: they remove the rounding that a chain with deaths amplifies.

Rounding grows along a chain, and a death makes it visible: the image of a dying column is zero only up to what has
grown.  With ``N_l = P_{l+1}^{-1} (A_l P_l - P_{l+1} D_l)`` and P_l replaced by ``P_l (I + X_l)`` the first-order
equations are one scalar recurrence a pair i != j,

    g_i(l) x_ij(l) + N_ij(l) = g_j(l) x_ij(l+1),

solved (``recurrence``) from the end that fixes it: where j dies and i lives on, or where i is born and j lives
already (the smaller discrepancy where both do); a free one is zero where ``prod g_j / g_i`` is smallest.  The
diagonal of N corrects the gates that are not zero.  Cost O(L n^3).
"""

from __future__ import annotations

import numpy as np

from streamgauge.theory.exact import Floats
from streamgauge.theory.recurrence import solved, weakest_level

ENOUGH = 2.0**-49
"""A residual below this, relative to the largest map, is round-off."""
STEPS = 5


def polish(maps: Floats, gauge: Floats, gates: Floats, fixed: int) -> None:
    """Improve gauge (L+1, n, n) and gates (L, n) in place, except the first ``fixed`` columns, while it helps."""
    size = max(float(np.abs(maps).max(initial=0.0)), 1e-300)
    gap: Floats = _gap(maps, gauge, gates)
    before = np.abs(gap).max(initial=0.0)
    for _ in range(STEPS):
        if not ENOUGH * size < before < np.inf:
            return
        try:
            gap = np.asarray(np.linalg.solve(gauge[1:], gap), dtype=np.float64)
        except np.linalg.LinAlgError:
            return
        change = np.where(gates > 0, np.diagonal(gap, axis1=-2, axis2=-1), 0.0)
        change[:, :fixed] = 0.0
        x = _correction(gates, gap, fixed)
        better, gates_better = gauge + gauge @ x, gates + change
        gap = _gap(maps, better, gates_better)
        after = np.abs(gap).max()
        if not (after < before and (gates_better[gates > 0] > 0).all()):
            return
        gauge[...], gates[...], before = better, gates_better, after


def _gap(maps: Floats, gauge: Floats, gates: Floats) -> Floats:
    return maps @ gauge[:-1] - gauge[1:] * gates[:, None, :]


def _correction(gates: Floats, gap: Floats, fixed: int) -> Floats:
    """x (L+1, n, n) with ``g_i x_ij(l) + gap_ij(l) = g_j x_ij(l+1)``; zero on the diagonal and in fixed columns."""
    sites, n = gates.shape
    x = np.zeros((sites + 1, n, n))
    lists = gates.T.tolist()
    for j in range(fixed, n):
        for i in range(n):
            if i != j:
                x[:, i, j] = _pair(lists[i], lists[j], gap[:, i, j].tolist())
    return x


def _pair(other: list[float], own: list[float], forcing: list[float]) -> list[float]:
    """One recurrence, window by window: a window ends where either gate is zero."""
    sites = len(own)
    x = [0.0] * (sites + 1)
    start = 0
    for end in range(sites + 1):
        if end < sites and other[end] != 0 and own[end] != 0:
            continue
        # levels start .. end; before it, own gate alone fixes x(start); after it, the other's alone fixes x(end)
        begun = start > 0 and own[start - 1] != 0
        ended = end < sites and other[end] != 0
        first = forcing[start - 1] / own[start - 1] if begun else 0.0
        last = -forcing[end] / other[end] if ended else 0.0
        window = other[start:end], own[start:end], forcing[start:end]
        if ended:
            found = solved(*window, end - start, last)
            if begun:
                forward = solved(*window, 0, first)
                if abs(forward[-1] - last) * other[end] < abs(found[0] - first) * own[start - 1]:
                    found = forward
        else:
            found = solved(*window, 0 if begun else weakest_level(*window[:2]), first)
        x[start : end + 1] = found
        start = end + 1
    return x
