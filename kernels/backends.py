"""Which implementation of the stream operations a network runs on: the torch reference, or the Triton kernels.

The choice belongs to the calling context, not to a network: one network runs on any of them, and is saved as ever.
:mod:`streamgauge.kernels.dispatch` says what each backend takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch

from streamgauge.kernels import reference

NAMES = ("reference", "triton")
_current: ContextVar[str] = ContextVar("backend", default="reference")


def available(name: str) -> bool:
    """Whether that backend runs here; "triton" needs a CUDA device, or ``TRITON_INTERPRET=1`` at start.

    **Raises** ValueError for an unknown name.
    """
    if name not in NAMES:
        raise ValueError(f"backend: found {name!r}, expected one of {', '.join(NAMES)}")
    if name == "reference":
        return True
    return find_spec("triton") is not None and (_interpreted() or torch.cuda.is_available())


def current() -> str:
    """The name of the backend in use."""
    return _current.get()


def device() -> str:
    """Where the backend in use wants its tensors: "cuda" for compiled kernels, else "cpu"."""
    return "cuda" if current() == "triton" and not _interpreted() else "cpu"


def operations() -> Any:
    """``read``, ``write`` and ``coefficients`` of the backend in use, with the reference's arguments.

    The kernels also have ``site``, a whole site in fewer passes; the reference is its parts.
    """
    return reference if current() == "reference" else _kernels()


@contextmanager
def using(name: str) -> Iterator[None]:
    """Networks run on that backend inside the block.

    **Raises** ValueError for an unknown name, ModuleNotFoundError where it does not run.
    """
    if not available(name):
        raise ModuleNotFoundError(f"the {name} backend does not run here", name=name)
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


@cache
def _kernels() -> SimpleNamespace:
    from streamgauge.kernels import dispatch
    from streamgauge.kernels.site import site

    made = {name: partial(getattr(dispatch, name), backend="triton") for name in ("read", "write", "coefficients")}
    return SimpleNamespace(**made, site=partial(site, backend="triton"))


def _interpreted() -> bool:
    from streamgauge.kernels.dispatch import interpreted

    return interpreted()
