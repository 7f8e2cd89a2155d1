"""The strategies give what they promise, and with the spread that makes the property tests mean something."""

from __future__ import annotations

from collections import Counter

import flint
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from streamgauge.theory import exact
from streamgauge.theory.barcode import barcode
from streamgauge.theory.errors import InputError
from streamgauge.theory.strategies import (
    counted,
    deficit_chains,
    doubly_stochastic,
    permutation_matrices,
    planted_chains,
    rectangular_chains,
    regauged,
    square_chains,
    unimodular,
)

SIZES = st.integers(1, 6)


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def ones(n):
    return flint.fmpq_mat(n, 1, [1] * n)


def is_doubly_stochastic(a):
    n = a.nrows()
    return a * ones(n) == ones(n) == a.transpose() * ones(n) and all(x >= 0 for x in a.entries())


def ranked(n):
    """(rank, matrix of that rank)."""
    return st.integers(1, n).flatmap(lambda r: st.tuples(st.just(r), doubly_stochastic(n, rank=r)))


def is_permutation(a):
    return is_doubly_stochastic(a) and all(x in (0, 1) for x in a.entries())


def sample(strategy, count):
    """What hypothesis draws, in order, from a fixed seed."""
    seen = []

    @cases(count)
    @given(strategy)
    def collect(value):
        seen.append(value)

    collect()
    return seen


def test_distribution_of_doubly_stochastic_matrices():
    """At least 80 % full rank and 5 % deficient; permutations occur but do not crowd out the rest."""
    drawn = sample(st.integers(2, 6).flatmap(doubly_stochastic), 600)
    assert len(drawn) == 600
    assert all(is_doubly_stochastic(a) for a in drawn)
    full = sum(a.rank() == a.nrows() for a in drawn) / len(drawn)
    permutations = sum(is_permutation(a) for a in drawn) / len(drawn)
    assert 0.80 <= full <= 0.95
    assert 0.05 <= permutations <= 0.45
    assert set(Counter(a.nrows() for a in drawn)) == {2, 3, 4, 5, 6}
    assert {a.nrows() - a.rank() for a in drawn} >= {0, 1, 2, 3}
    assert len({str(a.tolist()) for a in drawn}) > 300


def test_distribution_of_chains():
    square, rectangular = sample(square_chains(), 100), sample(rectangular_chains(), 100)
    for drawn in (square, rectangular):
        lengths = Counter(len(c.mixers) for c in drawn)
        assert min(lengths) == 0
        assert max(lengths) == 12
        assert sum(lengths[k] for k in range(4, 13)) > 30
        assert any(a.rank() == 0 for c in drawn for a in c.mixers)  # zero maps
        assert any(b > 0 and d < len(c.mixers) for c in drawn for b, d in c.bars)  # lanes used again
        assert max(max(c.dims) for c in drawn) == 6
    assert all(len(set(c.dims)) == 1 for c in square)
    assert sum(len(set(c.dims)) > 1 for c in rectangular) > 50
    sites = [rank < c.n for c in sample(deficit_chains(min_n=2), 100) for rank in c.ranks]
    assert 0.15 < sum(sites) / len(sites) < 0.6


@cases(60)
@given(SIZES.flatmap(lambda n: st.tuples(unimodular(n), permutation_matrices(n))))
def test_unimodular_and_permutations(pair):
    matrix, turn = pair
    assert abs(matrix.det()) == 1
    assert all(x.q == 1 for x in (*matrix.entries(), *matrix.inv().entries()))
    assert is_permutation(turn)


@cases(60)
@given(SIZES.flatmap(ranked))
def test_planted_rank(pair):
    rank, a = pair
    assert is_doubly_stochastic(a)
    assert a.rank() == rank


@cases(60)
@given(planted_chains())
def test_planted_chains_are_what_they_say(chain):
    sites = len(chain.mixers)
    assert len(chain.dims) == sites + 1 == len(chain.gauge)
    assert min(chain.dims) >= 1
    for l, a in enumerate(chain.mixers):
        assert (a.nrows(), a.ncols()) == (chain.dims[l + 1], chain.dims[l])
        assert all(x.q == 1 for x in a.entries())
        both = [1 for b, d in chain.bars if b <= l < d]
        assert a.rank() == len(both)  # bars alive on both sides
    for level, n in enumerate(chain.dims):
        assert sum(b <= level <= d for b, d in chain.bars) == n
    assert chain.chain.dims == chain.dims


@cases(40)
@given(planted_chains(max_n=4, max_sites=6).flatmap(lambda c: st.tuples(st.just(c), regauged(c.mixers, c.dims))))
def test_regauging_keeps_the_bars(pair):
    chain, mixers = pair
    assert counted(chain.bars) == (barcode(mixers) if mixers else barcode(chain.chain)).multiplicities()


@cases(40)
@given(deficit_chains())
def test_deficit_chains_are_what_they_say(chain):
    assert all(is_doubly_stochastic(a) and a.rank() == rank for a, rank in zip(chain.mixers, chain.ranks))
    assert chain.chain.dims == (chain.n,) * (len(chain.mixers) + 1)


def test_shrinks_to_the_smallest_bar_that_is_born_and_dies():
    found = find(
        square_chains(max_n=2, max_sites=4),
        lambda c: any(0 < b < d < len(c.mixers) for b, d in c.bars),
        settings=settings(max_examples=2000, deadline=None, derandomize=True, database=None),
    )
    assert found.dims == (1, 1, 1, 1)
    assert [a.rank() for a in found.mixers] == [0, 1, 0]


def test_no_deficient_matrix_hides_among_full_ranks():
    with pytest.raises(NoSuchExample):
        find(
            doubly_stochastic(3, rank=3),
            lambda a: a.rank() < 3,
            settings=settings(max_examples=300, deadline=None, derandomize=True, database=None),
        )


@pytest.mark.parametrize(("n", "rank"), [(0, None), (3, 0), (3, 4)])
def test_refusals(n, rank):
    with pytest.raises(InputError, match=rf"^n, rank: found {n}, {rank}, expected n at least 1 and rank 1 to n"):
        find(doubly_stochastic(n, rank=rank), lambda a: True)


def test_empty_gauge():
    assert find(unimodular(0), lambda a: True) == exact.zeros(0, 0)
