"""``streamgauge verify-pointwise`` on a tiny model folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from command_line import Cli

pytest.importorskip("transformers", minversion="5.24")

from hf_models import tiny

from streamgauge.simulate.hosted import triangular


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dynamic DeepSeek-V4 of byte tokens, and a text beside it."""
    place = tmp_path_factory.mktemp("pointwise")
    model = tiny("deepseek_v4", vocab_size=256, layer_types=None, mlp_layer_types=None)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.attn_hc.scale[2] = layer.ffn_hc.scale[2] = 1
    model.save_pretrained(place / "model")
    (place / "text.txt").write_text("What is exact for every token need not be diagonal. " * 4)
    return place


def test_json(cli: Cli, folder: Path) -> None:
    given = ("--text", folder / "text.txt", "--tokens", 128, "--context", 32)
    ran = cli("verify-pointwise", folder / "model", *given, "--json")
    assert ran.code == 0, ran.err
    found = ran.document
    assert found["ok"] is True
    assert (found["tokens"], len(found["sites"])) == (128, 8)
    assert found["exact"] < 1e-12
    assert found["ratio"] <= 2
    assert len(found["sites"][0]["gates"]) == 4


def test_table_and_a_fault(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("verify-pointwise", folder / "model", "--text", folder / "text.txt", "--context", 64)
    ran = cli(*command)
    assert ran.code == 0, ran.err
    for expected in ("round-off ratio", "verified: same function on 192 tokens", "above the diagonal"):
        assert expected in ran.out
    monkeypatch.setattr(triangular, "against", lambda frame, r: r)
    ran = cli(*command)
    assert ran.code == 1
    assert "missed: exact" in ran.out


def test_refusals(cli: Cli, folder: Path) -> None:
    model, text = folder / "model", folder / "text.txt"
    for words, message in {
        (model,): "--text",
        (model, "--text", folder / "none.txt"): "none.txt: not found",
        (folder / "none", "--text", text): "none: not found",
        (folder, "--text", text): "has no config.json",
        (model, "--text", text, "--context", 1): "context: found 1",
        (model, "--text", text, "--tokens", 5): "tokens: found 5",
    }.items():
        ran = cli("verify-pointwise", *words)
        assert ran.code == 2, words
        assert message in ran.err
        assert ran.err.count("\n") == 1
        assert ran.out == ""
