"""``streamgauge check``: accepted, refused (exit code 1) and bad input (exit code 2)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli


def certificate(folder: Path) -> Path:
    return folder / "certificate.json"


def test_accepts_and_reports_distances(checkpoint: Path, converted: Path, cli: Cli) -> None:
    ran = cli("check", certificate(converted), "--file", converted, "--source", checkpoint, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["ok"] is True
    assert ran.document["facts"], "no distances reported"
    assert cli("check", certificate(converted)).out.startswith("accepted: ")


def test_refuses_a_changed_file(checkpoint: Path, converted: Path, tmp_path: Path, cli: Cli) -> None:
    other = shutil.copytree(converted, tmp_path / "other")
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    ran = cli("check", certificate(converted), "--file", other, "--json")
    assert ran.code == 1
    assert ran.document["ok"] is False
    assert "model.safetensors" in ran.document["reason"]


def test_refuses_a_foreign_source(converted: Path, tmp_path: Path, cli: Cli) -> None:
    import small_networks

    from streamgauge.simulate.checkpoint import save_model

    other = save_model(tmp_path / "other", small_networks.network(seed=1))
    ran = cli("check", certificate(converted), "--file", converted, "--source", other)
    assert ran.code == 1
    assert ran.out.startswith("refused: ")


def edited(change: Callable[[str], str]) -> Callable[[Path], None]:
    return lambda path: (path.write_text(change(path.read_text())), None)[1]


SPOILT: dict[str, Callable[[Path], None]] = {
    "truncated": edited(lambda text: text[: len(text) // 2]),
    "one digit": edited(lambda text: text.replace("0x1.", "0x1.8", 1)),
    "empty": edited(lambda text: ""),
    "no object": edited(lambda text: "[]"),
    "Infinity": edited(lambda text: '{"format_version": Infinity}'),
    "pickle": lambda path: (path.write_bytes(b"\x80\x04\x95"), None)[1],
    "missing field": edited(lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "levels"})),
    "another kind": edited(lambda text: json.dumps({**json.loads(text), "kind": "rank"})),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_spoilt_certificates_are_refused_with_a_reason(
    spoil: Callable[[Path], None], converted: Path, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "certificate.json"
    shutil.copy(certificate(converted), path)
    assert cli("check", path).code == 0, "the control: unspoilt, it passes"
    spoil(path)
    ran = cli("check", path)
    assert ran.code == 1
    assert ran.err == ""
    assert ran.out.startswith("refused: ")
    assert ran.out.count("\n") == 1


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "missing": (("nowhere.json",), "nowhere.json: not found, expected a certificate file"),
    "a directory": (("folder",), "folder: is a directory, expected a certificate file (DIR/certificate.json)"),
    "under a file": (("file/cert.json",), "file/cert.json: not found, expected a certificate file"),
    "converted missing": (
        ("file", "--file", "nowhere"),
        "nowhere: not found, expected the converted checkpoint directory",
    ),
    "converted is a file": (
        ("file", "--file", "file"),
        "file: is a file, expected the converted checkpoint directory",
    ),
    "source missing": (
        ("file", "--file", "folder", "--source", "nowhere"),
        "nowhere: not found, expected the source checkpoint directory",
    ),
    "source alone": (
        ("file", "--source", "folder"),
        "check: found a source without a converted file, expected both or the file alone",
    ),
    "no argument": ((), "Missing argument 'CERT'."),
    "unknown option": (("file", "--quick"), "No such option: --quick"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_bad_input(
    words: tuple[str, ...], message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("{}")
    ran = cli("check", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamgauge: error: {message}")
    assert ran.err.count("\n") == 1
