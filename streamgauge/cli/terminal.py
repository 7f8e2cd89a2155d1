"""What every command shares: strict JSON on stdout, everything else on stderr, tables, progress, one-line errors."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

JsonFlag = Annotated[bool, typer.Option("--json", help="Strict JSON alone on stdout (no NaN, no Infinity).")]
WIDTH = 110
"""Columns of a table that does not go to a terminal."""


class Failed(Exception):
    """A check that ran and missed: exit code 1, after everything has been printed."""


class Terminated(BaseException):
    """SIGTERM: what is being written is taken back, as after Ctrl-C."""


@contextmanager
def termination() -> Iterator[None]:
    """SIGTERM raises :class:`Terminated` inside (the main thread alone may say so)."""

    def raised(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, raised)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def prepare_streams() -> None:
    """Closed streams (``>&-``) become the null device; characters that a stream cannot take are escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def stdout() -> Console:
    """A console on the present stdout (looked up now: tests and callers may replace it)."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(highlight=False, markup=False, emoji=False, width=width)  # file names are not markup


def say(message: str) -> None:
    """One plain line on stderr."""
    print(message, file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """One warning line on stderr."""
    say(f"streamgauge: warning: {one_line(message)}")


def note(message: str) -> None:
    """One line on stderr about how a result was found."""
    say(f"streamgauge: note: {one_line(message)}")


def one_line(text: object) -> str:
    """The text on one line, so that an error is one line whatever a file name or library put into it."""
    return " ".join(str(text).split())


def emit_json(document: Mapping[str, Any]) -> None:
    """The document as strict JSON on stdout; numbers that JSON cannot say (NaN, infinities) become null."""
    sys.stdout.write(json.dumps(plain(document), allow_nan=False, indent=2) + "\n")


def plain(value: Any) -> Any:
    """``value`` in JSON's own types: numpy arrays to lists, Fractions to "p/q", non-finite floats to None."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    return str(value)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> Table:
    """A table whose first ``left`` columns are text and whose other columns are numbers, right-aligned."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", show_edge=False)
    made.min_width = min(len(title), WIDTH)  # a narrow table would fold its title
    for i, name in enumerate(columns):
        made.add_column(name, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, str) else number(cell) for cell in row))
    return made


def show_found(
    warnings: Sequence[str],
    notes: Sequence[str],
    document: Mapping[str, Any],
    tables: Sequence[Table],
    as_json: bool,
    pictures: Sequence[Path] = (),
) -> None:
    """What a command found: warnings and notes on stderr, then the document as JSON, or its tables and pictures."""
    for text in warnings:
        warn(text)
    for text in notes:
        note(text)
    if as_json:
        emit_json(document)
        return
    for made in tables:
        stdout().print(made)
    for picture in pictures:
        say(f"picture: {picture}")


def number(value: object) -> str:
    """A number in three digits, short enough for a table."""
    if value is None:
        return "-"
    if isinstance(value, bool | int):
        return str(value)
    if not isinstance(value, float) and hasattr(value, "__float__"):
        value = float(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def power(log10: float) -> str:
    """10^log10 in three digits, also where it is beyond float64."""
    if not math.isfinite(log10):
        return "inf" if log10 > 0 else "0"
    if abs(log10) < 4:
        return f"{10**log10:.3g}"
    whole = math.floor(log10)
    return f"{10 ** (log10 - whole):.2f}e{whole:+03d}"


def help_text(command: Callable[..., object]) -> str:
    """The command's docstring with every paragraph on one line (the terminal wraps it) and nothing read as markup."""
    paragraphs = cleandoc(command.__doc__ or "").split("\n\n")
    return escape("\n\n".join(one_line(paragraph) for paragraph in paragraphs))


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Progress]:
    """A progress bar on stderr, only if that is a terminal; gone when done, also after an interrupt."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        bar.add_task(description, total=total)
        yield bar


def step(bar: Progress, description: str | None = None) -> None:
    """The one task of ``bar`` is one step further; ``description`` says what comes now."""
    task = bar.task_ids[0]
    bar.update(task, advance=1)
    if description is not None:
        bar.update(task, description=description)


def following(bar: Progress) -> Callable[[int, int, str], None]:
    """What makes the one task of ``bar`` follow a computation's (done, total, what)."""

    def follow(done: int, total: int, what: str) -> None:
        bar.update(bar.task_ids[0], completed=done, total=total, description=what)

    return follow


def write_text(path: Path, text: str) -> None:
    """Write a file beside and rename it into place: an interrupt leaves the old one or none."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staged.write_text(text)
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def stream_rows(sites: Sequence[Any]) -> list[tuple[str, ...]]:
    """One row per site of what has become of the streams after it; both inspections print it."""
    return [
        (
            str(s.site),
            power(s.log10_running_sigma2),
            f"{s.running_effective_rank:.2f}",
            power(s.log10_identity_cond),
            f"{s.cond:.3g}",
            " ".join(f"{g:.3f}" for g in s.gates),
        )
        for s in sites
    ]
