"""Theorem 3 on bases constructed with their normal form: exact squares, numeric scales, and what check refuses."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from fractions import Fraction
from types import ModuleType

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives

from streamgauge.theory import exact
from streamgauge.theory import norm as module
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm, NormGate, RankLabel
from streamgauge.theory.norm import check_norm, norm_form, safe_cap, state_growth_log2

PLAIN = NormGate()
quick = settings(deadline=None, derandomize=True, max_examples=60)


def unimodular(n: int, dice: random.Random) -> flint.fmpq_mat:
    """A product of a lower and an upper unit triangle: invertible by construction."""
    low = [dice.randint(-2, 2) if j < i else int(i == j) for i in range(n) for j in range(n)]
    up = [dice.randint(-2, 2) if j > i else int(i == j) for i in range(n) for j in range(n)]
    return flint.fmpq_mat(n, n, low) * flint.fmpq_mat(n, n, up)


def base_form(gates, *, seed: int = 0, numeric: bool = False) -> NormalForm:
    """A chain with the gates given (L vectors of one length), its gauge drawn first: A_l = P_{l+1} D_l P_l^{-1}."""
    dice, n = random.Random(seed), len(gates[0])
    gauge = [unimodular(n, dice) for _ in range(len(gates) + 1)]
    diagonals = [
        flint.fmpq_mat(n, n, [exact.scalar(g[i]) if i == j else 0 for i in range(n) for j in range(n)]) for g in gates
    ]
    mixers = [gauge[l + 1] * d * gauge[l].inv() for l, d in enumerate(diagonals)]
    slots = tuple(tuple(range(n)) for _ in gauge)
    ranks = tuple(RankLabel(sum(map(bool, g)), True) for g in gates)
    form = NormalForm("graded", Chain(mixers, dim=n), tuple(gauge), slots, tuple(map(tuple, gates)), (), ranks)
    if not numeric:
        return form
    return dataclasses.replace(
        form,
        chain=form.chain.floating(),
        gauge=tuple(exact.to_floats(p) for p in gauge),
        gates=tuple(np.array([float(x) for x in g]) for g in gates),
    )


@st.composite
def gate_tables(draw, low: int = 0):
    n, sites = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    cell = st.sampled_from([Fraction(k, 4) for k in range(low, 5)] + [Fraction(0), Fraction(1)])
    return [draw(st.lists(cell, min_size=n, max_size=n)) for _ in range(sites)]


@quick
@given(gate_tables(), st.integers(0, 10**6))
def test_exact_squares(gates, seed: int) -> None:
    """c^2 sum g^2 = n exactly (1 for all-zero sites), s^2 by the recursion, and check passes exactly."""
    base = base_form(gates, seed=seed)
    assert base.check()
    form = norm_form(base, PLAIN)
    assert form.check()
    assert (form.gauge, form.gates, form.form) == (base.gauge, base.gates, "graded")
    running = Fraction(1)
    for l, g in enumerate(gates):
        square = form.norm.factors_squared[l]
        assert square * sum(x * x for x in g) == (len(g) if any(g) else 0)
        assert square > 0
        assert any(g) or square == 1
        assert form.norm.scales_squared[l] == running
        running /= square
        assert form.norm.factors[l] == pytest.approx(math.sqrt(square), rel=1e-14)
    assert form.norm.scales_squared[-1] == running
    assert 2 ** (2 * form.norm.log2_scales[-1]) == pytest.approx(float(running), rel=1e-12)


@quick
@given(gate_tables(), st.integers(0, 10**6), st.floats(0, 0.5), st.one_of(st.none(), st.floats(0.5, 2)))
def test_numeric_form_carries_out_the_norm_gated_recursion(gates, seed: int, eps: float, cap) -> None:
    """The equation, and the theorem as networks: Y' = c(g) g . Y in the new gauge is X' = A X in the old one."""
    base = base_form(gates, seed=seed, numeric=True)
    form = norm_form(base, NormGate(eps, cap))
    verdict = form.check(1e-10)
    assert verdict, verdict.reason
    for l, g in enumerate(gates):
        total = math.sqrt(math.fsum(float(x) ** 2 for x in g))
        wanted = 1.0 if total == 0 else math.sqrt(len(g)) / (total + eps)
        wanted = wanted if cap is None or total == 0 else min(wanted, cap)
        assert form.gates[l] == pytest.approx(wanted * np.array(g, dtype=float), rel=1e-13)
        assert np.array_equal(form.norm.base_gates[l], base.gates[l])
    x = np.random.default_rng(seed).normal(size=(len(gates[0]), 2))
    y = np.linalg.solve(form.gauge[0], x)
    for l, a in enumerate(base.chain.mixers):
        scale = max(1.0, np.abs(a).max()) * max(1.0, np.abs(x).max())
        x, y = a @ x, form.gates[l][:, None] * y
        assert np.abs(form.gauge[l + 1] @ y - x).max() <= 1e-9 * scale * max(1.0, np.abs(form.gauge[l + 1] @ y).max())


@quick
@given(gate_tables(), st.integers(0, 10**6))
def test_numeric_and_exact_agree(gates, seed: int) -> None:
    a, b = (norm_form(base_form(gates, seed=seed, numeric=numeric), PLAIN) for numeric in (False, True))
    assert b.norm.factors == pytest.approx(a.norm.factors, rel=1e-14)
    assert b.norm.log2_scales == pytest.approx(a.norm.log2_scales, abs=1e-13)
    assert b.norm.factors_squared is None
    assert state_growth_log2(b)[-1] == pytest.approx(np.log2(b.norm.factors).sum(), abs=1e-12)


def test_constants_of_sixty_sites() -> None:
    for pattern, s60, growth in (([1, 1, 1, 0], 1.7858e-4, (4 / 3) ** 30), ([1, 1, 0, 0], 9.3132e-10, 2.0**30)):
        form = norm_form(base_form([pattern] * 60), PLAIN)
        assert 2 ** form.norm.log2_scales[60] == pytest.approx(s60, rel=5e-5)
        assert 2 ** state_growth_log2(form)[60] == pytest.approx(growth, rel=1e-12)
        assert form.norm.scales_squared[60] == Fraction(sum(pattern), 4) ** 60
        assert "sum of log2 c is" in form.notes[-1]
        total = float(form.notes[-1].split("sum of log2 c is ")[1].split(";")[0])
        assert total == pytest.approx(math.log2(growth), rel=1e-5)


def test_identity_gates_are_left_alone_and_cap_one_too() -> None:
    base = base_form([[1, 1, 1]] * 5, numeric=True)
    form = norm_form(base, PLAIN)
    assert all(np.array_equal(p, q) for p, q in zip(form.gauge, base.gauge))
    assert all(np.array_equal(g, [1, 1, 1]) for g in form.gates)
    halves = base_form([[Fraction(1, 2), Fraction(1, 4), 0]] * 5, numeric=True)
    capped = norm_form(halves, NormGate(0, 1))
    assert all(np.array_equal(g, h) for g, h in zip(capped.gates, halves.gates))
    assert norm_form(halves, PLAIN).gates[0][0] == pytest.approx(math.sqrt(3 / 0.3125) / 2)  # the control


def test_no_sites() -> None:
    empty = NormalForm("identity", Chain([], dim=2), (exact.identity(2),), ((0, 1),), (), (), ())
    # a chain without numbers is exact or numeric alike; either way there is nothing to scale
    form = norm_form(empty, PLAIN)
    assert list(form.norm.log2_scales) == [0.0]
    assert check_norm(form)


def test_scales_beyond_float64_are_refused_with_the_cap_that_helps() -> None:
    """Gates of 2^-20: c = 2^20 at every site, so 60 sites need 2^1200."""
    tiny = [[Fraction(1, 2**20)] * 2] * 60
    base = base_form(tiny, numeric=True)
    with pytest.raises(InputError) as caught:
        norm_form(base, PLAIN)
    message = str(caught.value)
    assert message.startswith("norm gate: log2 of the scale s at level 51 is -1020, expected within +-1000")
    assert "set a cap (at most 1.04e+05 keeps it in range)" in message
    assert "\n" not in message
    assert state_growth_log2(base)[-1] == pytest.approx(1200)
    assert state_growth_log2(base, NormGate(0, 2.0))[-1] == 60
    form = norm_form(base, NormGate(0, 1.0e5))
    assert abs(form.norm.log2_scales[-1]) <= 1000
    assert form.check()
    assert safe_cap(60) ** 60 == pytest.approx(2.0**1000, rel=1e-9)
    grown = base_form([[2**20] * 2] * 60, numeric=True)
    with pytest.raises(InputError, match="the gates exceed 1, which a cap does not change"):
        norm_form(grown, PLAIN)
    exact_form = norm_form(base_form(tiny), PLAIN)  # the exact pair has no range
    assert exact_form.norm.scales_squared[-1] == Fraction(1, 2**2400)
    assert exact_form.check()


def test_deep_scales_keep_the_residual_at_round_off() -> None:
    base = base_form([[Fraction(3, 4), Fraction(1, 2), 0, Fraction(1, 8)]] * 400, numeric=True)
    form = norm_form(base, PLAIN)
    assert -1000 < form.norm.log2_scales[-1] < -400
    unscaled = [p / 2.0**s for p, s in zip(form.gauge, form.norm.log2_scales)]
    assert max(np.abs(p / q - 1).max() for p, q in zip(unscaled[-1], base.gauge[-1]) if q.all()) < 2e-12
    plain = max(base.residuals())
    worst = 0.0
    for l, a in enumerate(base.chain.mixers):
        left, right = a @ form.gauge[l], form.gauge[l + 1] * form.gates[l]
        size = np.abs(a).max() * np.abs(form.gauge[l]).max()  # what the product is summed from
        worst = max(worst, np.abs(left - right).max() / size)
    assert worst <= plain + 2e-15
    assert form.check()


def tampered(form: NormalForm, **changes) -> NormalForm:
    return dataclasses.replace(form, norm=dataclasses.replace(form.norm, **changes))


GATES = [[1, Fraction(1, 2), 0], [Fraction(1, 4), 1, 1], [0, 0, Fraction(1, 2)]]


def changed(items, at: int, f):
    out = list(items)
    out[at] = f(out[at])
    return tuple(out)


EXACT_TAMPERING = {
    "c^2": (lambda n: {"factors_squared": changed(n.factors_squared, 1, lambda q: q * Fraction(10**9 + 1, 10**9))},
            "site 1: norm gate: c\\^2 is"),
    "s^2": (lambda n: {"scales_squared": changed(n.scales_squared, 2, lambda q: 2 * q)},
            "site 1: norm gate: s\\^2 goes"),
    "s_0": (lambda n: {"scales_squared": tuple(2 * q for q in n.scales_squared)}, "s at level 0 is 2, expected 1"),
    "float c": (lambda n: {"factors": n.factors * np.array([1, 1, 1 + 1e-9])}, "site 2: norm gate: c is"),
    "float s": (lambda n: {"log2_scales": n.log2_scales + np.array([0, 1e-9, 0, 0])}, "site 0: norm gate: log2 s is"),
    "base gates": (lambda n: {"base_gates": changed(n.base_gates, 0, lambda g: g[::-1])},
                   "site 0: .*base gates differ"),
    "no squares": (lambda n: {"factors_squared": None}, "site 0: norm gate: an exact form needs"),
    "rule": (lambda n: {"gate": NormGate(0, 1)}, "site 0: norm gate: c\\^2 is 12/5, expected 1"),
    "short": (lambda n: {"factors": n.factors[:2]}, "norm gate: found \\(3, 2, 4\\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", EXACT_TAMPERING)
def test_check_refuses_a_tampered_exact_norm(case: str) -> None:
    form = norm_form(base_form(GATES), PLAIN)
    assert form.check()
    change, message = EXACT_TAMPERING[case]
    verdict = tampered(form, **change(form.norm)).check()
    assert not verdict
    assert re.search(message, verdict.reason), verdict.reason


NUMERIC_TAMPERING = {
    "c": (lambda n: {"factors": n.factors * np.array([1, 1 + 1e-9, 1])}, "site 1: norm gate: c is"),
    "s": (lambda n: {"log2_scales": n.log2_scales + np.array([0, 0, 1e-9, 0])}, "site 1: norm gate: log2 s goes"),
    "s_0": (lambda n: {"log2_scales": n.log2_scales + 1}, "s at level 0 is 2.0, expected 1"),
    "base gates": (lambda n: {"base_gates": changed(n.base_gates, 1, lambda g: -g)}, "site 1: .*gates differ from c"),
    "rule": (lambda n: {"gate": NormGate(0.1)}, "site 0: norm gate: c is"),
}


@pytest.mark.parametrize("case", NUMERIC_TAMPERING)
def test_check_refuses_a_tampered_numeric_norm(case: str) -> None:
    form = norm_form(base_form(GATES, numeric=True), PLAIN)
    assert form.check()
    change, message = NUMERIC_TAMPERING[case]
    verdict = tampered(form, **change(form.norm)).check()
    assert not verdict
    assert re.search(message, verdict.reason), verdict.reason


def test_check_sees_a_wrong_gauge_where_the_scale_is_tiny() -> None:
    """At s = 2^-300 an absolute residual would be 1e-90 whatever P is."""
    base = base_form([[Fraction(1, 8), Fraction(1, 8)]] * 100, numeric=True)
    form = norm_form(base, PLAIN)
    broken = dataclasses.replace(form, gauge=(*form.gauge[:-1], form.gauge[-1] * np.array([1.0, 1.01])))
    assert np.abs(form.gauge[-1]).max() < 1e-85
    verdict = broken.check()
    assert not verdict
    assert verdict.reason.startswith("site 99: A P - P' D has residual")


def test_refusals() -> None:
    exact_base, numeric = base_form(GATES), base_form(GATES, numeric=True)
    cases = [
        (lambda: norm_form(norm_form(exact_base, PLAIN), PLAIN), "norm gate: the form has one already"),
        (lambda: norm_form(exact_base, NormGate(1e-6)), "norm gate: eps is 1e-06, expected 0 on an exact base"),
        (lambda: norm_form(exact_base, NormGate(0, 1.5)), "norm gate: cap is 1.5, expected an int or Fraction"),
        (lambda: norm_form(numeric, NormGate(-1.0)), "site 0: norm gate: eps is -1.0"),
        (lambda: norm_form(numeric, NormGate(0, 0.0)), "site 0: norm gate: cap is 0.0"),
        (lambda: norm_form(base_form([[Fraction(1, 2**1030)]]), PLAIN), "norm gate: log2 c is 1030, .*set a cap"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert norm_form(exact_base, NormGate(0, Fraction(3, 2))).check()
    assert norm_form(exact_base, NormGate(Fraction(0), 1)).check()


def battery(m: ModuleType) -> None:
    for numeric in (False, True):
        base = base_form(GATES, numeric=numeric)
        form = m.norm_form(base, PLAIN)
        assert form.check()  # the unmutated check
        assert m.check_norm(form)
        assert m.state_growth_log2(form) == pytest.approx(-form.norm.log2_scales)
        assert m.state_growth_log2(base) == pytest.approx(-form.norm.log2_scales)
    for numeric, table in ((False, EXACT_TAMPERING), (True, NUMERIC_TAMPERING)):
        for change, message in table.values():
            form = norm_form(base_form(GATES, numeric=numeric), PLAIN)
            verdict = m.check_norm(tampered(form, **change(form.norm)))
            assert not verdict
            assert re.search(message, verdict.reason)
    with pytest.raises(InputError):
        m.norm_form(base_form([[Fraction(1, 2**20)] * 2] * 60, numeric=True), PLAIN)


MUTANTS = {
    "scales multiplied": ("scales[-1] / float(c)", "scales[-1] * float(c)"),
    "exact scales multiplied": ("scales.append(scales[-1] / square)", "scales.append(scales[-1] * square)"),
    "gates not folded": ("c * np.asarray(g) for c, g", "np.asarray(g) for c, g"),
    "gauge not folded": ("s * p for s, p", "p for s, p"),
    "root forgotten": ("return math.sqrt(q) if abs(half) < 500", "return float(q) if abs(half) < 500"),
    "log of the square": ("logs = np.array([exact.log2(q) / 2 for q in scales])",
                          "logs = np.array([exact.log2(q) for q in scales])"),
    "range not checked": ("if outside.size:", "if outside.size > 10**6:"),
    "c not checked": ("if not abs(factor - wanted) <= tolerance * wanted:", "if False:"),
    "c^2 not checked": ("if square != wanted:", "if False:"),
    "s^2 not checked": ("if after * square != before:", "if False:"),
    "s_0 not checked": ("if start != 1:", "if False:"),
    "float c not checked": ("if abs(math.log2(norm.factors[l]) - exact.log2(square) / 2) > tolerance:", "if False:"),
    "growth inverted": ("return -form.norm.log2_scales", "return form.norm.log2_scales"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str) -> None:
    battery(module)
    assert not survives(battery, mutated(module, *MUTANTS[name]))


def test_long_rationals() -> None:
    """log2 of numbers of 47549 bits is the difference of two large ones; a message cannot print them."""
    p, q = 3**30000, 2**47549 + 1
    assert exact.log2(Fraction(q * p, (q - 1) * p)) == pytest.approx(0, abs=1e-15)
    assert exact.log2(Fraction(p, q)) == pytest.approx(30000 * math.log2(3) - 47549, abs=1e-11)
    form = norm_form(base_form([[Fraction(p, q), Fraction(1, q)]] * 3), NormGate())
    assert form.check()
    assert form.norm is not None
    wrong = tampered(form, factors_squared=changed(form.norm.factors_squared, 1, lambda x: x + 1))
    assert re.search(r"site 1: norm gate: c\^2 is 2\^[0-9.]+, expected 2\^[0-9.]+$", wrong.check().reason)
