"""sg.attach: transformers' own DeepSeek-V4 and GLM-5.3 code on converted streams.  Skipped where it is missing."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused
from safetensors import safe_open
from torch import Tensor

import streamgauge as sg

transformers = pytest.importorskip("transformers", minversion="5.24")

from hf_models import N, tiny, transcribed  # noqa: E402

from streamgauge.simulate.attach import MODELS, source_streams, streams_module  # noqa: E402
from streamgauge.simulate.formats import chosen  # noqa: E402
from streamgauge.simulate.formats.sidecar import Options, convert_folder  # noqa: E402
from streamgauge.simulate.hosted.calibrate import calibrate  # noqa: E402
from streamgauge.simulate.hosted.text import Text  # noqa: E402

KINDS = ("deepseek_v4", "glm5_next")
LIMIT = 2.0
"""Largest round-off ratio of an equal network; a fault exceeds 10 times that."""


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    """By kind: a tiny model and the folder with its checkpoint "source" and sidecar "out"; made once."""
    known: dict[str, tuple[Any, Path]] = {}

    def make(kind: str) -> tuple[Any, Path]:
        if kind not in known:
            folder = tmp_path_factory.mktemp(kind)
            model = tiny(kind)
            model.save_pretrained(folder / "source")
            sg.sidecar(folder / "source", folder / "out")
            known[kind] = model, folder
        return known[kind]

    return make


Made = Callable[[str], tuple[Any, Path]]


def tokens() -> Tensor:
    return torch.randint(64, (2, 32), generator=torch.Generator().manual_seed(1))


def logits(model: Any, given: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        out = model(tokens() if given is None else given)
    found: Tensor = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return found


def attached(model: Any, folder: Path, **options: str) -> Any:
    return sg.attach(copy.deepcopy(model), folder / "out", **options)


def ratio(out: Any, model: Any) -> float:
    """Error of a float32 network over the source's own, both against the source in float64."""
    reference = transcribed(model, tokens()).output
    return error(logits(out), reference) / error(logits(model), reference)


def error(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm() / reference.norm())


