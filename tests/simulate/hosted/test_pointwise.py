"""The per-token triangular form of models with dynamic mixers: the source's function, and nothing less will do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import Tensor

import streamgauge as sg

pytest.importorskip("transformers", minversion="5.24")

from hf_models import N, tiny, transcribed

from streamgauge.simulate.formats import sidecar as converter
from streamgauge.simulate.hosted import compare, triangular
from streamgauge.simulate.hosted.pointwise import LIMIT, Pointwise, verify_pointwise
from streamgauge.simulate.hosted.text import Text

KINDS = ("deepseek_v4", "glm5_next")
EXACT = 1e-12
"""Float64 round-off, some thousand units of it: the stacks amplify it as they do that of float32."""


def dynamic(kind: str, layers: int = 4, **changed: Any) -> Any:
    """A tiny model whose mixers depend on the token, with every kind of attention and experts chosen by score."""
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}
    kinds = {"layer_types": None, "mlp_layer_types": None, "compress_rates": rates} if kind == "deepseek_v4" else {}
    model = tiny(kind, seed=2, gain=3, num_hidden_layers=layers, **kinds, **changed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_hc.scale"):
                parameter[2] = 1
    return model


def text(rows: int = 2) -> Text:
    tokens = torch.randint(64, (rows, 32), generator=torch.Generator().manual_seed(1))
    return Text(tokens, "random", "0" * 64, "bytes")


def output(model: Any) -> Tensor:
    with torch.no_grad():
        made = model(text().tokens, use_cache=False)
    found: Tensor = made.logits if hasattr(made, "logits") else made.last_hidden_state
    return found


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {kind: dynamic(kind) for kind in KINDS}


@pytest.mark.parametrize("layers", [4, 16, 43])
@pytest.mark.parametrize("kind", KINDS)
def test_same_function(kind: str, layers: int) -> None:
    found = verify_pointwise(dynamic(kind, layers), text())
    assert found.verdict().ok, found.verdict().reason
    assert found.tokens == 64
    assert len(found.sites) == 2 * layers
    assert found.exact < EXACT
    assert found.flipped == 0
    assert found.ratio <= LIMIT
    assert max(found.below_diagonal, found.orthogonality, found.residual) < 1e-14
    assert found.dropped > 0.1  # the mixers are dense: diagonal gates would be another function


@pytest.mark.parametrize("kind", KINDS)
def test_as_far_from_the_transcription_as_the_source(kind: str, models: dict[str, Any]) -> None:
    """A reference that shares no code with transformers."""
    model = models[kind]
    wanted = transcribed(model, text().tokens).output
    own, found = ((output(net).double() - wanted).norm() for net in (model, triangular.triangular_twin(model)))
    assert found <= LIMIT * own


def test_in_bfloat16(models: dict[str, Any]) -> None:
    found = verify_pointwise(copy.deepcopy(models["deepseek_v4"]).to(torch.bfloat16), text())
    assert found.verdict().ok, found.verdict().reason
    assert found.source_error > 1e-3
    assert found.exact < EXACT


def test_mixers_of_rank_one() -> None:
    """As transformers initialises them, all mixers average the streams: nothing is inverted, so nothing breaks."""
    model = dynamic("deepseek_v4")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_hc.base"):
                parameter[2 * N :] = 0
            elif name.endswith("_hc.scale"):
                parameter[2] = 0
    found = verify_pointwise(model, text())
    assert found.verdict().ok, found.verdict().reason
    for site in found.sites:
        np.testing.assert_allclose(site.gates, [1, 0, 0, 0], atol=1e-5)


def seen_of(model: Any) -> list[tuple[np.ndarray, ...]]:
    """A, Q_l, Q_{l+1} and R of every site, each (B, T, n, n)."""
    kept: list[tuple[np.ndarray, ...]] = []
    output(triangular.triangular_twin(model, lambda site, *given: kept.append(tuple(x.numpy() for x in given))))
    return kept


def test_figures_by_numpy(models: dict[str, Any]) -> None:
    """Every token has frames of its own; the figures again, from the mixers, by numpy's QR of every token's chain."""
    model = copy.deepcopy(models["deepseek_v4"])
    found, seen = verify_pointwise(model, text()), seen_of(model)
    assert len(seen) == len(found.sites) == 8
    mixers = np.stack([site[0] for site in seen])
    assert np.abs(mixers[:, 0, 0] - mixers[:, 1, 5]).max() > 0.1
    frames = np.broadcast_to(seen[0][1][0, 0], mixers.shape[1:])
    np.testing.assert_allclose(frames[0, 0][:, 0], 0.5, rtol=1e-15)  # the copied embedding
    above = whole = 0.0
    for site, (a, *_) in zip(found.sites, seen, strict=True):
        q, r = np.linalg.qr(a @ frames)
        sign = np.sign(np.diagonal(r, axis1=-2, axis2=-1))
        frames, r = q * sign[..., None, :], r * sign[..., :, None]
        gates = np.diagonal(r, axis1=-2, axis2=-1)
        upper = np.triu(r, 1)
        np.testing.assert_allclose(site.gates, gates.mean((0, 1)), rtol=1e-5)
        np.testing.assert_allclose([site.gate_min, site.gate_max], [gates.min(), gates.max()], rtol=1e-4)
        assert site.dropped == pytest.approx(np.linalg.norm(upper) / np.linalg.norm(r), rel=1e-5)
        np.testing.assert_allclose(gates[..., 0], 1, atol=3e-6)  # rows of A sum to 1 up to hc_eps
        above, whole = above + (upper**2).sum(), whole + (r**2).sum()
    assert np.abs(frames[0, 0] - frames[1, 5]).max() > 0.1
    assert found.dropped == pytest.approx((above / whole) ** 0.5, rel=1e-5)


def test_windows_add_up(models: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures, whether the windows run at once or one by one."""
    told: list[tuple[int, int, str]] = []
    whole = verify_pointwise(models["deepseek_v4"], text(3))
    monkeypatch.setattr(compare, "rows_at_a_time", lambda *_: 1)
    parts = verify_pointwise(models["deepseek_v4"], text(3), progress=lambda *given: told.append(given))
    assert [done for done, _, _ in told] == [0, 1, 2, 3]
    assert parts.dropped == pytest.approx(whole.dropped, rel=1e-6)
    assert parts.source_error == pytest.approx(whole.source_error, rel=0.5)
    np.testing.assert_allclose([s.gates for s in parts.sites], [s.gates for s in whole.sites], rtol=1e-6)
    assert parts.verdict().ok


