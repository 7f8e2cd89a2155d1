"""A mutation matrix on index, shards and config: each damage has its own one-line error, and nothing is written."""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import DEEPSEEK, bf16, deepseek_arrays, deepseek_folder, f32, write_file, write_folder
from refusals import assert_refused

from streamgauge.simulate.formats.headers import decode, read_header
from streamgauge.simulate.formats.report import inspect_folder
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder
from streamgauge.simulate.formats.writer import TensorWriter
from streamgauge.theory.errors import InputError

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00004.safetensors"  # the fn tensors
OTHERS = "model-00004-of-00004.safetensors"  # nobody's mixer


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        made = change(document)
        (folder / name).write_text(json.dumps(document if made is None else made))

    return apply


def with_table(change: Callable[[dict[str, str]], Any]) -> Callable[[Path], None]:
    return edited(INDEX, lambda document: change(document["weight_map"]) and None)


def rewritten(**changes: Any) -> Callable[[Path], None]:
    """The sharded folder made again with some tensors replaced (None: left out)."""

    def apply(folder: Path) -> None:
        arrays = {k.replace(".", "__"): v for k, v in deepseek_arrays().items()} | changes
        raw = {}
        for name, array in arrays.items():
            if array is not None:
                raw[name.replace("__", ".")] = array if isinstance(array, tuple) else f32(array)
        for path in folder.iterdir():
            path.unlink()
        write_folder(folder / "new", raw, DEEPSEEK)
        for path in (folder / "new").iterdir():
            path.rename(folder / path.name)
        (folder / "new").rmdir()

    return apply


