"""Mixers along a text: streaming means and covariances against sums over captured matrices, and what forms drop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused

transformers = pytest.importorskip("transformers", minversion="5.24")

from moving_mixers import mixers_of, moving, seen, windows  # noqa: E402

import streamgauge as sg  # noqa: E402
from streamgauge.simulate.attach import streams_module  # noqa: E402
from streamgauge.simulate.formats.calibration import Calibration  # noqa: E402
from streamgauge.simulate.formats.detect import Recognised  # noqa: E402
from streamgauge.simulate.formats.evaluate import coefficients, load  # noqa: E402
from streamgauge.simulate.formats.shards import Shards  # noqa: E402
from streamgauge.simulate.formats.sidecar import Options, convert_folder, open_record  # noqa: E402
from streamgauge.simulate.hosted import calibrate as calibration  # noqa: E402
from streamgauge.simulate.hosted.calibrate import calibrate  # noqa: E402
from streamgauge.theory.exact import Floats  # noqa: E402

KINDS = ("deepseek_v4", "glm5_next")
TEXT = windows()


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Calibration]:
    """A model, its folder and its calibration, measured in several batches."""
    model, folder = moving(request.param), tmp_path_factory.mktemp(request.param)
    model.save_pretrained(folder / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "TOKENS_AT_ONCE", 80)  # two windows of 32 at a time
        return model, folder, calibrate(model, TEXT)


Case = tuple[Any, Path, Calibration]


def by_formula(folder: Path, states: list[Floats]) -> list[Floats]:
    """A(x) of captured states in float64, by the format's documented formula and the stored tensors."""
    shards = Shards(folder / "source")
    record = open_record(shards, Options())
    assert not isinstance(record, Recognised)
    out = []
    for mixer, state in zip(record.mixers, states, strict=True):
        weights = load(mixer, shards, record.n, record.d)
        out.append(coefficients(mixer, weights, state)[2])
    return out


def test_streaming_moments_are_those_of_all_matrices(case: Case) -> None:
    model, _, found = case
    _, matrices = seen(model, TEXT)
    assert found.tokens == TEXT.tokens.numel() == len(matrices[0])
    assert len(found.mixers) == len(matrices) == 8
    for mean, covariance, all_of_them in zip(found.mixers, found.covariances, matrices, strict=True):
        assert mean.dtype == covariance.dtype == np.float64
        assert abs(mean - all_of_them.mean(0)).max() < 1e-6  # batches of other sizes: the model's own round-off
        by_hand = np.cov(all_of_them.reshape(len(all_of_them), -1).T, bias=True)
        assert abs(covariance - by_hand).max() < 1e-6
    shares = [((m - m.mean(0)) ** 2).sum((1, 2)).mean() ** 0.5 / np.linalg.norm(m.mean(0)) for m in matrices]
    assert found.shares == pytest.approx(shares, rel=1e-4)
    assert min(found.shares) > 0.02


def test_one_batch_gives_the_same_sums_to_float64(case: Case) -> None:
    model, _, _ = case
    found, (_, matrices) = calibrate(model, TEXT), seen(model, TEXT)
    for mean, all_of_them in zip(found.mixers, matrices, strict=True):
        assert abs(mean - all_of_them.mean(0)).max() < 1e-14


def test_orientation_is_that_of_the_formula(case: Case) -> None:
    model, folder, found = case
    states, _ = seen(model, TEXT)
    for mean, all_of_them in zip(found.mixers, by_formula(folder, states), strict=True):
        right, wrong = (abs(m - all_of_them.mean(0)).max() for m in (mean, mean.T))
        assert right < 1e-5
        assert wrong > 1e-2
        assert abs(mean.sum(1) - 1).max() < 1e-5


