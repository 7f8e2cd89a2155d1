"""What a claim is, what a check is, and how a status follows from what the checks found.

A claim is a sentence somebody wrote.  Its *literal* check applies one predicate to named cases; every case must hold.
Where it fails, a *repair* may exist: the same predicate on the cases that meet a stated hypothesis, or a sharpened
predicate.  The status is never typed by hand:

    holds                     the literal check holds
    holds with a hypothesis   the literal check fails by a witness, the repair holds under the named hypothesis
    imprecise                 the literal check fails by a witness, the sharpened predicate holds
    refuted                   the literal check fails by a witness, and there is no repair
    literature                not checkable by a program; its source is named
    not run                   what it needs (torch, a GPU) is missing
    undetermined              none of these follows: a repair failed, or a control did not fail

Every check carries a *control*: a case of which the same predicate must say no, with a witness and not by an
exception.  A predicate that cannot fail proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from typing import Any

from streamgauge.theory.verdict import Verdict


class Level(Enum):
    """How much to run: "quick" (all claims, few cases, under a minute without torch) or "full"."""

    QUICK = "quick"
    FULL = "full"


class Status(Enum):
    """The derived status of a claim; the values are what people read."""

    HOLDS = "holds"
    HYPOTHESIS = "holds with a hypothesis"
    IMPRECISE = "imprecise"
    REFUTED = "refuted"
    LITERATURE = "literature"
    NOT_RUN = "not run"
    UNDETERMINED = "undetermined"


KINDS = ("theorem", "definition", "number", "empirical", "qualitative")
METHODS = ("symbolic", "exact certificate", "property test", "numeric reproduction", "literature")
DOCUMENTS = {
    "G": "gauge essay: mHC may not need the m",
    "E": "mHC explainer with interview questions",
    "N": "reading note of the mHC paper",
    "T": "Taylor-series essay",
    "ours": "propositions of this project",
}


@dataclass(frozen=True)
class Case:
    """One input of a predicate, with a name that a reader understands."""

    name: str
    value: Any


@dataclass(frozen=True)
class Check:
    """``predicate`` holds for every case; of ``control`` it must say no, with a witness.

    ``cases(level)`` yields the cases; hypothesis-drawn ones come from a fixed seed, so that two runs agree.
    ``text``: one sentence for the report, what is checked and on what.
    """

    text: str
    predicate: Callable[[Any], Verdict]
    cases: Callable[[Level], Iterator[Case]]
    control: Case


@dataclass(frozen=True)
class Repair:
    """What does hold: ``check`` under the named ``hypothesis``, or (None) with a sharpened predicate."""

    statement: str
    check: Check
    hypothesis: str | None = None


@dataclass(frozen=True)
class Claim:
    """One entry of the ledger.

    - ``id``, ``document`` (G, E, N, T, ours), ``section``.
    - ``statement``: the claim in our words; formulas between dollar signs, LaTeX (matplotlib's mathtext subset).
    - ``hypotheses``: parameter class and assumptions under which it is read (static or dynamic A; free or boxed p
      and r; entry and readout).
    - ``kind`` one of KINDS, ``method`` one of METHODS.
    - ``literal``, ``repair``: see the module.  ``source``: where a literature claim can be read.
    - ``needs``: importable modules it cannot run without, e.g. ("torch",).  ``slow``: runs at level full only.
    - ``note``: what a reader must know beside the verdict.
    """

    id: str
    document: str
    section: str
    statement: str
    kind: str
    method: str
    literal: Check | None = None
    repair: Repair | None = None
    hypotheses: tuple[str, ...] = ()
    source: str | None = None
    needs: tuple[str, ...] = ()
    slow: bool = False
    note: str = ""


@dataclass(frozen=True)
class CheckResult:
    """What one check found: the first failing case's verdict, or the last one that held; and the control's."""

    ok: bool
    cases: int
    case: str
    verdict: Verdict
    control: Verdict


@dataclass(frozen=True)
class Result:
    """The derived status of a claim with its evidence; ``seconds`` of wall time."""

    claim: Claim
    status: Status
    literal: CheckResult | None = None
    repair: CheckResult | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def witness(self) -> Mapping[str, Any]:
        """The numbers behind the status: where the literal check failed, or of its last case."""
        return self.literal.verdict.witness if self.literal is not None else {}


def run_check(check: Check, level: Level) -> CheckResult:
    """Apply the predicate to every case up to the first failure, and to the control.

    A check without any case does not hold: a sentence about nothing is not verified.
    """
    verdict, name, count = Verdict(False, "no case was given"), "", 0
    for case in check.cases(level):
        verdict, name, count = check.predicate(case.value), case.name, count + 1
        if not verdict:
            break
    return CheckResult(bool(verdict), count, name, verdict, check.predicate(check.control.value))


def run_claim(claim: Claim, level: Level) -> Result:
    """Run a claim's checks and derive its status."""
    missing = missing_modules(claim)
    if claim.literal is None:
        return Result(claim, Status.LITERATURE, reason=claim.source or "")
    if missing:
        return Result(claim, Status.NOT_RUN, reason=f"needs {', '.join(missing)}")
    if claim.slow and level is Level.QUICK:
        return Result(claim, Status.NOT_RUN, reason="runs at level full")
    start = time.perf_counter()
    literal = run_check(claim.literal, level)
    repair = run_check(claim.repair.check, level) if claim.repair and not literal.ok else None
    status, reason = derive(claim, literal, repair)
    return Result(claim, status, literal, repair, reason, time.perf_counter() - start)


def missing_modules(claim: Claim) -> list[str]:
    """Which of the modules that the claim needs cannot be imported here."""
    return [name for name in claim.needs if not _importable(name)]


def _importable(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):  # an import hook, or None in sys.modules, says that it is blocked
        return False


def derive(claim: Claim, literal: CheckResult, repair: CheckResult | None) -> tuple[Status, str]:
    """The rule of the module's docstring; the reason is one line."""
    for name, found in (("literal", literal), ("repair", repair)):
        if found is not None and (found.control.ok or not found.control.witness):
            return Status.UNDETERMINED, f"the {name} check's control did not fail with a witness"
    if literal.ok:
        return Status.HOLDS, literal.verdict.reason
    if not literal.verdict.witness:
        return Status.UNDETERMINED, f"the literal check failed without a witness: {literal.verdict.reason}"
    failed = f"{literal.case}: {literal.verdict.reason}"
    if claim.repair is None or repair is None:
        return Status.REFUTED, failed
    if not repair.ok:
        return Status.UNDETERMINED, f"the repair failed: {repair.case}: {repair.verdict.reason}"
    return (Status.HYPOTHESIS if claim.repair.hypothesis else Status.IMPRECISE), failed
