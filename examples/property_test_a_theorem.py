"""Property-test a theorem about mixing with the package's own hypothesis strategies, and see a false one fail.

True: a product of doubly stochastic matrices has every row and column sum 1, and its norm is at most 1 (exactly).
False: "averaging never makes two different states equal".  Hypothesis shrinks that to the smallest chain that does.

python examples/property_test_a_theorem.py
"""

from __future__ import annotations

from fractions import Fraction

import flint
from hypothesis import given, settings
from hypothesis.errors import HypothesisException

import streamgauge as sg
from streamgauge import strategies

fixed = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def composite(chain: strategies.DeficitChain) -> flint.fmpq_mat:
    """A_{L-1} .. A_0."""
    out = flint.fmpq_mat(chain.n, chain.n, [int(i == j) for i in range(chain.n) for j in range(chain.n)])
    for mixer in chain.mixers:
        out = mixer * out
    return out


@fixed
@given(strategies.deficit_chains())
def products_stay_doubly_stochastic(chain: strategies.DeficitChain) -> None:
    table = composite(chain).tolist()
    assert all(sum(row) == 1 for row in table)
    assert all(sum(column) == 1 for column in zip(*table))
    assert min(min(row) for row in table) >= 0


@fixed
@given(strategies.planted_chains())
def bars_are_the_planted_ones(planted: strategies.PlantedChain) -> None:
    found = sorted((bar.birth, bar.death) for bar in sg.barcode(planted.chain).bars)
    assert found == sorted(planted.bars)


@fixed
@given(strategies.deficit_chains())
def averaging_keeps_states_apart(chain: strategies.DeficitChain) -> None:
    assert composite(chain).rank() == chain.n, f"{len(chain.mixers)} sites, {chain.n} streams, ranks {chain.ranks}"


products_stay_doubly_stochastic()
print("holds: products of doubly stochastic mixers are doubly stochastic")
bars_are_the_planted_ones()
print("holds: the bars found are the bars planted")

smallest = ""
try:
    averaging_keeps_states_apart()
except AssertionError as error:
    smallest = str(error).splitlines()[0]
except HypothesisException as error:
    raise SystemExit(f"the search itself failed: {error}") from None
print("refuted: averaging keeps states apart; the smallest chain that does not:", smallest)

half = Fraction(1, 2)
average = sg.Chain([[[half, half], [half, half]]])
if not smallest or sg.barcode(average).rank(0, 1) != 1:
    raise SystemExit("a false theorem passed, or the average of two streams is not singular")
