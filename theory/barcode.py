"""The barcode of a chain: when every direction of the streams is born and where it dies (Gabriel 1972).

A bar [b, d] is alive at levels b .. d inclusive: present at the entry if b = 0, else born at the output of site
b - 1; killed by site d if d < L, never if d = L.  The multiset of bars is unique, and says everything about ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import flint

from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import Bar
from streamgauge.theory.interval import sweep_rational
from streamgauge.theory.modular import reduce, sweep_modular


@dataclass(frozen=True)
class Barcode:
    """The bars of a chain of ``len(dims) - 1`` sites over Q (``prime`` None) or GF(``prime``), sorted."""

    bars: tuple[Bar, ...]
    dims: tuple[int, ...]
    prime: int | None = None

    def multiplicity(self, b: int, d: int) -> int:
        """How many bars are [b, d]."""
        return self._counts[b, d]

    def rank(self, i: int, j: int) -> int:
        """Rank of the map from level i to level j: the bars alive at both."""
        last = len(self.dims) - 1
        if not 0 <= i <= j <= last:
            raise InputError(f"rank: found levels {i} to {j}, expected 0 <= i <= j <= {last}")
        return sum(bar.birth <= i and bar.death >= j for bar in self.bars)

    def multiplicities(self) -> dict[tuple[int, int], int]:
        """{(birth, death): count}, sorted."""
        return dict(sorted(self._counts.items()))

    @cached_property
    def _counts(self) -> Counter[tuple[int, int]]:
        return Counter((bar.birth, bar.death) for bar in self.bars)


def barcode(mixers: Chain | Sequence[Any], *, prime: int | None = None) -> Barcode:
    """The barcode over Q, or over GF(``prime``).

    ``mixers``: a :class:`Chain`, or what its ``mixers`` may be.  Floats are taken as the dyadic rationals they hold.
    Over GF(p) a bar may die earlier than over Q: exactly where p divides every minor of some rank
    (:func:`streamgauge.theory.modular.divided_minor`).

    **Raises** :class:`InputError` for bad maps, for a ``prime`` that is none, and for one that divides a denominator.
    Cost: O(L n^3) field operations.
    """
    chain = (mixers if isinstance(mixers, Chain) else Chain(mixers)).rational()
    if prime is None:
        swept = sweep_rational(chain.mixers, chain.dims)
    else:
        identity = flint.fmpq_mat(0, 0)
        reduce(identity, prime)  # refuses a bad prime also for a chain without sites
        swept = sweep_modular([reduce(a, prime, f"mixer {l}") for l, a in enumerate(chain.mixers)], chain.dims, prime)
    return Barcode(swept.bars, chain.dims, prime)
