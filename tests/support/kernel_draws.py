"""States, controllers and sites drawn from seeds, on the kernels: shared by the interpreted tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import dispatch
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site

CARRY = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": "none"}
FAST: dict[str, Any] = {"iterations": 3}


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def write(x: Tensor, y: Tensor, r: Tensor, mode: str, carry: Tensor | None = None, **more: Any) -> Tensor:
    named = {} if carry is None else {CARRY[mode]: carry}
    return dispatch.write(x, y, r, mode=mode, backend="triton", **named, **more)


def controller(n: int, d: int, carry: str, seed: int = 3, **options: Any) -> Controller:
    made = Activation(carry=carry, **{**FAST, **options})
    m = made.rows(n)
    weight = draw(m, n * d, seed=seed) * (n * d) ** -0.5
    return Controller(weight, draw(m, seed=seed + 1), draw(m, seed=seed + 2), made, rms_eps=1e-3)


def sites(n: int, d: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """One function of the state per mode, every coefficient from the state."""
    out: dict[str, Callable[[Tensor], Tensor]] = {}
    for mode, carry in CARRY.items():
        made = controller(n, d, carry)
        out[mode] = lambda x, mode=mode, made=made: site(  # type: ignore[misc]
            x, torch.tanh, mode=mode, controller=made, backend="triton"
        )
    return out
