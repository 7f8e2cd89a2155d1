"""What one model predicts on a text, and how far another one is from it.

With p, q the next-token distributions of source and other after every one of the B T positions:

    KL = mean over positions of sum_v p_v (log p_v - log q_v),   perplexity = exp(-mean log q(next token))

where the mean of the perplexity is over the B (T - 1) tokens that a window predicts.  Log-softmax and sums are in
float64, whatever the models compute in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from streamgauge.simulate.hosted.models import evaluating, logits_of
from streamgauge.simulate.hosted.text import Text
from streamgauge.theory.errors import InputError

Progress = Callable[[int, int, str], None]
"""Called with steps done, steps in all, and what is being done."""
_BATCH_TOKENS = 4096
_BATCH_LOGITS = 1 << 26
_CHUNK = 1 << 23
"""Logits that are widened to float64 at a time."""


@dataclass(frozen=True)
class Flips:
    """Tokens whose set of experts in the router ``name`` differs between the models."""

    name: str
    tokens: int


@dataclass(frozen=True)
class Perplexity:
    """One model on a text: ``perplexity`` over ``predicted`` tokens (of ``tokens`` in all)."""

    tokens: int
    predicted: int
    perplexity: float

    def document(self) -> dict[str, Any]:
        """The figures by name."""
        return {"tokens": self.tokens, "predicted": self.predicted, "source_perplexity": self.perplexity}


@dataclass(frozen=True)
class Comparison:
    """Two models on a text.

    - ``kl``: mean KL(source || other), nats per token; ``agreement``: share of tokens with the same best next token;
    - ``flips``: per router that chooses experts by score, tokens whose set of experts differs; ``flipped``: tokens
      for which any does; ``fixed_routers``: routers that go by token id, and cannot differ.
    """

    tokens: int
    predicted: int
    source_perplexity: float
    perplexity: float
    kl: float
    agreement: float
    flips: tuple[Flips, ...]
    flipped: int
    fixed_routers: int

    @property
    def ratio(self) -> float:
        """Perplexity of the other over that of the source."""
        return self.perplexity / self.source_perplexity

    def document(self) -> dict[str, Any]:
        """The figures by name."""
        return {**asdict(self), "flips": [asdict(flips) for flips in self.flips], "ratio": self.ratio}


def perplexity(model: Any, text: Text, *, progress: Progress | None = None, batch: int | None = None) -> Perplexity:
    """``exp`` of the mean surprise of a text's tokens; one forward pass over it.

    ``batch``: windows at a time, by default as many as stay small.  **Raises** :class:`InputError` where logits are
    not finite or the model has no head.
    """
    total = 0.0
    with torch.no_grad(), evaluating(model):
        for rows in batches(text, model, progress, "measuring", batch):
            total += Sums.of(_finite(logits_of(model, rows), "the model"), None, rows).surprise
    predicted = text.tokens.numel() - len(text.tokens)
    return Perplexity(text.tokens.numel(), predicted, _exp(total / predicted))


def compare(
    source: Any, other: Any, text: Text, *, progress: Progress | None = None, batch: int | None = None
) -> Comparison:
    """Both models on the same windows, a batch at a time; one forward pass each, nothing kept but sums.

    ``batch``: windows at a time, by default as many as stay small.  **Raises** :class:`InputError` for different
    vocabularies, logits that are not finite, or models without a head.
    """
    sums, flips, flipped = Sums(), dict.fromkeys(_routers(source), 0), 0
    with torch.no_grad(), evaluating(source, other), experts_chosen(source) as mine, experts_chosen(other) as theirs:
        for rows in batches(text, source, progress, "comparing", batch):
            first = _finite(logits_of(source, rows), "the source")
            second = _finite(logits_of(other, rows), "the compared model")
            if first.shape != second.shape:
                found = f"{second.shape[-1]} logits a token"
                raise InputError(f"compare: the compared model has {found}, the source {first.shape[-1]}")
            sums += Sums.of(first, second, rows)
            counts, tokens_flipped = count_flips(mine, theirs)
            flipped += tokens_flipped
            for name, count in counts.items():
                flips[name] += count
    tokens = text.tokens.numel()
    predicted = tokens - len(text.tokens)
    return Comparison(
        tokens,
        predicted,
        _exp(sums.surprise / predicted),
        _exp(sums.other_surprise / predicted),
        max(0.0, sums.kl / tokens),  # rounding may leave it below zero
        sums.same / tokens,
        tuple(Flips(name, count) for name, count in flips.items()),
        flipped,
        len(_routers(source, fixed=True)),
    )


def rows_at_a_time(text: Text, vocabulary: int) -> int:
    """Windows of a batch whose logits stay small."""
    return max(1, min(_BATCH_TOKENS, _BATCH_LOGITS // vocabulary) // text.context)


@dataclass
class Sums:
    """Sums over tokens: surprise of source and other in nats, KL, and how often the best next token is the same."""

    surprise: float = 0.0
    other_surprise: float = 0.0
    kl: float = 0.0
    same: int = 0

    def __iadd__(self, more: Sums) -> Sums:
        for name in ("surprise", "other_surprise", "kl", "same"):
            setattr(self, name, getattr(self, name) + getattr(more, name))
        return self

    @classmethod
    def of(cls, first: Tensor, second: Tensor | None, tokens: Tensor) -> Sums:
        """Sums over a batch: logits (B, T, V) of both, tokens (B, T)."""
        sums, vocabulary = cls(), first.shape[-1]
        following = F.pad(tokens[:, 1:], (0, 1), value=-1).flatten().to(first.device)
        step = max(1, _CHUNK // vocabulary)
        other = [None] * len(following) if second is None else torch.split(second.flatten(0, 1), step)
        for mine, theirs, told in zip(torch.split(first.flatten(0, 1), step), other, torch.split(following, step)):
            log_p = F.log_softmax(mine.double(), -1)
            sums.surprise += _surprise(log_p, told)
            if theirs is not None:
                log_q = F.log_softmax(theirs.to(mine.device).double(), -1)
                sums.other_surprise += _surprise(log_q, told)
                sums.kl += float((log_p.exp() * (log_p - log_q)).sum())
                sums.same += int((log_p.argmax(-1) == log_q.argmax(-1)).sum())
        return sums


def _surprise(log_p: Tensor, told: Tensor) -> float:
    """Sum of ``-log p(told)``; -1 is the end of a window, where nothing is told."""
    return float(F.nll_loss(log_p, told, ignore_index=-1, reduction="sum"))


def batches(
    text: Text, model: Any, progress: Progress | None, what: str, batch: int | None = None
) -> Iterator[Tensor]:
    """The windows, ``batch`` at a time or as many as stay small; ``progress`` is told before each and at the end.

    **Raises** :class:`InputError` for a batch of less than one window.
    """
    if batch is not None and batch < 1:
        raise InputError(f"batch: found {batch}, expected at least 1 window")
    vocabulary = model.config.get_text_config().vocab_size
    groups = torch.split(text.tokens, batch or rows_at_a_time(text, vocabulary))
    for done, rows in enumerate(groups):
        if progress is not None:
            progress(done, len(groups), what)
        yield rows
    if progress is not None:
        progress(len(groups), len(groups), what)


def _finite(logits: Tensor, whose: str) -> Tensor:
    if not bool(torch.isfinite(logits).all()):
        raise InputError(f"compare: the logits of {whose} are not finite, expected numbers")
    return logits


def _exp(nats: float) -> float:
    return math.exp(nats) if nats < 709 else math.inf


def _routers(model: nn.Module, fixed: bool = False) -> dict[str, nn.Module]:
    """Routers that choose experts by score; ``fixed``: those that go by token id."""
    found = {name: module for name, module in model.named_modules() if type(module).__name__.endswith("Router")}
    return {
        name: module
        for name, module in found.items()
        if hasattr(module, "top_k") and hasattr(module, "tid2eid") == fixed
    }


@contextmanager
def experts_chosen(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """By router, the experts of the latest forward pass: (B T, k) in ascending order."""
    chosen: dict[str, Tensor] = {}

    def listen(name: str) -> Callable[[nn.Module, Any, tuple[Tensor, Tensor, Tensor]], None]:
        def heard(module: nn.Module, given: Any, made: tuple[Tensor, Tensor, Tensor]) -> None:
            chosen[name] = made[2].sort(-1).values  # (logits, weights, experts)

        return heard

    hooks = [module.register_forward_hook(listen(name)) for name, module in _routers(model).items()]
    try:
        yield chosen
    finally:
        for hook in hooks:
            hook.remove()


def count_flips(mine: dict[str, Tensor], theirs: dict[str, Tensor]) -> tuple[dict[str, int], int]:
    """Tokens whose set of experts differs: by router, of those that both have, and in any of them."""
    differ = {name: (mine[name] != theirs[name]).any(-1).cpu() for name in mine if name in theirs}
    flipped = int(torch.stack(list(differ.values())).any(0).sum()) if differ else 0
    return {name: int(changed.sum()) for name, changed in differ.items()}, flipped
