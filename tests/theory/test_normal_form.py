"""The door to the normal forms, and the verdict of ``check`` on forms that are wrong."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

import streamgauge.theory as room
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate
from streamgauge.theory.normal_form import FORMS, normal_form

HALF = Fraction(1, 2)
EXACT = Chain(
    [[[HALF, HALF], [Fraction(1, 4), Fraction(3, 4)]], [[0, 1], [1, 0]]], reads=[[1, 0]] * 2, writes=[[1, 1]] * 2
)
FLOATS = EXACT.floating()
LOW = Chain([[[HALF, HALF], [HALF, HALF]], [[0, 1], [1, 0]]])


@pytest.mark.parametrize("chain", [EXACT, FLOATS], ids=["exact", "float64"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("norm", [None, NormGate()], ids=["plain", "norm"])
def test_every_form(chain, form, norm):
    made = normal_form(chain, form, norm=norm)
    assert made.form == form
    assert made.check()
    assert (made.norm is not None) == (norm is not None)
    assert len(made) == 2
    assert made.reads is not None
    assert made.writes is not None


def test_options_reach_the_form():
    assert normal_form(EXACT, "identity", gauge="right").gauge[-1] == exact.identity(2)
    whole = normal_form(LOW, "binary", integral=True)
    assert all(x.q == 1 for p in whole.gauge for x in p.entries())
    assert normal_form(EXACT).form == "graded"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: normal_form([[1]]), "chain: found list, expected a Chain (Chain(mixers) makes one)"),
        (lambda: normal_form(EXACT, "binry"), "form: found 'binry', expected one of identity, binary, graded"),
        (lambda: normal_form(EXACT, "norm"), "form: found 'norm', expected one of identity, binary, graded"),
        (lambda: normal_form(EXACT, "binary", gauge="left"), "option 'gauge': the binary form has integral"),
        (lambda: normal_form(EXACT, "identity", integral=True), "option 'integral': the identity form has gauge"),
        (
            lambda: normal_form(LOW, "identity"),
            "mixer 0: rank 1 of 2, A v = 0 for v = (-1, 1); "
            "expected an invertible mixer (the binary and graded forms need none)",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError) as error:
        call()
    assert str(error.value) == message


def test_check_refuses_what_is_not_a_form():
    form = normal_form(EXACT, "binary")
    broken = dataclasses.replace(form, gauge=(form.gauge[0], form.gauge[1] * 2, form.gauge[2]))
    assert broken.check().reason == "site 0: A P - P' D has residual 1, expected at most 0"
    assert broken.check().witness["site"] == 0
    flat = dataclasses.replace(form, gauge=tuple(p * 0 for p in form.gauge))
    assert flat.check().reason == "gauge 0: rank 0, expected 2 (invertible)"


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_check_does_not_depend_on_the_scale_of_the_gauge(scale):
    """A wrong form is wrong however small its columns, a right one right however large."""
    form = normal_form(FLOATS, "identity")
    scaled = dataclasses.replace(form, gauge=tuple(p * scale for p in form.gauge))
    assert scaled.check()
    wrong = (scaled.gauge[0], scaled.gauge[1] * (1 + 1e-9), scaled.gauge[2])
    verdict = dataclasses.replace(scaled, gauge=wrong).check()
    assert not verdict
    assert verdict.witness["residual"] == pytest.approx(7.5e-10, rel=1e-3)


def test_check_of_columns_of_very_different_sizes():
    form = normal_form(FLOATS, "identity")
    sizes = np.diag([1.0, 1e-40])
    assert dataclasses.replace(form, gauge=tuple(p @ sizes for p in form.gauge)).check()
    dependent = dataclasses.replace(form, gauge=tuple(p @ np.array([[1.0, 1e-40], [0, 0]]) for p in form.gauge))
    assert dependent.check().reason == "gauge 0: rank 1, expected 2 (invertible)"


def test_check_refuses_nan():
    form = normal_form(FLOATS, "identity")
    broken = dataclasses.replace(form, gauge=(form.gauge[0], form.gauge[1] * np.nan, form.gauge[2]))
    assert not broken.check()


@pytest.mark.parametrize("name", room.__all__)
def test_names_of_the_room(name):
    value = getattr(room, name)
    assert getattr(value, "__name__", name) == name
    assert name in dir(room)


def test_unknown_name_of_the_room():
    with pytest.raises(AttributeError, match=r"^module 'streamgauge\.theory' has no attribute 'nothing'$"):
        _ = room.nothing


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("mixer", "before", "after", "gate"),
    [
        (1e308, 1e-5, 1.0, 2e303),
        (0.9, 1.7e308, 1.7e308, 1.8),
        (1e308, 1e308, 1.6e308, 1.25e308),
        (5e-324, 1.0, 1.0, 1e-323),
        (1e-300, 1e-300, 1e-300, 2e-300),
    ],
    ids=["row sums overflow", "sizes overflow", "both", "subnormal", "underflow"],
)
def test_check_at_the_ends_of_float64(mixer, before, after, gate):
    """A size that overflows to inf would make every residual 0, and one that underflows every residual large."""
    chain, frame = Chain([np.full((2, 2), mixer)]), np.array([[1.0, 1.0], [1.0, -1.0]])
    gates = np.array([gate, 0.0])
    form = dataclasses.replace(
        normal_form(Chain([np.full((2, 2), 0.5)]), "graded"),
        chain=chain, gauge=(before * frame, after * frame), gates=(gates,),
    )  # fmt: skip
    assert form.check()
    for wrong in ({"gates": (gates[::-1],)}, {"gates": (gates / 2,)}, {"gauge": (before * np.eye(2), after * frame)}):
        assert dataclasses.replace(form, **wrong).check().reason.startswith("site 0: A P - P' D has residual")
