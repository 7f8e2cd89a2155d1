"""The ledger as one HTML file that needs nothing else: no network, no font, no script from anywhere.

The page is made of the run's JSON document alone (:meth:`streamgauge.proofs.ledger.run.LedgerRun.document`), so a
report can be made again from ``ledger.json``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from streamgauge.proofs.formulas import Formulas
from streamgauge.proofs.ledger.core import DOCUMENTS, Status
from streamgauge.proofs.report_pictures import figure
from streamgauge.proofs.theorems import EVIDENCE, LEVELS
from streamgauge.theory.errors import InputError

MARKS = {
    Status.HOLDS: ("✓", "ok"),
    Status.HYPOTHESIS: ("✓*", "hyp"),
    Status.IMPRECISE: ("≈", "imp"),
    Status.REFUTED: ("✗", "ref"),
    Status.LITERATURE: ("§", "lit"),
    Status.NOT_RUN: ("–", "not"),
    Status.UNDETERMINED: ("?", "und"),
}
MEANINGS = {
    Status.HOLDS: "the check holds as the claim is written",
    Status.HYPOTHESIS: "fails as written, by a witness; holds under the hypothesis named",
    Status.IMPRECISE: "refuted as written, by a witness; a sharper statement holds",
    Status.REFUTED: "a witness shows that it is false",
    Status.LITERATURE: "no program can check it; its source is named",
    Status.NOT_RUN: "what it needs is missing here, or it runs at level full",
    Status.UNDETERMINED: "a check crashed, or a control did not fail",
}
SHOWN = 700
"""Characters of one witness value in the page; ledger.json has all of it."""


def write_report(document: Mapping[str, Any], folder: str | Path) -> list[Path]:
    """Write ``report.html``, ``ledger.json`` and the certificates into ``folder`` (made if needed); returns the
    paths.

    **Raises** :class:`InputError` where the folder cannot be written.
    """
    from streamgauge.proofs.ledger.certificates import write_certificates

    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        certificates = write_certificates([claim["id"] for claim in document["claims"]], target / "certificates")
        links = {
            name: [path.relative_to(target).as_posix() for path in paths] for name, paths in certificates.items()
        }
        pages = {
            "report.html": render(document, links),
            "ledger.json": json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n",
        }
        for name, text in pages.items():
            _write(target / name, text)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}), expected a writable folder") from None
    return [*(target / name for name in pages), *sorted({path for paths in certificates.values() for path in paths})]


def prepare_folder(folder: str | Path) -> None:
    """Make the folder before anything is computed, and look whether a report may be written into it.

    **Raises** :class:`InputError` where the folder cannot be written, or holds a report.html or ledger.json that is
    not of this program: those are never overwritten.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder}: is a file, expected a folder")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in ("report.html", "ledger.json"):
            if (target / name).is_dir() or ((target / name).exists() and not _is_ours(target / "ledger.json")):
                raise InputError(f"{target / name}: is not a report of this program, expected another folder")
        _write(target / "ledger.json.check", "")
        (target / "ledger.json.check").unlink()
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}), expected a writable folder") from None


def _is_ours(ledger: Path) -> bool:
    """Whether that file is a ``ledger.json`` of an earlier run."""
    try:
        found = json.loads(ledger.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("format") == "streamgauge ledger"


def render(document: Mapping[str, Any], certificates: Mapping[str, Sequence[str]] | None = None) -> str:
    """The page; ``certificates``: links by claim id."""
    formulas = Formulas()
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("streamgauge.proofs", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["math"] = lambda text: Markup(formulas.text(text or ""))
    environment.filters["value"] = value_html
    environment.filters["seconds"] = seconds
    claims = document["claims"]
    by_id = {claim["id"]: claim for claim in claims}
    groups = [(name, title, [c for c in claims if c["document"] == name]) for name, title in DOCUMENTS.items()]
    body = environment.get_template("report.html.j2").render(
        run=document,
        groups=[group for group in groups if group[2]],
        statuses=[(s.value, *MARKS[s], MEANINGS[s]) for s in Status],
        marks={s.value: MARKS[s] for s in Status},
        levels=LEVELS,
        evidence=[
            (name, [[by_id[i] for i in found[level] if i in by_id] for level in LEVELS])
            for name, found in EVIDENCE.items()
        ],
        any_evidence=any(i in by_id for found in EVIDENCE.values() for ids in found.values() for i in ids),
        certificates=certificates or {},
        figure=lambda claim: Markup(figure(claim)),
        definitions="@@glyphs@@",
    )
    return body.replace("@@glyphs@@", formulas.definitions)  # known only once every formula has been drawn


def value_html(value: Any) -> Markup:
    """A witness value: numbers in six digits, a matrix as a small table, an object as a list, anything long cut."""
    if _is_matrix(value):
        rows = Markup("").join(
            Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(_scalar(x)) for x in row))
            for row in value
        )
        return Markup('<span class="scroll"><table class="matrix">{}</table></span>').format(rows)
    if isinstance(value, Mapping):
        row = Markup("<div><dt>{}</dt><dd>{}</dd></div>")
        return Markup('<dl class="inner">{}</dl>').format(
            Markup("").join(row.format(k, value_html(v)) for k, v in value.items())
        )
    if isinstance(value, list) and any(isinstance(x, str) and len(x) > 24 for x in value):
        return Markup("<br>").join(escape(_cut(_flat(x))) for x in value)
    return escape(_cut(", ".join(_flat(x) for x in value) if isinstance(value, list) else _scalar(value)))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} … ({len(text)} characters)"


def _is_matrix(value: Any) -> bool:
    rows = isinstance(value, list) and 0 < len(value) <= 8 and all(isinstance(row, list) and row for row in value)
    if not rows or len({len(row) for row in value}) != 1 or len(value[0]) > 8:
        return False
    return all(not isinstance(x, list | dict) and len(_scalar(x)) <= 24 for row in value for x in row)


def _flat(value: Any) -> str:
    return f"({', '.join(_flat(x) for x in value)})" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def seconds(value: float) -> str:
    """A time that people read: "0.4 ms", "12 ms", "3.1 s"."""
    if value >= 60:
        return f"{value / 60:.1f} min"
    if value >= 1:
        return f"{value:.1f} s"
    return f"{1000 * value:.0f} ms" if value >= 0.01 else f"{1000 * value:.1f} ms"


def _write(path: Path, text: str) -> None:
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staged.write_text(text, encoding="utf-8")
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
