"""What hyper-connections cost: memory traffic per token and the size of a recompute group.

Counts are in *elements*, for n streams of width d.  Source: the mHC paper arXiv:2512.24880, table 2, eqs (20), (21).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from streamgauge.theory.errors import InputError


@dataclass(frozen=True)
class Traffic:
    """Elements read and written per token and site."""

    reads: int
    writes: int

    @property
    def total(self) -> int:
        """Reads plus writes."""
        return self.reads + self.writes


def residual_traffic(d: int) -> Traffic:
    """The plain residual ``x + f``: reads 2d, writes d."""
    _positive(d=d)
    return Traffic(2 * d, d)


def hc_traffic(n: int, d: int) -> Traffic:
    """Unfused hyper-connections: reads (5n+1)d + n^2 + 2n, writes (3n+1)d + n^2 + 2n."""
    _positive(n=n, d=d)
    small = n * n + 2 * n
    return Traffic((5 * n + 1) * d + small, (3 * n + 1) * d + small)


def hc_ratio(n: int) -> Fraction:
    """Traffic of hyper-connections over the plain residual's for wide d: (8n+2)/3, which is 34/3 for n = 4."""
    _positive(n=n)
    return Fraction(8 * n + 2, 3)


def write_traffic(n: int, d: int, *, fused: bool) -> Traffic:
    """Mixing and writing, ``A X + r f``: reads (3n+1)d, writes 3nd apart; reads (n+1)d, writes nd in one kernel.

    For n = 4: 25d falls to 9d.  A gated write ``D X + r f`` moves the same 9d: dropping the mixing matrix saves
    the work on its coefficients, not this traffic.
    """
    _positive(n=n, d=d)
    return Traffic((n + 1) * d, n * d) if fused else Traffic((3 * n + 1) * d, 3 * n * d)


def recompute_memory(group: int, *, n: int, sites: int, d: int = 1) -> int:
    """Peak elements per token when activations are recomputed in groups of r sites.

    M(r) = n d ceil(L/r) + (n+2) d r: the streams entering each group, and the activations inside one group.
    """
    _positive(group=group, n=n, sites=sites, d=d)
    return n * d * -(-sites // group) + (n + 2) * d * group


def recompute_optimum(*, n: int, sites: int) -> float:
    """r* = sqrt(n L / (n+2)), where the smooth M has its minimum: 6.3246 for L = 60, n = 4."""
    _positive(n=n, sites=sites)
    return math.sqrt(n * sites / (n + 2))


def recompute_group(*, n: int, sites: int) -> tuple[int, int]:
    """The best whole group size and M(r) in units of d: (6, 76) for L = 60, n = 4. Smallest r on a tie."""
    _positive(n=n, sites=sites)
    best = min(range(1, sites + 1), key=lambda r: (recompute_memory(r, n=n, sites=sites), r))
    return best, recompute_memory(best, n=n, sites=sites)


def _positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name}: found {value!r}, expected an integer of at least 1")
