"""Fit the converted hyper-connections of an attached model to its source, everything else as it is.

    minimise over gates, W', scales and bases:  mean over tokens of KL(softmax of the source || softmax of the model)

by Adam on windows of a calibration text.  Gates and bases are of order one and move by the learning rate itself; W'
and scales move by it times their own RMS, so that no size has to be guessed.  The rate rises over a short warm-up and
falls to zero along a cosine.  The last windows of the text are never fitted: they choose the step whose tensors stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.simulate.hosted.compare import Progress, compare
from streamgauge.simulate.hosted.models import connections, evaluating, logits_of
from streamgauge.simulate.hosted.text import Text
from streamgauge.theory.errors import InputError

LEARNING_RATE = 1e-2
BATCH_TOKENS = 1024
"""Tokens of a step, unless the batch is given."""
VALIDATION = 8
"""One of so many windows validates, at most :data:`VALIDATION_TOKENS` tokens in all."""
VALIDATION_TOKENS = 8192
LOOKS = 16
"""How often the validation windows are looked at, beside once before the first step."""
_CLIP = 1.0
_BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class Refinement:
    """What a fit did.

    - ``losses``: KL on the batch of every step, before its update, nats per token;
    - ``validation``: (steps done, KL on the validation windows), the first before any step;
    - ``best_step``: the steps after which the tensors that stayed were taken; ``kl`` there, ``kl_before`` before any;
    - ``tokens``: fitted on, with repetition; ``validation_tokens``; ``parameters``: numbers that were fitted.
    """

    losses: tuple[float, ...]
    validation: tuple[tuple[int, float], ...]
    best_step: int
    kl_before: float
    kl: float
    learning_rate: float
    batch: int
    seed: int
    tokens: int
    validation_tokens: int
    parameters: int

    def document(self) -> dict[str, Any]:
        """The figures by name, losses rounded."""
        return {
            "steps": len(self.losses),
            "best_step": self.best_step,
            "validation_kl_before": self.kl_before,
            "validation_kl": self.kl,
            "validation": [[step, float(f"{kl:.4g}")] for step, kl in self.validation],
            "losses": [float(f"{loss:.4g}") for loss in self.losses],
            "learning_rate": self.learning_rate,
            "batch": self.batch,
            "seed": self.seed,
            "tokens": self.tokens,
            "validation_tokens": self.validation_tokens,
            "parameters": self.parameters,
        }


def refine(
    attached: Any,
    source: Any,
    text: Text,
    *,
    steps: int,
    learning_rate: float = LEARNING_RATE,
    batch: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Refinement:
    """Fit the parameters of ``attached``'s hyper-connection modules in place; no other tensor changes.

    - ``text``: calibration text, at least 2 windows; keep held-out text out of it.
    - ``batch``: windows a step, by default about :data:`BATCH_TOKENS` tokens.
    - ``seed``: of the order of windows; the same seed gives the same bits on the same CPU and thread count.

    Whatever ends it early (Ctrl-C, an error) leaves ``attached`` as it was.  Cost of a step: one forward pass of the
    source, one forward and backward pass of the attached model with its activations in memory.
    **Raises** :class:`InputError`, one line.
    """
    batch = max(1, BATCH_TOKENS // text.context) if batch is None else batch
    _refuse(steps, learning_rate, batch, text)
    fitted, checked = _parts(text)
    batch = min(batch, len(fitted.tokens))
    with evaluating(attached, source), _only(attached) as parameters:
        optimizer = _optimizer(parameters, learning_rate)
        order = _order(len(fitted.tokens), batch, seed)
        best = _Best(parameters)
        looks = _looks(steps)
        losses: list[float] = []
        validation = [(0, best.look(0, source, attached, checked))]
        for step in range(1, steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * _rate(step - 1, steps)
            losses.append(_step(attached, source, fitted.tokens[next(order)], optimizer, list(parameters.values())))
            if step in looks:
                validation.append((step, best.look(step, source, attached, checked)))
            if progress is not None:
                progress(step, steps, f"refining: KL {losses[-1]:.2e}, validated {best.kl:.2e}")
        best.put_back()
    return Refinement(
        tuple(losses),
        tuple(validation),
        best.step,
        validation[0][1],
        best.kl,
        learning_rate,
        batch,
        seed,
        steps * batch * text.context,
        checked.tokens.numel(),
        sum(p.numel() for p in parameters.values()),
    )


def _refuse(steps: int, learning_rate: float, batch: int, text: Text) -> None:
    for name, number in (("steps", steps), ("batch", batch)):
        if number < 1:
            raise InputError(f"refine {name}: found {number}, expected at least 1")
    if not 0 < learning_rate < math.inf:
        raise InputError(f"refine learning rate: found {learning_rate}, expected a number above 0")
    if len(text.tokens) < 2:
        found = f"{len(text.tokens)} window of {text.context} tokens"
        raise InputError(f"{text.name}: holds {found}, expected at least 2 to refine and to validate")


def _parts(text: Text) -> tuple[Text, Text]:
    """Windows to fit, and the last ones, to validate."""
    rows = len(text.tokens)
    last = min(max(1, rows // VALIDATION), max(1, VALIDATION_TOKENS // text.context))
    cut = rows - last
    return replace(text, tokens=text.tokens[:cut]), replace(text, tokens=text.tokens[cut:], start=text.start + cut)


def _looks(steps: int) -> set[int]:
    return {math.ceil(steps * part / LOOKS) for part in range(1, LOOKS + 1)}


def _order(rows: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Numbers of windows, batch by batch: every window once before any comes again."""
    generator = torch.Generator().manual_seed(seed)
    held = torch.empty(0, dtype=torch.int64)
    while True:
        while len(held) < batch:
            held = torch.cat([held, torch.randperm(rows, generator=generator)])
        yield held[:batch]
        held = held[batch:]


