"""The trained DeepSeek-V4 in examples/data, and the table of what converting its mixers costs."""

from __future__ import annotations

import json
import math
import re
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import streamgauge as sg
from streamgauge.simulate.checkpoint import file_sha256
from streamgauge.simulate.data import as_tokens, bigram_loss, heldout_text, training_text
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn

pytest.importorskip("transformers", minversion="5.24")

from streamgauge.examples import deepseek_mixers as table
from streamgauge.examples.train_deepseek import CONTEXT, LAYERS, MARGIN, SIZES, N, heldout_loss, start, train
from streamgauge.simulate.hosted.models import load_model
from streamgauge.simulate.train import Plan

DATA = Path(str(resources.files("streamgauge.examples") / "data" / "deepseek"))
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SITES = 2 * LAYERS
TOKENS = 4096


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model(DATA)


@pytest.fixture(scope="module")
def training() -> dict[str, Any]:
    return dict(json.loads((DATA / "training.json").read_text()))


@pytest.fixture(scope="module")
def documented() -> dict[str, Any]:
    place = BENCHMARKS / f"{table.NAME}.json"
    if not place.is_file():
        pytest.skip("not a checkout")
    return dict(json.loads(place.read_text()))


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training text; none of its paragraphs is in the held-out text."""
    place = tmp_path_factory.mktemp("text") / "training.txt"
    place.write_bytes(training_text())
    return place


def connections(model: Any) -> list[Any]:
    return [site for layer in model.model.layers for site in (layer.attn_hc, layer.ffn_hc)]


def mixers_seen(model: Any, tokens: torch.Tensor) -> list[np.ndarray]:
    """A_l(x) (tokens, n, n) by the documented formula from the streams that enter every site."""
    streams: list[list[np.ndarray]] = [[] for _ in connections(model)]
    hooks = [
        site.register_forward_pre_hook(lambda _, given, kept=kept: kept.append(given[0].double().numpy()))
        for site, kept in zip(connections(model), streams)
    ]
    with torch.no_grad():
        model(tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    out = []
    for site, (x,) in zip(connections(model), streams):
        flat = x.reshape(-1, N * x.shape[-1])
        flat = flat / np.sqrt((flat**2).mean(-1, keepdims=True) + model.config.rms_norm_eps)
        fn, base, scale = (t.detach().double().numpy() for t in (site.fn, site.base, site.scale))
        logits = scale[2] * flat @ fn[2 * N :].T + base[2 * N :]
        out.append(sinkhorn(logits.reshape(-1, N, N), RECIPES["deepseek-v4"]).mixer)
    return out


def test_files() -> None:
    assert sorted(p.name for p in DATA.iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors", "training.json",
    ]  # fmt: skip
    assert sum(p.stat().st_size for p in DATA.iterdir()) <= 5_000_000


def test_it_has_every_kind_of_layer_and_every_coefficient_moves(model: Any) -> None:
    config = model.config
    assert {name: getattr(config, name) for name in SIZES if hasattr(config, name)} == {
        name: value for name, value in SIZES.items() if hasattr(config, name)
    }
    assert set(config.layer_types) == {
        "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
    }  # fmt: skip
    assert set(config.mlp_layer_types) == {"hash_moe", "moe"}
    for site in connections(model):
        assert bool((site.scale != 0).all())
        assert float(site.fn.detach().abs().amax(1).min()) > 0


def test_all_experts_are_used(model: Any) -> None:
    tokens = as_tokens(heldout_text())[: 16 * CONTEXT].view(16, CONTEXT)
    routers = [module for name, module in model.named_modules() if name.endswith("mlp.gate")]
    assert len(routers) == LAYERS
    seen: list[torch.Tensor] = []
    hooks = [router.register_forward_hook(lambda _, given, made: seen.append(made[2])) for router in routers]
    with torch.no_grad():
        model(tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    for chosen in seen:
        used = torch.bincount(chosen.flatten(), minlength=SIZES["n_routed_experts"]) / chosen.numel()
        assert float(used.min()) > 0.02


def test_held_out_loss_is_the_stated_one_and_beats_the_bigram_model(model: Any, training: dict[str, Any]) -> None:
    assert 2.3 < training["bigram_heldout_loss"] < 2.45
    assert bigram_loss(training_text(), heldout_text()) == pytest.approx(training["bigram_heldout_loss"], abs=0.1)
    loss = heldout_loss(model, heldout_text())
    assert loss == pytest.approx(training["heldout_loss"], abs=1e-3)
    assert loss <= training["bigram_heldout_loss"] - MARGIN


def test_held_out_loss_by_hand(model: Any) -> None:
    """One window and a rest, each byte predicted from what is before it in its window."""
    text = heldout_text()[: CONTEXT + 40]
    tokens, total = as_tokens(text), 0.0
    with torch.no_grad():
        for first, last in ((0, CONTEXT), (CONTEXT, CONTEXT + 39)):
            logits = model(tokens[None, first:last], use_cache=False).logits[0].double()
            total -= sum(float(F.log_softmax(z, -1)[tokens[first + i + 1]]) for i, z in enumerate(logits))
    assert heldout_loss(model, text) == pytest.approx(total / (CONTEXT + 39), rel=1e-9)


def test_an_untrained_model_does_not_beat_it() -> None:
    """Control for the bound above."""
    assert heldout_loss(start().eval(), heldout_text()[:1000]) > 4


def test_dynamic_shares_are_the_stated_ones_and_substantial(model: Any, training: dict[str, Any]) -> None:
    stated = training["dynamic_share"]
    assert len(stated) == SITES
    assert max(stated) > 0.3
    assert min(stated[1:]) > 0.03
    assert stated[0] < 0.01  # site 0 mixes copies of the embedding: A 1 = 1, so its mixer never had a gradient
    tokens = as_tokens(training_text())[:TOKENS].view(-1, CONTEXT)
    for seen, share in zip(mixers_seen(model, tokens), stated):
        mean = seen.mean(0)
        found = math.sqrt(((seen - mean) ** 2).sum((1, 2)).mean()) / np.linalg.norm(mean)
        assert found == pytest.approx(share, rel=0.3)  # another sample of the text
        assert np.abs(mean - np.eye(N)).max() > 0.02


def test_training_is_reproducible_and_starts_with_a_dynamic_chain() -> None:
    text, plan = training_text()[:4000], Plan(steps=2, batch=2, warmup=1)
    models, curves = [start(1), start(1), start(2)], []
    for made in models:
        curves.append(train(made, text, plan))
    first, second, other = (dict(made.named_parameters()) for made in models)
    assert curves[0] == curves[1] != curves[2]
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
    for seen in mixers_seen(start(), as_tokens(text)[None, :CONTEXT]):
        assert np.linalg.matrix_rank(seen.mean(0), tol=1e-2) == N
        assert np.abs(seen - seen[0]).max() > 1e-3


def converted(folder: Path, calibration: Path, **options: Any) -> Any:
    """A sidecar of the shipped model, its loss measured on the held-out text."""
    with resources.as_file(resources.files("streamgauge.examples") / "data" / "heldout.txt") as held_out:
        made = sg.sidecar(DATA, folder, text=calibration, held_out=held_out, tokens=TOKENS, **options)
    assert made.loss is not None
    assert made.loss["converted"]["tokens"] == TOKENS
    return made


def test_the_mean_is_within_one_percent(calibration: Path, tmp_path: Path) -> None:
    made = converted(tmp_path / "mean", calibration, mixers="mean")
    assert abs(made.loss["converted"]["ratio"] - 1) < table.ALONE / 100
    assert 1e-5 < made.loss["converted"]["kl"] < 5e-3  # near, and not the same function
    assert made.form.conditioning.worst < 10


def test_a_short_fit_brings_a_conversion_closer(calibration: Path, tmp_path: Path) -> None:
    """At the biases, where there is more to win in a few steps than at the means."""
    made = converted(tmp_path / "bias", calibration, mixers="bias", refine=12)
    assert made.loss["refined"]["kl"] < 0.9 * made.loss["converted"]["kl"]


def test_the_table_is_about_this_checkpoint(documented: dict[str, Any], training: dict[str, Any]) -> None:
    assert documented["checkpoint"] == {"name": "deepseek", "sha256": file_sha256(DATA / "model.safetensors")}
    shares = documented["dynamic_share"]
    assert shares == pytest.approx(training["dynamic_share"], rel=0.3)
    assert math.log(documented["source_perplexity"]) == pytest.approx(training["heldout_loss"], abs=0.05)
    assert documented["held_out"]["sha256"] == file_sha256(DATA.parent / "heldout.txt")
    assert documented["calibration"]["text"]["sha256"] != documented["held_out"]["sha256"]


def test_the_table_shows_the_bounds(documented: dict[str, Any]) -> None:
    keys = [(r["mixers"], r["refined"]) for r in documented["rows"]]
    assert keys == [(choice, refined) for choice in table.CHOICES for refined in (False, True)]
    assert abs(table.row(documented, "mean", False)["percent"]) <= table.ALONE
    assert abs(table.row(documented, "mean", True)["percent"]) <= table.REFINED
    for r in documented["rows"]:
        assert r["percent"] == pytest.approx(100 * (r["perplexity"] / r["source_perplexity"] - 1), abs=1e-9)
        assert r["source_perplexity"] == documented["source_perplexity"]
    for choice in table.CHOICES:
        assert table.row(documented, choice, True)["kl"] < table.row(documented, choice, False)["kl"]


def test_the_written_table_says_what_the_document_says(documented: dict[str, Any], tmp_path: Path) -> None:
    written = (BENCHMARKS / f"{table.NAME}.md").read_text()
    assert written == table.table(documented)
    rows = re.findall(r"^\| ([\w-]+) \| (none|\d+ steps) \| ([-+.\d]+) % ", written, re.MULTILINE)
    assert len(rows) == len(documented["rows"])
    for (mixers, steps, percent), r in zip(rows, documented["rows"]):
        assert (mixers, steps != "none") == (r["mixers"], r["refined"])
        assert float(percent) == pytest.approx(r["percent"], abs=0.0051)
    table.picture(tmp_path / "made.png", documented)
    assert (tmp_path / "made.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (BENCHMARKS / f"{table.NAME}.png").stat().st_size < 200_000


def test_the_loss_follows_the_dynamic_share(documented: dict[str, Any]) -> None:
    """The second table, of a model trained with mixers that move more: its text, and that it says so."""
    place = BENCHMARKS / f"{table.NAME}_strong"
    strong = json.loads(place.with_suffix(".json").read_text())
    assert place.with_suffix(".md").read_text() == table.table(strong)
    assert np.mean(strong["dynamic_share"]) > 3 * np.mean(documented["dynamic_share"])
    for choice in table.CHOICES:
        assert table.row(strong, choice, False)["kl"] > 10 * table.row(documented, choice, False)["kl"]
        assert table.row(strong, choice, True)["kl"] < table.row(strong, choice, False)["kl"]
    assert table.row(strong, "mean", True)["percent"] > table.REFINED


def test_the_table_can_be_made_again(documented: dict[str, Any]) -> None:
    """Rows without a fit, on part of both texts, with the figures of the whole ones near."""
    choices = ("mean", "identity")
    made = table.measure(DATA, steps=0, text=training_text(), tokens=TOKENS, choices=choices)
    assert [(r["mixers"], r["refined"]) for r in made["rows"]] == [(choice, False) for choice in choices]
    for r in made["rows"]:
        wanted = table.row(documented, r["mixers"], False)
        assert r["kl"] == pytest.approx(wanted["kl"], rel=0.5)
        assert r["cond"] == pytest.approx(wanted["cond"], rel=0.2)
