"""The mean-preserving gate and the norm gate: what they keep, what they do not, and how a stack of them grows."""

from __future__ import annotations

import math
from fractions import Fraction
from types import ModuleType

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives
from refusals import assert_refused

from streamgauge.theory import gates as module
from streamgauge.theory.doubly import doubly_stochastic, uniform
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import fraction, identity, to_floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import (
    mean_gate_doubly_stochastic,
    mean_preserving_gate,
    norm_factor,
    norm_factor_squared,
    norm_gate_gain,
    norm_gate_matrix,
    norm_growth,
)

PLAIN = NormGate()
quick = settings(deadline=None, derandomize=True, max_examples=150)
rationals = st.fractions(-2, 2, max_denominator=12)
gate_vectors = st.integers(1, 6).flatmap(lambda n: st.lists(rationals, min_size=n, max_size=n))


@quick
@given(st.integers(1, 7), rationals)
def test_mean_gate_is_the_equation_and_doubly_stochastic_in_the_interval(n: int, g: Fraction) -> None:
    """J + g (I - J), exact against float; DS exactly for -1/(n-1) <= g <= 1, by the entries themselves."""
    matrix = mean_preserving_gate(n, g)
    value = flint.fmpq(g.numerator, g.denominator)
    assert matrix == uniform(n) + (identity(n) - uniform(n)) * value
    assert np.abs(mean_preserving_gate(n, float(g)) - to_floats(matrix)).max() < 1e-15
    verdict = mean_gate_doubly_stochastic(n, g)
    assert verdict.ok == doubly_stochastic(matrix).ok
    assert verdict.ok == (n == 1 or Fraction(-1, n - 1) <= g <= 1)


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_mean_gate_interval_ends_belong_to_it(n: int) -> None:
    tiny = Fraction(1, 10**30)
    for end, outward in ((Fraction(-1, n - 1), -tiny), (Fraction(1), tiny)):
        assert mean_gate_doubly_stochastic(n, end)
        assert doubly_stochastic(mean_preserving_gate(n, end))
        assert not mean_gate_doubly_stochastic(n, end + outward)
        assert not doubly_stochastic(mean_preserving_gate(n, end + outward))


def test_mean_gate_keeps_the_mean_and_composes_by_multiplying() -> None:
    a, b = Fraction(1, 3), Fraction(-2, 7)
    assert mean_preserving_gate(4, a) * mean_preserving_gate(4, b) == mean_preserving_gate(4, a * b)
    x = np.array([3.0, -1.0, 5.0, 1.0])
    y = mean_preserving_gate(4, 0.25) @ x
    assert y.mean() == pytest.approx(2.0, abs=1e-15)
    assert y - 2.0 == pytest.approx(0.25 * (x - 2.0), abs=1e-15)


@quick
@given(gate_vectors)
def test_norm_gate_square_identities(g) -> None:
    """(1/n) ||D||_F^2 = 1 exactly; ||D||_2 >= 1 >= |det D| with equality iff all |g_i| are equal (g != 0)."""
    n, square = len(g), norm_factor_squared(g, PLAIN)
    if not any(g):
        assert square == 1
        assert norm_factor(np.array(g, dtype=float), PLAIN) == 1
        return
    assert square * sum(x * x for x in g) == n
    top, determinant = square * max(x * x for x in g), square**n * math.prod(x * x for x in g)
    flat = len({abs(x) for x in g}) == 1
    assert (top == 1) == flat
    assert (determinant == 1) == flat
    assert top >= 1 >= determinant
    floats = [float(x) for x in g]
    assert norm_factor(floats, PLAIN) == pytest.approx(math.sqrt(square), rel=1e-14)
    dense = np.linalg.norm(norm_gate_matrix(floats, PLAIN), 2)
    assert norm_gate_gain(floats, PLAIN) == pytest.approx(dense, rel=1e-13)
    assert dense == pytest.approx(math.sqrt(top), rel=1e-13)
    assert dense == pytest.approx(math.sqrt(n) * max(map(abs, floats)) / np.linalg.norm(floats), rel=1e-13)


