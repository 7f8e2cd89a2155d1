"""Every named recipe against an independent 50-digit rendering of its source's description, and the constants."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import assert_passes, mutated, survives
from refusals import assert_refused

from streamgauge.theory import doubly
from streamgauge.theory import sinkhorn as module
from streamgauge.theory.exact import to_floats
from streamgauge.theory.sinkhorn import (
    RECIPES,
    Recipe,
    marginal_errors,
    recipe_named,
    sinkhorn,
    sinkhorn_limit,
    sweeps,
)

NOTE = [[8, 1, -1, 0], [7, 0, 1, -2], [0, 6, 1, -1], [1, 5, -2, 0]]
HARD4 = [[12, 0, 0, 0], [12, 0, 0, 0], [0, 12, 0, 0], [0, 0, 12, 0]]
SLOW2 = [[0, 0], [-30, 0]]
ASYMMETRIC = [[0.3, -1.2, 2.0], [1.1, 0.4, -0.7], [-2.1, 0.9, 0.2]]
GOLDEN = {"note": NOTE, "hard4": HARD4, "slow2": SLOW2, "asymmetric": ASYMMETRIC}
TRAINED = Path(__file__).parents[3] / "shared/data/trained_logits.json"


def high_precision(logits, name: str):
    """The mixer A as the recipe's source states it, in 50 digits, written out per family (no shared code)."""
    mp = mpmath.mp.clone()
    mp.dps = 50
    n = len(logits)
    z = [[mp.mpf(x) for x in row] for row in logits]
    each = range(n)

    def turned(m):
        return [list(col) for col in zip(*m)]

    def by_rows(m, divisor):
        return [[x / divisor(mp.fsum(row)) for x in row] for row in m]

    def by_columns(m, divisor):
        return turned(by_rows(turned(m), divisor))

    if name in ("deepseek-v4", "deepseek-v4.1", "glm5-next", "liger"):
        eps = mp.mpf(1e-6)
        s = []
        for row in z:
            total = mp.fsum(mp.exp(x) for x in row)
            s.append([mp.exp(x) / total + eps for x in row])
        s = by_columns(s, lambda t: t + eps)
        for _ in range(19):
            s = by_columns(by_rows(s, lambda t: t + eps), lambda t: t + eps)
        return s if name == "liger" else turned(s)
    if name in ("megatron", "megatron-dev"):
        s = [[mp.exp(x - max(row)) for x in row] for row in z]
        for _ in range(20):
            s = by_columns(by_rows(s, lambda t: max(t, mp.mpf(1e-6))), lambda t: max(t, mp.mpf(1e-6)))
        return turned(s) if name == "megatron-dev" else s
    if name == "lucidrains":
        top = [max(z[i][j] for i in each) for j in each]
        s = [[mp.exp(z[i][j] - top[j]) for j in each] for i in each]
        for _ in range(20):
            s = by_rows(by_columns(s, lambda t: max(t, mp.mpf(1e-12))), lambda t: max(t, mp.mpf(1e-12)))
        return turned(s)
    if name == "tokenbender":  # potentials, as in its log-domain code: u from rows, then v from columns
        z = [[x / mp.mpf(0.05) for x in row] for row in z]
        u, v = [mp.mpf(0)] * n, [mp.mpf(0)] * n
        for _ in range(10):
            u = [-mp.log(mp.fsum(mp.exp(z[i][j] + v[j]) for j in each)) for i in each]
            v = [-mp.log(mp.fsum(mp.exp(z[i][j] + u[i]) for i in each)) for j in each]
        return turned([[mp.exp(z[i][j] + u[i] + v[j]) for j in each] for i in each])
    if name in ("paper", "mhc-lite"):
        s = [[mp.exp(x) for x in row] for row in z]
        for _ in range(20):
            s = by_rows(by_columns(s, lambda t: t), lambda t: t)
        return turned(s) if name == "mhc-lite" else s
    raise LookupError(f"no independent rendering of {name}")


def agrees(found, wanted, tolerance: float = 1e-13) -> bool:
    want = np.array([[float(x) for x in row] for row in wanted])
    return bool(np.abs(found - want).max() <= tolerance)


REFERENCE = {(name, key): high_precision(z, name) for name in RECIPES for key, z in GOLDEN.items()}


