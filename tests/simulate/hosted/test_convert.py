"""Conversion with the model running: measured, fitted, compared on held-out text, all or nothing."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import liger
from refusals import assert_refused
from safetensors import safe_open
from safetensors.numpy import load_file

transformers = pytest.importorskip("transformers", minversion="5.24")

from moving_mixers import mixers_of, moving, text_file, whole_glm  # noqa: E402

import streamgauge as sg  # noqa: E402
from streamgauge.simulate.attach_files import read_sidecar  # noqa: E402
from streamgauge.simulate.formats import writer  # noqa: E402
from streamgauge.simulate.hosted import convert as hosted  # noqa: E402
from streamgauge.simulate.hosted.calibrate import calibrate  # noqa: E402
from streamgauge.simulate.hosted.models import load_model  # noqa: E402
from streamgauge.simulate.hosted.text import read_text, split  # noqa: E402
from streamgauge.theory.gates import norm_factor  # noqa: E402

READ: dict[str, Any] = {"context": 64}
STEPS = 6
Case = tuple[Any, Path]


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def made(kind: str, folder: Path) -> Case:
    """A model that predicts bytes, and the folder with its checkpoint "source" and a "text"."""
    model = whole_glm() if kind == "glm5_next" else moving("deepseek_v4", vocab_size=256)
    model.save_pretrained(folder / "source")
    text_file(folder / "text")
    return model, folder


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """DeepSeek-V4."""
    return made("deepseek_v4", tmp_path_factory.mktemp("deepseek_v4"))


@pytest.fixture(scope="module", params=["deepseek_v4", "glm5_next"])
def either(request: pytest.FixtureRequest, case: Case, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """DeepSeek-V4, or GLM-5.3 whole, which runs slowly here."""
    return case if request.param == "deepseek_v4" else made("glm5_next", tmp_path_factory.mktemp("glm5_next"))


def record_of(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="numpy") as stored:
        found: dict[str, Any] = json.loads(stored.metadata()["record"])
    return found


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir()) if p.is_file()}


def by_hand(source: Any, other: Any, tokens: torch.Tensor) -> dict[str, float]:
    """KL, perplexities and agreement from all logits at once, in numpy."""
    with torch.no_grad():
        both = [model(input_ids=tokens).logits.double().numpy() for model in (source, other)]
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in both)
    told = tokens.numpy()[:, 1:, None]
    surprise = [-np.take_along_axis(x[:, :-1], told, -1).mean() for x in (p, q)]
    return {
        "kl": float((np.exp(p) * (p - q)).sum(-1).mean()),
        "source_perplexity": float(np.exp(surprise[0])),
        "perplexity": float(np.exp(surprise[1])),
        "agreement": float((p.argmax(-1) == q.argmax(-1)).mean()),
    }


def agrees(found: Any, wanted: dict[str, float]) -> bool:
    return {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("mixers", ["bias", "mean", "token-gates", "identity"])
def test_the_loss_is_that_of_the_file_on_held_out_text(mixers: str, either: Case, tmp_path: Path) -> None:
    model, folder = either
    made = sg.sidecar(folder / "source", tmp_path / "out", mixers=mixers, text=folder / "text", **READ)
    first, last = split(read_text(folder / "text", folder / "source", context=64))
    assert made.loss is not None
    assert made.loss["text"] == last.document()
    out = sg.attach(copy.deepcopy(model), tmp_path / "out")
    assert agrees(made.loss["converted"], by_hand(model, out, last.tokens))
    assert not agrees(made.loss["converted"], by_hand(model, out, first.tokens))
    record = record_of(made.path)
    assert record["loss"] == json.loads(json.dumps(made.loss))
    assert ("calibration" in record) is (mixers in ("mean", "token-gates"))
    if made.measured is not None:
        assert record["calibration"]["text"] == first.document()
        again = calibrate(model, first)
        assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(made.measured.mixers, again.mixers, strict=True))
    assert made.form.form == ("identity" if mixers == "identity" else "graded")
    tensors = load_file(made.path)
    if mixers == "identity":
        assert all((tensors[f"sites.{l}.gates"] == 1).all() for l in range(8))
        assert all(np.array_equal(tensors[f"sites.{l}.gauge.read"], np.eye(4)) for l in range(8))


def test_a_static_model_loses_nothing(tmp_path: Path) -> None:
    moving("deepseek_v4", 0.0, vocab_size=256).save_pretrained(tmp_path / "source")
    text = text_file(tmp_path / "text", 1024)
    for mixers in ("exact", "mean", "token-gates"):
        made = sg.sidecar(tmp_path / "source", tmp_path / mixers, mixers=mixers, text=text, **READ)
        assert made.loss is not None
        assert made.loss["converted"]["kl"] < 1e-9
        assert made.loss["converted"]["agreement"] == 1


@pytest.mark.parametrize("mixers", ["identity", "token-gates"])
def test_refined_tensors_are_in_the_file_and_the_record_says_so(mixers: str, either: Case, tmp_path: Path) -> None:
    model, folder = either
    given = {"mixers": mixers, "text": folder / "text", **READ}
    before = digests(folder / "source")
    plain = sg.sidecar(folder / "source", tmp_path / "plain", **given)
    made = sg.sidecar(folder / "source", tmp_path / "out", refine=STEPS, **given)
    assert digests(folder / "source") == before
    first, last = split(read_text(folder / "text", folder / "source", context=64))
    out = sg.attach(copy.deepcopy(model), tmp_path / "out")
    assert made.loss is not None
    assert made.refined
    assert not plain.refined
    assert agrees(made.loss["refined"], by_hand(model, out, last.tokens))
    assert made.loss["converted"] == (plain.loss or {})["converted"]
    assert not agrees(made.loss["converted"], by_hand(model, out, last.tokens))

    record, said = record_of(made.path), record_of(made.path)["refined"]
    assert (said["steps"], len(said["losses"]), said["losses_every"]) == (STEPS, STEPS, 1)
    assert said["text"] == first.document()
    assert said["validation_kl"] < said["validation_kl_before"]
    assert any(f"fitted to the source's predictions in {STEPS} steps" in text for text in record["notes"])
    assert {k: v for k, v in record.items() if k not in ("refined", "notes", "residual", "loss")} == {
        k: v for k, v in record_of(plain.path).items() if k not in ("notes", "residual", "loss")
    }
    old, new = load_file(plain.path), load_file(made.path)
    changed = {name for name in old if not np.array_equal(old[name], new[name])}
    assert {"sites.0.coef.weight", "sites.7.coef.base"} <= changed
    assert not [name for name in changed if ".gauge." in name or ".mixer." in name or name == "entry"]
    assert ("sites.1.gates" in changed) is (mixers == "identity")
    levels = [*(new[f"sites.{l}.gauge.read"] for l in range(8)), new["head.gauge.read"]]
    misses = []
    for l in range(8):
        a, p = new[f"sites.{l}.mixer.matrix"], levels[l]
        miss = abs(a @ p - levels[l + 1] * new[f"sites.{l}.gates"]).max(0)
        misses.append((miss / (abs(a).sum(1).max() * abs(p).max(0))).max())
    assert record["residual"] == pytest.approx(max(misses), rel=1e-6, abs=1e-14)
    assert made.form.residuals().max() == pytest.approx(record["residual"], rel=1e-9, abs=1e-14)
    assert said["residual_before"] < 1e-12
    assert (record["residual"] > 1e-4) is (mixers == "identity")
    assert not (tmp_path / "out" / "certificate.json").exists()


def test_a_fit_that_finds_nothing_better_changes_nothing(tmp_path: Path) -> None:
    """A static model's conversion is exact: every step makes it worse, and the file stays as it was converted."""
    moving("deepseek_v4", 0.0, vocab_size=256).save_pretrained(tmp_path / "source")
    given = {"text": text_file(tmp_path / "text", 1024), **READ}
    plain = sg.sidecar(tmp_path / "source", tmp_path / "plain", **given)
    made = sg.sidecar(tmp_path / "source", tmp_path / "out", refine=2, **given)
    assert not made.refined
    assert made.loss is not None
    assert made.loss["fit"] == {"steps": 2, "best_step": 0}
    old, new = load_file(plain.path), load_file(made.path)
    assert all(np.array_equal(old[name], new[name]) for name in old)
    record = record_of(made.path)
    assert "refined" not in record
    assert "a fit of 2 steps found nothing better: nothing is fitted" in record["notes"]
    assert sg.check(tmp_path / "out" / "certificate.json", file=tmp_path / "out", source=tmp_path / "source")


