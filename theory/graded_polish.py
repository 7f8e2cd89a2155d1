"""Newton steps on ``A_l P_l = P_{l+1} D_l``: they remove the rounding that a chain with deaths amplifies.

Rounding grows along a chain, and a death makes it visible: the image of a dying column is zero only up to what has
grown.  With ``N_l = P_{l+1}^{-1} (A_l P_l - P_{l+1} D_l)`` and P_l replaced by ``P_l (I + X_l)`` the first-order
equations are one scalar recurrence a pair i != j,

    g_i(l) x_ij(l) - g_j(l) x_ij(l+1) = - N_ij(l),

with one unknown more than equations: its smallest solution is taken, damped so that a pair which cannot be mended
stays as it is.  The diagonal of N corrects the gates that are not zero.  Cost O(L n^3).
"""

from __future__ import annotations

import numpy as np

from streamgauge.theory.exact import Floats

ENOUGH = 2.0**-49
"""A residual below this, relative to the largest map, is round-off."""
STEPS = 5
DAMPING = 1e-6


def polish(maps: Floats, gauge: Floats, gates: Floats, fixed: int) -> None:
    """Improve gauge (L+1, n, n) and gates (L, n) in place, except the first ``fixed`` columns, as long as it helps."""
    size = max(float(np.abs(maps).max(initial=0.0)), 1e-300)
    gap = _gap(maps, gauge, gates)
    before = np.abs(gap).max(initial=0.0)
    for _ in range(STEPS):
        if not ENOUGH * size < before < np.inf:
            return
        try:
            gap = np.linalg.solve(gauge[1:], gap)
        except np.linalg.LinAlgError:
            return
        change = np.where(gates > 0, np.diagonal(gap, axis1=-2, axis2=-1), 0.0)
        x = _smallest(gates, gap)
        x[:, :, :fixed], change[:, :fixed] = 0.0, 0.0
        better, gates_better = gauge + gauge @ x, gates + change
        gap = _gap(maps, better, gates_better)
        after = np.abs(gap).max()
        if not (after < before and (gates_better[gates > 0] > 0).all()):
            return
        gauge[...], gates[...], before = better, gates_better, after


def _gap(maps: Floats, gauge: Floats, gates: Floats) -> Floats:
    return maps @ gauge[:-1] - gauge[1:] * gates[:, None, :]


def _smallest(gates: Floats, gap: Floats) -> Floats:
    """x (L+1, n, n) of smallest norm with ``g_i x_ij(l) - g_j x_ij(l+1) = -gap_ij(l)``, damped; zero on the diagonal.

    x = M^T y with the tridiagonal (M M^T + damping^2) y = -gap, all pairs at once.
    """
    sites, n = gates.shape
    own, next_ = np.broadcast_to(gates[:, :, None], gap.shape), np.broadcast_to(gates[:, None, :], gap.shape)
    diagonal = own * own + next_ * next_ + DAMPING**2
    beside = -next_[:-1] * own[1:]
    y = -gap
    for l in range(1, sites):
        ratio = beside[l - 1] / diagonal[l - 1]
        diagonal[l] -= ratio * beside[l - 1]
        y[l] -= ratio * y[l - 1]
    y[-1] /= diagonal[-1]
    for l in range(sites - 2, -1, -1):
        y[l] = (y[l] - beside[l] * y[l + 1]) / diagonal[l]
    x = np.zeros((sites + 1, n, n))
    x[:-1] += own * y
    x[1:] -= next_ * y
    x[:, np.arange(n), np.arange(n)] = 0.0
    return x