@pytest.mark.parametrize("key", GOLDEN)
@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_its_sources_program(name: str, key: str) -> None:
    assert agrees(sinkhorn(GOLDEN[key], name).mixer, REFERENCE[name, key])


@pytest.mark.parametrize(
    "a", ["paper", "deepseek-v4", "liger", "megatron", "megatron-dev", "mhc-lite", "tokenbender"]
)
@pytest.mark.parametrize(
    "b", ["paper", "deepseek-v4", "liger", "megatron", "megatron-dev", "mhc-lite", "tokenbender"]
)
def test_the_names_stand_for_different_programs(a: str, b: str) -> None:
    gap = np.abs(sinkhorn(HARD4, a).mixer - sinkhorn(HARD4, b).mixer).max()
    assert (gap == 0) if a == b else (gap > 1e-6)


def battery(m: ModuleType) -> None:
    """What a wrong recipe program must fail: goldens, orientation and the constants."""
    for (name, key), wanted in REFERENCE.items():
        assert agrees(m.sinkhorn(GOLDEN[key], name).mixer, wanted), (name, key)
    v4 = m.sinkhorn(HARD4, "deepseek-v4")
    assert float(v4.column_error) == pytest.approx(0.02566, abs=5e-6)
    assert float(v4.row_error) == pytest.approx(1.03e-6, rel=5e-3)
    assert m.sinkhorn(2 * np.eye(4), "deepseek-v4").matrix[0, 0] == pytest.approx(0.71123, abs=5e-6)


MUTANTS = {
    "order swapped": (
        "(_SUM_AXIS[axis] for axis in recipe.order)",
        "(_SUM_AXIS[axis] for axis in recipe.order[::-1])",
    ),
    "axes swapped": ('{"rows": -1, "columns": -2}', '{"rows": -2, "columns": -1}'),
    "transpose dropped": ("np.swapaxes(matrix, -1, -2) if recipe.transpose else matrix", "matrix"),
    "eps outside the division": ("total = total + recipe.eps", "return np.asarray(s / total + recipe.eps)"),
    "start eps dropped": ("s = s + recipe.start_eps", "s = s + 0"),
    "clamp read as add": ("np.maximum(total, recipe.eps)", "total + recipe.eps"),
    "one sweep fewer": ("for step in range(recipe.iterations)", "for step in range(recipe.iterations - 1)"),
    "one half-step more": ('recipe.start == "exp" or in_logs:', 'recipe.start == "exp" or in_logs or True:'),
    "temperature dropped": ("np.asarray(z / temperature)", "np.asarray(z)"),
    "softmax dropped": ("s = s / s.sum(axis=first, keepdims=True)", "s = s"),
    "errors of the wrong axis": ("rows = np.abs(matrix.sum(axis=-1) - 1)", "rows = np.abs(matrix.sum(axis=-2) - 1)"),
    "no max subtracted in a half-step": ("top = s.max(axis=axis, keepdims=True)", "top = 700 + 0 * s"),
}


def test_the_battery_passes_unmutated() -> None:
    assert_passes(battery, module)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name: str) -> None:
    assert not survives(battery, mutated(module, *MUTANTS[name]))


def test_the_sigmoid_port_and_the_false_alarm() -> None:
    """Controls: sigmoid for softmax gives 0.370 for 0.71123; a half-step too many after the softmax is below 4e-8."""
    v4 = RECIPES["deepseek-v4"]
    odds = 1 / (1 + np.exp(-2 * np.eye(4)))
    port = sinkhorn(np.log(odds), dataclasses.replace(v4, start="exp")).matrix
    assert port[0, 0] == pytest.approx(0.370, abs=5e-4)
    more = mutated(module, *MUTANTS["one half-step more"])
    assert np.abs(more.sinkhorn(HARD4, "deepseek-v4").matrix - sinkhorn(HARD4, v4).matrix).max() < 4e-8