def _rate(step: int, steps: int) -> float:
    """Factor of the learning rate, in (0, 1]."""
    warmup = max(1, min(20, steps // 10))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def _optimizer(parameters: dict[str, nn.Parameter], learning_rate: float) -> torch.optim.Adam:
    groups: list[dict[str, Any]] = []
    for name, parameter in parameters.items():
        relative = name.endswith(("weight", "scale"))
        size = float(parameter.detach().double().square().mean().sqrt()) if relative else 1.0
        groups.append({"params": [parameter], "lr": 0.0, "peak": learning_rate * size})
    return torch.optim.Adam(groups, betas=_BETAS, eps=1e-12)  # gradients of a small KL are small


def _step(
    attached: Any, source: Any, tokens: Tensor, optimizer: torch.optim.Adam, parameters: list[nn.Parameter]
) -> float:
    with torch.no_grad():
        wanted = logits_of(source, tokens)
    logits = logits_of(attached, tokens)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_q = F.log_softmax(logits.to(wide), -1)
    log_p = F.log_softmax(wanted.to(logits.device, wide), -1)
    loss = F.kl_div(log_q, log_p, log_target=True, reduction="sum") / tokens.numel()
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(parameters, _CLIP)
    if not math.isfinite(float(norm)):
        raise InputError(
            f"refine: the gradient of KL {float(loss):.3g} is not finite, expected a smaller learning rate"
        )
    optimizer.step()
    return float(loss.detach())


class _Best:
    """The tensors with the lowest KL on the validation windows so far."""

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters, self.step, self.kl = parameters, 0, math.inf
        self.tensors: dict[str, Tensor] = {}

    def look(self, step: int, source: Any, attached: Any, text: Text) -> float:
        kl = compare(source, attached, text).kl
        if kl < self.kl:
            self.step, self.kl, self.tensors = step, kl, _copies(self.parameters)
        return kl

    def put_back(self) -> None:
        _put(self.parameters, self.tensors)


@contextmanager
def _only(attached: Any) -> Iterator[dict[str, nn.Parameter]]:
    """The hyper-connections' parameters by name, alone with gradients inside; an exception gives them back as they
    were."""
    parameters = {
        f"{place}.{name}": parameter
        for place, module in enumerate(connections(attached))
        for name, parameter in module.named_parameters()
    }
    narrow = next((p.dtype for p in parameters.values() if p.dtype.itemsize < 4), None)
    if narrow is not None:
        raise InputError(f"refine: the hyper-connections are in {narrow}, expected float32 or float64")
    before, flags = _copies(parameters), [(p, p.requires_grad) for p in attached.parameters()]
    own = {id(parameter) for parameter in parameters.values()}
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(id(parameter) in own)
        yield parameters
    except BaseException:
        _put(parameters, before)
        raise
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        for parameter in parameters.values():
            parameter.grad = None


def _copies(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


@torch.no_grad()
def _put(parameters: dict[str, nn.Parameter], tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        parameters[name].copy_(tensor)
