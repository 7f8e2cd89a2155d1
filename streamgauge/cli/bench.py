"""``streamgauge bench theory``: how fast the exact core and the graded form are, beside what they compete with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from streamgauge.cli.terminal import JsonFlag, emit_json, help_text, progress, stdout, table

app = typer.Typer(no_args_is_help=True, help="Measure speed on this machine.")
EXAMPLE = "Example: streamgauge bench theory --json > theory.json"


@app.callback()
def _root() -> None:
    pass


def theory(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, a few seconds.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Exact normal forms against bare sweeps, sympy and auslander; graded forms alone and in batches."""
    from streamgauge.theory import benchmark, graded_benchmark

    with progress("measuring"):
        figures = graded_benchmark.graded_figures(chains=100 if quick else 1000)
        groups = {
            "exact forms, milliseconds": benchmark.exact_speed(peers=not quick, growth=not quick),
            "graded form of Sinkhorn chains": figures[:1],
            "graded form of chains with planted deaths": figures[1:],
        }
    if as_json:
        emit_json({name: [dataclasses.asdict(row) for row in rows] for name, rows in groups.items()})
        return
    for name, rows in groups.items():
        stdout().print(_table(name, rows))


app.command("theory", epilog=EXAMPLE, help=help_text(theory))(theory)


def _table(title: str, rows: Sequence[Any]) -> Any:
    """One line per figure and one column per row: there are more figures than rows."""
    if not rows:
        return f"{title}: nothing measured"
    names = [field.name for field in dataclasses.fields(rows[0])]
    lines = [(name.replace("_", " "), *(getattr(row, name) for row in rows)) for name in names]
    return table(title, ["", *(f"({i})" for i in range(1, len(rows) + 1))], lines)