@quick
@given(gate_vectors, st.floats(0, 2), st.one_of(st.none(), st.floats(0.1, 3)))
def test_norm_factor_is_its_formula(g, eps: float, cap: float | None) -> None:
    floats = [float(x) for x in g]
    found = norm_factor(floats, NormGate(eps, cap))
    if not any(floats):
        assert found == 1
        return
    wanted = math.sqrt(len(g)) / (math.sqrt(math.fsum(x * x for x in floats)) + eps)
    assert found == pytest.approx(wanted if cap is None else min(cap, wanted), rel=1e-14)


@quick
@given(gate_vectors)
def test_cap_one_is_the_plain_gate(g) -> None:
    """With |g_i| <= 1, sqrt(n) >= ||g||, so c = min(1, ..) = 1 and D = diag g; beyond 1 it is not (control)."""
    small = [x / 2 for x in g]
    assert norm_factor([float(x) for x in small], NormGate(0, 1)) == 1
    assert norm_factor_squared(small, NormGate(0, 1)) == 1
    assert norm_factor([2.0, 2.0], NormGate(0, 1)) == 0.5


def test_alive_streams_are_scaled_by_the_root_of_n_over_k() -> None:
    assert norm_factor([1, 1, 0, 0], PLAIN) == pytest.approx(math.sqrt(2), rel=1e-15)
    assert norm_factor([1, 1, 1, 1], PLAIN) == 1
    for k in range(1, 9):
        g = [1] * k + [0] * (8 - k)
        assert norm_factor_squared(g, PLAIN) == Fraction(8, k)
    assert norm_factor_squared([1, 1, 0, 0], NormGate(0, Fraction(5, 4))) == Fraction(25, 16)


def test_eps_breaks_the_lower_bound_and_the_plain_gate_jumps_at_zero() -> None:
    assert norm_gate_gain([0.5, 0.5], NormGate(0.1)) == pytest.approx(0.876, abs=5e-4)
    assert norm_gate_gain([0.5, 0.5], PLAIN) == 1
    for t in (1.0, 1e-6, 1e-200):  # "all decay" cannot be said: D(t 1) = I for every t, and D(0) = 0
        assert norm_gate_matrix([t, t, t], PLAIN) == pytest.approx(np.eye(3), abs=1e-15)
    assert norm_gate_matrix([0, 0, 0], PLAIN).max() == 0
    assert norm_factor([1e200, 0.0], PLAIN) == pytest.approx(math.sqrt(2) / 1e200, rel=1e-14)  # scale-safe


def test_growth_of_a_fixed_death_pattern() -> None:
    """60 sites of (1,1,1,0): (4/3)^30 = 5599.67 and s_60 = 1.7858e-4; with k = 2: 2^30 and 9.3132e-10."""
    three = norm_growth([[1, 1, 1, 0]] * 60, PLAIN)
    assert 2 ** three.gain[60] == pytest.approx(5599.67, abs=5e-3)
    assert 2 ** three.gain[60] == pytest.approx(float(Fraction(4, 3) ** 30), rel=1e-12)
    assert three.gain[60] == pytest.approx(three.bound[60])
    assert 2 ** three.scale[60] == pytest.approx(1.7858e-4, rel=5e-5)
    two = norm_growth([[1, 1, 0, 0]] * 60, PLAIN)
    assert 2 ** two.gain[60] == pytest.approx(2**30, rel=1e-12)
    assert 2 ** two.scale[60] == pytest.approx(9.3132e-10, rel=5e-5)
    exact = Fraction(1)
    for _ in range(60):
        exact *= norm_factor_squared([1, 1, 1, 0], PLAIN)
    assert exact == Fraction(4, 3) ** 60  # the square, exactly
    dense = np.linalg.matrix_power(norm_gate_matrix([1, 1, 1, 0], PLAIN), 60)
    assert np.linalg.norm(dense, 2) == pytest.approx(5599.67, abs=5e-3)


