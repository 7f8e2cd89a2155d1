"""The front of the command line: version, exit codes, interrupts, closed pipes, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import Cli

from streamgauge.cli.terminal import plain, power


def process(*words: object, cwd: Path, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *flags, "-m", "streamgauge", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


COMMANDS = (
    *("demo", "convert", "inspect", "eval", "barcode", "check", "verify", "verify-pointwise"),
    *("counterexample", "selftest", "bench"),
)


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out == "streamgauge 0.1.0\n"
    shown = cli("--help")
    assert shown.code == 0
    for command in COMMANDS:
        assert command in shown.out


MISTAKES = {
    "nothing": ((), "no command given; try streamgauge --help"),
    "unknown command": (("transmute",), "No such command 'transmute'."),
    "unknown option": (("--colour",), "No such option: --colour"),
    "bench of nothing": (("bench",), "no command given; try streamgauge --help"),
    "bench of something else": (("bench", "coffee"), "No such command 'coffee'."),
    "bench with a word too many": (("bench", "theory", "now"), "Got unexpected extra argument"),
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_one_line_and_exit_2(words: tuple[str, ...], message: str, cli: Cli) -> None:
    ran = cli(*words)
    assert ran.code == 2
    assert ran.err.startswith(f"streamgauge: error: {message}"), ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["plain", "optimised"])
def test_as_a_process(flags: tuple[str, ...], tmp_path: Path) -> None:
    """Also under -O: nothing that guards input may be an assert."""
    (tmp_path / "m.json").write_text('[[["1/2", "1/2"], ["1/2", "1/2"]]]')
    if not flags:  # once is enough: -O has no compiled files to start from and is slow
        good = process("barcode", "m.json", "--json", cwd=tmp_path)
        assert (good.returncode, good.stderr) == (0, "")
        assert json.loads(good.stdout)["bars"][0] == {"birth": 0, "death": 0, "count": 1}
    (tmp_path / "m.json").write_text("[[[1, 2], [3]]]")
    bad = process("barcode", "m.json", "--json", cwd=tmp_path, flags=flags)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert (
        bad.stderr == "streamgauge: error: m.json: mixer 0: ragged, rows of lengths [1, 2]; expected equal lengths\n"
    )
    (tmp_path / "cert.json").write_text("{}")
    refused = process("check", "cert.json", cwd=tmp_path, flags=flags)
    assert (refused.returncode, refused.stderr) == (1, "")


def test_interrupt_of_a_process_is_one_line(tmp_path: Path) -> None:
    """SIGINT while a named pipe keeps the reader waiting."""
    os.mkfifo(tmp_path / "m.json")
    command = [sys.executable, "-m", "streamgauge", "barcode", "m.json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as running:
        writer = os.open(tmp_path / "m.json", os.O_WRONLY)  # returns once the command has opened it to read
        try:
            time.sleep(0.2)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
            os.close(writer)
    assert (running.returncode, out, err) == (130, "", "streamgauge: interrupted\n")


def test_closed_pipe_is_silent(tmp_path: Path) -> None:
    matrices = json.dumps([[[1, 0], [0, 0]]] * 3000)  # more output than a pipe holds
    (tmp_path / "m.json").write_text(matrices)
    command = [sys.executable, "-m", "streamgauge", "barcode", "m.json", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as running:
        if running.stdout is None or running.stderr is None:
            raise RuntimeError("no pipes")
        running.stdout.close()
        err = running.stderr.read()
    assert err == ""
    assert running.returncode == 1


def test_an_unforeseen_error_keeps_its_traceback(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A bug must not be dressed up as bad input."""
    import streamgauge.files

    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(streamgauge.files, "read_chain", broken)
    with pytest.raises(ZeroDivisionError):
        cli("barcode", tmp_path / "m.json")


def test_json_has_no_word_for_infinity() -> None:
    found = plain({"a": float("nan"), "b": [float("inf"), 1.5], "c": (True, None, "x")})
    assert json.dumps(found, allow_nan=False) == '{"a": null, "b": [null, 1.5], "c": [true, null, "x"]}'


def test_powers_beyond_float64() -> None:
    assert [power(x) for x in (0.0, 2.0, 66.5, -400.25, float("inf"), float("-inf"))] == [
        "1",
        "100",
        "3.16e+66",
        "5.62e-401",
        "inf",
        "0",
    ]


def test_file_names_that_are_no_text(cli: Cli, tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and dollars that matplotlib would read as mathematics."""
    for name in ("\udcff.json", "a$\\x$_$.json"):
        (tmp_path / name).write_text("[[[1, 0], [0, 0]]]")
        drawn = cli("barcode", tmp_path / name, "--out", tmp_path / "b.png")
        assert (drawn.code, drawn.err) == (0, "")


@pytest.mark.parametrize("words", ["barcode m.json", "barcode m.json --json", "--version"])
def test_closed_and_narrow_streams(words: str, tmp_path: Path) -> None:
    """``>&-`` is silence; a terminal that lacks a character gets its escape."""
    (tmp_path / "m.json").write_text("[[[1, 0], [0, 0]]]")
    closed = subprocess.run(
        ["sh", "-c", f'"$0" -m streamgauge {words} >&-', sys.executable],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_a_terminal_without_the_characters_gets_escapes(tmp_path: Path) -> None:
    (tmp_path / "m☃.json").write_text("[[[1, 0], [0, 0]]]")
    command = [sys.executable, "-m", "streamgauge", "barcode", "m☃.json", "--out", "☃.svg"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, env=environment)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"picture: \\u2603.svg" in ran.stdout
