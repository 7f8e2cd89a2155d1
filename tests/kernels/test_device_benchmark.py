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
        "failed": {},
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
    nothing = {
        **good,
        "failed": {"timing": "no such device"},
        "timings": [],
        "selftest": {"comparisons": 0, "missed": []},
    }
    missed = [c.name for c in script.judged(nothing) if c.ok is False]
    assert missed == ["timing", "selftest", *(" ".join(key) for key in script.SHARES)]
    good["selftest"]["missed"] = [1]
    good["determinism"]["differ"] = [1]
    assert [c.name for c in script.judged(good) if not c.ok] == ["selftest", "50 repeats"]
    assert script.finite({"a": [math.nan, 1.0]}) == {"a": [None, 1.0]}


def test_one_part_fails_and_the_others_are_done(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from streamgauge.kernels import device_benchmark as measure
    from streamgauge.kernels import selftest
    from streamgauge.kernels.selftest import Comparison

    row = Comparison("read", "", "float32", (4, 4096, 257), "out 0", 0.0, 1e-6, True)
    crashed = Comparison("site", "full", "float32", (4, 4096, 257), "out of memory", math.inf, 0.0, True)

    def timings(device: Any, timer: Any, *, situations: Any, **shape: int) -> list[measure.Timing]:
        (one,) = situations
        if one.name == "write full":
            raise RuntimeError("an illegal\nmemory access")
        both = ("forward", "backward")
        return [measure.Timing(one.name, way, 10.0, 1.0, 4.0, 0.95, 0.9, 1.0) for way in both]

    def no_liger(*_: Any, **__: Any) -> list[measure.Timing]:
        raise ImportError("no liger here")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a device")
    monkeypatch.setattr(selftest, "on_device", lambda patience: [row])
    monkeypatch.setattr(selftest, "rows", lambda *_, **__: [row, crashed])
    monkeypatch.setattr(measure, "cuda_timer", lambda: None)
    monkeypatch.setattr(measure, "cuda_device", lambda timer: measure.Device("a device", 4.3, 4.9))
    monkeypatch.setattr(measure, "timings", timings)
    monkeypatch.setattr(measure, "compiled_timings", lambda *_, **__: [])
    monkeypatch.setattr(measure, "liger_timings", no_liger)
    assert script.main([str(tmp_path / "new")]) == 1
    said = capsys.readouterr().out
    assert "MISS  timing write full: RuntimeError: an illegal memory access; expected no failure" in said
    assert "MISS  write full forward: not there" in said
    assert "ok    read forward: 95% of copy bandwidth" in said
    (target,) = (tmp_path / "new").glob("gpu-*.json")
    document = json.loads(target.read_text())
    assert document["failed"]["timing liger-kernel"] == "ImportError: no liger here"
    assert [one["quantity"] for one in document["determinism"]["differ"]] == ["out of memory"]
    assert document["device"]["name"] == "a device"
    assert set(document["versions"]) == {"streamgauge", "torch", "cuda", "triton", "liger", "python"}
    assert len(list((tmp_path / "new").glob("roofline-*.png"))) == 1


def test_a_checkout_that_is_not_installed(tmp_path: Path) -> None:
    """Without site-packages there is no streamgauge: the script lays it out of links to the checkout."""
    code = (
        "import runpy, sys, pathlib; script = runpy.run_path(sys.argv[1]); assert not script['installed'](); "
        "sys.path.insert(0, str(script['laid_out'](pathlib.Path(sys.argv[2])))); "
        "import streamgauge.kernels; print(streamgauge.kernels.__file__)"
    )
    paths = [p for p in sys.path if p.endswith("site-packages")]
    # -S leaves the editable installation's finder out; the packages are still found, as plain folders.
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code, str(ROOT / "benchmarks" / "gpu_checks.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    assert Path(ran.stdout.strip()) == tmp_path / "streamgauge" / "kernels" / "__init__.py"


def test_without_a_gpu_it_says_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a GPU is there")
    assert script.main([]) == 2
    assert capsys.readouterr().err == "gpu_checks: found no CUDA device, expected one\n"
