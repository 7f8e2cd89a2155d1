"""The arithmetic of the GPU benchmark and the verdicts of its script, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    script = ROOT / "tests" / "support" / "device_benchmark_here.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    found: list[dict[str, Any]] = json.loads(
        subprocess.check_output([sys.executable, script], env=environment, text=True)
    )
    return found


def test_bytes_and_shares(rows: list[dict[str, Any]]) -> None:
    named = {(row["name"], row["direction"]): row for row in rows}
    assert named["read", "backward"]["megabytes"] == pytest.approx(4 * (5 * 8 * 4 + 8 * 2) / 1e6)
    # 4 tokens of (4n + 2) d numbers, and n (n + 2) rows of the weight
    assert named["site full", "forward"]["megabytes"] == pytest.approx(4 * (4 * 10 * 8 + 8 * 2 * 8) / 1e6)
    assert ("torch.compile site full", "backward") in named
    for row in rows:
        speed = row["megabytes"] / row["microseconds"]
        assert row["terabytes_per_second"] == pytest.approx(speed)
        assert row["copy_share"] == pytest.approx(speed / 0.001)
        assert math.isnan(row["floor_share"])


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_checks", ROOT / "benchmarks" / "gpu_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_checks"] = module
    spec.loader.exec_module(module)
    return module


def document(script: ModuleType, share: float, others: dict[str, float]) -> dict[str, Any]:
    timings = [{"name": n, "direction": d, "copy_share": share, "microseconds": 1.0} for n, d in script.SHARES]
    for name, time in {"site full": 100.0, **others}.items():
        timings += [{"name": name, "direction": d, "microseconds": time} for d in ("forward", "backward")]
    return {
        "selftest": {"comparisons": 9, "missed": []},
        "determinism": {"quantities": 9, "differ": []},
        "timings": timings,
    }


def test_verdicts(script: ModuleType) -> None:
    fast = {"torch.compile site full": 101.0, "liger site full": 201.0}
    good = document(script, 0.9, fast)
    assert all(check.ok for check in script.judged(good))
    assert [c.name for c in script.judged(document(script, 0.84, fast)) if not c.ok] == [
        " ".join(key) for key, least in script.SHARES.items() if least > 0.84
    ]
    slow = document(script, 0.9, {"torch.compile site full": 99.0, "liger site full": 199.0})
    assert [c.name for c in script.judged(slow) if not c.ok] == [
        "whole site against torch.compile",
        "whole site against liger",
    ]
    alone = document(script, 0.9, {"torch.compile site full": 101.0})
    assert [c.ok for c in script.judged(alone) if "liger" in c.name] == [None]
    good["selftest"]["missed"] = [1]
    good["determinism"]["differ"] = [1]
    assert [c.name for c in script.judged(good) if not c.ok] == ["selftest", "50 repeats"]
    assert script.finite({"a": [math.nan, 1.0]}) == {"a": [None, 1.0]}


def test_without_a_gpu_it_says_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    assert script.main([]) == 2
    assert capsys.readouterr().err == "gpu_checks: found no CUDA device, expected one\n"
