# mypy: disable-error-code="no-untyped-call"
"""Times on a CUDA device: every pass of every situation, and a whole site beside torch.compile and liger-kernel.

Each time is the median of runs with a cold L2 (filled by reading: what was written would be put away on our time), by
events behind a pause long enough for Python to have queued it all.
Bytes are the formula's (:func:`.floors.floor`), so a pass that moves more looks slower, not better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from streamgauge.kernels import peers
from streamgauge.kernels.floors import floor, flops, weight_bytes
from streamgauge.kernels.situations import SITUATIONS, Situation

Timer = Callable[[Callable[[], Any]], float]
PAUSE, FLUSH = 6_000_000, 256 << 20
SITE = next(situation for situation in SITUATIONS if situation.name == "site full")


@dataclass(frozen=True)
class Device:
    """Its name, the measured copy bandwidth and the nominal one (nan if the driver does not say), in TB/s."""

    name: str
    copy: float
    nominal: float


@dataclass(frozen=True)
class Timing:
    """One pass.  ``copy_share``: of the copy bandwidth; ``floor_share``: the time of the floor's bytes at nominal
    bandwidth over the time taken; nan where a part is not known."""

    name: str
    direction: str
    microseconds: float
    megabytes: float
    terabytes_per_second: float
    copy_share: float
    floor_share: float
    flops_per_byte: float


def cuda_timer(repeats: int = 20, warm: int = 3) -> Timer:
    """Median seconds of a call on the current CUDA device."""
    flush = torch.zeros(FLUSH // 4, dtype=torch.float32, device="cuda")

    def seconds(call: Callable[[], Any]) -> float:
        for _ in range(warm):
            call()
        torch.cuda.synchronize()
        pairs = []
        for _ in range(repeats):
            flush.sum()
            torch.cuda._sleep(PAUSE)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize()
        return float(median(start.elapsed_time(end) for start, end in pairs)) / 1e3

    return seconds


def cuda_device(timer: Timer, bytes_copied: int = 1 << 30) -> Device:
    """The current device; a copy of ``bytes_copied`` reads and writes them once."""
    source = torch.ones(bytes_copied, dtype=torch.int8, device="cuda")
    target = torch.empty_like(source)
    copy = 2 * bytes_copied / timer(lambda: target.copy_(source)) / 1e12
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    clock, width = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    nominal = 2 * clock * 1e3 * width / 8 / 1e12 if clock and width else math.nan
    return Device(properties.name, copy, nominal)


def timings(
    device: Device,
    timer: Timer,
    *,
    n: int = 4,
    d: int = 4096,
    tokens: int = 8192,
    dtype: torch.dtype = torch.bfloat16,
    where: str = "cuda",
    situations: Sequence[Situation] = SITUATIONS,
) -> list[Timing]:
    """Both passes of every situation on the kernels."""
    found = []
    for situation in situations:
        tensors = situation.draw(n, d, tokens, dtype=dtype, device=where)
        for direction, seconds in _passes(partial(situation.run, "triton"), tensors, timer):
            found.append(_timing(situation.name, situation, direction, seconds, (n, d, tokens), dtype, device))
    return found


def peer_timings(device: Device, timer: Timer, **shape: Any) -> list[Timing]:
    """A whole mHC site in other hands; ``shape``: n, d, tokens, dtype, where."""
    return compiled_timings(device, timer, **shape) + liger_timings(device, timer, **shape)


def compiled_timings(
    device: Device,
    timer: Timer,
    *,
    n: int = 4,
    d: int = 4096,
    tokens: int = 8192,
    dtype: torch.dtype = torch.bfloat16,
    where: str = "cuda",
) -> list[Timing]:
    """A whole mHC site by torch.compile of the reference."""
    tensors = SITE.draw(n, d, tokens, dtype=dtype, device=where)
    compiled = torch.compile(lambda given: SITE.run("reference", given))
    # A backward pass may be run again only if its buffers are not given away.
    with functorch_config.patch(donated_buffer=False):
        passes = _passes(compiled, tensors, timer)
    name = "torch.compile site full"
    return [_timing(name, SITE, way, seconds, (n, d, tokens), dtype, device) for way, seconds in passes]


def liger_timings(
    device: Device,
    timer: Timer,
    *,
    n: int = 4,
    d: int = 4096,
    tokens: int = 8192,
    dtype: torch.dtype = torch.bfloat16,
    where: str = "cuda",
) -> list[Timing]:
    """liger-kernel's coefficients and whole site, nothing where it is not installed."""
    if peers.liger_version() is None:
        return []
    given = peers.liger_tensors(n, d, tokens, dtype, where)
    named = {situation.name: situation for situation in SITUATIONS}
    return [
        _timing(f"liger {name}", named[name], way, seconds, (n, d, tokens), dtype, device)
        for name, call in peers.liger_calls().items()
        for way, seconds in _passes(call, given, timer)
    ]


def _passes(
    call: Callable[[Mapping[str, Tensor]], Any], tensors: Mapping[str, Tensor], timer: Timer
) -> list[tuple[str, float]]:
    outputs = call(tensors)
    ones = [torch.ones_like(out) for out in outputs]

    def backward() -> Any:
        return torch.autograd.grad(outputs, list(tensors.values()), ones, retain_graph=True)

    return [("forward", timer(lambda: call(tensors))), ("backward", timer(backward))]


def _timing(
    name: str,
    situation: Situation,
    direction: str,
    seconds: float,
    shape: tuple[int, int, int],
    dtype: torch.dtype,
    device: Device,
) -> Timing:
    """``name`` took ``seconds`` for what ``situation`` does, on ``shape`` = (n, d, tokens)."""
    n, d, tokens = shape
    moved = tokens * floor(situation, direction, n, d, dtype.itemsize) + weight_bytes(situation, direction, n, d)
    work = tokens * flops(situation, direction, n, d)
    speed = moved / seconds / 1e12
    return Timing(
        name,
        direction,
        seconds * 1e6,
        moved / 1e6,
        speed,
        speed / device.copy,
        speed / device.nominal,
        work / moved,
    )
