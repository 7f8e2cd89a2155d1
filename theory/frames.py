"""Orthonormal frames along a chain, many chains at once: ``A_l Q_l = Q_{l+1} R_l`` with R_l upper triangular.

This is the full-rank half of the graded form (the half with deaths is ``graded_slots``).  The forward frame starts
from the backward frame, so its columns are ordered by how strongly they survive; then a unit upper triangular C_l
with

    R_l C_l = C_{l+1} diag(R_l)

makes ``Q_l C_l`` covariant: each of its columns is mapped to a multiple of the same column one level later
(covariant Lyapunov vectors; Ginelli et al., Phys. Rev. Lett. 99 (2007)).

The entry c_ij (i < j) follows the recurrence of ``recurrence``, and is pinned to zero at its weakest level.

Shapes: (B, L, m, m) for maps, (B, L+1, m, m) for frames.  Cost O(B L m^3).
"""

from __future__ import annotations

import numpy as np

from streamgauge.theory.exact import Floats
from streamgauge.theory.recurrence import solved

MANY = 12
"""From this many matrices on, vectorised Gram-Schmidt beats one LAPACK call a matrix."""


def orthonormal(x: Floats) -> tuple[Floats, Floats]:
    """QR of every matrix of the stack (B, m, m), diagonal of R not negative."""
    if x.shape[0] < MANY or x.shape[-1] == 0:
        if x.shape[-1] == 0:
            return x.copy(), x.copy()
        q, r = np.linalg.qr(x)
        sign = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
        return q * sign[:, None, :], r * sign[:, :, None]
    return _gram_schmidt(x)


def _gram_schmidt(x: Floats) -> tuple[Floats, Floats]:
    """Gram-Schmidt, twice, on contiguous vectors over the stack; a zero column gets a unit column of no meaning."""
    size = x.shape[-1]
    columns = np.ascontiguousarray(x.transpose(2, 1, 0))
    r = np.zeros_like(columns)
    for j in range(size):
        v = columns[j]
        for _ in range(2 if j else 0):
            parts = (columns[:j] * v).sum(axis=1)
            v = v - (parts[:, None] * columns[:j]).sum(axis=0)
            r[j, :j] += parts
        norm = np.sqrt((v * v).sum(axis=0))
        r[j, j] = norm
        columns[j] = v / np.where(norm > 0, norm, 1.0)
    return np.ascontiguousarray(columns.transpose(2, 1, 0)), np.ascontiguousarray(r.transpose(2, 1, 0))


def backward_frame(maps: Floats) -> Floats:
    """Q_0 of the frames ``A_l^T Q_{l+1} = Q_l R``: directions of level 0, the one that survives best first."""
    batch, sites, size, _ = maps.shape
    frame = np.broadcast_to(np.eye(size), (batch, size, size))
    for l in range(sites - 1, -1, -1):
        frame, _ = orthonormal(maps[:, l].swapaxes(-1, -2) @ frame)
    return np.array(frame)


def forward_frames(maps: Floats, start: Floats) -> tuple[Floats, Floats]:
    """``A_l Q_l = Q_{l+1} R_l`` from ``Q_0 = start``: frames (B, L+1, m, m) and triangles (B, L, m, m)."""
    batch, sites, size, _ = maps.shape
    frames, triangles = np.empty((batch, sites + 1, size, size)), np.empty(maps.shape)
    frames[:, 0] = start
    for l in range(sites):
        frames[:, l + 1], triangles[:, l] = orthonormal(maps[:, l] @ frames[:, l])
    return frames, triangles


def covariant_columns(triangles: Floats) -> Floats:
    """Unit upper triangular C_0 .. C_L with ``R_l C_l = C_{l+1} diag(R_l)``, shape (B, L+1, m, m)."""
    batch, sites, size, _ = triangles.shape
    c = np.zeros((batch, sites + 1, size, size))
    c[...] = np.eye(size)
    pivots = np.diagonal(triangles, axis1=-2, axis2=-1)
    logs = np.log(pivots)
    for j in range(size):
        for i in range(j - 1, -1, -1):
            # forcing: what the columns between i and j put into row i
            forcing = (triangles[:, :, i, i + 1 : j + 1] * c[:, :-1, i + 1 : j + 1, j]).sum(axis=-1)
            ratio = np.zeros((batch, sites + 1))
            np.cumsum(logs[:, :, j] - logs[:, :, i], axis=1, out=ratio[:, 1:])
            pin = ratio.argmin(axis=1)
            solve = _solve_one if batch == 1 else _solve_many
            c[:, :, i, j] = solve(pivots[:, :, i], pivots[:, :, j], forcing, pin)
    return c


def _solve_many(elder: Floats, own: Floats, forcing: Floats, pin: np.ndarray) -> Floats:
    """x with ``elder_l x_l + forcing_l = own_l x_{l+1}`` and ``x_pin = 0``, for a stack of chains."""
    batch, sites = elder.shape
    elder, own, forcing = (np.ascontiguousarray(part.T) for part in (elder, own, forcing))
    x = np.zeros((sites + 1, batch))
    for l in range(sites - 1, -1, -1):
        x[l] = np.where(l < pin, (own[l] * x[l + 1] - forcing[l]) / elder[l], 0.0)
    for l in range(sites):
        x[l + 1] = np.where(l >= pin, (elder[l] * x[l] + forcing[l]) / own[l], x[l + 1])
    out: Floats = x.T
    return out


def _solve_one(elder: Floats, own: Floats, forcing: Floats, pin: np.ndarray) -> Floats:
    """The same for one chain, on Python floats: array calls on one number would cost ten times as much."""
    return np.array([solved(elder[0].tolist(), own[0].tolist(), forcing[0].tolist(), int(pin[0]), 0.0)])


def complements(normals: Floats) -> Floats:
    """Orthonormal bases (..., n, n-1) of the orthogonal complements of the unit vectors (..., n), by Householder."""
    size = normals.shape[-1]
    v = normals.copy()
    v[..., 0] += np.where(v[..., 0] < 0, -1.0, 1.0)
    scale = 2.0 / (v * v).sum(axis=-1)
    reflections: Floats = np.eye(size) - scale[..., None, None] * v[..., :, None] * v[..., None, :]
    return reflections[..., 1:]
