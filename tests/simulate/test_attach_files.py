"""Sidecars read for sg.attach: damage is told in one line; none of this needs transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_folders import deepseek_arrays, deepseek_folder
from refusals import assert_refused
from safetensors import safe_open
from safetensors.torch import save_file

import streamgauge as sg
from streamgauge.simulate import attach
from streamgauge.simulate.attach_files import read_sidecar, write_sidecar


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sidecar")
    deepseek_folder(folder / "source", deepseek_arrays(static=True))
    return sg.sidecar(folder / "source", folder / "out").path


def test_a_file_and_its_folder_are_the_same(sidecar: Path) -> None:
    by_file, by_folder = read_sidecar(sidecar), read_sidecar(sidecar.parent)
    assert by_file.record == by_folder.record
    assert (by_file.n, by_file.d, by_file.sites, by_file.comparable) == (4, 6, 6, True)
    assert (by_file.read_map.eps, by_file.write_map.mult, by_file.rms_eps) == (1e-6, 2.0, 1e-5)


def test_written_and_read_again(sidecar: Path, tmp_path: Path) -> None:
    held = read_sidecar(sidecar)
    write_sidecar(tmp_path / "sidecar.safetensors", held.tensors, held.record)
    again = read_sidecar(tmp_path)
    assert not again.comparable
    assert again.tensors.keys() == held.tensors.keys()
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in held.tensors.items())


def _lost(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    del tensors["sites.3.gauge.metric"]


def _extra(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    tensors["sites.6.gates"] = torch.ones(4)


def _shape(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    tensors["sites.1.gates"] = torch.ones(3, dtype=torch.float64)


def _dtype(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    tensors["sites.1.gates"] = tensors["sites.1.gates"].float()


def _nan(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    tensors["head.base"] = torch.full((4,), torch.nan, dtype=torch.float64)


def _lagged(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    record["model"]["lagged"] = True


def _placement(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    record["model"]["norm"]["placement"] = "outside"


def _squash(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    record["model"]["squash"]["write"] = "tanh"


def _head(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    record["model"]["head"]["kind"] = "streams"


def _short(tensors: dict[str, Any], record: dict[str, Any]) -> None:
    del record["model"]["read"]


def _changed(*path: str, to: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(tensors: dict[str, Any], record: dict[str, Any]) -> None:
        *above, last = path
        for key in above:
            record = record[key]
        record[last] = to

    return change


DAMAGE: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], None], str]] = {
    "lost": (_lost, r"tensor sites\.3\.gauge\.metric is missing"),
    "extra": (_extra, r"tensor sites\.6\.gates is unknown"),
    "shape": (_shape, r"sites\.1\.gates is torch\.float64 \(3,\), expected torch\.float64 \(4,\)"),
    "dtype": (_dtype, r"sites\.1\.gates is torch\.float32"),
    "nan": (_nan, r"head\.base is not finite"),
    "lagged": (_lagged, "record lagged is True, expected False"),
    "placement": (_placement, r"record norm\.placement is 'outside', expected 'inside'"),
    "squash": (_squash, r"record squash\.write is 'tanh', expected 'none'"),
    "head": (_head, r"record head\.kind is 'streams', expected 'gate or mean'"),
    "source": (_changed("source", to=[]), "record: TypeError .*, expected a complete record"),
    "norm gate": (_changed("norm_gate", to={"eps": 0.0}), "record: KeyError 'cap', expected a complete record"),
    "refined": (_changed("refined", to={}), "record: KeyError 'source', expected a complete record"),
    "kept": (_changed("refined", to={"source": []}), "record: IndexError .*, expected a complete record"),
    "kept shape": (
        _changed("refined", to={"source": [{"base": [0.0], "scale": [1.0, 1.0]}]}),
        r"record: ValueError refined source 0: found shapes \(\(1,\), \(2,\)\)",
    ),
    "short": (_short, "record: KeyError 'read'"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told(name: str, sidecar: Path, tmp_path: Path) -> None:
    with safe_open(sidecar, framework="pt") as stored:
        metadata = stored.metadata()
        tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
    record = json.loads(metadata["record"])
    damage, message = DAMAGE[name]
    damage(tensors, record)
    save_file(tensors, tmp_path / "sidecar.safetensors", {**metadata, "record": json.dumps(record)})
    assert_refused(lambda: read_sidecar(tmp_path), message)


def test_other_files_are_no_sidecars(sidecar: Path, tmp_path: Path) -> None:
    assert_refused(lambda: read_sidecar(tmp_path), r"holds 0 of sidecar\.safetensors and streamgauge\.safetensors")
    assert_refused(lambda: read_sidecar(tmp_path / "none"), "not found")
    (tmp_path / "text").write_text("not a tensor file")
    assert_refused(lambda: read_sidecar(tmp_path / "text"), "is no readable sidecar")
    save_file({"a": torch.ones(1)}, tmp_path / "plain")
    assert_refused(lambda: read_sidecar(tmp_path / "plain"), "found format None")


def test_without_transformers_one_line_says_what_to_install(sidecar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "find_spec", lambda name: None)
    assert_refused(lambda: sg.attach(object(), sidecar), r"needs transformers: pip install 'streamgauge\[hf\]'")
