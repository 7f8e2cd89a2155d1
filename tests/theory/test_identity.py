"""The identity form: three gauges, exact and numeric, and the refusals with their kernel vectors."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives

from streamgauge.theory import exact
from streamgauge.theory import identity as module
from streamgauge.theory.chain import Chain, fractions
from streamgauge.theory.errors import InputError
from streamgauge.theory.identity import GAUGES, SingularSite, identity_form, invertible
from streamgauge.theory.spectrum import log_singular_pairs
from streamgauge.theory.strategies import doubly_stochastic, unimodular

HALF = Fraction(1, 2)
SHEAR, SWAP = [[1, 1], [0, 1]], [[0, 1], [1, 0]]


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def mixed(n, sites, strength, seed, keep=0.0):
    """``keep`` I + (1 - keep) S with S positive and doubly stochastic to rounding."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(sites):
        a = np.exp(strength * rng.standard_normal((n, n)))
        for _ in range(200):
            a /= a.sum(axis=1, keepdims=True)
            a /= a.sum(axis=0, keepdims=True)
        out.append(keep * np.eye(n) + (1 - keep) * a)
    return out


def exact_singular_values(mixers):
    """Logarithms of the product's singular values: exact product, SVD in 300 digits."""
    product = np.eye(len(mixers[0])).tolist()
    with mpmath.workdps(300):
        product = mpmath.matrix(product)
        for a in mixers:
            product = mpmath.matrix(a.tolist()) * product
        return [float(mpmath.log(s)) for s in sorted(mpmath.svd_r(product, compute_uv=False), reverse=True)]


@st.composite
def invertible_chains(draw):
    n, sites = draw(st.integers(1, 5)), draw(st.integers(0, 8))
    one = st.one_of(unimodular(n), doubly_stochastic(n, rank=n))
    return Chain([draw(one) for _ in range(sites)], dim=n)


@cases(60)
@given(invertible_chains(), st.sampled_from(GAUGES))
def test_theorem_1(chain, gauge):
    form = identity_form(chain, gauge=gauge)
    assert form.check()
    assert invertible(chain)
    n, sites = chain.dims[0], len(chain)
    for l in range(sites):
        assert form.gates[l] == (1,) * n
        assert form.diagonal(l) == exact.identity(n)
        assert chain.mixers[l] * form.gauge[l] == form.gauge[l + 1]
    assert [(bar.birth, bar.death, bar.slot) for bar in form.bars] == [(0, sites, s) for s in range(n)]
    assert all(label.exact and label.rank == n for label in form.ranks)
    if gauge != "balanced":
        assert form.gauge[{"left": 0, "right": -1}[gauge]] == exact.identity(n)


@pytest.mark.parametrize("gauge", ["left", "right"])
def test_against_products_by_hand(gauge):
    chain = Chain([SHEAR, SWAP, [[2, 0], [0, HALF]]])
    form = identity_form(chain, gauge=gauge)
    if gauge == "left":
        assert fractions(form.gauge[3]) == [[0, 2], [HALF, HALF]]
    else:
        assert fractions(form.gauge[0]) == [[-HALF, 2], [HALF, 0]]


@pytest.mark.parametrize(("sites", "strength"), [(6, 0.3), (40, 0.7), (64, 1.0)])
@pytest.mark.parametrize("n", [2, 4])
def test_singular_pairs_are_relatively_accurate(n, sites, strength):
    mixers = mixed(n, sites, strength, seed=sites)
    logs, right = log_singular_pairs(mixers)
    assert np.allclose(logs, exact_singular_values(mixers), rtol=0, atol=1e-10)
    assert np.allclose(right.T @ right, np.eye(n), rtol=0, atol=1e-13)


def test_multiplied_out_product_would_not_do():
    """The control: the same values from the SVD of the float product are wrong in every digit."""
    mixers = mixed(4, 64, 1.0, seed=64)
    product = np.eye(4)
    for a in mixers:
        product = a @ product
    wrong = np.log(np.maximum(np.linalg.svd(product, compute_uv=False), 1e-300))
    assert np.abs(wrong - exact_singular_values(mixers)).max() > 10


