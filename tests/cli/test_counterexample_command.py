"""``streamgauge counterexample``: the story in tables, as JSON, and as files; a step that fails is exit code 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

from streamgauge.proofs.counterexample import search, story


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A search of a moment in place of the real one; the list says which was asked for."""
    asked: list[str] = []

    def run(name: str) -> Callable[..., list[search.Found]]:
        def jobs(step: Callable[[], None] = lambda: None) -> list[search.Found]:
            asked.append(name)
            sizes = {"pure iHC": (4, 2), "gated iHC": (20, 12)}
            return [search.search(k, 1, starts=s, iterations=i, step=step) for k, (s, i) in sizes.items()]

        return jobs

    for name in ("quick", "full"):
        monkeypatch.setattr(search, name, run(name))
    return asked


def test_json_and_files(short: list[str], tmp_path: Path, cli: Cli) -> None:
    out = tmp_path / "new" / "out"
    ran = cli("counterexample", "--json", "--out", out)
    assert ran.code == 0, ran.out + ran.err
    assert short == ["quick"]
    found = ran.document
    assert found["ok"] is True
    assert all(line["ok"] for line in found["lines"])
    assert {row["q"] for row in found["tails"]} == {1, 2, 5, 10, 20, 40, 80}
    assert found["tails"][4]["remainder"] == pytest.approx(6.59569e-4, rel=5e-6)
    assert {k["name"]: k["covered"] for k in found["kinds"]}["ReLU"] is False
    pictures = {"tails.png", "search.png", "family.png"}
    assert pictures <= {path.name for path in out.iterdir()}
    assert sorted(found["files"]) == sorted(str(path) for path in out.iterdir())
    certificates = [path for path in out.iterdir() if path.suffix == ".json"]
    assert len(certificates) == len(found["certificates"]) == 5
    assert cli("counterexample", "--json", "--out", out).code == 0, "a second time, into the same folder"
    for path in certificates:
        assert cli("check", path).code == 0
        assert json.loads(path.read_text())["digest"] in found["certificates"].values()


def test_tables(short: list[str], cli: Cli) -> None:
    ran = cli("counterexample", "--level", "full")
    assert ran.code == 0, ran.out + ran.err
    assert short == ["full"]
    for words in (
        "What was checked",
        "Can pure iHC",
        "Approximating",
        "Search: least error",
        "modulo 2: a common zero",
    ):
        assert words in ran.out
    assert "FAILS" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 120


def test_a_step_that_fails_gives_exit_code_1(short: list[str], monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(story, "mhc", story.gated)
    monkeypatch.setattr(story, "ROUND_OFF", 1e-30)
    ran = cli("counterexample")
    assert ran.code == 1
    assert "FAILS" in ran.out


@pytest.mark.parametrize("name", ["tails.png", "six-polynomials.json"])
def test_files_of_others_are_not_overwritten(name: str, short: list[str], tmp_path: Path, cli: Cli) -> None:
    (tmp_path / name).write_text("mine")
    ran = cli("counterexample", "--out", tmp_path)
    assert (ran.code, ran.out, short) == (2, "", [])
    assert ran.err.endswith(f"{name}: is not of this program, expected another folder\n")
    assert (tmp_path / name).read_text() == "mine"


BAD: dict[str, tuple[tuple[Any, ...], str]] = {
    "level": (("--level", "slow"), "--level: found 'slow', expected quick or full"),
    "out is a file": (("--out", "file"), "file: is a file, expected a folder"),
    "unknown option": (("--fast",), "No such option: --fast"),
    "a word too many": (("now",), "Got unexpected extra argument"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_options(
    words: tuple[Any, ...], message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    ran = cli("counterexample", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamgauge: error: {message}")
    assert ran.err.count("\n") == 1


def test_a_folder_under_a_file_is_refused_in_one_line(short: list[str], tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "file").write_text("")
    ran = cli("counterexample", "--out", tmp_path / "file" / "out")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
