"""What a sidecar holds: names and shapes, the tensors one mixer at a time, and the record in its metadata.

The table of names stands in :mod:`~streamgauge.simulate.formats.sidecar`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamgauge.simulate.convert import metric
from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.formats.controllers import Bounds, gauged
from streamgauge.simulate.formats.evaluate import Block, Weights, load, load_head
from streamgauge.simulate.formats.ledger import Ledger
from streamgauge.simulate.formats.record import Mixer, ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.static import StaticShare, static_share
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm
from streamgauge.theory.sinkhorn import Recipe


@dataclass(frozen=True)
class Plan:
    """A conversion before its tensors are written.

    - ``mixers``: the choice ``--mixers``; ``form``: the normal form of its chain.
    - ``measured``: the calibration behind the choice; ``recipe``: Sinkhorn's, for gates by the token.
    """

    record: ModelRecord
    shards: Shards
    form: NormalForm
    ledger: Ledger
    mixers: str
    measured: Calibration | None = None
    recipe: Recipe | None = None

    def dropped(self) -> tuple[tuple[float, float], ...] | None:
        """By site, see :meth:`Calibration.dropped`; None where nothing was measured."""
        if self.measured is None:
            return None
        sites, by_token = range(len(self.form)), self.recipe is not None
        return tuple(self.measured.dropped(l, self.form, by_token=by_token) for l in sites)


def dynamic_controller(mixer: Mixer) -> bool:
    """Whether the sidecar carries weights for this site's reads and writes."""
    return mixer.read.weight is not None and mixer.norm.scope == "flat"


def layout(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Names and shapes in the order of :func:`tensors`."""
    record, form = plan.record, plan.form
    n, width = record.n, record.n * record.d
    rows, scales = (2 * n, 2) if plan.recipe is None else (2 * n + n * n, 3)
    out: dict[str, tuple[int, ...]] = {"entry": (n,), "entry.gauge.write": (n, n)}
    for l, mixer in enumerate(record.mixers):
        site = f"sites.{l}"
        if dynamic_controller(mixer):
            out |= {
                f"{site}.coef.weight": (rows, width),
                f"{site}.coef.scale": (scales,),
                f"{site}.gauge.metric": (n, n),
            }
        out |= {f"{site}.coef.base": (rows,), f"{site}.gates": (n,)}
        out |= {f"{site}.{name}": (n, n) for name in ("gauge.read", "gauge.write", "mixer.matrix")}
    out["head.gauge.read"] = (n, n)
    if record.head.affine is not None:
        out |= {"head.weight": (n, width), "head.scale": (1,), "head.base": (n,), "head.gauge.metric": (n, n)}
    if form.readout is not None:
        out["head.linear"] = (n,)
    return out


def tensors(plan: Plan, shares: list[StaticShare], bounds: Bounds) -> Iterator[tuple[str, Floats]]:
    """Name and value in the layout's order; ``shares`` grows by one a site, ``bounds`` by one a controller."""
    record, form = plan.record, plan.form
    gates = form.norm.base_gates if form.norm is not None else form.gates
    yield "entry", form.gauge_inverse[0] @ np.ones(record.n)
    yield "entry.gauge.write", form.gauge_inverse[0]
    for l, mixer in enumerate(record.mixers):
        weights = load(mixer, plan.shards, record.n, record.d)
        share = static_share(mixer, weights, record.n, record.d)
        if mixer.norm.scope == "stream" and not share.reads_static:
            raise InputError(_per_stream(mixer, weights, plan.shards))
        shares.append(share)
        blocks = (weights.read, weights.write, *(() if plan.recipe is None else (weights.mix,)))
        site, p = f"sites.{l}", form.gauge[l]
        if dynamic_controller(mixer):
            name = f"{site}.coef.weight"
            yield name, gauged(name, _stacked(blocks), p, bounds)
            yield f"{site}.coef.scale", np.array([block.scale for block in blocks])
            yield f"{site}.gauge.metric", metric(p)
        yield f"{site}.coef.base", np.concatenate([block.base for block in blocks])
        yield f"{site}.gates", np.asarray(gates[l])
        yield f"{site}.gauge.read", p
        yield f"{site}.gauge.write", form.gauge_inverse[l + 1]
        yield f"{site}.mixer.matrix", np.asarray(form.chain.mixers[l])
    yield from _head(plan, bounds)


def _head(plan: Plan, bounds: Bounds) -> Iterator[tuple[str, Floats]]:
    record, form = plan.record, plan.form
    last = form.gauge[-1]
    yield "head.gauge.read", last
    if record.head.affine is not None and record.head.norm is not None:
        head = load_head(record.head.affine, record.head.norm, plan.shards, record.n, record.d)
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


def _stacked(blocks: tuple[Block, ...]) -> Floats:
    return np.concatenate([block.weight for block in blocks if block.weight is not None])


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


def model_document(record: ModelRecord) -> dict[str, Any]:
    """What a source computes around its weights, for the metadata."""
    first, head = record.mixers[0], record.head
    return {
        "streams": record.n,
        "width": record.d,
        "lagged": record.lagged,
        "norm": {"eps": first.norm.eps, "placement": first.norm.placement},
        "read": asdict(first.read_map),
        "write": asdict(first.write_map),
        "squash": {"read": first.read.squash, "write": first.write.squash, "head": head.squash},
        "head": {"kind": head.kind, "note": head.note, "map": None if head.map is None else asdict(head.map)},
        "head_norm_eps": None if head.norm is None else head.norm.eps,
        "readers": [asdict(reader) for reader in record.readers],
    }


def document(plan: Plan, shares: list[StaticShare]) -> dict[str, Any]:
    """The record in the metadata, after the tensors are written."""
    from importlib.metadata import version

    record, form, shards = plan.record, plan.form, plan.shards
    gate = None if form.norm is None else {"eps": float(form.norm.gate.eps), "cap": form.norm.gate.cap}
    measured, left = plan.measured, plan.dropped()
    sites = [
        {"name": m.name, "branch": m.branch, **asdict(s), "cond": float(c)}
        for m, s, c in zip(record.mixers, shares, form.conditioning.condition[1:])
    ]
    for site, (here, in_source) in zip(sites, left or ()):
        site |= {"dropped": here, "dropped_in_source": in_source}
    extra: dict[str, Any] = {} if measured is None else {"calibration": measured.document()}
    if plan.recipe is not None:
        extra["recipe"] = asdict(plan.recipe)
    return {
        "versions": {"streamgauge": version("streamgauge"), "numpy": np.__version__},
        "source": {
            "format": record.format,
            "spelling": record.spelling,
            "settings": dict(record.settings),
            "tensors_sha256": shards.fingerprint(),
        },
        "model": model_document(record),
        "mixers": plan.mixers,
        **extra,
        "form": form.form,
        "norm_gate": gate,
        "bars": [[bar.birth, bar.death, bar.slot] for bar in form.bars],
        "ranks": [label.rank for label in form.ranks],
        "residual": float(form.residuals().max(initial=0.0)),
        "sites": sites,
        "ledger": plan.ledger.document(),
        "notes": [*record.notes, *form.notes],
    }
