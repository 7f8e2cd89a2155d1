"""Two networks on the same tokens: are they the same function, in every precision people run?

    e(net, dtype) = RMS over tokens and vocabulary of (logits of net in dtype - float64 logits of the source),
                    divided by the RMS of the latter.

In float64 the error must vanish up to rounding.  In lower precisions the source itself is only e(source, dtype) from
its float64 self, so the honest figure is the *round-off ratio* e(converted, dtype) / e(source, dtype): 1 means that
the conversion costs nothing.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from streamgauge.simulate.model import ByteLM
from streamgauge.simulate.stored import stored_levels
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

PRECISIONS = ("float64", "float32", "bfloat16")
LIMITS = {"float32": 1.5, "bfloat16": 2.0, "float16": 2.0}
"""Largest round-off ratio that counts as equal, for a well-conditioned (graded) conversion."""
FLOAT64_LIMIT = 1e-9
MINIMUM_TOKENS = 4096


@dataclass(frozen=True)
class PrecisionResult:
    """One precision: relative errors against the source's float64 logits, and what they do to predictions.

    ``ratio`` = error / source_error (nan in float64, where the source is its own reference); ``kl``: mean over tokens
    of KL(source float64 || converted) in nats; ``agreement``: share of tokens with the same most likely byte.
    """

    precision: str
    source_error: float
    error: float
    ratio: float
    kl: float
    agreement: float


@dataclass(frozen=True)
class CrossCheck:
    """``streams``: for every level l, ``||X_l - P_l Y_l||_F / ||X_l||_F`` in float64 over all tokens."""

    tokens: int
    results: tuple[PrecisionResult, ...]
    streams: tuple[float, ...]

    def verdict(self) -> Verdict:
        """Equal in float64 (logits and every level) and within the round-off limits below it."""
        worst = max(self.streams, default=0.0)
        level = self.streams.index(worst) if self.streams else 0
        for r in self.results:
            limit = LIMITS.get(r.precision, FLOAT64_LIMIT)
            found, name = (r.error, "relative error") if r.precision == "float64" else (r.ratio, "round-off ratio")
            if not found <= limit:
                reason = f"{r.precision}: {name} {found:.3g}, expected at most {limit:g}"
                return Verdict(False, reason, {"precision": r.precision, "found": found, "limit": limit})
        if not worst <= FLOAT64_LIMIT:
            reason = f"level {level}: X and P Y differ by {worst:.3g}, expected at most {FLOAT64_LIMIT:g}"
            return Verdict(False, reason, {"level": level, "found": worst})
        return Verdict(True, f"same function on {self.tokens} tokens", {"level": level, "streams": worst})


def crosscheck(
    source: ByteLM,
    converted: ByteLM,
    tokens: Tensor,
    *,
    precisions: Sequence[str] = PRECISIONS,
    progress: Callable[[], None] | None = None,
) -> CrossCheck:
    """Compare a network with its conversion on ``tokens`` (B, T).  Neither network is changed.

    Load ``converted`` in float64: its gauge is stored so, and rounding it to float32 first would count twice.

    ``progress`` is called once per network and precision.  Cost: two forward passes per precision.
    **Raises** :class:`InputError` where the two do not belong together (vocabulary, depth, streams), or where
    ``converted`` has no gauge or one below float64.
    """
    _refuse_strangers(source, converted)
    tick = progress or (lambda: None)
    exact_source = copy.deepcopy(source).to_precision("float64").eval()
    exact_converted = copy.deepcopy(converted).to_precision("float64").eval()
    with torch.no_grad():
        reference = exact_source(tokens)
        streams = _stream_errors(exact_source, exact_converted, tokens)
        results = []
        for precision in precisions:
            errors = []
            for network in (source, converted):
                logits = copy.deepcopy(network).to_precision(precision).eval()(tokens).double()
                errors.append(relative_rms(logits, reference))
                tick()
            results.append(_result(precision, errors[0], errors[1], logits, reference))
    return CrossCheck(tokens.numel(), tuple(results), streams)


def relative_rms(found: Tensor, reference: Tensor) -> float:
    """RMS of the difference over RMS of the reference, in float64; inf where ``found`` is not finite."""
    gap = float((found.double() - reference).square().mean().sqrt())
    if gap == 0:  # also where both are zero
        return 0.0
    value = gap / max(float(reference.square().mean().sqrt()), 5e-324)
    return value if math.isfinite(value) else math.inf


def _stream_errors(source: ByteLM, converted: ByteLM, tokens: Tensor) -> tuple[float, ...]:
    out = []
    levels = stored_levels(converted.config, converted.state_dict())
    for x, y, p in zip(source.streams(tokens), converted.streams(tokens), levels, strict=True):
        out.append(float((x - torch.from_numpy(p) @ y).norm() / x.norm().clamp(min=torch.finfo(x.dtype).tiny)))
    return tuple(out)


def _result(precision: str, own: float, error: float, logits: Tensor, reference: Tensor) -> PrecisionResult:
    log_p, log_q = F.log_softmax(reference, -1), F.log_softmax(logits, -1)
    kl = max(0.0, float((log_p.exp() * (log_p - log_q)).sum(-1).mean()))  # rounding may leave it below zero
    agreement = float((logits.argmax(-1) == reference.argmax(-1)).double().mean())
    ratio = error / own if own > 0 else math.nan
    return PrecisionResult(precision, own, error, ratio, kl, agreement)


def _refuse_strangers(source: ByteLM, converted: ByteLM) -> None:
    if not converted.config.gauge:
        raise InputError("crosscheck: the second network has no gauge, expected a converted one")
    found = {str(p.dtype).removeprefix("torch.") for name, p in converted.named_buffers() if ".gauge." in name}
    if found != {"float64"}:
        raise InputError(f"crosscheck: the converted network is in {', '.join(found)}, expected it loaded in float64")
    for name in ("vocab", "streams", "width", "sites"):
        a, b = getattr(source.config, name), getattr(converted.config, name)
        if a != b:
            raise InputError(f"crosscheck: {name} is {a} in the source and {b} in the converted network")
