"""Conversion with the model running: mixers measured on a text, tensors fitted, the loss measured on held-out text.

Everything happens before the destination appears: an interruption at any moment leaves none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.simulate.attach import fitted_tensors
from streamgauge.simulate.attach_files import REFINED
from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.formats.chosen import HOSTED, MEASURED
from streamgauge.simulate.formats.controllers import Written
from streamgauge.simulate.formats.detect import Recognised
from streamgauge.simulate.formats.evaluate import load
from streamgauge.simulate.formats.headers import read_header
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, Sidecar, convert_folder, open_record
from streamgauge.simulate.formats.writer import amend
from streamgauge.simulate.hosted.calibrate import calibrate
from streamgauge.simulate.hosted.compare import Comparison, Progress, compare
from streamgauge.simulate.hosted.models import attached_twin, connections, load_model
from streamgauge.simulate.hosted.refine import Refinement, refine
from streamgauge.simulate.hosted.text import Text, read_text, split
from streamgauge.simulate.stored import floats
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm, NormGate
from streamgauge.theory.gates import norm_factor

LOSSES = 1000
"""Losses of single steps that a record keeps, evenly spaced."""


@dataclass(frozen=True)
class Reading:
    """The text side of a conversion.

    - ``text``: file for calibration; ``held_out``: file to measure the loss on, or None: the last quarter of ``text``
      then is, and is used for nothing else.  ``tokens``, ``context``: see :func:`~.text.read_text`, for each file.
    - ``refine``: steps of the fit after the conversion, 0 for none.
    - ``dtype``, ``device_map``: see :func:`~.models.load_model`.
    """

    text: Path
    held_out: Path | None = None
    tokens: int | None = None
    context: int | None = None
    refine: int = 0
    dtype: str = "float32"
    device_map: Any = None


def convert_hosted(
    source: Path,
    destination: Path,
    options: Options,
    reading: Reading,
    *,
    form: str = "graded",
    norm: NormGate | None = None,
    full: bool = False,
    force: bool = False,
    finish: Callable[[Written], None] | None = None,
    progress: Progress | None = None,
) -> Sidecar:
    """Convert as :func:`convert_folder` does, and say what it cost on held-out text.

    The record gains "loss" (the comparison before and, if there was one, after the fit) and "refined".  A fit that
    finds nothing better on its validation windows leaves the tensors as they were converted.  ``finish`` is called
    last, and not where tensors were fitted: they are no gauge of the stored mixers.

    **Raises** :class:`InputError`, one line, for anything that does not fit, also for a model that does not run here;
    nothing is written then.
    """
    _refuse(source, options, reading)
    work = _Work(source, reading, progress)

    def finished(written: Written) -> None:
        work.measure(written)
        if finish is not None and not work.fitted:
            finish(written)

    measured = work.calibrated if options.mixers in MEASURED else None
    made = convert_folder(
        source, destination, options, form=form, norm=norm, full=full, force=force, measured=measured, finish=finished
    )
    return replace(made, loss=work.loss, form=work.fitted_form(made.form))


def _refuse(source: Path, options: Options, reading: Reading) -> None:
    """What can be told from the files' headers alone."""
    if reading.refine < 0:
        raise InputError(f"--refine: found {reading.refine}, expected a number of steps")
    record = open_record(Shards(source), options)
    if not isinstance(record, Recognised) and record.format not in HOSTED:
        formats = " or ".join(HOSTED)
        raise InputError(f"--text: a {record.format} checkpoint does not run in transformers, expected {formats}")