def test_claim_series_of_the_reading_note() -> None:
    """N30: columns then rows, column errors after 1, 5, .. sweeps; every other order is another number."""
    steps = [float(marginal_errors(s)[1]) for s in sweeps(NOTE, dataclasses.replace(RECIPES["paper"], iterations=40))]
    wanted = {1: 9.225e-2, 5: 3.495e-4, 10: 1.067e-5, 15: 4.593e-7, 20: 1.931189e-08, 30: 3.402e-11}
    for count, value in wanted.items():
        assert steps[count - 1] == pytest.approx(value, rel=5e-4)
    assert steps[19] == pytest.approx(1.931189e-08, rel=1e-6)
    assert steps[39] == pytest.approx(6.0e-14, rel=0.05)
    shifted = sinkhorn(np.array(NOTE) + 3.0, "paper")
    assert float(shifted.column_error) == pytest.approx(1.931189e-08, rel=1e-6)
    other = sinkhorn(NOTE, dataclasses.replace(RECIPES["paper"], order=("rows", "columns")))
    assert float(other.row_error) == pytest.approx(4.223e-6, rel=5e-4)
    assert float(other.column_error) < 1e-15
    kernel = sinkhorn(NOTE, "liger")
    assert float(kernel.row_error) == pytest.approx(5.204e-6, rel=5e-4)
    assert float(kernel.column_error) == pytest.approx(1.0e-6, rel=1e-3)


def test_limit_rate_and_singular_values_of_the_note() -> None:
    limit = sinkhorn_limit(NOTE)
    assert limit.verdict
    assert limit.singular_values == pytest.approx([1, 0.7283, 0.5618, 0.2075], abs=5e-5)
    assert limit.rate == pytest.approx(0.53038, abs=5e-6)
    steps = [float(marginal_errors(s)[1]) for s in sweeps(NOTE, dataclasses.replace(RECIPES["paper"], iterations=30))]
    assert steps[29] / steps[28] == pytest.approx(limit.rate, rel=1e-4)  # the rate as it is seen
    scaled = np.log(limit.matrix) - np.array(NOTE)  # D1 exp(Z) D2: rank-one in logs
    assert np.abs(scaled - scaled[:, :1] - scaled[:1, :] + scaled[0, 0]).max() < 1e-12


def test_hard_fixtures() -> None:
    v4 = sinkhorn(HARD4, "deepseek-v4")
    assert float(v4.column_error) == pytest.approx(0.02566, abs=5e-6)  # comb's rows are the mixer's columns
    assert float(v4.row_error) == pytest.approx(1.03e-6, rel=5e-3)
    assert float(sinkhorn(SLOW2, "liger").row_error) == pytest.approx(0.02436, abs=5e-6)
    two = sinkhorn(2 * np.eye(4), "deepseek-v4").matrix
    assert (two[0, 0], two[0, 1]) == pytest.approx((0.71123, 0.09626), abs=5e-6)
    equal = np.ones(4)  # equal streams stay, in the right orientation only
    assert np.abs(v4.mixer @ equal - 1).max() == pytest.approx(1.0e-6, rel=0.05)
    assert np.abs(v4.matrix @ equal - 1).max() == pytest.approx(0.0257, abs=5e-5)


def test_clamp_fails_where_adding_does_not_and_the_errors_say_so() -> None:
    far = [[0, -800], [0, -800]]
    dead = sinkhorn(far, "megatron")
    assert np.isfinite(dead.matrix).all()
    assert float(dead.column_error) == 1.0
    assert float(sinkhorn(far, "deepseek-v4").row_error) < 2e-6
    assert float(sinkhorn(far, "paper").row_error) < 1e-15


def test_the_converged_verdict_needs_both_marginals() -> None:
    easy = sinkhorn_limit(ASYMMETRIC, tolerance=1e-3)
    assert easy.verdict
    assert easy.sweeps < 10
    hard = sinkhorn_limit(HARD4, tolerance=1e-3, max_sweeps=20)
    assert not hard.verdict
    assert hard.sweeps == 20
    assert float(marginal_errors(hard.matrix)[0]) < 1e-15  # the rows alone would have passed
    assert sinkhorn_limit([[7.0]]).rate == 0


def test_sinkhorn_is_not_the_euclidean_projection() -> None:
    """[[2,1],[1,1]]: Sinkhorn keeps the cross ratio, diagonal sqrt2/(1+sqrt2); the nearest point has 3/4."""
    limit = sinkhorn_limit(np.log([[2.0, 1.0], [1.0, 1.0]])).matrix
    assert limit[0, 0] == pytest.approx(math.sqrt(2) / (1 + math.sqrt(2)), abs=1e-13)
    grid = np.linspace(0, 1, 100_001)
    nearest = grid[np.argmin((grid - 2) ** 2 + (grid - 1) ** 2 + 2 * grid**2)]  # entries 1 - a against 1
    assert nearest == pytest.approx(0.75, abs=1e-4)


