"""Singular values of running products against exact and high-precision products."""

from __future__ import annotations

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated

from streamgauge.theory import exact, spectrum
from streamgauge.theory.errors import InputError
from streamgauge.theory.graded_benchmark import sinkhorn_chains
from streamgauge.theory.sinkhorn import sinkhorn
from streamgauge.theory.spectrum import (
    identity_log10_condition,
    log_singular_pairs,
    running_log_singular_values,
)


def high_precision(mixers, levels):
    """log singular values of the running products with 300 digits."""
    out = []
    with mpmath.workdps(300):
        product = mpmath.eye(mixers.shape[-1])
        for l, a in enumerate(mixers):
            product = mpmath.matrix(a.tolist()) * product
            if l + 1 in levels:
                values = mpmath.svd_r(product, compute_uv=False)
                out.append(sorted((float(mpmath.log(v)) for v in values), reverse=True))
    return np.array(out)


@pytest.mark.parametrize("seed", range(4))
def test_sinkhorn_products(seed):
    mixers = sinkhorn_chains(n=4, sites=60, chains=1, seed=seed)[0]
    levels = [1, 20, 60]
    assert running_log_singular_values(mixers)[levels] == pytest.approx(high_precision(mixers, levels), abs=1e-11)


def test_ratio_of_a_hundred_decades_and_what_a_product_says():
    mixers = sinkhorn_chains(n=4, sites=160, chains=60, seed=0)
    found = running_log_singular_values(mixers)[:, -1]
    b = int((found[:, 0] - found[:, -1]).argmax())
    assert found[b, 0] - found[b, -1] > 66 * np.log(10)
    assert found[b] == pytest.approx(high_precision(mixers[b], [160])[0], abs=1e-10)
    product = np.linalg.multi_dot(list(mixers[b, ::-1]))
    naive = max(np.linalg.svd(product, compute_uv=False)[-1], 1e-300)
    assert abs(np.log(naive) - found[b, -1]) > 40  # control: the formed product is off by decades


@pytest.mark.parametrize("scale", [0.0, 40.0])
def test_gaussian_products_of_any_size(scale):
    rng = np.random.default_rng(7)
    mixers = rng.normal(size=(30, 5, 5)) * 10.0 ** rng.uniform(-scale, scale, size=(30, 1, 1))
    assert running_log_singular_values(mixers)[[30]] == pytest.approx(high_precision(mixers, [30]), abs=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.integers(1, 5), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_sum_of_logs_is_the_determinant(n, sites, seed):
    mixers = np.random.default_rng(seed).integers(-4, 5, size=(sites, n, n)).astype(float) + 9 * np.eye(n)
    product = exact.identity(n)
    for a in mixers:
        product = exact.from_floats(a) * product
    logs = running_log_singular_values(mixers)
    assert logs.shape == (sites + 1, n)
    assert (np.diff(logs, axis=1) <= 0).all()
    size = abs(product.det())
    if size != 0:
        assert logs[-1].sum() == pytest.approx(float(flint.arb(size).log().mid()), abs=1e-9)


def test_lost_rank_is_minus_infinity():
    mixers = np.random.default_rng(1).normal(size=(9, 3, 3))
    mixers[4] = np.outer(mixers[4, 0], mixers[4, 1])
    logs = running_log_singular_values(mixers)
    assert np.isfinite(logs[:5]).all()
    assert np.isneginf(logs[5:, 1:]).all()
    top = np.linalg.norm(np.linalg.multi_dot(list(mixers[::-1])), 2)
    assert logs[-1, 0] == pytest.approx(np.log(top))
    condition = identity_log10_condition(mixers)
    assert np.isfinite(condition[:5]).all()
    assert np.isinf(condition[5:]).all()
    assert np.isinf(identity_log10_condition(np.zeros((2, 2, 2)))[1:]).all()


def test_zero_maps_in_a_batch():
    """Vectorised Gram-Schmidt leaves columns without meaning there."""
    mixers = np.random.default_rng(5).normal(size=(20, 8, 3, 3))
    mixers[:, 3] = [[1, 2, 0], [2, 4, 0], [0, 0, 1]]
    mixers[::2, 5] = 0
    logs = running_log_singular_values(mixers)
    for b in range(20):
        product = np.linalg.multi_dot(list(mixers[b, ::-1]))
        sigma = np.linalg.svd(product, compute_uv=False)
        rank = 0 if b % 2 == 0 else 2
        assert np.exp(logs[b, -1, :rank]) == pytest.approx(sigma[:rank])
        assert np.isneginf(logs[b, -1, rank:]).all()


@pytest.mark.parametrize("lines", [[[1, 1, 0], [0, 0, 1], [0, 0, 1]], [[0, 2, 1], [0, 4, 2], [0, 0, 0]]])
def test_column_that_depends_on_earlier_ones(lines):
    """What comes after it keeps its whole size, at this site and through the next ones."""
    mixers = np.array([lines, [[1, 2, 0], [0, 1, 1], [1, 0, 3]], [[0, 1, 0], [1, 0, 1], [1, 1, 1]]], dtype=float)
    logs, product = running_log_singular_values(mixers), np.eye(3)
    for level, a in enumerate(mixers, start=1):
        product = a @ product
        sigma = np.linalg.svd(product, compute_uv=False)
        rank = np.linalg.matrix_rank(product)
        assert np.exp(logs[level, :rank]) == pytest.approx(sigma[:rank], rel=1e-13)
        assert np.isneginf(logs[level, rank:]).all()


def test_batch_equals_single():
    mixers = np.random.default_rng(2).normal(size=(15, 20, 4, 4))
    batch = running_log_singular_values(mixers)
    assert batch.shape == (15, 21, 4)
    for b in range(15):
        assert running_log_singular_values(mixers[b]) == pytest.approx(batch[b], abs=1e-10)


def test_conditions_of_small_products():
    mixers = np.array([np.diag([2.0, 1.0]), np.diag([3.0, 0.5])])
    assert identity_log10_condition(mixers) == pytest.approx(np.log10([1, 2, 12]))


@pytest.mark.parametrize(
    ("mixers", "message"),
    [
        ([np.eye(2), np.eye(3)], "mixers: found maps of several shapes"),
        (np.ones((2, 2, 3)), "mixers: found shape (2, 2, 3), expected"),
        (np.full((1, 2, 2), np.inf), "mixers: found an entry that is not finite"),
    ],
)
def test_bad_input(mixers, message):
    with pytest.raises(InputError) as error:
        running_log_singular_values(mixers)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("slope = np.where(live, slope, 0.0)", "slope = np.where(live, 0 * slope, 0.0)"),
        ("+ scales[:, None, :]", "+ 0 * scales[:, None, :]"),
        ("16 * float(tiny[b, l])", "100.0"),
        ("r[kept.shape[1] - 1, j:]", "r[j, j:]"),
    ],
)
def test_mutants_die(old, new):
    module = mutated(spectrum, old, new)
    doubly = sinkhorn_chains(n=4, sites=160, chains=8, seed=0)
    singular = np.random.default_rng(1).normal(size=(9, 3, 3))
    singular[4] = np.outer(singular[4, 0], singular[4, 1])
    singular[0] = [[1, 1, 0], [0, 0, 1], [0, 0, 1]]

    def differs(mixers):
        return not np.allclose(module.running_log_singular_values(mixers), running_log_singular_values(mixers))

    assert differs(doubly) or differs(singular)


