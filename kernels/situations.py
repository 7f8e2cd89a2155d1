"""One table of what the kernels are asked to do, for the self test, the byte count, the compiler and the benchmark.

A situation calls the public functions on a backend by name, so that the same call runs on the reference in float64
and on the kernels.  ``x`` and ``y`` are in the state's dtype, the rest in the coefficients'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import dispatch
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site

STATE = ("x", "y")
# Large eps and few sweeps: with the usual ones, a wrong eps or a sweep too few would hide in the rounding.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "softmax+eps": {
        "order": ("rows", "columns"), "start": "softmax", "start_eps": 1e-3, "eps": 2e-3, "eps_mode": "add",
        "iterations": 20,
    },
    "log": {
        "order": ("columns", "rows"), "start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none",
        "iterations": 3,
    },
    "exp+eps": {
        "order": ("columns", "rows"), "start": "exp", "start_eps": 0.0, "eps": 1e-2, "eps_mode": "add",
        "iterations": 2,
    },
    "clamp": {
        "order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 0.3, "eps_mode": "clamp",
        "iterations": 3,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """``call(backend, tensors)`` gives the outputs; ``shapes(n, d, tokens)`` says what to draw.

    ``terms(n, d, tokens)``: the longest chain of float32 additions behind an output or a gradient.  ``roundings``:
    how often a number on its way is rounded to the state's dtype, each counted with its factor.
    """

    op: str
    mode: str
    shapes: Callable[[int, int, int], dict[str, tuple[int, ...]]]
    call: Callable[[str, Mapping[str, Tensor]], Tensor | Sequence[Tensor | None]]
    terms: Callable[[int, int, int], int]
    scales: Mapping[str, float] = field(default_factory=dict)
    roundings: int = 1

    @property
    def name(self) -> str:
        """Operation and mode, e.g. "write norm"."""
        return f"{self.op} {self.mode}".strip()

    def draw(
        self, n: int, d: int, tokens: int, *, dtype: torch.dtype, device: str = "cpu", seed: int = 0
    ) -> dict[str, Tensor]:
        """Normal tensors, each times its scale, rounded to what the kernels take; every one wants its gradient."""
        generator = torch.Generator().manual_seed(seed)
        out = {}
        for name, shape in self.shapes(n, d, tokens).items():
            made = self.scales.get(name, 1.0) * torch.randn(shape, generator=generator)
            kind = dtype if name in STATE else torch.float32
            out[name] = made.to(device=device, dtype=kind).requires_grad_()
        return out

    def run(self, backend: str, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The outputs, always as a tuple."""
        made = self.call(backend, tensors)
        return (made,) if isinstance(made, Tensor) else tuple(out for out in made if out is not None)


def gradients(
    outputs: Sequence[Tensor], tensors: Mapping[str, Tensor], cotangents: Sequence[Tensor]
) -> dict[str, Tensor]:
    """The gradient of ``sum <output, cotangent>`` in every tensor."""
    found = torch.autograd.grad(outputs, list(tensors.values()), list(cotangents))
    return dict(zip(tensors, found))


def _coefficient_shapes(mode: str, n: int, tokens: int) -> dict[str, tuple[int, ...]]:
    if mode == "identity":
        return {}
    return {"mixer": (tokens, n, n)} if mode == "full" else {"gates": (tokens, n)}


def _write(mode: str) -> Situation:
    def shapes(n: int, d: int, tokens: int) -> dict[str, tuple[int, ...]]:
        return {"x": (tokens, n, d), "y": (tokens, d), "r": (tokens, n), **_coefficient_shapes(mode, n, tokens)}

    def call(backend: str, given: Mapping[str, Tensor]) -> Tensor:
        carry: dict[str, Any] = {name: given[name] for name in ("mixer", "gates") if name in given}
        if mode == "norm":
            carry |= NORM
        return dispatch.write(given["x"], given["y"], given["r"], mode=mode, backend=backend, **carry)

    return Situation("write", mode, shapes, call, lambda n, d, tokens: max(n + 1, d))