@pytest.mark.parametrize("n", [2, 3, 4, 8, 64])
def test_deaths_in_turn_stay_under_the_root_of_e(n: int) -> None:
    """Slot l mod n dies at site l: between resets (n/(n-1))^((n-1)/2) < sqrt e; a fixed pattern explodes."""
    turn = [[float(i != l % n) for i in range(n)] for l in range(5 * n)]
    growth = norm_growth(turn, PLAIN)
    assert 2**growth.since_reset == pytest.approx((n / (n - 1)) ** ((n - 1) / 2), rel=1e-12)
    assert 2**growth.since_reset < math.sqrt(math.e)
    assert growth.gain[-1] == -math.inf
    assert growth.bound[-1] > growth.since_reset
    fixed = norm_growth([[0.0] + [1.0] * (n - 1)] * (5 * n), PLAIN)
    assert 2 ** fixed.gain[-1] > math.sqrt(math.e)


@quick
@given(st.lists(st.lists(st.floats(-2, 2), min_size=3, max_size=3), min_size=1, max_size=6))
def test_growth_against_dense_products(stack) -> None:
    stack = [[round(x, 2) for x in g] for g in stack]
    growth, product = norm_growth(stack, NormGate(0.125, 1.5)), np.eye(3)
    for l, g in enumerate(stack):
        product = norm_gate_matrix(g, NormGate(0.125, 1.5)) @ product
        assert 2 ** growth.gain[l + 1] == pytest.approx(np.linalg.norm(product, 2), rel=1e-12, abs=1e-300)
        assert growth.gain[l + 1] <= growth.bound[l + 1] + 1e-12 or growth.bound[l + 1] == -math.inf


def battery(m: ModuleType) -> None:
    assert m.norm_factor([1, 1, 1, 0], PLAIN) == pytest.approx(math.sqrt(4 / 3), rel=1e-15)
    assert m.norm_factor([0, 0], NormGate(0.5)) == 1
    assert m.norm_factor([3, 4], NormGate(2.0)) == pytest.approx(math.sqrt(2) / 7, rel=1e-15)
    assert m.norm_factor([0.1, 0.0], NormGate(0, 2.0)) == 2
    assert m.norm_factor([1e-320], NormGate(0, 2.0)) == 2
    assert m.norm_factor_squared([1, 1, 1, 0], PLAIN) == Fraction(4, 3)
    assert m.norm_factor_squared([1, 0], NormGate(0, Fraction(5, 4))) == Fraction(25, 16)
    assert 2 ** m.norm_growth([[1, 1, 1, 0]] * 60, PLAIN).scale[60] == pytest.approx(1.7858e-4, rel=5e-5)
    assert m.norm_gate_gain([-3, 1], PLAIN) == pytest.approx(3 / math.sqrt(5), rel=1e-14)
    assert [fraction(x) for x in m.mean_preserving_gate(2, Fraction(1, 3)).entries()] == [
        Fraction(2, 3), Fraction(1, 3), Fraction(1, 3), Fraction(2, 3)
    ]  # fmt: skip
    assert not m.mean_gate_doubly_stochastic(4, Fraction(-1, 2))


