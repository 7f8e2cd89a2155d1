"""Second routes for the explainer's entries: closed forms, scipy, the reference op, and hand-made witnesses."""

from __future__ import annotations

import importlib.util
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, minimize

from streamgauge.proofs.ledger import claims
from streamgauge.proofs.ledger.core import Claim, Level, Status, run_claim
from streamgauge.proofs.ledger.entries import explainer_carry, explainer_normalisation, explainer_usage
from streamgauge.proofs.ledger.operations import hyper_site, residual_site
from streamgauge.proofs.ledger.sinkhorn_checks import BENIGN, Transport, transport_optimum
from streamgauge.proofs.ledger.usage_checks import coefficients, projection, sweep_operations
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn, sinkhorn_limit

ENTRIES = {
    claim.id: claim
    for module in (explainer_carry, explainer_normalisation, explainer_usage)
    for claim in module.CLAIMS
}


def witness(name: str) -> dict[str, object]:
    return dict(run_claim(ENTRIES[name], Level.QUICK).witness)


def test_every_claim_stands_once() -> None:
    assert set(ENTRIES) == {f"E{i:02d}" for i in range(1, 39)}
    assert set(ENTRIES) <= set(claims())


@pytest.mark.parametrize("name", ["E06", "E08", "E13", "E15", "E26"])
def test_wrong_claims_are_refuted_at_both_levels(name: str) -> None:
    for level in Level:
        result = run_claim(ENTRIES[name], level)
        assert result.status is Status.REFUTED, result.reason
        assert result.witness


@pytest.mark.parametrize("claim", [c for c in ENTRIES.values() if c.literal], ids=lambda c: c.id)
def test_a_predicate_can_say_yes_and_no(claim: Claim) -> None:
    """Also where the claim is refuted some case of its own check holds, or the repair's does."""
    result = run_claim(claim, Level.QUICK)
    assert result.status is not Status.UNDETERMINED, result.reason
    verdicts = [claim.literal.predicate(case.value) for case in claim.literal.cases(Level.QUICK)]  # type: ignore[union-attr]
    assert any(verdicts) or result.repair is not None
    assert result.literal is not None
    assert result.literal.control.witness


def test_cancellation_and_loss_by_numpy() -> None:
    j = np.full((2, 2), 0.5)
    assert (j @ [1.0, -1.0] == 0).all()
    assert (np.abs(j) @ np.abs([1.0, -1.0]) == 1).all()
    assert witness("E06")["contributions"] == ["1/2", "-1/2"]
    assert witness("E08")["sums"] == [["0"], ["0"]]


def test_attenuation_is_two_a_minus_one() -> None:
    assert witness("E13")["ratio"] == "1/5000"
    assert np.array([[0.5001, 0.4999], [0.4999, 0.5001]]) @ [1, -1] == pytest.approx([2e-4, -2e-4])


def test_one_exact_sweep_by_hand() -> None:
    """[[8, 1, 2], [3, 5, 1], [1, 4, 6]]: rows then columns leave row 0 at 0.938446..; fractions by hand in floats."""
    s = np.array([[8.0, 1, 2], [3, 5, 1], [1, 4, 6]])
    s = s / s.sum(axis=1, keepdims=True)
    s = s / s.sum(axis=0)
    assert witness("E15")["excess"] == pytest.approx(s[0].sum() - 1, rel=1e-12)


def test_parameters_are_of_order_n_cubed() -> None:
    for n, d in itertools.product((1, 2, 4, 7), (1, 3)):
        assert projection(n, d).shape == (n * (n + 2), n * d)
        assert projection(n, d).size == n**3 * d + 2 * n**2 * d
    assert len(coefficients(4)) == 24
    assert witness("E26")["growth"] == pytest.approx(66 / 6)


def test_counted_operations_are_the_formulas() -> None:
    for n in (2, 4, 5):
        assert sweep_operations(n) == 4 * n * n - 2 * n
    for d in (2, 5):
        hidden = 4 * d
        assert residual_site(d) == hidden * (2 * d - 1) + hidden + d * (2 * hidden - 1) + d
    n, d = 3, 4
    own = 2 * n * d - 1 + 1 + n * (n + 2) * (2 * n * d - 1 + 1 + 1) + 2 * (4 * n * n - 2 * n)
    streams = d * (2 * n - 1) + n * d * (2 * n - 1 + 2)
    assert hyper_site(n, d, sweeps=2) == own + streams + residual_site(d) - d


