"""The flags of commands that run a model on a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MixersFlag = Annotated[
    str | None,
    typer.Option(
        help="Another program's mixers that depend on the state: exact (the default: refuse them), bias "
        "(A at its bias), mean (over --text), token-gates (mean, with gates of every token; Sinkhorn still runs) or "
        "identity (no mixing; not --form identity). All but the first lose something; --text says how much."
    ),
]
TextFlag = Annotated[
    Path | None,
    typer.Option("--text", metavar="FILE", help="Text to measure mixers and loss on; the model is run."),
]
HeldOutFlag = Annotated[
    Path | None,
    typer.Option("--held-out", metavar="FILE", help="Measure the loss here (default: last quarter of --text)."),
]
TokensFlag = Annotated[int | None, typer.Option(help="Use the first so many tokens of a text (default: all).")]
ContextFlag = Annotated[
    int | None, typer.Option(help="Tokens of a window (default: 512, or what the model takes if less).")
]
RefineFlag = Annotated[
    int, typer.Option("--refine", metavar="STEPS", help="Then fit the converted tensors to the source's predictions.")
]
DtypeFlag = Annotated[str, typer.Option(help="The model runs in float32, bfloat16 or float64.")]
DeviceMapFlag = Annotated[
    str | None,
    typer.Option("--device-map", metavar="MAP", help="Where the model runs, as in transformers: auto, cpu, ..."),
]
