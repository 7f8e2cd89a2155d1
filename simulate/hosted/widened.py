# mypy: disable-error-code="no-untyped-call"
"""A Hugging Face model in true float64: these models cast to float32 inside, whatever the dtype of their weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Widened(TorchDispatchMode):
    """Inside, casts to float32 become casts to float64, and so do tensors made in float32.

    Buffers that a model has made in float32 before (rotary frequencies) keep that rounding; they are constants.
    """

    def __init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def wide_copy(model: Any) -> Any:
    """A copy with its weights, as they are stored, in float64; run it under :class:`Widened`.

    Takes the memory of the model again, twice that of one in float32.
    """
    made = copy.deepcopy(model).double()
    made.set_experts_implementation("eager")  # the grouped one has no float64
    return made.eval()
