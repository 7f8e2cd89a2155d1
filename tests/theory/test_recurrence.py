"""The scalar recurrence over Q: the equation, the pinned level, and where the free solution is smallest."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives

from streamgauge.theory import recurrence as module

POSITIVE = st.fractions(Fraction(1, 8), 8, max_denominator=8)
SITES = st.lists(st.tuples(POSITIVE, POSITIVE, st.fractions(-3, 3, max_denominator=8)), max_size=9)


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(SITES, st.data())
def test_equation_and_pin_hold_exactly(sites, data):
    pin, value = data.draw(st.integers(0, len(sites))), data.draw(st.fractions(-2, 2, max_denominator=8))
    elder, own, forcing = ([site[k] for site in sites] for k in range(3))
    x = module.solved(elder, own, forcing, pin, value)
    assert len(x) == len(sites) + 1
    assert x[pin] == value
    assert all(a * x[l] + f == b * x[l + 1] for l, (a, b, f) in enumerate(sites))
    if sites:  # control: another value at one level breaks it
        y = [*x[:-1], x[-1] + 1]
        assert any(a * y[l] + f != b * y[l + 1] for l, (a, b, f) in enumerate(sites))


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(SITES)
def test_weakest_level_is_the_smallest_product(sites):
    elder, own, _ = ([site[k] for site in sites] for k in range(3))
    products = [prod((b / a for a, b in zip(elder[:l], own[:l])), start=Fraction(1)) for l in range(len(sites) + 1)]
    found = module.weakest_level(elder, own)
    assert float(products[found]) == pytest.approx(float(min(products)), rel=1e-12)


def test_every_number_is_cleaned():
    assert module.solved([1, 1], [2, 2], [1, 1], 1, 0.4, round) == [-1, 0, 0]


def battery(m):
    elder, own, forcing = (
        [Fraction(2), Fraction(3), Fraction(1, 5)],
        [Fraction(1), Fraction(1, 2), Fraction(4)],
        [1, -1, 2],
    )
    for pin in range(4):
        x = m.solved(elder, own, forcing, pin, Fraction(1, 7))
        assert x[pin] == Fraction(1, 7)
        assert all(elder[l] * x[l] + forcing[l] == own[l] * x[l + 1] for l in range(3))
    assert m.weakest_level(elder, own) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[l + 1] - forcing[l]) / elder[l]", "x[l + 1] + forcing[l]) / elder[l]"),
        ("x[l] + forcing[l]) / own[l]", "x[l] - forcing[l]) / own[l]"),
        ("range(pin - 1, -1, -1)", "range(pin - 2, -1, -1)"),
        ("pin, least = l + 1, ratio", "pin, least = l, ratio"),
        ("log(b) - log(a)", "log(a) - log(b)"),
    ],
)
def test_mutants_die(old, new):
    battery(module)
    assert not survives(battery, mutated(module, old, new))
