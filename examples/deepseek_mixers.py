"""What it costs to convert mixers that depend on the state, on the trained DeepSeek-V4 of this package:

    python -m streamgauge.examples.deepseek_mixers OUT        # some 15 minutes on one CPU thread

Every choice of --mixers, before and after --refine, against the source on the shipped held-out text; mixers are
measured and tensors fitted on the text it was trained on.  OUT gets deepseek_mixers.json, .md (the table) and .png.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import streamgauge as sg
from streamgauge.pictures import COLOURS, FAINT, INK
from streamgauge.simulate.checkpoint import file_sha256
from streamgauge.simulate.data import heldout_text, training_text

CHOICES = ("mean", "token-gates", "identity", "bias")
STEPS = 300
ALONE, REFINED = 1.0, 0.2
"""Percent of the source's held-out perplexity within which ``mean`` must stay, alone and after --refine."""
NAME = "deepseek_mixers"


def measure(
    source: Path,
    *,
    steps: int,
    text: bytes,
    tokens: int | None = None,
    choices: Sequence[str] = CHOICES,
    console: Console | None = None,
) -> dict[str, Any]:
    """The document of the table: rows by choice, dynamic share by site, and what was measured on what.

    ``steps`` of --refine, 0 for none; ``text``: for calibration; ``tokens``: limit for it and for the held-out text.
    ``choices`` of --mixers, "mean" among them.
    """
    rows: list[dict[str, Any]] = []
    texts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        calibration, held_out = Path(folder) / "training.txt", Path(folder) / "heldout.txt"
        calibration.write_bytes(text)
        held_out.write_bytes(heldout_text())
        for choice in choices:
            with _shown(console or Console(quiet=True), f"--mixers {choice}") as progress:
                made = sg.sidecar(
                    source,
                    Path(folder) / choice,
                    mixers=choice,
                    text=calibration,
                    held_out=held_out,
                    tokens=tokens,
                    refine=steps,
                    progress=progress,
                )
            if made.loss is None:
                raise SystemExit(f"--mixers {choice}: the loss was not measured")
            if made.measured is not None:
                texts["calibration"] = made.measured.document()
            texts["held_out"] = made.loss["text"]
            rows += _rows(choice, made)
    return {
        "checkpoint": {"name": source.name, "sha256": file_sha256(source / "model.safetensors")},
        **texts,
        "source_perplexity": rows[0]["source_perplexity"],
        "refine_steps": steps,
        "dynamic_share": list(texts["calibration"]["shares"]),
        "rows": rows,
        "versions": {"python": platform.python_version(), "torch": torch.__version__.split("+")[0]},
    }


