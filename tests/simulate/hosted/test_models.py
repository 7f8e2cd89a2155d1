"""Loading models, and twins that share the source's tensors."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused
from safetensors.torch import load_file, save_file
from torch import Tensor

import streamgauge as sg

transformers = pytest.importorskip("transformers", minversion="5.24")

from hf_models import tiny  # noqa: E402
from hosted_models import files  # noqa: E402

from streamgauge.simulate.attach_files import read_sidecar, write_sidecar  # noqa: E402
from streamgauge.simulate.hosted.models import (  # noqa: E402
    attached_twin,
    connections,
    evaluating,
    load_model,
    load_pair,
    logits_of,
    shared_copy,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files(tmp_path_factory.mktemp("hosted"))


def tokens() -> Tensor:
    return torch.randint(256, (2, 24), generator=torch.Generator().manual_seed(1))


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return logits_of(model, tokens())


def test_a_twin_shares_every_tensor_but_the_mixers(made: Path) -> None:
    source = load_model(made / "source")
    before, state = logits(source), source.state_dict()
    twin = attached_twin(source, made / "out")
    assert not {id(m) for m in source.modules()} & {id(m) for m in twin.modules()}
    shared = [name for name, tensor in twin.state_dict().items() if "hc" not in name]
    assert shared == [name for name in state if "hc" not in name]
    assert all(twin.state_dict()[name].data_ptr() == state[name].data_ptr() for name in shared)
    wanted = logits(sg.attach(load_model(made / "source"), made / "out"))
    assert torch.equal(logits(twin), wanted)
    assert torch.equal(logits(source), before)
    assert not torch.equal(wanted, before)
    assert list(source.state_dict()) == list(state)


def test_a_shared_copy_is_the_same_function(made: Path) -> None:
    source = load_model(made / "source", device_map="cpu")
    copied = shared_copy(source)
    assert torch.equal(logits(copied), logits(source))
    with torch.no_grad():
        source.lm_head.weight.zero_()
    assert not logits(copied).any()


def test_every_kind_of_folder_gives_the_same_model(made: Path, tmp_path: Path) -> None:
    _, twin = load_pair(made / "source", made / "out")
    _, by_file = load_pair(made / "source", made / "out" / "sidecar.safetensors")
    source, full = load_pair(made / "source", made / "full")
    full.save_pretrained(tmp_path / "saved")
    _, saved = load_pair(made / "source", tmp_path / "saved")
    wanted = logits(twin)
    assert all(torch.equal(logits(other), wanted) for other in (by_file, full, saved))
    assert full.lm_head.weight.data_ptr() != source.lm_head.weight.data_ptr()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_dtypes(dtype: str, made: Path) -> None:
    source, other = load_pair(made / "source", made / "out", dtype=dtype)
    wide = "float64" if dtype == "float64" else "float32"
    assert logits(source).dtype == logits(other).dtype == getattr(torch, dtype)
    assert {p.dtype for m in connections(other) for p in m.parameters()} == {getattr(torch, wide)}
    assert not source.training
    assert not other.training


def test_float64_is_so_throughout(made: Path) -> None:
    """These models cast to float32 inside; a float32 model in float64 has to be as far away as its own rounding."""
    wide, narrow = (load_model(made / "source", dtype=dtype) for dtype in ("float64", "float32"))
    with torch.no_grad():
        cast = wide(input_ids=tokens(), use_cache=False).logits
    wanted = logits(wide)
    apart = float((logits(narrow).double() - wanted).abs().max())
    assert 0.01 * apart < float((cast - wanted).abs().max()) < 10 * apart
    rounded = logits(load_model(made / "source", dtype="float64", device_map="cpu"))
    assert torch.equal(rounded, wanted)
    _, attached = load_pair(made / "source", made / "out", dtype="float64")
    again, _ = load_pair(made / "source", made / "full", dtype="float64")
    assert torch.equal(logits(again), wanted)
    assert not torch.equal(logits(attached), wanted)


def test_modes_come_back(made: Path) -> None:
    source = load_model(made / "source")
    source.model.layers[1].train()
    before = [module.training for module in source.modules()]
    with evaluating(source):
        assert not any(module.training for module in source.modules())
    assert [module.training for module in source.modules()] == before
    assert any(before)
    assert not all(before)


def test_loading_says_nothing_and_keeps_the_settings(made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings = transformers.utils.logging
    for level, switch in ((10, settings.enable_progress_bar), (40, settings.disable_progress_bar)):
        settings.set_verbosity(level)
        switch()
        load_model(made / "full", converted=True)
        assert (settings.get_verbosity(), settings.is_progress_bar_enabled()) == (level, level == 10)
    assert capfd.readouterr().out == capfd.readouterr().err == ""


def test_a_model_without_a_head(tmp_path: Path) -> None:
    text_only = tiny("glm5_next")
    text_only.save_pretrained(tmp_path / "text")
    loaded = load_model(tmp_path / "text")
    assert_refused(
        lambda: logits_of(loaded, tokens() % 64), "Glm5NextTextModel: has no language-model head, expected"
    )


def stranger(path: Path) -> None:
    (path / "config.json").write_text(json.dumps({"model_type": "llama"}))


def no_type(path: Path) -> None:
    (path / "config.json").write_text("{}")


def no_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()


def cut_off(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


def pickled(path: Path) -> None:
    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()


def outside(path: Path) -> None:
    """An index that names a file beside the folder."""
    names = dict.fromkeys(load_file(path / "model.safetensors"), "../one")
    (path / "model.safetensors").rename(path.parent / "one")
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def without(*parts: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        kept = {name: tensor for name, tensor in tensors.items() if not all(part in name for part in parts)}
        save_file(kept, path / "model.safetensors", {"format": "pt"})

    return change


def config_with(**changed: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**config, **changed}))

    return change


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "stranger": (stranger, "found a model of type 'llama', expected one of deepseek_v4, glm5_next"),
    "no type": (no_type, "found a model of type None"),
    "no weights": (no_weights, "no safetensors file, expected"),
    "cut off": (cut_off, "truncated, "),
    "pickle": (pickled, "holds pytorch_model.bin, a pickle; expected safetensors"),
    "outside": (outside, r"names '\.\./one', expected a file of the folder itself"),
    "other width": (config_with(hidden_size=48), r"tensor lm_head.weight is \(256, 32\), expected \(256, 48\)"),
    "wrong type": (config_with(hc_mult="4"), r"cannot be loaded \(StrictDataclass\w*: .*'hc_mult' expected int"),
    "layers": (config_with(layer_types=["sliding_attention"]), r"cannot be loaded \(StrictDataclass"),
    "padding": (config_with(pad_token_id=999), r"cannot be loaded \(AssertionError: Padding_idx"),
    "type of types": (config_with(model_type=["deepseek_v4"]), r"found a model of type \['deepseek_v4'\]"),
    "no layers": (
        config_with(num_hidden_layers=0, layer_types=[], mlp_layer_types=[]),
        "config has num_hidden_layers 0, expected at least 1",
    ),
    "no sweeps": (config_with(hc_sinkhorn_iters=0), "config has hc_sinkhorn_iters 0, expected at least 1"),
    "code": (config_with(attn_implementation="some/kernel"), "config has attn_implementation 'some/kernel', exp"),
    "code within": (
        config_with(_attn_implementation={"text_config": "some/kernel"}),
        "config has _attn_implementation 'some/kernel', exp",
    ),
    "no mixer": (without("layers.2", "hc"), r"has no tensor model.layers.2.\S*, .*\(a converted checkpoint\?\)$"),
    "no embedding": (
        without("embed"),
        r"has no tensor \S*embed_tokens.weight, expected every tensor of the model$",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_folders(case: str, made: Path, tmp_path: Path) -> None:
    change, message = BAD[case]
    shutil.copytree(made / "source", tmp_path / "m")
    load_model(tmp_path / "m")
    change(tmp_path / "m")
    assert_refused(lambda: load_model(tmp_path / "m"), f"^{re.escape(str(tmp_path / 'm'))}.*: {message}")


def test_bad_arguments(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_refused(
        lambda: load_model(made / "source", dtype="float8"), "dtype: found 'float8', expected one of float32,"
    )
    assert_refused(lambda: load_model(made / "none"), "none: not found, expected the folder of a Hugging Face model")
    assert_refused(lambda: load_model(made / "full"), "has no tensor model.hc_head.hc_base")
    monkeypatch.setattr("streamgauge.simulate.hosted.models.find_spec", lambda name: None)
    assert_refused(lambda: load_model(made / "source"), "needs transformers: pip install")


def test_a_damaged_converted_folder_is_refused(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "full", tmp_path / "full")
    shard = next(path for path in (tmp_path / "full").glob("model-*.safetensors"))
    tensors = load_file(shard)
    del tensors[next(name for name in tensors if name in ("lm_head.weight", "head.weight"))]
    save_file(tensors, shard, {"format": "pt"})
    assert_refused(lambda: load_pair(made / "source", tmp_path / "full"), "lm_head.weight")


def test_code_in_a_folder_is_never_run(made: Path, tmp_path: Path) -> None:
    """A config that names classes of its own, with their module beside it."""
    ran = tmp_path / "ran"
    shutil.copytree(made / "source", tmp_path / "m")
    (tmp_path / "m" / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    config_with(auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"})(tmp_path / "m")
    assert type(load_model(tmp_path / "m")).__module__.startswith("transformers.")
    assert not ran.exists()


def test_a_model_that_does_not_run_says_so_in_one_line(made: Path) -> None:
    model = load_model(made / "source")
    model.model.layers[1].mlp.gate.top_k = 9
    assert_refused(
        lambda: logits_of(model, torch.zeros(1, 8, dtype=torch.int64)),
        r"DeepseekV4ForCausalLM: does not run on this text \(RuntimeError: .*out of range",
    )


@pytest.mark.parametrize("place", ["read mult", "write mult", "write eps", "head map eps", "head_norm_eps"])
def test_a_record_with_maps_of_another_model_is_refused(place: str, made: Path, tmp_path: Path) -> None:
    held = read_sidecar(made / "out")
    record = json.loads(json.dumps(held.record))
    *above, last = place.split()
    part = record["model"]
    for name in above:
        part = part[name]
    part[last] += 1.0
    write_sidecar(tmp_path / "sidecar.safetensors", held.tensors, record)
    assert_refused(lambda: load_pair(made / "source", tmp_path), f"record {place.split()[0]} .*, expected ")
