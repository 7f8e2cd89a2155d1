"""DeepSeek-V4 and its relatives: spellings, shards, and numbers against an independent transcription."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import DEEPSEEK, bf16, deepseek_arrays, deepseek_folder, f32, read_file, spelled, write_folder
from foreign_formulas import deepseek_head, deepseek_site, run, run_sidecar
from refusals import assert_refused

from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder

E = np.array([0.7, -1.2, 0.4, 2.0, -0.3, 0.9])


def sites(arrays: dict[str, Any], *, zero_residual: bool, rms_eps: float = 1e-5) -> list[Any]:
    """The transcription's sites; ``zero_residual``: A at its bias."""
    made = []
    for layer in range(3):
        for branch in ("attn", "ffn"):
            t = {p: np.float64(arrays[f"layers.{layer}.hc_{branch}_{p}"]) for p in ("fn", "base", "scale")}
            if zero_residual:
                t["scale"] = t["scale"] * [1, 1, 0]
            made.append(lambda x, t=t: deepseek_site(t, x, rms_eps=rms_eps, hc_eps=1e-6, iterations=20))
    return made


def relative(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def converted(source: Path, out: Path, mixers: str = "exact", **options: Any) -> tuple[Any, Any]:
    made = convert_folder(source, out, Options(mixers, **options))
    return read_file(made.path)


@pytest.mark.parametrize("form", ["graded", "identity"])
def test_static_mixers_convert_to_the_same_function(tmp_path: Path, form: str) -> None:
    """The transcription reads the raw file, the other side the sidecar alone: streams, readers of X and the head."""
    arrays = deepseek_arrays(static=True)
    source = deepseek_folder(tmp_path / "source", arrays)
    made = convert_folder(source, tmp_path / "out", Options("exact"), form=form)
    tensors, record = read_file(made.path)
    x = run(sites(arrays, zero_residual=False), np.outer(np.ones(4), E))
    y, levels, found = run_sidecar(tensors, record, E)
    assert max(relative(p @ b, a) for p, a, b in zip(levels, x, y)) < 1e-11
    t = {p: np.float64(arrays[f"hc_head_{p}"]) for p in ("fn", "base", "scale")}
    assert relative(found, deepseek_head(t, x[-1], rms_eps=1e-5, hc_eps=1e-6)) < 1e-11


def test_bias_takes_the_mixers_at_their_bias(tmp_path: Path) -> None:
    arrays = deepseek_arrays()
    source = deepseek_folder(tmp_path / "source", arrays)
    tensors, record = converted(source, tmp_path / "out", "bias")
    x = run(sites(arrays, zero_residual=True), np.outer(np.ones(4), E))
    y, levels, _ = run_sidecar(tensors, record, E)
    assert relative(levels[-1] @ y[-1], x[-1]) < 1e-11
    truth = run(sites(arrays, zero_residual=False), np.outer(np.ones(4), E))
    assert relative(levels[-1] @ y[-1], truth[-1]) > 1e-3  # it is another function, and says so
    assert not any(site["static"] for site in record["sites"])
    assert all(0 < site["share"] < 1 for site in record["sites"])


def test_wrong_conventions_show(tmp_path: Path) -> None:
    """Controls: without T_l, with the two eps swapped, with the un-transposed mixer the same comparison fails."""
    arrays = deepseek_arrays(static=True)
    source = deepseek_folder(tmp_path / "source", arrays)
    tensors, record = converted(source, tmp_path / "out")
    x0 = np.outer(np.ones(4), E * 1e-2)
    x = run(sites(arrays, zero_residual=False), x0)

    def error(tensors: Any, record: Any) -> float:
        y, levels, _ = run_sidecar(tensors, record, E * 1e-2)
        return max(relative(p @ b, a) for p, a, b in zip(levels, x, y))

    assert error(tensors, record) < 1e-11
    bare = {k: np.eye(4) if k.endswith("metric") else v for k, v in tensors.items()}
    assert error(bare, record) > 1e-3
    swapped = {**record, "model": {**record["model"], "norm": {**record["model"]["norm"], "eps": 1e-6}}}
    assert error(tensors, swapped) > 1e-6
    for key in [k for k in arrays if k.endswith("base") and "head" not in k]:
        arrays[key] = np.concatenate([arrays[key][:8], arrays[key][8:].reshape(4, 4).T.ravel()])
    other = deepseek_folder(tmp_path / "turned", arrays)
    turned, turned_record = converted(other, tmp_path / "turned-out")
    assert error(turned, turned_record) > 1e-2


def test_spellings_prefixes_and_shards_give_identical_tensors(tmp_path: Path) -> None:
    wanted, _ = converted(deepseek_folder(tmp_path / "first"), tmp_path / "first-out", "bias")
    seen = set()
    for spelling in ("release", "hybrid", "native"):
        for prefix in (True, False):
            for shards in (False, True):
                name = f"{spelling}-{prefix}-{shards}"
                source = deepseek_folder(tmp_path / name, spelling=spelling, prefix=prefix, shards=shards)
                tensors, record = converted(source, tmp_path / f"{name}-out", "bias")
                assert list(tensors) == list(wanted)
                assert all(np.array_equal(tensors[k], wanted[k]) for k in wanted)
                seen.add(record["source"]["spelling"])
    assert seen == {"release", "hybrid", "native"}


def test_every_tensor_of_the_source_is_accounted_for(tmp_path: Path) -> None:
    extra = {
        "mtp.0.hc_attn_fn": f32(np.ones((24, 24))),
        "mtp.0.hc_head_fn": f32(np.ones((4, 24))),
        "layers.3.hc_attn_base": f32(np.ones(24)),
    }
    _, record = converted(deepseek_folder(tmp_path / "source", extra=extra), tmp_path / "out", "bias")
    counted = record["ledger"]
    assert counted["source"] == 3 * 6 + 3 + 5 + 3
    assert (len(counted["consumed"]), counted["kept"], counted["dropped"]) == (21, 8, {})
    assert [reader["name"] for reader in record["model"]["readers"]] == ["layers.3", "mtp.0"]


def test_every_hyper_connection_tensor_matters(tmp_path: Path) -> None:
    """A tensor whose change leaves the output alone is mapped to nothing (the residual rows of a static fn aside)."""
    arrays = deepseek_arrays(static=True)
    tensors, record = converted(deepseek_folder(tmp_path / "first", arrays), tmp_path / "first-out")
    wanted = run_sidecar(tensors, record, E)[2]
    names = [n for n in arrays if n.startswith(("layers.1", "hc_head"))]
    for i, name in enumerate(names):
        changed = {**arrays, name: arrays[name] * np.float32(1.01)}
        moved = converted(deepseek_folder(tmp_path / f"s{i}", changed), tmp_path / f"o{i}")
        assert relative(run_sidecar(*moved, E)[2], wanted) > 1e-9, name


def test_dynamic_mixers_are_refused_with_their_numbers(tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source")
    message = r"6 of 6 mixers depend on the state, .*\(RMS\) and A by .*%; expected static ones, or --mixers bias"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("exact")), message)
    assert not (tmp_path / "out").exists()


