"""``streamgauge barcode``: when every direction of the streams is born and where it dies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamgauge.cli.terminal import JsonFlag, emit_json, note, progress, stdout, table
from streamgauge.theory.errors import InputError

if TYPE_CHECKING:
    from streamgauge.theory.chain import Chain
    from streamgauge.theory.form import Bar, NormalForm

EXAMPLE = "Example: streamgauge barcode mixers.json --out barcode.svg   (mixers.json: [[[1, 0], [0, 1]], ...])"


def command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Matrices (.json, .npy, .npz) or a checkpoint folder.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="PICTURE", help="Also draw it: a .png or .svg file.")] = None,
    prime: Annotated[int | None, typer.Option(help="Over GF(p) instead of the rationals.")] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Take floats as the rationals they hold, instead of a numerical rank.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bars [birth, death] of a chain of matrices: alive at levels birth .. death, killed by site death if any.

    Integers and 'p/q' strings are decided exactly.  Floats are decided by the numerical rank of every site (graded
    form, which also gives the gates), or exactly with --exact or --prime.
    """
    from streamgauge.files import read_chain
    from streamgauge.pictures import barcode_picture, check_target

    if out is not None:
        check_target(out)
    with progress(f"reading {file.name}"):
        chain = read_chain(file)
        form: NormalForm | None = None
        if chain.exact or exact or prime is not None:
            from streamgauge.theory.barcode import barcode

            bars, field = barcode(chain, prime=prime).bars, "Q" if prime is None else f"GF({prime})"
        else:
            form = _graded(chain, file)
            bars, field = form.bars, "float64, numerical rank"
        if out is not None:
            gates = None if form is None else form.gates
            barcode_picture(out, bars, len(chain), gates=gates, title=f"Barcode of {file.name} over {field}")
    for text in () if form is None else form.notes:
        note(text)
    _report(bars, chain, field, out, as_json)


def _graded(chain: Chain, file: Path) -> NormalForm:
    from streamgauge.theory.normal_form import normal_form

    if not chain.square:
        raise InputError(f"{file}: floats with changing dimensions {list(chain.dims)}, expected --exact with them")
    return normal_form(chain, "graded")


def _report(bars: tuple[Bar, ...], chain: Chain, field: str, out: Path | None, as_json: bool) -> None:
    counts = sorted(Counter((bar.birth, bar.death) for bar in bars).items())
    if as_json:
        emit_json(
            {
                "field": field,
                "sites": len(chain),
                "dims": list(chain.dims),
                "bars": [{"birth": b, "death": d, "count": count} for (b, d), count in counts],
                "picture": None if out is None else str(out),
            }
        )
        return
    rows = [
        (
            f"[{b}, {d}]",
            "at the entry" if b == 0 else f"by site {b - 1}",
            f"at site {d}" if d < len(chain) else "never",
            count,
        )
        for (b, d), count in counts
    ]
    title = f"{len(bars)} bars over {field}, {len(chain)} sites"
    stdout().print(table(title, ("bar", "born", "dies", "count"), rows, left=3))
    if out is not None:
        stdout().print(f"picture: {out}", soft_wrap=True)
