"""Gates by the token: against A(x) of the documented formula in float64, and as part of an attached model."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import lite
from refusals import assert_refused
from safetensors import safe_open
from safetensors.torch import save_file

transformers = pytest.importorskip("transformers", minversion="5.24")

from moving_mixers import heard, mixers_of, moving, windows  # noqa: E402

import streamgauge as sg  # noqa: E402
from streamgauge.simulate.attach import fitted_tensors  # noqa: E402
from streamgauge.simulate.attach_files import read_sidecar  # noqa: E402
from streamgauge.simulate.formats.detect import Recognised  # noqa: E402
from streamgauge.simulate.formats.evaluate import coefficients, load  # noqa: E402
from streamgauge.simulate.formats.shards import Shards  # noqa: E402
from streamgauge.simulate.formats.sidecar import Options, Sidecar, convert_folder, open_record  # noqa: E402
from streamgauge.simulate.hosted.calibrate import calibrate  # noqa: E402
from streamgauge.simulate.hosted.widened import Widened  # noqa: E402

KINDS = ("deepseek_v4", "glm5_next")
TEXT = windows()
Case = tuple[Any, Path, Sidecar]


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A model, the folder with its checkpoint "source" and sidecar "out", and its conversion."""
    model, folder = moving(request.param), tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder / "source")
    made = convert_folder(
        folder / "source", folder / "out", Options("token-gates"), measured=lambda: calibrate(model, TEXT)
    )
    return model, folder, made


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        out = model(TEXT.tokens[:2])
    found: torch.Tensor = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return found


def test_gates_are_the_diagonal_of_the_moved_mixer_token_by_token(case: Case) -> None:
    """At the attached model's own states Y: X = P Y, A(x) by the format's formula and the *source's* tensors."""
    model, folder, made = case
    attached = sg.attach(copy.deepcopy(model).double(), folder / "out", precision="float64")
    with heard(attached) as (states, combs), torch.no_grad(), Widened():
        attached(TEXT.tokens)
    shards = Shards(folder / "source")
    record = open_record(shards, Options())
    assert not isinstance(record, Recognised)
    for l, mixer in enumerate(record.mixers):
        y, comb = states[l][0].numpy(), combs[l][0].numpy()
        assert y.dtype == comb.dtype == np.float64
        before, after = made.form.gauge[l], made.form.gauge[l + 1]
        x = np.einsum("ij,tjd->tid", before, y)
        _, _, a = coefficients(mixer, load(mixer, shards, record.n, record.d), x)
        gates = np.einsum("tii->ti", np.linalg.solve(after, a @ before))
        assert comb.shape == a.shape
        assert abs(comb - gates[:, :, None] * np.eye(4)).max() < 1e-11
        turned = np.einsum("tii->ti", np.linalg.solve(after, a.swapaxes(1, 2) @ before))
        assert abs(comb - turned[:, :, None] * np.eye(4)).max() > 1e-2
        assert gates.std(0).max() > 1e-2


def test_what_the_file_holds(case: Case) -> None:
    model, folder, made = case
    held = read_sidecar(folder / "out")
    assert held.recipe is not None
    assert (held.recipe.iterations, held.recipe.transpose) == (model.config.hc_sinkhorn_iters, True)
    record = held.record
    assert (record["mixers"], record["form"]) == ("token-gates", "graded")
    assert record["calibration"]["text"] == TEXT.document()
    assert made.measured is not None
    assert record["calibration"]["shares"] == list(made.measured.shares)
    assert tuple((site["dropped"], site["dropped_in_source"]) for site in record["sites"]) == made.dropped
    assert held.tensors["sites.3.coef.weight"].shape == (24, 4 * 32)
    assert held.tensors["sites.3.coef.scale"].tolist() == pytest.approx([0.8, 1.2, 0.5], rel=1e-6)
    mean = held.tensors["sites.3.mixer.matrix"].numpy()
    assert np.array_equal(mean, made.measured.mixers[3])


def test_saved_and_attached_again(case: Case, tmp_path: Path) -> None:
    model, folder, _ = case
    out = sg.attach(copy.deepcopy(model), folder / "out")
    with torch.no_grad():
        for module in mixers_of(out):
            module.coef.base.mul_(0.9)  # as if trained
    wanted = logits(out)
    out.save_pretrained(tmp_path / "saved")
    again = type(model).from_pretrained(tmp_path / "saved", experts_implementation="eager").eval()
    assert torch.equal(logits(sg.attach(again, tmp_path / "saved")), wanted)
    assert not torch.equal(logits(model), wanted)


def test_training_reaches_every_parameter(case: Case) -> None:
    model, folder, _ = case
    out = sg.attach(copy.deepcopy(model), folder / "out").train()
    names = fitted_tensors(out).keys()
    assert "sites.2.coef.weight" in names
    assert not [name for name in names if name.endswith(".gates") or ".gauge." in name]
    answer = out(TEXT.tokens[:2], use_cache=False)
    (answer.logits if hasattr(answer, "logits") else answer.last_hidden_state).square().mean().backward()
    for site, module in enumerate(mixers_of(out)):
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None, (site, name)
            assert parameter.grad.isfinite().all(), (site, name)
        if site:  # at the first site all streams are copies, and no mixer shows
            assert module.coef.weight.grad[8:].any(), site
            assert module.coef.scale.grad[2] != 0, site


def test_another_model_is_refused_by_its_mixing_weights(case: Case) -> None:
    model, folder, _ = case
    for change in ("fn", "base", "scale"):
        other = copy.deepcopy(model)
        getattr(mixers_of(other)[5], change).data[-1] += 1e-3
        assert_refused(lambda other=other: sg.attach(other, folder / "out"), r"sites\.5 was made of other weights")


def test_a_record_without_its_recipe_is_refused(case: Case, tmp_path: Path) -> None:
    _, folder, _ = case
    with safe_open(folder / "out" / "sidecar.safetensors", framework="pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        metadata = stored.metadata()
    for change, message in (
        ({"recipe": None}, "expected a complete record"),
        ({"recipe": {"name": "x", "order": ["rows", "rows"]}}, "order is"),
        ({"mixers": "mean"}, r"coef\.(base|scale|weight) is torch\.float64 .* expected"),
    ):
        metadata_now = {**metadata, "record": json.dumps({**json.loads(metadata["record"]), **change})}
        save_file(tensors, tmp_path / "sidecar.safetensors", metadata_now)
        assert_refused(lambda: read_sidecar(tmp_path), message)


def test_what_excludes_gates_by_the_token(case: Case, tmp_path: Path) -> None:
    _, folder, made = case

    def convert(source: Path, options: Options, **given: Any) -> Any:
        return lambda: convert_folder(source, tmp_path / "out", options, measured=made.measured, **given)

    options = Options("token-gates")
    assert_refused(
        convert(folder / "source", options, norm=sg.NormGate()), "--norm: scales the streams by constant gates"
    )
    lines = "--mixers token-gates: mhc-lite makes its mixers another way, expected one Sinkhorn recipe"
    assert_refused(convert(lite("mhc_lite").folder(tmp_path / "lite"), options), lines)
    assert not (tmp_path / "out").exists()
