"""The reading note and the project's propositions: numbers by a second route, and cases tampered with."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from streamgauge.proofs.ledger.core import Level, Status, run_claim
from streamgauge.proofs.ledger.entries import (
    note_costs,
    note_limits,
    note_mixing,
    note_sinkhorn,
    note_states,
    ours_certificates,
    ours_closure,
    ours_counterexample_cost,
    ours_dynamic,
    ours_floats,
    ours_form,
    ours_gates,
    ours_gauge,
    ours_sinkhorn,
    ours_width,
)
from streamgauge.proofs.ledger.tools import column, rational, row
from streamgauge.theory.barcode import barcode
from streamgauge.theory.chain import Chain
from streamgauge.theory.conditioning import conditioning
from streamgauge.theory.exact import identity, to_floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_growth
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn, sinkhorn_limit
from streamgauge.theory.spectrum import identity_log10_condition
from streamgauge.theory.width import completion_rank, depth_kernel, hankel_rank

NOTE = (note_states, note_mixing, note_limits, note_sinkhorn, note_costs)
OURS = (
    ours_gauge,
    ours_form,
    ours_width,
    ours_closure,
    ours_floats,
    ours_gates,
    ours_certificates,
    ours_sinkhorn,
    ours_dynamic,
)


def test_ids_are_complete() -> None:
    note = sorted(c.id for m in NOTE for c in m.CLAIMS)
    ours = sorted(c.id for m in OURS for c in m.CLAIMS)
    assert note == [f"N{i:02d}" for i in range(1, 53)]
    assert ours == [f"P{i:02d}" for i in range(1, len(ours) + 1)]


@pytest.mark.parametrize("module", NOTE + OURS, ids=lambda m: m.__name__.rsplit(".", 1)[-1])
def test_every_status_is_decided_and_twice_the_same(module: object) -> None:
    for claim in module.CLAIMS:  # type: ignore[attr-defined]
        first, second = (run_claim(claim, Level.QUICK) for _ in range(2))
        assert first.status in (Status.HOLDS, Status.LITERATURE), (claim.id, first.reason)
        assert (first.reason, first.witness) == (second.reason, second.witness)
        json.dumps(dict(first.witness), allow_nan=False)


def test_note_example_by_the_package() -> None:
    """N30 and its rate, by the log-domain program and by the limit's singular values."""
    result = sinkhorn(note_sinkhorn.LOGITS, "paper")
    assert float(result.column_error) == pytest.approx(1.931189e-8, rel=1e-6)
    other = sinkhorn(note_sinkhorn.LOGITS, replace(RECIPES["paper"], order=("rows", "columns")))
    assert float(other.row_error) == pytest.approx(4.223e-6, rel=1e-3)
    limit = sinkhorn_limit(note_sinkhorn.LOGITS)
    assert limit.rate == pytest.approx(0.53038, abs=1e-5)
    assert limit.singular_values == pytest.approx([1, 0.7283, 0.5618, 0.2075], abs=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_widths_by_the_package(seed: int) -> None:
    """Corners of the ledger's kernel against the package's staircase; one stream per bar is never fewer."""
    net = ours_gauge.any_network(seed, sites=5)
    chain = ours_width.chain_of(net)
    kernel = depth_kernel(chain)
    assert ours_width._widths(net) == (completion_rank(kernel), hankel_rank(kernel))
    assert len(barcode(chain).bars) == ours_width.stream_per_bar(net).entry.nrows() >= completion_rank(kernel)


def test_growth_by_the_package() -> None:
    grown = norm_growth([[1, 1, 1, 0]] * 60, NormGate())
    assert 2 ** grown.bound[-1] == pytest.approx(5599.666, rel=1e-6)
    turns = [[float(x) for x in g] for g in ours_gates._in_turn(8)]
    assert (
        norm_growth(turns, NormGate()).since_reset
        < math.log2(math.e) / 2
        < norm_growth([[1, 1, 1, 0]] * 4, NormGate()).since_reset
    )


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-6])
def test_intrinsic_bound_by_the_package(delta: float) -> None:
    """P08: the report's lower bound for every form is 2 / delta, and the forms made attain the order."""
    chain = Chain([np.array([[1.0, 0], [0, 0]]), np.array([[delta, -1.0], [0, 0]])])
    found = conditioning(normal_form(chain))
    assert 2 / delta * (1 - 1e-6) <= found.intrinsic <= found.worst * (1 + 1e-6)


