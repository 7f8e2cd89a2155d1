"""Converted and attached models against float64: as far from it as the source itself, at most twice, at any depth.

The reference is a transcription of each model's definition (``deepseek_v4_reference``, ``glm5_next_reference``), not
transformers' own code, which casts to float32 inside.  It makes its own discrete choices; where a model under test
chooses other experts or entries than the transcription, that is counted as a flip, apart from the errors.  "settled"
models have nothing to choose at a tie: sliding windows and experts by token id, or dense MLPs and all keys in sight.
"free" ones choose by score.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import assert_refused
from torch import Tensor

import streamgauge as sg

transformers = pytest.importorskip("transformers", minversion="5.24")

from hf_choices import flips, forward_with_choices  # noqa: E402
from hf_models import N, tiny, transcribed  # noqa: E402
from hyper_connection_reference import Pass  # noqa: E402
from moving_mixers import mixers_of  # noqa: E402

from streamgauge.simulate.attach import streams_module  # noqa: E402
from streamgauge.simulate.attach_files import Sigmoid  # noqa: E402
from streamgauge.simulate.convert import gauged_weight  # noqa: E402
from streamgauge.simulate.formats import sidecar as converter  # noqa: E402
from streamgauge.simulate.hosted.widened import Widened, wide_copy  # noqa: E402

KINDS = ("deepseek_v4", "glm5_next")
DEPTHS = (4, 16, 43)
LIMIT = 2.0
"""Largest round-off ratio of an equal network; a fault exceeds 10 times that."""
SEED = 2  # bases whose gauges are well conditioned at every depth; see test_an_ill_conditioned_gauge_costs_digits


def settings(kind: str, layers: int, free: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"num_hidden_layers": layers, "seed": SEED, "gain": 3}
    if kind == "deepseek_v4":
        rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}
        kinds = None if free else ["sliding_attention"] * layers
        experts = None if free else ["hash_moe"] * layers
        return {**out, "layer_types": kinds, "mlp_layer_types": experts, "compress_rates": rates}
    # in bf16 experts of deep stacks flip one another, so the branches of free ones are weak
    return out | ({"gain": 1.5} if free else {"mlp_layer_types": ["dense"] * layers, "index_topk": 64})


@dataclass(frozen=True)
class Made:
    """A source, its folder (checkpoint "source", sidecar "out"), its forward pass and that in float64."""

    model: Any
    folder: Path
    output: Tensor
    flips: int
    reference: Pass

    def attached(self, **options: str) -> Any:
        return sg.attach(copy.deepcopy(self.model), self.folder / "out", **options)

    def ratio(self, found: Tensor) -> float:
        """RMS error of an output over the source's."""
        return rms(found, self.reference.output) / rms(self.output, self.reference.output)

    def median_ratio(self, found: Tensor) -> float:
        """The same, of the median over tokens."""
        wanted = self.reference.output
        return median(found, wanted) / median(self.output, wanted)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


Maker = Callable[..., Made]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    @functools.cache
    def make(kind: str, layers: int, *, free: bool = False, half: bool = False) -> Made:
        folder = tmp_path_factory.mktemp("model")
        model = tiny(kind, **settings(kind, layers, free))
        if half:  # a checkpoint in bf16, so that the conversion starts from the weights that run
            model.save_pretrained(folder / "wide")
            options = {"dtype": torch.bfloat16, "experts_implementation": "eager"}
            model = type(model).from_pretrained(folder / "wide", **options).eval()
        model.save_pretrained(folder / "source")
        converted(folder / "source", folder / "out")
        return measured(model, folder)

    yield make
    make.cache_clear()


def converted(source: Path, out: Path) -> Any:
    """A sidecar without its certificate, which takes longer than the conversion."""
    return converter.convert_folder(source, out, converter.Options())


def measured(model: Any, folder: Path) -> Made:
    reference = transcribed(model, tokens())
    output, chosen = forward_with_choices(model, tokens())
    return Made(model, folder, output, flips(chosen, reference.choices), reference)


def tokens() -> Tensor:
    return torch.randint(64, (2, 32), generator=torch.Generator().manual_seed(1))


def output(model: Any) -> Tensor:
    return forward_with_choices(model, tokens())[0]


def rms(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm() / reference.norm())


def median(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm(dim=-1).median())


@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_settled_models_differ_by_round_off(kind: str, half: bool, layers: int, made: Maker) -> None:
    source = made(kind, layers, half=half)
    found, chosen = forward_with_choices(source.attached(), tokens())
    assert found.dtype is (torch.bfloat16 if half else torch.float32)
    assert (source.flips, flips(chosen, source.reference.choices)) == (0, 0)
    assert source.ratio(found) <= LIMIT


