"""``streamgauge demo``: a trained mHC language model without its mixing matrices, and proof that it is the same."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.api import example_checkpoint
from streamgauge.cli.terminal import (
    Failed,
    JsonFlag,
    emit_json,
    number,
    plain,
    power,
    progress,
    say,
    stdout,
    step,
    table,
    write_text,
)
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch import Tensor

    from streamgauge.simulate.crosscheck import CrossCheck
    from streamgauge.simulate.model import ByteLM

EXAMPLE = "Example: streamgauge demo --out demo"
MARKER, FORMAT = "demo.json", "streamgauge demo"
OURS = frozenset({MARKER, "converted", "barcode.png", "cond.png", "singular_values.png"})
CHECKPOINT, TOKENS, STEPS = "static", 4096, 12
RESIDUAL_LIMIT, COND_LIMIT, LOSS_LIMIT = 1e-12, 100.0, 1e-4
CONTROL = 1e-6  # a thousand times what counts as equal in float64
COST_COLUMNS = ("network", "numbers", "of these in connections", "MB", "µs a token", "time ratio")


@dataclass(frozen=True)
class Line:
    """One line of the demo's table: a figure, the limit it must keep, and whether it does."""

    check: str
    found: float | str
    limit: float | str
    ok: bool


def at_most(check: str, found: float, limit: float) -> Line:
    """A figure that must not exceed its limit (NaN does not pass)."""
    return Line(check, float(found), limit, bool(found <= limit))


def command(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the converted model and the pictures.")] = Path(
        "streamgauge-demo"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Convert the trained model that ships with streamgauge, compare, check the certificate, draw pictures.

    Exit code 1 if any line of the table misses.  Only the demo's own files are ever overwritten.
    """
    import streamgauge.simulate  # noqa: F401 - where torch is missing this says so, before a folder is made

    _prepare(out)
    with example_checkpoint(CHECKPOINT) as source, progress("reading the trained model", STEPS) as bar:
        lines, facts = run(source, out, bar)
    ok = all(line.ok for line in lines)
    document = {"format": FORMAT, "ok": ok, "lines": [vars(line) for line in lines], **facts}
    if as_json:
        emit_json(document)
    else:
        rows = [(line.check, number(line.found), number(line.limit), _word(line.ok)) for line in lines]
        title = f"A trained mHC language model ({facts['sites']} sites, {facts['streams']} streams) as norm-gated iHC"
        stdout().print(table(title, ("", "found", "at most", "verdict"), rows))
        stdout().print()
        stdout().print(table("What it costs (float32, this machine, now)", COST_COLUMNS, _cost_rows(facts)))
        say(f"converted model, certificate and pictures: {out}")
    write_text(out / MARKER, json.dumps(plain(document), indent=1, allow_nan=False) + "\n")
    if not ok:
        raise Failed


def _word(ok: bool) -> str:
    return "holds" if ok else "MISSES"


def run(source: Path, out: Path, bar: Progress) -> tuple[list[Line], dict[str, Any]]:
    """Convert ``source`` into ``out`` and collect every line of the table."""
    from streamgauge import api
    from streamgauge.cli.inspect import draw
    from streamgauge.simulate import checkpoint
    from streamgauge.simulate.crosscheck import crosscheck
    from streamgauge.simulate.data import heldout_loss, heldout_text
    from streamgauge.simulate.inspection import inspect_checkpoint
    from streamgauge.simulate.measure import costs

    step(bar, "converting")
    converted = out / "converted"
    made = api.convert(source, converted, form="graded", norm=NormGate(), force=True)
    step(bar, "checking the certificate")
    proof = api.check(converted / api.CERTIFICATE, file=converted, source=source)
    step(bar, "comparing logits")
    networks = [checkpoint.load(path, "float64") for path in (source, converted)]
    tokens = api.heldout_tokens(networks[0].config.context, TOKENS)
    compared = crosscheck(networks[0], networks[1], tokens, progress=lambda: step(bar))
    faulty = _faulty_error(networks[0], networks[1], tokens)
    step(bar, "held-out loss and cost")
    loss = [heldout_loss(network.to_precision("float32"), heldout_text()[: TOKENS // 2 + 1]) for network in networks]
    paid = costs(networks[0], networks[1], tokens[:2], repeats=7)
    step(bar, "drawing")
    found = inspect_checkpoint(source)
    draw(found, out, "the trained model")
    step(bar, "done")
    identity = power(found.sites[-1].log10_identity_cond)
    lines = [
        at_most("A P = P' D at every site, largest residual", made.form.residuals().max(), RESIDUAL_LIMIT),
        at_most(f"cond(P), worst level (identity gauge: {identity})", made.form.conditioning.worst, COND_LIMIT),
        *_compared(compared),
        Line("control: two write maps exchanged, error in float64", faulty, f"above {CONTROL:g}", faulty > CONTROL),
        at_most(
            f"loss on {TOKENS // 2} held-out bytes, {loss[0]:.4f} nats each, changed by",
            abs(loss[1] - loss[0]),
            LOSS_LIMIT,
        ),
        Line(
            "certificate in exact arithmetic, against both files",
            "accepted" if proof else "refused",
            "accepted",
            proof.ok,
        ),
    ]
    facts = {
        "sites": len(made.form),
        "streams": made.config.streams,
        "loss": loss,
        "certificate": proof.reason,
        "costs": [vars(cost) for cost in paid],
    }
    return lines, facts


def _compared(compared: CrossCheck) -> list[Line]:
    from streamgauge.simulate.crosscheck import FLOAT64_LIMIT, LIMITS

    lines = []
    for r in compared.results:
        if r.precision == "float64":
            lines.append(at_most(f"logits of {compared.tokens} tokens in float64, error", r.error, FLOAT64_LIMIT))
        else:
            lines.append(at_most(f"round-off in {r.precision} / the source's own", r.ratio, LIMITS[r.precision]))
    return [*lines, at_most("streams X = P Y in float64, worst level", max(compared.streams), FLOAT64_LIMIT)]


def _faulty_error(source: ByteLM, converted: ByteLM, tokens: Tensor) -> float:
    """The float64 error with the write maps of the first two sites exchanged: what a comparison must notice."""
    from streamgauge.simulate.crosscheck import crosscheck

    faulty = copy.deepcopy(converted)
    buffers = dict(faulty.named_buffers())
    first, second = buffers["sites.0.gauge.write"], buffers["sites.1.gauge.write"]
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)
    return crosscheck(source, faulty, tokens[:2], precisions=("float64",)).results[0].error


def _cost_rows(facts: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (c["name"], c["parameters"], c["connection"], c["bytes"] / 1e6, c["seconds"] * 1e6, c["ratio"])
        for c in facts["costs"]
    ]


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
