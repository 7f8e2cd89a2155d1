"""The anchor: one residual stream that no gate touches.

    a_l = Phi(l, 0) e,   w_l = c Phi(L, l):    A_l a_l = a_{l+1},   w_{l+1} A_l = w_l,   w_l a_l constant.

Where that constant is not zero, ``R^n = span(a_l) + ker w_l`` is a covariant splitting: a chain with entry e and
readout c is one stream with gate 1 and an (n-1)-stream memory that starts at zero and is not read out.  The graded
form takes a_l as its column 0 and grades ``B_l = Z_{l+1}^T A_l Z_l``, Z_l an orthonormal basis of ker w_l.

Without an entry (readout) rows (columns) that sum to one supply e = 1 (c = 1): copy-in, sum-out.  An anchor is used
where the cosine of the angle between a_l and w_l stays above ``LEAST_COSINE`` at every level, because its reciprocal
is a lower bound for the condition of the splitting.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import marginal_errors

EXACT = 32 * float(np.finfo(float).eps)
"""Rows that sum to one within this count as exact: the anchor is then one constant at every level."""
CLOSE = 1e-9
"""Marginals within this choose the column norm (see :func:`column_norms`)."""
NEAR = 1e-3
"""Marginals within this make 1 a candidate for the entry or the readout of an anchor."""
LEAST_COSINE = 0.05
SPREAD = 16.0
"""The anchor's gate is exactly 1 while its size stays within this factor; beyond it is normalised at every level."""


@dataclass(frozen=True)
class Anchor:
    """For a stack of B chains: unit a_l and w_l (B, L+1, n), gates (B, L) with ``A_l a_l = gate_l a_{l+1}``, the
    smallest cosine (B,), which chains have it constant (B,), and which took ``ones`` for entry and readout (B,)."""

    vectors: Floats
    covectors: Floats
    gates: Floats
    cosine: Floats
    constant: np.ndarray
    ones: np.ndarray

    def part(self, chains: Any) -> Anchor:
        """The anchor of some chains."""
        return Anchor(**{f.name: getattr(self, f.name)[chains] for f in fields(self)})


def worst_marginals(maps: Floats) -> tuple[Floats, Floats]:
    """The largest ``marginal_errors`` over the sites of every chain: maps (B, L, n, n) -> (B,), (B,)."""
    with np.errstate(over="ignore"):
        rows, columns = marginal_errors(maps)
    return rows.max(axis=1, initial=0.0), columns.max(axis=1, initial=0.0)


def column_norms(rows: Floats, columns: Floats) -> np.ndarray:
    """The norm, "two", "max" or "one", that keeps the gates of each chain at most 1 (up to its marginal errors).

    Doubly stochastic within ``CLOSE``: 2-norm (``||A||_2^2 <= ||A||_1 ||A||_inf``).  Only the rows: max norm, since
    the 2-norm of a row-stochastic matrix can exceed 1.  Only the columns: 1-norm.  Neither: 2-norm.
    """
    close_rows, close_columns = rows <= CLOSE, columns <= CLOSE
    out = np.where(close_rows & ~close_columns, "max", "two")
    return np.where(close_columns & ~close_rows, "one", out)


def anchor(maps: Floats, entry: Floats | None, readout: Floats | None, rows: Floats) -> Anchor:
    """Propagate an entry and a readout, both (B, n), through the chains; None: the other one's end, returned.

    ``rows``: the marginal errors; a constant entry is kept exactly constant where they are within ``EXACT``.
    """
    batch, sites, size, _ = maps.shape
    a, w = np.zeros((batch, sites + 1, size)), np.zeros((batch, sites + 1, size))
    gates = np.zeros((batch, sites))
    constant = np.zeros(batch, dtype=bool)

    def forward(start: Floats) -> None:
        a[:, 0] = _unit(start)[0]
        for l in range(sites):
            a[:, l + 1], gates[:, l] = _unit((maps[:, l] @ a[:, l, :, None])[..., 0])
        np.copyto(constant, (np.ptp(start, axis=1) == 0) & (start[:, 0] != 0) & (rows <= EXACT))
        a[constant] = 1.0 / np.sqrt(size)
        gates[constant] = 1.0

    def backward(end: Floats) -> None:
        w[:, -1] = _unit(end)[0]
        for l in range(sites - 1, -1, -1):
            w[:, l] = _unit((w[:, l + 1, None, :] @ maps[:, l])[:, 0])[0]

    if entry is not None:
        forward(entry)
        backward(a[:, -1] if readout is None else readout)
    elif readout is not None:
        backward(readout)
        forward(w[:, 0])
    cosine = np.abs((a * w).sum(axis=-1)).min(axis=1)
    return Anchor(a, w, gates, cosine, constant, np.zeros(batch, dtype=bool))


