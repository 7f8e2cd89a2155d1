"""Which implementation of the stream operations runs: the torch reference, or the Triton kernels.

A backend is a module with the functions of :mod:`streamgauge.kernels.reference`, same names and arguments.  The
choice belongs to the calling context, not to a network: one network runs on any of them, and is saved as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAMES = ("reference", "triton")
_current: ContextVar[str] = ContextVar("backend", default="reference")


def available(name: str) -> bool:
    """Whether the backend of that name can be imported here. **Raises** ValueError for an unknown name."""
    if name not in NAMES:
        raise ValueError(f"backend: found {name!r}, expected one of {', '.join(NAMES)}")
    return find_spec(f"{__package__}.{name}") is not None and (name != "triton" or find_spec("triton") is not None)


def current() -> str:
    """The name of the backend in use."""
    return _current.get()


def operations() -> Any:
    """The module in use."""
    return import_module(f"{__package__}.{_current.get()}")


@contextmanager
def using(name: str) -> Iterator[None]:
    """Networks run on that backend inside the block.

    **Raises** ValueError for an unknown name, ModuleNotFoundError where it cannot be imported.
    """
    if not available(name):
        raise ModuleNotFoundError(f"the {name} backend is not available", name=name)
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)
