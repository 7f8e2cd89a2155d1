"""The trainer: AdamW with a cosine schedule, exact resume, loss curve as JSON and PNG.

A run directory holds ``state.pt`` (weights, optimizer, random generator, step and losses, read with
``weights_only=True``), ``loss.json``, ``loss.png`` and ``checkpoint/``.  Every file is written beside and renamed, so
an interrupt leaves the last complete one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from streamgauge.kernels.backends import current, using
from streamgauge.simulate import checkpoint
from streamgauge.simulate.data import as_tokens, random_batch
from streamgauge.simulate.model import ByteLM
from streamgauge.simulate.network import is_coefficient
from streamgauge.theory.errors import InputError

STATE_VERSION = 1


@dataclass(frozen=True)
class Plan:
    """How to train.

    ``freeze``: parts of names whose parameters stay as they are ("mixer").  ``coefficient_lr`` is for the
    hyper-connection's own tensors, which get no weight decay.  The rate rises over ``warmup`` steps and falls to
    ``floor`` times its peak along a cosine.
    """

    steps: int = 2000
    batch: int = 16
    lr: float = 3e-3
    coefficient_lr: float = 3e-3
    warmup: int = 100
    floor: float = 0.05
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    save_every: int = 200
    freeze: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "save_every"):
            if getattr(self, name) < 1:
                raise InputError(f"plan {name}: found {getattr(self, name)}, expected at least 1")
        object.__setattr__(self, "freeze", tuple(self.freeze))

    def rate(self, step: int) -> float:
        """The factor of the learning rate at a step, in (0, 1]."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.steps - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass(frozen=True)
class Run:
    """What a call of :func:`train` did: the step reached, the training loss of every step, and whether it was
    interrupted (its state is saved then)."""

    step: int
    losses: tuple[float, ...]
    interrupted: bool


def train(
    model: ByteLM,
    text: bytes,
    plan: Plan,
    folder: str | Path,
    *,
    metadata: Mapping[str, Any] | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    backend: str | None = None,
    console: Console | None = None,
) -> Run:
    """Train ``model`` in place on ``text``; with a ``console``, show a progress bar there.

    ``resume`` continues from ``folder/state.pt`` and gives bit for bit the weights of an uninterrupted run (same
    machine, same thread count); without it a folder that has a state is refused.  ``stop_after`` ends the call after
    that many steps, as an interrupt would.  Ctrl-C saves and returns.  ``backend``: what the streams' operations run
    on (:mod:`streamgauge.kernels.backends`), by default the one in use; the model is where the caller put it.
    """
    folder = Path(folder)
    tokens = as_tokens(text)
    if len(tokens) <= model.config.context:
        found = f"{len(tokens)} bytes"
        raise InputError(f"training text: found {found}, expected more than the context of {model.config.context}")
    state_file = folder / "state.pt"
    if state_file.exists() and not resume:
        raise InputError(f"{state_file}: exists already; expected a new folder, or resume")
    optimizer = _optimizer(model, plan)
    generator = torch.Generator().manual_seed(plan.seed)
    losses: list[float] = []
    if resume:
        losses = _restore(state_file, model, optimizer, generator, plan)
    folder.mkdir(parents=True, exist_ok=True)
    last = plan.steps if stop_after is None else min(plan.steps, len(losses) + stop_after)
    model.train()
    on = using(backend or current())
    with on, _interrupts() as interrupted, _bar(console, plan.steps, len(losses)) as advance:
        while len(losses) < last and not interrupted():
            losses.append(_step(model, optimizer, plan, len(losses), tokens, generator))
            advance(losses[-1])
            if len(losses) % plan.save_every == 0 and len(losses) < last:
                _save(folder, model, optimizer, generator, plan, losses, metadata)
        stopped = interrupted()
    model.eval()
    _save(folder, model, optimizer, generator, plan, losses, metadata)
    return Run(len(losses), tuple(losses), stopped)