def _sweeps(n: int, recipe: Mapping[str, Any]) -> int:
    # Every half-step adds n numbers, takes a quotient or a logarithm, and is walked twice.
    return int(4 * (n + 2) * recipe["iterations"])


def _sinkhorn(name: str, recipe: Mapping[str, Any]) -> Situation:
    return Situation(
        "sinkhorn",
        name,
        lambda n, d, tokens: {"logits": (tokens, n, n)},
        lambda backend, given: dispatch.sinkhorn(given["logits"], backend=backend, **recipe),
        lambda n, d, tokens: _sweeps(n, recipe),
        {"logits": 2.0},
    )


def _controller_shapes(rows: int, n: int, d: int, tokens: int, metric: bool) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"x": (tokens, n, d), "weight": (rows, n * d), "scale": (rows,)}
    return {**shapes, "base": (rows,), **({"metric": (n, n)} if metric else {})}


def _coefficients(metric: bool) -> Situation:
    return Situation(
        "coefficients",
        "raw, metric" if metric else "raw",
        lambda n, d, tokens: _controller_shapes(n * (n + 2), n, d, tokens, metric),
        lambda backend, given: dispatch.coefficients(**given, rms_eps=RMS_EPS, backend=backend),
        lambda n, d, tokens: n * d + tokens,
        WEIGHT,
    )


def _activated(activation: Activation) -> Situation:
    return Situation(
        "coefficients",
        activation.carry,
        lambda n, d, tokens: _controller_shapes(activation.rows(n), n, d, tokens, False),
        lambda backend, given: dispatch.activated(**given, activation=activation, rms_eps=RMS_EPS, backend=backend),
        lambda n, d, tokens: n * d + tokens + (_sweeps(n, MIXER.sinkhorn) if activation.carry == "mixer" else 0),
        WEIGHT,
    )


def _site(mode: str, activation: Activation, metric: bool = False) -> Situation:
    """The branch is the identity: it costs nothing, and its gradient is not zero."""

    def call(backend: str, given: Mapping[str, Tensor]) -> Tensor:
        controller = Controller(
            given["weight"], given["scale"], given["base"], activation, RMS_EPS, given.get("metric")
        )
        norm: dict[str, Any] = NORM if mode == "norm" else {}
        return site(given["x"], lambda u: u, mode=mode, controller=controller, backend=backend, **norm)

    return Situation(
        "site",
        f"{mode}, metric" if metric else mode,
        lambda n, d, tokens: _controller_shapes(activation.rows(n), n, d, tokens, metric),
        call,
        lambda n, d, tokens: 2 * n * d + tokens + (_sweeps(n, MIXER.sinkhorn) if mode == "full" else 0),
        WEIGHT,
        # u, X', dy and dX, times a write of at most 2
        roundings=8,
    )


WEIGHT = {"weight": 0.1, "base": 0.5, "scale": 0.5}
RMS_EPS = 1e-3
NORM: dict[str, Any] = {"eps": 1e-3, "cap": 1.5}
MIXER = Activation("mixer", read_eps=1e-4, start_eps=1e-3, eps=2e-3, transpose=True)
GATES = Activation("gates", read_eps=1e-4, write_eps=1e-5)
NONE = Activation("none", read_eps=1e-4)
READ = Situation(
    "read",
    "",
    lambda n, d, tokens: {"x": (tokens, n, d), "p": (tokens, n)},
    lambda backend, given: dispatch.read(given["x"], given["p"], backend=backend),
    lambda n, d, tokens: max(n, d),
)
SITUATIONS: tuple[Situation, ...] = (
    READ,
    *(_write(mode) for mode in ("full", "diag", "norm", "identity")),
    *(_sinkhorn(name, recipe) for name, recipe in RECIPES.items()),
    _coefficients(False),
    _coefficients(True),
    *(_activated(activation) for activation in (MIXER, GATES, NONE)),
    _site("full", MIXER),
    _site("diag", GATES),
    _site("norm", GATES),
    _site("identity", NONE),
    _site("full", MIXER, metric=True),
)
