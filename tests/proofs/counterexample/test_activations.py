"""Branches: the tail polynomials against numbers, and which kinds the theorem covers."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.proofs.counterexample.activations import (
    GELU,
    IDENTITY,
    KINDS,
    PHI,
    RELU,
    RELU_SQUARED,
    SIGMOID,
    SWISH,
    Branch,
    Unit,
    ball,
    covered,
    vanishes_at_zero,
)

quick = settings(deadline=None, derandomize=True, database=None, max_examples=50)
ACTS = [SWISH, GELU, RELU, IDENTITY, SIGMOID, RELU_SQUARED]
numbers = st.builds(Fraction, st.integers(-12, 12).filter(bool), st.integers(1, 4))
any_units = st.builds(Unit, act=st.sampled_from(ACTS), m=numbers, w=numbers, v=numbers, c=numbers, b=numbers)
any_branches = st.builds(
    lambda us, bias: Branch(tuple(us), bias), st.lists(any_units, min_size=1, max_size=3), numbers
)


@quick
@given(any_branches, st.sampled_from([1, -1]))
def test_the_tail_polynomial_is_what_the_branch_becomes(branch, side):
    """Biases everywhere: far out, the branch and its tail differ by an exponentially small number."""
    with flint.ctx.workprec(500):
        z = flint.arb(side * 3000)
        polynomial = sum((ball(c) * z**i for i, c in enumerate(branch.tail(side))), flint.arb(0))
        assert abs(branch(z) - polynomial) < flint.arb(2) ** -100


@quick
@given(any_branches, st.integers(-40, 40))
def test_balls_expressions_and_arrays_are_one_function(branch, fifths):
    z = Fraction(fifths, 5)
    value = float(branch(ball(z)))
    size = 1 + sum(abs(float(u.m * (abs(u.w) * 8 + abs(u.c)) * (8 * abs(u.v) + abs(u.b)) ** 2)) for u in branch.units)
    assert abs(float(branch.expression(sp.Rational(str(z))).evalf()) - value) < 1e-12 * size
    assert abs(float(branch.array(np.array([float(z)]))[0]) - value) < 1e-12 * size


def test_a_gate_that_is_off():
    """v = b = 0: the unit is linear with slope act(0), which only the sigmoid has."""
    assert Branch((Unit(SIGMOID, v=0),)).tail(1) == (0, Fraction(1, 2))
    assert Branch((Unit(SWISH, v=0),)).tail(1) == ()
    biased = Branch((Unit(SWISH, v=0, b=1),)).tail(1)
    assert sp.simplify(biased[1] - 1 / (1 + sp.exp(-1))) == 0


def test_phi_is_the_scalar_swiglu():
    assert PHI.tail(1) == (0, 0, 1)
    assert PHI.tail(-1) == ()
    assert PHI.kappa(-1) == 0


CAN = ["SwiGLU, up-projection bias", "SwiGLU, gate bias", "SiLU", "GELU", "ReLU", "GLU"]
CANNOT = ["SwiGLU", "GeGLU", "ReGLU", "bilinear", "ReLU^2", "SwiGLU, down-projection bias"]


def test_every_kind_is_listed():
    assert set(KINDS) == {*CAN, *CANNOT}


@pytest.mark.parametrize("name", CANNOT)
def test_covered(name):
    found = covered(KINDS[name])
    assert found
    assert ("T0" in found.reason) == vanishes_at_zero(KINDS[name])


@pytest.mark.parametrize("name", CAN)
def test_not_covered_and_the_witness_names_the_term(name):
    found = covered(KINDS[name])
    assert not found
    assert found.witness["power"] == 1
    assert found.witness["coefficient"] in {"v", "w", "b*w", "c*v"}


@pytest.mark.parametrize("name", KINDS)
def test_the_decision_agrees_with_random_members(name):
    """A second route: tails of 60 random branches of the kind have only powers 0 and 2, or one of them has not."""
    kind = KINDS[name]
    rng = np.random.default_rng(0)

    def number() -> Fraction:
        return Fraction(int(rng.integers(1, 9)) * int(rng.choice([-1, 1])), int(rng.integers(1, 4)))

    clean = True
    for _ in range(60):
        gate = number() * int(rng.integers(0, 4) > 0)
        bias = number() if kind.gate_bias else 0
        up = (number() if kind.gated else 0, number() if kind.up_bias else int(not kind.gated))
        unit = Unit(kind.act, m=number(), w=up[0], v=gate, c=up[1], b=bias)
        for side in (1, -1):
            tail = Branch((unit,), number() if kind.down_bias else 0).tail(side)
            clean &= all(c == 0 for i, c in enumerate(tail) if i not in (0, 2))
    assert clean == bool(covered(kind))


def test_a_kind_without_quadratic_tail_is_no_counterexample():
    """Constants pass the tails but leave nothing to make the target of."""
    constant = dataclasses.replace(SIGMOID, name="constant", plus=(1,), minus=(1,), value=Fraction(1))
    found = covered(dataclasses.replace(KINDS["SiLU"], name="constant", act=constant))
    assert not found
    assert "no quadratic tail" in found.reason
