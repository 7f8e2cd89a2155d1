"""Fit the converted hyper-connections of an attached model to its source, everything else as it is.

    minimise over gates, W', scales and bases:  mean over tokens of KL(softmax of the source || softmax of the model)

by Adam on windows of a calibration text.  Gates and bases are of order one and move by the learning rate itself; W'
and scales move by it times their own RMS.  The rate rises over a short warm-up and falls to zero along a cosine.

The last windows of the text are never fitted.  The tensors that did best on them stay; and where a look finds them
worse than those by a quarter, the fit goes back to them and on with a third of the rate: a deep model that is close
to its source already needs smaller steps than a shallow one that is not, by orders of magnitude.
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

from streamgauge.simulate.hosted.compare import Progress, Sums, rows_at_a_time
from streamgauge.simulate.hosted.models import connections, evaluating, logits_of
from streamgauge.simulate.hosted.text import Text
from streamgauge.theory.errors import InputError

LEARNING_RATE = 5e-2
BATCH_TOKENS = 512
"""Tokens of a step, unless the batch is given."""
VALIDATION = 8
"""One of so many windows validates, at most :data:`VALIDATION_TOKENS` tokens in all."""
VALIDATION_TOKENS = 4096
LOOKS = 16
"""How often the validation windows are looked at, beside a few times at the start."""
_EARLY = (4, 8, 16)
_WORSE, _BACK = 1.25, 1 / 3
_KEPT = 1 << 25
"""Logits of the source on validation windows that are kept, not computed at every look."""
_CLIP = 1.0
_BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class Refinement:
    """What a fit did.

    - ``losses``: KL on the batch of every step, before its update, nats per token;
    - ``validation``: (steps done, KL on the validation windows), the first before any step;
    - ``best_step``: the steps after which the tensors that stayed were taken; ``kl`` there, ``kl_before`` before any;
    - ``returns``: steps at which the fit went back to the best tensors;
    - ``tokens``: fitted on, with repetition; ``validation_tokens``; ``parameters``: numbers that were fitted.
    """

    losses: tuple[float, ...]
    validation: tuple[tuple[int, float], ...]
    best_step: int
    returns: tuple[int, ...]
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
            "returns": list(self.returns),
            "validation_kl_before": self.kl_before,
            "validation_kl": self.kl,
            "validation": [[step, _rounded(kl)] for step, kl in self.validation],
            "losses": [_rounded(loss) for loss in self.losses],
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
        best = _Best(parameters, _optimizer(parameters, learning_rate), _Checked(source, checked))
        order = _order(len(fitted.tokens), batch, seed)
        looks = _looks(steps)
        losses: list[float] = []
        best.look(0, attached)
        for step in range(1, steps + 1):
            best.set_rate(_rate(step - 1, steps))
            losses.append(_step(attached, source, fitted.tokens[next(order)], best.optimizer, parameters))
            if step in looks or not math.isfinite(losses[-1]):
                best.look(step, attached)
            if progress is not None:
                progress(step, steps, f"refining: KL {losses[-1]:.2e}, validated {best.kl:.2e}")
        best.put_back()
    return Refinement(
        tuple(losses),
        tuple(best.seen),
        best.step,
        tuple(best.returns),
        best.seen[0][1],
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
    return {math.ceil(steps * part / LOOKS) for part in range(1, LOOKS + 1)} | set(_EARLY)


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
    attached: Any,
    source: Any,
    tokens: Tensor,
    optimizer: torch.optim.Adam,
    parameters: dict[str, nn.Parameter],
) -> float:
    """One update; KL before it.  Where loss or gradient is not finite, nan, and no update."""
    with torch.no_grad():
        wanted = logits_of(source, tokens)
    logits = logits_of(attached, tokens)
    wide = torch.promote_types(logits.dtype, torch.float32)
    log_q = F.log_softmax(logits.to(wide), -1)
    log_p = F.log_softmax(wanted.to(logits.device, wide), -1)
    loss = F.kl_div(log_q, log_p, log_target=True, reduction="sum") / tokens.numel()
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), _CLIP)
    if not math.isfinite(float(norm)):
        return math.nan
    optimizer.step()
    return float(loss.detach())


class _Checked:
    """KL on the validation windows; the source's logits are kept where they are few."""

    def __init__(self, source: Any, text: Text) -> None:
        vocabulary = source.config.get_text_config().vocab_size
        self.source, self.tokens = source, text.tokens.numel()
        self.batches = torch.split(text.tokens, rows_at_a_time(text, vocabulary))
        self.kept: list[Tensor] = []
        if self.tokens * vocabulary <= _KEPT:
            self.kept = [self._wanted(rows) for rows in self.batches]

    @torch.no_grad()
    def kl(self, attached: Any) -> float:
        """Nats per token; infinite where it is not finite."""
        total = 0.0
        for number, rows in enumerate(self.batches):
            wanted = self.kept[number] if self.kept else self._wanted(rows)
            total += Sums.of(wanted, logits_of(attached, rows), rows).kl
        return max(0.0, total / self.tokens) if math.isfinite(total) else math.inf

    @torch.no_grad()
    def _wanted(self, rows: Tensor) -> Tensor:
        return logits_of(self.source, rows)


class _Best:
    """The tensors with the lowest KL on the validation windows so far, and the way back to them."""

    def __init__(self, parameters: dict[str, nn.Parameter], optimizer: torch.optim.Adam, checked: _Checked) -> None:
        self.parameters, self.optimizer, self.checked = parameters, optimizer, checked
        self.step, self.kl, self.factor = 0, math.inf, 1.0
        self.tensors = _copies(parameters)
        self.seen: list[tuple[int, float]] = []
        self.returns: list[int] = []

    def look(self, step: int, attached: Any) -> None:
        """Keep the tensors if they are the best; from much worse ones return, without momentum, at a smaller rate."""
        kl = self.checked.kl(attached)
        self.seen.append((step, kl))
        if kl < self.kl:
            self.step, self.kl, self.tensors = step, kl, _copies(self.parameters)
        elif not kl <= _WORSE * self.kl:
            self.put_back()
            self.returns.append(step)
            self.factor *= _BACK
            for state in self.optimizer.state.values():
                state["exp_avg"].zero_()

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate * self.factor

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
    finished = False
    try:
        for parameter, _ in flags:
            parameter.requires_grad_(id(parameter) in own)
        yield parameters
        finished = True
    finally:
        if not finished:
            _put(parameters, before)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        for parameter in parameters.values():
            parameter.grad = None


def _rounded(number: float) -> float | None:
    return float(f"{number:.4g}") if math.isfinite(number) else None


def _copies(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in parameters.items()}


@torch.no_grad()
def _put(parameters: dict[str, nn.Parameter], tensors: dict[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        parameters[name].copy_(tensor)
