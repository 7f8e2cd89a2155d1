"""``streamgauge demo``: it touches only its own folder, reports every line, and a miss is exit code 1."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

from streamgauge.cli import demo


@contextmanager
def _this(folder: Path) -> Iterator[Path]:
    yield folder


@pytest.fixture
def on_a_small_network(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole demo on the small random network: the shipped one runs in tests/test_package.py, from a wheel."""
    monkeypatch.setattr(demo, "example_checkpoint", lambda name: _this(checkpoint))
    monkeypatch.setattr(demo, "TOKENS", 256)


@pytest.mark.usefixtures("on_a_small_network")
def test_runs_twice_and_touches_only_its_own(tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "demo"
    first = cli("demo", "--out", out)
    assert first.code == 0, first.out
    assert first.out.count("holds") == 9
    assert "µs a token" in first.out
    assert {path.name for path in out.iterdir()} == demo.OURS
    second = cli("demo", "--out", out, "--json")
    assert second.code == 0, "make demo is repeatable"
    assert second.document["ok"] is True
    assert second.document == json.loads((out / "demo.json").read_text())
    (out / "notes.txt").write_text("mine")
    third = cli("demo", "--out", out)
    wanted = f"{out}: not (only) a demo's folder, see 'notes.txt'; expected a new folder, e.g. --out NEW"
    assert (third.code, third.err) == (2, f"streamgauge: error: {wanted}\n")
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("on_a_small_network")
@pytest.mark.parametrize(
    ("name", "value"),
    [("COND_LIMIT", 0.5), ("RESIDUAL_LIMIT", -1.0), ("CONTROL", 1e9)],
    ids=["cond", "residual", "control"],
)
def test_a_line_that_misses_is_exit_code_1(
    name: str, value: float, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, name, value)
    ran = cli("demo", "--out", tmp_path / "demo", "--json")
    assert ran.code == 1
    assert ran.document["ok"] is False
    assert [line["ok"] for line in ran.document["lines"]].count(False) == 1


@pytest.mark.usefixtures("on_a_small_network")
def test_a_wrong_conversion_misses(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's table must notice a conversion whose read maps are transposed."""
    from streamgauge.simulate import convert

    honest = convert.convert_tensors

    def faulty(*args: Any, **options: Any) -> Any:
        made = honest(*args, **options)
        name = "sites.1.gauge.read"
        made.tensors[name] = made.tensors[name].mT.contiguous()
        return made

    monkeypatch.setattr(convert, "convert_tensors", faulty)
    ran = cli("demo", "--out", tmp_path / "demo", "--json")
    assert ran.code != 0


def test_nan_is_a_miss() -> None:
    assert demo.at_most("error", float("nan"), 1.0).ok is False
    assert demo.at_most("error", 1.0, 1.0).ok is True


BAD = {
    "a file": (("--out", "file"), "file: is a file, expected a new folder or one made by an earlier demo"),
    "under a file": (("--out", "file/x"), "file/x: cannot be made (Not a directory), expected a writable parent"),
    "a foreign folder": (
        ("--out", "foreign"),
        "foreign: not (only) a demo's folder, see 'thesis.tex'; expected a new ",
    ),
    "a folder of our names": (
        ("--out", "alike"),
        "alike: not (only) a demo's folder, see 'demo.json'; expected a new ",
    ),
    "a false marker": (("--out", "marked"), "marked: not (only) a demo's folder, see 'demo.json'; expected a new "),
    "a checkpoint": (("--out", "checkpoint"), "checkpoint: not (only) a demo's folder, see 'config.json'; expected "),
    "an argument": (("there",), "Got unexpected extra argument"),
    "unknown option": (("--fast",), "No such option: --fast"),
    "no value": (("--out",), "Option '--out' requires an argument"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input(
    words: tuple[str, ...], message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    for name in ("foreign/thesis.tex", "alike/cond.png", "marked/demo.json", "checkpoint/config.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    ran = cli("demo", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamgauge: error: {message}"), ran.err
    assert ran.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
