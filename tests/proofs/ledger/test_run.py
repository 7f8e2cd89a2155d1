"""The runner: selection, crashes, seeds, missing modules, backends, and the JSON it gives."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from streamgauge.proofs.ledger import claims, run
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Status
from streamgauge.proofs.ledger.run import Setting, run_ledger, select
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict


def made(predicate: Any, *values: Any, id: str = "X1", needs: tuple[str, ...] = ()) -> Claim:
    def cases(level: Level) -> Iterator[Case]:
        return (Case(f"case {v}", v) for v in values)

    check = Check("a check", predicate, cases, Case("control", "control"))
    return Claim(id, "ours", "1", "statement", "theorem", "symbolic", check, needs=needs)


def fine(value: Any) -> Verdict:
    return Verdict(value != "control", "fine", {"value": Fraction(1, 3), "none": float("nan")})


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    statuses: dict[str, str] = {}
    monkeypatch.setattr(run, "expected_statuses", lambda level: statuses)
    return statuses


def test_deviation_is_told(expected: dict[str, str]) -> None:
    claim = made(fine, 1)
    assert not run_ledger([claim]).ok, "a claim without an expected status is a deviation"
    expected["X1"] = "refuted"
    found = run_ledger([claim])
    assert not found.ok
    assert found.document()["differ"] == ["X1"]
    expected["X1"] = "holds"
    assert run_ledger([claim]).ok


def crash(value: Any) -> Verdict:
    if value == "control":
        return Verdict(False, "no", {"a": 1})
    raise ZeroDivisionError("two\nlines")


def crash_in_control(value: Any) -> Verdict:
    if value == "control":
        raise KeyError("control")
    return Verdict(True, "fine")


@pytest.mark.parametrize("predicate", [crash, crash_in_control])
def test_a_crash_is_undetermined_in_one_line(predicate: Any, expected: dict[str, str]) -> None:
    (record,) = run_ledger([made(predicate, 1)]).records
    assert record.result.status is Status.UNDETERMINED
    assert record.result.reason.startswith("a check crashed: ")
    assert "test_run.py:" in record.result.reason
    assert "\n" not in record.result.reason


def test_an_interrupt_is_no_verdict(expected: dict[str, str]) -> None:
    def stop(value: Any) -> Verdict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ledger([made(stop, 1)])


def test_global_random_numbers_are_seeded_by_the_claim_and_put_back(expected: dict[str, str]) -> None:
    seen: dict[str, list[float]] = {}

    def draw(name: str) -> Any:
        def predicate(value: Any) -> Verdict:
            seen.setdefault(name, []).append(random.random() + float(np.random.rand()))  # noqa: NPY002
            return Verdict(value != "control", "", {"a": 1})

        return predicate

    random.seed(5)
    before = random.getstate()
    for _ in range(2):
        run_ledger([made(draw("X1"), 1, id="X1"), made(draw("X2"), 1, id="X2")])
    assert seen["X1"][:2] == seen["X1"][2:]
    assert seen["X1"] != seen["X2"]
    assert random.getstate() == before


def test_missing_modules_are_counted_apart(expected: dict[str, str]) -> None:
    expected.update(X1="holds", X2="holds")
    chosen = [made(fine, 1), made(fine, 1, id="X2", needs=("torch",))]
    without = run_ledger(chosen, Setting(without=frozenset({"torch"})))
    assert without.ok
    assert without.document()["excused"] == ["X2"]
    assert without.counts["not run"] == 1
    assert without.records[1].result.reason == "needs torch"
    assert [r.backend for r in without.records] == [None, None]
    with_torch = run_ledger(chosen)
    assert [(r.backend, r.device) for r in with_torch.records] == [(None, None), ("reference", "cpu")]


def test_backends(expected: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.kernels import backends

    seen: list[str] = []

    def note(value: Any) -> Verdict:
        seen.append(backends.current())
        return fine(value)

    with pytest.raises(InputError, match="found 'cuda', expected one of reference, triton"):
        run_ledger([], Setting(backend="cuda"))
    monkeypatch.setattr(backends, "available", lambda name: name == "reference")
    claim = made(note, 1, needs=("torch",))
    (record,) = run_ledger([claim], Setting(backend="triton")).records
    assert (record.result.status, record.result.reason) == (Status.NOT_RUN, "needs the triton backend")
    assert record.excused
    monkeypatch.setattr(backends, "available", lambda name: True)
    monkeypatch.setattr(backends, "device", lambda: "cpu")
    (record,) = run_ledger([claim], Setting(backend="triton")).records
    assert seen == ["triton", "triton"]
    assert record.backend == "triton"
    assert backends.current() == "reference"


def test_progress_is_called_before_each(expected: dict[str, str]) -> None:
    seen: list[str] = []
    run_ledger([made(fine, 1), made(fine, 1, id="X2")], progress=lambda claim: seen.append(claim.id))
    assert seen == ["X1", "X2"]


def test_the_document_is_strict_json(expected: dict[str, str]) -> None:
    expected["X1"] = "holds"
    document = run_ledger([made(fine, 1)]).document()
    text = json.dumps(document, allow_nan=False)
    (claim,) = json.loads(text)["claims"]
    assert claim["witness"] == {"value": "1/3", "none": "nan"}
    assert claim["check"]["control"] == {
        "name": "control",
        "reason": "fine",
        "witness": {"value": "1/3", "none": "nan"},
    }
    assert document["counts"]["holds"] == 1
    assert sum(document["counts"].values()) == 1


def test_selection() -> None:
    everything = select()
    assert [c.id for c in everything] == list(claims())
    assert [c.id for c in select(["th2", "G04"])] == ["G04", "TH2"], "in the ledger's order, whatever the case"
    assert {c.document for c in select((), ["n", "Ours"])} == {"N", "ours"}
    assert select(["G04"], ["T"])[0].id == "G04"
    with pytest.raises(InputError, match=r"claim: found 'TH22', expected an id of the ledger \(near: TH2"):
        select(["TH22"])
    with pytest.raises(InputError, match="document: found 'Q', expected one of G, E, N, T, ours"):
        select((), ["Q"])


def test_ids_are_unique_and_in_order() -> None:
    ids = [claim.id for claim in claims().values() if claim.document == "G"]
    numbers = [int(i[1:]) for i in ids]
    assert numbers == sorted(numbers)


def test_a_second_claim_of_an_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.proofs.ledger.entries import ours_theorems

    monkeypatch.setattr(ours_theorems, "CLAIMS", (ours_theorems.CLAIMS[0],) * 2)
    with pytest.raises(ValueError, match="TH1: stands twice"):
        claims()


def test_replace_keeps_claims_comparable() -> None:
    claim = made(fine, 1)
    assert replace(claim, note="x") != claim
