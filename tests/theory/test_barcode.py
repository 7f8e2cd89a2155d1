"""The barcode over Q and GF(p), against the rank formula, and the primes that change it."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives

from streamgauge.theory import ranks as ranks_module
from streamgauge.theory.barcode import barcode
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.modular import divided_minor, reduce
from streamgauge.theory.ranks import composite, multiplicities, rank_table
from streamgauge.theory.strategies import counted, deficit_chains, planted_chains

HALF = Fraction(1, 2)
DENOMINATOR = "has a denominator divisible by {}; expected a prime that divides none"
AVERAGE = [[HALF, HALF], [HALF, HALF]]
SMALL_PRIMES = [2, 3, 5, 7, 11, 13]


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


@cases(100)
@given(planted_chains())
def test_bars_multiplicities_and_ranks(chain):
    found = barcode(chain.chain)
    assert found.dims == chain.dims
    assert found.prime is None
    assert found.multiplicities() == counted(chain.bars)
    for (b, d), count in counted(chain.bars).items():
        assert found.multiplicity(b, d) == count
    assert found.multiplicity(len(chain.mixers) + 1, 0) == 0
    table = rank_table(chain.mixers, chain.dims)
    for (i, j), rank in table.items():
        assert found.rank(i, j) == rank
        if i < j:
            assert composite(chain.mixers, i, j).rank() == rank  # third route: multiplied out


@cases(150)
@given(
    st.one_of(planted_chains(max_n=4, max_sites=8), deficit_chains(max_n=4, max_sites=8)),
    st.sampled_from(SMALL_PRIMES),
)
def test_gf_p_agrees_unless_p_divides_a_minor(chain, prime):
    whole = [a * a.numer_denom()[1] for a in chain.mixers]  # integer maps: every prime is admissible
    dims = list(chain.chain.dims)
    over_q, over_p = barcode(Chain(whole, dim=dims[0])), barcode(Chain(whole, dim=dims[0]), prime=prime)
    assert over_p.prime == prime
    reduced = [reduce(a, prime) for a in whole]
    assert over_p.multiplicities() == multiplicities(rank_table(reduced, dims))
    shown = divided_minor(whole, dims, prime)
    assert (shown is None) == (over_p.multiplicities() == over_q.multiplicities())
    if shown is not None:
        product = composite(whole, shown.start, shown.stop)
        block = [[product[i, j] for j in shown.columns] for i in shown.rows]
        minor = flint.fmpq_mat(block).det()
        assert minor == flint.fmpq(shown.minor.numerator, shown.minor.denominator) != 0
        assert shown.minor.denominator == 1
        assert shown.minor.numerator % prime == 0
        assert product.rank() == len(shown.rows) > over_p.rank(shown.start, shown.stop)


def test_planted_chains_of_unimodular_gauges_have_no_bad_prime_and_averages_do():
    """The agreement above is not vacuous: this bad prime changes the bars, and another does not."""
    mixers = [[[2, 1], [0, 1]], [[1, 0], [0, 1]]]
    whole, bad, good = barcode(mixers), barcode(mixers, prime=2), barcode(mixers, prime=3)
    assert whole.multiplicities() == good.multiplicities() == {(0, 2): 2}
    assert bad.multiplicities() == {(0, 0): 1, (0, 2): 1, (1, 2): 1}
    shown = divided_minor(Chain(mixers).mixers, (2, 2, 2), 2)
    assert (shown.start, shown.stop, shown.rows, shown.columns, shown.minor) == (0, 1, (0, 1), (0, 1), 2)


def test_bad_prime_of_a_composite_only():
    """Both maps have full rank mod 5, their composite vanishes mod 5."""
    mixers = [[[1], [2]], [[1, 2]]]
    assert barcode(mixers).multiplicities() == {(0, 2): 1, (1, 1): 1}
    assert barcode(mixers, prime=5).multiplicities() == {(0, 1): 1, (1, 2): 1}
    shown = divided_minor(Chain(mixers).mixers, (1, 2, 1), 5)
    assert (shown.start, shown.stop, shown.minor) == (0, 2, 5)


def test_smallest_cases():
    assert barcode([AVERAGE]).multiplicities() == {(0, 0): 1, (0, 1): 1, (1, 1): 1}
    assert barcode(Chain([], dim=3)).multiplicities() == {(0, 0): 3}
    assert barcode(Chain([], dim=3), prime=7).multiplicities() == {(0, 0): 3}
    assert barcode([AVERAGE] * 3).bars[0].slot == 1  # the younger direction dies


def test_floats_are_the_dyadic_rationals_they_hold():
    """0.1 x 2.1 is not 0.3 x 0.7 in binary: no tolerance decides a rank here."""
    exact_rank = [[Fraction(1, 10), Fraction(3, 10)], [Fraction(7, 10), Fraction(21, 10)]]
    assert barcode([exact_rank]).rank(0, 1) == 1
    assert barcode([np.array(exact_rank, dtype=np.float64)]).rank(0, 1) == 2
    assert barcode([np.full((4, 4), 0.25)]).rank(0, 1) == 1


@pytest.mark.parametrize(
    ("mixers", "prime", "message"),
    [
        (
            [AVERAGE],
            2,
            "mixer 0: entry (0, 0) = 1/2 has a denominator divisible by 2; expected a prime that divides none",
        ),
        (
            [[[1, 0], [0, 1]], [[1, Fraction(5, 21)], [0, 1]]],
            7,
            f"mixer 1: entry (0, 1) = 5/21 {DENOMINATOR.format(7)}",
        ),
        ([AVERAGE], 91, "prime: found 91, expected a prime number below 2^64"),
        ([AVERAGE], 1, "prime: found 1, expected a prime number below 2^64"),
        ([AVERAGE], -3, "prime: found -3, expected a prime number below 2^64"),
        ([AVERAGE], 2**64 + 13, f"prime: found {2**64 + 13}, expected a prime number below 2^64"),
        ([AVERAGE], True, "prime: found True, expected a prime number below 2^64"),
        ([AVERAGE], 3.0, "prime: found 3.0, expected a prime number below 2^64"),
        ([], None, "mixers: found none; expected at least one, or dim, entry or readout to tell n"),
        (
            [AVERAGE, [[1, 2]], [[1, 2]]],
            None,
            "mixer 2: found shape (1, 2), expected 1 columns (the rows of mixer 1)",
        ),
    ],
)
def test_refusals(mixers, prime, message):
    with pytest.raises(InputError) as error:
        barcode(mixers, prime=prime)
    assert str(error.value) == message


@pytest.mark.parametrize(("i", "j"), [(-1, 0), (1, 0), (0, 2)])
def test_rank_outside_the_chain(i, j):
    with pytest.raises(InputError, match=rf"^rank: found levels {i} to {j}, expected 0 <= i <= j <= 1$"):
        barcode([AVERAGE]).rank(i, j)


def test_composite_outside_the_chain():
    with pytest.raises(InputError, match=r"^composite: found levels 1 to 1, expected 0 <= i < j <= 1$"):
        composite(Chain([AVERAGE]).mixers, 1, 1)


def formula_battery(module):
    for mixers, bars in (
        ([[[1, 0], [0, 0]], [[0, 0], [0, 1]]], {(0, 0): 1, (0, 1): 1, (1, 2): 1, (2, 2): 1}),
        ([AVERAGE, AVERAGE], {(0, 0): 1, (0, 2): 1, (1, 1): 1, (2, 2): 1}),
        ([[[1, 0]], [[0], [1]]], {(0, 0): 1, (0, 2): 1, (2, 2): 1}),
    ):
        chain = Chain(mixers)
        assert module.multiplicities(module.rank_table(chain.mixers, chain.dims)) == bars


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("): r(b, d) - r(b - 1, d) -", "): r(b, d) - r(b - 1, d) +"),
        ("else 0\n", "else r(max(i, 0), min(j, last))\n"),
        ("table[i, j + 1] = rank", "table[i, j + 1] = mixers[j].rank()"),
        ("if span is None else span * mixers[j]", "if span is None else mixers[j]"),
    ],
)
def test_mutants_of_the_formula_die(old, new):
    formula_battery(ranks_module)
    assert not survives(formula_battery, mutated(ranks_module, old, new))
