"""How mixers that depend on the state move along real text: their mean, their covariance, and what a form drops.

``vec`` is row-major.  With m = mean A and C = mean vec(A - m) vec(A - m)^T, every quadratic figure of A in any gauge
is exact without running the text again: for B = Q A P, vec B = (Q (x) P^T) vec A =: K vec A, so

    mean (B_ij - E_ij)^2 = (K C K^T)_(ij,ij) + ((Q m P)_ij - E_ij)^2      for any constant E.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgauge.theory.exact import Floats


@dataclass(frozen=True)
class Calibration:
    """What a text made of the mixers A_l(x), l = 0 .. L - 1.

    - ``mixers``: their means (n, n); ``covariances``: (n^2, n^2), of vec A_l about the mean.
    - ``tokens``: how many were seen; ``text``: where they come from (path, SHA-256, ...).
    """

    mixers: tuple[Floats, ...]
    covariances: tuple[Floats, ...]
    tokens: int
    text: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[float, ...]:
        """Dynamic share of every site: ``sqrt(mean ||A - m||_F^2) / ||m||_F``; 0 for a mixer that never moved."""
        pairs = zip(self.mixers, self.covariances)
        return tuple(float(np.sqrt(max(np.trace(c), 0.0)) / np.linalg.norm(m)) for m, c in pairs)

    def dropped(self, l: int, gauge: Floats, inverse: Floats, gates: Floats | None) -> float:
        """RMS share of ``B = inverse A_l gauge`` that diagonal gates leave out: ``sqrt(mean ||B - G||^2 / ||B||^2)``.

        G is the constant ``diag(gates)``, or with None the diagonal of B itself, token by token.  ``gauge`` and
        ``inverse`` are (n, n), ``gates`` (n,).
        """
        n = len(gauge)
        k = np.kron(inverse, gauge.T)
        spread = np.einsum("ij,jk,ik->i", k, self.covariances[l], k).clip(min=0.0).reshape(n, n)
        mean = inverse @ self.mixers[l] @ gauge
        total = float((spread + mean**2).sum())
        left = mean - (np.diag(np.diag(mean)) if gates is None else np.diag(gates))
        missing = spread + left**2
        if gates is None:
            np.fill_diagonal(missing, 0.0)
        return float(np.sqrt(missing.sum() / total)) if total else 0.0

    def document(self) -> dict[str, Any]:
        """For provenance: text, tokens and the dynamic share of every site."""
        return {"tokens": self.tokens, "text": dict(self.text), "shares": list(self.shares)}
