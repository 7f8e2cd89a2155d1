"""Text as windows of tokens: bytes, or the folder's own tokenizer."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import assert_refused

from streamgauge.simulate.hosted.text import BYTES, CONTEXT, read_text, split, text_of

SENTENCE = "the gauge of a stream is a change of basis; the streams of a gauge are its bars. "


def folder(path: Path, **config: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps({"vocab_size": 256, "max_position_embeddings": 1024, **config}))
    return path


def with_tokenizer(path: Path, **config: Any) -> Any:
    """The folder with a small byte-level BPE tokenizer; returns the tokenizer."""
    transformers = pytest.importorskip("transformers", minversion="5.24")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator([SENTENCE], trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe)
    tokenizer.save_pretrained(folder(path, **config))
    return tokenizer


def test_bytes_in_windows(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2 + b"left over"
    (tmp_path / "a.txt").write_bytes(data)
    text = read_text(tmp_path / "a.txt", folder(tmp_path / "m"), context=64)
    assert text.tokens.dtype is torch.int64
    assert bytes(text.tokens.flatten().tolist()) == data[:512]
    assert text.tokens.shape == (8, text.context) == (8, 64)
    wanted = hashlib.sha256(data).hexdigest()
    assert text.document() == {
        "name": "a.txt", "sha256": wanted, "tokenizer": BYTES, "context": 64, "windows": [0, 8], "tokens": 512,
    }  # fmt: skip


@pytest.mark.parametrize(("limit", "rows"), [(64, 1), (127, 1), (128, 2), (10**9, 8)])
def test_the_limit_is_rounded_down_to_windows(limit: int, rows: int, tmp_path: Path) -> None:
    text = text_of(bytes(513), "zeros", folder(tmp_path / "m"), context=64, limit=limit)
    assert text.tokens.shape == (rows, 64)


@pytest.mark.parametrize(("positions", "context"), [(100, 100), (4096, CONTEXT)])
def test_the_default_context_fits_the_model(positions: int, context: int, tmp_path: Path) -> None:
    small = folder(tmp_path / "m", max_position_embeddings=positions)
    assert text_of(bytes(2000), "zeros", small).context == context


def test_sizes_of_a_model_with_a_text_config(tmp_path: Path) -> None:
    nested = folder(tmp_path / "m", vocab_size=10, text_config={"vocab_size": 300, "max_position_embeddings": 16})
    assert text_of(bytes(32), "zeros", nested).tokens.shape == (2, 16)


def test_the_folder_s_own_tokenizer(tmp_path: Path) -> None:
    tokenizer = with_tokenizer(tmp_path / "m", vocab_size=290)
    (tmp_path / "a.txt").write_text(SENTENCE * 300, encoding="utf-8")
    text = read_text(tmp_path / "a.txt", tmp_path / "m", context=16)
    assert text.tokenizer == type(tokenizer).__name__
    assert text.tokens.numel() < 0.7 * len(SENTENCE) * 300
    spoken = tokenizer.decode(text.tokens.flatten().tolist())
    assert (SENTENCE * 300).startswith(spoken)
    assert len(spoken) > len(SENTENCE) * 300 - 200
    limited = read_text(tmp_path / "a.txt", tmp_path / "m", context=16, limit=48)
    assert torch.equal(limited.tokens, text.tokens[:3])
    assert limited.sha256 == text.sha256


def test_a_model_in_memory_stands_for_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("transformers", minversion="5.24")
    from hosted_models import moving

    model = moving(vocab_size=300)
    assert text_of(bytes(64), "zeros", model, context=32).tokenizer == BYTES
    tokenizer = with_tokenizer(tmp_path / "m", vocab_size=290)
    model.config._name_or_path = model.name_or_path = str(tmp_path / "m")
    assert text_of(SENTENCE.encode(), "a", model, context=8).tokenizer == type(tokenizer).__name__


@pytest.mark.parametrize(("fraction", "cut"), [(0.25, 6), (0.5, 4), (0.001, 7), (0.999, 1)])
def test_parts_never_overlap(fraction: float, cut: int, tmp_path: Path) -> None:
    text = text_of(bytes(range(256)) * 2, "bytes", folder(tmp_path / "m"), context=64)
    first, last = split(text, fraction)
    assert torch.equal(torch.cat([first.tokens, last.tokens]), text.tokens)
    assert first.document()["windows"] == [0, cut]
    assert last.document()["windows"] == [cut, 8]
    again = split(last, 0.5)[1] if len(last.tokens) > 1 else last
    assert again.document()["windows"][1] == 8


BAD: dict[str, tuple[dict[str, Any], bytes, dict[str, Any], str]] = {
    "empty": ({}, b"", {}, "place: is empty, expected text"),
    "short": ({}, b"abc", {}, "place: holds 3 tokens, expected at least the context of 4"),
    "context too large": ({}, b"a" * 9, {"context": 2000}, "context: found 2000, expected 2 to 1024, the positions "),
    "context too small": ({}, b"a" * 9, {"context": 1}, "context: found 1, expected 2 to 1024"),
    "limit": ({}, b"a" * 9, {"limit": 3}, "tokens: found 3, expected at least the context of 4"),
    "vocabulary": ({"vocab_size": 100}, b"a" * 9, {}, "has no tokenizer and a vocabulary of 100, expected a token"),
    "no sizes": ({"vocab_size": "many"}, b"a" * 9, {}, "config has vocab_size 'many', expected a number of at least"),
    "true": ({"max_position_embeddings": True}, b"a" * 9, {}, "config has max_position_embeddings True"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, tmp_path: Path) -> None:
    config, data, options, message = BAD[case]
    place = folder(tmp_path / "m", **config)
    assert_refused(lambda: text_of(data, "place", place, **{"context": 4, **options}), re.escape(message))


def test_bad_files(tmp_path: Path) -> None:
    good = folder(tmp_path / "m")
    assert_refused(lambda: read_text(tmp_path / "none", good), "none: not found, expected a text file")
    assert_refused(lambda: read_text(tmp_path, good), "is a folder, expected a text file")
    assert_refused(lambda: read_text("/dev/null", good), "^/dev/null: is a device, expected a text file$")
    (tmp_path / "a.txt").write_bytes(b"plain \xff text " * 9)
    for given in ({"context": "8"}, {"context": 8.0}, {"limit": 16.5}, {"limit": True}):
        name = "context" if "context" in given else "tokens"
        message = f"^{name}: found .*, expected a whole number$"
        assert_refused(lambda given=given: read_text(tmp_path / "a.txt", good, **given), message)
    assert_refused(lambda: read_text(tmp_path / "a.txt", tmp_path / "x"), "x: not found, expected the folder of a H")
    assert_refused(lambda: read_text(tmp_path / "a.txt", tmp_path / "a.txt"), "a.txt: is a file, expected the folder")
    (tmp_path / "bare").mkdir()
    assert_refused(lambda: read_text(tmp_path / "a.txt", tmp_path / "bare"), "bare: has no config.json, expected")
    (tmp_path / "bare" / "config.json").write_text("{")
    assert_refused(lambda: read_text(tmp_path / "a.txt", tmp_path / "bare"), "config.json: is no readable JSON")
    (tmp_path / "bare" / "config.json").write_text("[]")
    assert_refused(
        lambda: read_text(tmp_path / "a.txt", tmp_path / "bare"), "config.json: found list, expected an ob"
    )
    with_tokenizer(tmp_path / "t", vocab_size=290)
    assert_refused(lambda: read_text(tmp_path / "a.txt", tmp_path / "t", context=4), "a.txt: is not UTF-8 at byte 6")
    with_tokenizer(tmp_path / "t", vocab_size=256)
    (tmp_path / "b.txt").write_text(SENTENCE)
    assert_refused(
        lambda: read_text(tmp_path / "b.txt", tmp_path / "t", context=4), r"has token 2\d\d, expected below"
    )
    (tmp_path / "t" / "tokenizer.json").write_text("{}")
    assert_refused(lambda: read_text(tmp_path / "b.txt", tmp_path / "t", context=4), "its tokenizer cannot be loaded")


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, float("nan")])
def test_bad_fractions(fraction: float, tmp_path: Path) -> None:
    text = text_of(bytes(64), "zeros", folder(tmp_path / "m"), context=32)
    assert_refused(lambda: split(text, fraction), "held-out fraction: found .*, expected between 0 and 1")


def test_one_window_cannot_be_split(tmp_path: Path) -> None:
    text = text_of(bytes(63), "zeros", folder(tmp_path / "m"), context=32)
    assert_refused(lambda: split(text), "zeros: holds 1 window of 32 tokens, expected at least 2 to split it")
