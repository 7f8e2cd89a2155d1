"""A trained network with static mixers, rewritten in another stream basis: mHC to (norm-)gated iHC.

With ``A_l P_l = P_{l+1} D_l`` and ``X_l = P_l Y_l`` the network

    X_{l+1} = A_l X_l + r_l(X_l) F_l(p_l(X_l) X_l),    p(X), r(X) = sigmoid(scale * W vec(X) / rms(X) + base), ...

becomes, function for function,

    Y_{l+1} = D_l Y_l + P_{l+1}^{-1} r_l F_l(p_l P_l Y_l),

where the controller reads ``W' = W (P_l (x) I_d)`` and the RMS goes through a triangular ``T_l`` with
``T_l^T T_l = P_l^T P_l`` (the Gram form would lose cond(P)^2).  Branches, embedding and language-model head are
copied untouched.  Theorems 1 to 3 end to end; hypotheses: static mixers, the same P_l for all tokens, no per-stream
norm, no site used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.simulate import checkpoint
from streamgauge.simulate.checkpoint import Checkpoint
from streamgauge.simulate.config import ModelConfig, NormGateConfig
from streamgauge.simulate.network import is_coefficient
from streamgauge.simulate.stored import floats, put, static_mixers
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormalForm, NormGate
from streamgauge.theory.norm import norm_form
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.rounding import floating_form

FORMS = ("identity", "binary", "graded")
STATE_LIMIT = 100.0
"""Largest |log2| of a norm gate's scale in a converted network: float32 and bfloat16 end at 2^127."""
AMPLIFIED_LIMIT = 1e-9
"""Largest relative error in the state that singular values counted as zero may make: what equal logits mean here."""


@dataclass(frozen=True)
class Conversion:
    """What a conversion did: the form found, and the network in it."""

    form: NormalForm
    config: ModelConfig
    tensors: Mapping[str, Any]


def convert(
    source: Path,
    destination: Path,
    *,
    form: str = "graded",
    norm: NormGate | None = None,
    force: bool = False,
    finish: Callable[[Path], None] | None = None,
) -> Conversion:
    """Convert the checkpoint at ``source`` and write it to ``destination``.

    **Arguments**

    - ``form``: "identity" (Theorem 1), "binary" (Theorem 2) or "graded"; ``norm``: the norm gate of Theorem 3 on top.
    - ``force``: replace an existing destination.
    - ``finish``: called with the staged folder before it is renamed into place (used to add a certificate).

    **Raises** :class:`InputError`, one line, for anything that cannot be converted; nothing is written then, and the
    source is never touched.
    """
    checkpoint.refuse_existing(destination, force)
    checkpoint.refuse_within(destination, source)
    given = checkpoint.read(source)
    made = convert_tensors(given.config, given.tensors, form=form, norm=norm, place=str(source))
    metadata = {**given.metadata, "conversion": conversion_record(given, made)}
    checkpoint.save(destination, made.config, made.tensors, metadata, force=force, finish=finish)
    return made


def convert_tensors(
    config: ModelConfig, tensors: Mapping[str, Any], *, form: str, norm: NormGate | None, place: str
) -> Conversion:
    """The conversion in memory: config and tensors (torch) in, config and tensors out."""
    if form not in FORMS:
        raise InputError(f"form: found {form!r}, expected one of {', '.join(FORMS)}")
    _refuse_unconvertible(config, place)
    chain = network_chain(config, tensors)
    found = floating_form(normal_form(chain, form))
    refuse_amplified(found)
    refuse_singular(found)
    if norm is not None:
        found = norm_form(found, norm)
        _refuse_out_of_range(found)
    return Conversion(found, _converted_config(config, found), _converted_tensors(config, tensors, found))


def network_chain(config: ModelConfig, tensors: Mapping[str, Any]) -> Chain:
    """The chain of a checkpoint in float64: its mixers, its entry and, where it is a constant row, its readout."""
    n = config.streams
    entry = np.ones(n) if config.entry == "copy" else floats(tensors["entry"])
    return Chain(list(static_mixers(config, tensors)), entry=entry, readout=_constant_readout(config, tensors))


def conversion_record(given: Checkpoint, made: Conversion) -> dict[str, Any]:
    """The self-description stored in the converted config.json under "conversion"."""
    form = made.form
    record: dict[str, Any] = {
        "form": form.form,
        "source_sha256": dict(given.sha256),
        "source_model": given.config.to_json(),
        "source_dtypes": {
            name: str(t.dtype).removeprefix("torch.") for name, t in given.tensors.items() if is_coefficient(name)
        },
        "bars": [[bar.birth, bar.death, bar.slot] for bar in form.bars],
        "ranks": [label.rank for label in form.ranks],
        "cond": [float(c) for c in made.form.conditioning.condition],
        "residual": float(form.residuals().max(initial=0.0)),
        "notes": list(form.notes),
    }
    if form.norm is not None:
        record["log2_state_growth"] = -float(form.norm.log2_scales[-1])
    return record


def _refuse_unconvertible(config: ModelConfig, place: str) -> None:
    if config.gauge:
        raise InputError(f"{place}: already converted; give the original checkpoint, or --restore this one first")
    if config.residual not in ("mhc", "hc", "mean-gated"):
        raise InputError(
            f"{place}: residual is {config.residual!r}, expected 'mhc', 'hc' or 'mean-gated' "
            "(the others have no mixing matrix to remove)"
        )
    if config.loops != 1:
        raise InputError(
            f"{place}: the stack is applied {config.loops} times with the same weights; expected 1 "
            "(around a loop the product of the mixers is a holonomy that no change of basis removes)"
        )


