"""``streamgauge convert``: a checkpoint with mixing matrices to one without."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.foreign import FormatFlag, MapFlag, SetFlag, show_sidecar
from streamgauge.cli.reading import (
    ContextFlag,
    DeviceMapFlag,
    DtypeFlag,
    HeldOutFlag,
    MixersFlag,
    RefineFlag,
    TextFlag,
    TokensFlag,
)
from streamgauge.cli.terminal import JsonFlag, emit_json, following, note, progress, stdout, table
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate

if TYPE_CHECKING:
    from streamgauge.simulate.convert import Conversion

EXAMPLE = "Example: streamgauge convert checkpoint out --norm --cap 1"


def command(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Checkpoint: model.safetensors and config.json.")],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="Folder to make.")],
    form: Annotated[
        str, typer.Option(help="identity (Theorem 1), binary (Theorem 2) or graded (real gates, well conditioned).")
    ] = "graded",
    norm: Annotated[bool, typer.Option("--norm/--no-norm", help="Norm gate on top (Theorem 3).")] = False,
    eps: Annotated[float | None, typer.Option(help="The norm gate's eps (default 0).")] = None,
    cap: Annotated[float | None, typer.Option(help="Largest factor of the norm gate (default none).")] = None,
    restore: Annotated[bool, typer.Option("--restore", help="SRC is a converted checkpoint: turn it back.")] = False,
    mixers: MixersFlag = None,
    text: TextFlag = None,
    held_out: HeldOutFlag = None,
    tokens: TokensFlag = None,
    context: ContextFlag = None,
    refine: RefineFlag = 0,
    dtype: DtypeFlag = "float32",
    device_map: DeviceMapFlag = None,
    full: Annotated[
        bool, typer.Option("--full", help="Another program's checkpoint whole, not only the converted tensors.")
    ] = False,
    source_format: FormatFlag = None,
    settings: SetFlag = None,
    described: MapFlag = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DST if it exists.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert a trained checkpoint to (norm-)gated iHC form, with a certificate.

    SRC is never touched; DST appears complete or not at all.

    SRC may be another program's checkpoint (DeepSeek-V4, GLM-5.3-Flash, Liger, ...): DST then holds one file with the
    converted hyper-connection tensors, to stand beside it; with --full the whole checkpoint.  Where A depends on the
    state, --mixers says what takes its place, and --text measures perplexity, KL and agreement on held-out text.
    """
    given: dict[str, Any] = {"text": text, "held_out": held_out, "tokens": tokens, "context": context}
    given["device_map"] = device_map
    reads = refine != 0 or dtype != "float32" or any(value is not None for value in given.values())
    foreign = bool(mixers or full or source_format or settings or described or reads)
    _refuse(form, norm, eps, cap, restore, foreign)
    if restore:
        _restore(source, destination, force, as_json)
        return
    gate = NormGate(eps or 0.0, cap) if norm else None
    if foreign or _foreign(source):
        given |= {"mixers": mixers or "exact", "form": form, "norm": gate, "full": full, "force": force}
        given |= {"format": source_format, "map": described, "refine": refine, "dtype": dtype}
        _sidecar(source, destination, as_json, settings or [], given)
        return
    from streamgauge.api import convert

    with progress(f"converting {source.name}"):
        made = convert(source, destination, form=form, norm=gate, force=force)
    document = summary(made, source, destination)
    for fact in made.form.conditioning.notes:
        note(fact)
    if as_json:
        emit_json(document)
        return
    stdout().print(table(f"{source} converted to {destination}", ("", ""), _rows(document)))


def _refuse(form: str, norm: bool, eps: float | None, cap: float | None, restore: bool, foreign: bool) -> None:
    if not norm and (eps is not None or cap is not None):
        raise InputError(f"{'--cap' if eps is None else '--eps'}: belongs to the norm gate, expected --norm with it")
    if eps is not None and not 0 <= eps < math.inf:
        raise InputError(f"--eps: found {eps}, expected a finite number of at least 0")
    if cap is not None and not 0 < cap < math.inf:
        raise InputError(f"--cap: found {cap}, expected a finite number above 0")
    if restore and (norm or form != "graded"):
        raise InputError("--restore: takes the form from SRC, expected neither --form nor --norm with it")
    if restore and foreign:
        raise InputError("--restore: takes a checkpoint made here, expected no flag of another program's with it")


def _foreign(source: Path) -> bool:
    from streamgauge.simulate.formats.dispatch import is_foreign

    return is_foreign(source)


def _sidecar(source: Path, destination: Path, as_json: bool, settings: list[str], given: dict[str, Any]) -> None:
    from streamgauge.api import sidecar
    from streamgauge.simulate.formats.settings import parse_settings

    with progress(f"converting {source.name}") as bar:
        made = sidecar(source, destination, settings=parse_settings(settings), progress=following(bar), **given)
    show_sidecar(made, source, as_json)


def summary(made: Conversion, source: Path, destination: Path) -> dict[str, Any]:
    """What ``convert --json`` says."""
    form = made.form
    gates = [float(g) for vector in form.gates for g in vector]
    return {
        "ok": True,
        "source": str(source),
        "destination": str(destination),
        "form": form.form,
        "norm_gate": None if form.norm is None else {"eps": form.norm.gate.eps, "cap": form.norm.gate.cap},
        "sites": len(form),
        "streams": form.chain.dims[0],
        "bars": [[bar.birth, bar.death, bar.slot] for bar in form.bars],
        "gate_min": min(gates, default=1.0),
        "gate_max": max(gates, default=1.0),
        "cond_max": made.form.conditioning.worst,
        "log2_state_growth": 0.0 if form.norm is None else 0.0 - float(form.norm.log2_scales[-1]),
        "residual": float(form.residuals().max(initial=0.0)),
        "notes": list(made.form.conditioning.notes),
        "files": _files(destination),
    }


def _files(folder: Path) -> dict[str, int]:
    """Name and size in bytes of every file of a checkpoint."""
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def _files_row(files: dict[str, int]) -> tuple[str, str]:
    return "files", ", ".join(f"{name} ({size / 1000:.0f} kB)" for name, size in files.items())


def _rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    gate = document["norm_gate"]
    died = sum(death < document["sites"] for _, death, _ in document["bars"])
    norm = "" if gate is None else f" + norm gate (eps {gate['eps']:g}, cap {gate['cap'] or 'none'})"
    return [
        ("form", f"{document['form']}{norm}"),
        ("sites, streams", f"{document['sites']}, {document['streams']}"),
        ("bars", f"{len(document['bars'])}, of which {died} die on the way"),
        ("gates", f"{document['gate_min']:.3g} to {document['gate_max']:.6g}"),
        ("largest cond(P_l)", f"{document['cond_max']:.4g}"),
        ("log2 growth of the state", f"{document['log2_state_growth']:+.3g}"),
        ("largest |A p - (P' D)_p| / |A| |p|", f"{document['residual']:.2g}"),
        _files_row(document["files"]),
    ]


def _restore(source: Path, destination: Path, force: bool, as_json: bool) -> None:
    from streamgauge.api import restore

    with progress(f"restoring {source.name}"):
        restore(source, destination, force=force)
    files = _files(destination)
    if as_json:
        emit_json({"ok": True, "source": str(source), "destination": str(destination), "files": files})
        return
    stdout().print(table(f"{source} restored to {destination}", ("", ""), [_files_row(files)]))