@pytest.mark.parametrize(("sites", "strength"), [(5, 0.2), (30, 0.5), (64, 1.0)])
def test_balanced_floats(sites, strength):
    mixers = mixed(4, sites, strength, seed=7 + sites)
    chain = Chain(mixers)
    form = identity_form(chain, gauge="balanced")
    assert form.check(1e-14)
    values = np.array(exact_singular_values(mixers))
    for p, sign in ((form.gauge[0], -1), (form.gauge[-1], 1)):  # V S^{-1/2} and U S^{1/2}: the columns say S
        sizes = np.linalg.norm(p, axis=0)
        assert np.allclose(2 * np.log(sizes), sign * values, rtol=0, atol=1e-9)
        unit = p / sizes
        assert np.allclose(unit.T @ unit, np.eye(4), rtol=0, atol=1e-11)


def test_balanced_meets_the_bound_and_left_pays_it_all():
    mixers = mixed(4, 12, 0.5, seed=2, keep=0.6)
    chain = Chain(mixers)
    values = exact_singular_values(mixers)
    condition = np.exp(values[0] - values[-1])
    assert condition > 100
    ends = {}
    for gauge in GAUGES:
        form = identity_form(chain, gauge=gauge)
        assert form.check()
        ends[gauge] = [np.linalg.cond(form.gauge[0]), np.linalg.cond(form.gauge[-1])]
    assert np.allclose(ends["balanced"], np.sqrt(condition), rtol=1e-9)
    assert np.allclose(ends["left"], [1, condition], rtol=1e-9)
    assert np.allclose(ends["right"], [condition, 1], rtol=1e-9)


def test_balanced_on_an_exact_chain_is_balanced_at_both_ends():
    """Also where the product's condition is far beyond float64's digits."""
    mixers = mixed(3, 40, 1.2, seed=5)
    form = identity_form(Chain(mixers).rational(), gauge="balanced")
    assert form.check()
    values = exact_singular_values(mixers)
    assert values[0] - values[-1] > np.log(1e25)
    for p, sign in ((form.gauge[0], -1), (form.gauge[-1], 1)):
        sizes = np.linalg.norm(exact.to_floats(p), axis=0)
        assert np.allclose(2 * np.log(sizes), sign * np.array(values), rtol=0, atol=1e-8)


def refusal(chain, **options):
    with pytest.raises(InputError) as error:
        identity_form(chain, **options)
    return error.value


def test_singular_site_is_named_with_its_exact_kernel():
    chain = Chain([SHEAR, [[HALF, HALF], [HALF, HALF]], SWAP])
    error = refusal(chain)
    assert isinstance(error, SingularSite)
    assert str(error) == (
        "mixer 1: rank 1 of 2, A v = 0 for v = (-1, 1); "
        "expected an invertible mixer (the binary and graded forms need none)"
    )
    assert (error.site, error.kernel, error.rank.rank) == (1, (-1, 1), 1)
    verdict = invertible(chain)
    assert not verdict
    assert verdict.reason == str(error)
    assert verdict.witness["kernel"] == (-1, 1)


def test_numerically_singular_site_is_named_with_its_numerical_kernel():
    mixers = [np.eye(3), np.eye(3), np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9.0]]) / 10, np.eye(3)]
    error = refusal(Chain(mixers), gauge="balanced")
    assert isinstance(error, SingularSite)
    assert error.site == 2
    assert np.abs(mixers[2] @ error.kernel).max() < 1e-15
    assert np.linalg.norm(error.kernel) == pytest.approx(1)
    assert str(error).startswith("mixer 2: numerical rank 2 of 3 (singular value ")
    assert error.rank.largest_dropped <= error.rank.tolerance < error.rank.smallest_kept
    assert identity_form(Chain(mixers).rational()).check()  # its dyadic rationals are invertible, as they stand


