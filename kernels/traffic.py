# mypy: disable-error-code="import-untyped,no-untyped-call"
"""Bytes moved by every launch, counted in the interpreter: memory traffic as a number that needs no GPU.

Every ``tl.load`` and ``tl.store`` passes through two functions of the interpreter's builder; both are wrapped while
counting.  A lane whose mask is false moves nothing; an address belongs to the tensor argument it falls into.  So this
is what the kernels ask for: repeated reads of one address count each time (no cache), but for *weights*, which every
program reads and which stay in a GPU's L2: they, and weight gradients, are listed apart, once a launch.
Operations of torch between the launches (a reduction, a copy to make a tensor contiguous) are counted too: the bytes
of their tensors, views free.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.interpreter import interpreter_builder

from streamgauge.kernels import configs
from streamgauge.kernels.floors import floor, streaming, streaming_bound
from streamgauge.kernels.launches import Launch, intercepted
from streamgauge.kernels.processes import ask, question
from streamgauge.kernels.situations import SITUATIONS, Situation, gradients
from streamgauge.kernels.triton_common import INTERPRETED

WEIGHTS = frozenset({"weight", "dweight", "metric", "dmetric", "scale", "base", "sums"})
TORCH = "(torch)"


@dataclass
class LaunchBytes:
    """Of one launch: bytes ``loaded`` and ``stored`` per tensor argument, and each argument's size."""

    kernel: str
    sizes: dict[str, int] = field(default_factory=dict)
    loaded: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)

    def streamed(self, weights: Collection[str] = WEIGHTS) -> int:
        """Loads and stores of everything but weights."""
        return sum(b for side in (self.loaded, self.stored) for name, b in side.items() if name not in weights)

    def apart(self, weights: Collection[str] = WEIGHTS) -> int:
        """Weights read, once, and weight gradients written."""
        read = sum(min(b, self.sizes[name]) for name, b in self.loaded.items() if name in weights)
        return read + sum(b for name, b in self.stored.items() if name in weights)


