"""A complete converted checkpoint: what is replaced is gone, everything else is there byte for byte."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest
from foreign_folders import DEEPSEEK, bf16, deepseek_arrays, deepseek_folder, f32, read_file, write_file
from refusals import assert_refused

from streamgauge import api
from streamgauge.simulate.formats.headers import read_header
from streamgauge.simulate.formats.shards import INDEX, Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder


@pytest.mark.parametrize("sharded", [True, False])
def test_kept_tensors_are_byte_identical_and_replaced_ones_unreachable(sharded: bool, tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=sharded, extra={"mtp.0.hc_attn_fn": f32(np.ones((24, 24)))})
    (source / "code").mkdir()
    (source / "code" / "model.py").write_text("print()")
    (source / "tokenizer.json").write_text("{}")
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    sidecar = convert_folder(source, tmp_path / "sidecar", Options("bias"))
    convert_folder(source, tmp_path / "out", Options("bias"), full=True)
    first, second = Shards(source), Shards(tmp_path / "out")  # headers and index of the second agree exactly
    gone = set(deepseek_arrays())
    kept = {name for name in first.entries if name not in gone}
    made = {name for name in second.entries if name.startswith("streamgauge.")}
    assert set(second.entries) == kept | made
    for name in kept:
        assert second.raw(name) == first.raw(name)
        assert (second.entries[name].dtype, second.shape(name)) == (first.entries[name].dtype, first.shape(name))
    wanted, _ = read_file(sidecar.path)
    assert made == {"streamgauge." + name for name in wanted}
    assert all(np.array_equal(second.floats("streamgauge." + name), array) for name, array in wanted.items())
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(entry.size for entry in second.entries.values())
    assert (tmp_path / "out" / "code" / "model.py").read_text() == "print()"
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == first.config
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before


def test_untouched_shards_are_linked_and_keep_their_mode(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    shard = source / "model-00004-of-00004.safetensors"  # nobody's mixer
    shard.chmod(0o640)
    convert_folder(source, tmp_path / "out", Options("bias"), full=True)
    assert os.path.samefile(shard, tmp_path / "out" / shard.name)
    assert shard.stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "out" / "model-00001-of-00004.safetensors").exists()  # it held mixers alone


def test_without_links_the_bytes_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    source = deepseek_folder(tmp_path / "source", shards=True)
    convert_folder(source, tmp_path / "linked", Options("bias"), full=True)
    monkeypatch.setattr(os, "link", refuse)
    convert_folder(source, tmp_path / "copied", Options("bias"), full=True)
    for path in (tmp_path / "linked").iterdir():
        assert (tmp_path / "copied" / path.name).read_bytes() == path.read_bytes()
    name = "model-00004-of-00004.safetensors"
    assert not os.path.samefile(source / name, tmp_path / "copied" / name)


@pytest.mark.parametrize("sharded", [True, False])
def test_metadata_and_odd_shapes_come_through_a_rewrite(sharded: bool, tmp_path: Path) -> None:
    """Beside mixers in one file: its metadata, a scalar, an empty tensor, bfloat16, a dtype of the future."""
    extra = {
        "a.scalar_base": f32(np.array(2.5)),  # names that end like a mixer's stand in the mixers' shards
        "a.empty_base": f32(np.zeros((0, 6))),
        "a.half_base": bf16(np.array([1.5, -2.0])),
        "a.new_base": ("FP3_NEW", (3, 3), b"12345"),
    }
    source = deepseek_folder(tmp_path / "source", shards=sharded, extra=extra)
    for path in source.glob("*.safetensors"):
        entries, _, _ = read_header(path)
        data = path.read_bytes()
        tensors = {name: (entry.dtype, entry.shape, data[entry.begin : entry.end]) for name, entry in entries.items()}
        write_file(path, tensors, {"format": "pt", "step": "3"})
    convert_folder(source, tmp_path / "out", Options("bias"), full=True)
    first, second = Shards(source), Shards(tmp_path / "out")
    for name, (dtype, shape, raw) in extra.items():
        assert (second.entries[name].dtype, second.shape(name), second.raw(name)) == (dtype, shape, raw)
        assert read_header(second.entries[name].file)[1] == {"format": "pt", "step": "3"}
        assert second.entries[name].file.name == first.entries[name].file.name or not sharded


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", ["absent", "present"])
def test_the_language_model_head_stays_as_it_was(tied: bool, head: str, tmp_path: Path) -> None:
    """Tied or not, there or not: nothing is added, dropped or tied by a conversion."""
    extra = {} if head == "absent" else {"lm_head.weight": bf16(np.full((5, 6), 2.0))}
    config = {**DEEPSEEK, "tie_word_embeddings": tied}
    source = deepseek_folder(tmp_path / "source", shards=True, extra=extra, config=config)
    convert_folder(source, tmp_path / "out", Options("bias"), full=True)
    first, second = Shards(source), Shards(tmp_path / "out")
    assert second.config == config
    assert second.raw("embed.weight") == first.raw("embed.weight")
    assert ("lm_head.weight" in second.entries) == (head == "present")
    if head == "present":
        assert second.raw("lm_head.weight") == extra["lm_head.weight"][2]


def test_a_source_with_a_certificate_of_its_own_is_refused(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    (source / "certificate.json").write_text("{}")
    message = "source/certificate.json: has the name of a converted file, expected another one"
    assert_refused(lambda: api.sidecar(source, tmp_path / "out", mixers="bias", full=True), message)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    api.sidecar(source, tmp_path / "out", mixers="bias")


def test_what_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    convert_folder(source, tmp_path / "out", Options("bias"), full=True)
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias"), full=True), "exists already")
    message = "only a directory with nothing but a checkpoint is replaced"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias"), full=True, force=True), message)
    assert_refused(lambda: convert_folder(tmp_path / "out", tmp_path / "no", Options("bias")), "none of a known")


def test_names_in_use_are_refused(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    (source / "model-00004-of-00004.safetensors").rename(source / "streamgauge.safetensors")
    text = (source / INDEX).read_text().replace("model-00004-of-00004", "streamgauge")
    (source / INDEX).write_text(text)
    message = "streamgauge.safetensors: has the name of a converted file"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias"), full=True), message)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
