"""``streamgauge eval``: what a Hugging Face model predicts on a text, and what it predicts on its sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.reading import ContextFlag, DeviceMapFlag, DtypeFlag, TokensFlag
from streamgauge.cli.terminal import JsonFlag, emit_json, following, progress, stdout, table

if TYPE_CHECKING:
    from streamgauge.simulate.hosted.compare import Comparison, Perplexity

EXAMPLE = "Example: streamgauge eval model --with out --text held-out.txt"


def command(
    source: Annotated[Path, typer.Argument(metavar="HF_DIR", help="Folder of a DeepSeek-V4 or GLM-5.3 model.")],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="Text to predict.")],
    other: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="OUT", help="What convert made of it (sidecar or --full), or an attached model saved."
        ),
    ] = None,
    tokens: TokensFlag = None,
    context: ContextFlag = None,
    dtype: DtypeFlag = "float32",
    device_map: DeviceMapFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Perplexity of a Hugging Face model on a text, and with --with how far its converted form is from it.

    KL is that of the next-token distributions, source to converted, in nats per token.  Routing flips are tokens
    whose set of experts differs in a layer.  A sidecar shares the source's memory, a whole folder takes its own.
    """
    from streamgauge.api import evaluate

    with progress(f"loading {source.name}") as bar:
        size: dict[str, Any] = {"tokens": tokens, "context": context}
        where: dict[str, Any] = {"dtype": dtype, "device_map": device_map}
        found = evaluate(source, other, text=text, **size, **where, progress=following(bar))
    given = {"source": str(source), "with": None if other is None else str(other), "text": str(text), "dtype": dtype}
    if as_json:
        emit_json({**given, **found.document()})
        return
    title = f"{source} on {text}" if other is None else f"{source} and {other} on {text}"
    stdout().print(table(f"{title}, {dtype}", ("", ""), figure_rows(found)))


def figure_rows(found: Comparison | Perplexity) -> list[tuple[str, str]]:
    """The figures as rows of a table."""
    from streamgauge.simulate.hosted.compare import Perplexity

    if isinstance(found, Perplexity):
        return [("tokens", str(found.tokens)), ("perplexity", f"{found.perplexity:.6g}")]
    return [
        ("tokens", str(found.tokens)),
        ("perplexity of the source", f"{found.source_perplexity:.6g}"),
        *loss_rows(found.document(), "converted"),
    ]


def loss_rows(found: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """What a comparison's document says of the compared model, which is called ``name``."""
    return [
        (f"perplexity {name}", f"{found['perplexity']:.6g} ({found['ratio'] - 1:+.3%})"),
        (f"KL(source || {name})", f"{found['kl']:.3e} nats per token"),
        ("same best next token", f"{found['agreement']:.3%}"),
        *_flip_rows(found),
    ]


def _flip_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not found["flips"]:
        return []
    most = max(found["flips"], key=lambda flips: flips["tokens"])
    share = f"{found['flipped']} of {found['tokens']} tokens ({found['flipped'] / found['tokens']:.3%})"
    where = f"; most in {most['name']} ({most['tokens']})" if most["tokens"] else ""
    return [("routing flips", f"{share}{where}")]