class _Work:
    """The running model, loaded when it is first needed, and the texts."""

    def __init__(self, source: Path, reading: Reading, progress: Progress | None) -> None:
        self.source, self.reading, self.progress = source, reading, progress
        size = {"context": reading.context, "limit": reading.tokens}
        text = read_text(reading.text, source, **size)
        self.calibration: Text
        self.held_out: Text
        if reading.held_out is None:
            self.calibration, self.held_out = split(text)
        else:
            self.calibration, self.held_out = text, read_text(reading.held_out, source, **size)
            if self.calibration.sha256 == self.held_out.sha256:
                raise InputError(f"--held-out: {reading.held_out} holds the text of --text, expected another one")
            if _windows(self.held_out) <= _windows(self.calibration):
                raise InputError(
                    f"--held-out: every window read of {reading.held_out} is one of --text, expected another text"
                )
        self.loss: dict[str, Any] = {}
        self.fitted: dict[str, Floats] = {}
        self._model: Any = None

    def model(self) -> Any:
        """The source. **Raises** :class:`InputError` where it predicts no tokens or cannot be attached to."""
        if self._model is None:
            reading = self.reading
            found = load_model(self.source, dtype=reading.dtype, device_map=reading.device_map)
            if found.get_output_embeddings() is None:
                raise InputError(f"{self.source}: has no language-model head, expected one to measure the loss")
            if any(parameter.is_meta for module in connections(found) for parameter in module.parameters()):
                raise InputError(
                    "device_map: offloads hyper-connections, expected them in memory to measure the loss"
                )
            self._model = found
        return self._model

    def calibrated(self) -> Calibration:
        """The mixers along the calibration text."""
        return calibrate(self.model(), self.calibration, progress=self.progress)

    def measure(self, written: Written) -> None:
        """The loss of what was written, the fit, and the loss after it: into :attr:`loss` and the file's record."""
        model = self.model()
        precision = "float64" if self.reading.dtype == "float64" else "float32"
        twin = attached_twin(model, written.path, precision=precision)
        found = compare(model, twin, self.held_out, progress=self.progress)
        self.loss = {"text": self.held_out.document(), "dtype": self.reading.dtype, "converted": found.document()}
        extra: dict[str, Any] = {}
        if self.reading.refine:
            fit = refine(twin, model, self.calibration, steps=self.reading.refine, progress=self.progress)
            self.loss["fit"] = {"steps": self.reading.refine, "best_step": fit.best_step}
            if fit.best_step == 0:
                extra = {"notes": [f"a fit of {self.reading.refine} steps found nothing better: nothing is fitted"]}
            else:
                after: Comparison = compare(model, twin, self.held_out, progress=self.progress)
                self.loss["refined"] = after.document()
                self.fitted = {name: floats(tensor.cpu()) for name, tensor in fitted_tensors(twin).items()}
                extra = refined_record(fit, self.calibration, written, self.fitted)
        update(written, self.fitted, {**extra, "loss": self.loss})

    def fitted_form(self, form: NormalForm) -> NormalForm:
        """The form with the fitted gates, where gates were fitted; it no longer fits its chain."""
        return refitted(form, self.fitted) if "sites.0.gates" in self.fitted else form


def _windows(text: Text) -> set[bytes]:
    return {row.numpy().tobytes() for row in text.tokens}


def update(written: Written, tensors: dict[str, Floats], extra: dict[str, Any]) -> None:
    """Put tensors into the written file, and ``extra`` into its record; notes are added to the record's own."""
    _, metadata, _ = read_header(written.path)
    record = json.loads(metadata["record"])
    record |= {**_said(extra), "notes": [*record["notes"], *extra.get("notes", ())]}
    made = {written.prefix + name: array for name, array in tensors.items()}
    amend(written.path, made, {**metadata, "record": json.dumps(record, allow_nan=False)})


def _said(value: Any) -> Any:
    """``value`` without the numbers that JSON cannot say: a hopeless model has an infinite perplexity."""
    if isinstance(value, dict):
        return {name: _said(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_said(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refined_record(fit: Refinement, text: Text, written: Written, tensors: dict[str, Floats]) -> dict[str, Any]:
    """What a fit changes in a record.

    The gates are no longer those of the stored mixers: "residual" is computed anew, of the fitted ones.  The source's
    biases and scales are kept, so that a model can still be told from another one.
    """
    document = fit.document()
    every = -(-len(document["losses"]) // LOSSES)
    document |= {"losses": document["losses"][::every], "losses_every": every}
    gates_fitted = "sites.0.gates" in tensors
    return {
        **({"residual": _residual(refitted(written.form, tensors))} if gates_fitted else {}),
        REFINED: {
            **document,
            "text": text.document(),
            "residual_before": _residual(written.form),
            "source": _controllers(written.record, written.shards, len(tensors["sites.0.coef.scale"])),
        },
        "notes": [
            f"fitted to the source's predictions in {document['steps']} steps: the gates are no longer those of the "
            "stored mixers"
        ],
    }


def refitted(form: NormalForm, tensors: dict[str, Floats]) -> NormalForm:
    """The form with the gates among the tensors in place of its own; its residuals are then what the fit moved."""
    gates = [tensors[f"sites.{l}.gates"] for l in range(len(form))]
    if form.norm is not None:
        gates = [np.asarray(norm_factor(g, form.norm.gate) * g) for g in gates]
    return replace(form, gates=tuple(gates))


def _residual(form: NormalForm) -> float:
    return float(form.residuals().max(initial=0.0))


def _controllers(record: ModelRecord, shards: Shards, blocks: int) -> list[dict[str, list[float]]]:
    """Biases and scales of every site as they stand in the source, of read, write and (3 blocks) mixer."""
    out = []
    for mixer in record.mixers:
        weights = load(mixer, shards, record.n, record.d, bases_only=True)
        parts = (weights.read, weights.write, weights.mix)[:blocks]
        base = np.concatenate([part.base for part in parts])
        out.append({"base": base.tolist(), "scale": [float(part.scale) for part in parts]})
    return out
