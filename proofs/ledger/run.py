"""Run the ledger: choose claims, check them one by one, compare the derived statuses with the expected ones.

``expected.json`` holds one status per claim and level.  It is read here, after everything has run, and by the tests;
no verifier reads it.  A claim that needs a module which is missing is *not run*, counted apart, and no deviation.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger import claims
from streamgauge.proofs.ledger.core import (
    DOCUMENTS,
    Check,
    CheckResult,
    Claim,
    Level,
    Result,
    Status,
    missing_modules,
    run_claim,
)
from streamgauge.proofs.ledger.tools import plain
from streamgauge.theory.errors import InputError

BACKENDS = ("reference", "triton")


@dataclass(frozen=True)
class Record:
    """A claim's result, the status expected of it, and what it ran on.

    ``backend``, ``device``: of the networks that ran; None for a claim that runs none.  ``excused``: not run because
    something is missing here, which says nothing about the claim.
    """

    result: Result
    expected: str | None
    backend: str | None = None
    device: str | None = None
    excused: bool = False

    @property
    def differs(self) -> bool:
        """Whether the derived status is not the expected one."""
        return not self.excused and self.result.status.value != self.expected


@dataclass(frozen=True)
class LedgerRun:
    """What a run found; ``ok``: every derived status is the expected one."""

    level: Level
    records: tuple[Record, ...]
    seconds: float
    backend: str = "reference"
    device: str = "cpu"

    @property
    def ok(self) -> bool:
        """No deviation."""
        return not any(record.differs for record in self.records)

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each status, zeros included."""
        found = [record.result.status for record in self.records]
        return {status.value: found.count(status) for status in Status}

    def document(self) -> dict[str, Any]:
        """The run in JSON's own types; the report is made of nothing else."""
        return {
            "format": "streamgauge ledger",
            "level": self.level.value,
            "backend": self.backend,
            "device": self.device,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "differ": [record.result.claim.id for record in self.records if record.differs],
            "excused": [record.result.claim.id for record in self.records if record.excused],
            "claims": [_record_json(record) for record in self.records],
        }


@dataclass(frozen=True)
class Setting:
    """How a run is done: ``without``: modules to treat as missing."""

    level: Level = Level.QUICK
    backend: str = "reference"
    without: frozenset[str] = field(default_factory=frozenset)


def select(ids: Collection[str] = (), documents: Collection[str] = ()) -> list[Claim]:
    """The claims named, and those of the documents named; all of them if neither is given.

    Ids are matched without regard to case. **Raises** :class:`InputError` for an unknown id or document.
    """
    known = claims()
    names = {name.lower(): name for name in known}
    papers = {name.lower(): name for name in DOCUMENTS}
    wanted, chosen = set(), set()
    for given in ids:
        if given.lower() not in names:
            near = get_close_matches(given.lower(), names, n=3, cutoff=0.5)
            hint = f" (near: {', '.join(names[name] for name in near)})" if near else ""
            raise InputError(f"claim: found {given!r}, expected an id of the ledger{hint}")
        wanted.add(names[given.lower()])
    for given in documents:
        if given.lower() not in papers:
            raise InputError(f"document: found {given!r}, expected one of {', '.join(DOCUMENTS)}")
        chosen.add(papers[given.lower()])
    if not ids and not documents:
        return list(known.values())
    return [claim for claim in known.values() if claim.id in wanted or claim.document in chosen]


def expected_statuses(level: Level) -> dict[str, str]:
    """The expected status of every claim at that level."""
    text = (resources.files("streamgauge.proofs.ledger") / "expected.json").read_text("utf-8")
    found: dict[str, str] = json.loads(text)[level.value]
    return found


