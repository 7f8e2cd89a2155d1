"""Conversion to a *sidecar*: one file with the converted hyper-connection tensors, beside an untouched source.

With ``A_l P_l = P_{l+1} D_l`` and ``X_l = P_l Y_l`` (A_l the static part of the mixer):

===========================  ===============================================================================
sites.{l}.coef.weight        ``[W_read; W_write] (P_l (x) I_d)``, (2n, n d), stream-major columns, gamma folded in
sites.{l}.coef.scale, .base  as in the source, float64: (2,), (2n,)
sites.{l}.gauge.read         P_l: the read is p P_l
sites.{l}.gauge.write        P_{l+1}^{-1}: the write is P_{l+1}^{-1} r
sites.{l}.gauge.metric       T_l, upper triangular, T^T T = P^T P: ||X||_F = ||T Y||_F in the norm
sites.{l}.gates              diagonal of D_l (without the norm gate's factor)
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.simulate import checkpoint
from streamgauge.simulate.convert import FORMS, metric, refuse_amplified, refuse_singular
from streamgauge.simulate.formats import full as full_checkpoint
from streamgauge.simulate.formats.controllers import Written, gauged
from streamgauge.simulate.formats.detect import Recognised, read_record
from streamgauge.simulate.formats.evaluate import Weights, load, load_head, static_mixer
from streamgauge.simulate.formats.generic import mapped_record, read_map
from streamgauge.simulate.formats.ledger import Ledger, ledger
from streamgauge.simulate.formats.probe import PRESERVED, orientation
from streamgauge.simulate.formats.record import Mixer, ModelRecord
from streamgauge.simulate.formats.shards import Shards
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
MIXERS = ("exact", "bias")
RESERVED = 1 << 18
"""Bytes kept for metadata that do not depend on the number of sites and tensors."""


@dataclass(frozen=True)
class Options:
    """How to read a folder: a format's name, config fields by hand, a map file; and how to take its mixers.

    ``mixers``: "exact" refuses mixers that depend on the state; "bias" takes them at the bias (their dynamic part is
    dropped, and the converted network is another function).
    """

    mixers: str = "exact"
    name: str | None = None
    given: Mapping[str, str] | None = None
    map: Path | None = None


@dataclass(frozen=True)
class Sidecar:
    """What a conversion made."""

    path: Path
    record: ModelRecord
    form: NormalForm
    shares: tuple[StaticShare, ...]
    probe: Verdict
    ledger: Ledger
    bytes_read: int
    bytes_written: int


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
    finish: Callable[[Written], None] | None = None,
) -> Sidecar:
    """Convert the folder at ``source`` to a sidecar in the new folder ``destination``.

    ``full``: a complete checkpoint instead, with the converted tensors under "streamgauge." names
    (:mod:`~streamgauge.simulate.formats.full`).  ``finish`` is called before the folder appears and may add to it.

    **Raises** :class:`InputError`, one line, for anything that does not fit; nothing is written then, and the source
    is only ever read.
    """
    if form not in FORMS:
        raise InputError(f"form: found {form!r}, expected one of {', '.join(FORMS)}")
    if options.mixers not in MIXERS:
        raise InputError(f"--mixers: found {options.mixers!r}, expected one of {', '.join(MIXERS)}")
    checkpoint.refuse_existing(destination, force)
    checkpoint.refuse_within(destination, source)
    shards = Shards(source)
    record = open_record(shards, options)
    if isinstance(record, Recognised):
        raise InputError(f"{source}: {record.title}: {record.reason}")
    counted = ledger(record, shards)
    if options.mixers == "exact":
        _refuse_dynamic(record, shards)
    mixers = static_mixers(record, shards)
    probe = check_orientation(record, mixers, source)
    found = _form(record, mixers, form, norm)
    name, prefix = (full_checkpoint.CONVERTED, full_checkpoint.PREFIX) if full else (SIDECAR, "")
    with staged(destination) as folder:
        bounds: dict[str, float] = {}
        shares = _write(folder / name, record, shards, found, counted, options, prefix, bounds)
        if full:
            full_checkpoint.complete(shards, folder, (*counted.consumed, *counted.dropped))
        if finish is not None:
            finish(Written(folder / name, prefix, record, shards, bounds))
    path = destination / name
    return Sidecar(path, record, found, shares, probe, counted, shards.bytes_read, path.stat().st_size)


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
            "bias to drop the dynamic part"
        )


def _form(record: ModelRecord, mixers: list[Floats], form: str, norm: NormGate | None) -> NormalForm:
    constant = {"sum": np.ones(record.n), "mean": np.full(record.n, 1.0 / record.n)}.get(record.head.kind)
    found = floating_form(normal_form(Chain(mixers, entry=np.ones(record.n), readout=constant), form))
    refuse_amplified(found)
    refuse_singular(found)
    return found if norm is None else norm_form(found, norm)


def dynamic_controller(mixer: Mixer) -> bool:
    """Whether the sidecar carries weights for this site's reads and writes."""
    return mixer.read.weight is not None and mixer.norm.scope == "flat"


