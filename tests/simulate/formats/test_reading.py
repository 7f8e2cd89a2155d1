"""Readers against arbitrary input: a bad header, config or name is one InputError, never another exception."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import f32, write_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import assert_refused

from streamgauge.simulate.formats.catalogue import depth_order
from streamgauge.simulate.formats.headers import decode, read_header
from streamgauge.simulate.formats.settings import Settings, parse_settings
from streamgauge.simulate.formats.writer import TensorWriter
from streamgauge.theory.errors import InputError

QUIET = settings(
    derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
SPEC = st.fixed_dictionaries(
    {"dtype": JSON | st.just("F32"), "shape": JSON | st.just([2]), "data_offsets": JSON | st.just([0, 8])}
)


@QUIET
@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(InputError, match="x: "):
        read_header(tmp_path / "x")


@QUIET
@given(st.dictionaries(st.text(max_size=5) | st.just("__metadata__"), SPEC | JSON, max_size=3), st.integers(0, 16))
def test_arbitrary_headers_are_read_or_refused(tmp_path: Path, header: dict[str, Any], size: int) -> None:
    text = json.dumps(header).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    try:
        entries, _, length = read_header(tmp_path / "x")
    except InputError:
        return
    assert sum(entry.size for entry in entries.values()) == size
    assert length == 8 + len(text)


@QUIET
@given(st.dictionaries(st.sampled_from(["a", "text_config", "b"]), JSON, max_size=3))
def test_arbitrary_configs_give_numbers_or_are_refused(config: dict[str, Any]) -> None:
    for ask in (lambda s: s.number("a"), lambda s: s.integer("a"), lambda s: s.choice("b", ("x", "y"))):
        try:
            found = ask(Settings(config))
        except InputError:
            continue
        assert found in ("x", "y") or 0 <= found <= 2**24


def test_settings_by_hand_win_and_are_parsed() -> None:
    given = parse_settings(["eps=1e-3", "name=x=y"])
    assert given == {"eps": "1e-3", "name": "x=y"}
    made = Settings({"eps": 1e-6, "name": "z"}, given)
    assert made.number("eps") == 1e-3
    assert_refused(made.refuse_unused, "--set name: this format does not read it, expected one of eps")
    for bad in ("eps", "=1", "eps="):
        assert_refused(lambda bad=bad: parse_settings([bad]), "expected NAME=VALUE")
    assert_refused(lambda: parse_settings(["a=1", "a=2"]), "given twice")


def test_depth_order() -> None:
    names = ["m.10.hc_attn", "m.2.hc_mlp", "m.2.hc_attn", "m.10.hc_mlp"]
    assert depth_order(names, "x") == ["m.2.hc_attn", "m.2.hc_mlp", "m.10.hc_attn", "m.10.hc_mlp"]
    assert depth_order(["a.1.ff", "a.0.attn", "a.0.ff"], "x") == ["a.0.attn", "a.0.ff", "a.1.ff"]
    assert_refused(lambda: depth_order(["a.0.left", "a.0.right"], "x"), "do not say which is first; give --set order")
    assert_refused(lambda: depth_order(["a.0.left", "a.0.attn"], "x"), "do not say which is first")
    assert depth_order(["a.0.left", "a.0.attn"], "x", "a.0.left, a.0.attn") == ["a.0.left", "a.0.attn"]
    assert_refused(lambda: depth_order(["a", "b"], "x", "a"), "--set order: found a, expected the mixers a, b")


@QUIET
@given(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(["T", "reversed", "every other", "broadcast"]))
def test_written_tensors_are_read_back_whatever_their_strides(tmp_path: Path, shape: list[int], view: str) -> None:
    """Serialisers have stored strided arrays scrambled; here against the library's own reader."""
    from safetensors.numpy import load_file

    array = np.random.default_rng(0).normal(size=shape)
    turned = {
        "T": array.T,
        "reversed": array[..., ::-1] if shape else array,
        "every other": array[..., ::2] if shape else array,
        "broadcast": np.broadcast_to(array, (2, *shape)),
    }[view]
    with TensorWriter(tmp_path / "x", {"a": turned.shape, "b": (2,)}, 100) as out:
        out.put("a", turned)
        out.put("b", np.ones(2))
        out.finish({"format": "test"})
    found = load_file(tmp_path / "x")
    assert np.array_equal(found["a"], turned)
    assert found["a"].shape == turned.shape
    entries, metadata, _ = read_header(tmp_path / "x")
    assert metadata == {"format": "test"}
    data = (tmp_path / "x").read_bytes()
    assert np.array_equal(decode(entries["a"], data[entries["a"].begin : entries["a"].end]), turned)


def test_a_writer_that_is_misused_says_so(tmp_path: Path) -> None:
    with TensorWriter(tmp_path / "x", {"a": (2,), "b": (2,)}, 0) as out:
        assert_refused(lambda: out.put("b", np.ones(2)), "b was written where a belongs")
        assert_refused(lambda: out.put("a", np.ones(3)), r"shape \(3,\), expected \(2,\)")
        assert_refused(lambda: out.put("a", np.array([1, np.nan])), "not finite")
        out.put("a", np.ones(2))
        assert_refused(lambda: out.finish({}), "b was never written")
        out.put("b", np.ones(2))
        assert_refused(lambda: out.finish({"x": "y" * 100}), "expected room for")
    with pytest.raises(InputError, match="x: "):
        read_header(tmp_path / "x")


def test_files_that_the_library_reads_are_read_alike(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    tensors = {"a": f32(np.arange(6).reshape(2, 3)), "empty": f32(np.zeros((0, 4))), "scalar": f32(np.array(2.5))}
    write_file(tmp_path / "x.safetensors", tensors, {"k": "v"})
    entries, metadata, _ = read_header(tmp_path / "x.safetensors")
    assert metadata == {"k": "v"}
    data = (tmp_path / "x.safetensors").read_bytes()
    for name, array in load_file(tmp_path / "x.safetensors").items():
        assert np.array_equal(decode(entries[name], data[entries[name].begin : entries[name].end]), array)
