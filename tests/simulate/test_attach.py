"""sg.attach: transformers' own DeepSeek-V4 and GLM-5.3 code on converted streams.  Skipped where it is missing."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from safetensors import safe_open
from torch import Tensor

import streamgauge as sg

transformers = pytest.importorskip("transformers", minversion="5.24")

from hf_models import N, Widened, tiny  # noqa: E402

from streamgauge.simulate.attach import source_streams, streams_module  # noqa: E402
from streamgauge.simulate.attach_files import Sigmoid  # noqa: E402
from streamgauge.simulate.convert import gauged_weight  # noqa: E402
from streamgauge.simulate.formats import sidecar as converter  # noqa: E402

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


def exact(model: Any) -> Tensor:
    """The forward pass of a copy in true float64, casts inside the model included."""
    with Widened():
        found = logits(copy.deepcopy(model).double())
    assert found.dtype is torch.float64
    return found


def attached(model: Any, folder: Path, **options: str) -> Any:
    return sg.attach(copy.deepcopy(model), folder / "out", **options)


@functools.cache
def _figures(model: Any) -> tuple[Tensor, float]:
    reference = exact(model)
    return reference, error(logits(model), reference)


def ratio(out: Any, model: Any) -> float:
    """Error of a float32 network over the source's own, both against the source in float64."""
    reference, own = _figures(model)
    return error(logits(out), reference) / own


def error(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm() / reference.norm())


def median_error(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm(dim=-1).median())


@pytest.mark.parametrize("kind", KINDS)
def test_same_function_in_float64(kind: str, made: Made) -> None:
    model, folder = made(kind)
    out = sg.attach(copy.deepcopy(model).double(), folder / "out", precision="float64")
    with Widened():
        found = logits(out)
    assert error(found, _figures(model)[0]) < 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_round_off_ratio_in_float32(kind: str, made: Made) -> None:
    model, folder = made(kind)
    assert ratio(attached(model, folder), model) <= LIMIT


@pytest.mark.parametrize("kind", KINDS)
def test_round_off_ratio_in_bfloat16(kind: str, made: Made) -> None:
    """Routing may flip here, so the median over tokens counts."""
    _, folder = made(kind)
    kinds = type(made(kind)[0])
    model = kinds.from_pretrained(folder / "source", dtype=torch.bfloat16, experts_implementation="eager")
    reference = exact(model)
    own, found = logits(model), logits(attached(model, folder))
    assert found.dtype is torch.bfloat16
    assert median_error(found, reference) <= LIMIT * median_error(own, reference)


@pytest.mark.parametrize("layers", [16, 43])
def test_deep_models_with_every_kind_of_attention(layers: int, tmp_path: Path) -> None:
    model = tiny("deepseek_v4", num_hidden_layers=layers, layer_types=None, mlp_layer_types=["hash_moe"] * layers)
    model.save_pretrained(tmp_path / "source")
    sg.sidecar(tmp_path / "source", tmp_path / "out")
    assert len(set(model.config.layer_types)) > 1
    assert ratio(attached(model, tmp_path), model) <= LIMIT
    half = type(model).from_pretrained(tmp_path / "source", dtype=torch.bfloat16, experts_implementation="eager")
    reference = exact(half)
    assert median_error(logits(attached(half, tmp_path)), reference) <= LIMIT * median_error(logits(half), reference)


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


def no_metric(model: Any, source: Any) -> None:
    for module in sites(model):
        module.gauge.metric = torch.eye(N)


def weights_by_the_transpose(model: Any, source: Any) -> None:
    for module, old in zip(sites(model), sites(source), strict=True):
        weight = gauged_weight(old.fn[: 2 * N].detach().double().numpy(), module.gauge.read.double().numpy().T)
        module.coef.weight.data = torch.from_numpy(np.ascontiguousarray(weight)).float()


def writes_by_the_transpose(model: Any, source: Any) -> None:
    for module in sites(model):
        module.gauge.write = module.gauge.write.mT.contiguous()


def swapped_eps(model: Any, source: Any) -> None:
    for module in sites(model):
        read, rms = module.read_map, module.coef.rms_eps
        module.read_map, module.coef.rms_eps = Sigmoid(read.mult, rms), read.eps


def no_entry(model: Any, source: Any) -> None:
    sites(model)[0].entry = torch.ones(N)


def head_of_the_source(model: Any, source: Any) -> None:
    streams_module(model).hc_head.forward = streams_module(source).hc_head.forward


FAULTS = (no_metric, weights_by_the_transpose, writes_by_the_transpose, swapped_eps, no_entry, head_of_the_source)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_faults_show(kind: str, fault: Callable[[Any, Any], None], made: Made) -> None:
    model, folder = made(kind)
    out = attached(model, folder)
    fault(out, model)
    assert ratio(out, model) > 10 * LIMIT


@pytest.mark.parametrize("kind", KINDS)
def test_the_wrong_orientation_shows(kind: str, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consistent conversion of A = S in place of S^T, which the converter's own probe refuses."""
    model, folder = made(kind)
    true = converter.static_mixers
    monkeypatch.setattr(converter, "static_mixers", lambda *given: [a.T.copy() for a in true(*given)])
    assert_refused(lambda: sg.sidecar(folder / "source", tmp_path / "refused"), "orientation")
    monkeypatch.setattr(converter, "check_orientation", lambda *_: sg.Verdict(True, "unchecked", {}))
    sg.sidecar(folder / "source", tmp_path / "out")
    assert ratio(attached(model, tmp_path), model) > 10 * LIMIT


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
    with Widened():
        reference = logits(copy.deepcopy(model).double(), prefix)[0, -1]
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
    no_entry(out, model)
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
