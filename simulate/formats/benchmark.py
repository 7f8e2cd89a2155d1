"""What inspecting and converting a checkpoint of DeepSeek-V4-Pro's size takes, beside reading and writing its bytes.

The checkpoint is synthetic: hyper-connection tensors of the real shapes (61 layers, d = 7168, n = 4, float32, about
336 MB), one layer per shard, as many other tensors as the real one (145 thousand) in its dtypes (fp8, packed fp4,
e8m0 scales, bfloat16), but small.  Time and peak memory are those of the commands as people run them, each in a
process of its own.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.simulate.formats.shards import INDEX, Shards
from streamgauge.theory.errors import InputError

N = 4
PLAIN = """
import os, sys
from streamgauge.simulate.formats.detect import read_record
from streamgauge.simulate.formats.shards import Shards
shards = Shards(sys.argv[1])
with open(sys.argv[2], "wb") as out:
    for name in read_record(shards).tensors():
        entry = shards.entry(name)
        with entry.file.open("rb") as stream:
            stream.seek(entry.begin)
            out.write(stream.read(entry.size))
    out.flush()
    os.fsync(out.fileno())
"""
"""Reading the same tensors and writing them again, and nothing else."""


@dataclass(frozen=True)
class ScaleFigure:
    """One command: wall seconds, peak resident MiB, bytes requested over bytes of the mixers, bytes written."""

    what: str
    seconds: float
    peak_mib: float
    requested: float | None
    megabytes_written: float


def synthetic_checkpoint(folder: Path, *, layers: int = 61, width: int = 7168, tensors: int = 145_116) -> int:
    """Write the checkpoint; returns the bytes of its hyper-connection tensors.

    Bases are a diagonal of 3 plus noise, residual scales 0.05: mixers near the identity that move a little.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    fillers = max(0, (tensors - 6 * layers - 3) // layers)
    table: dict[str, str] = {}
    written = 0
    for layer in range(layers):
        held: dict[str, tuple[str, list[int], bytes]] = {}
        for branch in ("attn", "ffn"):
            key, rows = f"layers.{layer}.hc_{branch}", N * (N + 2)
            base = rng.normal(0, 0.5, rows)
            base[2 * N :] += 3 * np.eye(N).ravel()
            held[f"{key}_fn"] = _float32(rng.standard_normal((rows, N * width), dtype=np.float32) * np.float32(0.02))
            held[f"{key}_base"] = _float32(base)
            held[f"{key}_scale"] = _float32(np.array([0.5, 0.5, 0.05]))
        if layer == layers - 1:
            head = rng.standard_normal((N, N * width), dtype=np.float32) * np.float32(0.02)
            held |= {"hc_head_fn": _float32(head), "hc_head_base": _float32(np.zeros(N))}
            held["hc_head_scale"] = _float32(np.ones(1))
        written += sum(len(data) for _, _, data in held.values())
        held |= _fillers(layer, fillers)
        name = f"model-{layer + 1:05d}-of-{layers:05d}.safetensors"
        _write(folder / name, held)
        table |= dict.fromkeys(held, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": table}))
    config = {"model_type": "deepseek_v4", "hidden_size": width, "num_hidden_layers": layers, "hc_mult": N}
    config |= {"hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6}
    (folder / "config.json").write_text(json.dumps(config))
    return written


def scale_figures(source: Path, place: Path, mixers: int) -> list[ScaleFigure]:
    """Inspect, convert, and the plain copy, of the checkpoint at ``source`` with that many bytes of mixers.

    **Raises** :class:`InputError` with a command's own words where it fails.
    """
    own = (sys.executable, "-m", "streamgauge")
    inspected, first = _timed("inspect", (*own, "inspect", source, "--json"))
    out = place / "converted"
    converted, second = _timed("convert --mixers bias", (*own, "convert", source, out, "--mixers", "bias", "--json"))
    whole = (*own, "convert", source, place / "full", "--mixers", "bias", "--full", "--json")
    complete, fourth = _timed("convert --mixers bias --full", whole)
    _, third = _timed("plain read and write", (sys.executable, "-c", PLAIN, source, place / "plain"))
    ratios = [json.loads(text)["bytes_read"] / mixers for text in (inspected, converted, complete)]
    whole_size = sum(path.stat().st_size for path in (place / "full").iterdir())
    sizes = [0, json.loads(converted)["bytes_written"], whole_size, (place / "plain").stat().st_size]
    headers = Shards(source).header_bytes
    return [
        ScaleFigure(what, seconds, peak, ratio, size / 1e6)
        for (what, seconds, peak), ratio, size in zip(
            (first, second, fourth, third), (*ratios, (mixers + headers) / mixers), sizes
        )
    ]


def _timed(what: str, command: tuple[Any, ...]) -> tuple[str, tuple[str, float, float]]:
    """stdout, and (what, seconds, peak MiB) of a command in a process of its own."""
    start = time.perf_counter()
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        out, err = process.stdout, process.stderr
        if out is None or err is None:
            raise InputError(f"bench: {what}: no pipes")
        text, said = out.read().decode(), err.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if process.returncode != 0:
        raise InputError(f"bench: {what} ended with {process.returncode}: {said.strip()[-300:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return text, (what, seconds, usage.ru_maxrss * unit / 2**20)


def _float32(array: Any) -> tuple[str, list[int], bytes]:
    made = np.ascontiguousarray(array, dtype="<f4")
    return "F32", list(made.shape), made.tobytes()


def _fillers(layer: int, count: int) -> dict[str, tuple[str, list[int], bytes]]:
    kinds = (("F4", [2, 4], 4), ("F8_E8M0", [2, 1], 2), ("F8_E4M3", [2, 2], 4), ("BF16", [2], 4))
    return {
        f"layers.{layer}.ffn.experts.{i // 4}.w{i % 4}": (dtype, shape, bytes(size))
        for i, (dtype, shape, size) in ((i, kinds[i % 4]) for i in range(count))
    }


def _write(path: Path, held: dict[str, tuple[str, list[int], bytes]]) -> None:
    at, header = 0, {}
    for name, (dtype, shape, data) in held.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in held.values():
            stream.write(data)
