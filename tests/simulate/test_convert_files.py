"""Conversion on disk: self-describing, loads back, restores, and leaves nothing behind when it fails."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_networks import BASE, CYCLE, J2, MIX, network, random_tokens, with_mixers

from streamgauge.simulate import checkpoint
from streamgauge.simulate.convert import convert
from streamgauge.simulate.crosscheck import crosscheck, relative_rms
from streamgauge.simulate.model import ByteLM
from streamgauge.simulate.restore import restore
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate


def saved(path: Path, model: ByteLM) -> Path:
    return checkpoint.save_model(path, model, {"training": {"note": "kept"}})


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


@pytest.mark.parametrize("norm", [None, NormGate(cap=3.0)], ids=["plain", "norm"])
def test_converted_file_describes_itself_and_runs(tmp_path: Path, norm: NormGate | None) -> None:
    source = saved(tmp_path / "source", network())
    before = contents(source)
    convert(source, tmp_path / "out", form="graded", norm=norm)
    assert contents(source) == before, "the source is never touched"
    document = json.loads((tmp_path / "out" / "config.json").read_text())
    record = document["conversion"]
    assert document["format_version"] == 1
    assert document["training"] == {"note": "kept"}
    assert record["source_sha256"] == before
    assert record["form"] == "graded"
    assert len(record["cond"]) == 7
    given, made = (checkpoint.load(p, "float64") for p in (source, tmp_path / "out"))
    assert crosscheck(given, made, random_tokens()).verdict()


@pytest.mark.parametrize("readout", ["gate", "sum", "linear"])
@pytest.mark.parametrize("entry", ["copy", "free"])
@pytest.mark.parametrize("norm", [None, NormGate(eps=0.01)], ids=["plain", "norm"])
def test_restore_turns_it_back(tmp_path: Path, readout: str, entry: str, norm: NormGate | None) -> None:
    config = replace(BASE, readout=readout, entry=entry, mixer="matrix", recipe=None)
    model = with_mixers(config, [MIX, J2, CYCLE])
    source = saved(tmp_path / "source", model)
    convert(source, tmp_path / "out", form="graded", norm=norm)
    restore(tmp_path / "out", tmp_path / "back")
    was, back = checkpoint.read(source), checkpoint.read(tmp_path / "back")
    assert back.config == was.config
    assert set(back.tensors) == set(was.tensors)
    for name, tensor in was.tensors.items():
        assert back.tensors[name].dtype == tensor.dtype
        if tensor.dtype == torch.float32 and "mixer" not in name:
            off = (back.tensors[name] - tensor).abs().max() / tensor.abs().max()
            assert float(off) < 1e-7, name
        else:
            torch.testing.assert_close(back.tensors[name].double(), tensor.double(), rtol=0, atol=1e-7)
    with torch.no_grad():
        logits = [checkpoint.load(p, "float64")(random_tokens()) for p in (source, tmp_path / "back")]
    assert relative_rms(logits[1], logits[0]) < 1e-6


def test_restoring_logits_gives_matrices_of_the_same_function(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", network())
    convert(source, tmp_path / "out", form="identity")
    config = restore(tmp_path / "out", tmp_path / "back")
    assert (config.residual, config.mixer) == ("mhc", "matrix")
    with torch.no_grad():
        logits = [checkpoint.load(p, "float64")(random_tokens()) for p in (source, tmp_path / "back")]
    assert relative_rms(logits[1], logits[0]) < 1e-6


def test_refusals_name_the_place_and_write_nothing(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", network())
    out = tmp_path / "out"
    convert(source, out)
    (tmp_path / "file").write_text("x")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    before = contents(out)
    cases = {
        "exists already": lambda: convert(source, out),
        "is the source itself": lambda: convert(source, source, force=True),
        "already converted": lambda: convert(out, tmp_path / "twice"),
        "not a converted checkpoint": lambda: restore(source, tmp_path / "back"),
        "cannot be created": lambda: convert(source, tmp_path / "file" / "out"),
        "holds 'thesis.tex'": lambda: convert(source, tmp_path / "precious", force=True),
    }
    for message, action in cases.items():
        with pytest.raises(InputError) as caught:
            action()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert contents(out) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "out", "precious", "source"]


def test_a_failing_finish_leaves_nothing(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", network())

    def fail(staged: Path) -> None:
        (staged / "certificate.json").write_text("half")
        raise InputError("certificate: refused")

    with pytest.raises(InputError, match="certificate: refused"):
        convert(source, tmp_path / "out", finish=fail)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source"]


def test_force_replaces_a_checkpoint(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", network())
    convert(source, tmp_path / "out", form="identity")
    first = contents(tmp_path / "out")
    convert(source, tmp_path / "out", form="graded", force=True)
    assert contents(tmp_path / "out") != first
    convert(source, tmp_path / "again", form="graded")
    assert contents(tmp_path / "out") == contents(tmp_path / "again"), "two runs write identical files"
