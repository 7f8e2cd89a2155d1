"""What the streams of another program's checkpoint do: format, conventions found, and every site's numbers.

Works from the hyper-connection tensors alone, one mixer at a time; mixers are taken at their biases, and how far they
move with the state stands beside (:mod:`~streamgauge.simulate.formats.static`).  Marginal errors, singular values,
running products, gates and conditions mean what they do for the project's own checkpoints
(:mod:`streamgauge.simulate.inspection`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamgauge.simulate.formats.detect import Recognised
from streamgauge.simulate.formats.evaluate import Weights, load, mixing_matrix, static_mixer
from streamgauge.simulate.formats.ledger import ledger
from streamgauge.simulate.formats.record import Mixer, ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, check_orientation, open_record
from streamgauge.simulate.formats.static import StaticShare, static_share
from streamgauge.simulate.inspection import LOG10, NO_GRADIENT, effective_rank
from streamgauge.theory.chain import Chain
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import Bar, NormalForm
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.sinkhorn import eps_drift, marginal_errors
from streamgauge.theory.spectrum import running_log_singular_values

STEP = 1e-4
"""Step of the central difference behind ``saturation``, in logits."""


@dataclass(frozen=True)
class FormatSite:
    """One site at its bias.  Logarithms are to base 10; ``saturation`` is None where A is no function of logits."""

    site: int
    name: str
    branch: str
    share: StaticShare
    singular_values: tuple[float, ...]
    row_error: float
    column_error: float
    saturation: float | None
    log10_running_sigma2: float
    running_effective_rank: float
    log10_identity_cond: float
    cond: float
    gates: tuple[float, ...]


@dataclass(frozen=True)
class FormatInspection:
    """A whole checkpoint of another program.

    - ``conventions``: what was found and used (orientation as measured, head, norm, settings), by name.
    - ``bars``, ``cond``, ``log10_sigma``: as for the project's own checkpoints; ``tolerance``: the largest singular
      value that counts as zero, ``gap``: the smallest kept and the largest dropped one over all sites (nan: none).
    - ``bytes_total``, ``bytes_mixers``, ``bytes_read``: of all tensors, of those consumed, and requested (headers
      included).
    """

    format: str
    record: ModelRecord
    conventions: Mapping[str, str]
    sites: tuple[FormatSite, ...]
    bars: tuple[Bar, ...]
    cond: tuple[float, ...]
    log10_sigma: Floats
    tolerance: float
    gap: tuple[float, float]
    tensors: int
    bytes_total: int
    bytes_mixers: int
    bytes_read: int
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def inspect_folder(source: Path, options: Options | None = None) -> FormatInspection | Recognised:
    """Inspect the folder at ``source``; every hyper-connection tensor of a mixer is read once.

    **Raises** :class:`InputError`, one line, for a folder that does not fit its format.
    """
    options = options or Options()
    shards = Shards(source)
    record = open_record(shards, options)
    if isinstance(record, Recognised):
        return record
    ledger(record, shards)
    mixers, shares, saturations = [], [], []
    for mixer in record.mixers:
        weights = load(mixer, shards, record.n, record.d)
        mixers.append(static_mixer(mixer, weights, record.n))
        shares.append(static_share(mixer, weights, record.n, record.d))
        saturations.append(saturation(mixer, weights, record.n))
    probe = check_orientation(record, mixers, source)
    form = normal_form(Chain(list(mixers)), "graded")
    sigma = running_log_singular_values(np.asarray(mixers)) / LOG10
    sites = tuple(
        _site(mixer, mixers[l], shares[l], saturations[l], form, sigma[l + 1])
        for l, mixer in enumerate(record.mixers)
    )
    labels = form.ranks
    return FormatInspection(
        record.format,
        record,
        _conventions(record, probe.reason),
        sites,
        form.bars,
        form.conditioning.condition,
        sigma,
        max((label.tolerance for label in labels), default=0.0),
        _gap([label.smallest_kept for label in labels], [label.largest_dropped for label in labels]),
        len(shards.entries),
        sum(entry.size for entry in shards.entries.values()),
        shards.size(record.tensors()),
        shards.bytes_read,
        tuple(_warnings(record, sites)),
        (*record.notes, *form.conditioning.notes),
    )


def saturation(mixer: Mixer, weights: Weights, n: int) -> float | None:
    """Share of the mixing logits with ``max_ij |dA_ij / dlogit| < 1e-6``, by central differences."""
    if mixer.mixing.kind == "matrix":
        return None
    base, steps = weights.mix.base, STEP * np.eye(weights.mix.base.size)
    up, down = (mixing_matrix(mixer.mixing, base + sign * steps, n, weights.blend) for sign in (1, -1))
    effect = np.abs(up - down).max(axis=(-1, -2)) / (2 * STEP)
    return float(np.mean(effect < NO_GRADIENT))


def _site(
    mixer: Mixer, a: Floats, share: StaticShare, saturated: float | None, form: NormalForm, sigma: Floats
) -> FormatSite:
    rows, columns = marginal_errors(a)
    return FormatSite(
        mixer.site,
        mixer.name,
        mixer.branch,
        share,
        tuple(float(s) for s in np.linalg.svd(a, compute_uv=False)),
        float(rows),
        float(columns),
        saturated,
        float(sigma[1]) if len(sigma) > 1 else float("-inf"),
        effective_rank(sigma),
        float(sigma[0] - sigma[-1]) if np.isfinite(sigma[-1]) else float("inf"),
        form.conditioning.condition[mixer.site + 1],
        tuple(float(g) for g in form.gates[mixer.site]),
    )


def _gap(kept: list[float], dropped: list[float]) -> tuple[float, float]:
    finite = [np.array([x for x in side if np.isfinite(x)]) for side in (kept, dropped)]
    return (
        float(finite[0].min()) if finite[0].size else float("nan"),
        float(finite[1].max()) if finite[1].size else float("nan"),
    )


def _conventions(record: ModelRecord, measured: str) -> dict[str, str]:
    first = record.mixers[0]
    norm, recipe, head = first.norm, first.mixing.recipe, record.head
    out = {
        "spelling": record.spelling,
        "mixing": first.mixing.kind if recipe is None else f"{first.mixing.kind}, recipe {recipe.name}",
        "orientation": measured,
        "norm": f"{norm.scope}, eps {norm.eps:g} {norm.placement} the root" + (", gamma" if norm.gamma else ""),
        "read": f"{first.read_map.mult:g} {first.read_map.kind} + {first.read_map.eps:g}",
        "write": f"{first.write_map.mult:g} {first.write_map.kind} + {first.write_map.eps:g}",
        "head": head.kind + (f" ({head.note})" if head.note else ""),
    }
    if record.lagged:
        out["read"] += ", of the site before"
    if record.readers:
        out["other readers of the streams"] = ", ".join(f"{r.name} at level {r.level}" for r in record.readers)
    out |= {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in record.settings.items()}
    return out


def _warnings(record: ModelRecord, sites: tuple[FormatSite, ...]) -> list[str]:
    out = []
    dynamic = [site for site in sites if not site.share.static]
    if dynamic:
        worst = max(dynamic, key=lambda site: site.share.share)
        out.append(
            f"{len(dynamic)} of {len(sites)} mixers depend on the state; in random directions {worst.name} moves "
            f"most, by {worst.share.share:.1%}; mixers are shown at their biases"
        )
    stuck = [site for site in sites if site.saturation is not None and site.saturation > 0.5]
    if stuck:
        out.append(
            f"{len(stuck)} of {len(sites)} sites have more than half of their mixing logits saturated (no entry of A "
            f"moves by {NO_GRADIENT:g} per unit of logit), {stuck[0].name} first"
        )
    recipe = record.mixers[0].mixing.recipe
    if recipe is not None:
        drift = eps_drift(recipe, len(sites))
        if not drift:
            out.append(drift.reason)
    return out
