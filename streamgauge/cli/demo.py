"""``streamgauge demo``: a trained mHC language model without its mixing matrices, and proof that it is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.terminal import Failed, JsonFlag, emit_json, progress, say, stdout, step, table, write_text
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate

if TYPE_CHECKING:
    from rich.progress import Progress

    from streamgauge.simulate.crosscheck import CrossCheck

EXAMPLE = "Example: streamgauge demo --out demo"
MARKER, FORMAT = "demo.json", "streamgauge demo"
OURS = frozenset({MARKER, "converted", "barcode.png", "cond.png", "singular_values.png"})
CHECKPOINT, TOKENS, STEPS = "static", 4096, 12
GENTLE_COND = 100.0


@dataclass(frozen=True)
class Line:
    """One line of the demo's table."""

    check: str
    found: str
    limit: str
    ok: bool


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the converted model and the pictures.")] = Path(
        "streamgauge-demo"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Convert the trained model that ships with streamgauge, compare, check the certificate, draw pictures.

    Exit code 1 if any line of the table misses.  Only the demo's own files are ever overwritten.
    """
    _prepare(out)
    with shipped(CHECKPOINT) as source, progress("reading the trained model", STEPS) as bar:
        lines, facts = run(source, out, bar)
    ok = all(line.ok for line in lines)
    document = {"format": FORMAT, "ok": ok, "lines": [line.__dict__ for line in lines], **facts}
    if as_json:
        emit_json(document)
    else:
        rows = [(line.check, line.found, line.limit, "holds" if line.ok else "MISSES") for line in lines]
        title = f"A trained mHC language model ({facts['sites']} sites, {facts['streams']} streams) as norm-gated iHC"
        stdout().print(table(title, ("", "found", "expected", "verdict"), rows))
        say(f"converted model, certificate and pictures: {out}")
    write_text(out / MARKER, json.dumps(document, indent=1) + "\n")
    if not ok:
        raise Failed


def run(source: Path, out: Path, bar: Progress) -> tuple[list[Line], dict[str, Any]]:
    """Convert ``source`` into ``out`` and collect every line of the table."""
    from streamgauge import api
    from streamgauge.cli.inspect import draw
    from streamgauge.simulate import checkpoint
    from streamgauge.simulate.crosscheck import crosscheck
    from streamgauge.simulate.data import heldout_loss, heldout_text
    from streamgauge.simulate.inspection import inspect_checkpoint

    step(bar, "converting")
    converted = out / "converted"
    made = api.convert(source, converted, form="graded", norm=NormGate(), force=True)
    step(bar, "comparing logits")
    networks = [checkpoint.load(path, "float64") for path in (source, converted)]
    tokens = api.heldout_tokens(networks[0].config.context, TOKENS)
    compared = crosscheck(networks[0], networks[1], tokens, progress=lambda: step(bar))
    step(bar, "held-out loss")
    loss = [heldout_loss(network.to_precision("float32"), heldout_text()) for network in networks]
    step(bar, "checking the certificate")
    proof = api.check(converted / api.CERTIFICATE, file=converted, source=source)
    step(bar, "drawing")
    found = inspect_checkpoint(source)
    draw(found, out, "the shipped checkpoint")
    step(bar, "done")
    identity = found.sites[-1].log10_identity_cond
    cond = max(made.conditioning.cond)
    lines = [
        Line("A P = P' D, largest residual", f"{made.form.residuals().max():.1e}", "1e-12", bool(made.form.check())),
        Line(
            f"condition of the stream basis (identity gauge: {10**identity:.3g})",
            f"{cond:.3g}",
            f"{GENTLE_COND:g}",
            cond <= GENTLE_COND,
        ),
        *_compared(compared),
        Line(
            f"held-out loss, nats per byte (source {loss[0]:.5f})",
            f"{loss[1]:.5f}",
            "within 1e-4",
            abs(loss[1] - loss[0]) <= 1e-4,
        ),
        Line(
            "certificate, in exact arithmetic",
            "accepted" if proof else f"refused: {proof.reason}",
            "accepted",
            proof.ok,
        ),
    ]
    return lines, {"sites": len(made.form), "streams": made.config.streams, "certificate": proof.reason, "loss": loss}


def _compared(compared: CrossCheck) -> list[Line]:
    from streamgauge.simulate.crosscheck import FLOAT64_LIMIT, LIMITS

    lines = []
    for r in compared.results:
        if r.precision == "float64":
            text, found, limit = (
                f"logits in float64, {compared.tokens} tokens, relative error",
                r.error,
                FLOAT64_LIMIT,
            )
        else:
            text, found, limit = f"round-off in {r.precision}, against the source's own", r.ratio, LIMITS[r.precision]
        lines.append(Line(text, f"{found:.3g}", f"{limit:g}", found <= limit))
    worst = max(compared.streams)
    lines.append(Line("streams X = P Y, worst level", f"{worst:.1e}", f"{FLOAT64_LIMIT:g}", worst <= FLOAT64_LIMIT))
    return lines


@contextmanager
def shipped(name: str) -> Iterator[Path]:
    """The folder of a checkpoint that comes with the package, also from a zipped install."""
    with resources.as_file(resources.files("streamgauge.examples") / "data" / name) as folder:
        yield folder


def _prepare(out: Path) -> None:
    """Make the demo's folder, or take over one of its own; anything else is refused and left alone."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, expected a new folder or one made by an earlier demo")
    if out.is_dir():
        names = {path.name for path in out.iterdir()}
        if names and not (_is_demo(out / MARKER) and names <= OURS):
            stranger = min(names - OURS, default=MARKER)
            raise InputError(
                f"{out}: not (only) a demo's folder, see {stranger!r}; expected a new folder, e.g. --out NEW"
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: cannot be made ({error.strerror}), expected a writable parent") from None
    write_text(out / MARKER, json.dumps({"format": FORMAT}) + "\n")


def _is_demo(marker: Path) -> bool:
    try:
        document = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT
