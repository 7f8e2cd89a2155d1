"""``streamgauge eval``: figures, and one line for bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

import streamgauge as sg

transformers = pytest.importorskip("transformers", minversion="5.24")

from hosted_models import CONTEXT, files, moving  # noqa: E402

from streamgauge.simulate.hosted import compare  # noqa: E402
from streamgauge.simulate.hosted.models import load_pair  # noqa: E402
from streamgauge.simulate.hosted.text import read_text  # noqa: E402


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model "source", its "out" and "full", a text; a "saved" attached model, another model's sidecar "other"."""
    folder = files(tmp_path_factory.mktemp("hosted"))
    load_pair(folder / "source", folder / "full")[1].save_pretrained(folder / "saved")
    moving(5).save_pretrained(folder / "stranger")
    sg.sidecar(folder / "stranger", folder / "other", mixers="bias")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "short.txt").write_bytes(b"short")
    return folder


SHORT = ("--context", CONTEXT, "--tokens", 8 * CONTEXT)


def test_figures_are_those_of_python(cli: Cli, made: Path) -> None:
    told = cli("eval", made / "source", "--with", made / "out", "--text", made / "text.txt", *SHORT, "--json")
    assert (told.code, told.err) == (0, "")
    source, other = load_pair(made / "source", made / "out")
    text = read_text(made / "text.txt", made / "source", context=CONTEXT, limit=8 * CONTEXT)
    wanted = compare.compare(source, other, text)
    given = {"source": str(made / "source"), "with": str(made / "out"), "text": str(made / "text.txt")}
    assert told.document == {**given, "dtype": "float32", **json.loads(json.dumps(wanted.document()))}
    found = sg.evaluate(
        str(made / "source"), str(made / "out"), text=str(made / "text.txt"), context=CONTEXT, tokens=8 * CONTEXT
    )
    assert found == wanted
    assert told.document["kl"] > 0


@pytest.mark.parametrize("name", ["full", "saved", "out/sidecar.safetensors"])
def test_whole_folders_and_files(name: str, cli: Cli, made: Path) -> None:
    paths = (made / "source", "--text", made / "text.txt", *SHORT, "--json")
    wanted, told = (cli("eval", *paths, "--with", made / place) for place in ("out", name))
    assert told.document == {**wanted.document, "with": str(made / name)}


def test_the_source_alone(cli: Cli, made: Path) -> None:
    given = (made / "source", "--text", made / "text.txt", *SHORT)
    alone = cli("eval", *given, "--json").document
    both = cli("eval", *given, "--with", made / "out", "--json").document
    assert alone["source_perplexity"] == both["source_perplexity"]
    assert alone["with"] is None
    assert "kl" not in alone
    placed = cli("eval", *given, "--device-map", "cpu", "--json").document
    assert placed == alone
    assert cli("eval", *given, "--device-map", "nowhere").code == 2
    shown = cli("eval", *given)
    assert f"{alone['source_perplexity']:.6g}" in shown.out
    assert "KL" not in shown.out


def test_the_table_says_the_figures(cli: Cli, made: Path) -> None:
    given = (made / "source", "--with", made / "out", "--text", made / "text.txt", *SHORT, "--dtype", "bfloat16")
    found, told = cli("eval", *given, "--json").document, cli("eval", *given)
    assert (told.code, told.err) == (0, "")
    shown = [
        f"{found['source_perplexity']:.6g}",
        f"{found['perplexity']:.6g} ({found['ratio'] - 1:+.3%})",
        f"{found['kl']:.3e} nats per token",
        f"{found['agreement']:.3%}",
        f"{found['flipped']} of {8 * CONTEXT} tokens",
        "bfloat16",
    ]
    assert [text for text in shown if text not in told.out] == []
    assert found["flipped"] > 0


def own_checkpoint(folder: Path) -> Path:
    with sg.example_checkpoint("static") as found:
        return Path(shutil.copytree(found, folder / "own", dirs_exist_ok=True))


Change = Callable[[Path], list[Any]]
BAD: dict[str, tuple[Change, str]] = {
    "missing text": (lambda m: [m / "source", "--text", m / "no.txt"], "{m}/no.txt: not found, expected a text file"),
    "text is a folder": (lambda m: [m / "source", "--text", m], "{m}: is a folder, expected a text file"),
    "empty text": (lambda m: [m / "source", "--text", m / "empty.txt"], "{m}/empty.txt: is empty, expected text"),
    "short text": (
        lambda m: [m / "source", "--text", m / "short.txt"],
        "{m}/short.txt: holds 5 tokens, expected at least the context of 128",
    ),
    "few tokens": (
        lambda m: [m / "source", "--text", m / "text.txt", "--tokens", 100],
        "tokens: found 100, expected at least the context of 128",
    ),
    "long context": (
        lambda m: [m / "source", "--text", m / "text.txt", "--context", 129],
        "context: found 129, expected 2 to 128, the positions the model has",
    ),
    "other sidecar": (
        lambda m: [m / "source", "--text", m / "text.txt", "--with", m / "other"],
        "{m}/other/sidecar.safetensors: sites.0 was made of other weights than this model's, "
        "expected its own sidecar",
    ),
    "no sidecar": (
        lambda m: [m / "source", "--text", m / "text.txt", "--with", m / "nothing"],
        "{m}/nothing: not found, expected a sidecar or its folder",
    ),
    "a source as sidecar": (
        lambda m: [m / "source", "--text", m / "text.txt", "--with", m / "source"],
        "{m}/source: holds 0 of sidecar.safetensors and streamgauge.safetensors, expected one of them",
    ),
    "no model": (
        lambda m: [m, "--text", m / "text.txt"],
        "{m}: has no config.json, expected the folder of a Hugging Face model",
    ),
    "own checkpoint": (
        lambda m: [own_checkpoint(m), "--text", m / "text.txt"],
        "{m}/own: is a streamgauge checkpoint, expected a Hugging Face model (see sg.crosscheck)",
    ),
    "converted source": (
        lambda m: [m / "full", "--text", m / "text.txt"],
        "{m}/full: has no tensor model.hc_head.hc_base, expected every tensor of the model (a converted checkpoint?)",
    ),
    "dtype": (
        lambda m: [m / "source", "--text", m / "text.txt", "--dtype", "float8"],
        "dtype: found 'float8', expected one of float32, bfloat16, float64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, cli: Cli, made: Path) -> None:
    arguments, message = BAD[case]
    told = cli("eval", *arguments(made))
    assert told == (2, "", f"streamgauge: error: {message.format(m=made)}\n")


def changed(made: Path, folder: Path, **config: Any) -> Path:
    shutil.copytree(made / "source", folder)
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, **config}))
    return folder


def test_bad_models(cli: Cli, made: Path, tmp_path: Path) -> None:
    small = changed(made, tmp_path / "small", vocab_size=64)
    other = changed(made, tmp_path / "other", model_type="llama")
    text = ("--text", made / "text.txt")
    wanted = "expected a tokenizer, or at least 256 entries to read bytes as tokens"
    message = f"{small}: has no tokenizer and a vocabulary of 64, {wanted}"
    assert cli("eval", small, *text) == (2, "", f"streamgauge: error: {message}\n")
    message = f"{other}: found a model of type 'llama', expected one of deepseek_v4, glm5_next, glm5_next_text"
    assert cli("eval", other, *text) == (2, "", f"streamgauge: error: {message}\n")


def test_a_tokenizer_wants_utf_8(cli: Cli, made: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    folder = changed(made, tmp_path / "m")
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?").save_pretrained(folder)
    (tmp_path / "latin.txt").write_bytes("caf\u00e9 au lait".encode("latin-1"))
    told = cli("eval", folder, "--text", tmp_path / "latin.txt")
    message = f"{tmp_path}/latin.txt: is not UTF-8 at byte 3, expected UTF-8 for a tokenizer"
    assert told == (2, "", f"streamgauge: error: {message}\n")


def test_ctrl_c(cli: Cli, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "logits_of", interrupted)
    told = cli("eval", made / "source", "--text", made / "text.txt")
    assert told == (130, "", "streamgauge: interrupted\n")


def test_without_transformers(cli: Cli, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgauge.simulate.hosted.models.find_spec", lambda name: None)
    told = cli("eval", made / "source", "--text", made / "text.txt")
    assert told.err == "streamgauge: error: running a model needs transformers: pip install 'streamgauge[hf]'\n"