def test_eps_over_depth() -> None:
    """The sums settle at 1 - eps: eps 0.02 over 122 sites leaves 0.085; 1e-6 over 86 is 8.6e-5."""
    crude = dataclasses.replace(RECIPES["deepseek-v4"], name="crude", eps=0.02)
    result = sinkhorn(np.zeros((4, 4)), crude, sites=122)
    assert len(result.notes) == 1
    assert "eps 0.02 over 122 sites" in result.notes[0]
    assert module.eps_drift(crude, 122).witness["gain"] == pytest.approx(0.085, abs=5e-4)
    stack = np.linalg.multi_dot([sinkhorn(ASYMMETRIC, crude).mixer] * 122)
    assert stack.sum(axis=1) == pytest.approx(0.98**122, rel=1e-3)
    assert sinkhorn(NOTE, "deepseek-v4", sites=86).notes == ()
    assert module.eps_drift(RECIPES["deepseek-v4"], 86).witness["gain"] == pytest.approx(1 - 8.6e-5, abs=1e-8)
    assert module.eps_drift(RECIPES["megatron"], 10**6)  # a clamp does not touch sums near 1


@pytest.mark.skipif(not TRAINED.exists(), reason="the trained logits are not part of the project")
def test_trained_logits_chain() -> None:
    sites = [np.array(site["logits"]) for site in json.loads(TRAINED.read_text())["sites"]]

    def product(mixers):
        out = np.eye(4)
        for a in mixers:
            out = a @ out
        return np.linalg.svd(out, compute_uv=False)

    sigma = product(sinkhorn_limit(z).matrix for z in sites)
    assert sigma == pytest.approx([1, 0.343, 0.0436, 0.00398], rel=2e-3)
    assert sigma[0] / sigma[-1] == pytest.approx(251.1, abs=0.05)
    ten = dataclasses.replace(RECIPES["tokenbender"], temperature=1.0)
    sigma = product(sinkhorn(z, ten).mixer for z in sites)
    assert sigma[0] / sigma[-1] == pytest.approx(6.2e5, rel=0.01)


# properties

finite = st.floats(-8, 8, allow_nan=False, width=32)
square = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(finite, min_size=n, max_size=n), min_size=n, max_size=n)
)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(square, st.sampled_from(sorted(RECIPES)))
def test_the_last_marginal_is_tight_and_nothing_is_negative(z, name: str) -> None:
    recipe = dataclasses.replace(RECIPES[name], temperature=1.0)
    result = sinkhorn(z, recipe)
    rows_last = (recipe.order[1] == "rows") != recipe.transpose
    tight = result.row_error if rows_last else result.column_error
    assert result.mixer.min() >= 0
    assert float(tight) <= 2e-6 if recipe.eps_mode == "add" else float(tight) <= 1e-13
    rows = np.abs(result.mixer.sum(axis=1) - 1).max()
    assert float(result.row_error) == rows


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(1, 4), st.randoms(use_true_random=False), st.integers(1, 3), st.booleans())
def test_agrees_with_exact_sweeps(n: int, dice, count: int, columns_first: bool) -> None:
    """The log-domain sweeps of log K against exact rational sweeps of the integer matrix K."""
    k = [[dice.randint(1, 50) for _ in range(n)] for _ in range(n)]
    order = ("columns", "rows") if columns_first else ("rows", "columns")
    wanted = list(doubly.exact_sweeps(k, order, count=count))
    recipe = Recipe("plain", order=order, iterations=count)
    for found, want in zip(sweeps(np.log(k), recipe), wanted):
        assert np.abs(found - to_floats(want)).max() < 1e-14
    sums = doubly.marginals(wanted[-1])
    assert set(sums.rows if columns_first else sums.columns) == {Fraction(1)}


@settings(deadline=None, derandomize=True, max_examples=40)
@given(square, st.floats(-50, 50), st.sampled_from(["paper", "mhc-lite", "tokenbender", "deepseek-v4"]))
def test_a_constant_added_to_all_logits_changes_nothing(z, shift: float, name: str) -> None:
    recipe = dataclasses.replace(RECIPES[name], temperature=1.0)
    assert np.abs(sinkhorn(np.array(z) + shift, recipe).mixer - sinkhorn(z, recipe).mixer).max() < 1e-11


