"""Text, batches, the bigram baseline and the held-out loss, each a second way."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from rule_networks import config

from streamgauge.simulate.data import (
    as_tokens,
    bigram_loss,
    heldout_loss,
    heldout_text,
    random_batch,
    training_text,
)
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.theory.errors import InputError


def test_the_held_out_text_is_long_and_not_in_the_training_text() -> None:
    held, text = heldout_text(), training_text()
    assert len(held) >= 20_000
    assert len(text) > 200_000
    paragraphs = [p for p in held.split(b"\n\n") if len(p) > 20]
    kept = set(text.split(b"\n\n"))
    assert len(paragraphs) > 50
    assert not [p for p in paragraphs if p in kept]
    seen = {text[i : i + 50] for i in range(len(text) - 50)}
    shared = sum(held[i : i + 50] in seen for i in range(len(held) - 50)) / (len(held) - 50)
    assert shared < 0.02  # stock phrases; a leaked topic would share most of its windows


def test_bigram_by_counting() -> None:
    training, held = b"abracadabra, abc", b"abba cad"
    pairs, firsts = Counter(pairwise(training)), Counter(training[:-1])
    total = sum(-math.log((pairs[a, b] + 1) / (firsts[a] + 256)) for a, b in pairwise(held))
    assert bigram_loss(training, held) == pytest.approx(total / 7, rel=1e-14)
    assert bigram_loss(b"", held) == pytest.approx(math.log(256))
    with pytest.raises(InputError, match="found 1 bytes, expected at least 2"):
        bigram_loss(training, b"a")


@pytest.mark.parametrize("length", [2, 8, 9, 10, 17, 40])
def test_heldout_loss_predicts_every_byte_but_the_first_once(length: int) -> None:
    model = ByteLM(config(vocab=256)).eval()
    initialise(model, 1)
    text = bytes((7 * i * i + i) % 256 for i in range(length))
    total = 0.0
    with torch.no_grad():
        for i in range(1, length):
            start = (i - 1) // 8 * 8  # windows of the context's length
            row = model(torch.tensor([list(text[start:i])]))[0, -1].double()
            total += float(row.logsumexp(0) - row[text[i]])
    assert heldout_loss(model, text, batch=2) == pytest.approx(total / (length - 1), rel=1e-6)
    with pytest.raises(InputError, match="found 1 bytes"):
        heldout_loss(model, b"a")


def test_batches_are_windows_and_targets_their_next_bytes() -> None:
    tokens = as_tokens(bytes(range(40)))
    assert tokens.dtype == torch.int64
    assert tokens.tolist() == list(range(40))
    inputs, targets = random_batch(tokens, 8, 500, torch.Generator().manual_seed(0))
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs - inputs[:, :1], torch.arange(8).expand(500, 8))
    assert sorted(set(inputs[:, 0].tolist())) == list(range(32))  # every start, the last included
    assert as_tokens(b"").shape == (0,)
