"""``convert --text``: what is printed, and what is refused in one line."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from command_line import Cli
from foreign_models import liger
from safetensors import safe_open

transformers = pytest.importorskip("transformers", minversion="5.24")

from moving_mixers import moving, text_file  # noqa: E402

import streamgauge as sg  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ "source", a model that predicts bytes, and "text"."""
    made = tmp_path_factory.mktemp("hosted")
    transformers.utils.logging.disable_progress_bar()
    moving("deepseek_v4", vocab_size=256).save_pretrained(made / "source")
    text_file(made / "text")
    return made


def test_figures_before_and_after_a_fit(cli: Cli, folder: Path, tmp_path: Path) -> None:
    words = ("--mixers", "mean", "--text", folder / "text", "--context", 64)
    ran = cli("convert", folder / "source", tmp_path / "out", *words, "--refine", 8, "--json")
    assert ran.code == 0, ran.err
    said = ran.document
    assert said["mixers"] == "mean"
    assert said["calibration"]["tokens"] == 15 * 64
    assert said["loss"]["text"]["windows"] == [15, 20]
    assert 0 < said["loss"]["refined"]["kl"] < said["loss"]["converted"]["kl"] < 1
    assert len(said["dropped"]) == 8
    assert said["residual"] > 1e-6
    assert said["certificate"] is None
    assert "the tensors were fitted to the source's outputs" in ran.err
    assert "over 960 tokens) and were taken at their means: the converted network is another function" in ran.err
    again = cli("eval", folder / "source", "--with", tmp_path / "out", "--text", folder / "text", "--context", 64)
    assert again.code == 0, again.err

    ran = cli("convert", folder / "source", tmp_path / "other", *words, "--refine", 8, "--device-map", "cpu")
    assert ran.code == 0, ran.err
    for line in (
        "mean, over 960 tokens of text",
        "gates leave out of A, in Y = P^-1 X",
        "|A| |p|, fitted",
        "320 tokens of text, float32",
        "perplexity of the source",
        "perplexity converted",
        "KL(source || converted)",
        "perplexity refined",
        "KL(source || refined)",
        f"{said['loss']['refined']['kl']:.3e} nats per token",
        f"{said['loss']['converted']['agreement']:.3%}",
    ):
        assert line in ran.out, line


def test_the_choice_names_what_became_of_the_mixers(cli: Cli, folder: Path, tmp_path: Path) -> None:
    for mixers, text in (
        ("token-gates", "were cut down to gates by the token"),
        ("identity", "8 of 8 mixers were replaced by the identity"),
        ("bias", "were taken at their biases"),
    ):
        given = ("--mixers", mixers, "--text", folder / "text", "--context", 64)
        ran = cli("convert", folder / "source", tmp_path / mixers, *given)
        assert ran.code == 0, ran.err
        assert text in ran.err
        assert "KL(source || converted)" in ran.out
        assert "perplexity refined" not in ran.out
        assert "the loss was not measured" not in ran.err


def test_a_loss_that_was_not_measured_is_said_to_be(cli: Cli, folder: Path, tmp_path: Path) -> None:
    ran = cli("convert", folder / "source", tmp_path / "out", "--mixers", "bias")
    assert ran.code == 0
    notes = [line for line in ran.err.splitlines() if "the loss was not measured" in line]
    way = f"streamgauge eval {folder / 'source'} --with {tmp_path / 'out'} --text FILE"
    assert notes == [f"streamgauge: note: the loss was not measured: convert with --text FILE, or {way}"]
    foreign = liger(residual=0.3)
    module = foreign.folder(tmp_path / "liger")
    words = [word for name, value in foreign.given.items() for word in ("--set", f"{name}={value}")]
    ran = cli("convert", module, tmp_path / "other", "--mixers", "bias", *words)
    assert ran.code == 0, ran.err
    assert "the loss was not measured: no program here runs liger checkpoints" in ran.err


REFUSED = {
    "mean": (("--mixers", "mean"), "--mixers mean: is measured on a text, expected --text FILE with it"),
    "token-gates": (
        ("--mixers", "token-gates"),
        "--mixers token-gates: is measured on a text, expected --text FILE with it",
    ),
    "identity": (
        ("--mixers", "identity"),
        "--mixers identity: is only ever compared with its source, expected --text FILE with it",
    ),
    "refine": (
        ("--mixers", "bias", "--refine", 5),
        "--refine: belongs to a text, expected --text FILE with it",
    ),
    "held-out": (("--held-out", "TEXT"), "--held-out: belongs to a text, expected --text FILE with it"),
    "tokens": (("--tokens", 0), "--tokens: belongs to a text, expected --text FILE with it"),
    "context": (("--context", 64), "--context: belongs to a text, expected --text FILE with it"),
    "dtype": (
        ("--mixers", "bias", "--dtype", "bfloat16"),
        "--dtype: belongs to a text, expected --text FILE with it",
    ),
    "restore": (
        ("--restore", "--mixers", "mean", "--text", "TEXT"),
        "--restore: takes a checkpoint made here, expected no flag of another program's with it",
    ),
    "steps": (("--text", "TEXT", "--refine", -2), "--refine: found -2, expected a number of steps"),
    "norm": (
        ("--text", "TEXT", "--mixers", "token-gates", "--norm"),
        "--norm: scales the streams by constant gates, expected other --mixers than token-gates",
    ),
    "choice": (
        ("--text", "TEXT", "--mixers", "median"),
        "--mixers: found 'median', expected one of exact, bias, mean, token-gates, identity",
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_refusals_are_one_line_and_write_nothing(case: str, cli: Cli, folder: Path, tmp_path: Path) -> None:
    words, line = REFUSED[case]
    given = [folder / "text" if word == "TEXT" else word for word in words]
    ran = cli("convert", folder / "source", tmp_path / "out", *given)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"streamgauge: error: {line}\n"
    assert not list(tmp_path.iterdir())


def test_flags_of_a_text_are_for_other_programs_checkpoints(
    cli: Cli, checkpoint: Path, folder: Path, tmp_path: Path
) -> None:
    for words in (("--text", folder / "text"), ("--dtype", "bfloat16")):
        ran = cli("convert", checkpoint, tmp_path / "out", *words)
        assert ran.code == 2
        assert len(ran.err.splitlines()) == 1
        assert not list(tmp_path.iterdir())


def test_the_python_way_is_the_same(folder: Path, tmp_path: Path) -> None:
    given = {"mixers": "mean", "text": str(folder / "text"), "context": 64, "refine": 8}
    made = sg.sidecar(str(folder / "source"), str(tmp_path / "out"), **copy.deepcopy(given))
    with safe_open(made.path, framework="numpy") as stored:
        assert '"refined"' in stored.metadata()["record"]
