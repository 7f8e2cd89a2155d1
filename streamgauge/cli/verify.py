"""``streamgauge verify``: every claim of the ledger, with a verdict that is derived and not typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli.terminal import (
    Failed,
    JsonFlag,
    emit_json,
    note,
    one_line,
    progress,
    stdout,
    step,
    table,
)
from streamgauge.theory.errors import InputError

if TYPE_CHECKING:
    from streamgauge.proofs.ledger.run import LedgerRun

EXAMPLE = "Example: streamgauge verify --document G --level full --out report"


def command(
    claim: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="This claim, e.g. G24; may be given again.")
    ] = None,
    document: Annotated[
        list[str] | None,
        typer.Option(metavar="G|E|N|T|ours", help="The claims of this document; may be given again."),
    ] = None,
    level: Annotated[str, typer.Option(metavar="quick|full", help="Few cases, or all of them.")] = "quick",
    backend: Annotated[str, typer.Option(help="What networks run on: reference or triton.")] = "reference",
    torch: Annotated[
        bool, typer.Option("--torch/--no-torch", help="Also run networks, where torch is there.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report.html, ledger.json and certificates there.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the claims of four documents and of this project, and say of each whether it holds.

    Exit code 1 if a verdict is not the expected one.  Claims that need torch are not run without it.
    """
    from streamgauge.proofs.ledger.core import Level
    from streamgauge.proofs.ledger.run import Setting, run_ledger, select

    if level not in (each.value for each in Level):
        raise InputError(f"--level: found {level!r}, expected quick or full")
    chosen = select(claim or (), document or ())
    if out is not None:
        from streamgauge.proofs.report import prepare_folder

        prepare_folder(out)
    setting = Setting(Level(level), backend, frozenset() if torch else frozenset({"torch"}))
    with progress("verifying", total=len(chosen)) as bar:
        run = run_ledger(chosen, setting, progress=lambda each: step(bar, each.id))
    found = run.document()
    if out is not None:
        from streamgauge.proofs.report import write_report

        with progress("writing the report"):
            files = write_report(found, out)
        note(f"wrote {', '.join(str(path) for path in files)}")
    if as_json:
        emit_json(found)
    else:
        _show(run)
    if not run.ok:
        raise Failed


def _show(run: LedgerRun) -> None:
    from streamgauge.proofs.ledger.core import DOCUMENTS, Status

    console, records = stdout(), run.records
    rows = []
    for status in Status:
        ids = [r.result.claim.id for r in records if r.result.status is status]
        if ids:
            rows.append((status.value, str(len(ids)), " ".join(ids)))
    console.print(
        table(f"{len(records)} claims at level {run.level.value}", ("verdict", "n", "claims"), rows, left=3)
    )
    present = [name for name in DOCUMENTS if any(r.result.claim.document == name for r in records)]
    if len(present) > 1:
        counted = [(status.value, *(_count(run, name, status) for name in present)) for status in Status]
        console.print()
        console.print(table("by document", ("verdict", *present), [row for row in counted if any(row[1:])]))
    refuted = [r for r in records if r.result.status is Status.REFUTED]
    if refuted:
        shown = [(r.result.claim.id, one_line(r.result.reason)) for r in refuted]
        console.print()
        console.print(table("refuted, with what shows it", ("claim", "witness"), shown, left=2))
    away = [r for r in records if r.differs]
    if away:
        lines = [
            (r.result.claim.id, r.result.status.value, r.expected or "none", one_line(r.result.reason)) for r in away
        ]
        console.print()
        console.print(table("not as expected", ("claim", "found", "expected", "why"), lines, left=4))
    excused = sum(r.excused for r in records)
    apart = f"; {excused} not run for what is missing here, counted apart" if excused else ""
    word = "every verdict is the expected one"
    if away:
        word = f"{len(away)} verdict{' is' if len(away) == 1 else 's are'} not the expected one{'s'[: len(away) - 1]}"
    console.print(f"\n{word}; {run.seconds:.1f} s{apart}", soft_wrap=True)


def _count(run: LedgerRun, document: str, status: object) -> int:
    return sum(r.result.claim.document == document and r.result.status is status for r in run.records)
