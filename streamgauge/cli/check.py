"""``streamgauge check``: a certificate, by the standard-library checker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.terminal import Failed, JsonFlag, emit_json, one_line, stdout

EXAMPLE = "Example: streamgauge check out/certificate.json --file out --source checkpoint"


def command(
    certificate: Annotated[Path, typer.Argument(metavar="CERT", help="Certificate (JSON).")],
    file: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Converted checkpoint it must speak of, bit for bit.")
    ] = None,
    source: Annotated[Path | None, typer.Option(metavar="SRC", help="Checkpoint OUT was converted from.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a certificate in exact arithmetic, without trusting what made it.

    Exit code 1 if it is refused.  The same checker runs alone: python -I -S checker.py CERT (proofs/checker.py).
    """
    from streamgauge.api import check

    verdict = check(certificate, file=file, source=source)
    if as_json:
        emit_json({"ok": verdict.ok, "reason": verdict.reason, "facts": verdict.witness})
    else:
        reason = one_line(verdict.reason)  # an accepted one says so itself
        stdout().print(reason if verdict.ok else f"refused: {reason}", soft_wrap=True)
    if not verdict.ok:
        raise Failed
