"""Everything about the kernels that needs a GPU, in one command: ``python benchmarks/gpu_checks.py [FOLDER]``.

It compares every kernel with float64 (``streamgauge selftest``), repeats every situation 50 times and compares bits,
times every pass at T = 8192, n = 4, d = 4096 in bfloat16 beside torch.compile and, if it is installed, liger-kernel,
and holds the times against what was asked of them.  It writes ``gpu-DATE.json`` and ``roofline-DATE.png`` into FOLDER
(by default its own), prints a line for each check, and exits with 1 if one misses.

Sized for less than 8 minutes on one H200 with 16 cores, most of it compiling, which runs side by side.  **It has not
run on a GPU yet**: none was at hand when it was written.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

SHAPE = {"n": 4, "d": 4096, "tokens": 8192}
REPEATS = 50
# of the device's measured copy bandwidth
SHARES = {
    ("read", "forward"): 0.85,
    ("write full", "forward"): 0.85,
    ("write diag", "forward"): 0.85,
    ("write norm", "forward"): 0.85,
    ("write identity", "forward"): 0.85,
    ("read", "backward"): 0.85,
    ("write full", "backward"): 0.80,
    ("write diag", "backward"): 0.80,
    ("write norm", "backward"): 0.80,
    ("write identity", "backward"): 0.80,
    ("coefficients mixer", "forward"): 0.60,
    ("coefficients mixer", "backward"): 0.30,
}
LIGER_FACTOR, COMPILE_FACTOR = 2.0, 1.0


@dataclass(frozen=True)
class Check:
    """``ok`` is None where there was nothing to compare with."""

    name: str
    found: str
    expected: str
    ok: bool | None


def main(arguments: Sequence[str]) -> int:
    import torch

    if not torch.cuda.is_available():
        print("gpu_checks: found no CUDA device, expected one", file=sys.stderr)
        return 2
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    start = time.monotonic()
    document = measured(folder)
    document["seconds"] = round(time.monotonic() - start, 1)
    checks = list(judged(document))
    document["checks"] = [asdict(check) for check in checks]
    target = folder / f"gpu-{document['date']}.json"
    target.write_text(json.dumps(finite(document), indent=1, allow_nan=False) + "\n")
    for check in checks:
        word = {True: "ok", False: "MISS", None: "-"}[check.ok]
        print(f"{word:5} {check.name}: {check.found}; expected {check.expected}")
    print(f"{document['seconds']:.0f} s; wrote {target}")
    return 1 if any(check.ok is False for check in checks) else 0


def measured(folder: Path) -> dict[str, Any]:
    """Runs everything on the device."""
    import torch
    import triton

    from streamgauge.kernels import device_benchmark, peers, selftest
    from streamgauge.roofline import roofline_picture

    say("comparing with float64")
    compared = selftest.on_device()
    say(f"repeating {REPEATS} times")
    repeated = selftest.rows(["bfloat16", "float32"], shapes=[(4, 4096, 257)], device="cuda", runs=REPEATS)
    say("timing")
    timer = device_benchmark.cuda_timer()
    device = device_benchmark.cuda_device(timer)
    timings = device_benchmark.timings(device, timer, **SHAPE)
    say("timing torch.compile and liger-kernel")
    others = device_benchmark.peer_timings(device, timer, **SHAPE)
    today = date.today().isoformat()
    roofline_picture(folder / f"roofline-{today}.png", timings, device=device.name, copy=device.copy)
    return {
        "date": today,
        "device": asdict(device),
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "liger": peers.liger_version()},
        "shape": {**SHAPE, "dtype": "bfloat16"},
        "selftest": {"comparisons": len(compared), "missed": [asdict(row) for row in compared if not row.ok]},
        "determinism": {"quantities": len(repeated), "differ": [asdict(row) for row in repeated if not row.repeats]},
        "timings": [asdict(row) for row in (*timings, *others)],
    }


def judged(document: dict[str, Any]) -> Iterator[Check]:
    """One check after another, of what :func:`measured` found."""
    test, bits = document["selftest"], document["determinism"]
    yield Check("selftest", f"{len(test['missed'])} of {test['comparisons']} missed", "none", not test["missed"])
    yield Check(
        f"{REPEATS} repeats", f"{len(bits['differ'])} of {bits['quantities']} differ", "none", not bits["differ"]
    )
    rows = {(row["name"], row["direction"]): row for row in document["timings"]}
    for key, share in SHARES.items():
        found = rows[key]["copy_share"]
        yield Check(" ".join(key), f"{found:.0%} of copy bandwidth", f"at least {share:.0%}", found >= share)
    own = site(rows, "site full")
    for name, factor in (("torch.compile site full", COMPILE_FACTOR), ("liger site full", LIGER_FACTOR)):
        other = site(rows, name)
        found = "not there" if other is None or own is None else f"{other / own:.2f} times faster"
        ok = None if other is None or own is None else other / own >= factor
        yield Check(f"whole site against {name.split()[0]}", found, f"at least {factor:g} times", ok)


def site(rows: dict[tuple[str, str], dict[str, Any]], name: str) -> float | None:
    """Microseconds of both passes."""
    both = [rows.get((name, direction)) for direction in ("forward", "backward")]
    return sum(row["microseconds"] for row in both if row) if all(both) else None


def finite(value: Any) -> Any:
    """JSON has no nan and no infinity: None stands for them."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