def test_zero_weights_are_static_too(tmp_path: Path) -> None:
    arrays = deepseek_arrays()
    for name in [n for n in arrays if n.endswith("_fn") and "head" not in n]:
        arrays[name] = arrays[name] * (np.arange(24) < 8)[:, None].astype(np.float32)
    _, record = converted(deepseek_folder(tmp_path / "source", arrays), tmp_path / "out")
    assert all(site["static"] and not site["reads_static"] for site in record["sites"])


def test_norm_gate_and_binary_form(tmp_path: Path) -> None:
    from streamgauge.theory.form import NormGate

    arrays = deepseek_arrays(static=True)
    source = deepseek_folder(tmp_path / "source", arrays)
    made = convert_folder(source, tmp_path / "out", Options(), norm=NormGate())
    tensors, record = read_file(made.path)
    y, levels, _ = run_sidecar(tensors, record, E)
    x = run(sites(arrays, zero_residual=False), np.outer(np.ones(4), E))
    assert relative(levels[-1] @ y[-1], x[-1]) < 1e-11


def test_glm_has_bfloat16_weights_a_text_config_and_a_mean_head(tmp_path: Path) -> None:
    arrays = {k: v for k, v in deepseek_arrays(static=True).items() if "head" not in k}
    raw = {f"model.language_model.{k}": bf16(v) if k.endswith("_fn") else f32(v) for k, v in arrays.items()}
    config = {"model_type": "glm5_next", "text_config": {**DEEPSEEK, "model_type": "glm5_next_text"}}
    source = write_folder(tmp_path / "source", raw, config)
    tensors, record = converted(source, tmp_path / "out")
    assert record["source"]["format"] == "glm5-next"
    for name in [n for n in arrays if n.endswith("_fn")]:  # rounding to bfloat16, a second way
        bits = np.frombuffer(bf16(arrays[name])[2], "<u2").astype(np.uint32) << 16
        arrays[name] = bits.view(np.float32).reshape(arrays[name].shape)
    x = run(sites(arrays, zero_residual=False), np.outer(np.ones(4), E))
    assert relative(run_sidecar(tensors, record, E)[2], x[-1].mean(0)) < 1e-11