@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_free_models_in_float32_choose_the_same_and_differ_by_round_off(kind: str, layers: int, made: Maker) -> None:
    source = made(kind, layers, free=True)
    found, chosen = forward_with_choices(source.attached(), tokens())
    assert len(chosen) >= layers / 2
    assert (source.flips, flips(chosen, source.reference.choices)) == (0, 0)
    assert source.ratio(found) <= LIMIT


@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_free_models_in_bfloat16_flip_as_often_and_differ_by_round_off(
    kind: str, layers: int, made: Maker, record_property: Callable[[str, object], None]
) -> None:
    """A flip moves its token far, so the median over tokens counts, and flips apart: up to 4 % of the choices."""
    source = made(kind, layers, free=True, half=True)
    found, chosen = forward_with_choices(source.attached(), tokens())
    mine, places = flips(chosen, source.reference.choices), sum(x[..., 0].numel() for x in chosen.values())
    for name, count in {"source_flips": source.flips, "flips": mine, "choices": places}.items():
        record_property(name, count)
    print(f"{kind} {layers}: {source.flips} flips in the source, {mine} attached, of {places} choices")
    assert max(source.flips, mine) <= 0.04 * places
    assert mine <= LIMIT * source.flips + 4
    assert source.median_ratio(found) <= LIMIT


@pytest.mark.parametrize("kind", KINDS)
def test_same_function_in_float64(kind: str, made: Maker) -> None:
    """Both in transformers' code with its casts widened, so to float64's own round-off."""
    source = made(kind, 4, free=True)
    with Widened():
        own = output(wide_copy(source.model))
        wide = sg.attach(wide_copy(source.model), source.folder / "out", precision="float64")
        found = output(wide)
    assert own.dtype is found.dtype is torch.float64
    assert rms(found, own) < 1e-13
    assert rms(own, source.reference.output) < 1e-7  # rotary angles stay in float32 there


def test_an_ill_conditioned_gauge_costs_digits(tmp_path: Path) -> None:
    """Random bases whose gauge has condition 3000: the sidecar reports it, and float32 loses what it says."""
    model = tiny("glm5_next", num_hidden_layers=43, seed=0)
    model.save_pretrained(tmp_path / "source")
    form = converted(tmp_path / "source", tmp_path / "out").form
    source = measured(model, tmp_path)
    assert form.conditioning.worst > 1000
    assert LIMIT < source.ratio(output(source.attached())) < form.conditioning.worst


def no_metric(model: Any, source: Any) -> None:
    for module in mixers_of(model):
        module.gauge.metric = torch.eye(N)


def weights_by_the_transpose(model: Any, source: Any) -> None:
    for module, old in zip(mixers_of(model), mixers_of(source), strict=True):
        weight = gauged_weight(old.fn[: 2 * N].detach().double().numpy(), module.gauge.read.double().numpy().T)
        module.coef.weight.data = torch.from_numpy(np.ascontiguousarray(weight)).float()


def writes_by_the_transpose(model: Any, source: Any) -> None:
    for module in mixers_of(model):
        module.gauge.write = module.gauge.write.mT.contiguous()


def swapped_eps(model: Any, source: Any) -> None:
    for module in mixers_of(model):
        read, norm = module.read_map, module.coef.rms_eps
        module.read_map, module.coef.rms_eps = Sigmoid(read.mult, norm), read.eps


def no_entry(model: Any, source: Any) -> None:
    mixers_of(model)[0].entry = torch.ones(N)


def head_of_the_source(model: Any, source: Any) -> None:
    streams_module(model).hc_head.forward = streams_module(source).hc_head.forward


FAULTS = [
    *((fault, layers) for fault in (no_metric, weights_by_the_transpose, writes_by_the_transpose, swapped_eps)
      for layers in DEPTHS),
    *((fault, 4) for fault in (no_entry, head_of_the_source)),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "layers"), FAULTS, ids=lambda given: getattr(given, "__name__", str(given)))
@pytest.mark.parametrize("kind", KINDS)
def test_faults_show(kind: str, layers: int, fault: Callable[[Any, Any], None], made: Maker) -> None:
    source = made(kind, layers)
    out = source.attached()
    fault(out, source.model)
    assert source.ratio(output(out)) > 10 * LIMIT


@pytest.mark.parametrize("layers", DEPTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_wrong_orientation_shows(
    kind: str, layers: int, made: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consistent conversion of A = S in place of S^T, which the converter's own probe refuses."""
    source = made(kind, layers)
    true = converter.static_mixers
    monkeypatch.setattr(converter, "static_mixers", lambda *given: [a.T.copy() for a in true(*given)])
    assert_refused(lambda: converted(source.folder / "source", tmp_path / "refused"), "orientation")
    monkeypatch.setattr(converter, "check_orientation", lambda *_: sg.Verdict(True, "unchecked", {}))
    converted(source.folder / "source", tmp_path / "out")
    assert source.ratio(output(sg.attach(copy.deepcopy(source.model), tmp_path / "out"))) > 10 * LIMIT