def test_two_streams_have_a_closed_form() -> None:
    """C_11 = sigma((s11 + s22 - s12 - s21) / 2): the limits at both ends of s2 follow from it."""
    dice = np.random.default_rng(3)
    for scale in (0.0, 0.5, 3.0):
        m, b = dice.standard_normal((2, 2)), dice.standard_normal((2, 2))
        s = scale * m + b
        expected = 1 / (1 + math.exp(-(s[0, 0] + s[1, 1] - s[0, 1] - s[1, 0]) / 2))
        assert sinkhorn_limit(s).matrix[0, 0] == pytest.approx(expected, abs=1e-11)


def test_eps_changes_the_limit_of_wide_logits() -> None:
    """[[0, -20], [0, -24]]: D1 K D2 has C_11 = sigma(-2) = 0.119; softmax + 1e-6 levels the small entries: 0.4997."""
    z = explainer_normalisation.WIDE
    assert sinkhorn_limit(z).matrix[0, 0] == pytest.approx(1 / (1 + math.exp(2)), abs=1e-11)
    cross = (1 * (math.exp(-24) + 1e-6)) / (1 * (math.exp(-20) + 1e-6))
    expected = 1 / (1 + math.sqrt(1 / cross))
    found = sinkhorn(z, replace(RECIPES["deepseek-v4"], iterations=2000)).matrix[0, 0]
    assert found == pytest.approx(expected, abs=1e-5)
    assert sinkhorn(z, "deepseek-v4").matrix[0, 0] == pytest.approx(found, abs=1e-5)
    assert found == pytest.approx(0.4997, abs=1e-4)


def test_cold_limit_is_the_best_assignment() -> None:
    rows, cols = linear_sum_assignment(explainer_normalisation.DYNAMIC, maximize=True)
    case = next(iter(ENTRIES["E22"].literal.cases(Level.QUICK))).value  # type: ignore[union-attr]
    assert (np.round(case.cold)[rows, cols] == 1).all()


def test_transport_by_a_general_minimiser() -> None:
    """The 2 x 2 plans are [[p, 1 - p], [1 - p, p]]: minimise over p alone."""
    s, tau = np.array([[0.3, -1.0], [0.7, 0.2]]), 0.5

    def objective(p: np.ndarray) -> float:
        c = np.array([[p[0], 1 - p[0]], [1 - p[0], p[0]]])
        return float((-c * s + tau * c * np.log(c)).sum())

    best = minimize(objective, [0.5], bounds=[(1e-6, 1 - 1e-6)], tol=1e-14).x[0]
    plan = sinkhorn_limit(s / tau).matrix
    assert plan[0, 0] == pytest.approx(best, abs=1e-5)
    assert transport_optimum(Transport(s, tau, plan))


def test_rate_and_errors_of_the_benign_logits() -> None:
    limit = sinkhorn_limit(BENIGN)
    assert limit.rate == pytest.approx(0.53038, abs=5e-6)
    found = witness("E23")  # the case with eps: stuck at the floor
    assert found["last"] == pytest.approx(1e-6, rel=0.01)
    result = run_claim(ENTRIES["E23"], Level.QUICK)
    assert result.repair is not None
    assert result.repair.ok


def test_wide_logits_are_far_off_after_twenty_iterations() -> None:
    wide = 6 * np.random.default_rng(0).standard_normal((2000, 4, 4))
    result = sinkhorn(wide, RECIPES["deepseek-v4"])
    assert 0.07 < result.column_error.max() < 0.08
    assert result.row_error.max() < 2e-6


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("seed", range(3))
def test_the_released_program_by_the_reference_op(seed: int) -> None:
    import torch

    from streamgauge.kernels.reference import sinkhorn as reference
    from streamgauge.proofs.ledger.sinkhorn_checks import Swept, essay_program, released_program

    z = np.random.default_rng(seed).standard_normal((4, 4))
    made = reference(
        torch.tensor(z),
        order=("rows", "columns"),
        start="softmax",
        start_eps=1e-6,
        eps=1e-6,
        eps_mode="add",
        iterations=2,
    ).numpy()
    assert released_program(Swept(z, 2, made))
    difference = essay_program(Swept(z, 2, made)).witness["difference"]
    assert 1e-14 < difference < 1e-10