class _TorchBytes(TorchDispatchMode):
    """Adds up the tensors that torch's own operations read and write."""

    def __init__(self, record: list[LaunchBytes]) -> None:
        super().__init__()
        self.record = record
        self.busy = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func)
        # Custom operations are the kernels themselves; empty and views move nothing.
        if (
            self.busy
            or not name.startswith("aten.")
            or name.startswith(("aten.empty", "aten.new_empty", "aten.detach"))
        ):
            return out
        results = [t for t in (out if isinstance(out, list | tuple) else [out]) if isinstance(t, torch.Tensor)]
        sources = [t for t in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        places = {t.untyped_storage().data_ptr() for t in sources}
        mutates = name.split(".")[1].endswith("_") or ".out" in name
        if not mutates and all(t.untyped_storage().data_ptr() in places for t in results):
            return out  # a view
        moved = LaunchBytes(f"{TORCH} {name}")
        moved.loaded["in"] = sum(t.numel() * t.element_size() for t in sources)
        moved.stored["out"] = sum(t.numel() * t.element_size() for t in results)
        self.record.append(moved)
        return out


@contextmanager
def counted() -> Iterator[list[LaunchBytes]]:
    """Collects a record of every launch, and of every operation of torch, made inside.

    **Raises** RuntimeError where triton is not interpreting (TRITON_INTERPRET=1 at the start of the process).
    """
    if not INTERPRETED:
        raise RuntimeError("bytes are counted in the interpreter: start the process with TRITON_INTERPRET=1")
    record: list[LaunchBytes] = []
    builder = type(interpreter_builder)
    load, store, atomics = builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw
    current: list[tuple[LaunchBytes, list[tuple[int, int, str]]]] = []
    mode = _TorchBytes(record)

    def note(side: str, pointers: Any, mask: Any) -> None:
        launch, places = current[-1]
        address = np.broadcast_to(pointers.data, np.broadcast_shapes(pointers.data.shape, mask.data.shape))
        live = address[np.broadcast_to(mask.data, address.shape).astype(bool)]
        if not live.size:
            return
        size = pointers.get_element_ty().primitive_bitwidth // 8
        name = next((name for low, high, name in places if low <= int(live[0]) < high), "?")
        totals = getattr(launch, side)
        totals[name] = totals.get(name, 0) + live.size * size

    def counting_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        note("loaded", ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def counting_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        note("stored", ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    def counting_atomic(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        note("loaded", ptr, mask)
        note("stored", ptr, mask)
        return atomics(self, op, ptr, val, mask, *rest)

    def handle(launch: Launch, go: Callable[[], Any]) -> Any:
        tensors = {k: v for k, v in launch.arguments.items() if isinstance(v, torch.Tensor)}
        made = LaunchBytes(launch.name, {k: v.numel() * v.element_size() for k, v in tensors.items()})
        places = [(v.data_ptr(), v.data_ptr() + v.numel() * v.element_size(), k) for k, v in tensors.items()]
        current.append((made, places))
        mode.busy = True
        try:
            return go()
        finally:
            mode.busy = False
            current.pop()
            record.append(made)

    builder.create_masked_load, builder.create_masked_store = counting_load, counting_store
    builder.create_atomic_rmw = counting_atomic
    try:
        with intercepted(handle), mode:
            yield record
    finally:
        builder.create_masked_load, builder.create_masked_store = load, store
        builder.create_atomic_rmw = atomics


@dataclass(frozen=True)
class Slope:
    """Bytes a token of one pass, per launch name, weights apart.

    ``floor``: the least possible, where it is known; for a site's backward without the write the streaming figure,
    and ``bound`` what two passes can really do (:func:`.floors.streaming_bound`).
    """

    name: str
    direction: str
    per_token: float
    weights: float
    launches: tuple[tuple[str, float], ...]
    floor: float | None = None
    bound: float | None = None

    @property
    def ratio(self) -> float | None:
        """Bytes a token over the least possible; None where no floor is known."""
        return None if self.floor is None else self.per_token / self.floor

    @property
    def bound_ratio(self) -> float | None:
        """Bytes a token over the bound; None where there is none."""
        return None if self.bound is None else self.per_token / self.bound


Pass = Callable[[int], tuple[Callable[[], Any], Callable[[Any], Any]]]


def slopes(
    name: str, prepare: Pass, *, sizes: tuple[int, int] = (16, 32), weights: Collection[str] = WEIGHTS
) -> list[Slope]:
    """Both passes of ``prepare(tokens) -> (forward, backward of its result)``, as slopes between two sizes."""
    found: dict[str, list[list[LaunchBytes]]] = {"forward": [], "backward": []}
    for tokens in sizes:
        forward, backward = prepare(tokens)
        with configs.device_tiles():
            with counted() as record:
                made = forward()
            found["forward"].append(record)
            with counted() as record:
                backward(made)
            found["backward"].append(record)
    return [_slope(name, way, few, many, sizes[1] - sizes[0], weights) for way, (few, many) in found.items()]


def _slope(
    name: str, way: str, few: list[LaunchBytes], many: list[LaunchBytes], tokens: int, weights: Collection[str]
) -> Slope:
    names = list(dict.fromkeys(launch.kernel for launch in many))

    def total(record: list[LaunchBytes], kernel: str) -> int:
        return sum(launch.streamed(weights) for launch in record if launch.kernel == kernel)

    parts = tuple((kernel, (total(many, kernel) - total(few, kernel)) / tokens) for kernel in names)
    apart = sum(launch.apart(weights) for launch in many)
    return Slope(name, way, sum(part for _, part in parts), apart, parts)


def of_situation(situation: Situation, n: int, d: int, dtype: torch.dtype) -> list[Slope]:
    """The two passes of a situation on the kernels, with their floors."""

    def prepare(tokens: int) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        tensors = situation.draw(n, d, tokens, dtype=dtype)
        with torch.no_grad():
            ones = [torch.ones_like(out) for out in situation.run("triton", tensors)]
        return lambda: situation.run("triton", tensors), lambda outputs: gradients(outputs, tensors, ones)

    size = dtype.itemsize
    found = [
        replace(slope, floor=floor(situation, slope.direction, n, d, size))
        for slope in slopes(situation.name, prepare)
    ]
    if situation.name == "site full":
        found.append(without_write(found[1], n, d, size))
    return found


def without_write(site: Slope, n: int, d: int, size: int) -> Slope:
    """Of mHC's backward the part of the read and the coefficients, beside the figure and the bound for it."""
    launches = tuple((kernel, bytes_) for kernel, bytes_ in site.launches if not kernel.startswith("write"))
    per_token = sum(bytes_ for _, bytes_ in launches)
    least = streaming(n, d, size), streaming_bound(n, d, size)
    return Slope("read and coefficients", site.direction, per_token, site.weights, launches, *least)


def of_liger(n: int, d: int, dtype: torch.dtype) -> list[Slope]:
    """liger-kernel's coefficients and whole site, by the same counter.

    Not for bfloat16, which the interpreter multiplies wrongly: float16 moves the same bytes.
    """
    from streamgauge.kernels import peers

    found = []
    for name, call in peers.liger_calls().items():

        def prepare(tokens: int, call: Any = call) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
            tensors = peers.liger_tensors(n, d, tokens, dtype, "cpu")
            ones = [torch.ones_like(out) for out in call(tensors)]
            return lambda: call(tensors), lambda outputs: gradients(outputs, tensors, ones)

        found += slopes(f"liger {name}", prepare, weights=peers.LIGER_WEIGHTS)
    return found


def rows(
    n: int = 4, d: int = 1024, names: Sequence[str] | None = None, dtype: str = "bfloat16", liger: bool = False
) -> list[Slope]:
    """Both passes of every situation (or those named), or of liger, in this process, which must interpret."""
    if liger:
        return of_liger(n, d, torch.float16 if dtype == "bfloat16" else getattr(torch, dtype))
    wanted = [s for s in SITUATIONS if names is None or s.name in names]
    return [slope for situation in wanted for slope in of_situation(situation, n, d, getattr(torch, dtype))]


def table(
    n: int = 4, d: int = 1024, names: Sequence[str] | None = None, dtype: str = "bfloat16", liger: bool = False
) -> list[Slope]:
    """:func:`rows` in a fresh process that interprets."""
    asked = {"n": n, "d": d, "names": names, "dtype": dtype, "liger": liger}
    answer = ask("streamgauge.kernels.traffic", asked, interpret=True)
    return [Slope(**{**row, "launches": tuple(map(tuple, row["launches"]))}) for row in answer]


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in rows(**question())]))