def test_identity_gauge_by_its_logarithms() -> None:
    """P07: the exact product's condition against the spectrum's logarithms."""
    mixers, gauge, gates = ours_form._trained_like(0).value
    found = ours_form._well_conditioned((mixers, gauge, gates))
    log10 = float(identity_log10_condition(mixers)[-1])
    assert found
    assert abs(math.log10(found.witness["identity"]) - log10) < 1.0


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_formats_are_numpys(name: str) -> None:
    info, ours = np.finfo(name), ours_floats.FORMATS[name]
    assert (ours.precision, ours.smallest, ours.largest) == (info.nmant + 1, info.minexp, info.maxexp - 1)


def test_bfloat16_rounds_to_nearest_even() -> None:
    """Against exact fractions: the nearer of the two neighbours of 8 bits, the even one on a tie."""
    for i in range(1, 1 << 12):
        x = 1 + i / (1 << 12)
        exact = Fraction(x) * 128
        assert Fraction(float(ours_floats.stored(x, "bfloat16"))) * 128 == round(exact)  # round() is half to even


def test_swamping_in_fractions() -> None:
    """P21: |old| < half an ulp of the new value for m = p + 1, and not always for m = p."""
    p, new, old = 24, Fraction(1), 2 - Fraction(1, 2**23)
    for m, swallowed in ((p + 1, True), (p, False)):
        ulp = Fraction(1, 2 ** (p - 1)) * new * 2**m
        assert (old < ulp / 2) is swallowed


def test_a_changed_gauge_is_noticed() -> None:
    form = ours_form.made_form([ours_dynamic.NEAR] * 3, "graded", n=2)
    assert ours_form.covariant(form)
    gauge = list(form.gauge)
    gauge[1] = gauge[1] + identity(2) / 10**9
    assert not ours_form.covariant(replace(form, gauge=tuple(gauge)))


def test_a_changed_write_is_noticed() -> None:
    net, other = ours_gauge._gauge_case(2).value
    writes = (*other.writes[:-1], other.writes[-1] * 2)
    changed = ours_gauge._invariant((net, replace(other, writes=writes)))
    silent = (net.readout * net.writes[-1])[0, 0] == 0
    assert ours_gauge._invariant((net, other))
    assert bool(changed) is silent


@pytest.mark.parametrize("seed", range(4))
def test_seed_bound_is_attained_in_order(seed: int) -> None:
    """P20: the family's product times delta stays between the bound and twice it."""
    eps = Fraction(1, 10 ** (seed + 2))
    sharp = (row(0, 1), row(0, eps), row(1, 0), rational([[1, 1], [1, -1]]), column(0, 1 / eps), column(1, 0))
    found = ours_closure._needs_weight(sharp)
    assert found
    assert 1 <= Fraction(found.witness["product"]) / Fraction(found.witness["bound"]) < Fraction(11, 10)


def test_helmert_basis_is_orthogonal() -> None:
    for n in (2, 3, 4, 5):
        h = ours_dynamic.helmert(n)
        assert (h.T * h).is_diagonal()
        assert h.det() != 0


def test_three_streams_of_the_seed_need_no_weight() -> None:
    a, _, _, _, u, _ = ours_closure.THREE_STREAMS
    assert float(to_floats(a * u)[0, 0]) == 0.0


def test_the_search_in_pure_ihc_has_the_budget_with_which_the_others_arrive() -> None:
    """A control with less would fail for want of steps: gated iHC fails then, too."""
    check = ours_counterexample_cost.CE17.literal
    assert check is not None
    control = check.control.value
    jobs = [case.value for case in check.cases(Level.QUICK)]
    assert {job.kind for job in jobs} == {"gated iHC", "mHC"}
    for job in jobs:
        assert replace(job, kind=control.kind) == control
    assert not check.predicate(replace(jobs[0], starts=8, iterations=6))
