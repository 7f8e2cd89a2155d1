"""A complete converted checkpoint: what is replaced is gone, everything else is there byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from foreign_folders import deepseek_arrays, deepseek_folder, f32, read_file
from refusals import assert_refused

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
