"""Conversion to a *sidecar*: one file with the converted hyper-connection tensors, beside an untouched source.

With ``A_l P_l = P_{l+1} D_l`` and ``X_l = P_l Y_l`` (A_l: :mod:`~streamgauge.simulate.formats.chosen`):

===========================  ===============================================================================
sites.{l}.coef.weight        ``[W_read; W_write] (P_l (x) I_d)``, (2n, n d), stream-major columns, gamma folded in
sites.{l}.coef.scale, .base  as in the source, float64: (2,), (2n,); token-gates: weight, scale and base go on with
                             the mixer's own rows (n^2), (1,), (n^2,)
sites.{l}.gauge.read         P_l: the read is p P_l
sites.{l}.gauge.write        P_{l+1}^{-1}: the write is P_{l+1}^{-1} r
sites.{l}.gauge.metric       T_l, upper triangular, T^T T = P^T P: ||X||_F = ||T Y||_F in the norm
sites.{l}.gates              diagonal of D_l (without the norm gate's factor; under token-gates for the record alone)
sites.{l}.mixer.matrix       A_l, for the record
entry, entry.gauge.write     ``P_0^{-1} 1`` and P_0^{-1}
head.gauge.read              P_L, for everything that reads the streams themselves
head.weight, .scale, .base,  a gated head: ``W (P_L (x) I_d)`` and T_L; or head.linear = c P_L
head.gauge.metric
===========================  ===============================================================================

all float64.  Static coefficients have no weight and no metric.  The metadata hold the source (format, fingerprint of
its hyper-connection tensors), the ledger, versions, maps, norms and figures.  Tensors of one mixer are in memory at a
time; each is read once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.simulate import checkpoint
from streamgauge.simulate.convert import FORMS, refuse_amplified, refuse_singular
from streamgauge.simulate.formats import full as full_checkpoint
from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.formats.chosen import MEASURED, chosen_mixers, gate_recipe, refuse_choice
from streamgauge.simulate.formats.controllers import Bounds, Written
from streamgauge.simulate.formats.detect import Recognised, read_record
from streamgauge.simulate.formats.evaluate import load, static_mixer
from streamgauge.simulate.formats.generic import mapped_record, read_map
from streamgauge.simulate.formats.ledger import Ledger, ledger
from streamgauge.simulate.formats.probe import PRESERVED, orientation
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar_tensors import Plan, document, layout, tensors
from streamgauge.simulate.formats.staging import staged
from streamgauge.simulate.formats.static import StaticShare, static_share
from streamgauge.simulate.formats.writer import TensorWriter
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm, NormGate
from streamgauge.theory.norm import norm_form
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.rounding import floating_form
from streamgauge.theory.verdict import Verdict

SIDECAR = checkpoint.SIDECAR
FORMAT, FORMAT_VERSION = "streamgauge-sidecar", 1
RESERVED = 1 << 18
"""Bytes kept for metadata that do not depend on the number of sites and tensors."""


@dataclass(frozen=True)
class Options:
    """How to read a folder: a format's name, config fields by hand, a map file; and how to take its mixers.

    ``mixers``: one of :data:`~streamgauge.simulate.formats.chosen.MIXERS`; all but "exact" drop part of a mixer that
    depends on the state, and the converted network is another function.
    """

    mixers: str = "exact"
    name: str | None = None
    given: Mapping[str, str] | None = None
    map: Path | None = None


@dataclass(frozen=True)
class Sidecar:
    """What a conversion made.

    - ``mixers``: the choice; ``measured``: its calibration.
    - ``dropped``: by site, the RMS share of A_l(x) that the gates leave out on that text, in the converted streams
      and in the source's.
    - ``loss``: how far the converted network is from its source on held-out text, where that was measured
      (:mod:`streamgauge.simulate.hosted.convert`).
    """

    path: Path
    record: ModelRecord
    form: NormalForm
    shares: tuple[StaticShare, ...]
    probe: Verdict
    ledger: Ledger
    bytes_read: int
    bytes_written: int
    mixers: str = "exact"
    measured: Calibration | None = None
    dropped: tuple[tuple[float, float], ...] | None = None
    loss: Mapping[str, Any] | None = None

    @property
    def refined(self) -> bool:
        """Whether its tensors were fitted after the conversion."""
        return self.loss is not None and "refined" in self.loss


def open_record(shards: Shards, options: Options) -> ModelRecord | Recognised:
    """The record of an opened folder, by detection, by name or by map."""
    if options.map is None:
        return read_record(shards, name=options.name, given=options.given)
    if options.name is not None or options.given:
        raise InputError("--map: describes the format in full, expected neither --format nor --set with it")
    return mapped_record(read_map(options.map), shards, str(options.map))


def convert_folder(
    source: Path,
    destination: Path,
    options: Options,
    *,
    form: str = "graded",
    norm: NormGate | None = None,
    full: bool = False,
    force: bool = False,
    measured: Calibration | Callable[[], Calibration] | None = None,
    finish: Callable[[Written], None] | None = None,
) -> Sidecar:
    """Convert the folder at ``source`` to a sidecar in the new folder ``destination``.

    ``full``: a complete checkpoint instead, with the converted tensors under "streamgauge." names
    (:mod:`~streamgauge.simulate.formats.full`).  ``measured``: the mixers along a text, for choices that need them,
    or what measures them, called when everything else is known to fit.  ``finish`` is called before the folder
    appears and may add to it.

    **Raises** :class:`InputError`, one line, for anything that does not fit; nothing is written then, and the source
    is only ever read.
    """
    if form not in FORMS:
        raise InputError(f"form: found {form!r}, expected one of {', '.join(FORMS)}")
    refuse_choice(options.mixers, measured is not None, norm)
    checkpoint.refuse_existing(destination, force)
    checkpoint.refuse_within(destination, source)
    shards = Shards(source)
    record = open_record(shards, options)
    if isinstance(record, Recognised):
        raise InputError(f"{source}: {record.title}: {record.reason}")
    counted = ledger(record, shards)
    if options.mixers == "exact":
        _refuse_dynamic(record, shards)
    biases = static_mixers(record, shards)
    probe = check_orientation(record, biases, source)
    recipe = gate_recipe(record) if options.mixers == "token-gates" else None
    seen = measured() if callable(measured) else measured
    mixers = chosen_mixers(options.mixers, record, shards, biases, seen)
    if options.mixers in MEASURED:
        check_orientation(record, mixers, source)
    found = _form(record, mixers, "identity" if options.mixers == "identity" else form, norm)
    plan = Plan(record, shards, found, counted, options.mixers, seen, recipe)
    name, prefix = (full_checkpoint.CONVERTED, full_checkpoint.PREFIX) if full else (SIDECAR, "")
    with staged(destination) as folder:
        bounds: Bounds = {}
        shares = _write(folder / name, plan, prefix, bounds)
        if full:
            full_checkpoint.complete(shards, folder, (*counted.consumed, *counted.dropped))
        if finish is not None:
            finish(Written(folder / name, prefix, record, shards, bounds, found))
    path = destination / name
    return Sidecar(
        path,
        record,
        found,
        shares,
        probe,
        counted,
        shards.bytes_read,
        path.stat().st_size,
        options.mixers,
        seen,
        plan.dropped(),
    )


def static_mixers(record: ModelRecord, shards: Shards) -> list[Floats]:
    """A_0 .. A_{L-1} at their biases; reads no weights."""
    out = []
    for mixer in record.mixers:
        weights = load(mixer, shards, record.n, record.d, bases_only=True)
        out.append(static_mixer(mixer, weights, record.n))
    return out


def check_orientation(record: ModelRecord, mixers: list[Floats], source: Path) -> Verdict:
    """The copied-streams probe. **Raises** :class:`InputError` where it contradicts the format."""
    mixing = record.mixers[0].mixing
    eps = 0.0 if mixing.recipe is None or mixing.recipe.eps_mode != "add" else mixing.recipe.eps
    verdict = orientation(mixers, mixing.tight, PRESERVED + 2 * eps)
    if not verdict:
        raise InputError(f"{source}: orientation: {verdict.reason} (read as {record.format})")
    return verdict


def _refuse_dynamic(record: ModelRecord, shards: Shards) -> None:
    dynamic = []
    for mixer in record.mixers:
        if load(mixer, shards, record.n, record.d, bases_only=True).mix.scale == 0:
            continue  # static whatever the weights, which are read once, later
        share = static_share(mixer, load(mixer, shards, record.n, record.d), record.n, record.d)
        if not share.static:
            dynamic.append((share.share, mixer, share))
    if dynamic:
        worst, mixer, share = max(dynamic, key=lambda item: item[0])
        raise InputError(
            f"{shards.folder}: {len(dynamic)} of {len(record.mixers)} mixers depend on the state, {mixer.name} most: "
            f"its logits move by {share.logit_rms:.3g} (RMS) and A by {worst:.1%}; expected static ones, or --mixers "
            "bias to drop the dynamic part, or mean with --text FILE where transformers runs the model"
        )


def _form(record: ModelRecord, mixers: list[Floats], form: str, norm: NormGate | None) -> NormalForm:
    constant = {"sum": np.ones(record.n), "mean": np.full(record.n, 1.0 / record.n)}.get(record.head.kind)
    found = floating_form(normal_form(Chain(mixers, entry=np.ones(record.n), readout=constant), form))
    refuse_amplified(found)
    refuse_singular(found)
    return found if norm is None else norm_form(found, norm)


def _write(path: Path, plan: Plan, prefix: str, bounds: Bounds) -> tuple[StaticShare, ...]:
    shares: list[StaticShare] = []
    counted = plan.ledger
    names = sum(len(name) + 8 for name in (*counted.consumed, *counted.dropped))
    reserve = RESERVED + 2 * names + 2048 * len(plan.record.mixers) + sum(map(len, counted.dropped.values()))
    shapes = {prefix + name: shape for name, shape in layout(plan).items()}
    with TensorWriter(path, shapes, reserve) as out:
        for name, array in tensors(plan, shares, bounds):
            out.put(prefix + name, array)
        text = json.dumps(document(plan, shares), allow_nan=False)
        out.finish({"format": FORMAT, "format_version": str(FORMAT_VERSION), "record": text})
    return tuple(shares)