def _layout(record: ModelRecord, form: NormalForm) -> dict[str, tuple[int, ...]]:
    n, width = record.n, record.n * record.d
    out: dict[str, tuple[int, ...]] = {"entry": (n,), "entry.gauge.write": (n, n)}
    for l, mixer in enumerate(record.mixers):
        site = f"sites.{l}"
        if dynamic_controller(mixer):
            out |= {f"{site}.coef.weight": (2 * n, width), f"{site}.coef.scale": (2,), f"{site}.gauge.metric": (n, n)}
        out |= {f"{site}.coef.base": (2 * n,), f"{site}.gates": (n,)}
        out |= {f"{site}.{name}": (n, n) for name in ("gauge.read", "gauge.write", "mixer.matrix")}
    out["head.gauge.read"] = (n, n)
    if record.head.affine is not None:
        out |= {"head.weight": (n, width), "head.scale": (1,), "head.base": (n,), "head.gauge.metric": (n, n)}
    if form.readout is not None:
        out["head.linear"] = (n,)
    return out


def _write(
    path: Path,
    record: ModelRecord,
    shards: Shards,
    form: NormalForm,
    counted: Ledger,
    options: Options,
    prefix: str,
    bounds: dict[str, float],
) -> tuple[StaticShare, ...]:
    shares: list[StaticShare] = []
    names = sum(len(name) + 8 for name in (*counted.consumed, *counted.dropped))
    reserve = RESERVED + 2 * names + 2048 * len(record.mixers) + sum(map(len, counted.dropped.values()))
    layout = {prefix + name: shape for name, shape in _layout(record, form).items()}
    with TensorWriter(path, layout, reserve) as out:
        for name, array in _tensors(record, shards, form, shares, bounds):
            out.put(prefix + name, array)
        document = _document(record, shards, form, counted, options, shares)
        text = json.dumps(document, allow_nan=False)
        out.finish({"format": FORMAT, "format_version": str(FORMAT_VERSION), "record": text})
    return tuple(shares)