def test_nearly_singular_site_is_not_refused():
    form = identity_form(Chain([np.diag([1.0, 1e-14])]))
    assert form.check()
    assert form.ranks[0].smallest_kept == 1e-14


@pytest.mark.parametrize(
    ("chain", "options", "message"),
    [
        (Chain([[[1, 0], [0, 1], [1, 1]]]), {}, "mixer 0: found shape (3, 2), expected square (identity form)"),
        (Chain([SHEAR]), {"gauge": "middle"}, "gauge: found 'middle', expected one of left, right, balanced"),
        (
            Chain([[[0]]]),
            {},
            "mixer 0: rank 0 of 1, A v = 0 for v = (1); expected an invertible mixer "
            "(the binary and graded forms need none)",
        ),
        (
            Chain([1e200 * np.eye(2)] * 2),
            {},
            "level 2: the identity gauge leaves the range of float64; expected an exact chain",
        ),
        (
            Chain([np.diag([1.0, 1e-3])] * 200),
            {"gauge": "balanced"},
            "product of 200 mixers: singular values spread over "
            "10^600, beyond float64; expected an exact chain or the graded form",
        ),
        (
            Chain([1e-200 * np.eye(2)] * 2),
            {},
            "level 2: the identity gauge leaves the range of float64; expected an exact chain",
        ),
        (
            Chain([1e200 * np.eye(2)] * 10),
            {"gauge": "balanced"},
            "level 10: the identity gauge leaves the range of float64; expected an exact chain",
        ),
        (
            Chain([[[10**50, 1], [10**100, 10**50]]]),
            {},
            "mixer 0: rank 1 of 2, A v = 0 for v = (-1, 2^166.096); expected an invertible mixer "
            "(the binary and graded forms need none)",
        ),
    ],
    ids=["rectangular", "gauge", "zero", "overflow", "spread", "underflow", "balanced overflow", "long kernel"],
)
@pytest.mark.filterwarnings("error")
def test_refusals(chain, options, message):
    assert str(refusal(chain, **options)) == message


def kernel_battery(mutant):
    chain = Chain([SHEAR, SWAP, [[1, 2], [2, 4]], SHEAR])
    with pytest.raises(mutant.SingularSite) as error:
        mutant.identity_form(chain)
    site, kernel = error.value.site, error.value.kernel
    assert site == 2
    assert any(kernel)
    assert [sum(a * v for a, v in zip(row, kernel)) for row in fractions(chain.mixers[2])] == [0, 0]


def gauge_battery(mutant):
    mixers = mixed(3, 20, 0.8, seed=1, keep=0.7)
    values = np.array(exact_singular_values(mixers))
    for chain in (Chain(mixers), Chain(mixers).rational()):
        for gauge in GAUGES:
            form = mutant.identity_form(chain, gauge=gauge)
            assert form.check(1e-14)
        for end, sign in ((0, -1), (-1, 1)):
            p = exact.to_floats(form.gauge[end]) if chain.exact else form.gauge[end]
            assert np.allclose(2 * np.log(np.linalg.norm(p, axis=0)), sign * values, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("battery", "old", "new"),
    [
        (kernel_battery, "    a = chain.mixers[l]\n    rows", "    a = chain.mixers[l - 1]\n    rows"),
        (kernel_battery, "raise SingularSite(l, vector", "raise SingularSite(l + 1, vector"),
        (kernel_battery, "kernel = exact.kernel_vector(a)", "kernel = exact.kernel_vector(a.transpose() * a * 0)"),
        (gauge_battery, "np.exp(logs / 2)", "np.exp(logs)"),
        (gauge_battery, "[right], []", "[right.T], []"),
        (gauge_battery, "vt[j, i] / mpmath", "vt[i, j] / mpmath"),
        (gauge_battery, "return levels[::-1]\n\n\ndef _balanced_floats", "return levels\n\n\ndef _balanced_floats"),
    ],
)
def test_mutants_die(battery, old, new):
    battery(module)
    assert not survives(battery, mutated(module, old, new))
