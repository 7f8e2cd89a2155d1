"""A normal form of a chain: one equation, ``A_l P_l = P_{l+1} D_l``, whatever the form.

In the new stream basis ``X_l = P_l Y_l`` the network runs with gates ``D_l``, reads ``p_l P_l``, writes
``P_{l+1}^{-1} r_l``, entry ``P_0^{-1} e`` and readout ``c P_L`` (Theorems 1 to 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import flint
import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain, Matrix
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

if TYPE_CHECKING:
    from streamgauge.theory.conditioning import Conditioning


@dataclass(frozen=True, order=True)
class Bar:
    """One interval: alive at levels ``birth .. death`` inclusive, in slot ``slot``.

    ``death`` = L: it never dies; ``death`` = d < L: site d sends it to zero.
    """

    birth: int
    death: int
    slot: int


@dataclass(frozen=True)
class RankLabel:
    """How the rank of one site was decided.

    ``exact``: over Q, tolerance and gap do not apply.  Otherwise singular values at most ``tolerance`` count as
    zero; ``smallest_kept`` and ``largest_dropped`` show the gap (nan where there is none on that side).
    """

    rank: int
    exact: bool
    tolerance: float = 0.0
    smallest_kept: float = float("nan")
    largest_dropped: float = float("nan")


@dataclass(frozen=True)
class NormGate:
    """The norm gate ``c(g) = min(cap, sqrt(n) / (||g||_2 + eps))``; ``c(0) := 1`` (Theorem 3, k = 0 convention)."""

    eps: float | Fraction = 0
    cap: float | Fraction | None = None


@dataclass(frozen=True)
class NormScales:
    """What the norm gate adds to a base form.

    - ``gate``: the rule c.
    - ``base_gates``: L vectors g_l of the base form (the network stores these and computes c(g_l) itself).
    - ``factors``: c_l, float64.  ``log2_scales``: log2 s_l for l = 0..L with s_{l+1} = s_l / c_l, s_0 = 1.
    - ``factors_squared``, ``scales_squared``: c_l^2 and s_l^2 as Fractions on an exact base (c is irrational in
      general, its square is not); None on a numeric base.
    """

    gate: NormGate
    base_gates: tuple[exact.Floats | tuple[Fraction, ...], ...]
    factors: exact.Floats
    log2_scales: exact.Floats
    factors_squared: tuple[Fraction, ...] | None = None
    scales_squared: tuple[Fraction, ...] | None = None


@dataclass(frozen=True)
class NormalForm:
    """``A_l P_l = P_{l+1} D_l`` for l = 0..L-1, with every P_l invertible.

    - ``form``: "identity", "binary" or "graded".
    - ``chain``: the chain it is a form of.  Exact chains have exact forms (``fmpq_mat``), numeric ones float64.
    - ``gauge``: P_0 .. P_L, shape (n_l, n_l).
    - ``slots``: for every level, the slot name of each column of P_l.  Square chains: (0, .., n-1) at every level.
    - ``gates``: for every site a vector indexed by slot (length max n_l): ints or Fractions if exact, float64 if not.
      A slot that does not carry a bar across the site has gate 0.
    - ``bars``: the intervals, sorted.
    - ``ranks``: how each site's rank was decided.
    - ``norm``: the norm gate's factors, or None.  Numeric: ``gauge`` and ``gates`` already contain them, i.e.
      gauge = s_l P_l and gates = c_l g_l.  Exact: they do not (square roots), and the form is the pair of the base
      equation with the exact squares in ``norm``.
    - ``notes``: facts a reader must know (method used at a site, intrinsic ill-conditioning, ...).
    """

    form: str
    chain: Chain
    gauge: tuple[Matrix, ...]
    slots: tuple[tuple[int, ...], ...]
    gates: tuple[exact.Floats | tuple[Fraction, ...], ...]
    bars: tuple[Bar, ...]
    ranks: tuple[RankLabel, ...]
    norm: NormScales | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.gates)

    def diagonal(self, l: int) -> Matrix:
        """D_l as a (n_{l+1}, n_l) matrix: entry (i, j) is the gate of slot s if both columns carry s, else 0."""
        rows, cols, gate = self.slots[l + 1], self.slots[l], self.gates[l]
        at = {slot: i for i, slot in enumerate(rows)}
        if self.chain.exact:
            out = exact.zeros(len(rows), len(cols))
            for j, slot in enumerate(cols):
                if slot in at and gate[slot] != 0:
                    out[at[slot], j] = exact.scalar(gate[slot])
            return out
        dense = np.zeros((len(rows), len(cols)))
        for j, slot in enumerate(cols):
            if slot in at:
                dense[at[slot], j] = gate[slot]
        return dense

    @cached_property
    def gauge_inverse(self) -> tuple[Matrix, ...]:
        """P_0^{-1} .. P_L^{-1}."""
        if self.chain.exact:
            return tuple(p.inv() for p in self.gauge)
        return tuple(_solve(p, np.eye(len(p)), l) for l, p in enumerate(self.gauge))

    @cached_property
    def reads(self) -> tuple[Matrix, ...] | None:
        """p_l P_l, shape (1, n_l); None where the chain has no reads."""
        given = self.chain.reads
        return None if given is None else tuple(_times(p, g) for p, g in zip(given, self.gauge))

    @cached_property
    def writes(self) -> tuple[Matrix, ...] | None:
        """P_{l+1}^{-1} r_l, shape (n_{l+1}, 1)."""
        given = self.chain.writes
        if given is None:
            return None
        return tuple(_solve(p, r, l) for l, (p, r) in enumerate(zip(self.gauge[1:], given), 1))

    @cached_property
    def entry(self) -> Matrix | None:
        """P_0^{-1} e, shape (n_0, k)."""
        return None if self.chain.entry is None else _solve(self.gauge[0], self.chain.entry, 0)

    @cached_property
    def readout(self) -> Matrix | None:
        """c P_L, shape (k, n_L)."""
        return None if self.chain.readout is None else _times(self.chain.readout, self.gauge[-1])

    @cached_property
    def conditioning(self) -> Conditioning:
        """The report of :func:`streamgauge.theory.conditioning.conditioning` on this form."""
        from streamgauge.theory.conditioning import conditioning

        return conditioning(self)

    def residuals(self) -> exact.Floats:
        """max over columns p of P_l of ``|A_l p - (P_{l+1} D_l)_p| / (||A_l|| |p|)`` for every site, in the max norm.

        Invariant under scaling of columns.  Exact forms: 0 where the equation holds, 1 where it does not.
        """
        out = np.empty(len(self))
        for l, a in enumerate(self.chain.mixers):
            if self.chain.exact:
                out[l] = float(_times(a, self.gauge[l]) != _times(self.gauge[l + 1], self.diagonal(l)))
            else:
                out[l] = _residual(a, self.gauge[l], self.gauge[l + 1], self.diagonal(l))
        return out

    def check(self, tolerance: float = 1e-12) -> Verdict:
        """Whether the equation holds at every site and every P_l is invertible (and, with a norm gate, c_l too).

        Exact forms: exactly.  Numeric forms: residual at most ``tolerance`` and every P_l of full numerical rank once
        its columns have one size (their scale is a free choice, and no matter of invertibility).
        """
        residuals = self.residuals()
        bound = 0.0 if self.chain.exact else tolerance
        for l, value in enumerate(residuals):
            if not value <= bound:
                reason = f"site {l}: A P - P' D has residual {value:.3g}, expected at most {bound:.3g}"
                return Verdict(False, reason, {"site": l, "residual": float(value)})
        for l, p in enumerate(self.gauge):
            rank = p.rank() if self.chain.exact else _numerical_rank(p)
            if rank < self.chain.dims[l]:
                reason = f"gauge {l}: rank {rank}, expected {self.chain.dims[l]} (invertible)"
                return Verdict(False, reason, {"level": l, "rank": rank})
        if self.norm is not None:
            from streamgauge.theory.norm import check_norm  # norm makes forms, so it cannot be imported above

            verdict = check_norm(self, tolerance)
            if not verdict:
                return verdict
        worst = float(residuals.max(initial=0.0))
        how = "exactly" if self.chain.exact else f"within {worst:.3g}"
        return Verdict(True, f"A P = P' D at all {len(self)} sites, {how}", {"residual": worst})


def _residual(a: exact.Floats, before: exact.Floats, after: exact.Floats, diagonal: exact.Floats) -> float:
    """One site, in powers of two near the size of the map and of every column: no size leaves float64."""
    unit, one, other = _exponents(a, None), _exponents(before, 0), _exponents(after, 0)
    a, p = np.ldexp(a, -unit), np.ldexp(before, -one)
    with np.errstate(over="ignore", invalid="ignore"):  # inf and nan are refused
        carried = np.ldexp(after, -other) @ np.ldexp(diagonal, other[:, None] - one - unit)
        misses = np.abs(a @ p - carried).max(axis=0, initial=0.0)
    sizes = np.abs(a).sum(axis=1).max(initial=0.0) * np.abs(p).max(axis=0, initial=0.0)
    return float((misses / np.where(sizes > 0, sizes, 1.0)).max(initial=0.0))


def _exponents(matrix: exact.Floats, axis: int | None) -> np.ndarray:
    return np.asarray(np.frexp(np.abs(matrix).max(axis=axis, initial=0.0))[1])


def _times(a: Matrix, b: Matrix) -> Matrix:
    return a * b if isinstance(a, flint.fmpq_mat) else a @ b


def _solve(gauge: Matrix, right: Matrix, level: int) -> Matrix:
    try:
        return gauge.solve(right) if isinstance(gauge, flint.fmpq_mat) else np.linalg.solve(gauge, right)
    except (np.linalg.LinAlgError, ZeroDivisionError):
        raise InputError(f"gauge {level}: singular, expected an invertible matrix (the graded form)") from None


def _numerical_rank(p: exact.Floats) -> int:
    if not p.size or not np.isfinite(p).all():
        return 0
    sizes = np.abs(p).max(axis=0)
    return int(np.linalg.matrix_rank(p / np.where(sizes > 0, sizes, 1.0)))
