"""``streamgauge verify-pointwise``: a running Hugging Face model against its per-token triangular form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.reading import ContextFlag
from streamgauge.cli.terminal import Failed, JsonFlag, emit_json, following, one_line, progress, stdout, table

if TYPE_CHECKING:
    from streamgauge.simulate.hosted.pointwise import Pointwise

EXAMPLE = "Example: streamgauge verify-pointwise model --text held-out.txt --tokens 4096"
TOKENS = 4096


def command(
    source: Annotated[Path, typer.Argument(metavar="HF_DIR", help="Folder of a DeepSeek-V4 or GLM-5.3 model.")],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="Text to run along.")],
    tokens: Annotated[int, typer.Option(help="Use the first so many tokens.")] = TOKENS,
    context: ContextFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a model with dynamic mixers in its per-token triangular form, and compare the logits.

    Per token, A Q = Q' R by forward QR: mixing matrices become triangular ones, in an orthogonal basis that moves
    from site to site.  This is exact for mixers that depend on the state; the part of R above the diagonal is what
    diagonal gates for every token would drop.

    Compared are the logits in float64, up to its round-off, and in float32, where the ratio of the two errors must be
    at most 2.  Exit code 1 if they differ by more.
    """
    from streamgauge.api import verify_pointwise

    with progress(f"loading {source.name}") as bar:
        found = verify_pointwise(source, text=text, tokens=tokens, context=context, progress=following(bar))
    verdict = found.verdict()
    if as_json:
        emit_json({"source": str(source), "text": str(text), **found.document()})
    else:
        stdout().print(table(f"{source} along {text}, per-token triangular form", ("", ""), figure_rows(found)))
        columns = ("site", "gates: mean diag(R)", "smallest", "largest", "above the diagonal")
        stdout().print(table("sites", columns, site_rows(found)))
        word = "verified" if verdict.ok else "missed"
        stdout().print(f"{word}: {one_line(verdict.reason)}", soft_wrap=True)
    if not verdict.ok:
        raise Failed


def figure_rows(found: Pointwise) -> list[tuple[str, Any]]:
    """The figures as rows of a table."""
    return [
        ("tokens", str(found.tokens)),
        ("difference in float64", f"{found.exact:.2e}"),
        ("error of the source in float32", f"{found.source_error:.2e}"),
        ("error of the form in float32", f"{found.error:.2e}"),
        ("round-off ratio", f"{found.ratio:.3f} (median over tokens {found.median_ratio:.3f})"),
        ("tokens with other experts", str(found.flipped)),
        ("largest |R| below the diagonal", f"{found.below_diagonal:.2e}"),
        ("largest |Q^T Q - I|", f"{found.orthogonality:.2e}"),
        ("largest |A Q - Q' R|", f"{found.residual:.2e}"),
        ("R above the diagonal", f"{found.dropped:.3%} (diagonal gates would drop it)"),
    ]


def site_rows(found: Pointwise) -> list[tuple[str, ...]]:
    """One row a site."""
    return [
        (
            str(site.site),
            " ".join(f"{gate:.4f}" for gate in site.gates),
            f"{site.gate_min:.2g}",
            f"{site.gate_max:.6f}",
            f"{site.dropped:.3%}",
        )
        for site in found.sites
    ]
