"""Checkpoints of other programs, as ``convert`` and ``inspect`` show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.api import CERTIFICATE
from streamgauge.cli.evaluate import loss_rows
from streamgauge.cli.terminal import emit_json, say, show_found, stream_rows, table

if TYPE_CHECKING:
    from streamgauge.simulate.formats.detect import Recognised
    from streamgauge.simulate.formats.report import FormatInspection
    from streamgauge.simulate.formats.sidecar import Sidecar

FormatFlag = Annotated[
    str | None,
    typer.Option("--format", metavar="NAME", help="Another program's format, where SRC does not settle it."),
]
SetFlag = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A config field that SRC does not say, e.g. hc_eps=1e-6."),
]
MapFlag = Annotated[
    Path | None, typer.Option("--map", metavar="FILE", help="A description (TOML) of a format of your own.")
]


def show_sidecar(made: Sidecar, source: Path, as_json: bool) -> None:
    """What ``convert`` says about a sidecar."""
    from streamgauge.proofs.sidecar import why_uncertified

    notes = [*made.record.notes, *made.form.conditioning.notes]
    uncertified = why_uncertified(made.mixers, refined=made.refined)
    if uncertified is not None:
        notes.append(uncertified)
    if made.loss is not None and "fit" in made.loss and not made.refined:
        notes.append(f"{made.loss['fit']['steps']} steps of --refine found nothing better: nothing is fitted")
    warning = loss_warning(made)
    if made.loss is None and warning is not None:
        notes.append(f"the loss was not measured: {how_to_measure(made, source)}")
    warnings = [] if warning is None else [warning]
    document = {**sidecar_document(made, source), "warnings": warnings, "notes": notes}
    shown = table(f"{source} converted to {made.path}", ("", ""), _sidecar_rows(document))
    show_found(warnings, notes, document, [shown], as_json)


TAKEN = {
    "bias": "taken at their biases",
    "mean": "taken at their means",
    "token-gates": "cut down to gates by the token",
    "identity": "replaced by the identity",
}
"""What became of mixers that depend on the state, by the choice of ``--mixers``."""


def loss_warning(made: Sidecar) -> str | None:
    """What a conversion gave up; None where the converted network is the same function."""
    count, dynamic = len(made.shares), [share for share in made.shares if not share.static]
    if made.mixers == "identity":
        return f"{count} of {count} mixers were {TAKEN['identity']}: the converted network is another function"
    if not dynamic:
        return None
    by, where = max(share.share for share in dynamic), "in random directions"
    if made.measured is not None:
        by, where = max(made.measured.shares), f"over {made.measured.tokens} tokens"
    return (
        f"{len(dynamic)} of {count} mixers depended on the state (by up to {by:.1%} {where}) and were "
        f"{TAKEN[made.mixers]}: the converted network is another function"
    )


def how_to_measure(made: Sidecar, source: Path) -> str:
    """The command that says what a conversion lost, if there is one."""
    from streamgauge.simulate.formats.chosen import HOSTED

    if made.record.format not in HOSTED:
        return f"no program here runs {made.record.format} checkpoints"
    return f"convert with --text FILE, or streamgauge eval {source} --with {made.path.parent} --text FILE"


def sidecar_document(made: Sidecar, source: Path) -> dict[str, Any]:
    """What ``convert --json`` says about a sidecar."""
    form, counted, certificate = made.form, made.ledger, made.path.parent / CERTIFICATE
    gates = [float(g) for vector in form.gates for g in vector]
    return {
        "ok": True,
        "source": str(source),
        "destination": str(made.path),
        "format": made.record.format,
        "spelling": made.record.spelling,
        "form": form.form,
        "sites": len(form),
        "streams": made.record.n,
        "static_sites": sum(share.static for share in made.shares),
        "share_max": max(share.share for share in made.shares),
        "orientation": made.probe.reason,
        "bars": [[bar.birth, bar.death, bar.slot] for bar in form.bars],
        "gate_min": min(gates),
        "gate_max": max(gates),
        "cond_max": form.conditioning.worst,
        "residual": float(form.residuals().max(initial=0.0)),
        "mixers": made.mixers,
        "calibration": None if made.measured is None else made.measured.document(),
        "dropped": made.dropped,
        "loss": made.loss,
        "tensors": {"consumed": len(counted.consumed), "kept": len(counted.kept), "dropped": len(counted.dropped)},
        "bytes_read": made.bytes_read,
        "bytes_written": made.bytes_written,
        "certificate": str(certificate) if certificate.is_file() else None,
    }


def _sidecar_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    counted = document["tensors"]
    # A fit moves the gates off the mixers: what is a residual before is the size of that move after.
    fitted = ", fitted" if "refined" in (document["loss"] or {}) else ""
    return [
        ("format", f"{document['format']} ({document['spelling']})"),
        ("form", document["form"]),
        *_mixer_rows(document),
        ("sites, streams", f"{document['sites']}, {document['streams']}"),
        ("static sites", f"{document['static_sites']} of {document['sites']}"),
        ("orientation", document["orientation"]),
        (f"gates{fitted}", f"{document['gate_min']:.3g} to {document['gate_max']:.6g}"),
        ("largest cond(P_l)", f"{document['cond_max']:.4g}"),
        (f"largest |A p - (P' D)_p| / |A| |p|{fitted}", f"{document['residual']:.2g}"),
        ("tensors", ", ".join(f"{count} {what}" for what, count in counted.items())),
        ("read, written", f"{document['bytes_read'] / 1e6:.3f} MB, {document['bytes_written'] / 1e6:.3f} MB"),
        ("certificate", document["certificate"] or "none"),
        *_loss_rows(document["loss"]),
    ]


def _mixer_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    seen = document["calibration"]
    if seen is None:
        return [("mixers", document["mixers"])]
    shares, left = seen["shares"], document["dropped"]
    here, in_source = (max(pair[i] for pair in left) for i in (0, 1))
    return [
        ("mixers", f"{document['mixers']}, over {seen['tokens']} tokens of {seen['text'].get('name', 'a text')}"),
        ("their dynamic share", f"{min(shares):.1%} to {max(shares):.1%}"),
        ("gates leave out of A, in X", f"up to {in_source:.1%}"),
        ("gates leave out of A, in Y = P^-1 X", f"up to {here:.1%}"),
    ]


def _loss_rows(loss: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Held-out figures, of the conversion and of the fit after it."""
    if loss is None:
        return []
    text, first = loss["text"], loss["converted"]
    out = [
        ("held-out text", f"{text['tokens']} tokens of {text['name']}, {loss['dtype']}"),
        ("perplexity of the source", f"{first['source_perplexity']:.6g}"),
    ]
    for name in ("converted", "refined"):
        if name in loss:
            out += loss_rows(loss[name], name)
    return out


