"""transformers' own DeepSeek-V4 and GLM-5.3 forward passes, traced (tests/support/package_fixtures.py).

The branches are replayed from the trace, so everything that hyper-connections do is compared and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import f32, read_file, write_folder
from foreign_formulas import normed, sigmoid
from safetensors import safe_open

from streamgauge.simulate.formats.detect import read_record
from streamgauge.simulate.formats.evaluate import coefficients, load
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder

DATA = Path(__file__).parent / "data"
KINDS = ("deepseek_v4", "glm5_next")
ROUND_OFF = 1e-5
"""The traced passes are in float32."""


def traced(kind: str, label: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The hyper-connection tensors as a folder, and the trace in float64 by short names."""
    with safe_open(DATA / f"transformers-{kind}-{label}.safetensors", framework="numpy") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        config = json.loads(stored.metadata()["config"])
    trace = {k.removeprefix("trace."): np.float64(v) for k, v in tensors.items() if k.startswith("trace.")}
    model = {k: f32(v) for k, v in tensors.items() if not k.startswith("trace.")}
    return write_folder(folder, model, config), trace


def error(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("label", ["static", "dynamic"])
@pytest.mark.parametrize("kind", KINDS)
def test_reads_writes_and_mixers_are_transformers(kind: str, label: str, tmp_path: Path) -> None:
    source, trace = traced(kind, label, tmp_path / "source")
    shards = Shards(source)
    record = read_record(shards)
    assert isinstance(record, ModelRecord)
    assert record.format == {"deepseek_v4": "deepseek-v4", "glm5_next": "glm5-next"}[kind]
    turned = []
    for k, mixer in enumerate(record.mixers):
        x, y = trace[f"{k}.x"], trace[f"{k}.y"]
        after = trace.get(f"{k + 1}.x", trace["last"])
        p, r, a = coefficients(mixer, load(mixer, shards, record.n, record.d), x)
        assert error(np.einsum("ts,tsd->td", p, x), trace[f"{k}.u"]) < ROUND_OFF
        written = r[..., None] * y[:, None]
        assert error(a @ x + written, after) < ROUND_OFF
        turned.append(error(np.swapaxes(a, -1, -2) @ x + written, after))
    assert max(turned) > 100 * ROUND_OFF


@pytest.mark.parametrize("kind", KINDS)
def test_converted_static_models_follow_transformers(kind: str, tmp_path: Path) -> None:
    source, trace = traced(kind, "static", tmp_path / "source")
    tensors, record = read_file(convert_folder(source, tmp_path / "out", Options("exact")).path)
    y = tensors["entry"][:, None] * trace["0.x"][:, :1]
    eps, hc_eps = record["model"]["norm"]["eps"], record["model"]["read"]["eps"]
    for l in range(len(record["sites"])):
        site = {k.removeprefix(f"sites.{l}."): v for k, v in tensors.items() if k.startswith(f"sites.{l}.")}
        assert error(site["gauge.read"] @ y, trace[f"{l}.x"]) < ROUND_OFF
        hat = np.stack([normed(site["gauge.metric"], state, eps, "inside") for state in y])
        z = np.repeat(site["coef.scale"], 4) * (hat @ site["coef.weight"].T) + site["coef.base"]
        p, r = sigmoid(z[:, :4]) + hc_eps, 2 * sigmoid(z[:, 4:])
        assert error(np.einsum("ts,tsd->td", p @ site["gauge.read"], y), trace[f"{l}.u"]) < ROUND_OFF
        y = site["gates"][:, None] * y + (r @ site["gauge.write"].T)[..., None] * trace[f"{l}.y"][:, None]
    assert error(tensors["head.gauge.read"] @ y, trace["last"]) < ROUND_OFF
    if kind == "glm5_next":
        found = np.einsum("s,tsd->td", tensors["head.linear"], y)
    else:
        hat = np.stack([normed(tensors["head.gauge.metric"], state, eps, "inside") for state in y])
        c = sigmoid(tensors["head.scale"] * (hat @ tensors["head.weight"].T) + tensors["head.base"]) + hc_eps
        found = np.einsum("ts,tsd->td", c @ tensors["head.gauge.read"], y)
    assert error(found, trace["head"]) < ROUND_OFF
