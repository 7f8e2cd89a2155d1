"""The whole ledger, one document at a time: derived statuses, controls, and what every entry must have.

Each document runs once per test session; the expected statuses stand in expected.json, which no verifier reads.
"""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from pathlib import Path

import pytest

import streamgauge.proofs.ledger
from streamgauge.proofs.ledger import claims
from streamgauge.proofs.ledger.core import DOCUMENTS, KINDS, METHODS, Claim, Level, Status, missing_modules
from streamgauge.proofs.ledger.run import LedgerRun, expected_statuses, run_ledger, select
from streamgauge.proofs.ledger.tools import plain

FOLDER = Path(streamgauge.proofs.ledger.__file__).parent
REFUTED = {"G37", "G43", "E06", "E08", "E13", "E15", "E26", "T04", "T08", "T10"}
ROWS = {"G": 57, "E": 38, "N": 52, "T": 24}


@cache
def quick(document: str) -> LedgerRun:
    return run_ledger(select((), [document]))


def of(document: str) -> list[Claim]:
    return select((), [document])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_quick_statuses_are_the_expected_ones(document: str) -> None:
    found = quick(document)
    away = [
        f"{r.result.claim.id}: {r.result.status.value}, expected {r.expected} ({r.result.reason})"
        for r in found.records
        if r.differs
    ]
    assert away == []
    json.dumps(found.document(), allow_nan=False)
    for record in found.records:
        if record.result.status in (Status.REFUTED, Status.IMPRECISE, Status.HYPOTHESIS):
            assert record.result.witness, (
                f"{record.result.claim.id} is {record.result.status.value} without a witness"
            )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_control_fails_through_the_same_predicate_with_a_witness(document: str) -> None:
    missed = []
    for claim in of(document):
        if missing_modules(claim):
            continue
        for name, check in (("claim", claim.literal), ("repair", claim.repair.check if claim.repair else None)):
            if check is None:
                continue
            try:
                verdict = check.predicate(check.control.value)
            except Exception as error:
                missed.append(f"{claim.id} {name}: {type(error).__name__}: {error}")
                continue
            if verdict.ok or not verdict.witness:
                missed.append(f"{claim.id} {name}: ok={verdict.ok}, witness {dict(verdict.witness)}")
            elif plain(dict(verdict.witness)) != json.loads(json.dumps(plain(dict(verdict.witness)))):
                missed.append(f"{claim.id} {name}: the witness is no plain data")
    assert missed == []


def test_every_row_of_the_four_documents_is_there() -> None:
    for document, rows in ROWS.items():
        assert [c.id for c in of(document)] == [f"{document}{i:02d}" for i in range(1, rows + 1)]


def test_expected_statuses_cover_exactly_the_ledger() -> None:
    for level in Level:
        assert set(expected_statuses(level)) == set(claims())
        assert set(expected_statuses(level).values()) <= {s.value for s in Status} - {"undetermined"}
    full, short = expected_statuses(Level.FULL), expected_statuses(Level.QUICK)
    assert "not run" not in full.values()
    changed = {i for i in full if short[i] not in (full[i], "not run")}
    assert changed == set(), "a status may only be missing at quick, not another one"
    assert {i for i, status in full.items() if status == "refuted"} >= REFUTED


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_entry_is_complete(document: str) -> None:
    faults = []
    for claim in of(document):
        if claim.kind not in KINDS or claim.method not in METHODS:
            faults.append(f"{claim.id}: kind {claim.kind!r}, method {claim.method!r}")
        if claim.literal is None and not claim.source:
            faults.append(f"{claim.id}: neither a check nor a source")
        if (claim.literal is None) != (claim.method == "literature"):
            faults.append(f"{claim.id}: method {claim.method!r} with{'' if claim.literal else 'out'} a check")
        if claim.kind == "theorem" and claim.literal is not None and not claim.hypotheses:
            faults.append(f"{claim.id}: a theorem without hypotheses")
        if not claim.statement.strip() or claim.statement.count("$") % 2:
            faults.append(f"{claim.id}: statement {claim.statement!r}")
    assert faults == []


def test_no_verifier_reads_the_expected_statuses() -> None:
    readers = {"run.py", "readme_table.py"}
    for path in [*FOLDER.rglob("*.py"), *FOLDER.parent.glob("*.py")]:
        if path.name not in readers:
            assert not re.search(r"expected\.json|expected_statuses", path.read_text()), path.name


MAKERS = (
    "normal_form|binary_form|identity_form|graded_form|interval_basis|barcode|birkhoff|sinkhorn|sinkhorn_limit|"
    "minimal_pure|hankel_realisation|norm_gate_matrix|norm_factor"
)


def test_no_predicate_calls_what_makes_the_thing_it_checks() -> None:
    found = []
    for claim in claims().values():
        for check in (claim.literal, claim.repair and claim.repair.check):
            if check is not None:
                predicate = getattr(check.predicate, "func", check.predicate)
                if re.search(rf"\b({MAKERS})\(", inspect.getsource(predicate)):
                    found.append(claim.id)
    assert found == []
