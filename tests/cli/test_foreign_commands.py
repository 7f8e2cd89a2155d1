"""``convert`` and ``inspect`` on checkpoints of other programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli
from foreign_folders import DEEPSEEK, deepseek_arrays, deepseek_folder, f32, read_file, write_folder
from foreign_models import liger, megatron

from streamgauge.theory.sinkhorn import sinkhorn


def test_convert_static(cli: Cli, tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", deepseek_arrays(static=True))
    ran = cli("convert", source, tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    said = ran.document
    assert (said["format"], said["sites"], said["static_sites"], said["share_max"]) == ("deepseek-v4", 6, 6, 0)
    assert said["tensors"] == {"consumed": 21, "kept": 5, "dropped": 0}
    assert said["residual"] < 1e-12
    assert Path(said["destination"]).stat().st_size == said["bytes_written"]
    assert "rows tight, as the format says" in said["orientation"]
    tensors, record = read_file(tmp_path / "out" / "sidecar.safetensors")
    assert record["form"] == "graded"
    assert max(np.abs(tensors["sites.0.gates"])) <= 1 + 1e-9


def test_convert_dynamic_needs_a_word(cli: Cli, tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source")
    ran = cli("convert", source, tmp_path / "out")
    assert (ran.code, ran.out) == (2, "")
    assert "6 of 6 mixers depend on the state" in ran.err
    assert len(ran.err.splitlines()) == 1
    ran = cli("convert", source, tmp_path / "out", "--mixers", "bias", "--norm", "--cap", "1")
    assert ran.code == 0
    assert "the converted network is another function" in ran.err
    assert "0 of 6" in ran.out


def test_inspect_agrees_with_a_second_route(cli: Cli, tmp_path: Path) -> None:
    arrays = deepseek_arrays()
    source = deepseek_folder(tmp_path / "source", arrays, spelling="native")
    ran = cli("inspect", source, "--json")
    assert ran.code == 0, ran.err
    said = ran.document
    product = np.eye(4)
    for i, site in enumerate(said["sites"]):
        base = np.float64(arrays[f"layers.{i // 2}.hc_{('attn', 'ffn')[i % 2]}_base"])[8:].reshape(4, 4)
        mixer = sinkhorn(base, "deepseek-v4").mixer
        product = mixer @ product
        assert site["singular_values"] == pytest.approx(np.linalg.svd(mixer, compute_uv=False), rel=1e-9)
        assert site["row_error"] == pytest.approx(abs(mixer.sum(1) - 1).max(), abs=1e-14)
        assert site["column_error"] == pytest.approx(abs(mixer.sum(0) - 1).max(), abs=1e-14)
        assert 10 ** site["log10_running_sigma2"] == pytest.approx(np.linalg.svd(product)[1][1], rel=1e-7)
        assert not site["share"]["static"]
    assert said["conventions"]["spelling"] == "native"
    assert said["bytes_read"] < said["bytes_total"] + 10_000
    assert any("depend on the state" in text for text in said["warnings"])


def test_saturation_by_differences_is_the_jacobians(tmp_path: Path) -> None:
    """The project's own checkpoints use derivatives by torch; here a flat and a stuck mixer through both."""
    import torch

    from streamgauge.simulate.formats.report import inspect_folder
    from streamgauge.simulate.inspection import saturation

    arrays = deepseek_arrays()
    stuck = 60 * np.eye(4) + np.arange(16).reshape(4, 4)
    arrays["layers.0.hc_attn_base"][8:] = stuck.ravel()
    found = inspect_folder(deepseek_folder(tmp_path / "source", arrays))
    for i, site in enumerate(found.sites):
        base = arrays[f"layers.{i // 2}.hc_{('attn', 'ffn')[i % 2]}_base"][8:].reshape(4, 4)
        assert site.saturation == saturation(torch.from_numpy(base).double(), "deepseek-v4")
    assert found.sites[0].saturation == 1


