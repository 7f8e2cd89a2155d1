"""Second routes for the Taylor essay's entries."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import entropy as scipy_entropy

from streamgauge.proofs.ledger.core import Claim, Level, Status, run_claim
from streamgauge.proofs.ledger.entries import taylor_carry, taylor_views
from streamgauge.proofs.ledger.mixers import entropy, on_a_permutation
from streamgauge.proofs.ledger.taylor_checks import (
    Series,
    converges,
    entropy_not_lower,
    is_scaling,
    norm_decides,
    run,
    swept,
    unrolled_last_on_the_left,
    unrolled_left_to_right,
)
from streamgauge.proofs.ledger.tools import column, rational
from streamgauge.theory.support import total_support

ENTRIES = {claim.id: claim for module in (taylor_carry, taylor_views) for claim in module.CLAIMS}


def witness(name: str) -> dict[str, object]:
    return dict(run_claim(ENTRIES[name], Level.QUICK).witness)


def test_every_claim_stands_once() -> None:
    assert set(ENTRIES) == {f"T{i:02d}" for i in range(1, 25)}


@pytest.mark.parametrize("name", ["T04", "T08", "T10"])
def test_wrong_claims_are_refuted(name: str) -> None:
    result = run_claim(ENTRIES[name], Level.QUICK)
    assert result.status is Status.REFUTED, result.reason
    assert result.witness


@pytest.mark.parametrize("claim", [c for c in ENTRIES.values() if c.literal and c.id != "T08"], ids=lambda c: c.id)
def test_a_predicate_can_say_yes_and_no(claim: Claim) -> None:
    result = run_claim(claim, Level.QUICK)
    assert result.status is not Status.UNDETERMINED, result.reason
    verdicts = [claim.literal.predicate(case.value) for case in claim.literal.cases(Level.QUICK)]  # type: ignore[union-attr]
    assert any(verdicts) or result.repair is not None
    assert result.literal is not None
    assert result.literal.control.witness


def test_series_at_the_edge_of_convergence() -> None:
    log = ENTRIES["T01"].literal.control.value.coefficient  # type: ignore[union-attr]
    assert converges(Series(log, Fraction(1, 3), math.log(4 / 3)))
    assert not converges(Series(log, Fraction(1), math.log(2)))  # converges, but not within 80 terms


def test_order_of_products_by_numpy() -> None:
    mixers = [np.array(m, dtype=float) for m in ([[1, 2], [0, 1]], [[0, 1], [1, 1]], [[2, 0], [1, 1]])]
    writes = [np.array([[1.0], [2]]), np.array([[0.0], [1]]), np.array([[3.0], [0]])]
    x = np.array([[1.0], [-1]])
    for h, w in zip(mixers, writes):
        x = h @ x + w
    exact_run = run(
        [rational(m.astype(int).tolist()) for m in mixers],
        [rational(w.astype(int).tolist()) for w in writes],
        column(1, -1),
    )
    assert [[int(v) for v in line] for line in exact_run.end.tolist()] == x.astype(int).tolist()
    assert unrolled_last_on_the_left(exact_run)
    assert not unrolled_left_to_right(exact_run)


def test_norm_above_one_need_not_grow() -> None:
    """Row-stochastic with ||H||_2 = sqrt 2: every power is H."""
    h = np.array([[1.0, 0], [1, 0]])
    assert np.linalg.norm(h, 2) == pytest.approx(math.sqrt(2))
    assert not norm_decides([h] * 30)
    assert witness("T04")["product"] == pytest.approx(0.5**30, rel=1e-9)


def test_the_zero_mean_part_decays_like_powers_of_0_8() -> None:
    assert witness("T10")["ratio"] == pytest.approx(0.8**60, rel=1e-9)


def test_entropy_by_scipy() -> None:
    dice = np.random.default_rng(0)
    for _ in range(5):
        p = dice.dirichlet(np.ones(4))
        assert entropy(p) == pytest.approx(scipy_entropy(p), abs=1e-12)
    assert not entropy_not_lower((rational([[1, 0], [0, 1]]), column(2, -1)))  # signed: nothing is said of it


def test_total_support_by_all_permutations_and_by_matching() -> None:
    dice = np.random.default_rng(1)
    seen = set()
    for _ in range(60):
        matrix = rational([[int(x) for x in line] for line in dice.integers(0, 2, (4, 4)) + np.eye(4, dtype=int)])
        mine = on_a_permutation(matrix)
        seen.add(mine)
        assert mine == bool(total_support(matrix))
    assert seen == {True, False}


def test_sweeps_of_the_unbalanced_matrix_tend_to_the_identity_slowly() -> None:
    matrix = rational([[1, 1], [0, 1]])
    errors = [abs(swept(matrix, count)[0, 1]) for count in (100, 200, 400)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.02)
    assert not is_scaling(matrix, swept(matrix))[0]
    assert not is_scaling(matrix, np.eye(2))[0]  # nor is the limit a scaling


def test_scores_in_points_and_percent() -> None:
    assert witness("T20")["percent"] == pytest.approx(100 * 2.1 / 48.9)
    assert witness("T23")["extra"] > 0  # type: ignore[operator]