def test_the_model_stays_as_it_is(models: dict[str, Any]) -> None:
    model = models["deepseek_v4"]
    before, names = output(model), [name for name, _ in model.named_modules()]
    pointers = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    verify_pointwise(model, text())
    assert [name for name, _ in model.named_modules()] == names
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == pointers
    assert torch.equal(output(model), before)


def frames_stay(patch: pytest.MonkeyPatch) -> None:
    true = triangular.Frames.step

    def step(self: Any, site: int, mixer: Tensor) -> Tensor:
        before = self.q
        r = true(self, site, mixer)
        self.q = before
        return r

    patch.setattr(triangular.Frames, "step", step)


def upper_part_dropped(patch: pytest.MonkeyPatch) -> None:
    true = triangular.triangular_step

    def step(mixer: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        q, r = true(mixer, frame)
        return q, torch.diag_embed(r.diagonal(dim1=-2, dim2=-1))

    patch.setattr(triangular, "triangular_step", step)


def triangle_transposed(patch: pytest.MonkeyPatch) -> None:
    true = triangular.Frames.step
    patch.setattr(triangular.Frames, "step", lambda self, site, mixer: true(self, site, mixer).mT)


def writes_by_the_transpose(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(triangular, "against", lambda frame, r: (frame @ r[..., None]).squeeze(-1))


def writes_by_the_frame_before(patch: pytest.MonkeyPatch) -> None:
    true, held = triangular.against, {}

    def step(mixer: Tensor, frame: Tensor) -> tuple[Tensor, Tensor]:
        held["before"] = frame
        return true_step(mixer, frame)

    true_step = triangular.triangular_step
    patch.setattr(triangular, "triangular_step", step)
    patch.setattr(triangular, "against", lambda frame, r: true(held["before"], r))


def reads_not_turned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(triangular, "along", lambda p, frame: p)


def controller_not_turned(patch: pytest.MonkeyPatch) -> None:
    true = triangular.turned
    patch.setattr(
        triangular, "turned", lambda weight, frame, y: true(weight, torch.eye(N, dtype=y.dtype).expand_as(frame), y)
    )


def entry_not_turned(patch: pytest.MonkeyPatch) -> None:
    true = triangular.Frames.enter

    def enter(self: Any, x: Tensor) -> Tensor:
        true(self, x)
        return x

    patch.setattr(triangular.Frames, "enter", enter)


def one_frame_for_all_tokens(patch: pytest.MonkeyPatch) -> None:
    true = triangular.Frames.step

    def step(self: Any, site: int, mixer: Tensor) -> Tensor:
        return true(self, site, mixer[:1, :1].expand_as(mixer))

    patch.setattr(triangular.Frames, "step", step)


def mixers_by_the_transpose(patch: pytest.MonkeyPatch) -> None:
    true = triangular.reference.sinkhorn
    patch.setattr(triangular.reference, "sinkhorn", lambda logits, **given: true(logits, **given).mT)


FAULTS = (
    frames_stay,
    upper_part_dropped,
    triangle_transposed,
    writes_by_the_transpose,
    writes_by_the_frame_before,
    reads_not_turned,
    controller_not_turned,
    entry_not_turned,
    one_frame_for_all_tokens,
    mixers_by_the_transpose,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_faults_show(
    kind: str, fault: Callable[[pytest.MonkeyPatch], None], models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = verify_pointwise(models[kind], text())
    assert not found.verdict().ok
    assert found.ratio > 10 * LIMIT
    assert found.median_ratio > 10 * LIMIT
    assert found.exact > 1e-6


def test_every_figure_of_the_verdict_counts(models: dict[str, Any]) -> None:
    found = verify_pointwise(models["glm5_next"], text())
    for name in ("exact", "ratio", "below_diagonal", "orthogonality", "residual"):
        for value in (3.0, float("nan")):
            bad = Pointwise(**{**vars(found), name: value}).verdict()
            assert not bad.ok
            assert name.replace("_", " ") in bad.reason
    assert Pointwise(**{**vars(found), "ratio": 3.0, "flipped": 1}).verdict().ok
    assert not Pointwise(**{**vars(found), "median_ratio": 3.0, "flipped": 1}).verdict().ok


def test_a_model_that_says_nothing_is_the_same_function() -> None:
    """No error in either: their quotient is one, not a failure."""
    silent = tiny("deepseek_v4")
    torch.nn.init.zeros_(silent.lm_head.weight)
    found = verify_pointwise(silent, text())
    assert (found.source_error, found.error, found.ratio) == (0.0, 0.0, 1.0)
    assert found.verdict().ok


def test_mixers_that_are_nothing_drop_nothing() -> None:
    empty = tiny("deepseek_v4")
    empty.config.hc_eps = 1e30
    for layer in empty.model.layers:
        layer.attn_hc.hc_eps = layer.ffn_hc.hc_eps = 1e30
    assert verify_pointwise(empty, text()).dropped == 0.0


def test_refusals(models: dict[str, Any], tmp_path: Path) -> None:
    model = tiny("deepseek_v4")
    model.save_pretrained(tmp_path / "source")
    converter.convert_folder(tmp_path / "source", tmp_path / "out", converter.Options())
    attached = sg.attach(copy.deepcopy(model), tmp_path / "out")
    assert_refused(lambda: verify_pointwise(attached, text()), r"layers\.0\.attn_hc is a GatedConnection, expected")
    assert_refused(lambda: verify_pointwise(torch.nn.Linear(2, 2), text()), "found a model of type None")
    offloaded = copy.deepcopy(model)
    offloaded.model.layers[1].ffn_hc.to("meta")
    assert_refused(lambda: verify_pointwise(offloaded, text()), r"layers\.1\.ffn_hc is offloaded")
    with torch.no_grad():
        model.lm_head.weight[0] = float("inf")
    assert_refused(lambda: verify_pointwise(model, text()), "not finite")
    assert_refused(lambda: sg.verify_pointwise(tmp_path, text=tmp_path, dtype="float16"), "dtype: found 'float16'")
