"""How mixers that depend on the state move along real text: their mean, their covariance, and what a form drops.

``vec`` is row-major.  With m = mean A and C = mean vec(A - m) vec(A - m)^T, every quadratic figure of A in any gauge
is exact without running the text again: for any matrix K (Q A P has K = Q (x) P^T) and constant e

    mean ||K vec A - e||^2 = tr(K C K^T) + ||K vec m - e||^2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm


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

    def dropped(self, l: int, form: NormalForm, *, by_token: bool) -> tuple[float, float]:
        """RMS share of A_l(x) that diagonal gates G leave out: in the form's streams, and in the source's.

        ``sqrt(mean ||B - G||_F^2 / mean ||B||_F^2)`` with ``B = P_{l+1}^{-1} A_l(x) P_l``, and the same of A itself
        and ``P_{l+1} G P_l^{-1}``.  G is the form's constant diagonal, or by token the diagonal of B.
        """
        n = len(form.gauge[l])
        there = np.kron(form.gauge_inverse[l + 1], form.gauge[l].T)
        back = np.kron(form.gauge[l + 1], form.gauge_inverse[l].T)
        constant = np.zeros(n * n) if by_token else np.diag(np.asarray(form.gates[l])).ravel()
        kept = np.eye(n).ravel() if by_token else np.zeros(n * n)
        left = (1 - kept)[:, None] * there
        shares = []
        for missing, gates, whole in ((left, constant, there), (back @ left, back @ constant, np.eye(n * n))):
            total = self._square(l, whole, np.zeros(n * n))
            shares.append(float(np.sqrt(self._square(l, missing, gates) / total)) if total else 0.0)
        return shares[0], shares[1]

    def _square(self, l: int, k: Floats, constant: Floats) -> float:
        """mean ||k vec A - constant||^2."""
        spread = float(np.einsum("ij,jk,ik->", k, self.covariances[l], k))
        return max(spread, 0.0) + float(np.sum((k @ self.mixers[l].ravel() - constant) ** 2))

    def document(self) -> dict[str, Any]:
        """For provenance: text, tokens and the dynamic share of every site."""
        return {"tokens": self.tokens, "text": dict(self.text), "shares": list(self.shares)}
