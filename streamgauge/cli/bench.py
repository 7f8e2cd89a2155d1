"""``streamgauge bench``: the exact core and the graded form beside what they compete with; the kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgauge.cli import bench_convert
from streamgauge.cli.selftest import working_triton
from streamgauge.cli.terminal import JsonFlag, emit_json, help_text, note, progress, stdout, step, table
from streamgauge.theory.errors import InputError

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
app.command("convert", epilog=bench_convert.EXAMPLE, help=help_text(bench_convert.command))(bench_convert.command)


def kernels(
    streams: Annotated[int, typer.Option(metavar="N", min=1, max=16, help="Streams.")] = 4,
    width: Annotated[
        int | None,
        typer.Option(metavar="D", min=1, help="Width; 4096 for times and compiling, 1024 for bytes if not given."),
    ] = None,
    tokens: Annotated[int, typer.Option(metavar="T", min=1, help="Tokens, for times on a GPU.")] = 8192,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Roofline picture (.png or .svg); GPU only.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without a GPU: only read and write, only sm_90.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Kernels on a GPU: time, bytes, bandwidth, and a whole site against torch.compile and liger-kernel.

    Without a GPU: bytes a token counted in Triton's interpreter beside the least possible, and what the compiler
    makes of every kernel for GPUs that are not there.
    """
    import torch

    cuda = torch.cuda.is_available()
    if picture is not None:
        from streamgauge.pictures import check_target

        check_target(picture)
        if not cuda:
            raise InputError("--picture: found no CUDA device, expected one: a roofline needs times")
    working_triton()
    document = _on_device(streams, width or 4096, tokens, picture) if cuda else _without(streams, width, quick)
    if as_json:
        emit_json(document)
    else:
        _show_kernels(document)


app.command("kernels", epilog="Example: streamgauge bench kernels --quick", help=help_text(kernels))(kernels)


def _on_device(streams: int, width: int, tokens: int, picture: Path | None) -> dict[str, Any]:
    from streamgauge.kernels import device_benchmark as measure

    with progress("timing"):
        timer = measure.cuda_timer()
        device = measure.cuda_device(timer)
        rows = measure.timings(device, timer, n=streams, d=width, tokens=tokens)
        peers = measure.peer_timings(device, timer, n=streams, d=width, tokens=tokens)
    if picture is not None:
        from streamgauge.roofline import roofline_picture

        note(f"wrote {roofline_picture(picture, rows, device=device.name, copy=device.copy)}")
    shape = {"streams": streams, "width": width, "tokens": tokens, "dtype": "bfloat16"}
    timings = [dataclasses.asdict(row) for row in (*rows, *peers)]
    return {"device": dataclasses.asdict(device), "shape": shape, "timings": timings}


def _without(streams: int, width: int | None, quick: bool) -> dict[str, Any]:
    from streamgauge.kernels import compile as cross
    from streamgauge.kernels import peers, traffic

    names = ["read", "write full", "write identity"] if quick else None
    with progress("counting bytes", total=3) as bar:
        moved = traffic.table(streams, width or 1024, names)
        step(bar)
        if peers.liger_version() is not None and not quick and streams & (streams - 1) == 0:
            moved += traffic.table(streams, width or 1024, liger=True)
        step(bar, "compiling")
        made = cross.table((90,) if quick else cross.CAPABILITIES, n=streams, d=width or 4096, names=names)
        step(bar)
    return {
        "traffic": [{**dataclasses.asdict(row), "ratio": row.ratio, "bound_ratio": row.bound_ratio} for row in moved],
        "compiled": [{**dataclasses.asdict(row), "verdict": row.verdict} for row in made],
        "liger": peers.liger_version(),
    }


def _show_kernels(document: dict[str, Any]) -> None:
    if "timings" in document:
        stdout().print(_timing_table(document))
        return
    moved = [
        (row["name"], row["direction"], round(row["per_token"]), row["floor"] and round(row["floor"]),
         row["ratio"] and f"{row['ratio']:.4f}", row["bound"] and round(row["bound"]),
         row["bound_ratio"] and f"{row['bound_ratio']:.4f}", round(row["weights"]))
        for row in document["traffic"]
    ]  # fmt: skip
    columns = ("pass", "", "bytes a token", "least", "ratio", "two passes", "ratio", "weights, bytes a launch")
    stdout().print(table("memory traffic, 16-bit state, counted in the interpreter", columns, moved, left=2))
    compiled = [
        (row["situation"], row["kernel"].removesuffix("_kernel"), f"sm_{row['capability']}", row["warps"],
         row["registers"], row["shared"], row["local"], row["spills"], row["verdict"])
        for row in document["compiled"]
    ]  # fmt: skip
    titles = ("first asked by", "kernel", "for", "warps", "registers", "shared", "local", "spills", "verdict")
    stdout().print()
    stdout().print(table("cross-compiled, bfloat16 state", titles, compiled, left=3))


def _timing_table(document: dict[str, Any]) -> Any:
    device = document["device"]
    lines = [
        (row["name"], row["direction"], row["microseconds"], row["megabytes"], row["terabytes_per_second"],
         _percent(row["copy_share"]), _percent(row["floor_share"]))
        for row in document["timings"]
    ]  # fmt: skip
    title = f"{device['name']}: copies at {device['copy']:.3g} TB/s; {document['shape']}"
    columns = ("pass", "", "us", "MB", "TB/s", "of copy", "of the floor's speed")
    return table(title, columns, lines, left=2)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


def _table(title: str, rows: Sequence[Any]) -> Any:
    """One line per figure and one column per row: there are more figures than rows."""
    if not rows:
        return f"{title}: nothing measured"
    names = [field.name for field in dataclasses.fields(rows[0])]
    lines = [(name.replace("_", " "), *(getattr(row, name) for row in rows)) for name in names]
    return table(title, ["", *(f"({i})" for i in range(1, len(rows) + 1))], lines)
