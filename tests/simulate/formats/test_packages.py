"""Liger-Kernel and lucidrains: models and outputs that the packages made (tests/support/package_fixtures.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import f32, read_file, write_folder
from safetensors.numpy import load_file

from streamgauge.simulate.formats.detect import read_record
from streamgauge.simulate.formats.evaluate import coefficients, load
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder

DATA = Path(__file__).parent / "data"
LIGER = {"tmax": "20", "rms_eps": "1e-6", "pre_eps": "0", "sinkhorn_eps": "1e-6", "post_mult": "2", "head": "none"}
GIVEN = {"liger": LIGER, "lucidrains-hc": {"head": "sum"}, "lucidrains-mhc": {"head": "sum", "sinkhorn_iters": "20"}}
ROUND_OFF = 2e-5
"""The packages compute coefficients in float32."""


def fixture(name: str, folder: Path) -> tuple[Path, Any, Any]:
    """The model alone as a folder, the input and the package's output."""
    stored = load_file(DATA / f"{name}.safetensors")
    start, output = (np.float64(stored.pop(key)) for key in ("input", "output"))
    return write_folder(folder, {key: f32(array) for key, array in stored.items()}, None), start, output


def error(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def forward(record: ModelRecord, shards: Shards, x: Any, *, turned: bool = False) -> Any:
    for mixer in record.mixers:
        p, r, a = coefficients(mixer, load(mixer, shards, record.n, record.d), x)
        branch = np.tanh(np.einsum("ts,tsd->td", np.broadcast_to(p, x.shape[:2]), x))
        mixed = (np.swapaxes(a, -1, -2) if turned else a) @ x
        x = mixed + np.broadcast_to(r, x.shape[:2])[..., None] * branch[:, None]
    return x


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", GIVEN)
def test_forward_is_the_packages(name: str, kind: str, tmp_path: Path) -> None:
    source, start, output = fixture(f"{name}-{kind}", tmp_path / "source")
    shards = Shards(source)
    record = read_record(shards, given=GIVEN[name])
    assert isinstance(record, ModelRecord)
    assert record.format == name.partition("-")[0]
    assert error(forward(record, shards, start), output) < ROUND_OFF
    assert error(forward(record, shards, start, turned=True), output) > 10 * ROUND_OFF


@pytest.mark.parametrize("name", GIVEN)
def test_converted_static_models_give_the_packages_streams(name: str, tmp_path: Path) -> None:
    source, start, output = fixture(f"{name}-static", tmp_path / "source")
    tensors, record = read_file(convert_folder(source, tmp_path / "out", Options("exact", None, GIVEN[name])).path)
    y = tensors["entry"][:, None] * start[:, :1]
    for l in range(len(record["sites"])):
        site = {k.removeprefix(f"sites.{l}."): v for k, v in tensors.items() if k.startswith(f"sites.{l}.")}
        n = len(site["gates"])
        z = np.broadcast_to(site["coef.base"], (len(y), 2 * n))
        if "coef.weight" in site:
            square = np.mean((site["gauge.metric"] @ y) ** 2, axis=(1, 2))
            root = np.sqrt(square + record["model"]["norm"]["eps"])
            z = np.repeat(site["coef.scale"], n) * (y.reshape(len(y), -1) @ site["coef.weight"].T / root[:, None]) + z
        if name != "lucidrains-hc":
            z = 1 / (1 + np.exp(-z)) * np.repeat([1, 2], n)
        branch = np.tanh(np.einsum("ts,tsd->td", z[:, :n] @ site["gauge.read"], y))
        y = site["gates"][:, None] * y + (z[:, n:] @ site["gauge.write"].T)[..., None] * branch[:, None]
    assert error(tensors["head.gauge.read"] @ y, output) < ROUND_OFF


@pytest.mark.parametrize("name", ["lucidrains-hc", "lucidrains-mhc"])
def test_fixtures_are_what_the_installed_package_makes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("hyper_connections", reason="the package that made the fixtures is not installed")
    import package_fixtures
    import torch

    torch.manual_seed(0)
    for kind in ("hc", "mhc"):
        package_fixtures.lucidrains(tmp_path, kind, 0.0)
    made = load_file(tmp_path / f"{name}-static.safetensors")
    kept = load_file(DATA / f"{name}-static.safetensors")
    assert set(made) == set(kept)
    assert error(made["output"], kept["output"]) < 1e-6
