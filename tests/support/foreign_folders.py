"""Small checkpoint folders as other programs write them: raw safetensors bytes, shards, an index, a config."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Raw = tuple[str, tuple[int, ...], bytes]
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "hidden_size": 6,
    "num_hidden_layers": 3,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
    "rms_norm_eps": 1e-5,
}


def f32(array: Any) -> Raw:
    made = np.ascontiguousarray(array, dtype="<f4")
    return "F32", made.shape, made.tobytes()


def bf16(array: Any) -> Raw:
    """Rounded to the nearest bfloat16 (no ties at random numbers)."""
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4") + np.uint32(0x8000)
    return "BF16", np.shape(array), (bits >> 16).astype("<u2").tobytes()


def write_file(path: Path, tensors: Mapping[str, Raw], metadata: Mapping[str, str] | None = None) -> None:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write_folder(
    folder: Path,
    tensors: Mapping[str, Raw],
    config: Mapping[str, Any] | None,
    shard_of: Callable[[str], int] | None = None,
) -> Path:
    """A folder with one file, or with shards by ``shard_of`` (tensor name to number) and an index."""
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if shard_of is None:
        write_file(folder / "model.safetensors", tensors)
        return folder
    numbers = sorted({shard_of(name) for name in tensors})
    names = {number: f"model-{i:05d}-of-{len(numbers):05d}.safetensors" for i, number in enumerate(numbers, 1)}
    for number in numbers:
        write_file(folder / names[number], {k: v for k, v in tensors.items() if shard_of(k) == number})
    table = {name: names[shard_of(name)] for name in tensors}
    total = sum(len(data) for _, _, data in tensors.values())
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": total}, "weight_map": table})
    )
    return folder


def deepseek_arrays(seed: int = 0, *, static: bool = False, config: Mapping[str, Any] = DEEPSEEK) -> dict[str, Any]:
    """Random float32 arrays under release names; near-identity bases with a spread that shows the orientation."""
    rng = np.random.default_rng(seed)
    n, d = config["hc_mult"], config["hidden_size"]
    out: dict[str, Any] = {}
    for layer in range(config["num_hidden_layers"]):
        for branch in ("attn", "ffn"):
            base = rng.normal(0, 1, n * (n + 2))
            base[2 * n :] = (2 * np.eye(n) + rng.normal(0, 2, (n, n))).ravel()
            scale = rng.uniform(0.5, 1.5, 3) * [1, 1, 0 if static else 0.3]
            key = f"layers.{layer}.hc_{branch}"
            out |= {f"{key}_fn": rng.normal(0, 0.3, (n * (n + 2), n * d)), f"{key}_base": base, f"{key}_scale": scale}
    out |= {"hc_head_fn": rng.normal(0, 0.3, (n, n * d)), "hc_head_base": rng.normal(0, 1, n), "hc_head_scale": [0.7]}
    return {name: np.asarray(array, dtype=np.float32) for name, array in out.items()}


def fill(width: int) -> dict[str, Raw]:
    """Tensors that are nobody's mixer: an embedding in bfloat16, packed fp4 and e8m0 scales."""
    return {
        "embed.weight": bf16(np.ones((5, width))),
        "layers.0.ffn.experts.0.w1.weight": ("F4", (4, 8), bytes(16)),
        "layers.0.ffn.experts.0.w1.scale": ("F8_E8M0", (4, 1), bytes(4)),
        "layers.1.attn.wq.weight": ("F8_E4M3", (4, 4), bytes(16)),
        "layers.1.attn.wq.odd": ("FP3_NEW", (3, 3), bytes(5)),
    }


def spelled(name: str, spelling: str) -> str:
    """A release name in another spelling."""
    if spelling == "release":
        return name
    if name.startswith("hc_head_"):
        return "model.hc_head.hc_" + name.removeprefix("hc_head_")
    if not name.startswith("layers."):
        return "model." + name
    if spelling == "native" and ".hc_" in name:
        layer, part = name.rsplit(".hc_", 1)
        branch, leaf = part.split("_")
        return f"model.{layer}.{branch}_hc.{leaf}"
    return "model." + name


def deepseek_folder(
    folder: Path,
    arrays: Mapping[str, Any] | None = None,
    *,
    config: Mapping[str, Any] | None = DEEPSEEK,
    spelling: str = "release",
    prefix: bool = True,
    shards: bool = False,
    extra: Mapping[str, Raw] | None = None,
) -> Path:
    """A DeepSeek-V4 folder; ``shards``: the three tensors of every mixer in three files."""
    arrays = deepseek_arrays() if arrays is None else arrays
    raw = {**fill(6), **{name: f32(array) for name, array in arrays.items()}, **(extra or {})}
    named = {spelled(name, spelling): tensor for name, tensor in raw.items()}
    if not prefix:
        named = {name.removeprefix("model."): tensor for name, tensor in named.items()}
    endings = {"fn": 0, "base": 1, "scale": 2}

    def shard_of(name: str) -> int:
        return next((number for end, number in endings.items() if name.endswith(end)), 3)

    return write_folder(folder, named, config, shard_of if shards else None)


def read_file(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Tensors (F64) and the record of a sidecar, by the safetensors library."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as stored:
        metadata = stored.metadata()
        return {name: stored.get_tensor(name) for name in stored.keys()}, json.loads(metadata["record"])  # noqa: SIM118