def test_a_refined_sidecar_still_knows_its_model(case: Case, tmp_path: Path) -> None:
    model, folder = case
    sg.sidecar(folder / "source", tmp_path / "out", mixers="bias", text=folder / "text", refine=8, **READ)
    held = read_sidecar(tmp_path / "out")
    assert held.refined
    assert held.comparable
    base, scale = held.source_controller(3)
    assert torch.equal(base.float(), mixers_of(model)[3].base[:8])
    assert torch.equal(scale.float(), mixers_of(model)[3].scale[:2])
    other = copy.deepcopy(model)
    mixers_of(other)[3].base.data[1] += 1e-3
    assert_refused(lambda: sg.attach(other, tmp_path / "out"), r"sites\.3 was made of other weights")
    out = sg.attach(copy.deepcopy(model), tmp_path / "out")
    out.save_pretrained(tmp_path / "saved")
    again = read_sidecar(tmp_path / "saved")
    assert again.refined
    assert not again.comparable


def test_norm_gates_are_fitted_too(case: Case, tmp_path: Path) -> None:
    _, folder = case
    given = {"mixers": "mean", "text": folder / "text", "norm": sg.NormGate(cap=1.0), **READ}
    made = sg.sidecar(folder / "source", tmp_path / "out", refine=8, **given)
    tensors = load_file(made.path)
    gate = sg.NormGate(cap=1.0)
    for l in (0, 5):
        stored = tensors[f"sites.{l}.gates"]
        assert np.allclose(made.form.gates[l], norm_factor(stored, gate) * stored, rtol=1e-12)


