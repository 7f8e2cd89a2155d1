"""Perplexity, KL, agreement and routing flips, each against another way to compute it."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("transformers", minversion="5.24")

from hosted_models import CONTEXT, ROUTED, files, moving

from streamgauge.simulate.hosted.compare import compare, perplexity
from streamgauge.simulate.hosted.models import connections, load_model, load_pair
from streamgauge.simulate.hosted.text import Text, read_text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Text]:
    """Source, attached, and ten windows."""
    folder = files(tmp_path_factory.mktemp("hosted"))
    source, other = load_pair(folder / "source", folder / "out")
    return source, other, read_text(folder / "text.txt", folder / "source", context=CONTEXT, limit=10 * CONTEXT)


Pair = tuple[Any, Any, Text]


def probabilities(model: Any, tokens: Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    """softmax by its definition, in numpy's float64."""
    with torch.no_grad():
        logits = model(tokens).logits.double().numpy()
    made = np.exp(logits - logits.max(-1, keepdims=True))
    out: np.ndarray[Any, np.dtype[np.float64]] = made / made.sum(-1, keepdims=True)
    return out


def test_figures_by_hand(pair: Pair) -> None:
    source, other, text = pair
    p, q = (probabilities(model, text.tokens) for model in (source, other))
    found = compare(source, other, text)
    rows, width = text.tokens.shape
    said = [[(b, t, int(text.tokens[b, t + 1])) for t in range(width - 1)] for b in range(rows)]
    for value, made in ((found.source_perplexity, p), (found.perplexity, q)):
        surprise = [-math.log(made[place]) for row in said for place in row]
        assert value == pytest.approx(math.exp(math.fsum(surprise) / len(surprise)), rel=1e-9)
    assert found.kl == pytest.approx(float((p * np.log(p / q)).sum(-1).mean()), rel=1e-6)
    assert found.agreement == np.mean(p.argmax(-1) == q.argmax(-1))
    assert (found.tokens, found.predicted) == (rows * width, rows * (width - 1))
    assert found.ratio == found.perplexity / found.source_perplexity
    assert found.kl > 1e-5
    assert found.agreement < 1


def experts(model: Any, tokens: Tensor) -> list[Tensor]:
    """Per scored layer the experts of each token as a 0/1 table, by ranking the recorded router logits anew."""
    with torch.no_grad():
        recorded = model(tokens, output_router_logits=True).router_logits
    gates = [layer.mlp.gate for layer, kind in zip(model.model.layers, ROUTED, strict=True) if kind == "moe"]
    out = []
    for logits, gate in zip(recorded, gates, strict=True):
        scores = F.softplus(logits.double()).sqrt() + gate.e_score_correction_bias
        ranks = scores.argsort(-1, descending=True).argsort(-1)
        out.append(ranks < 2)
    return out


def test_flips_by_hand(pair: Pair) -> None:
    source, other, text = pair
    assert source.config.scoring_func == "sqrtsoftplus"
    differ = [
        (a != b).any(-1) for a, b in zip(experts(source, text.tokens), experts(other, text.tokens), strict=True)
    ]
    found = compare(source, other, text, batch=3)
    assert [flips.tokens for flips in found.flips] == [int(changed.sum()) for changed in differ]
    assert [flips.name for flips in found.flips] == [f"model.layers.{layer}.mlp.gate" for layer in (1, 2, 3)]
    assert found.flipped == int(torch.stack(differ).any(0).sum())
    assert found.fixed_routers == 1
    assert 0 < max(flips.tokens for flips in found.flips) < found.flipped < found.tokens


def test_a_model_and_itself(pair: Pair) -> None:
    source, _, text = pair
    found = compare(source, source, text)
    assert (found.kl, found.agreement, found.ratio, found.flipped) == (0.0, 1.0, 1.0, 0)
    assert found.source_perplexity == perplexity(source, text).perplexity


def test_a_broken_sidecar_is_further_away(pair: Pair) -> None:
    source, other, text = pair
    broken = copy.deepcopy(other)
    with torch.no_grad():
        for module in connections(broken)[:-1]:
            module.gates.fill_(0.5)
    good, bad = compare(source, other, text), compare(source, broken, text)
    assert bad.kl > 3 * good.kl
    assert bad.agreement < good.agreement
    assert bad.flipped > good.flipped


def test_batches_make_no_difference(pair: Pair) -> None:
    source, other, text = pair
    seen: list[tuple[int, int, str]] = []
    whole = compare(source, other, text)
    single = compare(source, other, text, batch=1, progress=lambda *step: seen.append(step))
    assert seen == [(done, 10, "comparing") for done in range(11)]
    assert single.kl == pytest.approx(whole.kl, rel=1e-3)
    assert single.perplexity == pytest.approx(whole.perplexity, rel=1e-6)
    assert perplexity(source, text, batch=4).perplexity == pytest.approx(whole.source_perplexity, rel=1e-6)


def test_modes_and_hooks_are_as_before(pair: Pair) -> None:
    source, other, text = pair
    trained = copy.deepcopy(other).train()
    hooks = [len(module._forward_hooks) for module in trained.modules()]
    assert compare(source, trained, text).kl == compare(source, other, text).kl
    assert all(module.training for module in trained.modules())
    assert [len(module._forward_hooks) for module in trained.modules()] == hooks


def test_bad_input(pair: Pair, tmp_path: Path) -> None:
    source, other, text = pair
    broken = copy.deepcopy(other)
    with torch.no_grad():
        broken.lm_head.weight[3, 2] = torch.nan
    assert_refused(lambda: compare(source, broken, text), "logits of the compared model are not finite, expected num")
    assert_refused(lambda: compare(broken, source, text), "logits of the source are not finite")
    assert_refused(lambda: perplexity(broken, text), "logits of the model are not finite")
    assert_refused(lambda: compare(source, other, text, batch=0), "batch: found 0, expected at least 1 window")
    wider = moving(vocab_size=300)
    assert_refused(lambda: compare(source, wider, text), "the compared model has 300 logits a token, the source 256")


def test_a_hopeless_model_has_a_number(pair: Pair) -> None:
    """exp overflows: infinity, not an error."""
    source, other, text = pair
    certain = copy.deepcopy(other)
    with torch.no_grad():
        certain.lm_head.weight.mul_(1e4)
    found = compare(source, certain, text)
    assert found.perplexity == math.inf
    assert math.isfinite(found.kl)


def test_figures_come_as_a_document(pair: Pair) -> None:
    source, other, text = pair
    found = compare(source, other, text)
    made = found.document()
    assert made["flips"] == [{"name": flips.name, "tokens": flips.tokens} for flips in found.flips]
    assert (made["kl"], made["ratio"], made["perplexity"]) == (found.kl, found.ratio, found.perplexity)
    assert perplexity(source, text).document()["source_perplexity"] == made["source_perplexity"]


def test_bfloat16_loses_little(tmp_path: Path) -> None:
    folder = files(tmp_path)
    text = read_text(folder / "text.txt", folder / "source", context=CONTEXT, limit=4 * CONTEXT)
    found = compare(load_model(folder / "source"), load_model(folder / "source", dtype="bfloat16"), text)
    assert 0 < found.kl < 0.05