def choose_anchor(
    maps: Floats, entry: Floats | None, readout: Floats | None, rows: Floats, columns: Floats
) -> tuple[Anchor, Any]:
    """The anchor of every chain and which chains have one: from entry and readout (B, n), else from marginals near 1.

    A missing end is 1 where every chain has rows or columns that sum to one, else the other end's image.
    """
    ones = np.ones((maps.shape[0], maps.shape[-1]))
    stochastic = np.minimum(rows, columns) <= NEAR
    if entry is None and readout is None:
        found = anchor(maps, ones, ones, rows)
        return found, stochastic & (found.cosine >= LEAST_COSINE)
    fill = ones if stochastic.all() else None
    found = anchor(maps, fill if entry is None else entry, fill if readout is None else readout, rows)
    use = found.cosine >= LEAST_COSINE
    retry = np.flatnonzero(~use & stochastic)
    if len(retry):
        second = anchor(maps[retry], ones[retry], ones[retry], rows[retry])
        second.ones[:] = True
        for field in fields(found):
            getattr(found, field.name)[retry] = getattr(second, field.name)
        use[retry] = second.cosine >= LEAST_COSINE
    return found, use


def anchor_columns(found: Anchor, norms: np.ndarray) -> tuple[Floats, Floats]:
    """Column 0 of the gauge (B, L+1, n) and its gates (B, L): 1 unless the anchor's size leaves ``SPREAD``."""
    size = found.vectors.shape[-1]
    columns, gates = found.vectors.copy(), found.gates.copy()
    logs = np.zeros(columns.shape[:2])
    np.cumsum(np.log(np.where(gates > 0, gates, 1.0)), axis=1, out=logs[:, 1:])
    calm = np.ptp(logs, axis=1) <= np.log(SPREAD)
    sizes = vector_norms(columns, norms)
    middle = (logs + np.log(sizes)).mean(axis=1)
    columns[calm] *= np.exp(logs - middle[:, None])[calm][..., None]
    gates[calm] = 1.0
    columns[~calm] /= sizes[~calm][..., None]
    gates[~calm] *= (sizes[:, 1:] / sizes[:, :-1])[~calm]
    one = {"two": 1.0 / np.sqrt(size), "max": 1.0, "one": 1.0 / size}
    columns[found.constant] = np.array([one[str(kind)] for kind in norms])[found.constant][:, None, None]
    return columns, gates


def vector_norms(vectors: Floats, norms: np.ndarray) -> Floats:
    """Norms of the vectors (B, L+1, n) -> (B, L+1), each chain in its own norm."""
    absolute = np.abs(vectors)
    kind = norms[:, None]
    two: Floats = np.sqrt((vectors * vectors).sum(axis=-1))
    if (norms == "two").all():
        return two
    other: Floats = np.where(kind == "max", absolute.max(axis=-1), absolute.sum(axis=-1))
    return np.asarray(np.where(kind == "two", two, other), dtype=np.float64)


def _unit(vectors: Floats) -> tuple[Floats, Floats]:
    """Unit vectors and norms of (B, n); zero vectors stay zero."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    norm = np.sqrt((scaled * scaled).sum(axis=-1, keepdims=True))
    return scaled / np.where(norm > 0, norm, 1.0), (norm * largest)[:, 0]
