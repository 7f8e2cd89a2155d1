"""The trainer: exact resume, safe interrupt, frozen parts, the loss curve."""

from __future__ import annotations

import io
import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from rule_networks import config

from streamgauge.simulate import checkpoint, train
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.simulate.train import Plan
from streamgauge.theory.errors import InputError

TEXT = bytes(range(16)) * 20
PLAN = Plan(steps=12, batch=3, warmup=3, save_every=5, seed=4)


def fresh() -> ByteLM:
    model = ByteLM(config(mixer="logits", recipe="deepseek-v4"))
    initialise(model, 0)
    return model


def weights(model: ByteLM) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    whole = fresh()
    run = train.train(whole, TEXT, PLAN, tmp_path / "whole")
    parts = fresh()
    first = train.train(parts, TEXT, PLAN, tmp_path / "parts", stop_after=7)
    again = ByteLM(parts.config)  # other weights: everything must come from the file
    torch.manual_seed(123)
    second = train.train(again, TEXT, PLAN, tmp_path / "parts", resume=True)
    assert (first.step, second.step) == (7, 12)
    assert second.losses == run.losses
    assert first.losses == run.losses[:7]
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, again.state_dict()[name]), name
        assert torch.equal(tensor, checkpoint.read(tmp_path / "parts" / "checkpoint").tensors[name]), name


def test_a_resume_without_the_optimizer_state_would_differ(tmp_path: Path) -> None:
    """Control: weights alone are not a resume."""
    whole, parts = fresh(), fresh()
    train.train(whole, TEXT, PLAN, tmp_path / "whole")
    train.train(parts, TEXT, PLAN, tmp_path / "parts", stop_after=7)
    state = torch.load(tmp_path / "parts" / "state.pt", weights_only=True)
    state["optimizer"]["state"] = {}
    torch.save(state, tmp_path / "parts" / "state.pt")
    train.train(parts, TEXT, PLAN, tmp_path / "parts", resume=True)
    assert any(not torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters()))


def test_the_seed_decides_the_batches(tmp_path: Path) -> None:
    runs = [
        train.train(fresh(), TEXT, replace(PLAN, seed=s), tmp_path / str(k)).losses for k, s in enumerate((1, 1, 2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_training_lowers_the_loss_and_writes_its_curve(tmp_path: Path) -> None:
    run = train.train(fresh(), TEXT, replace(PLAN, steps=150, lr=1e-2), tmp_path, metadata={"text": "counting"})
    assert run.losses[0] > 2.5
    assert sum(run.losses[-5:]) / 5 < 1.0  # the next byte is certain
    curve = json.loads((tmp_path / "loss.json").read_text())
    assert curve["training_loss"] == [round(x, 4) for x in run.losses]
    assert (tmp_path / "loss.png").read_bytes()[:4] == b"\x89PNG"
    training = checkpoint.read(tmp_path / "checkpoint").metadata["training"]
    assert (training["steps"], training["text"], training["plan"]["seed"]) == (150, "counting", 4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "loss.json", "loss.png", "state.pt"]


def test_an_interrupt_ends_after_the_step_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = train.train(fresh(), TEXT, PLAN, tmp_path / "whole").losses
    plain = train.random_batch
    calls: list[int] = []

    def pressing(*given: object) -> object:
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(train, "random_batch", pressing)
    before = signal.getsignal(signal.SIGINT)
    run = train.train(fresh(), TEXT, PLAN, tmp_path / "cut")
    assert run.interrupted
    assert run.losses == expected[:5]
    assert signal.getsignal(signal.SIGINT) is before
    rest = train.train(fresh(), TEXT, PLAN, tmp_path / "cut", resume=True)
    assert rest.losses == expected
    assert not rest.interrupted


def test_frozen_parts_stay(tmp_path: Path) -> None:
    model = fresh()
    before = weights(model)
    train.train(model, TEXT, replace(PLAN, freeze=("mixer",)), tmp_path)
    for name, tensor in weights(model).items():
        assert torch.equal(tensor, before[name]) == ("mixer" in name), name


def test_the_rate_rises_then_falls() -> None:
    plan = Plan(steps=100, warmup=10, floor=0.1)
    rates = [plan.rate(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.55)
    assert rates[99] == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * 89 / 90)))
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_only_matrices_of_branches_decay() -> None:
    groups = train._optimizer(fresh(), PLAN).param_groups
    decays = {tuple(p.shape): g["weight_decay"] for g in groups for p in g["params"]}
    assert decays[(6, 24)] == decays[(3, 3)] == decays[(8,)] == 0
    assert decays[(24, 8)] == 0.1


def test_the_bar_is_drawn_on_the_given_console(tmp_path: Path) -> None:
    shown = io.StringIO()
    train.train(fresh(), TEXT, replace(PLAN, steps=2), tmp_path, console=Console(file=shown, force_terminal=True))
    assert "2/2" in shown.getvalue()
    assert "loss" in shown.getvalue()


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train.train(fresh(), TEXT, replace(PLAN, steps=1), tmp_path)
    assert capfd.readouterr() == ("", "")


def test_bad_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    model = fresh()
    with pytest.raises(InputError, match="found 8 bytes, expected more than the context of 8"):
        train.train(model, TEXT[:8], PLAN, tmp_path)
    with pytest.raises(InputError, match="not found, expected the state of a run to resume"):
        train.train(model, TEXT, PLAN, tmp_path, resume=True)
    with pytest.raises(InputError, match="plan steps: found 0, expected at least 1"):
        Plan(steps=0)
    train.train(model, TEXT, PLAN, tmp_path, stop_after=1)
    with pytest.raises(InputError, match="exists already; expected a new folder, or resume"):
        train.train(model, TEXT, PLAN, tmp_path)
    with pytest.raises(InputError, match="was made with another plan"):
        train.train(model, TEXT, replace(PLAN, lr=1.0), tmp_path, resume=True)
    (tmp_path / "state.pt").write_bytes(b"not a state")
    with pytest.raises(InputError, match="not a training state"):
        train.train(model, TEXT, PLAN, tmp_path, resume=True)