def test_v41_reads_one_site_late_and_ends_with_the_last_read(tmp_path: Path) -> None:
    arrays = {k: v for k, v in deepseek_arrays(static=True).items() if "head" not in k}
    raw = {k: f32(v) for k, v in arrays.items()} | {"layers.1.engram.wkv.weight": f32(np.ones((2, 2)))}
    inner = {**DEEPSEEK, "model_type": "deepseek_v41_text", "rms_norm_eps": 1e-20}
    source = write_folder(tmp_path / "source", raw, {"model_type": "deepseek_v41", "text_config": inner})
    tensors, record = converted(source, tmp_path / "out")
    assert record["model"]["readers"] == [{"name": "layers.1.engram", "level": 2, "writes": True}]
    made = sites(arrays, zero_residual=False, rms_eps=1e-20)
    x = run(made, np.outer(np.ones(4), E), lagged=True)
    y, levels, found = run_sidecar(tensors, record, E)
    assert max(relative(p @ b, a) for p, a, b in zip(levels, x, y)) < 1e-11
    assert relative(found, made[-1](x[-2])[0] @ x[-1]) < 1e-11
    prompt = run(made, np.outer(np.ones(4), E))
    assert relative(levels[-1] @ y[-1], prompt[-1]) > 1e-3


def test_a_missing_head_is_ambiguous(tmp_path: Path) -> None:
    arrays = {k: v for k, v in deepseek_arrays(static=True).items() if "head" not in k}
    source = deepseek_folder(tmp_path / "source", arrays)
    message = (
        r"config.json says deepseek_v4 and the tensors fit GLM.*give --format glm5-next or --format deepseek-v4.1"
    )
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options()), message)
    converted(source, tmp_path / "out", name="glm5-next")
    other = deepseek_folder(tmp_path / "other", config={**DEEPSEEK, "model_type": "newcomer"})
    assert_refused(
        lambda: convert_folder(other, tmp_path / "no", Options("bias")), "says newcomer .* --format deepseek-v4"
    )


def test_names_in_other_spellings() -> None:
    assert spelled("layers.2.hc_attn_fn", "native") == "model.layers.2.attn_hc.fn"
    assert spelled("hc_head_fn", "hybrid") == "model.hc_head.hc_fn"


@pytest.mark.parametrize("layers", [4, 16, 43])
def test_depth_costs_nothing_in_the_graded_form(layers: int, tmp_path: Path) -> None:
    """Up to 86 mixers from spread bases: the identity gauge is hopeless (cond beyond 1e15), the graded one exact."""
    config = {**DEEPSEEK, "num_hidden_layers": layers}
    arrays = deepseek_arrays(7, static=True, config=config)
    source = deepseek_folder(tmp_path / "source", arrays, config=config)
    tensors, record = converted(source, tmp_path / "out")
    made = []
    for layer in range(layers):
        for branch in ("attn", "ffn"):
            t = {p: np.float64(arrays[f"layers.{layer}.hc_{branch}_{p}"]) for p in ("fn", "base", "scale")}
            made.append(lambda x, t=t: deepseek_site(t, x, rms_eps=1e-5, hc_eps=1e-6, iterations=20))
    x = run(made, np.outer(np.ones(4), E))
    y, levels, _ = run_sidecar(tensors, record, E)
    assert max(relative(p @ b, a) for p, a, b in zip(levels, x, y)) < 1e-11
    assert max(site["cond"] for site in record["sites"]) < 1e3


def test_a_head_that_the_model_does_not_use_is_dropped_and_listed(tmp_path: Path) -> None:
    source = deepseek_folder(
        tmp_path / "source", deepseek_arrays(static=True), config={**DEEPSEEK, "model_type": "glm5_next"}
    )
    tensors, record = converted(source, tmp_path / "out")
    assert sorted(record["ledger"]["dropped"]) == ["hc_head_base", "hc_head_fn", "hc_head_scale"]
    assert (len(record["ledger"]["consumed"]), record["ledger"]["kept"]) == (18, 5)
    assert "head.linear" in tensors


def test_static_checkpoints_are_read_once(tmp_path: Path) -> None:
    arrays = deepseek_arrays(static=True)
    source = deepseek_folder(tmp_path / "source", arrays)
    made = convert_folder(source, tmp_path / "out", Options("exact"))
    mixers = sum(array.nbytes for array in arrays.values())
    assert made.bytes_read - mixers <= Shards(source).header_bytes + 2 * 6 * (24 + 3) * 4
