"""The device benchmark on the interpreter with a wall clock: what it makes of a timer, without a GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from streamgauge.kernels import device_benchmark as measure
from streamgauge.kernels.situations import SITUATIONS


def clock(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    torch.compile = lambda function: function  # the compiler needs 20 s, and has nothing to do with the table
    device = measure.Device("here", 0.001, float("nan"))
    size = {"n": 2, "d": 8, "tokens": 4, "dtype": torch.float32, "where": "cpu"}
    wanted = [s for s in SITUATIONS if s.name in ("read", "site full", "sinkhorn log")]
    rows = measure.timings(device, clock, situations=wanted, **size)
    rows += measure.peer_timings(device, clock, **size)
    print(json.dumps([asdict(row) for row in rows]))
