"""What the streams of a checkpoint do, site by site: the numbers behind ``streamgauge inspect``.

Per site l, with the mixer A_l and the running product ``M_l = A_l .. A_0``:

- singular values of A_l; of M_l the second one and the effective rank ``exp(-sum p_i ln p_i)``, p_i = sigma_i / sum;
- both marginal errors ``max |A 1 - 1|`` and ``max |1^T A - 1^T|`` (a Sinkhorn recipe makes one of them small, and
  which one differs between programs);
- forward gain ``||A||_inf`` (largest row sum of |A|) and backward gain ``||A||_1``, of A_l and of M_l;
- gates and cond(P_l) of the graded form, and cond of the identity gauge M_l, as a logarithm;
- saturation: the share of mixing logits whose largest effect ``|dA_ij / dlogit|`` is below 1e-6 (no gradient).

M_l is never multiplied out where small singular values matter: they come from QR accumulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from streamgauge.simulate import checkpoint
from streamgauge.simulate.checkpoint import Checkpoint
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.convert import network_chain
from streamgauge.simulate.network import mixer_from_logits
from streamgauge.simulate.stored import acting_gates, carries, stored_levels
from streamgauge.theory.chain import Chain
from streamgauge.theory.conditioning import conditioning
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import Bar
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.sinkhorn import eps_drift, marginal_errors, recipe_named
from streamgauge.theory.spectrum import running_log_singular_values

NO_GRADIENT = 1e-6
LOG10 = float(np.log(10.0))


@dataclass(frozen=True)
class SiteInspection:
    """One site.  ``saturation`` is None where the mixer is not made from logits; logarithms are to base 10."""

    site: int
    branch: str
    singular_values: tuple[float, ...]
    row_error: float
    column_error: float
    forward_gain: float
    backward_gain: float
    running_forward_gain: float
    running_backward_gain: float
    running_effective_rank: float
    log10_running_sigma2: float
    log10_identity_cond: float
    cond: float
    gates: tuple[float, ...]
    saturation: float | None


@dataclass(frozen=True)
class Inspection:
    """A whole checkpoint.

    ``cond``: cond(P_l) of levels 0..L, of the graded form or, in a converted checkpoint, of the stored gauge;
    ``log10_sigma``: singular values of ``A_{l-1} .. A_0``, shape (L + 1, n), -inf for zero;
    ``warnings`` and ``notes`` (facts about the form): one line each.
    """

    config: ModelConfig
    form: str
    sites: tuple[SiteInspection, ...]
    bars: tuple[Bar, ...]
    cond: tuple[float, ...]
    log10_sigma: Floats
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Gauge:
    form: str
    bars: tuple[Bar, ...]
    gates: tuple[tuple[float, ...], ...]
    cond: tuple[float, ...]
    notes: tuple[str, ...]


def inspect_checkpoint(path: Path) -> Inspection:
    """Inspect the checkpoint at ``path``, converted or not.  Cost: O(L n^3), and n^2 derivatives a site from logits.

    **Raises** :class:`InputError`, one line, for a checkpoint that cannot be read or has no sites.
    """
    stored = checkpoint.read(path)
    if not stored.config.sites:
        raise InputError(f"{path}: no sites, expected at least one")
    mixers = carries(stored.config, stored.tensors)
    gauge = _stored_gauge(stored, path) if stored.config.gauge else _graded_gauge(mixers)
    sigma = running_log_singular_values(mixers) / LOG10
    made, product = [], np.eye(stored.config.streams)
    for l, mixer in enumerate(mixers):
        product = mixer @ product
        made.append(_site(stored, l, mixer, product, sigma[l + 1], gauge))
    warnings = tuple(_warnings(stored.config, made))
    return Inspection(stored.config, gauge.form, tuple(made), gauge.bars, gauge.cond, sigma, warnings, gauge.notes)


def checkpoint_chain(path: Path) -> Chain:
    """The chain of the checkpoint at ``path``: its mixers, or what carries its streams, in float64."""
    stored = checkpoint.read(path)
    if stored.config.mixes and not stored.config.gauge:
        return network_chain(stored.config, stored.tensors)
    return Chain(list(carries(stored.config, stored.tensors)), dim=stored.config.streams)


def saturation(logits: Any, recipe: str) -> float:
    """Share of the logits (n, n) with ``max_ij |dA_ij / dlogit| < 1e-6``: they get no gradient."""
    effect = torch.func.jacrev(lambda z: mixer_from_logits(z, recipe))(logits.detach().double())
    return float((effect.abs().amax(dim=(0, 1)) < NO_GRADIENT).double().mean())


def effective_rank(log10_sigma: Floats) -> float:
    """``exp(-sum p_i ln p_i)`` with p_i = sigma_i / sum sigma, from logarithms; 0 for the zero map."""
    if not np.isfinite(log10_sigma).any():
        return 0.0
    weights = 10.0 ** (log10_sigma - log10_sigma.max())
    p = weights[weights > 0] / weights.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def _site(
    stored: Checkpoint, l: int, mixer: Floats, product: Floats, log10_sigma: Floats, gauge: _Gauge
) -> SiteInspection:
    config = stored.config
    rows, columns = marginal_errors(mixer)
    logits = stored.tensors.get(f"sites.{l}.mixer.logits")
    return SiteInspection(
        site=l,
        branch=config.sites[l],
        singular_values=tuple(float(s) for s in np.linalg.svd(mixer, compute_uv=False)),
        row_error=float(rows),
        column_error=float(columns),
        forward_gain=float(np.abs(mixer).sum(axis=1).max()),
        backward_gain=float(np.abs(mixer).sum(axis=0).max()),
        running_forward_gain=float(np.abs(product).sum(axis=1).max()),
        running_backward_gain=float(np.abs(product).sum(axis=0).max()),
        running_effective_rank=effective_rank(log10_sigma),
        log10_running_sigma2=float(log10_sigma[1]) if len(log10_sigma) > 1 else float("-inf"),
        log10_identity_cond=float(log10_sigma[0] - log10_sigma[-1]) if np.isfinite(log10_sigma[-1]) else float("inf"),
        cond=gauge.cond[l + 1],
        gates=gauge.gates[l],
        saturation=None if logits is None or config.recipe is None else saturation(logits, config.recipe),
    )


def _graded_gauge(mixers: Floats) -> _Gauge:
    form = normal_form(Chain(list(mixers)), "graded")
    gates = tuple(tuple(float(g) for g in row) for row in form.gates)
    report = conditioning(form)
    return _Gauge("graded form", form.bars, gates, report.condition, report.notes)


def _stored_gauge(stored: Checkpoint, path: Path) -> _Gauge:
    record = stored.metadata.get("conversion")
    if not isinstance(record, Mapping) or "form" not in record:
        raise InputError(f"{path}: config.json has no 'conversion' record, expected one in a converted checkpoint")
    try:
        bars = tuple(Bar(*(int(x) for x in bar)) for bar in record["bars"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path}: config.json conversion.bars: expected [birth, death, slot] triples") from None
    gates = tuple(tuple(row) for row in acting_gates(stored.config, stored.tensors).tolist())
    cond = tuple(float(np.linalg.cond(p)) for p in stored_levels(stored.config, stored.tensors))
    norm = " with norm gate" if stored.config.residual == "norm-gated" else ""
    return _Gauge(f"stored {record['form']} form{norm}", bars, gates, cond, ())


def _warnings(config: ModelConfig, sites: list[SiteInspection]) -> list[str]:
    out = []
    if config.loops > 1:
        out.append(f"the stack is applied {config.loops} times with the same weights; one pass is shown")
    saturated = [s for s in sites if s.saturation is not None and s.saturation > 0.5]
    if saturated:
        out.append(
            f"{len(saturated)} of {len(sites)} sites have more than half of their mixing logits saturated "
            f"(no entry of A moves by {NO_GRADIENT:g} per unit of logit), site {saturated[0].site} first"
        )
    if config.mixes and config.mixer == "logits" and config.recipe is not None:
        drift = eps_drift(recipe_named(config.recipe), len(sites))
        if not drift:
            out.append(drift.reason)
        loose = max(sites, key=lambda s: max(s.row_error, s.column_error))
        if max(loose.row_error, loose.column_error) > 1e-2:
            out.append(
                f"site {loose.site}: A is not doubly stochastic, rows off by {loose.row_error:.2g} and columns by "
                f"{loose.column_error:.2g} after the {config.recipe} recipe's iterations"
            )
    return out
