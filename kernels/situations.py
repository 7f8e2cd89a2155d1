"""One table of what the kernels are asked to do, for the self test, the byte count, the compiler and the benchmark.

A situation calls the public functions of a backend (a module with the names of :mod:`.reference`), so that the same
call runs on the reference in float64 and on the kernels.  ``x`` and ``y`` are in the state's dtype, the rest in the
coefficients'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

STATE = ("x", "y")
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "softmax+eps": {
        "order": ("rows", "columns"), "start": "softmax", "start_eps": 1e-6, "eps": 1e-6, "eps_mode": "add",
        "iterations": 20,
    },
    "log": {
        "order": ("columns", "rows"), "start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none",
        "iterations": 20,
    },
    "clamp": {
        "order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 1e-3, "eps_mode": "clamp",
        "iterations": 10,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """``call(backend, tensors)`` gives the outputs; ``shapes(n, d, tokens)`` says what to draw.

    ``terms(n, d, tokens)``: the longest chain of float32 additions behind an output or a gradient.
    """

    op: str
    mode: str
    shapes: Callable[[int, int, int], dict[str, tuple[int, ...]]]
    call: Callable[[Any, Mapping[str, Tensor]], Tensor | Sequence[Tensor]]
    terms: Callable[[int, int, int], int]
    scales: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
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

    def run(self, backend: Any, tensors: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The outputs, always as a tuple."""
        made = self.call(backend, tensors)
        return (made,) if isinstance(made, Tensor) else tuple(made)


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
        return {
            "x": (tokens, n, d),
            "y": (tokens, d),
            "r": (tokens, n),
            **_coefficient_shapes(mode, n, tokens),
        }

    def call(backend: Any, given: Mapping[str, Tensor]) -> Any:
        carry = {name: given[name] for name in ("mixer", "gates") if name in given}
        norm = {"eps": 1e-3, "cap": 1.5} if mode == "norm" else {}
        return backend.write(given["x"], given["y"], given["r"], mode=mode, **carry, **norm)

    return Situation("write", mode, shapes, call, lambda n, d, tokens: max(n + 1, d))


def _sinkhorn(name: str, recipe: Mapping[str, Any]) -> Situation:
    return Situation(
        "sinkhorn",
        name,
        lambda n, d, tokens: {"logits": (tokens, n, n)},
        lambda backend, given: backend.sinkhorn(given["logits"], **recipe),
        # Every half-step adds n numbers, takes a quotient or a logarithm, and is walked twice.
        lambda n, d, tokens: 4 * (n + 2) * recipe["iterations"],
        {"logits": 2.0},
    )


READ = Situation(
    "read",
    "",
    lambda n, d, tokens: {"x": (tokens, n, d), "p": (tokens, n)},
    lambda backend, given: backend.read(given["x"], given["p"]),
    lambda n, d, tokens: max(n, d),
)
SITUATIONS: tuple[Situation, ...] = (
    READ,
    *(_write(mode) for mode in ("full", "diag", "norm", "identity")),
    *(_sinkhorn(name, recipe) for name, recipe in RECIPES.items()),
)
