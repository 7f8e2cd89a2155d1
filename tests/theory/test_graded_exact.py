"""The exact graded form: exactly, over Q, with gates in [0, 1] and the barcode of the chain."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from mutated_module import assert_passes, mutated, survives

from streamgauge.theory import exact
from streamgauge.theory import graded_exact as module
from streamgauge.theory.chain import Chain, fractions
from streamgauge.theory.errors import InputError
from streamgauge.theory.graded import graded_form
from streamgauge.theory.graded_batch import bars_of
from streamgauge.theory.graded_exact import graded_exact
from streamgauge.theory.rounding import floating_form
from streamgauge.theory.strategies import deficit_chains, square_chains


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def solves(form):
    """A P = P' D and det P != 0 with Python fractions alone: no flint, no code of the form."""

    def times(a, b):
        return [[sum((x * y for x, y in zip(row, column)), Fraction(0)) for column in zip(*b)] for row in a]

    gauge = [fractions(p) for p in form.gauge]
    for a, p, q, gates in zip(form.chain.mixers, gauge, gauge[1:], form.gates):
        right = [[x * g for x, g in zip(row, gates)] for row in q]
        if times(fractions(a), p) != right:
            return False
    return all(p.det() != 0 for p in form.gauge)


@cases(60)
@given(deficit_chains(max_n=5, max_sites=10))
def test_doubly_stochastic_chains(planted):
    form = graded_form(planted.chain)
    assert solves(form)
    assert form.check()
    assert [sum(g == 0 for g in gates) for gates in form.gates] == [planted.n - r for r in planted.ranks]
    assert all(isinstance(g, Fraction) and 0 <= g <= 1 for gates in form.gates for g in gates)
    # the anchor is 1 with gate 1; the others sum to zero while the anchor's covector is 1
    for p in form.gauge:
        assert {p[i, 0] for i in range(planted.n)} == {flint.fmpq(1)}
        assert all(sum((p[i, j] for i in range(planted.n)), flint.fmpq(0)) == 0 for j in range(1, planted.n))
    assert all(gates[0] == 1 for gates in form.gates)
    assert bars_of(form.gates, planted.n) == form.bars


@cases(60)
@given(square_chains(max_n=5, max_sites=8))
def test_planted_bars(planted):
    form = graded_form(planted.chain)
    assert solves(form)
    assert sorted((bar.birth, bar.death) for bar in form.bars) == list(planted.bars)
    assert all(g >= 0 for gates in form.gates for g in gates)
    assert [label.rank for label in form.ranks] == [a.rank() for a in planted.mixers]
    assert all(label.exact for label in form.ranks)
    for p in form.gauge:
        for j in range(p.ncols()):
            assert max(abs(p[i, j]) for i in range(p.nrows())) == 1 or "slot 0 is the anchor" in form.notes


def random_chain(n, sites, seed):
    """Doubly stochastic mixers, some with two rows averaged."""
    rng = np.random.default_rng(seed)
    mixers = []
    for _ in range(sites):
        weights = [int(w) for w in rng.integers(1, 9, size=n)]
        a = exact.zeros(n, n)
        for w in weights:
            for i, j in enumerate(rng.permutation(n)):
                a[i, int(j)] = a[i, int(j)] + flint.fmpq(w, sum(weights))
        if rng.random() < 0.3:
            half = exact.identity(n)
            half[0, 0] = half[0, 1] = half[1, 0] = half[1, 1] = flint.fmpq(1, 2)
            a = a * half
        mixers.append(a)
    return Chain(mixers)


@pytest.mark.parametrize(("n", "sites"), [(3, 40), (4, 64), (6, 24)])
def test_as_well_conditioned_as_the_float_form(n, sites):
    chain = random_chain(n, sites, n)
    form = graded_form(chain)
    rounded, numeric = floating_form(form), graded_form(chain.floating())
    assert rounded.check(1e-14)
    assert rounded.bars == numeric.bars
    worst = [max(float(np.linalg.cond(p)) for p in f.gauge) for f in (rounded, numeric)]
    assert worst[0] <= 5 * worst[1]
    assert worst[0] <= 1e4
    # digits stay linear in the length of the chain
    longest = max(int(g.denominator).bit_length() for gates in form.gates for g in gates)
    assert longest <= 40 * n * sites