@contextmanager
def _shown(console: Console, title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A line on the console that says what is being done, and how far it is."""
    with console.status(title) as status:
        yield lambda done, total, what: status.update(f"{title}: {what}, {done} of {total}")


def _rows(choice: str, made: Any) -> list[dict[str, Any]]:
    """One row as converted, and one after the fit if there was one."""
    dropped = None if made.dropped is None else [list(pair) for pair in made.dropped]
    out = []
    for stage in ("converted", "refined"):
        if stage in made.loss:
            found = made.loss[stage]
            kept = ("source_perplexity", "perplexity", "kl", "agreement", "flipped", "tokens")
            figures = {name: found[name] for name in kept}
            out.append(
                {
                    "mixers": choice,
                    "refined": stage == "refined",
                    "percent": 100 * (found["perplexity"] / found["source_perplexity"] - 1),
                    **figures,
                    "cond": float(made.form.conditioning.worst),
                    "dropped": dropped,
                }
            )
    return out


def row(document: Mapping[str, Any], mixers: str, refined: bool) -> dict[str, Any]:
    """The row of a choice, before or after the fit."""
    (found,) = (r for r in document["rows"] if (r["mixers"], r["refined"]) == (mixers, refined))
    return dict(found)


def signed(percent: float) -> str:
    """With sign and two digits; what rounds to nothing is 0.00."""
    return f"{percent:+.2f}" if abs(percent) >= 0.005 else "0.00"


def table(document: Mapping[str, Any]) -> str:
    """The document as a table in Markdown."""
    lines = [
        "| --mixers | --refine | perplexity against the source | KL (nats per byte) | top-1 agreement | cond(P) |",
        "|---|---|---|---|---|---|",
    ]
    for r in document["rows"]:
        steps = f"{document['refine_steps']} steps" if r["refined"] else "none"
        lines.append(
            f"| {r['mixers']} | {steps} | {signed(r['percent'])} % | {r['kl']:.2e} | {r['agreement']:.2%} "
            f"| {r['cond']:.2f} |"
        )
    shares = document["dynamic_share"]
    held, seen = document["held_out"], document["calibration"]
    lines += [
        "",
        f"Source: perplexity {document['source_perplexity']:.3f} on {held['tokens']} held-out bytes; mixers measured "
        f"on {seen['tokens']} bytes of the training text. Dynamic share of A by site, in depth order: "
        + ", ".join(f"{share:.3f}" for share in shares)
        + f". Checkpoint SHA-256 `{document['checkpoint']['sha256'][:16]}`.",
        "",
        f"Made by `python -m streamgauge.examples.{NAME} OUT` (Python {document['versions']['python']}, "
        f"torch {document['versions']['torch']}).",
        "",
    ]
    return "\n".join(lines)


def picture(path: Path, document: Mapping[str, Any]) -> None:
    """KL of every choice before and after the fit, and the dynamic share of every site."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    figure = Figure(figsize=(9.0, 3.4), dpi=110, layout="constrained")
    canvas: Any = FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for place, choice in enumerate(CHOICES):
        before, after = row(document, choice, False), row(document, choice, True)
        left.plot([before["kl"], after["kl"]], [place, place], color=FAINT, linewidth=2, zorder=1)
        for r, colour, mark, above in ((before, COLOURS[1], "o", 7), (after, COLOURS[0], "s", -14)):
            left.plot(r["kl"], place, mark, color=colour, zorder=2)
            said = f"{signed(r['percent'])} %"
            left.annotate(said, (r["kl"], place), (0, above), textcoords="offset points", ha="center", fontsize=8)
    left.plot([], [], "o", color=COLOURS[1], label="as converted")
    left.plot([], [], "s", color=COLOURS[0], label=f"after {document['refine_steps']} steps of --refine")
    left.set(xscale="log", yticks=range(len(CHOICES)), ylim=(len(CHOICES) - 0.4, -0.6))
    left.set_yticklabels([f"--mixers {choice}" for choice in CHOICES])
    left.set_xlabel("KL to the source, nats per byte; labels: perplexity against the source", fontsize=9)
    left.xaxis.set_minor_formatter(NullFormatter())
    left.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    left.xaxis.set_major_formatter("{x:g}")
    left.margins(x=0.15)
    left.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    shares = document["dynamic_share"]
    right.bar(range(len(shares)), shares, color=[COLOURS[l % 2 * 2] for l in range(len(shares))])
    right.set_xlabel("site (even: attention, odd: experts)", fontsize=9)
    right.set_ylabel("dynamic share of A", fontsize=9)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, colors=INK)
    canvas.print_png(path, metadata={"Software": None})


def main() -> None:
    """Measure, write the three files, and check the two bounds on ``mean``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--source", type=Path, help="a model of train_deepseek, by default the one of this package")
    parser.add_argument("--steps", type=int, default=STEPS, help="of --refine")
    parser.add_argument("--draw-only", action="store_true", help="table and picture of the JSON that is there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    place = given.out / f"{NAME}.json"
    if given.draw_only:
        document = json.loads(place.read_text(encoding="utf-8"))
    else:
        with nullcontext(given.source) if given.source else sg.example_checkpoint("deepseek") as source:
            document = measure(source, steps=given.steps, text=training_text(), console=Console(stderr=True))
        given.out.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    place.with_suffix(".md").write_text(table(document), encoding="utf-8")
    picture(place.with_suffix(".png"), document)
    print(table(document))
    alone, refined = row(document, "mean", False)["percent"], row(document, "mean", True)["percent"]
    if abs(alone) > ALONE or abs(refined) > REFINED:
        raise SystemExit(
            f"mean: {alone:+.2f} % alone and {refined:+.2f} % refined, expected {ALONE} % and {REFINED} %"
        )


if __name__ == "__main__":
    main()
