"""``streamgauge inspect``: what the streams of a checkpoint do, site by site."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.foreign import FormatFlag, MapFlag, SetFlag, show_inspection, show_recognised
from streamgauge.cli.terminal import JsonFlag, progress, show_found, stream_rows, table
from streamgauge.theory.errors import InputError

if TYPE_CHECKING:
    from streamgauge.simulate.formats.report import FormatInspection
    from streamgauge.simulate.inspection import Inspection

EXAMPLE = "Example: streamgauge inspect checkpoint --out pictures"


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Checkpoint, converted or not.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write barcode.png, cond.png and singular_values.png there."),
    ] = None,
    source_format: FormatFlag = None,
    settings: SetFlag = None,
    described: MapFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Singular values, marginal errors, gates, conditioning, gains and saturation of every site.

    rows, columns: largest error of the mixer's row and column sums.  gain: largest row (forward) and column
    (backward) sum of |A|.  running: the product of the mixers so far (second singular value, effective rank,
    identity gauge).

    Also for checkpoints of other programs (DeepSeek-V4, GLM-5.3-Flash, Liger, ...): mixers at their biases, and by
    how much they move (RMS change of A for states in random directions; over a text: convert --text).  Only
    hyper-connection tensors are read.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, expected a directory for the pictures")
    if source_format or settings or described or _foreign(source):
        _inspect_foreign(source, out, source_format, settings or [], described, as_json)
        return
    from streamgauge.api import inspect

    with progress(f"inspecting {source.name}"):
        found = inspect(source)
        pictures = [] if out is None else draw(found, out, source.name)
    shown = document(found, source, pictures)
    show_found(found.warnings, found.notes, shown, _tables(found, source), as_json, pictures)


def _foreign(source: Path) -> bool:
    from streamgauge.simulate.formats.dispatch import is_foreign

    return is_foreign(source)


def _inspect_foreign(
    source: Path, out: Path | None, name: str | None, settings: list[str], described: Path | None, as_json: bool
) -> None:
    from streamgauge.api import inspect_format
    from streamgauge.simulate.formats.detect import Recognised
    from streamgauge.simulate.formats.settings import parse_settings

    with progress(f"inspecting {source.name}"):
        found = inspect_format(source, format=name, settings=parse_settings(settings), map=described)
    if isinstance(found, Recognised):
        show_recognised(found, source, as_json)
        return
    pictures = [] if out is None else draw(found, out, source.name)
    show_inspection(found, source, as_json, pictures)


def draw(found: Inspection | FormatInspection, out: Path, name: str) -> list[Path]:
    """The three pictures of an inspection, into the folder ``out`` (made if needed)."""
    import numpy as np

    from streamgauge.pictures import barcode_picture, condition_picture, singular_values_picture

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made ({error.strerror}), expected a writable parent") from None
    form = getattr(found, "form", "graded form at the biases")
    gates = [site.gates for site in found.sites]
    identity = np.concatenate([[0.0], [site.log10_identity_cond for site in found.sites]])
    sites = len(found.sites)
    return [
        barcode_picture(out / "barcode.png", found.bars, sites, gates=gates, title=f"Barcode of {name}, {form}"),
        condition_picture(
            out / "cond.png",
            {"identity gauge": identity, form: np.log10(found.cond)},
            title=f"Condition number of the stream basis, {name}",
        ),
        singular_values_picture(
            out / "singular_values.png", found.log10_sigma, title=f"Singular values of the running product, {name}"
        ),
    ]


def document(found: Inspection, source: Path, pictures: list[Path]) -> dict[str, Any]:
    """What ``inspect --json`` says."""
    return {
        "source": str(source),
        "residual": found.config.residual,
        "streams": found.config.streams,
        "form": found.form,
        "bars": [[bar.birth, bar.death, bar.slot] for bar in found.bars],
        "cond": list(found.cond),
        "log10_sigma": found.log10_sigma,
        "sites": [dataclasses.asdict(site) for site in found.sites],
        "warnings": list(found.warnings),
        "notes": list(found.notes),
        "pictures": [str(picture) for picture in pictures],
    }


def _tables(found: Inspection, source: Path) -> list[Any]:
    config = found.config
    title = f"{source}: {config.residual}, {len(found.sites)} sites, {config.streams} streams; mixers"
    mixers = [
        (
            str(s.site),
            s.branch,
            " ".join(f"{x:.3f}" for x in s.singular_values),
            f"{s.row_error:.1e}",
            f"{s.column_error:.1e}",
            f"{s.forward_gain:.4f}",
            f"{s.backward_gain:.4f}",
            "-" if s.saturation is None else f"{s.saturation:.0%}",
        )
        for s in found.sites
    ]
    streams = stream_rows(found.sites)
    columns = ("site", "branch", "singular values", "rows", "columns", "gain fwd", "bwd", "saturated")
    running = ("site", "running sigma_2", "effective rank", "identity cond", "cond(P)", f"gates, {found.form}")
    return [table(title, columns, mixers, left=2), table("streams after each site", running, streams)]
