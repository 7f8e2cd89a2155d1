"""The conditioning report and the bound that every diagonal form shares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamgauge.theory.binary import binary_form
from streamgauge.theory.chain import Chain
from streamgauge.theory.conditioning import condition_numbers, conditioning, intrinsic_bound
from streamgauge.theory.errors import InputError
from streamgauge.theory.graded import graded_form
from streamgauge.theory.graded_benchmark import planted_deaths, sinkhorn_chains
from streamgauge.theory.identity import identity_form
from streamgauge.theory.rounding import floating_form


def near_parallel(delta):
    return [np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[delta, -1.0], [0.0, 0.0]])]


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-6, 1e-9])
def test_intrinsic_ill_conditioning_is_said(delta):
    report = conditioning(graded_form(Chain(near_parallel(delta))))
    # the image (1, 0) and the kernel (1, delta) must both be columns of P_1
    exactly = np.linalg.cond(np.array([[1.0, 1.0], [0.0, delta]]) / [1.0, np.hypot(1, delta)])
    assert report.intrinsic == pytest.approx(exactly, rel=1e-6)
    assert report.worst >= 2 / delta * (1 - 1e-9)
    assert report.worst <= report.intrinsic * (1 + 1e-6)
    assert report.worst_level == 1
    said = [note for note in report.notes if note.startswith("ill-conditioned: cond(P_1)")]
    assert bool(said) == (report.worst >= 1e4)
    assert all("every diagonal form of this chain" in note for note in said)


@pytest.mark.parametrize("kind", ["often", "hidden"])
def test_bound_holds_for_every_form(kind):
    """Other diagonal forms of the same chain: the graded gauge with columns mixed as the bars allow, and rescaled."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        mixers, _ = planted_deaths(kind, rng, n=4, sites=60)
        form = graded_form(Chain(list(mixers)))
        exact_form = binary_form(Chain([np.round(a, 3) for a in mixers[:6]]))
        for level, p in enumerate(form.gauge):
            bound = intrinsic_bound(form, level)
            for _ in range(3):
                assert bound <= np.linalg.cond(p * rng.exponential(size=4)) * (1 + 1e-9)
        dense = [np.array([[float(x) for x in row] for row in p.tolist()]) for p in exact_form.gauge]
        same = graded_form(exact_form.chain)
        for level, p in enumerate(dense):
            assert intrinsic_bound(same, level) <= np.linalg.cond(p) * (1 + 1e-9)


def test_report_of_a_trained_like_chain():
    mixers = sinkhorn_chains(n=4, sites=30, chains=1, seed=3)[0]
    rng = np.random.default_rng(0)
    reads, writes = rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    form = graded_form(Chain(list(mixers), reads=list(reads), writes=list(writes), entry=np.ones(4)))
    report = conditioning(form)
    assert report.condition == pytest.approx([np.linalg.cond(p) for p in form.gauge])
    assert report.worst == max(report.condition)
    assert report.largest_read == pytest.approx(max(np.abs(r @ p).max() for r, p in zip(reads, form.gauge)))
    written = [np.linalg.solve(p, w) for p, w in zip(form.gauge[1:], writes)]
    assert report.largest_write == pytest.approx(max(np.abs(w).max() for w in written))
    assert report.gate_range == (min(g.min() for g in form.gates), 1.0)
    assert report.zero_gates == 0
    left = conditioning(identity_form(Chain(list(mixers[:6]))))
    assert left.identity_log10 == pytest.approx(np.log10(left.worst), rel=1e-6)
    assert report.identity_log10 > np.log10(report.worst)


def test_edges():
    empty = conditioning(graded_form(Chain([], dim=3)))
    assert empty.identity_log10 == 0
    assert np.isnan(empty.gate_range[0])
    assert (empty.largest_read, empty.largest_write) == (None, None)
    dead = conditioning(graded_form(Chain([np.zeros((2, 2))] * 3)))
    assert dead.zero_gates == 6
    assert dead.worst == pytest.approx(1)
    assert np.isinf(dead.identity_log10)
    rectangular = conditioning(binary_form(Chain([[[1, 0]], [[1], [2]]])))
    assert np.isnan(rectangular.identity_log10)
    exact = conditioning(graded_form(Chain([[[1, 0], [0, 0]], [[1, -1], [0, 0]]])))
    assert exact.intrinsic == pytest.approx(1 + np.sqrt(2))


def test_gauge_beyond_float64_is_refused():
    with pytest.raises(InputError, match=r"^gauge \d+: an entry is beyond float64"):
        conditioning(binary_form(Chain([[[10**40]]] * 10)))


@pytest.mark.filterwarnings("error")
def test_condition_numbers_of_a_stack():
    stack = np.array(
        [[np.diag([4.0, 1.0]), np.ones((2, 2)) - np.eye(2)], [np.zeros((2, 2)), np.full((2, 2), np.nan)]]
    )
    assert condition_numbers(stack).tolist() == [[4, 1], [np.inf, np.inf]]
    assert condition_numbers(np.diag([1e300, 1e-300])) == np.inf
    assert condition_numbers(np.zeros((3, 0, 0))).tolist() == [1, 1, 1]
    assert condition_numbers(np.array([[1.0, 1.0], [0.0, 1e-8]])) == pytest.approx(2e8)


@pytest.mark.filterwarnings("error")
def test_numbers_at_the_ends_of_float64():
    tiny = binary_form(Chain([np.diag([1.0, 1e-320]), np.eye(2)]))
    assert conditioning(tiny).worst == np.inf
    large = graded_form(Chain([[[10**400, 1], [1, 1]]]))
    assert large.check()
    with pytest.raises(InputError, match=r"^mixer 0: an entry is beyond float64"):
        conditioning(large)
    within = replace(large, chain=Chain([[[1, 0], [0, 1]]]))
    assert conditioning(within).gate_range[1] == np.inf
    with pytest.raises(InputError, match=r"^site 0: a gate is beyond float64"):
        floating_form(within)


def test_a_chain_without_numbers_rounds_to_itself():
    form = binary_form(Chain([], dim=3))
    assert floating_form(form) is form
    assert form.check()


def test_singular_float_gauge_is_named():
    form = identity_form(Chain([np.diag([1.0, 1e-9]) + 0.5, np.diag([1.0, 1e-9])] * 2, writes=[np.ones(2)] * 4))
    singular = replace(form, gauge=(*form.gauge[:2], np.ones((2, 2)), *form.gauge[3:]))
    for part in ("gauge_inverse", "writes"):
        with pytest.raises(InputError, match=r"^gauge 2: singular, expected an invertible matrix"):
            getattr(singular, part)
