"""Cost formulas against a count of what each pass touches, and the constants of the note."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from streamgauge.theory.cost import (
    hc_ratio,
    hc_traffic,
    recompute_group,
    recompute_memory,
    recompute_optimum,
    residual_traffic,
    write_traffic,
)
from streamgauge.theory.errors import InputError


def unfused_passes(n: int, d: int) -> tuple[int, int]:
    """The paper's six passes of one site as (elements in, elements out)."""
    passes = [
        (n * d, n * n + 2 * n),  # coefficients from the streams
        (n * d + n, d),  # read
        (d + n, n * d),  # write, apart
        (n * d + n * n, n * d),  # mix
        (2 * n * d, n * d),  # add
    ]
    return sum(p[0] for p in passes), sum(p[1] for p in passes)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("d", [1, 5, 4096])
def test_traffic_is_the_sum_over_the_passes(n: int, d: int) -> None:
    reads, writes = unfused_passes(n, d)
    found = hc_traffic(n, d)
    assert (found.reads, found.writes) == (reads, writes)
    assert found.total == (8 * n + 2) * d + 2 * n * n + 4 * n
    apart, fused = write_traffic(n, d, fused=False), write_traffic(n, d, fused=True)
    assert (apart.reads, apart.writes) == ((3 * n + 1) * d, 3 * n * d)  # write, mix and add without coefficients
    assert (fused.reads, fused.writes) == (d + n * d, n * d)  # branch and streams in, streams out


def test_constants_of_the_note() -> None:
    wide = 10**9
    assert hc_traffic(4, wide).total - 34 * wide == 48
    assert residual_traffic(wide).total == 3 * wide
    assert hc_ratio(4) == Fraction(34, 3)
    assert abs(hc_traffic(4, wide).total / residual_traffic(wide).total - 34 / 3) < 1e-7
    assert write_traffic(4, 1, fused=False).total == 25
    assert write_traffic(4, 1, fused=True).total == 9
    assert 1 - Fraction(9, 25) == Fraction(64, 100)


def test_recompute_group() -> None:
    assert recompute_optimum(n=4, sites=60) == pytest.approx(6.324555320336759, abs=1e-15)
    assert recompute_optimum(n=4, sites=30) == pytest.approx(4.47, abs=5e-3)
    assert recompute_group(n=4, sites=60) == (6, 76)
    assert recompute_memory(5, n=4, sites=60) == recompute_memory(7, n=4, sites=60) == 78
    assert recompute_memory(6, n=4, sites=60, d=10) == 760


@pytest.mark.parametrize("n", [1, 2, 4, 8])
@pytest.mark.parametrize("sites", [1, 7, 30, 60, 122])
def test_recompute_optimum_is_a_minimum(n: int, sites: int) -> None:
    best, memory = recompute_group(n=n, sites=sites)
    table = {r: n * math.ceil(sites / r) + (n + 2) * r for r in range(1, sites + 1)}
    assert memory == table[best] == min(table.values())
    star = recompute_optimum(n=n, sites=sites)

    def smooth(r: float) -> float:
        return n * sites / r + (n + 2) * r

    assert smooth(star) == pytest.approx(2 * math.sqrt(n * sites * (n + 2)), rel=1e-14)
    assert min(smooth(star * 1.01), smooth(star / 1.01)) > smooth(star)
    assert memory >= smooth(star) - 1e-9  # a ceiling only adds
    naive = recompute_memory(1, n=n, sites=sites)
    assert memory <= naive


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hc_traffic(0, 4), "n: found 0, expected an integer of at least 1"),
        (lambda: hc_traffic(4, 1.5), "d: found 1.5"),
        (lambda: hc_ratio(True), "n: found True"),
        (lambda: recompute_memory(0, n=4, sites=60), "group: found 0"),
        (lambda: recompute_group(n=4, sites=-1), "sites: found -1"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