def test_inspect_tables_and_pictures(cli: Cli, tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source")
    ran = cli("inspect", source, "--out", tmp_path / "pictures")
    assert ran.code == 0, ran.err
    assert "layers.2.ffn" in ran.out
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == [
        "barcode.png",
        "cond.png",
        "singular_values.png",
    ]


def test_formats_and_settings_by_hand(cli: Cli, tmp_path: Path) -> None:
    source = megatron(residual=0.0).folder(tmp_path / "megatron")
    ran = cli("inspect", source)
    assert (ran.code, ran.out) == (2, "")
    assert "give --format megatron or --format megatron-dev" in ran.err
    assert cli("inspect", source, "--format", "megatron").code == 0
    assert "expected one of deepseek-v4" in cli("inspect", source, "--format", "nope").err
    assert (
        "the tensors are not DeepSeek-V4's; they fit megatron"
        in cli("inspect", source, "--format", "deepseek-v4").err
    )
    foreign = liger(residual=0.0)
    module = foreign.folder(tmp_path / "liger")
    words = [word for name, value in foreign.given.items() for word in ("--set", f"{name}={value}")]
    ran = cli("convert", module, tmp_path / "out", *words)
    assert ran.code == 0, ran.err
    assert "--set tmax: expected NAME=VALUE" in cli("inspect", module, "--set", "tmax").err


def test_recognised_formats_say_why(cli: Cli, tmp_path: Path) -> None:
    arrays = {"model.layers.0.attn_hc.scale": f32(np.ones(2)), "model.layers.0.attn_hc.fn": f32(np.ones((8, 24)))}
    source = write_folder(tmp_path / "source", arrays, {"model_type": "hy_v4"})
    ran = cli("inspect", source, "--json")
    assert ran.code == 0
    assert ran.document["converts"] is False
    ran = cli("convert", source, tmp_path / "out")
    assert (ran.code, "identity already" in ran.err) == (2, True)


def test_own_checkpoints_stay_own(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    from streamgauge.simulate.formats.dispatch import is_foreign

    assert not is_foreign(checkpoint)
    ran = cli("convert", checkpoint, tmp_path / "out", "--mixers", "bias")
    assert ran.code == 2
    assert "none of a known hyper-connection format" in ran.err
    (tmp_path / "folder").mkdir()
    assert not is_foreign(tmp_path / "folder")
    (tmp_path / "folder" / "config.json").write_text(json.dumps(DEEPSEEK))
    assert is_foreign(tmp_path / "folder")
    assert "no safetensors file" in cli("inspect", tmp_path / "folder").err


def test_a_sidecar_is_not_a_source(cli: Cli, tmp_path: Path) -> None:
    source = deepseek_folder(tmp_path / "source", deepseek_arrays(static=True))
    assert cli("convert", source, tmp_path / "out").code == 0
    for command in (("inspect", tmp_path / "out"), ("convert", tmp_path / "out", tmp_path / "again")):
        ran = cli(*command)
        assert (ran.code, ran.out) == (2, "")
        assert "out: holds a converted sidecar, expected the checkpoint that it was made from" in ran.err
    ran = cli("convert", source, tmp_path / "full", "--full", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["destination"].endswith("full/streamgauge.safetensors")


@pytest.mark.parametrize("whole", [(), ("--full",)])
def test_a_sidecar_has_a_certificate_and_nothing_to_restore(cli: Cli, tmp_path: Path, whole: tuple[str, ...]) -> None:
    source, out = deepseek_folder(tmp_path / "source"), tmp_path / "out"
    ran = cli("convert", source, out, "--mixers", "bias", *whole, "--json")
    assert ran.document["certificate"] == str(out / "certificate.json")
    ran = cli("check", out / "certificate.json", "--file", out, "--source", source)
    assert ran.code == 0, ran.out
    assert "it matches the file and its source" in ran.out
    assert "6 of the source's 6 mixers depend on the state, and their biases stand here" in ran.out
    ran = cli("convert", out, tmp_path / "back", "--restore")
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert "nothing to restore" in ran.err
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "hc_eps": 1e-5}))
    ran = cli("check", out / "certificate.json", "--file", out, "--source", source)
    assert ran.code == 1
    assert "source config.json: its SHA-256 is not the certificate's" in ran.out