def test_a_whole_checkpoint_is_fitted_too(case: Case, tmp_path: Path) -> None:
    _, folder = case
    given = {"mixers": "mean", "text": folder / "text", "refine": 8, **READ}
    full = sg.sidecar(folder / "source", tmp_path / "full", full=True, **given)
    small = sg.sidecar(folder / "source", tmp_path / "small", **given)
    assert full.refined
    assert full.loss == small.loss
    whole, alone = load_file(full.path), load_file(small.path)
    assert whole.keys() == {f"streamgauge.{name}" for name in alone}
    assert all(np.array_equal(whole[f"streamgauge.{name}"], array) for name, array in alone.items())
    loaded = load_model(tmp_path / "full", converted=True)
    assert torch.isfinite(sg.attach(loaded, tmp_path / "full")(input_ids=torch.arange(64)[None]).logits).all()


@pytest.mark.parametrize("moment", ["calibrating", "comparing", "refining"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_interruptions_leave_nothing(moment: str, error: type[BaseException], case: Case, tmp_path: Path) -> None:
    _, folder = case
    before = digests(folder / "source")

    def stop(done: int, total: int, what: str) -> None:
        if what.startswith(moment):
            raise error

    given = {"mixers": "mean", "text": folder / "text", "refine": 2, **READ}
    with pytest.raises(error):
        sg.sidecar(folder / "source", tmp_path / "out", progress=stop, **given)
    assert not list(tmp_path.iterdir())
    assert digests(folder / "source") == before
    if error is KeyboardInterrupt and moment == "comparing":
        sg.sidecar(folder / "source", tmp_path / "out", **given)
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_held_out_text_of_its_own(case: Case, tmp_path: Path) -> None:
    _, folder = case
    other = text_file(tmp_path / "other", 1000, seed=1)
    given = {"mixers": "mean", "text": folder / "text", "tokens": 512, **READ}
    made = sg.sidecar(folder / "source", tmp_path / "out", held_out=other, **given)
    assert made.loss is not None
    assert made.measured is not None
    assert (made.measured.tokens, made.loss["text"]["tokens"]) == (512, 512)
    assert made.loss["text"]["sha256"] == hashlib.sha256(other.read_bytes()).hexdigest()
    same = text_file(tmp_path / "same")
    again = lambda: sg.sidecar(folder / "source", tmp_path / "again", held_out=same, **given)  # noqa: E731
    assert_refused(again, "--held-out: .*same holds the text of --text, expected another one")
    same.write_bytes((folder / "text").read_bytes()[:700])  # another file, and the same windows
    assert_refused(again, "--held-out: every window read of .*same is one of --text, expected another text$")


def test_refusals(case: Case, tmp_path: Path) -> None:
    _, folder = case
    text = folder / "text"
    static = liger(residual=0.0)
    static.folder(tmp_path / "liger")
    headless = moving("glm5_next", vocab_size=256)
    headless.save_pretrained(tmp_path / "headless")
    source, out = folder / "source", tmp_path / "out"
    for given, message in (
        ({"mixers": "mean"}, "^--mixers mean: is measured on a text, expected --text FILE with it$"),
        ({"mixers": "token-gates"}, "^--mixers token-gates: is measured on a text, expected --text FILE with it$"),
        ({"mixers": "identity"}, "^--mixers identity: is only ever compared with its source, expected --text FILE"),
        ({"mixers": "bias", "refine": 3}, "^--refine: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "held_out": text}, "^--held-out: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "tokens": 0}, "^--tokens: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "context": 64}, "^--context: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "dtype": "bfloat16"}, "^--dtype: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "device_map": "cpu"}, "^--device-map: belongs to a text, expected --text FILE with it$"),
        ({"mixers": "bias", "text": text, "refine": 2.5}, "^--refine: found 2.5, expected a number of steps$"),
        ({"mixers": "bias", "text": text, "tokens": "64"}, "^tokens: found '64', expected a whole number$"),
        ({"mixers": "bias", "text": text, "norm": "yes"}, "^norm: found 'yes', expected a NormGate, True or None$"),
        ({"mixers": "bias", "text": text, "refine": -1}, "^--refine: found -1, expected a number of steps$"),
        ({"mixers": "some", "text": text}, "^--mixers: found 'some', expected one of exact, bias, mean, token-gates"),
        (
            {"mixers": "exact", "text": text},
            "8 of 8 mixers depend on the state, .* expected static ones, or --mixers",
        ),
        ({"mixers": "mean", "text": text, "context": 10_000_000}, "context: found 10000000, expected 2 to"),
        ({"mixers": "mean", "text": tmp_path / "none"}, "none: not found, expected a text file"),
        ({"mixers": "mean", "text": text, "dtype": "int8"}, "dtype: found 'int8', expected one of float32"),
    ):
        assert_refused(lambda given=given: sg.sidecar(source, out, **given), message)
    module = tmp_path / "liger"
    assert_refused(
        lambda: sg.sidecar(module, out, text=text, settings=static.given),
        "^--text: a liger checkpoint does not run in transformers, expected deepseek-v4 or glm5-next$",
    )
    assert_refused(
        lambda: sg.sidecar(tmp_path / "headless", out, mixers="mean", text=text, **READ),
        "headless: has no language-model head, expected one to measure the loss",
    )
    assert not out.exists()


def test_an_infinite_perplexity_is_no_number_in_the_record(case: Case, tmp_path: Path) -> None:
    model, folder = case
    hopeless = copy.deepcopy(model)
    with torch.no_grad():
        hopeless.lm_head.weight *= 1e6
    hopeless.save_pretrained(tmp_path / "source")
    made = sg.sidecar(tmp_path / "source", tmp_path / "out", mixers="mean", text=folder / "text", tokens=256, **READ)
    assert made.loss is not None
    assert made.loss["converted"]["perplexity"] == np.inf
    kept = read_sidecar(tmp_path / "out").record["loss"]["converted"]
    assert kept["perplexity"] is None
    assert kept["kl"] == made.loss["converted"]["kl"]


def test_offloaded_mixers_are_refused_before_any_pass(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerate = pytest.importorskip("accelerate")
    model, folder = case
    offloaded = accelerate.cpu_offload(copy.deepcopy(model), execution_device=torch.device("cpu"))
    monkeypatch.setattr(hosted, "load_model", lambda *_, **__: offloaded)
    given = {"mixers": "mean", "text": folder / "text", "progress": lambda *_: pytest.fail("a pass was made"), **READ}
    assert_refused(
        lambda: sg.sidecar(folder / "source", tmp_path / "out", **given),
        "^device_map: offloads hyper-connections, expected them in memory to measure the loss$",
    )
    assert not list(tmp_path.iterdir())


def test_amending_a_file_in_place(tmp_path: Path) -> None:
    with writer.TensorWriter(tmp_path / "file", {"a": (2,), "b": (2, 2)}, 100) as out:
        out.put("a", np.arange(2.0))
        out.put("b", np.eye(2))
        out.finish({"record": "short"})
    writer.amend(tmp_path / "file", {"b": np.ones((2, 2))}, {"record": "a longer one"})
    found = load_file(tmp_path / "file")
    assert (found["a"].tolist(), found["b"].tolist()) == ([0, 1], [[1, 1], [1, 1]])
    with safe_open(tmp_path / "file", framework="numpy") as stored:
        assert stored.metadata() == {"record": "a longer one"}
    before = (tmp_path / "file").read_bytes()
    for tensors, metadata, message in (
        ({}, {"record": "x" * 200}, r"metadata of \d+ bytes, expected room for"),
        ({"c": np.ones(2)}, {}, "tensor c has shape"),
        ({"b": np.ones(4)}, {}, "tensor b has shape"),
        ({"b": np.full((2, 2), np.nan)}, {}, "tensor b is not finite"),
    ):
        assert_refused(lambda t=tensors, m=metadata: writer.amend(tmp_path / "file", t, m), message)
    assert (tmp_path / "file").read_bytes() == before
