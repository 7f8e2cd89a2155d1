"""The byte model: configuration, causality, initial values, bad tokens."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import pytest
import torch
from rule_networks import BASE, config, network, tokens

from streamgauge.simulate.config import ModelConfig, NormGateConfig, from_document, to_document
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.theory.errors import InputError


@pytest.mark.parametrize("case", ["mhc-logits", "converted-gated", "residual"])
def test_logits_do_not_look_ahead(case: str) -> None:
    model = network(case)
    x = tokens(model)
    changed = x.clone()
    changed[:, 4] = (changed[:, 4] + 1) % model.config.vocab
    with torch.no_grad():
        difference = (model(x) - model(changed)).abs().amax((0, 2))
    assert difference[:4].max() == 0
    assert difference[4] > 1e-6


def test_loss_is_mean_surprise() -> None:
    model = network("mhc-matrix")
    x, y = tokens(model), tokens(model, seed=1)
    with torch.no_grad():
        loss, logits = model.loss(x, y), model(x)
    total = 0.0
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            row = [math.exp(float(v)) for v in logits[b, t]]
            total -= math.log(row[int(y[b, t])] / sum(row))
    assert float(loss) == pytest.approx(total / x.numel(), rel=1e-12)


def test_initial_values_depend_on_the_seed_alone() -> None:
    settings = config(mixer="logits", recipe="paper")
    first, second, other = (ByteLM(settings) for _ in range(3))
    initialise(first, 5)
    torch.manual_seed(99)
    initialise(second, 5)
    initialise(other, 6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))
    assert not torch.equal(first.embed.weight, other.embed.weight)
    streams = first.streams(tokens(first))[-1].detach()
    assert float((streams[..., 0, :] - streams[..., 1, :]).abs().max()) > 0.1  # the streams differ


BAD_TOKENS = {
    "dtype": (torch.zeros(1, 2), "found torch.float32"),
    "one axis": (torch.zeros(3, dtype=torch.int64), "of shape (3,)"),
    "too long": (torch.zeros(1, 9, dtype=torch.int64), "1 to 8"),
    "empty": (torch.zeros(1, 0, dtype=torch.int64), "of shape (1, 0)"),
    "value": (torch.full((1, 2), 17), "found values 17 to 17, expected 0 to 16"),
    "negative": (torch.full((1, 2), -1), "found values -1 to -1"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_bad_tokens(name: str) -> None:
    given, words = BAD_TOKENS[name]
    with pytest.raises(InputError) as caught:
        network("ihc")(given)
    assert words in str(caught.value)


# --- config.json


def test_config_round_trip_keeps_what_it_does_not_know() -> None:
    settings = config(residual="norm-gated", norm_gate={"eps": 0.5, "cap": 2})
    document = json.loads(json.dumps(to_document(settings, {"training": {"steps": 3}, "later": [1, None]})))
    again, metadata = from_document(document)
    assert again == settings
    assert again.norm_gate == NormGateConfig(0.5, 2.0)
    assert metadata == {"training": {"steps": 3}, "later": [1, None]}
    assert to_document(again, metadata) == document


def test_an_old_config_takes_the_documented_defaults() -> None:
    old = {k: BASE[k] for k in ("context", "width", "streams", "sites", "heads", "hidden", "residual")}
    settings = ModelConfig.from_json({**old, "gauge": None, "loops": None, "norm_gate": None})
    assert (settings.loops, settings.gauge, settings.entry, settings.readout) == (1, False, "copy", "sum")
    assert (settings.vocab, settings.rms_eps, settings.hc_eps, settings.post_mult) == (256, 1e-6, 1e-6, 2.0)
    assert settings.norm_gate is None
    assert config(residual="norm-gated").norm_gate == NormGateConfig(0.0, None)


BAD_CONFIGS = {
    "unknown field": ({"readuot": "sum"}, "config model.readuot: unknown field, expected one of context"),
    "missing field": ({"width": None}, "config model.width: missing, expected a value (it has no default)"),
    "rule": ({"residual": "iHC"}, "config model.residual: found 'iHC', expected one of residual, hc, mhc"),
    "branch": ({"sites": ["mlp", "moe"]}, "config model.sites[1]: found 'moe', expected one of attention, mlp"),
    "sites": ({"sites": "mlp"}, "config model.sites: found 'mlp', expected a list"),
    "size": ({"streams": 0}, "config model.streams: found 0, expected a positive integer"),
    "huge": ({"width": 10**15}, "config model.width: found 1000000000000000, expected at most 16777216"),
    "enormous": ({"vocab": 10**400}, "config model.vocab: found about 2^1328, expected at most 16777216"),
    "enormous eps": ({"rms_eps": 10**400}, "config model.rms_eps: found an integer beyond 2^64"),
    "many streams": ({"streams": 4096}, "config model.streams: found 4096, expected at most 1024"),
    "many sites": ({"sites": ["mlp"] * 10_001}, "config model.sites: found 10001 sites, expected at most 10000"),
    "truth value": ({"loops": True}, "config model.loops: found True, expected a positive integer"),
    "number": ({"rms_eps": "small"}, "config model.rms_eps: found 'small', expected a finite number >= 0"),
    "beyond float32": ({"rms_eps": 1e39}, "config model.rms_eps: found 1e+39, expected at most 3.40282e+38"),
    "recipe is no name": (
        {"mixer": "logits", "recipe": {"name": "paper"}},
        "config model.recipe: found {'name': 'paper'}, expected a Sinkhorn recipe: paper",
    ),
    "not finite": ({"hc_eps": math.inf}, "config model.hc_eps: found inf"),
    "heads": ({"heads": 3}, "config model.heads: found 3, expected width / heads even (8)"),
    "recipe": ({"mixer": "logits"}, "config model.recipe: found None, expected a Sinkhorn recipe: paper"),
    "one stream": ({"residual": "residual"}, "config model.streams: found 3, expected 1 for residual 'residual'"),
    "free mixer": (
        {"residual": "hc", "mixer": "logits"},
        "config model.mixer: found 'logits', expected 'matrix' for residual 'hc'",
    ),
    "gauge": ({"gauge": 1}, "config model.gauge: found 1, expected true or false"),
    "gauge rule": ({"gauge": True}, "config model.residual: found 'mhc', expected 'ihc' or 'gated' or 'norm-gated'"),
    "gauge entry": ({"gauge": True, "residual": "ihc"}, "config model.entry: found 'copy', expected 'free'"),
    "gauge loops": (
        {"gauge": True, "residual": "ihc", "entry": "free", "loops": 2},
        "config model.loops: found 2, expected 1 with gauge true",
    ),
    "norm gate": ({"norm_gate": {"epsilon": 1}}, "config model.norm_gate: found {'epsilon': 1}, expected {'eps'"),
    "cap": ({"norm_gate": {"cap": 0}}, "config model.norm_gate.cap: found 0, expected a positive number or null"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_bad_config_is_one_line_naming_the_field(name: str) -> None:
    changes, words = BAD_CONFIGS[name]
    with pytest.raises(InputError) as caught:
        config(**changes)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


BAD_DOCUMENTS = {
    "not an object": ([], "config: found list, expected an object"),
    "foreign": ({"model_type": "gpt"}, "config format: found None, expected 'streamgauge'"),
    "newer": (
        {"format": "streamgauge", "format_version": 2, "model": {}},
        "config format_version: found 2, expected 1",
    ),
    "no model": ({"format": "streamgauge", "format_version": 1}, "config model: missing"),
    "model": ({"format": "streamgauge", "format_version": 1, "model": 3}, "config model: found int"),
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_bad_document(name: str) -> None:
    document, words = BAD_DOCUMENTS[name]
    with pytest.raises(InputError) as caught:
        from_document(document)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("room", ["simulate", "kernels"])
def test_import_without_torch_names_the_extra(room: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import streamgauge.theory, streamgauge.{room}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == f"ModuleNotFoundError: {room} needs torch: pip install 'streamgauge[torch]'"
