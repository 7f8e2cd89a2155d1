"""``streamgauge selftest`` and ``streamgauge bench kernels``, on a machine without a GPU."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Cli

pytest.importorskip("triton")

import torch

from streamgauge.kernels import compile as cross
from streamgauge.kernels import peers, selftest, traffic
from streamgauge.roofline import roofline_picture

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
NAMES = ["read", "sinkhorn exp+eps"]


@pytest.fixture(scope="module")
def compared() -> list[selftest.Comparison]:
    return selftest.interpreted(["float32"], NAMES)


def test_selftest(cli: Cli, compared: list[selftest.Comparison], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "interpreted", lambda dtypes: compared)
    shown = cli("selftest")
    assert (shown.code, shown.err) == (0, "")
    assert f"{len(compared)} comparisons; every error is within its tolerance" in shown.out
    document = cli("selftest", "--device", "cpu", "--json").document
    assert document["ok"]
    assert {row["quantity"] for row in document["comparisons"]} == {"out 0", "d x", "d p", "d logits"}
    assert all(0 < row["error"] <= row["tolerance"] < 1e-4 for row in document["comparisons"])


@pytest.mark.parametrize("change", [{"error": 1.0}, {"error": float("inf")}, {"repeats": False}])
def test_a_miss_is_exit_code_1(
    cli: Cli, compared: list[selftest.Comparison], monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    rows = [dataclasses.replace(compared[0], **change), *compared[1:]]
    monkeypatch.setattr(selftest, "interpreted", lambda dtypes: rows)
    shown = cli("selftest")
    assert shown.code == 1
    assert "missed: read" in shown.out
    assert "1 missed" in shown.out
    assert not cli("selftest", "--json").document["ok"]


def test_a_kernel_that_does_not_run_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.kernels import situations

    (read,) = (s for s in situations.SITUATIONS if s.name == "read")
    monkeypatch.setattr(situations, "SITUATIONS", [dataclasses.replace(read, call=lambda backend, given: 1 / 0)])
    (row,) = selftest.rows(["float32"], shapes=[(2, 3, 4)])
    assert not row.ok
    assert row.quantity.startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("selftest", "--dtype", "float8"), "--dtype: found 'float8', expected one of float32, bfloat16, float16"),
        (("selftest", "--device", "tpu"), "--device: found 'tpu', expected auto, cuda or cpu"),
        (("selftest", "--device", "cuda"), "--device: found cuda, expected a CUDA device that torch sees, or cpu"),
        (("bench", "kernels", "--picture", "a.png"), "--picture: found no CUDA device"),
        (("bench", "kernels", "--streams", "17"), "Invalid value for '--streams'"),
    ],
)
def test_bad_words(cli: Cli, words: tuple[str, ...], said: str) -> None:
    shown = cli(*words)
    assert shown.code == 2
    assert shown.err.startswith(f"streamgauge: error: {said}")
    assert shown.err.count("\n") == 1


def test_without_triton(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.kernels import processes

    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    for words in (("selftest",), ("bench", "kernels")):
        shown = cli(*words)
        assert shown.code == 2
        assert shown.err == "streamgauge: error: this needs triton: pip install 'streamgauge[torch]'\n"


@pytest.mark.parametrize("words", [("selftest",), ("selftest", "--json"), ("bench", "kernels", "--quick")])
def test_triton_blanked(cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("traffic", "launches", "triton_common", "triton_streams"):
        monkeypatch.delitem(sys.modules, f"streamgauge.kernels.{name}", raising=False)
    shown = cli(*words)
    assert shown.code == 2
    assert shown.err == "streamgauge: error: this needs triton: pip install 'streamgauge[torch]'\n"


@pytest.mark.parametrize(
    ("body", "said", "words"),
    [
        (
            "raise ImportError('libtriton.so: cannot open\\nshared object')",
            "ImportError: libtriton.so: cannot open shared",
            ("selftest",),
        ),
        ("", "ModuleNotFoundError: No module named 'triton.language'", ("selftest",)),
        ("", "ModuleNotFoundError: No module named 'triton.language'", ("bench", "kernels", "--quick")),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'", ("selftest",)),
    ],
)
def test_triton_broken(tmp_path: Path, body: str, said: str, words: tuple[str, ...]) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(body + "\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-m", "streamgauge", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(f"streamgauge: error: triton: found one that does not import ({said}")
    assert ran.stderr.count("\n") == 1


def test_bench_kernels(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = [traffic.Slope("read", "forward", 102.0, 0.0, (("read_forward_kernel", 102.0),), 100.0)]
    moved += [traffic.Slope("read and coefficients", "backward", 105.0, 0.0, (), 100.0, 102.0)]
    theirs = [traffic.Slope("liger site full", "forward", 300.0, 7.0, ())]
    made = cross.Compiled("read", "read_forward_kernel", 90, 8, 30, 8192, 0, 0, 0, ())
    bad = dataclasses.replace(made, kernel="odd_kernel", local=8, spills=4, faults=("an atomic: x",))
    monkeypatch.setattr(traffic, "table", lambda n, d, names=None, liger=False: list(theirs if liger else moved))
    monkeypatch.setattr(cross, "table", lambda capabilities, n, d, names: [made, bad])
    monkeypatch.setattr(peers, "liger_version", lambda: "0.8.5")
    shown = cli("bench", "kernels")
    assert (shown.code, shown.err) == (0, "")
    for words in (
        "memory traffic",
        "1.0200",
        "1.0294",
        "liger site full",
        "cross-compiled",
        "read_forward",
        "an atomic: x",
    ):
        assert words in shown.out
    document = cli("bench", "kernels", "--json").document
    assert [row["ratio"] for row in document["traffic"]] == [1.02, 1.05, None]
    assert document["compiled"][1]["spills"] == 4
    assert document["liger"] == "0.8.5"
    assert [row["verdict"] for row in document["compiled"]] == ["ok", "an atomic: x; spills: slow"]


def test_roofline(tmp_path: Path) -> None:
    from streamgauge.kernels.device_benchmark import Timing

    timings = [
        Timing("read", "forward", 80.0, 335.0, 4.2, 0.9, 0.87, 0.4),
        Timing("read", "backward", 140.0, 604.0, 4.3, 0.9, 0.87, 0.5),
        Timing("write full", "forward", 140.0, 604.0, 4.3, 0.9, 0.87, 2.0),
    ]
    target = roofline_picture(tmp_path / "roof.svg", timings, device="a device", copy=4.4)
    text = target.read_text()
    assert text.startswith("<?xml")
    assert "<svg" in text