def refuse_amplified(form: NormalForm) -> None:
    """A singular value d_l that counts as zero is an error d_l ||Phi(k, l+1)|| ||X_l|| in X_k: see that it is small.

    ``||X_k||`` is taken as ``max_j ||Phi(k, j)||``, j <= k: every site writes something of size 1.  Where no product
    of mixers grows (mHC) this is at most the tolerance; a free HC may undo at one site what another one shrank.
    """
    dropped = np.nan_to_num([label.largest_dropped for label in form.ranks])
    if not dropped.any():
        return
    products = np.eye(form.chain.dims[0])[None]  # Phi(k, j) for j = 0 .. k
    sizes = np.ones(len(form) + 1)
    for k, mixer in enumerate(form.chain.mixers, 1):
        with np.errstate(over="ignore", invalid="ignore"):
            products = np.concatenate([mixer @ products, np.eye(len(mixer))[None]])
            norms = np.linalg.norm(products, axis=(1, 2)) / np.sqrt(len(mixer))
            sizes[k] = norms.max()
            errors = np.where(dropped[:k] > 0, dropped[:k] * norms[1:] * sizes[:k] / sizes[k], 0.0)
        worst = int(np.argmax(errors))  # the first NaN, if any
        if not errors[worst] <= AMPLIFIED_LIMIT:
            raise InputError(
                f"mixer {worst}: singular values up to {dropped[worst]:.3g} count as zero and by level {k} they make "
                f"{errors[worst]:.2g} of the state; expected at most {AMPLIFIED_LIMIT:g} (the binary form drops none)"
            )


def refuse_singular(form: NormalForm) -> None:
    """Refuse a gauge that float64 cannot invert."""
    report = form.conditioning
    if not np.isfinite(report.worst):
        raise InputError(
            f"gauge {report.worst_level}: singular in float64, expected an invertible one "
            f"({form.form} form; the graded form is the best conditioned)"
        )


def _refuse_out_of_range(form: NormalForm) -> None:
    if form.norm is None:
        return
    worst = int(np.abs(form.norm.log2_scales).argmax())
    if abs(form.norm.log2_scales[worst]) > STATE_LIMIT:
        raise InputError(
            f"norm: at level {worst} the state would grow by 2^{-form.norm.log2_scales[worst]:.0f}, expected at most "
            f"2^{STATE_LIMIT:.0f} (float32 and bfloat16 end at 2^127); set a cap on the norm gate, e.g. --cap 1"
        )


def _converted_config(config: ModelConfig, form: NormalForm) -> ModelConfig:
    residual = "ihc" if form.form == "identity" else "gated"
    norm_gate = None
    if form.norm is not None:
        gate = form.norm.gate
        residual = "norm-gated"
        norm_gate = NormGateConfig(float(gate.eps), None if gate.cap is None else float(gate.cap))
    return replace(
        config,
        residual=residual,
        gauge=True,
        entry="free",
        readout="gate" if config.readout == "gate" else "linear",
        norm_gate=norm_gate,
    )


def _converted_tensors(config: ModelConfig, tensors: Mapping[str, Any], form: NormalForm) -> dict[str, Any]:
    """Tensors of the converted network: what the gauge changes in float64, everything else as it was."""
    out: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if ".mixer." not in name and not name.endswith(".gates") and name not in ("entry", "head.linear"):
            out[name] = tensor
    gates = form.norm.base_gates if form.norm is not None else form.gates
    for l in range(len(form)):
        site = f"sites.{l}"
        out[f"{site}.gauge.read"] = put(form.gauge[l])
        out[f"{site}.gauge.write"] = put(form.gauge_inverse[l + 1])
        if config.coefficients == "dynamic":
            out[f"{site}.gauge.metric"] = put(metric(form.gauge[l]))
            out[f"{site}.coef.weight"] = put(gauged_weight(floats(tensors[f"{site}.coef.weight"]), form.gauge[l]))
        if form.form != "identity" or form.norm is not None:
            out[f"{site}.gates"] = put(np.asarray(gates[l]))
    entry, readout = form.entry, form.readout
    if entry is not None:
        out["entry"] = put(entry[:, 0])
    if config.readout == "gate":
        out["head.gauge.read"] = put(form.gauge[-1])
        out["head.gauge.metric"] = put(metric(form.gauge[-1]))
        out["head.weight"] = put(gauged_weight(floats(tensors["head.weight"]), form.gauge[-1]))
    elif readout is not None:
        out["head.linear"] = put(readout[0])
    return out


def gauged_weight(weight: Floats, gauge: Floats) -> Floats:
    """``W (P (x) I_d)`` for W of shape (m, n d), columns stream-major, and P of shape (n, n)."""
    n = gauge.shape[0]
    blocks = weight.reshape(weight.shape[0], n, -1)
    return np.asarray(np.einsum("msd,st->mtd", blocks, gauge)).reshape(weight.shape)


def metric(gauge: Floats) -> Floats:
    """Upper triangular T with non-negative diagonal and ``T^T T = P^T P`` (QR of P; never the Gram matrix)."""
    triangle = np.asarray(np.linalg.qr(gauge, mode="r"))
    return triangle * np.where(np.diag(triangle) < 0, -1.0, 1.0)[:, None]


def _constant_readout(config: ModelConfig, tensors: Mapping[str, Any]) -> Floats | None:
    n = config.streams
    if config.readout == "sum":
        return np.ones(n)
    if config.readout == "mean":
        return np.full(n, 1.0 / n)
    return floats(tensors["head.linear"]) if config.readout == "linear" else None
