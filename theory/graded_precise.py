"""The graded form of a chain with deaths in as many bits as it takes: the way out where float64 misses a death.

A direction that stays strong for long and then dies hides from float64: rounding has turned its weaker elders
towards it.  Here every rank-deficient map is replaced by the product of its truncated singular value factors, three
floats multiplied exactly, so that its rank is exactly r; the sweep of ``graded_slots`` then runs in flint numbers of
``256 + 2 sum_l log2(sigma_1 / sigma_r)`` bits, enough for the worst growth of rounding over the whole chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flint
import numpy as np

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.graded_slots import Dying, Field, HiddenDeath, Rows, Slots, Vector, graded_slots

BASE_BITS = 256
MOST_BITS = 1 << 15


def precise_slots(maps: Floats, deaths: Sequence[int], covector: Floats | None, dying: Dying | None = None) -> Slots:
    """Covariant columns and factors as floats; maps (L, n, n), ``deaths[l]`` = n - rank A_l.

    ``covector``: w_L of the anchor; the columns then span ker w_l and are given in the coordinates of R^n.
    ``dying`` as in ``graded_slots``.

    **Raises** :class:`InputError` where the deaths still differ from the ranks in ``MOST_BITS`` bits.
    """
    growth, n = 0.0, maps.shape[-1]
    for a, dead in zip(maps, deaths):
        sigma = np.linalg.svd(a, compute_uv=False)
        growth += float(np.log2(sigma[0] / sigma[n - 1 - dead])) if dead < n else 0.0
    bits = min(BASE_BITS + 2 * int(np.ceil(growth)), MOST_BITS)
    while True:
        try:
            with flint.ctx.workprec(bits):
                return _sweep(maps, deaths, covector, bits // 2, dying)
        except HiddenDeath as hidden:
            if 2 * bits > MOST_BITS:
                raise InputError(
                    f"mixer {hidden.site}: found no {deaths[hidden.site]} deaths (n - rank) in {bits} bits; "
                    "expected a tolerance that separates its singular values"
                ) from None
            bits *= 2


def _sweep(
    maps: Floats, deaths: Sequence[int], covector: Floats | None, dead_bits: int, dying: Dying | None
) -> Slots:
    n = maps.shape[-1]

    def rounded(images: list[Vector], count: int) -> set[int]:
        return dying([[float(x) for x in v] for v in images], count) if dying else set()

    chosen = rounded if dying else None
    field = Field(flint.arb(1), lambda x: x.sqrt(), lambda x: x.mid(), _log, flint.arb(2) ** -dead_bits)
    exact = [_truncated(a, n - dead) if dead else _rows(a) for a, dead in zip(maps, deaths)]
    sizes = [flint.arb(float(np.linalg.norm(a, 2))) for a in maps]
    if covector is None:
        found = graded_slots(exact, deaths, sizes, field, by_age=lambda level: True, slack=0.0, dying=chosen)
        return Slots(_floats(found.columns), _floats(found.factors), found.broken)
    normals = [_unit([flint.arb(float(v)) for v in covector])]
    for a in reversed(exact):
        normals.append(_unit([_dot(column, normals[-1]) for column in zip(*a)]))
    bases = [_complement(w) for w in reversed(normals)]
    images = [[[_dot(row, z) for row in a] for z in basis] for a, basis in zip(exact, bases)]
    small = [[[_dot(z, v).mid() for v in image] for z in after] for after, image in zip(bases[1:], images)]
    found = graded_slots(small, deaths, sizes, field, by_age=lambda level: True, slack=0.0, dying=chosen)
    columns = [
        [[_dot(p, [z[i] for z in basis]) for i in range(n)] for p in level]
        for level, basis in zip(found.columns, bases)
    ]
    return Slots(_floats(columns), _floats(found.factors), found.broken)


def _rows(a: Floats) -> Rows:
    return [[flint.arb(float(x)) for x in row] for row in a]


def _truncated(a: Floats, rank: int) -> Rows:
    """U_r S_r V_r^T from the float factors, multiplied without rounding (their rank is exactly r)."""
    u, sigma, v = np.linalg.svd(a)
    left, right = _rows(u[:, :rank]), _rows(v[:rank])
    middle = [[flint.arb(float(s)) * x for x in row] for s, row in zip(sigma, right)]
    return [[_dot(row, column).mid() for column in zip(*middle)] if rank else [flint.arb(0)] * len(a) for row in left]


def _complement(w: Sequence[Any]) -> list[list[Any]]:
    """Orthonormal basis of w's complement by Householder, as n-1 vectors."""
    v = list(w)
    v[0] = v[0] + (-1 if v[0] < 0 else 1)
    scale = 2 / _dot(v, v)
    return [[(int(i == j) - scale * v[i] * v[j]).mid() for i in range(len(v))] for j in range(1, len(v))]


def _unit(v: Sequence[Any]) -> list[Any]:
    norm = _dot(v, v).sqrt()
    return [(x / norm).mid() for x in v]


def _dot(a: Sequence[Any], b: Sequence[Any]) -> Any:
    return sum((x * y for x, y in zip(a, b)), flint.arb(0))


def _log(x: Any) -> float:
    return float(x.log().mid())


def _floats(items: Any) -> Any:
    return [_floats(item) for item in items] if isinstance(items, list) else float(items.mid())
