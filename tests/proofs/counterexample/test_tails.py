"""Tails: the proved bounds against mpmath at many points, and proofs that must fail."""

from __future__ import annotations

from fractions import Fraction

import flint
import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.proofs.counterexample import tails
from streamgauge.proofs.counterexample.activations import GELU, IDENTITY, RELU, SIGMOID, SWISH, Branch, Unit, ball

quick = settings(deadline=None, derandomize=True, database=None, max_examples=60)
mpmath.mp.dps = 60


def phi(t):
    return t * t / (1 + mpmath.exp(-t))


PROVED = {
    "first": (tails.first_remainder(), Fraction(2, 5), Fraction(1)),
    "second": (tails.second_remainder(), Fraction(1, 2), Fraction(9, 4)),
    "negative": (tails.negative_side(), Fraction(1, 9), Fraction(1)),
}
DIRECT = {
    "first": lambda q: (q**2 - phi(q)) * mpmath.exp(q) / q**2,
    "second": lambda q: (q**4 - phi(phi(q))) * mpmath.exp(q) / q**4,
    "negative": lambda q: phi(phi(-q)) * mpmath.exp(2 * q) / q**4,
}


@pytest.mark.parametrize("name", PROVED)
def test_proved_on_the_ray_and_true_where_mpmath_looks(name):
    ratio, low, high = PROVED[name]
    assert tails.proved_on_ray(ratio, low, high)
    for i in range(1, 200):
        q = mpmath.mpf(i * i) / 400  # up to 99
        value = DIRECT[name](q)
        assert float(low) <= float(value) <= float(high), (name, q)
        inside = ratio.at(flint.arb(i * i) / 400)
        assert abs(float(inside) - float(value)) <= 1e-9 * float(value)
        least, most = ratio.beyond(flint.arb(i * i) / 400) if i * i >= 1600 else (None, None)
        assert least is None or float(least) <= float(value) * (1 + 1e-12) <= float(most) * (1 + 2e-12)


@pytest.mark.parametrize("name", PROVED)
def test_bounds_a_tenth_tighter_than_the_truth_are_not_proved(name):
    ratio, low, high = PROVED[name]
    values = [DIRECT[name](mpmath.mpf(i) / 10) for i in range(1, 80)]
    least, most = (Fraction(float(v)) for v in (min(values), max(values)))
    for bounds in ((least * Fraction(11, 10), high), (low, most * Fraction(9, 10))):
        found = tails.proved_on_ray(ratio, *bounds)
        assert not found
        assert found.witness["Q"]


def test_a_bound_attained_at_a_point_stays_undecided():
    """1/2 is the value of sigma at 0: balls cannot decide, and say so instead of running on."""
    found = tails.proved_on_ray(tails.first_remainder(), Fraction(1, 2), Fraction(1))
    assert not found
    assert "undecided" in found.reason


NEGATIVE_SAMPLES = {10: 1.03282e-5, 20: 3.39868e-13}
"""phi(phi(-Q)) at Q."""


def test_the_samples():
    for q, value in tails.SAMPLES.items():
        exact = mpmath.mpf(q) ** 4 - phi(phi(mpmath.mpf(q)))
        assert abs(exact / value - 1) < 5e-6
        assert abs(float(tails.composed_remainder(q)) / float(exact) - 1) < 1e-12
    for q, value in NEGATIVE_SAMPLES.items():
        exact = phi(phi(-mpmath.mpf(q)))
        assert abs(exact / value - 1) < 5e-6
        assert abs(float(tails.composed_remainder(q, negative=True)) / float(exact) - 1) < 1e-12


ACTS = {
    "swish": (SWISH, lambda t: t / (1 + mpmath.exp(-t))),
    "gelu": (GELU, lambda t: t * mpmath.erfc(-t / mpmath.sqrt(2)) / 2),
    "relu": (RELU, lambda t: max(t, mpmath.mpf(0))),
    "identity": (IDENTITY, lambda t: t),
}


@pytest.mark.parametrize("name", ACTS)
def test_activation_tails(name):
    act, direct = ACTS[name]
    assert tails.activation_tail(act)
    for i in range(-120, 121):
        t = mpmath.mpf(i) / 4
        p = (act.plus if t > 0 else act.minus) or (0,)
        polynomial = sum(c * t**k for k, c in enumerate(p))
        assert abs(direct(t) - polynomial) <= abs(t) * mpmath.exp(-abs(t)) + mpmath.mpf(10) ** -50
        assert abs(float(act.ball(flint.arb(i) / 4)) - float(direct(t))) < 1e-12
    assert float(act.value) == float(direct(mpmath.mpf(0)))


def test_the_sigmoid_is_not_like_that():
    found = tails.activation_tail(SIGMOID)
    assert not found
    assert found.witness["Q"]


def test_the_largest_value_of_t2_exp():
    assert tails.largest_of_square_times_exponential()


weights = st.builds(Fraction, st.integers(-12, 12).filter(bool), st.integers(1, 4))
units = st.builds(Unit, act=st.sampled_from([SWISH, GELU, RELU, IDENTITY]), m=weights, w=weights, v=weights)
branches = st.builds(lambda us: Branch(tuple(us)), st.lists(units, min_size=1, max_size=5))


@quick
@given(branches, st.integers(-400, 400).filter(bool))
def test_branches_of_any_width_stay_within_the_bounds(branch, eighths):
    """|G - kappa z^2| within both bounds, |G| within the growth, in 300-bit balls."""
    with flint.ctx.workprec(300):
        z = ball(Fraction(eighths, 8))
        away = abs(branch(z) - ball(branch.kappa(1 if eighths > 0 else -1)) * z * z)
        slack = flint.arb(2) ** -200
        assert away <= tails.remainder_bound(branch, z) + slack
        assert tails.remainder_bound(branch, z) <= tails.constant_bound(branch) + slack
        assert abs(branch(z)) <= tails.growth(branch) * z * z + slack


@quick
@given(branches)
def test_half_the_bound_is_too_little_somewhere(branch):
    """The control: for a single swish unit the bound is attained up to a factor 2 at the far end."""
    unit = Branch((Unit(SWISH, *(getattr(branch.units[0], k) for k in "mwv")),))
    with flint.ctx.workprec(400):
        z = 20 / abs(ball(unit.units[0].v))
        away = abs(unit(z) - ball(unit.kappa(1)) * z * z)
        assert away > tails.remainder_bound(unit, z) / 2
