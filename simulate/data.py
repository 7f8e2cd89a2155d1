"""Text without a download: the Python documentation that ships with the interpreter (``pydoc_data.topics``).

The corpus differs between Python versions, so the held-out text a test depends on is a file of this package
(``examples/data/heldout.txt``: the topic "formatstrings" of Python 3.11), and it is kept out of the training text.
"""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from streamgauge.simulate.model import ByteLM
from streamgauge.theory.errors import InputError

HELD_OUT_TOPIC = "formatstrings"
_SHORT = 20


def heldout_text() -> bytes:
    """The held-out text, the same on every Python version."""
    return (resources.files("streamgauge.examples") / "data" / "heldout.txt").read_bytes()


def training_text() -> bytes:
    """Every topic but the held-out one, in order of name, without the paragraphs that occur in the held-out text.

    A paragraph is text between blank lines; up to 20 characters may be in both.
    """
    from pydoc_data.topics import topics

    held = set(heldout_text().decode().split("\n\n"))
    kept = [
        paragraph
        for name in sorted(topics)
        if name != HELD_OUT_TOPIC
        for paragraph in topics[name].split("\n\n")
        if len(paragraph) <= _SHORT or paragraph not in held
    ]
    return "\n\n".join(kept).encode()


def as_tokens(text: bytes) -> Tensor:
    """Bytes as int64 tokens, shape (len,)."""
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long() if text else torch.empty(0, dtype=torch.int64)


def bigram_loss(training: bytes, heldout: bytes) -> float:
    """Nats per byte on ``heldout`` of ``P(b | a) = (N(a b) + 1) / (N(a) + 256)``, counted in ``training``.

    The mean is over every byte but the first.  **Raises** :class:`InputError` if there is none.
    """
    if len(heldout) < 2:
        raise InputError(f"held-out text: found {len(heldout)} bytes, expected at least 2")
    seen, told = (np.frombuffer(text, np.uint8).astype(np.int64) for text in (training, heldout))
    counts = np.bincount(seen[:-1] * 256 + seen[1:], minlength=256 * 256).reshape(256, 256) + 1.0
    surprise = -np.log(counts / counts.sum(axis=1, keepdims=True))
    return float(surprise[told[:-1], told[1:]].mean())


@torch.no_grad()
def heldout_loss(model: ByteLM, text: bytes, *, batch: int = 16) -> float:
    """Nats per byte of the model on ``text``: every byte but the first is predicted once, from at most ``context``
    bytes before it (consecutive windows).  **Raises** :class:`InputError` for fewer than 2 bytes.
    """
    tokens = as_tokens(text)
    if len(tokens) < 2:
        raise InputError(f"held-out text: found {len(tokens)} bytes, expected at least 2")
    context = model.config.context
    whole = (len(tokens) - 1) // context
    windows = tokens[: whole * context + 1].unfold(0, context + 1, context) if whole else tokens[:0].view(0, 1)
    groups = list(torch.split(windows, batch)) if whole else []
    if (len(tokens) - 1) % context:
        groups.append(tokens[whole * context :][None])
    total = 0.0
    for group in groups:
        logits = model(group[:, :-1]).double()
        total += float(F.cross_entropy(logits.flatten(0, 1), group[:, 1:].flatten(), reduction="sum"))
    return total / (len(tokens) - 1)


def random_batch(tokens: Tensor, context: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs and targets (batch, context) from random places of ``tokens``."""
    starts = torch.randint(len(tokens) - context, (batch, 1), generator=generator)
    rows = tokens[starts + torch.arange(context + 1)]
    return rows[:, :-1], rows[:, 1:]
