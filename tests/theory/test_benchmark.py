"""What the exact benchmark times is what it says; the times themselves are not tested."""

from __future__ import annotations

import flint
import pytest

from streamgauge.theory import benchmark
from streamgauge.theory.benchmark import SpeedRow, benchmark_chain, exact_speed, speed
from streamgauge.theory.errors import InputError


@pytest.mark.parametrize("n", [2, 4, 8])
def test_chain_is_doubly_stochastic_with_three_in_ten_sites_deficient(n):
    mixers = benchmark_chain(n, 40, seed=1)
    ones = flint.fmpq_mat(n, 1, [1] * n)
    assert all(a * ones == ones == a.transpose() * ones for a in mixers)
    assert sum(a.rank() < n for a in mixers) == 12
    assert [a.tolist() for a in mixers] == [a.tolist() for a in benchmark_chain(n, 40, seed=1)]
    assert [a.tolist() for a in mixers] != [a.tolist() for a in benchmark_chain(n, 40, seed=2)]


def test_row():
    row = speed(3, 10, repeats=1, peers=True)
    assert (row.n, row.sites, row.deficient) == (3, 10, 3)
    assert row.ratio == row.basis / row.bare
    assert row.bits > 1
    assert row.sympy > 0
    assert (row.auslander is None) == (row.auslander_ratio is None)


def test_rows_of_the_command(monkeypatch):
    monkeypatch.setattr(benchmark, "SIZES", ((2, 4), (8, 4)))
    monkeypatch.setattr(benchmark, "GROWTH", ((2, 8),))
    rows = exact_speed(repeats=1)
    assert all(isinstance(row, SpeedRow) for row in rows)
    assert [(row.n, row.sites, row.sympy is None) for row in rows] == [(2, 4, True), (8, 4, False), (2, 8, True)]
    assert len(exact_speed(repeats=1, peers=False, growth=False)) == 2


def test_one_stream_is_refused():
    with pytest.raises(InputError, match=r"^n: found 1, expected at least 2 \(one stream"):
        benchmark_chain(1, 4)