def header_changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        data = (folder / SHARD).read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        document = json.loads(data[8 : 8 + length])
        change(document)
        text = json.dumps(document).encode()
        (folder / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return apply


def with_hole(folder: Path) -> None:
    """Eight bytes that no tensor owns, between the header and the data."""
    data = (folder / SHARD).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    document = json.loads(data[8 : 8 + length])
    for spec in document.values():
        spec["data_offsets"] = [at + 8 for at in spec["data_offsets"]]
    text = json.dumps(document).encode()
    (folder / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + bytes(8) + data[8 + length :])


def truncated(folder: Path) -> None:
    data = (folder / SHARD).read_bytes()
    (folder / SHARD).write_bytes(data[:-7])


def duplicated(folder: Path) -> None:
    write_file(folder / "model-00005-of-00004.safetensors", {"layers.0.hc_attn_fn": f32(np.zeros((24, 24)))})
    with_table(lambda table: table.update({"odd": "model-00005-of-00004.safetensors"}))(folder)


def linked_out(folder: Path) -> None:
    (folder / SHARD).rename(folder.parent / "elsewhere")
    (folder / SHARD).symlink_to(folder.parent / "elsewhere")


def exchanged(folder: Path) -> None:
    (folder / SHARD).rename(folder / "x")
    (folder / OTHERS).rename(folder / SHARD)
    (folder / "x").rename(folder / OTHERS)


def repeated(folder: Path) -> None:
    data = (folder / SHARD).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    text = data[8 : 8 + length].replace(b"layers.0.hc_ffn_fn", b"layers.0.hc_attn_fn")
    (folder / SHARD).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def stray(folder: Path) -> None:
    write_file(folder / "other.safetensors", {"x": f32([1.0])})


A = deepseek_arrays()
FN, BASE = A["layers.1.hc_ffn_fn"], A["layers.1.hc_ffn_base"]
NAN = np.where(np.arange(24) == 5, np.nan, BASE)
DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "deleted shard": (lambda f: (f / SHARD).unlink(), f"{SHARD}: not found, expected the shard that"),
    "extra index line": (with_table(lambda t: t.update({"ghost": SHARD})), f"tensor ghost is not in {SHARD}"),
    "missing index line": (with_table(lambda t: t.pop("embed.weight")), "embed.weight of .* is not in the index"),
    "wrong index line": (
        with_table(lambda t: t.update({"embed.weight": SHARD})),
        f"embed.weight is in model-00004.*, not in {SHARD} as the index says",
    ),
    "stray file": (stray, "other.safetensors is not named by"),
    "duplicate tensor": (duplicated, "layers.0.hc_attn_fn is in .* and in .*, expected one of them"),
    "truncated shard": (truncated, f"{SHARD}: truncated, .* bytes where the header says"),
    "truncated shard of others": (
        lambda f: (f / OTHERS).write_bytes((f / OTHERS).read_bytes()[:-1]),
        f"{OTHERS}: truncated, .* bytes where the header says",
    ),
    "shard with a tail": (
        lambda f: (f / SHARD).write_bytes((f / SHARD).read_bytes() + b"x"),
        f"{SHARD}: has bytes that no tensor owns",
    ),
    "shard cut in its header": (
        lambda f: (f / SHARD).write_bytes((f / SHARD).read_bytes()[:99]),
        "truncated inside its header, 99 bytes of at least",
    ),
    "shard that is a folder": (
        lambda f: ((f / SHARD).unlink(), (f / SHARD).mkdir()),
        f"{SHARD}: is no file, expected the shard",
    ),
    "shard of another checkpoint": (exchanged, "embed.weight is in model-00001-of-.*, not in model-00004-of-.* as"),
    "header metadata of numbers": (
        header_changed(lambda h: h.update(__metadata__={"step": 3})),
        "__metadata__ is not an object of strings",
    ),
    "header with a key twice": (repeated, "the key 'layers.0.hc_attn_fn' stands twice"),
    "index names a number": (with_table(lambda t: t.update({"embed.weight": 3})), "tensor embed.weight has 3, exp"),
    "index a list": (lambda f: (f / INDEX).write_text("[]"), f"{INDEX}: found list, expected an object"),
    "index with a key twice": (
        lambda f: (f / INDEX).write_text('{"weight_map": {"a": "x", "a": "y"}}'),
        "'a' stands twice, expected it once",
    ),
    "index too deep": (lambda f: (f / INDEX).write_text("[" * 100_000), f"{INDEX}: not JSON .*recursion"),
    "index climbs backwards": (with_table(lambda t: t.update({"embed.weight": "..\\x"})), r"names '\.\.\\\\x'"),
    "index of this folder": (with_table(lambda t: t.update({"embed.weight": "."})), "names '.', expected a file"),
    "empty shard": (lambda f: (f / SHARD).write_bytes(b""), "0 bytes, expected a safetensors file"),
    "pickle": (lambda f: (f / SHARD).write_bytes(b"PK\x03\x04" + bytes(99)), "is a pickle"),
    "header not JSON": (lambda f: (f / SHARD).write_bytes(struct.pack("<Q", 4) + b"{,}}"), "header is not JSON"),
    "size and shape": (
        header_changed(lambda h: h["layers.0.hc_attn_fn"].update(shape=[24, 23])),
        "layers.0.hc_attn_fn: .* bytes do not hold F32",
    ),
    "overlap": (
        header_changed(
            lambda h: h["layers.0.hc_ffn_fn"].update(data_offsets=list(h["layers.0.hc_attn_fn"]["data_offsets"]))
        ),
        "overlaps the one before it",
    ),
    "hole": (with_hole, "leaves a hole of 8 bytes"),
    "index climbs out": (with_table(lambda t: t.update({"embed.weight": "../x"})), r"names '\.\./x'"),
    "index absolute": (with_table(lambda t: t.update({"embed.weight": "/etc/passwd"})), "names '/etc/passwd'"),
    "link out": (linked_out, "is a link out of the folder"),
    "index without map": (edited(INDEX, lambda d: {"metadata": {}}), "found no weight_map"),
    "index not JSON": (lambda f: (f / INDEX).write_text("{"), f"{INDEX}: not JSON"),
    "wrong dtype": (
        rewritten(layers__1__hc_ffn_base=("I32", (24,), bytes(96))),
        "layers.1.hc_ffn_base has dtype I32, expected F64, F32, F16, BF16",
    ),
    "fp8 mixer": (
        rewritten(layers__1__hc_ffn_base=("F8_E4M3", (24,), bytes(24))),
        "layers.1.hc_ffn_base has dtype F8_E4M3",
    ),
    "transposed fn": (
        rewritten(layers__1__hc_ffn_fn=np.zeros((25, 24))),
        r"layers.1.hc_ffn_fn has shape \(25, 24\), expected \(24, 24\)",
    ),
    "NaN base": (rewritten(layers__1__hc_ffn_base=NAN), r"layers.1.hc_ffn_base has nan at \(5,\)"),
    "inf fn": (rewritten(layers__1__hc_ffn_fn=FN * np.float32(np.inf)), "layers.1.hc_ffn_fn has "),
    "stacked fn": (
        rewritten(layers__1__hc_ffn_fn=np.zeros((1, 24, 24))),
        r"layers.1.hc_ffn_fn has shape \(1, 24, 24\), expected \(24, 24\)",
    ),
    "short base": (rewritten(layers__1__hc_ffn_base=BASE[:23]), r"layers.1.hc_ffn_base has shape \(23,\), expected"),
    "two scales": (rewritten(layers__1__hc_ffn_scale=np.ones(2)), r"hc_ffn_scale has shape \(2,\), expected \(3,\)"),
    "NaN scale": (rewritten(layers__1__hc_ffn_scale=np.full(3, np.nan)), r"layers.1.hc_ffn_scale has nan at \(0,\)"),
    "missing tensor": (rewritten(layers__1__hc_ffn_scale=None), "layer 1 has no ffn mixer scale"),
    "missing head part": (rewritten(hc_head_base=None), "the head has no base tensor"),
    "two spellings": (
        rewritten(model__layers__0__attn_hc__fn=A["layers.0.hc_attn_fn"]),
        "layers.0.hc_attn_fn and model.layers.0.attn_hc.fn are the same tensor twice",
    ),
    "unknown mixer key": (rewritten(layers__0__hc_attn_gate=BASE), "layers.0.hc_attn_gate is no part of a mixer"),
    "config without fields": (edited("config.json", lambda d: {"model_type": "deepseek_v4"}), "hc_mult: missing"),
    "config without eps": (
        edited("config.json", lambda d: d.pop("hc_eps") and None),
        "hc_eps: missing, expected a number; give it with --set hc_eps=VALUE",
    ),
    "config null": (edited("config.json", lambda d: d.update(rms_norm_eps=None)), "rms_norm_eps: missing"),
    "config wrong kind": (edited("config.json", lambda d: d.update(hc_mult="many")), "hc_mult: found 'many'"),
    "config fraction": (edited("config.json", lambda d: d.update(hc_mult=2.5)), "hc_mult: found 2.5"),
    "config other n": (edited("config.json", lambda d: d.update(hc_mult=3)), "expected \\(15, 18\\)"),
    "config two values": (
        edited("config.json", lambda d: d.update(text_config={"hc_eps": 1e-3})),
        "hc_eps: found 1e-06 and, in text_config, 0.001",
    ),
    "config deeper": (edited("config.json", lambda d: d.update(num_hidden_layers=4)), "layer 3 has no attn mixer fn"),
    "config shallower": (
        edited("config.json", lambda d: d.update(num_hidden_layers=1)),
        "num_hidden_layers: found 1, but layers 1 to 2 have mixers too",
    ),
    "config NaN": (edited("config.json", lambda d: d.update(hc_eps=float("nan"))), "hc_eps: found nan, expected"),
    "config negative": (edited("config.json", lambda d: d.update(rms_norm_eps=-1e-6)), "rms_norm_eps: found -1e-06"),
    "config true": (
        edited("config.json", lambda d: d.update(hc_mult=True)),
        "hc_mult: found True, expected an integer",
    ),
    "config huge": (edited("config.json", lambda d: d.update(hc_mult=10**30)), "hc_mult: found 10{30}, expected"),
    "config no sweeps": (
        edited("config.json", lambda d: d.update(hc_sinkhorn_iters=0)),
        "hc_sinkhorn_iters: found 0",
    ),
    "config no UTF-8": (lambda f: (f / "config.json").write_bytes(b'{"a": "\xff"}'), "config.json: not JSON .*utf-8"),
    "config empty": (lambda f: (f / "config.json").write_bytes(b""), "config.json: not JSON"),
    "config repeated": (
        lambda f: (f / "config.json").write_text('{"hc_mult": 4, "hc_mult": 4}'),
        "'hc_mult' stands twice",
    ),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "config.json: found list"),
    "no config": (lambda f: (f / "config.json").unlink(), "no model_type .* give --format deepseek-v4"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_nothing_written(name: str, tmp_path: Path) -> None:
    damage, message = DAMAGE[name]
    source = deepseek_folder(tmp_path / "source", shards=True)
    damage(source)
    before = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
    listed = sorted(path.name for path in tmp_path.iterdir())
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias")), message)
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias"), full=True), message)
    assert_refused(lambda: inspect_folder(source), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == listed
    assert {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()} == before


def test_every_damage_has_its_own_error(tmp_path: Path) -> None:
    said = set()
    for i, (damage, _) in enumerate(DAMAGE.values()):
        source = deepseek_folder(tmp_path / str(i) / "s", shards=True)
        damage(source)
        with pytest.raises(InputError, match=" ") as caught:
            convert_folder(source, tmp_path / "out", Options("bias"))
        said.add(str(caught.value).replace(str(source), ""))
    assert len(said) == len(DAMAGE)


def test_unknown_config_keys_and_undamaged_shards_convert(tmp_path: Path) -> None:
    """Control: the folder that every case damages is sound, and a config may say more."""
    source = deepseek_folder(tmp_path / "source", shards=True, config={**DEEPSEEK, "novelty": {"a": 1}})
    assert convert_folder(source, tmp_path / "out", Options("bias")).path.is_file()
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["sidecar.safetensors"]


def test_transposed_square_weights_cannot_hide(tmp_path: Path) -> None:
    """Here fn is 24 x 24; with another width a transposed fn is refused by its shape, and told so."""
    config = {**DEEPSEEK, "hidden_size": 5}
    arrays = deepseek_arrays(config=config)
    arrays["layers.0.hc_attn_fn"] = arrays["layers.0.hc_attn_fn"].T
    source = deepseek_folder(tmp_path / "source", arrays, config=config)
    message = r"layers.0.hc_attn_fn has shape \(20, 24\), expected \(24, 20\); it is transposed"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias")), message)


def test_only_the_tensors_of_mixers_are_read(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    made = convert_folder(source, tmp_path / "out", Options("bias"))
    tensors = sum(array.nbytes for array in deepseek_arrays().values())
    headers = Shards(source).header_bytes
    assert tensors + headers <= made.bytes_read <= tensors + headers + 6 * (24 + 3) * 4  # biases and scales twice
    found = inspect_folder(source)
    assert found.bytes_read == tensors + headers - (4 * 24 + 4 + 1) * 4  # all but the head


def test_a_shard_that_changes_while_it_is_read(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    shards = Shards(source)
    truncated(source)
    last = max((entry for entry in shards.entries.values() if entry.file.name == SHARD), key=lambda entry: entry.end)
    assert_refused(lambda: shards.floats(last.name), f"{last.name} is cut off")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = deepseek_folder(tmp_path / "source", shards=True)
    put, left = TensorWriter.put, [5]

    def failing(self: TensorWriter, name: str, array: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        put(self, name, array)

    monkeypatch.setattr(TensorWriter, "put", failing)
    for full in (False, True):
        left[0] = 5
        message = "out: cannot be written .No space left on device"
        assert_refused(
            lambda full=full: convert_folder(source, tmp_path / "out", Options("bias"), full=full), message
        )
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_layers_stacked_in_one_tensor_are_not_taken_for_something_else(tmp_path: Path) -> None:
    arrays = deepseek_arrays()
    stacked = {
        f"layers.hc_{branch}_{part}": np.stack([arrays[f"layers.{l}.hc_{branch}_{part}"] for l in range(3)])
        for branch in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    }
    source = deepseek_folder(tmp_path / "source", stacked)
    message = "none of a known hyper-connection format; expected one of .*, or a description with --map"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias")), message)


def test_bfloat16_and_opaque_dtypes(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3.1415927, 1e-30, -65504.0], dtype=np.float32)
    write_file(tmp_path / "x.safetensors", {"a": bf16(values), "b": ("F4_NEW", (7,), bytes(3)), "c": f32(values)})
    entries, _, _ = read_header(tmp_path / "x.safetensors")
    data = (tmp_path / "x.safetensors").read_bytes()
    found = decode(entries["a"], data[entries["a"].begin : entries["a"].end])
    torch = pytest.importorskip("torch")
    wanted = torch.from_numpy(values).bfloat16().double().numpy()
    assert np.array_equal(found, wanted)
    assert entries["b"].size == 3
    assert_refused(lambda: decode(entries["b"], b"123"), "has dtype F4_NEW")


def test_the_source_may_be_read_only_and_the_destination_must_be_writable(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source")
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert_refused(lambda: convert_folder(source, blocked / "out", Options("bias")), "cannot be created")
    assert_refused(lambda: convert_folder(source, source / "out", Options("bias")), "lies inside the source")
    os.makedirs(tmp_path / "taken")
    assert_refused(lambda: convert_folder(source, tmp_path / "taken", Options("bias")), "exists already")
    (tmp_path / "taken" / "mine").write_text("")
    assert_refused(lambda: convert_folder(source, tmp_path / "taken", Options("bias"), force=True), "holds 'mine'")
    convert_folder(source, tmp_path / "out", Options("bias"))
    convert_folder(source, tmp_path / "out", Options("bias"), force=True)
