"""Fitting converted hyper-connections: what moves, what does not, and that it helps where it was not fitted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused
from torch import Tensor

pytest.importorskip("transformers", minversion="5.24")

from hosted_models import CONTEXT, files

from streamgauge.simulate.hosted.compare import compare
from streamgauge.simulate.hosted.models import attached_twin, connections, load_model
from streamgauge.simulate.hosted.refine import VALIDATION, Refinement, refine
from streamgauge.simulate.hosted.text import Text, read_text, split

Make = Callable[[], Any]
STEPS = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Make, Text, Text]:
    """Source, what makes a fresh attached model, calibration and held-out text."""
    folder = files(tmp_path_factory.mktemp("hosted"))
    source = load_model(folder / "source")
    fitted, held = split(read_text(folder / "text.txt", folder / "source", context=CONTEXT))
    return source, lambda: attached_twin(source, folder / "out"), fitted, held


Made = tuple[Any, Make, Text, Text]


def fitted(made: Made, **options: Any) -> tuple[Any, Refinement]:
    source, make, text, _ = made
    model = make()
    return model, refine(model, source, text, **{"steps": 4, "batch": 2, "learning_rate": 2e-3, **options})


def state(model: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def own(name: str) -> bool:
    """Whether a tensor of an attached model may be fitted."""
    in_connection = any(part in name for part in ("attn_hc.", "ffn_hc.", "hc_head."))
    return in_connection and name.endswith(("gates", "coef.weight", "coef.scale", "coef.base"))


def long_text(text: Text) -> Text:
    """More than can be learned by heart in :data:`STEPS` steps of 8 windows."""
    words = torch.randint(32, 127, (8 * STEPS + 30, CONTEXT), generator=torch.Generator().manual_seed(8))
    return replace(text, tokens=words)


def test_it_lowers_the_held_out_divergence(made: Made) -> None:
    source, make, text, held = made
    model = make()
    found = refine(model, source, long_text(text), steps=STEPS, batch=8)
    before, after = compare(source, make(), held), compare(source, model, held)
    assert after.kl < 0.95 * before.kl
    assert found.kl < 0.95 * found.kl_before
    assert found.best_step > 0


def test_displaced_gates_come_back(made: Made) -> None:
    source, make, text, held = made
    model = make()
    with torch.no_grad():
        for module in connections(model)[:-1]:
            module.gates.mul_(0.8)
    before = compare(source, model, held).kl
    refine(model, source, long_text(text), steps=STEPS, batch=8, learning_rate=2e-2)
    floor = compare(source, make(), held).kl
    after = compare(source, model, held).kl
    assert after - floor < 0.3 * (before - floor)


def test_only_converted_tensors_move(made: Made) -> None:
    source, make, _, _ = made
    before, theirs = state(make()), state(source)
    model, found = fitted(made)
    changed = {name for name, tensor in state(model).items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if own(name)}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in source.state_dict().items())
    assert found.parameters == sum(before[name].numel() for name in changed)


def test_the_same_seed_gives_the_same_bits(made: Made) -> None:
    (first, one), (second, two), (third, _) = (fitted(made, seed=seed) for seed in (3, 3, 4))
    assert one == two
    assert all(torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values()))
    assert any(not torch.equal(a, b) for a, b in zip(first.state_dict().values(), third.state_dict().values()))


def test_validation_windows_are_never_fitted(made: Made) -> None:
    """Every window is fitted once before any comes again, and the last ones never."""
    source, make, text, _ = made
    model, seen = make(), []

    def listen(module: Any, args: Any, kwargs: dict[str, Tensor]) -> None:
        if torch.is_grad_enabled():
            seen.extend(tuple(row.tolist()) for row in kwargs["input_ids"])

    model.register_forward_pre_hook(listen, with_kwargs=True)
    rows = [tuple(row.tolist()) for row in text.tokens]
    last = len(rows) // VALIDATION
    assert last == 3
    found = refine(model, source, text, steps=9, batch=3)
    assert len(set(rows)) == len(rows)
    assert sorted(seen) == sorted(rows[:-last])
    assert found.validation_tokens == last * CONTEXT
    assert found.tokens == 9 * 3 * CONTEXT
    first = replace(text, tokens=torch.tensor(seen[:3]))
    assert found.losses[0] == pytest.approx(compare(source, make(), first).kl, rel=1e-4)
    checked = replace(text, tokens=text.tokens[-last:])
    assert found.validation[0] == (0, pytest.approx(compare(source, make(), checked).kl, rel=1e-9))
    assert found.kl == pytest.approx(compare(source, model, checked).kl, rel=1e-9)
    assert found.kl == min(kl for _, kl in found.validation)


def test_the_best_tensors_stay(made: Made) -> None:
    """With a rate that can only do harm, those from before the first step."""
    _, make, _, _ = made
    before = state(make())
    model, found = fitted(made, learning_rate=10.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    assert found.best_step == 0
    assert found.kl == found.kl_before < found.validation[-1][1]
    assert found.returns == (1, 2, 3, 4)


def test_numbers_that_overflow_are_left_again(made: Made) -> None:
    _, make, _, _ = made
    before = state(make())
    model, found = fitted(made, learning_rate=1e30, steps=20)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    assert [step for step, kl in found.validation if kl == math.inf]
    assert None in [kl for _, kl in found.document()["validation"]]
    json.dumps(found.document(), allow_nan=False)


def test_after_a_return_the_steps_are_smaller(made: Made) -> None:
    """A rate that is far too high at first still ends better than it began."""
    source, make, text, _ = made
    model = make()
    found = refine(model, source, long_text(text), steps=30, batch=8, learning_rate=1.0)
    assert 0 < len(found.returns) < len(found.validation) - 1
    assert found.best_step > found.returns[0]
    assert found.kl < found.kl_before


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_leaves_the_model_as_it_was(kind: type[BaseException], made: Made) -> None:
    source, make, text, _ = made
    model = make().train()
    model.lm_head.weight.requires_grad_(False)
    before, flags = state(model), [p.requires_grad for p in model.parameters()]
    moved = []

    def progress(done: int, total: int, what: str) -> None:
        assert (total, what.split(":")[0]) == (5, "refining")
        moved.append(any(not torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()))
        if done == 3:
            raise kind

    with pytest.raises(kind):
        refine(model, source, text, steps=5, batch=2, learning_rate=2e-3, progress=progress)
    assert moved == [True] * 3
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert all(module.training for module in model.modules())
    model.lm_head.weight.requires_grad_(True)


def test_flags_and_modes_come_back(made: Made) -> None:
    model, _ = fitted(made, steps=1)
    assert all(p.requires_grad for p in model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert not model.training


def test_a_bfloat16_model_is_fitted_too(tmp_path: Path) -> None:
    folder = files(tmp_path)
    source = load_model(folder / "source", dtype="bfloat16")
    text = read_text(folder / "text.txt", folder / "source", context=CONTEXT)
    model = attached_twin(source, folder / "out")
    found = refine(model, source, text, steps=12, batch=8, learning_rate=1e-2)
    assert {p.dtype for module in connections(model) for p in module.parameters()} == {torch.float32}
    assert found.kl < found.kl_before


def test_figures_come_as_a_document(made: Made) -> None:
    _, found = fitted(made)
    document = found.document()
    assert document["steps"] == len(document["losses"]) == 4
    assert document["validation"][0] == [0, pytest.approx(found.kl_before, rel=1e-3)]
    assert document["batch"] == 2


def test_a_batch_is_no_larger_than_the_text(made: Made) -> None:
    _, _, text, _ = made
    _, found = fitted(made, steps=1, batch=1000)
    assert found.batch == len(text.tokens) - len(text.tokens) // VALIDATION


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"steps": 0}, "refine steps: found 0, expected at least 1"),
    "no batch": ({"batch": 0}, "refine batch: found 0, expected at least 1"),
    "no rate": ({"learning_rate": 0.0}, "refine learning rate: found 0.0, expected a number above 0"),
    "nan": ({"learning_rate": math.nan}, "refine learning rate: found nan"),
    "infinite": ({"learning_rate": math.inf}, "refine learning rate: found inf"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, made: Made) -> None:
    options, message = BAD[case]
    source, make, text, _ = made
    model = make()
    before = state(model)
    given = {"steps": 4, "batch": 2, **options}
    assert_refused(lambda: refine(model, source, text, **given), message)
    assert all(torch.equal(tensor, before[name]) for name, tensor in state(model).items())


def test_bad_models_and_texts(made: Made) -> None:
    source, make, text, _ = made
    one = replace(text, tokens=text.tokens[:1])
    assert_refused(lambda: refine(make(), source, one, steps=1), "text.txt: holds 1 window of 32 tokens, expected at")
    narrow = make()
    for module in connections(narrow):
        module.to(torch.bfloat16)
    assert_refused(lambda: refine(narrow, source, text, steps=1), "hyper-connections are in torch.bfloat16, expected")
    assert_refused(lambda: refine(torch.nn.Linear(2, 2), source, text, steps=1), "found a model of type None")