def _optimizer(model: ByteLM, plan: Plan) -> torch.optim.AdamW:
    groups: dict[str, list[Tensor]] = {"coefficient": [], "matrix": [], "vector": []}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(part in name for part in plan.freeze))
        if parameter.requires_grad:
            kind = "coefficient" if is_coefficient(name) else "matrix" if parameter.ndim == 2 else "vector"
            groups[kind].append(parameter)
    settings = {
        "coefficient": (plan.coefficient_lr, 0.0),
        "matrix": (plan.lr, plan.weight_decay),
        "vector": (plan.lr, 0.0),
    }
    listed: list[dict[str, Any]] = []
    for kind, parameters in groups.items():
        if parameters:
            peak, decay = settings[kind]
            listed.append({"params": parameters, "lr": peak, "peak": peak, "weight_decay": decay})
    return torch.optim.AdamW(listed, betas=(0.9, 0.98), eps=1e-9)


def _step(
    model: ByteLM,
    optimizer: torch.optim.AdamW,
    plan: Plan,
    step: int,
    tokens: Tensor,
    generator: torch.Generator,
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * plan.rate(step)
    device = next(model.parameters()).device
    inputs, targets = (
        batch.to(device) for batch in random_batch(tokens, model.config.context, plan.batch, generator)
    )
    loss = model.loss(inputs, targets)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
    optimizer.step()
    return float(loss.detach())


@contextlib.contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed since; it takes effect between two steps, never inside an update."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _bar(console: Console | None, total: int, done: int) -> Iterator[Callable[[float], None]]:
    """A progress bar on ``console``; yields what to call with each step's loss."""
    if console is None:
        yield lambda loss: None
        return
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.3f}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("training", total=total, completed=done, loss=float("nan"))
        yield lambda loss: progress.update(task, advance=1, loss=loss)


def _save(
    folder: Path,
    model: ByteLM,
    optimizer: torch.optim.AdamW,
    generator: torch.Generator,
    plan: Plan,
    losses: list[float],
    metadata: Mapping[str, Any] | None,
) -> None:
    state = {
        "version": STATE_VERSION,
        "config": json.dumps(model.config.to_json(), sort_keys=True),
        "plan": json.dumps(asdict(plan), sort_keys=True),
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
        "losses": losses,
    }
    _replace(folder / "state.pt", lambda path: torch.save(state, path))
    curve = json.dumps({"unit": "nats per byte", "training_loss": [round(x, 4) for x in losses]}) + "\n"
    _replace(folder / "loss.json", lambda path: path.write_text(curve, encoding="utf-8"))
    _replace(folder / "loss.png", lambda path: _plot(losses, path))
    training = {"steps": len(losses), "plan": asdict(plan), **dict(metadata or {})}
    checkpoint.save_model(folder / "checkpoint", model, {"training": training}, force=True)


def _restore(
    path: Path, model: ByteLM, optimizer: torch.optim.AdamW, generator: torch.Generator, plan: Plan
) -> list[float]:
    if not path.is_file():
        raise InputError(f"{path}: not found, expected the state of a run to resume")
    try:
        state = torch.load(path, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, OSError) as error:
        raise InputError(f"{path}: not a training state ({str(error).splitlines()[0]})") from None
    if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
        raise InputError(f"{path}: not a training state of version {STATE_VERSION}")
    for name, value in (("config", model.config.to_json()), ("plan", asdict(plan))):
        if json.loads(state[name]) != json.loads(json.dumps(value)):
            raise InputError(f"{path}: was made with another {name}; expected the same to resume")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    generator.set_state(state["generator"])
    return [float(x) for x in state["losses"]]


def _replace(path: Path, write: Callable[[Path], Any]) -> None:
    """Write beside, then rename."""
    beside = path.with_name(f".{path.stem}.new{path.suffix}")
    write(beside)
    os.replace(beside, path)


def _plot(losses: list[float], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(range(1, len(losses) + 1), losses, linewidth=0.8)
    axes.set(xlabel="step", ylabel="training loss (nats per byte)")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
