# mypy: disable-error-code="import-untyped"
"""Every kernel launch in sight of an observer: what counts bytes and what cross-compiles both stand on this.

It knows no kernel: whatever the operations launch, with whatever tile they choose, is what gets counted or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


@dataclass(frozen=True, eq=False)
class Launch:
    """One call ``kernel[grid](**arguments)``; ``options`` are the compiler's (num_warps, num_stages)."""

    kernel: Any
    grid: Any
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.kernel.fn.__name__)


Handler = Callable[[Launch, Callable[[], Any]], Any]


@contextmanager
def intercepted(handle: Handler) -> Iterator[None]:
    """Inside, a launch calls ``handle(launch, go)`` and happens only if that calls ``go()``."""
    kept = {kind: kind.run for kind in (InterpretedFunction, JITFunction)}

    def through(kind: Any) -> Callable[..., Any]:
        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            names = set(self.arg_names)
            given = signature(self.fn).bind(*args, **{k: v for k, v in kwargs.items() if k in names})
            given.apply_defaults()
            options = {k: v for k, v in kwargs.items() if k not in names}
            launch = Launch(self, grid, dict(given.arguments), options)
            return handle(launch, lambda: kept[kind](self, *args, grid=grid, warmup=warmup, **kwargs))

        return run

    try:
        for kind in kept:
            kind.run = through(kind)
        yield
    finally:
        for kind, run in kept.items():
            kind.run = run