def _tensors(
    record: ModelRecord, shards: Shards, form: NormalForm, shares: list[StaticShare], bounds: dict[str, float]
) -> Iterator[tuple[str, Floats]]:
    """Name and value in the layout's order; ``shares`` grows by one a site, ``bounds`` by one a controller."""
    gates = form.norm.base_gates if form.norm is not None else form.gates
    yield "entry", form.gauge_inverse[0] @ np.ones(record.n)
    yield "entry.gauge.write", form.gauge_inverse[0]
    for l, mixer in enumerate(record.mixers):
        weights = load(mixer, shards, record.n, record.d)
        share = static_share(mixer, weights, record.n, record.d)
        if mixer.norm.scope == "stream" and not share.reads_static:
            raise InputError(_per_stream(mixer, weights, shards))
        shares.append(share)
        site, p = f"sites.{l}", form.gauge[l]
        if dynamic_controller(mixer):
            name = f"{site}.coef.weight"
            yield name, gauged(name, _stacked(weights), p, bounds)
            yield f"{site}.coef.scale", np.array([weights.read.scale, weights.write.scale])
            yield f"{site}.gauge.metric", metric(p)
        yield f"{site}.coef.base", np.concatenate([weights.read.base, weights.write.base])
        yield f"{site}.gates", np.asarray(gates[l])
        yield f"{site}.gauge.read", p
        yield f"{site}.gauge.write", form.gauge_inverse[l + 1]
        yield f"{site}.mixer.matrix", np.asarray(form.chain.mixers[l])
    last = form.gauge[-1]
    yield "head.gauge.read", last
    if record.head.affine is not None and record.head.norm is not None:
        head = load_head(record.head.affine, record.head.norm, shards, record.n, record.d)
        if head.weight is None:
            head_weight = np.zeros((record.n, record.n * record.d))
        else:
            head_weight = gauged("head.weight", head.weight, last, bounds)
        yield "head.weight", head_weight
        yield "head.scale", np.array([head.scale])
        yield "head.base", head.base
        yield "head.gauge.metric", metric(last)
    if form.readout is not None:
        yield "head.linear", form.readout[0]


def _stacked(weights: Weights) -> Floats:
    blocks = [block.weight for block in (weights.read, weights.write) if block.weight is not None]
    return np.concatenate(blocks)


def _per_stream(mixer: Mixer, weights: Weights, shards: Shards) -> str:
    read, write = (
        0.0 if block.static or block.weight is None else abs(block.scale) * float(np.linalg.norm(block.weight))
        for block in (weights.read, weights.write)
    )
    return (
        f"{shards.folder}: {mixer.name} reads and writes by coefficients that normalise each stream by itself "
        f"(dynamic weights of norm {read:.3g} and {write:.3g}); only permutations and positive scales of the streams "
        "commute with that norm, expected static reads and writes"
    )


def _document(
    record: ModelRecord,
    shards: Shards,
    form: NormalForm,
    counted: Ledger,
    options: Options,
    shares: list[StaticShare],
) -> dict[str, Any]:
    from importlib.metadata import version

    report = form.conditioning
    gate = None if form.norm is None else {"eps": float(form.norm.gate.eps), "cap": form.norm.gate.cap}
    sites = [
        {"name": m.name, "branch": m.branch, **asdict(s), "cond": float(c)}
        for m, s, c in zip(record.mixers, shares, report.condition[1:])
    ]
    first, head = record.mixers[0], record.head
    return {
        "versions": {"streamgauge": version("streamgauge"), "numpy": np.__version__},
        "source": {
            "format": record.format,
            "spelling": record.spelling,
            "settings": dict(record.settings),
            "tensors_sha256": shards.fingerprint(),
        },
        "model": {
            "streams": record.n,
            "width": record.d,
            "lagged": record.lagged,
            "norm": {"eps": first.norm.eps, "placement": first.norm.placement},
            "read": asdict(first.read_map),
            "write": asdict(first.write_map),
            "head": {"kind": head.kind, "note": head.note, "map": None if head.map is None else asdict(head.map)},
            "head_norm_eps": None if head.norm is None else head.norm.eps,
            "readers": [asdict(reader) for reader in record.readers],
        },
        "mixers": options.mixers,
        "form": form.form,
        "norm_gate": gate,
        "bars": [[bar.birth, bar.death, bar.slot] for bar in form.bars],
        "ranks": [label.rank for label in form.ranks],
        "residual": float(form.residuals().max(initial=0.0)),
        "sites": sites,
        "ledger": counted.document(),
        "notes": [*record.notes, *form.notes],
    }