@pytest.mark.parametrize("shape", [np.triu, np.tril])
def test_weak_direction_first(shape):
    """Triangular maps keep their order: no QR step sorts them."""
    mixers = shape(np.random.default_rng(3).normal(size=(60, 4, 4)))
    mixers[:, range(4), range(4)] = [0.1, 0.2, 0.5, 1.0]
    assert running_log_singular_values(mixers)[[60]] == pytest.approx(high_precision(mixers, [60]), abs=1e-10)


def test_right_vectors_of_graded_rows():
    """One-sided Jacobi keeps the small value's digits, and its vector is the one the exact product gives."""
    logs, right = log_singular_pairs([np.array([[1.0, 1.0], [1.0, -2.0]]), *[np.diag([1.0, 1e-10])] * 2])
    assert np.exp(logs) == pytest.approx([np.sqrt(2), 3e-20 / np.sqrt(2)], rel=1e-14, abs=0)
    assert np.abs(right.T @ np.array([[1, 1], [1, -1]]) / np.sqrt(2)) == pytest.approx(np.eye(2), abs=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_right_vectors_of_products(seed):
    """A_{L-1} .. A_0 V has orthogonal columns of the sizes found, in 300 digits."""
    mixers = sinkhorn_chains(n=4, sites=80, chains=1, seed=seed)[0]
    logs, right = log_singular_pairs(mixers)
    assert logs == pytest.approx(running_log_singular_values(mixers)[-1], abs=1e-12)
    product = exact.from_floats(right[:, :1])
    for a in mixers:
        product = exact.from_floats(a) * product
    size = sum((x * x for x in product.entries()), flint.fmpq(0))
    assert float(flint.arb(size).log().mid()) / 2 == pytest.approx(logs[0], abs=1e-12)
    assert right.T @ right == pytest.approx(np.eye(4), abs=1e-14)


@pytest.mark.filterwarnings("error")
def test_saturated_mixers_bring_no_warning():
    """Logits of size 1000: entries and cosines around 1e-300, whose squares underflow."""
    mixers = sinkhorn(1e3 * np.random.default_rng(0).normal(size=(600, 4, 4)), "paper").mixer
    for chain in mixers.reshape(50, 12, 4, 4):
        assert np.isfinite(running_log_singular_values(chain)[:, 0]).all()
