"""The binary form: exact 0/1 gates, float chains as dyadic rationals, integral gauges by one constant a bar."""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives

from streamgauge.theory import binary as module
from streamgauge.theory import exact
from streamgauge.theory.binary import binary_form
from streamgauge.theory.chain import Chain, fractions
from streamgauge.theory.strategies import counted, deficit_chains, planted_chains

THIRD = Fraction(1, 3)


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def columns_by_bar(form):
    """{bar: its column at every level of its life}, as Fractions."""
    return {
        bar: [
            [row[form.slots[level].index(bar.slot)] for row in fractions(form.gauge[level])]
            for level in range(bar.birth, bar.death + 1)
        ]
        for bar in form.bars
    }


@cases(120)
@given(st.one_of(planted_chains(), deficit_chains()))
def test_binary_form(chain):
    form = binary_form(chain.chain)
    assert form.check()
    assert form.form == "binary"
    assert all(type(g) is Fraction and g in (0, 1) for gate in form.gates for g in gate)
    assert [label.rank for label in form.ranks] == [a.rank() for a in chain.mixers]
    assert all(label.exact for label in form.ranks)
    if hasattr(chain, "bars"):
        assert counted([(bar.birth, bar.death) for bar in form.bars]) == counted(chain.bars)
    for bar in form.bars:  # E_l says the same as the bars
        lives = [form.gates[l][bar.slot] for l in range(bar.birth, bar.death)]
        assert all(g == 1 for g in lives)
        assert bar.death == len(form) or form.gates[bar.death][bar.slot] == 0


@cases(80)
@given(st.one_of(planted_chains(max_n=4), deficit_chains(max_n=4)))
def test_integral_form_scales_whole_bars(chain):
    plain, whole = binary_form(chain.chain), binary_form(chain.chain, integral=True)
    assert whole.check()
    assert whole.gates == plain.gates
    assert whole.bars == plain.bars
    for bar, columns in columns_by_bar(whole).items():
        numbers = [x for column in columns for x in column]
        assert all(x.denominator == 1 for x in numbers)
        assert gcd(*(x.numerator for x in numbers)) == 1
        before = [x for column in columns_by_bar(plain)[bar] for x in column]
        ratios = {x / y for x, y in zip(numbers, before) if y}
        assert len(ratios) == 1
        assert ratios.pop() > 0


def test_vectors_follow_the_gauge():
    """Reads, writes, entry and readout: the network computes the same kernel c Phi e, term by term."""
    chain = Chain(
        [[[THIRD, 2 * THIRD], [2 * THIRD, THIRD]], [[Fraction(1, 2)] * 2] * 2, [[0, 1], [1, 0]]],
        reads=[[1, 2], [3, -1], [0, 1]],
        writes=[[1, 0], [2, 5], [1, 1]],
        entry=[1, 2],
        readout=[1, -3],
    )
    form = binary_form(chain)
    assert form.check()
    states = [(chain.entry, form.entry)]
    for l in range(len(chain)):
        x, y = states[-1]
        assert chain.reads[l] * x == form.reads[l] * y
        branch = flint_scalar(chain.reads[l] * x) + 1  # any branch
        states.append(
            (chain.mixers[l] * x + chain.writes[l] * branch, form.diagonal(l) * y + form.writes[l] * branch)
        )
    assert chain.readout * states[-1][0] == form.readout * states[-1][1]
    assert all(form.gauge[l] * y == x for l, (x, y) in enumerate(states))


def flint_scalar(matrix):
    return matrix[0, 0]


def test_float_chain_is_taken_exactly():
    rng = np.random.default_rng(3)
    mixers = [rng.dirichlet(np.ones(3), size=3) for _ in range(4)] + [np.full((3, 3), 0.25)]
    form = binary_form(Chain(mixers))
    assert form.check()
    assert form.chain.exact
    assert all(np.array_equal(exact.to_floats(a), b) for a, b in zip(form.chain.mixers, mixers))
    assert [label.rank for label in form.ranks] == [3, 3, 3, 3, 1]


def battery(mutant):
    for mixers in (
        [[[THIRD, 2 * THIRD], [2 * THIRD, THIRD]], [[Fraction(1, 2)] * 2] * 2, [[Fraction(1, 5), 1], [1, 7]]],
        [[[THIRD, 1]], [[4], [Fraction(2, 7)]]],
        [[[-2, -2], [1, 1]], [[3, 1], [-2, 4]], [[1, 1], [1, 1]]],  # a bar with a common factor 2
    ):
        form = mutant.binary_form(Chain(mixers), integral=True)
        assert form.check()
        for columns in columns_by_bar(form).values():
            numbers = [x for column in columns for x in column]
            assert all(x.denominator == 1 for x in numbers)
            assert gcd(*(x.numerator for x in numbers)) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            factors[level]", "            factors[level - (level > bar.birth)]"),
        (
            "    for level in range(bar.birth, bar.death + 1):\n        p, j",
            "    for level in range(bar.birth, bar.birth + 1):\n        p, j",
        ),
        ("flint.fmpq(denominators, numerators)", "flint.fmpq(denominators)"),
    ],
    ids=["constant of the wrong level", "life cut short", "common factor left"],
)
def test_mutants_die(old, new):
    battery(module)
    assert not survives(battery, mutated(module, old, new))
