"""``streamgauge verify``: table, strict JSON, report, exit codes; without torch too; and the README's table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Cli

from streamgauge.proofs.ledger import readme_table, run
from streamgauge.proofs.ledger.core import Status
from streamgauge.theory.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def test_json_is_alone_and_says_what_was_found(cli: Cli) -> None:
    ran = cli("verify", "--claim", "G37", "--claim", "th1", "--json")
    assert (ran.code, ran.err) == (0, "")
    first, second = ran.document["claims"]
    assert (first["id"], first["status"]) == ("G37", "refuted")
    assert first["witness"]
    assert first["check"]["control"]["witness"]
    assert (second["id"], second["status"]) == ("TH1", "holds")
    assert ran.document["counts"] == {s.value: {"refuted": 1, "holds": 1}.get(s.value, 0) for s in Status}
    assert ran.document["ok"] is True


def test_the_table_names_every_claim_and_the_witness_of_a_refutation(cli: Cli) -> None:
    ran = cli("verify", "--claim", "E06", "--claim", "G37", "--claim", "N04")
    assert (ran.code, ran.err) == (0, "")
    for words in ("3 claims at level quick", "refuted", "E06", "N04", "every verdict is the expected one"):
        assert words in ran.out


def test_documents(cli: Cli) -> None:
    ran = cli("verify", "--document", "t", "--no-torch", "--json")
    assert ran.code == 0
    assert {claim["document"] for claim in ran.document["claims"]} == {"T"}


def test_exit_code_1_where_a_verdict_differs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "expected_statuses", lambda level: {"N04": "refuted", "N03": "holds"})
    ran = cli("verify", "--claim", "N04", "--claim", "N03")
    assert ran.code == 1
    assert "1 verdict is not the expected one" in ran.out
    assert "not as expected" in ran.out


def test_torch_claims_are_counted_apart(cli: Cli) -> None:
    ran = cli("verify", "--claim", "NET1", "--claim", "TH1", "--no-torch", "--json")
    assert ran.code == 0
    assert ran.document["excused"] == ["NET1"]
    assert [c["status"] for c in ran.document["claims"]] == ["not run", "holds"]
    shown = cli("verify", "--claim", "NET1", "--no-torch")
    assert "1 not run for what is missing here, counted apart" in shown.out


def test_report(cli: Cli, tmp_path: Path) -> None:
    ran = cli("verify", "--claim", "TH2", "--out", tmp_path / "report", "--json")
    assert ran.code == 0
    assert ran.document["claims"][0]["id"] == "TH2"
    assert ran.err.startswith("streamgauge: note: wrote ")
    names = {path.relative_to(tmp_path / "report").as_posix() for path in (tmp_path / "report").rglob("*.*")}
    assert names >= {"report.html", "ledger.json", "certificates/binary.json"}
    assert cli("verify", "--claim", "TH2", "--out", tmp_path / "report").code == 0, (
        "a second time, into the same folder"
    )


@pytest.mark.parametrize("name", ["report.html", "ledger.json"])
def test_files_of_others_are_not_overwritten(
    name: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_text("mine")
    monkeypatch.setattr(run, "run_ledger", lambda *_, **__: pytest.fail("nothing may be computed first"))
    ran = cli("verify", "--claim", "N04", "--out", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"{name}: is not a report of this program, expected another folder\n")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_folder_is_tried_before_anything_is_computed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_ledger", lambda *_, **__: pytest.fail("nothing may be computed first"))
    ran = cli("verify", "--claim", "N04", "--out", "/proc/nowhere")
    assert ran.code == 2
    assert "cannot be written" in ran.err


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "claim": (("--claim", "G99"), "claim: found 'G99', expected an id of the ledger"),
    "document": (("--document", "Q"), "document: found 'Q', expected one of G, E, N, T, ours"),
    "level": (("--level", "slow"), "--level: found 'slow', expected quick or full"),
    "backend": (("--backend", "cuda"), "backend: found 'cuda', expected one of reference, triton"),
    "out is a file": (("--claim", "N04", "--out", "file"), "file: is a file, expected a folder"),
    "out is below a file": (("--claim", "N04", "--out", "file/x"), "file/x: cannot be written (Not a directory)"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input(
    words: tuple[str, ...], message: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    ran = cli("verify", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamgauge: error: {message}")
    assert ran.err.count("\n") == 1


WITHOUT_TORCH = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])
sys.meta_path.insert(0, Blocker())
from streamgauge.cli import main
code = main(["verify", "--document", "ours", "--json"])
assert "torch" not in sys.modules
sys.exit(code)
"""


def test_it_works_without_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr or done.stdout[-2000:]
    assert '"not run"' in done.stdout


def test_the_readme_table_is_current() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert readme_table.updated(text) == text, "run python -m streamgauge.proofs.ledger.readme_table README.md"
    assert len(text.splitlines()) <= 110
    with pytest.raises(InputError, match="a mark is missing"):
        readme_table.updated("nothing")


def test_the_readme_table_is_written_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{readme_table.BEGIN}\nstale text\n{readme_table.END}\nafter\n")
    assert readme_table.main([str(path)]) == 0
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "stale text" not in text
    assert "| all | " in text