def test_column_stochastic_chain_has_one_norm():
    column = [[Fraction(1, 2), Fraction(1, 3)], [Fraction(1, 2), Fraction(2, 3)]]
    form = graded_form(Chain([column] * 5))
    assert "1-norm" in form.notes[0]
    assert solves(form)
    assert all(0 <= g <= 1 for gates in form.gates for g in gates)
    row = [list(r) for r in zip(*column)]
    assert "max norm" in graded_form(Chain([row] * 5)).notes[0]


def test_entry_and_readout_are_the_anchor():
    mixers = [[[2, 1], [1, 1]], [[1, 1], [0, 2]], [[1, 0], [3, 1]]]
    form = graded_form(Chain(mixers, entry=[1, 2], readout=[1, 1]))
    assert solves(form)
    assert fractions(form.entry)[1] == [0]
    assert fractions(form.readout)[0][1] == 0
    silent = graded_form(Chain([[[0, -1], [1, 0]]], entry=[1, 0], readout=[1, 0]))
    assert any("no anchor" in note for note in silent.notes)
    assert solves(silent)


@pytest.mark.parametrize("given_", [{"entry": [1, 2]}, {"readout": [0, 1]}, {}])
def test_one_end_is_enough(given_):
    form = graded_form(Chain([[[2, 1], [1, 1]]] * 3, **given_))
    assert solves(form)
    assert ("slot 0 is the anchor" in form.notes) == bool(given_)


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("sites", [0, 1, 4])
@pytest.mark.parametrize("zero", [False, True])
def test_edges(n, sites, zero):
    mixer = exact.zeros(n, n) if zero else exact.identity(n)
    form = graded_form(Chain([mixer] * sites, dim=n))
    assert solves(form)
    assert len(form.bars) == n * (1 + sites * zero)


def test_huge_and_tiny_entries():
    big = Fraction(10) ** 400
    form = graded_form(Chain([[[big, 1], [0, big]], [[1 / big, 0], [1, 1 / big]]]))
    assert solves(form)
    assert all(g > 0 for gates in form.gates for g in gates)


def test_refuses_what_is_not_its():
    for chain in (Chain([np.eye(2)]), Chain([[[1, 0]]])):
        with pytest.raises(
            InputError, match=r"^chain: found a float or rectangular one, expected an exact square chain$"
        ):
            graded_exact(chain)


def test_controls_miss():
    form = graded_form(random_chain(4, 12, 1))
    assert solves(form)

    class Other:
        chain, gates, gauge = form.chain, form.gates, tuple(p.transpose() for p in form.gauge)

    assert not solves(Other)
    Other.gauge = (form.gauge[0], *form.gauge[:-1])
    assert not solves(Other)
    Other.gauge, Other.gates = form.gauge, tuple(tuple(reversed(g)) for g in form.gates)
    assert not solves(Other)


def battery(made):
    for chain in (random_chain(4, 64, 4), random_chain(3, 40, 5)):
        form = made.graded_exact(chain)
        assert solves(form)
        assert all(0 <= g <= 1 for gates in form.gates for g in gates)
        assert all(gates[0] == 1 for gates in form.gates)
        assert form.bars == graded_exact(chain).bars
        worst = [max(float(np.linalg.cond(p)) for p in floating_form(f).gauge) for f in (form, graded_exact(chain))]
        assert worst[0] <= 3 * worst[1]
    form = made.graded_exact(Chain([[[2, 1], [1, 1]]] * 2, entry=[1, 2], readout=[1, 1]))
    assert fractions(form.entry)[1] == [0]
    assert fractions(form.readout)[0][1] == 0


MUTANTS = [
    ("factor = -_dot(d, v)", "factor = _dot(d, v)"),
    ("-image[0, bar.slot] / image[0, anchor.slot]", "0 * image[0, bar.slot] / image[0, anchor.slot]"),
    ("range(bar.birth, min(bar.death, elder.death) + 1)", "range(bar.birth, min(bar.death, elder.death))"),
    ("[b / a if alive", "[a / b if alive"),
    ("ends = _ends(chain, maps) if n else None", "ends = None"),
    ("EXTRA_BITS = 16", "EXTRA_BITS = -40"),
]


def test_unmutated_battery():
    assert_passes(battery, module)


@pytest.mark.parametrize(("old", "new"), MUTANTS)
def test_mutants_die(old, new):
    assert not survives(battery, mutated(module, old, new))
