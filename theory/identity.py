"""The identity form (Theorem 1): a chain of invertible mixers is a pure iHC, ``A_l P_l = P_{l+1}``.

The gauge is P_0 carried along the chain, so its condition number grows with depth as the chain's own product does:
``cond(P_0) cond(P_L) >= cond(A_{L-1} .. A_0)``.  Where to put it is the choice of P_0:

- ``left``: P_0 = I, all of it at the readout;  ``right``: P_L = I, all of it at the entry;
- ``balanced``: P_0 = V S^{-1/2}, P_L = U S^{1/2} with U S V^T the product: its square root at both ends, the minimum.
"""

from __future__ import annotations

from fractions import Fraction

import flint
import mpmath  # type: ignore[import-untyped]
import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain, Matrix
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import Bar, NormalForm, RankLabel
from streamgauge.theory.spectrum import log_singular_pairs
from streamgauge.theory.verdict import Verdict

GAUGES = ("left", "right", "balanced")
_LOG_RANGE = 600.0
"""Largest ln(s_1 / s_n) of a balanced float64 gauge: exp(+-600) and its square root stay normal numbers."""


class SingularSite(InputError):
    """A site that no identity form can pass: ``site`` and ``kernel``, a vector v with ``A_site v = 0`` (exact:
    Fractions; numeric: the last right singular vector, float64) and the ``rank`` found."""

    def __init__(self, site: int, kernel: tuple[Fraction, ...] | Floats, rank: RankLabel) -> None:
        self.site, self.kernel, self.rank = site, kernel, rank
        n = len(kernel)
        if rank.exact:
            how = f"rank {rank.rank} of {n}, A v = 0 for v = ({', '.join(exact.shown(x) for x in kernel)})"
        else:
            how = (
                f"numerical rank {rank.rank} of {n} (singular value {rank.largest_dropped:.3g}, tolerance "
                f"{rank.tolerance:.3g}), A v = 0 for v = ({', '.join(f'{x:.6g}' for x in kernel)})"
            )
        super().__init__(f"mixer {site}: {how}; expected an invertible mixer (the binary and graded forms need none)")


def invertible(chain: Chain) -> Verdict:
    """Whether every mixer is square and invertible; the witness of a refusal holds the site and its kernel vector."""
    try:
        labels = [_label(chain, l) for l in range(len(chain))]
    except SingularSite as error:
        return Verdict(False, str(error), {"site": error.site, "kernel": error.kernel, "rank": error.rank})
    except InputError as error:
        return Verdict(False, str(error))
    return Verdict(True, f"all {len(chain)} mixers are invertible", {"ranks": tuple(labels)})


def identity_form(chain: Chain, *, gauge: str = "left") -> NormalForm:
    """The form ``A_l P_l = P_{l+1}``, exact for an exact chain, float64 for a numeric one.

    A numeric site counts as singular when its smallest singular value is at most ``n u s_1`` (u = 2^-52).
    ``balanced`` on an exact chain takes a dyadic approximation of V S^{-1/2}, precise enough to be balanced at both
    ends, and propagates it exactly; the singular values come from the exact product.

    **Raises** :class:`SingularSite` with the kernel vector, :class:`InputError` for rectangular sites and gauges
    of another name.  Cost: O(L n^3).  Source: Theorem 1; covariant propagation, Ginelli et al. 2007.
    """
    if gauge not in GAUGES:
        raise InputError(f"gauge: found {gauge!r}, expected one of {', '.join(GAUGES)}")
    labels = tuple(_label(chain, l) for l in range(len(chain)))
    n = chain.dims[0]
    if gauge == "left":
        levels = _forward(chain, exact.identity(n) if chain.exact else np.eye(n))
    elif gauge == "right":
        levels = _backward(chain, exact.identity(n) if chain.exact else np.eye(n))
    elif chain.exact:
        levels = _forward(chain, _balanced_start(chain))
    else:
        levels = _balanced_floats(chain)
    sites = len(chain)
    one = (Fraction(1),) * n if chain.exact else np.ones(n)
    bars = tuple(Bar(0, sites, slot) for slot in range(n))
    return NormalForm(
        "identity", chain, tuple(levels), (tuple(range(n)),) * (sites + 1), (one,) * sites, bars, labels
    )