MUTANTS = {
    "c without the root": ("factor = math.sqrt(len(vector)) / total", "factor = len(vector) / total"),
    "eps inside the root": ("total = norm + eps", "total = math.sqrt(norm**2 + eps)"),
    "eps dropped": ("total = norm + eps", "total = norm"),
    "cap dropped": ("return factor if cap is None else min(factor, cap)", "return factor"),
    "cap as floor": ("else min(factor, cap)", "else max(factor, cap)"),
    "c(0) by formula": ("    if top == 0:\n        return 1.0\n", "    top = top or 1.0\n"),
    "cap not squared": ("Fraction(gate.cap) ** 2)", "Fraction(gate.cap))"),
    "squares forgotten": ("exact.fraction(exact.scalar(x)) ** 2 for x", "exact.fraction(exact.scalar(x)) * 3 for x"),
    "scale the wrong way": ("[[0.0], -np.cumsum(np.log2(factors))]", "[[0.0], np.cumsum(np.log2(factors))]"),
    "signed top gain": ("float(np.abs(_vector(g)).max())\n", "float(_vector(g).max())\n"),
    "interval of n": ("-Fraction(1, n - 1)", "-Fraction(1, max(1, n - 3))"),
    "mean without 1/n": ("off = (1 - value) / n", "off = 1 - value"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str) -> None:
    battery(module)
    assert not survives(battery, mutated(module, *MUTANTS[name]))


BAD = {
    "mean n": (lambda: mean_preserving_gate(0, 1), "mean gate: n is 0, expected at least 1"),
    "mean nan": (lambda: mean_preserving_gate(2, math.nan), "mean gate: g is nan, expected a finite number"),
    "mean word": (lambda: mean_preserving_gate(2, "x"), "mean gate: 'x' .* expected a float or an exact scalar"),
    "eps negative": (
        lambda: norm_factor([1.0], NormGate(-1.0)),
        "norm gate: eps is -1.0, expected a finite number of",
    ),
    "eps nan": (lambda: norm_factor([1.0], NormGate(math.nan)), "norm gate: eps is nan"),
    "cap zero": (lambda: norm_factor([1.0], NormGate(0, 0)), "norm gate: cap is 0, expected a finite number above 0"),
    "cap infinite": (lambda: norm_factor([1.0], NormGate(0, math.inf)), "norm gate: cap is inf"),
    "gates nan": (lambda: norm_factor([1.0, math.nan], PLAIN), "gates: entry 1 is nan, expected a finite number"),
    "gates matrix": (lambda: norm_factor([[1.0]], PLAIN), r"gates: found shape \(1, 1\), expected \(n,\)"),
    "gates empty": (lambda: norm_factor([], PLAIN), r"gates: found shape \(0,\)"),
    "tiny gates": (lambda: norm_factor([1e-310, 0], PLAIN), "norm gate: .* c is beyond 1e300; set a cap"),
    "huge gates": (lambda: norm_factor([1.7e308, 1.7e308], PLAIN), "norm gate: .*, expected a finite norm"),
    "exact eps": (
        lambda: norm_factor_squared([1], NormGate(1e-6)),
        "norm gate: eps is 1e-06, expected 0 on an exact",
    ),
    "exact cap": (
        lambda: norm_factor_squared([1], NormGate(0, 1.5)),
        "norm gate: cap is 1.5, expected an int or Frac",
    ),
    "no sites": (lambda: norm_growth([], PLAIN), r"norm gate: found gate vectors of lengths \[\]"),
    "ragged": (lambda: norm_growth([[1.0], [1.0, 1.0]], PLAIN), r"lengths \[1, 2\], expected equal ones"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    assert_refused(*BAD[case])


@pytest.mark.parametrize("rule", [NormGate(eps=10**400), NormGate(cap=10**400), NormGate(cap="one")])  # type: ignore[arg-type]
def test_rules_that_are_no_floats(rule: NormGate) -> None:
    with pytest.raises(InputError, match=r"^norm gate: (eps|cap) is .*, expected a finite number"):
        norm_factor([1.0], rule)


def test_gates_that_are_no_floats() -> None:
    with pytest.raises(InputError, match=r"^gates: .*; expected \(n,\) finite numbers"):
        norm_factor([Fraction(10**400)], NormGate())
    with pytest.raises(InputError, match=r"^mean gate: g is nan, expected a finite float"):
        mean_gate_doubly_stochastic(3, math.nan)