def show_recognised(found: Recognised, source: Path, as_json: bool) -> None:
    """What ``inspect`` says about a format that has nothing to convert."""
    if as_json:
        emit_json({"source": str(source), "format": found.name, "converts": False, "reason": found.reason})
        return
    say(f"{source}: {found.title}: {found.reason}")


def show_inspection(found: FormatInspection, source: Path, as_json: bool, pictures: list[Path]) -> None:
    """What ``inspect`` says about another program's checkpoint."""
    shown = inspection_document(found, source, pictures)
    show_found(found.warnings, found.notes, shown, _tables(found, source), as_json, pictures)


def inspection_document(found: FormatInspection, source: Path, pictures: list[Path]) -> dict[str, Any]:
    """What ``inspect --json`` says about another program's checkpoint."""
    names = (
        "format",
        "cond",
        "log10_sigma",
        "tolerance",
        "gap",
        "tensors",
        "bytes_total",
        "bytes_mixers",
        "bytes_read",
    )
    return {
        "source": str(source),
        "converts": True,
        **{name: getattr(found, name) for name in names},
        "streams": found.record.n,
        "width": found.record.d,
        "conventions": dict(found.conventions),
        "bars": [[bar.birth, bar.death, bar.slot] for bar in found.bars],
        "sites": [dataclasses.asdict(site) for site in found.sites],
        "warnings": list(found.warnings),
        "notes": list(found.notes),
        "pictures": [str(picture) for picture in pictures],
    }


def _tables(found: FormatInspection, source: Path) -> list[Any]:
    read = f"{found.bytes_read / 1e6:.3f} of {found.bytes_total / 1e6:.3f} MB read"
    title = f"{source}: {found.format}, {len(found.sites)} sites, {found.record.n} streams; {read}"
    mixers = [
        (
            str(s.site),
            s.name,
            "static" if s.share.static else f"{s.share.share:.1%}",
            " ".join(f"{x:.3f}" for x in s.singular_values),
            f"{s.row_error:.1e}",
            f"{s.column_error:.1e}",
            "-" if s.saturation is None else f"{s.saturation:.0%}",
        )
        for s in found.sites
    ]
    streams = stream_rows(found.sites)
    columns = ("site", "mixer", "moves by", "singular values", "rows", "columns", "saturated")
    running = ("site", "running sigma_2", "effective rank", "identity cond", "cond(P)", "gates, graded form")
    died = sum(bar.death < len(found.sites) for bar in found.bars)
    bars = f"{len(found.bars)} bars, {died} die; singular values up to {found.tolerance:.2g} count as zero"
    return [
        table(title, ("convention", "found"), list(found.conventions.items()), left=2),
        table("mixers at their biases", columns, mixers, left=2),
        table(f"streams after each site: {bars}", running, streams),
    ]