@settings(deadline=None, derandomize=True, max_examples=40)
@given(square)
def test_row_and_column_constants_do_not_change_the_limit(z) -> None:
    n = len(z)
    mild = np.array(z) / 8  # entries within a factor e^2: sigma_2 is far from 1
    moved = mild + np.arange(n)[:, None] - 2.0 * np.arange(n)[None, :]
    a, b = sinkhorn_limit(mild), sinkhorn_limit(moved)
    assert a.verdict
    assert b.verdict
    assert np.abs(a.matrix - b.matrix).max() < 1e-12


@pytest.mark.parametrize("name", RECIPES)
def test_finite_for_logits_of_ten_thousand(name: str) -> None:
    dice = np.random.default_rng(5)
    for z in (dice.uniform(-1e4, 1e4, (50, 4, 4)), 1e4 * np.eye(4), -1e4 * np.eye(4), np.full((3, 3), -1e4)):
        result = sinkhorn(z, name)
        assert np.isfinite(result.matrix).all()
        assert np.isfinite(result.row_error).all()


def test_softmax_start_without_eps_is_the_first_half_step() -> None:
    soft = Recipe("soft", start="softmax")
    assert np.array_equal(sinkhorn(HARD4, soft).matrix, sinkhorn(HARD4, Recipe("exp")).matrix)


def test_batch_axes_are_independent() -> None:
    z = np.random.default_rng(3).normal(size=(2, 5, 3, 3))
    together = sinkhorn(z, "deepseek-v4")
    assert together.row_error.shape == (2, 5)
    for at in np.ndindex(2, 5):
        alone = sinkhorn(z[at], "deepseek-v4")
        assert np.array_equal(alone.mixer, together.mixer[at])
        assert alone.column_error == together.column_error[at]


BAD = {
    "unknown name": (lambda: sinkhorn(NOTE, "deepseek"), "recipe: found 'deepseek', expected one of deepseek-v4"),
    "nan": (lambda: sinkhorn([[0, math.nan], [0, 0]], "paper"), r"logits: entry \(0, 1\) is nan, expected a finite"),
    "minus infinity": (lambda: sinkhorn([[0, 0], [-math.inf, 0]], "paper"), r"logits: entry \(1, 0\) is -inf"),
    "not square": (
        lambda: sinkhorn(np.zeros((2, 3)), "paper"),
        r"logits: found shape \(2, 3\), expected \(..., n, n\)",
    ),
    "a vector": (lambda: sinkhorn([1.0, 2.0], "paper"), r"logits: found shape \(2,\)"),
    "empty": (lambda: sinkhorn(np.zeros((0, 0)), "paper"), r"logits: found shape \(0, 0\)"),
    "words": (lambda: sinkhorn([["a"]], "paper"), "logits: .*expected real numbers"),
    "beyond range": (lambda: sinkhorn([[1e308]], "tokenbender"), r"logits: entry \(0, 0\) is 1e\+308"),
    "batch to limit": (lambda: sinkhorn_limit(np.zeros((2, 3, 3))), r"logits: found shape \(2, 3, 3\), expected one"),
    "order": (lambda: Recipe("x", order=("rows", "rows")), "recipe 'x': order is"),
    "start": (lambda: Recipe("x", start="sigmoid"), "recipe 'x': start is 'sigmoid', expected one of exp, softmax"),
    "iterations": (
        lambda: Recipe("x", iterations=0),
        "recipe 'x': iterations is 0, expected an integer of at least 1",
    ),
    "eps without mode": (lambda: Recipe("x", eps=1e-6), "recipe 'x': eps is 1e-06, expected 0 with eps_mode 'none'"),
    "mode without eps": (
        lambda: Recipe("x", eps_mode="add"),
        r"recipe 'x': eps is 0.0, expected a number in \(0, 1\)",
    ),
    "start eps": (lambda: Recipe("x", start_eps=-1.0), "recipe 'x': start_eps is -1.0"),
    "temperature": (
        lambda: Recipe("x", temperature=0.0),
        "recipe 'x': temperature is 0.0, expected a positive number",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    assert_refused(*BAD[case])


def test_names() -> None:
    assert recipe_named("paper") is RECIPES["paper"]
    assert all(name == recipe.name for name, recipe in RECIPES.items())
