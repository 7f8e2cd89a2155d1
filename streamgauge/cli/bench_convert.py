"""``streamgauge bench convert``: a checkpoint of DeepSeek-V4-Pro's size, inspected and converted."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from streamgauge.cli.terminal import JsonFlag, emit_json, progress, stdout, table

EXAMPLE = "Example: streamgauge bench convert --layers 8 --width 1024"


def command(
    layers: Annotated[int, typer.Option(metavar="L", min=1, max=1000, help="Layers, two mixers each.")] = 61,
    width: Annotated[int, typer.Option(metavar="D", min=1, max=65536, help="Width.")] = 7168,
    tensors: Annotated[int, typer.Option(metavar="T", min=1, help="Tensors, mixers and others.")] = 145_116,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to put 0.9 GB for the while; a temporary folder if not given."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Inspect and convert a synthetic checkpoint with DeepSeek-V4-Pro's real hyper-connection shapes.

    Every command runs in a process of its own.  requested: bytes of the tensors and headers asked for, over the bytes
    of the hyper-connection tensors.
    """
    from streamgauge.simulate.formats.benchmark import scale_figures, synthetic_checkpoint

    with tempfile.TemporaryDirectory(dir=folder) as place, progress("writing and converting"):
        source = Path(place) / "source"
        mixers = synthetic_checkpoint(source, layers=layers, width=width, tensors=tensors)
        rows = scale_figures(source, Path(place), mixers)
    if as_json:
        emit_json({"megabytes_of_mixers": mixers / 1e6, "figures": [dataclasses.asdict(row) for row in rows]})
        return
    columns = ("command", "seconds", "peak MiB", "requested", "MB written")
    title = f"{layers} layers, width {width}, {mixers / 1e6:.1f} MB of mixers in {tensors} tensors"
    lines = [(r.what, r.seconds, f"{r.peak_mib:.0f}", r.requested, f"{r.megabytes_written:.1f}") for r in rows]
    stdout().print(table(title, columns, lines))