def _label(chain: Chain, l: int) -> RankLabel:
    a = chain.mixers[l]
    rows, cols = chain.dims[l + 1], chain.dims[l]
    if rows != cols:
        raise InputError(f"mixer {l}: found shape ({rows}, {cols}), expected square (identity form)")
    if chain.exact:
        label = RankLabel(a.rank(), exact=True)
        if label.rank < cols:
            kernel = exact.kernel_vector(a)
            vector = () if kernel is None else tuple(exact.fraction(x) for x in kernel.entries())
            raise SingularSite(l, vector, label)
        return label
    _, s, vt = np.linalg.svd(a)
    tolerance = float(cols * np.finfo(float).eps * s.max(initial=0.0))
    kept, dropped = s[s > tolerance], s[s <= tolerance]
    label = RankLabel(
        len(kept),
        exact=False,
        tolerance=tolerance,
        smallest_kept=float(kept[-1]) if len(kept) else float("nan"),
        largest_dropped=float(dropped[0]) if len(dropped) else float("nan"),
    )
    if len(dropped):
        raise SingularSite(l, vt[-1], label)
    return label


def _forward(chain: Chain, start: Matrix) -> list[Matrix]:
    levels = [start]
    for l, a in enumerate(chain.mixers):
        with np.errstate(over="ignore", invalid="ignore"):  # refused by name below
            levels.append(a * levels[-1] if chain.exact else a @ levels[-1])
        if not chain.exact:
            _finite(levels[-1], l + 1)
    return levels


def _backward(chain: Chain, end: Matrix) -> list[Matrix]:
    levels = [end]
    for l in range(len(chain) - 1, -1, -1):
        a = chain.mixers[l]
        levels.append(a.solve(levels[-1]) if chain.exact else _finite(np.linalg.solve(a, levels[-1]), l))
    return levels[::-1]


def _balanced_floats(chain: Chain) -> list[Floats]:
    """Frames forward from V, triangular factors backward from S^{1/2}: each direction where it is stable."""
    n = chain.dims[0]
    logs, right = log_singular_pairs(np.array(chain.mixers).reshape(-1, n, n))
    spread = logs[0] - logs[-1]
    if not spread <= _LOG_RANGE:
        raise InputError(
            f"product of {len(chain)} mixers: singular values spread over 10^{spread / np.log(10):.0f}, "
            "beyond float64; expected an exact chain or the graded form"
        )
    frames, factors = [right], []
    for a in chain.mixers:
        q, r = np.linalg.qr(a @ frames[-1])
        frames.append(q)
        factors.append(r)
    # A_l Q_l = Q_{l+1} R_l and C_{l+1} = R_l C_l, with Q_L C_L = U S^{1/2} up to the sign of each column.
    with np.errstate(over="ignore", invalid="ignore"):  # refused by name below
        triangular = np.diag(np.exp(logs / 2))
        levels = [_finite(frames[-1] @ triangular, len(chain))]
    for l in range(len(chain) - 1, -1, -1):
        triangular = np.linalg.solve(factors[l], triangular)
        levels.append(_finite(frames[l] @ np.triu(triangular), l))
    return levels[::-1]


def _balanced_start(chain: Chain) -> flint.fmpq_mat:
    """A dyadic V S^{-1/2} of the exact product, with as many bits as its condition number asks for."""
    n = chain.dims[0]
    product = exact.identity(n)
    for a in chain.mixers:
        product = a * product
    square = sum((x * x for x in product.entries()), flint.fmpq(0))
    # cond <= ||M||_F^n / |det M|, and 40 bits of margin
    ratio = exact.fraction(square**n / product.det() ** 2) if n else Fraction(1)
    bits = 40 + max(0, ratio.numerator.bit_length() - ratio.denominator.bit_length() + 1) // 2 + n
    if not n:
        return product
    with mpmath.workprec(2 * bits):
        rows = [[mpmath.mpf(int(x.p)) / int(x.q) for x in row] for row in product.tolist()]
        _, s, vt = mpmath.svd_r(mpmath.matrix(rows))
        # column j has size s_j^{-1/2}: its last binary digit is 2^-digits[j]
        digits = [bits + int(mpmath.floor(mpmath.log(x, 2) / 2)) for x in s]
        entries = [_dyadic(vt[j, i] / mpmath.sqrt(s[j]), digits[j]) for i in range(n) for j in range(n)]
    return flint.fmpq_mat(n, n, entries)


def _dyadic(value: mpmath.mpf, digits: int) -> flint.fmpq:
    """``value`` rounded to a multiple of 2^-digits (digits may be negative)."""
    return flint.fmpq(int(mpmath.nint(mpmath.ldexp(value, digits)))) / flint.fmpq(2) ** digits


def _finite(matrix: Floats, level: int) -> Floats:
    if not np.isfinite(matrix).all() or not np.abs(matrix).max(axis=0, initial=0.0).all():
        raise InputError(f"level {level}: the identity gauge leaves the range of float64; expected an exact chain")
    return matrix
