"""Everything about the kernels that needs a GPU, in one command: ``python benchmarks/gpu_checks.py [FOLDER]``.

It compares every kernel with float64 (``streamgauge selftest``), repeats every situation 50 times and compares bits,
times every pass at T = 8192, n = 4, d = 4096 in bfloat16 beside torch.compile and, if it is installed, liger-kernel,
and holds the times against what was asked of them.  It writes ``gpu-DATE.json`` and ``roofline-DATE.png`` into FOLDER
(by default its own), prints a line for each check, and exits with 1 if one misses.  A part that fails is a check that
misses, and the others are still done.  Needs torch, triton, numpy, python-flint and matplotlib; the checkout need not
be installed.

Sized for less than 8 minutes on one H200 with 16 cores, most of it compiling, which runs side by side.  **It has not
run on a GPU yet**: none was at hand when it was written.
"""

from __future__ import annotations

import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("theory", "kernels", "simulate", "proofs")
PATIENCE = 330
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
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        if not installed():
            sys.path.insert(0, str(laid_out(Path(place))))
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


def installed() -> bool:
    """Whether the package is there with its rooms, and not only the folder of that name in a checkout."""
    try:
        if find_spec("streamgauge.kernels") is not None:
            return True
    except ModuleNotFoundError:
        pass
    sys.modules.pop("streamgauge", None)
    return False


def laid_out(folder: Path) -> Path:
    """The package as an installation has it, of links to this checkout; the folder to import from."""
    package = folder / "streamgauge"
    package.mkdir()
    for part in (*(ROOT / "streamgauge").iterdir(), *(ROOT / room for room in ROOMS)):
        (package / part.name).symlink_to(part)
    return folder


def measured(folder: Path) -> dict[str, Any]:
    """Runs everything on the device; what fails is named in "failed", and its part of the document is empty."""
    import torch
    import triton

    from streamgauge import __version__
    from streamgauge.kernels import device_benchmark, peers, selftest
    from streamgauge.kernels.situations import SITUATIONS

    failed: dict[str, str] = {}

    def part(what: str, call: Callable[[], Any], otherwise: Any) -> Any:
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)
        try:
            return call()
        except Exception as error:
            failed[what] = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            return otherwise

    compared = part("comparing with float64", lambda: selftest.on_device(patience=PATIENCE), [])
    shapes = [(4, 4096, 257)]
    repeated = part(
        f"repeating {REPEATS} times",
        lambda: selftest.rows(["bfloat16", "float32"], shapes=shapes, device="cuda", runs=REPEATS),
        [],
    )
    timer = device_benchmark.cuda_timer()
    nowhere = device_benchmark.Device(torch.cuda.get_device_name(), math.nan, math.nan)
    device = part("copying", lambda: device_benchmark.cuda_device(timer), nowhere)
    timings: list[Any] = []
    for situation in SITUATIONS:
        run = partial(device_benchmark.timings, device, timer, situations=[situation], **SHAPE)
        timings += part(f"timing {situation.name}", run, [])
    others = part("timing torch.compile", lambda: device_benchmark.compiled_timings(device, timer, **SHAPE), [])
    others += part("timing liger-kernel", lambda: device_benchmark.liger_timings(device, timer, **SHAPE), [])
    today = date.today().isoformat()
    part("drawing", lambda: drawn(folder / f"roofline-{today}.png", timings, device), None)
    versions = {
        "streamgauge": __version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "liger": peers.liger_version(),
        "python": platform.python_version(),
    }
    return {
        "date": today,
        "device": asdict(device),
        "versions": versions,
        "shape": {**SHAPE, "dtype": "bfloat16"},
        "failed": failed,
        "selftest": {"comparisons": len(compared), "missed": [asdict(row) for row in compared if not row.ok]},
        "determinism": {"quantities": len(repeated), "differ": [asdict(row) for row in repeated if not same(row)]},
        "timings": [asdict(row) for row in (*timings, *others)],
    }


def same(row: Any) -> bool:
    """Whether it ran, and gave the same bits every time."""
    return bool(row.repeats) and math.isfinite(row.error)


def drawn(target: Path, timings: Sequence[Any], device: Any) -> None:
    from streamgauge.roofline import roofline_picture

    roofline_picture(target, timings, device=device.name, copy=device.copy)


def judged(document: dict[str, Any]) -> Iterator[Check]:
    """One check after another, of what :func:`measured` found."""
    for what, why in document["failed"].items():
        yield Check(what, why, "no failure", False)
    test, bits = document["selftest"], document["determinism"]
    missed, count = len(test["missed"]), test["comparisons"]
    yield Check("selftest", f"{missed} of {count} missed", "none of at least one", count > 0 and not missed)
    differ, count = len(bits["differ"]), bits["quantities"]
    yield Check(f"{REPEATS} repeats", f"{differ} of {count} differ", "none of at least one", count > 0 and not differ)
    rows = {(row["name"], row["direction"]): row for row in document["timings"]}
    for key, share in SHARES.items():
        found = rows[key]["copy_share"] if key in rows else math.nan
        said = "not there" if math.isnan(found) else f"{found:.0%} of copy bandwidth"
        yield Check(" ".join(key), said, f"at least {share:.0%}", found >= share)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