def run_ledger(
    chosen: Sequence[Claim],
    setting: Setting | None = None,
    *,
    progress: Callable[[Claim], None] | None = None,
) -> LedgerRun:
    """Run the claims one after another; ``progress`` is called before each.

    A crash inside a check makes its claim *undetermined*, with the error in one line.  Random numbers drawn from
    global generators start from the claim's id, and their state is put back.

    **Raises** :class:`InputError` for an unknown backend.
    """
    setting = setting or Setting()
    if setting.backend not in BACKENDS:
        raise InputError(f"backend: found {setting.backend!r}, expected one of {', '.join(BACKENDS)}")
    expected, start = expected_statuses(setting.level), time.perf_counter()
    torch_here = "torch" not in setting.without and any("torch" not in missing_modules(c) for c in chosen if c.needs)
    records = []
    with ExitStack() as stack:
        lacking = _enter_backend(stack, setting.backend) if torch_here else ""
        device = _device() if torch_here else "cpu"
        for claim in chosen:
            if progress is not None:
                progress(claim)
            result, excused = _run_one(claim, setting, lacking)
            networks = "torch" in claim.needs and result.literal is not None
            on, where = (setting.backend, device) if networks else (None, None)
            records.append(Record(result, expected.get(claim.id), on, where, excused))
    return LedgerRun(setting.level, tuple(records), time.perf_counter() - start, setting.backend, device)


def _run_one(claim: Claim, setting: Setting, lacking: str) -> tuple[Result, bool]:
    """The result, and whether it was not run for something that is missing here."""
    missing = sorted(set(missing_modules(claim)) | (set(claim.needs) & setting.without))
    if claim.literal is not None and missing:
        return Result(claim, Status.NOT_RUN, reason=f"needs {', '.join(missing)}"), True
    if "torch" in claim.needs and lacking:
        return Result(claim, Status.NOT_RUN, reason=lacking), True
    start = time.perf_counter()
    with _seeded(claim.id):
        try:
            return run_claim(claim, setting.level), False
        except Exception as error:
            return Result(
                claim, Status.UNDETERMINED, reason=_crash(error), seconds=time.perf_counter() - start
            ), False


def _crash(error: Exception) -> str:
    """The error in one line, with the file and line it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return " ".join(f"a check crashed: {type(error).__name__}{place}: {error}".split())


def _enter_backend(stack: ExitStack, backend: str) -> str:
    """Run what follows on that backend; the reason why it cannot, or ""."""
    from streamgauge.kernels import backends

    if not backends.available(backend):
        return f"needs the {backend} backend"
    stack.enter_context(backends.using(backend))
    return ""


def _device() -> str:
    from streamgauge.kernels import backends

    return backends.device()


@contextmanager
def _seeded(name: str) -> Iterator[None]:
    """Global random generators started from the name, and put back afterwards; so is flint's global precision."""
    seed = zlib.crc32(name.encode())
    state, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002
    precision = flint.ctx.prec
    torch = sys.modules.get("torch")
    generator = torch.random.get_rng_state() if torch is not None else None
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (the point is the global generator)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        flint.ctx.prec = precision
        random.setstate(state)
        np.random.set_state(legacy)  # noqa: NPY002
        if torch is not None:
            torch.random.set_rng_state(generator)


def _record_json(record: Record) -> dict[str, Any]:
    result, claim = record.result, record.result.claim
    return {
        "id": claim.id,
        "document": claim.document,
        "section": claim.section,
        "status": result.status.value,
        "expected": record.expected,
        "reason": result.reason,
        "witness": _json(result.witness),
        "seconds": round(result.seconds, 4),
        "statement": claim.statement,
        "hypotheses": list(claim.hypotheses),
        "kind": claim.kind,
        "method": claim.method,
        "needs": list(claim.needs),
        "source": claim.source,
        "note": claim.note,
        "backend": record.backend,
        "device": record.device,
        "check": _check_json(result.literal, claim.literal) if claim.literal else None,
        "repair": None
        if claim.repair is None
        else {
            "statement": claim.repair.statement,
            "hypothesis": claim.repair.hypothesis,
            **_check_json(result.repair, claim.repair.check),
        },
    }


def _check_json(found: CheckResult | None, check: Check) -> dict[str, Any]:
    if found is None:
        return {"text": check.text}
    control = {"name": check.control.name, "reason": found.control.reason, "witness": _json(found.control.witness)}
    return {
        "text": check.text,
        "ok": found.ok,
        "cases": found.cases,
        "case": found.case,
        "reason": found.verdict.reason,
        "witness": _json(found.verdict.witness),
        "control": control,
    }


def _json(value: Any) -> Any:
    """Plain, and without the numbers that JSON cannot say: nan and infinities become texts."""
    value = plain(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: _json(v) for k, v in value.items()}
    return [_json(v) for v in value] if isinstance(value, list) else value
