"""``streamgauge counterexample``: a function that mHC computes and pure iHC of the same size cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.terminal import Failed, JsonFlag, emit_json, number, progress, say, stdout, step, table
from streamgauge.theory.errors import InputError

if TYPE_CHECKING:
    from streamgauge.proofs.counterexample.story import Story

EXAMPLE = "Example: streamgauge counterexample --out counterexample"
CLAIM = (
    "An mHC of two streams and two sites whose first mixer is J computes  o = x1 + x2 + phi(phi(x1 - x2)),",
    "phi(t) = t swish(t).  No pure iHC of that size does, with bias-free SwiGLU of any width, any signed static",
    "reads and writes and any linear head: it cannot forget x1 - x2, and what is left pollutes the tail with Q^3.",
)


def command(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write pictures and certificates there.")
    ] = None,
    level: Annotated[str, typer.Option(metavar="quick|full", help="How long to search.")] = "quick",
    as_json: JsonFlag = False,
) -> None:
    """A function that needs a reset: the proof checked step by step, where it ends, and what approximating costs.

    Exit code 1 if a step fails.  Nothing is stored: tails, algebra, networks and search run anew.
    """
    if level not in ("quick", "full"):
        raise InputError(f"--level: found {level!r}, expected quick or full")
    if out is not None:
        _prepare(out)
    from streamgauge.proofs.counterexample.story import STEPS, figures, story

    with progress("checking", total=STEPS) as bar:
        told = story(full=level == "full", step=lambda: step(bar))
        written = [] if out is None else write(told, out)
    if as_json:
        emit_json({**figures(told), "files": [str(path) for path in written]})
    else:
        for line in CLAIM:
            stdout().print(line)
        for made in tables(told):
            stdout().print()
            stdout().print(made)
    for path in written:
        say(f"written: {path}")
    if not told.ok:
        raise Failed


def write(told: Story, out: Path) -> list[Path]:
    """tails.png, search.png, family.png and one certificate per polynomial system, into the folder ``out``."""
    from streamgauge.counterexample_pictures import family_picture, search_picture, tails_picture
    from streamgauge.proofs.counterexample.story import tail_row

    return [
        tails_picture(out / "tails.png", [tail_row(q) for q in range(1, 81)]),
        search_picture(out / "search.png", told.searches),
        family_picture(out / "family.png", told.family),
        *(
            made.save(out / f"{name.replace(',', '').replace(' ', '-')}.json", force=True)
            for name, made in told.certificates.items()
        ),
    ]


PICTURES = ("tails.png", "search.png", "family.png")
MARK = "six-polynomials.json"
"""A folder with this certificate in it is of an earlier run: its files may be replaced."""


def _prepare(out: Path) -> None:
    """Make the folder before anything is computed; somebody else's files of these names are not overwritten."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, expected a folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made ({error.strerror}), expected a writable parent") from None
    for name in (MARK, *PICTURES):
        if (out / name).exists() and not _ours(out / MARK):
            raise InputError(f"{out / name}: is not of this program, expected another folder")


def _ours(certificate: Path) -> bool:
    try:
        found = json.loads(certificate.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("kind") == "nullstellensatz"


def tables(told: Story) -> list[Any]:
    """What is printed."""
    checks = [(x.part, x.statement, x.verdict.reason, "holds" if x.verdict else "FAILS") for x in told.lines]
    tails = [(f"{r.q:g}", r.remainder, r.upper, r.polluted) for r in told.tails]
    kinds = [(k.name, "cannot" if k.covered else "can" if k.represented else "open", k.reason) for k in told.kinds]
    family = [(r.eps, r.first_order, r.exact, r.float64, r.float32) for r in told.family]
    norms = (4.0, 8.0, 16.0, 32.0, 64.0)
    searches = [
        (f"{f.kind}, width {f.width}", *(number(f.within(n)) for n in norms), number(f.best)) for f in told.searches
    ]
    return [
        table("What was checked", ("", "statement", "found", "verdict"), checks, left=4),
        table(
            "The tail, and what 1/100 of Q left in the streams does to it",
            ("Q", "Q^4 - phi(phi(Q))", "at most", "left-over adds"),
            tails,
        ),
        table("Can pure iHC of two streams compute it, by kind of branch?", ("branch", "", "why"), kinds, left=3),
        table(
            "Approximating with weights 1/(2 eps), |Q| <= 3: largest error",
            ("eps", "first order", "exact", "float64", "float32"),
            family,
        ),
        table(
            "Search: least error found within a weight norm of",
            ("network", *(f"{n:g}" for n in norms), "any"),
            searches,
        ),
    ]
