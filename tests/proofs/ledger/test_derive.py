"""The rule that turns what checks found into a status: every line of it, and the cases that must not slip through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair, Status, run_claim
from streamgauge.theory.verdict import Verdict


def positive(value: Any) -> Verdict:
    """The toy predicate of this file."""
    return Verdict(value > 0, f"{value} is {'' if value > 0 else 'not '}positive", {"value": value})


def silent(value: Any) -> Verdict:
    """Fails without a witness."""
    return Verdict(value > 0, "no")


def check(*values: int, control: int = -1, predicate: Any = positive) -> Check:
    def cases(level: Level) -> Iterator[Case]:
        return (Case(f"case {v}", v) for v in values)

    return Check("numbers", predicate, cases, Case("control", control))


BASE = Claim("X1", "ours", "", "numbers are positive", "theorem", "symbolic", check(1, 2))
NAMED, SHARPER = (Repair("some are", check(3), hypothesis) for hypothesis in ("if large", None))

RULES: dict[str, tuple[Claim, Status]] = {
    "holds": (BASE, Status.HOLDS),
    "holds, and a repair is not looked at": (replace(BASE, repair=Repair("r", check(-9), "h")), Status.HOLDS),
    "holds with a hypothesis": (replace(BASE, literal=check(1, -2), repair=NAMED), Status.HYPOTHESIS),
    "imprecise": (replace(BASE, literal=check(1, -2), repair=SHARPER), Status.IMPRECISE),
    "refuted": (replace(BASE, literal=check(1, -2)), Status.REFUTED),
    "literature": (replace(BASE, literal=None, source="a paper"), Status.LITERATURE),
    "a module is missing": (replace(BASE, needs=("no_such_module_here",)), Status.NOT_RUN),
    "slow at quick": (replace(BASE, slow=True), Status.NOT_RUN),
    "no case": (replace(BASE, literal=check()), Status.UNDETERMINED),
    "the control holds": (replace(BASE, literal=check(1, control=5)), Status.UNDETERMINED),
    "the control fails without a witness": (replace(BASE, literal=check(1, predicate=silent)), Status.UNDETERMINED),
    "the literal check fails without a witness": (
        replace(BASE, literal=check(0, predicate=lambda v: Verdict(v > 0, "no", {"v": v} if v else {}))),
        Status.UNDETERMINED,
    ),
    "the repair fails": (replace(BASE, literal=check(-2), repair=Repair("r", check(-3), "h")), Status.UNDETERMINED),
    "the repair's control holds": (
        replace(BASE, literal=check(-2), repair=Repair("r", check(3, control=4), "h")),
        Status.UNDETERMINED,
    ),
}


@pytest.mark.parametrize(("claim", "status"), RULES.values(), ids=RULES)
def test_rule(claim: Claim, status: Status) -> None:
    result = run_claim(claim, Level.QUICK)
    assert result.status is status
    assert result.reason or status is Status.LITERATURE
    assert "\n" not in result.reason


def test_every_status_is_reached() -> None:
    assert {status for _, status in RULES.values()} == set(Status)


def test_the_first_failure_is_the_witness_and_stops_the_run() -> None:
    result = run_claim(replace(BASE, literal=check(1, -2, -3)), Level.QUICK)
    assert result.literal is not None
    assert (result.literal.cases, result.literal.case, dict(result.witness)) == (2, "case -2", {"value": -2})
    assert result.reason == "case -2: -2 is not positive"


def test_slow_claims_run_at_full() -> None:
    assert run_claim(replace(BASE, slow=True), Level.FULL).status is Status.HOLDS