def test_a_transposed_calibration_is_refused(case: Case, tmp_path: Path) -> None:
    _, folder, found = case
    turned = replace(found, mixers=tuple(mean.T for mean in found.mixers))
    for measured, message in ((found, None), (turned, r"orientation: .* the opposite orientation fits better")):

        def convert(measured: Calibration = measured) -> Any:
            return convert_folder(folder / "source", tmp_path / "out", Options("mean"), measured=measured)

        if message is None:
            made = convert()
            assert all(np.array_equal(a, m) for a, m in zip(made.form.chain.mixers, found.mixers, strict=True))
            (tmp_path / "out").rename(tmp_path / "kept")
        else:
            assert_refused(convert, message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_a_static_model_is_measured_to_the_last_bit(kind: str) -> None:
    model = moving(kind, scale=0.0)
    found, (_, matrices) = calibrate(model, TEXT), seen(model, TEXT)
    for mean, covariance, all_of_them in zip(found.mixers, found.covariances, matrices, strict=True):
        assert np.array_equal(mean, all_of_them[0])
        assert not covariance.any()
    assert found.shares == (0.0,) * 8


@pytest.mark.parametrize("by_token", [False, True], ids=["constant", "by-token"])
def test_dropped_parts_are_those_of_all_tokens(by_token: bool, case: Case, tmp_path: Path) -> None:
    """From second moments alone, and summed over the tokens."""
    model, folder, _ = case
    found, (_, matrices) = calibrate(model, TEXT), seen(model, TEXT)
    mixers = "token-gates" if by_token else "mean"
    made = convert_folder(folder / "source", tmp_path / "out", Options(mixers), measured=found)
    form = made.form
    assert made.dropped is not None
    for l, all_of_them in enumerate(matrices):
        before, after = form.gauge[l], form.gauge[l + 1]
        moved = np.linalg.inv(after) @ all_of_them @ before
        gates = np.einsum("tii->ti", moved) if by_token else np.broadcast_to(form.gates[l], (len(moved), 4))
        kept = gates[:, :, None] * np.eye(4)
        here = ((moved - kept) ** 2).sum() / (moved**2).sum()
        back = after @ kept @ np.linalg.inv(before)
        there = ((all_of_them - back) ** 2).sum() / (all_of_them**2).sum()
        assert made.dropped[l] == pytest.approx((here**0.5, there**0.5), rel=1e-8)
        assert found.dropped(l, form, by_token=not by_token) != pytest.approx(made.dropped[l], rel=1e-2)


def test_progress_is_told_and_texts_are_named(case: Case) -> None:
    model, _, _ = case
    told: list[tuple[int, int, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "TOKENS_AT_ONCE", 64)
        found = calibrate(model, TEXT, progress=lambda *step: told.append(step))
    assert told == [(done, 3, "calibrating") for done in range(4)]
    document = found.document()
    assert document["text"] == TEXT.document()
    assert document["shares"] == list(found.shares)


def by_cpu(model: Any, folder: Path) -> None:
    from accelerate import cpu_offload

    cpu_offload(model, execution_device=torch.device("cpu"))


def by_disk(model: Any, folder: Path) -> None:
    from accelerate import disk_offload

    disk_offload(model, str(folder), execution_device=torch.device("cpu"))


def by_map(model: Any, folder: Path) -> None:
    from accelerate import dispatch_model

    streams = streams_module(model)
    prefix = "" if streams is model else "model."
    parts = [name for name, _ in streams.named_children() if name != "layers"]
    parts += [f"layers.{layer}" for layer in range(len(streams.layers))]
    places: dict[str, Any] = {prefix + part: "disk" if part in ("layers.1", "layers.2") else "cpu" for part in parts}
    if streams is not model:
        places["lm_head"] = "cpu"
    dispatch_model(model, device_map=places, main_device="cpu", offload_dir=str(folder), force_hooks=True)


@pytest.mark.parametrize("spread", [by_cpu, by_disk, by_map], ids=lambda f: f.__name__)
def test_models_spread_by_accelerate(spread: Callable[[Any, Path], None], case: Case, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    model, _, _ = case
    there = copy.deepcopy(model)
    spread(there, tmp_path)
    assert any(p.is_meta for p in there.parameters())
    found, here = calibrate(there, TEXT), calibrate(model, TEXT)
    assert all(np.array_equal(a, b) for a, b in zip(found.mixers, here.mixers, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(found.covariances, here.covariances, strict=True))
    assert not any(module._forward_hooks for module in mixers_of(there))


def test_the_model_is_left_as_it_was(case: Case) -> None:
    model, _, _ = case
    model.train()
    streams_eval = mixers_of(model)[0].eval()

    def stop(done: int, total: int, what: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "TOKENS_AT_ONCE", 32)
        with pytest.raises(KeyboardInterrupt):
            calibrate(model, TEXT, progress=stop)
    assert not any(module._forward_hooks for module in mixers_of(model))
    assert model.training
    assert not streams_eval.training
    model.eval()


def test_refusals(case: Case, tmp_path: Path) -> None:
    model, folder, found = case
    assert_refused(lambda: calibrate(torch.nn.Linear(2, 2), TEXT), "found a model of type None")
    empty = replace(TEXT, tokens=TEXT.tokens[:0])
    assert_refused(lambda: calibrate(model, empty), r"found tokens of shape \(0, 32\), expected at least one window")
    broken = copy.deepcopy(model)
    mixers_of(broken)[3].base.data[-1] = float("nan")
    assert_refused(lambda: calibrate(broken, TEXT), r"sites\.3 has a mixer that is not finite on this text")
    convert_folder(folder / "source", tmp_path / "out", Options("mean"), measured=found)
    attached = sg.attach(copy.deepcopy(model), tmp_path / "out")
    assert_refused(lambda: calibrate(attached, TEXT), "the model is attached already, expected the source")


def test_a_calibration_of_another_model_is_refused(tmp_path: Path) -> None:
    static, other = moving("deepseek_v4", scale=0.0), moving("deepseek_v4", scale=0.0, seed=1)
    static.save_pretrained(tmp_path / "source")
    found = calibrate(other, TEXT)
    few = replace(found, mixers=found.mixers[:3])
    for measured, message in (
        (found, r"layers\.0\.attn is static and was seen \S+ away from it: another model's"),
        (few, r"found 3 mixers of shape \(4, 4\), expected 8 of shape \(4, 4\)"),
        (None, r"^--mixers mean: is measured on a text, expected --text FILE with it$"),
    ):

        def convert(measured: Calibration | None = measured) -> None:
            convert_folder(tmp_path / "source", tmp_path / "out", Options("mean"), measured=measured)

        assert_refused(convert, message)
    assert not (tmp_path / "out").exists()