@pytest.mark.parametrize("mixers", ["mean", "token-gates"])
@pytest.mark.parametrize("kind", KINDS)
def test_static_mixers_measured_along_a_text_are_the_same_function(
    kind: str, mixers: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with the means as measured, in float32, in place of the stored mixers."""
    model, folder = made(kind)
    seen = calibrate(model, Text(tokens(), "random", "0" * 64, "bytes"))
    convert_folder(folder / "source", tmp_path / "out", Options(mixers), measured=seen)
    assert ratio(attached(model, tmp_path), model) <= LIMIT
    monkeypatch.setattr(chosen, "_still", lambda *_: False)
    (tmp_path / "again").mkdir()
    found = convert_folder(folder / "source", tmp_path / "again" / "out", Options(mixers), measured=seen)
    assert found.form.chain.mixers[1].tolist() == seen.mixers[1].tolist()
    out = attached(model, tmp_path / "again")
    assert ratio(out, model) <= LIMIT
    if mixers == "token-gates":
        for module in sites(out):
            module.recipe = dataclasses.replace(module.recipe, transpose=False)
        assert ratio(out, model) > 10 * LIMIT


def test_norm_gates_run_too(made: Made, tmp_path: Path) -> None:
    model, folder = made("deepseek_v4")
    sg.sidecar(folder / "source", tmp_path / "out", norm=True)
    out = attached(model, tmp_path)
    assert ratio(out, model) <= LIMIT
    for module in sites(out):
        module.norm_gate = None
    assert ratio(out, model) > 10 * LIMIT


def sites(model: Any) -> list[Any]:
    return [getattr(layer, name) for layer in streams_module(model).layers for name in ("attn_hc", "ffn_hc")]


def no_entry(model: Any) -> None:
    sites(model)[0].entry = torch.ones(N)


def generated(model: Any, **options: Any) -> Tensor:
    made: Tensor = model.generate(tokens()[:1, :8], max_new_tokens=50, do_sample=False, pad_token_id=0, **options)
    return made[0]


def parts_at_a_tie(model: Any, mine: Tensor, theirs: Tensor) -> bool:
    """Whether two continuations are equal, or part where the source's best two logits are closer than round-off."""
    apart = (mine != theirs).nonzero()
    if len(apart) == 0:
        return True
    prefix = mine[None, : int(apart[0])]
    own = logits(model, prefix)[0, -1].double()
    reference = transcribed(model, prefix).output[0, -1]
    best = own.topk(2).values
    return bool(best[0] - best[1] <= (1 + LIMIT) * 2 * (own - reference).abs().max())


@pytest.mark.parametrize("varied", [False, True], ids=["sliding", "compressed"])
def test_generation_with_a_cache_is_the_source_s(varied: bool, tmp_path: Path) -> None:
    types = {"layer_types": None, "mlp_layer_types": None} if varied else {}
    model = tiny("deepseek_v4", seed=3, **types)
    model.save_pretrained(tmp_path / "source")
    sg.sidecar(tmp_path / "source", tmp_path / "out")
    out = attached(model, tmp_path)
    mine, theirs = generated(model), generated(out)
    assert len(mine) == 58
    assert len(mine.unique()) > 5
    assert parts_at_a_tie(model, mine, theirs)
    no_entry(out)
    assert not parts_at_a_tie(model, mine, generated(out))


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_states_are_the_source_s(kind: str, made: Made) -> None:
    model, folder = made(kind)
    out = attached(model, folder)
    inside: list[Tensor] = []
    for layer in streams_module(out).layers:
        layer.register_forward_hook(
            lambda _, given, made: inside.append(made[0] if isinstance(made, tuple) else made)
        )
    with torch.no_grad():
        wanted = model(tokens(), output_hidden_states=True).hidden_states
        found = out(tokens(), output_hidden_states=True).hidden_states
        plain = out(tokens(), output_hidden_states=True, return_dict=False)
    assert len(found) == len(wanted) == 5
    assert all(error(x, y.double()) < 1e-5 for x, y in zip(found, wanted, strict=True))
    states = next(item for item in plain if isinstance(item, tuple) and len(item) == 5)
    assert all(torch.equal(x, y) for x, y in zip(states, found, strict=True))
    assert torch.equal(source_streams(out, 2, inside[1]), found[2])
    assert error(inside[1], wanted[2].double()) > 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading(kind: str, made: Made, tmp_path: Path) -> None:
    model, folder = made(kind)
    out = attached(model, folder)
    with torch.no_grad():
        for module in sites(out):
            module.gates.mul_(0.9)  # as if trained
    wanted = logits(out)
    out.save_pretrained(tmp_path / "saved")
    with safe_open(tmp_path / "saved" / "model.safetensors", framework="pt") as stored:
        assert not [name for name in stored.keys() if "hc_" in name or "_hc" in name]  # noqa: SIM118
    again = type(model).from_pretrained(tmp_path / "saved", experts_implementation="eager").eval()
    assert not torch.equal(logits(again), wanted)
    assert torch.equal(logits(sg.attach(again, tmp_path / "saved")), wanted)
    assert type(out).__name__ == type(model).__name__
    assert torch.equal(logits(copy.deepcopy(out)), wanted)
    assert_refused(lambda: out.save_pretrained(tmp_path / "hub", push_to_hub=True), "push_to_hub")
    assert_refused(lambda: out.save_pretrained(tmp_path / "part", state_dict={}), r"state_dict has no \S+, expected")
    assert not (tmp_path / "hub").exists()
    assert not (tmp_path / "part").exists()


def test_formats_that_run_here_are_the_ones_that_can_be_measured() -> None:
    assert set(MODELS.values()) == set(chosen.HOSTED)


def test_a_complete_checkpoint_loads(made: Made, tmp_path: Path) -> None:
    model, folder = made("deepseek_v4")
    sg.sidecar(folder / "source", tmp_path / "full", full=True)
    loaded = type(model).from_pretrained(tmp_path / "full", experts_implementation="eager", device_map="cpu").eval()
    assert torch.equal(logits(sg.attach(loaded, tmp_path / "full")), logits(attached(model, folder)))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training(checkpointing: bool, made: Made) -> None:
    model, folder = made("deepseek_v4")
    out = attached(model, folder).train()
    if checkpointing:
        out.activation_checkpointing_enable()
    gauge = [module.gauge.read.clone() for module in sites(out)]
    steps = torch.optim.Adam(out.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        loss = out(tokens(), labels=tokens(), use_cache=False).loss
        steps.zero_grad()
        loss.backward()
        losses.append(loss.item())
        for name, parameter in out.named_parameters():
            if "_hc" in name or "hc_" in name:
                assert parameter.grad is not None, name
                assert parameter.grad.isfinite().all(), name
        steps.step()
    assert losses[-1] < losses[0] - 0.1
    assert all(torch.equal(module.gauge.read, kept) for module, kept in zip(sites(out), gauge, strict=True))


def test_strangers_are_refused_and_left_alone(made: Made, tmp_path: Path) -> None:
    model, folder = made("deepseek_v4")
    _, other = made("glm5_next")
    before = logits(model)
    deeper = tiny("deepseek_v4", num_hidden_layers=5, layer_types=None, mlp_layer_types=["moe"] * 5)
    changed = copy.deepcopy(model)
    changed.model.layers[2].ffn_hc.fn.data[0, 0] += 1e-3
    shifted = copy.deepcopy(model)
    shifted.model.layers[1].attn_hc.base.data[0] += 1e-6
    config = copy.deepcopy(model)
    config.config.hc_eps = 1e-5
    assert_refused(lambda: sg.attach(model, other / "out"), "made of format 'glm5-next', expected 'deepseek-v4'")
    assert_refused(lambda: sg.attach(deeper, folder / "out"), "has 8 sites, expected 10")
    assert_refused(lambda: sg.attach(changed, folder / "out"), r"sites\.5 was made of other weights")
    assert_refused(lambda: sg.attach(shifted, folder / "out"), r"sites\.2 was made of other weights")
    assert_refused(lambda: sg.attach(config, folder / "out"), "hc_eps")
    assert_refused(lambda: sg.attach(attached(model, folder), folder / "out"), "attached already")
    assert_refused(lambda: sg.attach(torch.nn.Linear(2, 2), folder / "out"), "found a model of type None")
    assert_refused(lambda: sg.attach(model, folder / "out", precision="float16"), "precision: found 'float16'")
    assert_refused(lambda: sg.attach(model, tmp_path / "nothing"), "not found")
    offloaded = copy.deepcopy(model)
    offloaded.model.layers[0].attn_hc.to("meta")
    assert_refused(lambda: sg.attach(offloaded, folder / "out"), "offloaded")
    assert torch.equal(logits(model), before)
