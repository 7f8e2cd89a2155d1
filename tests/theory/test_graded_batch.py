"""Batches: the same as chains alone, the figures the form is for, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.graded import graded_form
from streamgauge.theory.graded_batch import bars_of, graded_batch
from streamgauge.theory.graded_benchmark import (
    DeathRow,
    GradedRow,
    graded_figures,
    planted_deaths,
    residual,
    sinkhorn_chains,
)
from streamgauge.theory.graded_polish import polish


def row_stochastic(rng, sites, n):
    mixers = rng.exponential(size=(sites, n, n))
    return mixers / mixers.sum(axis=-1, keepdims=True)


def mixed(n=4, sites=30):
    """Chains of every kind, full rank and not, more than vectorised Gram-Schmidt needs."""
    rng = np.random.default_rng(0)
    doubly = sinkhorn_chains(n=n, sites=sites, chains=14, seed=1)
    planted = np.array([planted_deaths("often", rng, n=n, sites=sites)[0] for _ in range(3)])
    gaussian = rng.normal(size=(14, sites, n, n))
    rows = np.array([row_stochastic(rng, sites, n) for _ in range(13)])
    halved = doubly[:2].copy()
    halved[:, 7] = halved[:, 7] @ np.kron(np.eye(n // 2), np.full((2, 2), 0.5))
    return np.concatenate([doubly, planted, gaussian, rows, rows.swapaxes(-1, -2), halved])


def test_batch_equals_single():
    mixers = mixed()
    batch = graded_batch(mixers)
    assert len(batch) == len(mixers)
    for b, chain in enumerate(mixers):
        alone = graded_form(Chain(list(chain)))
        form = batch.form(b)
        assert form.bars == alone.bars
        assert form.notes == alone.notes
        # Gram-Schmidt and Householder differ in rounding, which a covariant column feels through its condition
        slack = 1e-11 * max(np.linalg.cond(p) for p in alone.gauge) ** 2
        assert np.abs(np.array(form.gauge) - np.array(alone.gauge)).max() <= slack
        assert np.array(form.gates) == pytest.approx(np.array(alone.gates), abs=slack)
        assert [label.rank for label in form.ranks] == [label.rank for label in alone.ranks]
        assert form.check()


def test_figures():
    doubly, often, hidden = graded_figures(chains=120, timed=1, seed=1)
    assert isinstance(doubly, GradedRow)
    assert doubly.residual <= 1e-14
    assert doubly.gate_excess <= 1e-12
    assert doubly.tight > 20
    assert doubly.tight_excess <= 1e-9
    assert doubly.median <= 25
    assert doubly.p95 <= 1000
    assert doubly.identity_worst > 60  # what the identity gauge would need, in decades
    for row in (often, hidden):
        assert isinstance(row, DeathRow)
        assert row.deaths == row.dropped == row.found > 0
        assert row.residual <= 1e-14
        assert row.precise == 0


def test_residual_is_that_of_loops():
    batch = graded_batch(mixed(sites=12))
    for b, gap in enumerate(residual(batch)):
        parts = zip(batch.mixers[b], batch.gauge[b], batch.gauge[b, 1:], batch.gates[b])
        assert gap == pytest.approx(max(np.abs(a @ p - q @ np.diag(g)).max() for a, p, q, g in parts), abs=1e-14)
    assert residual(batch).max() <= 1e-13
    shifted = replace(batch, gates=np.roll(batch.gates, 1, axis=1))
    assert residual(shifted).min() > 1e-3


@pytest.mark.parametrize("shape", [(0, 5, 3, 3), (4, 0, 3, 3), (4, 5, 1, 1)])
def test_empty_and_small(shape):
    batch = graded_batch(np.ones(shape))
    assert batch.gauge.shape == (shape[0], shape[1] + 1, shape[2], shape[3])
    assert batch.gates.shape == shape[:3]
    if shape[0]:
        assert batch.form(0).check()


@pytest.mark.parametrize(
    ("mixers", "options", "message"),
    [
        (np.ones((2, 3, 3)), {}, "mixers: found shape (2, 3, 3), expected (chains, sites, n, n)"),
        (np.ones((1, 2, 3, 2)), {}, "mixers: found shape (1, 2, 3, 2), expected (chains, sites, n, n)"),
        (np.full((2, 1, 2, 2), np.nan), {}, "mixer 0 of chain 0: entry (0, 0) is nan, expected a finite number"),
        (np.ones((2, 1, 2, 2)), {"entry": np.ones(3)}, "entry: found shape (3,), expected (2,) or (2, 2)"),
        (np.ones((2, 1, 2, 2)), {"readout": np.ones((1, 2))}, "readout: found shape (1, 2), expected (2,) or (2, 2)"),
        (np.ones((2, 1, 2, 2)), {"tolerance": -1}, "tolerance: found -1.0, expected at least 0"),
    ],
)
def test_bad_input(mixers, options, message):
    with pytest.raises(InputError) as error:
        graded_batch(mixers, **options)
    assert str(error.value).startswith(message)


def test_bars_of_gates():
    bars = bars_of([[1, 0.5], [0, 0.5], [1, 0], [0.1, 1]], 2)
    assert [(b.birth, b.death, b.slot) for b in bars] == [(0, 1, 0), (0, 2, 1), (2, 4, 0), (3, 4, 1)]


def test_polish_mends_a_disturbed_form_and_nothing_else():
    mixers, _ = planted_deaths("often", np.random.default_rng(5), n=4, sites=30)
    form = graded_form(Chain(list(mixers)))
    gauge, gates = np.array(form.gauge), np.array(form.gates)
    rough = gauge * (1 + 1e-9 * np.random.default_rng(6).normal(size=gauge.shape))

    def gap(p):
        return np.abs(mixers @ p[:-1] - p[1:] * gates[:, None, :]).max()

    before = gap(rough)
    mended, better = rough.copy(), gates.copy()
    polish(mixers, mended, better, 0)
    after = np.abs(mixers @ mended[:-1] - mended[1:] * better[:, None, :]).max()
    assert before > 1e-11
    assert after <= 1e-14
    assert ((better == 0) == (gates == 0)).all()
    wrong = rough.swapaxes(-1, -2).copy()
    kept, same = wrong.copy(), gates.copy()
    polish(mixers, kept, same, 4)  # every column fixed
    assert gap(kept) > 1e-3
