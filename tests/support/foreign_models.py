"""Random small checkpoints of every other format, each with its documented sites as functions of X."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
from foreign_folders import f32, write_folder
from foreign_formulas import Site, liger_site, lite_site, megatron_site, static_site, stream_site

N, D, LAYERS = 3, 5, 2


@dataclass(frozen=True)
class Foreign:
    """A model: stored arrays by key, config, what has to be given by hand, and its sites from float64 tensors."""

    arrays: Mapping[str, Any]
    config: Mapping[str, Any] | None
    names: tuple[str, ...]
    site: Callable[..., Any]
    parts: tuple[str, ...]
    format: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    def folder(self, path: Path, changed: Mapping[str, Any] | None = None) -> Path:
        return write_folder(path, {k: f32(v) for k, v in {**self.arrays, **(changed or {})}.items()}, self.config)

    def sites(self) -> list[Site]:
        made = []
        for name in self.names:
            t = {
                part: np.float64(self.arrays[f"{name}.{part}"])
                for part in self.parts
                if f"{name}.{part}" in self.arrays
            }
            made.append(lambda x, t=t: self.site(t, x))
        return made


def _rounded(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(array, dtype=np.float32) for name, array in arrays.items()}


def _logits(rng: Any, n: int = N) -> Any:
    return 2 * np.eye(n) + rng.normal(0, 4, (n, n))  # spread: unfinished sweeps and their order show


def megatron(*, dev: bool = False, residual: float = 0.3) -> Foreign:
    rng, arrays = np.random.default_rng(1), {}
    names = tuple(
        f"decoder.layers.{l}.{b}_hyper_connection" for l in range(LAYERS) for b in ("self_attention", "mlp")
    )
    for name in names:
        bias = np.concatenate([rng.normal(0, 1, 2 * N), _logits(rng).ravel()])
        arrays |= {
            f"{name}.mapping_proj.weight": rng.normal(0, 0.3, (N * (N + 2), N * D)),
            f"{name}.bias": bias,
            f"{name}.alpha_pre": [0.8],
            f"{name}.alpha_post": [1.1],
            f"{name}.alpha_res": [residual],
        }
    return Foreign(
        _rounded(arrays),
        {"mhc_num_residual_streams": N, "mhc_sinkhorn_iterations": 20},
        names,
        lambda t, x: megatron_site(t, x, iterations=20, dev=dev),
        ("mapping_proj.weight", "bias", "alpha_pre", "alpha_post", "alpha_res"),
        "megatron-dev" if dev else "megatron",
    )


def liger(*, residual: float = 0.3) -> Foreign:
    rng, arrays = np.random.default_rng(2), {}
    names = tuple(f"blocks.{l}.{b}" for l in range(LAYERS) for b in ("attn", "mlp"))
    for name in names:
        arrays |= {
            f"{name}.phi": rng.normal(0, 0.3, (N * D, N * (N + 2))),
            f"{name}.b": np.concatenate([rng.normal(0, 1, 2 * N), _logits(rng).ravel()]),
            f"{name}.alpha_pre": 0.8,
            f"{name}.alpha_post": 1.1,
            f"{name}.alpha_res": residual,
            f"{name}.layer.weight": np.ones((D, D)),
        }
    given = {
        "tmax": "20",
        "rms_eps": "1e-5",
        "pre_eps": "1e-3",
        "sinkhorn_eps": "1e-6",
        "post_mult": "2",
        "head": "sum",
    }
    return Foreign(
        _rounded(arrays),
        None,
        names,
        lambda t, x: liger_site(t, x, rms_eps=1e-5, pre_eps=1e-3, eps=1e-6, tmax=20),
        ("phi", "b", "alpha_pre", "alpha_post", "alpha_res"),
        given=given,
    )


def lite(kind: str, *, residual: float = 0.3) -> Foreign:
    """The mhc-lite repository's "mhc" and "mhc_lite"."""
    rng, arrays = np.random.default_rng(3), {}
    size = N * (N + 1) if kind == "mhc" else N + factorial(N)
    names = tuple(f"transformer.h.{l}.hc_{b}" for l in range(LAYERS) for b in ("attn", "mlp"))
    for name in names:
        alpha = rng.normal(0, 1, (N, N + 1))
        alpha[:, 1:] = _logits(rng)
        arrays |= {
            f"{name}.static_alpha": alpha if kind == "mhc" else rng.normal(0, 1.5, size),
            f"{name}.dynamic_alpha_fn": rng.normal(0, 0.3, (N * D, size)),
            f"{name}.pre_branch_scale": [0.7],
            f"{name}.residual_scale": [residual],
            f"{name}.static_beta": rng.normal(0, 1, N),
            f"{name}.dynamic_beta_fn": rng.normal(0, 0.3, (N * D, N)),
            f"{name}.h_post_scale": 0.9,
            f"{name}.norm.gamma": rng.normal(0, 0.3, N * D),
        }
    arrays["transformer.ln_f.weight"] = np.ones(D)
    parts = (
        "static_alpha", "dynamic_alpha_fn", "pre_branch_scale", "residual_scale", "static_beta", "dynamic_beta_fn",
        "h_post_scale", "norm.gamma",
    )  # fmt: skip
    config = {"hyper_conn_type": kind, "hyper_conn_n": N, "n_embd": D}
    return Foreign(_rounded(arrays), config, names, lambda t, x: lite_site(t, x, kind=kind), parts)


def streams(kind: str, *, dynamic: float = 0.3, place: str = "layers") -> Foreign:
    """lucidrains' "hc" and "mhc"; with place "transformer.h" the mhc-lite repository's "hc"."""
    rng, arrays = np.random.default_rng(4), {}
    names = tuple(f"{place}.{l}.hc_{b}" for l in range(LAYERS) for b in ("attn", "mlp"))
    for name in names:
        mix = _logits(rng) if kind == "mhc" else np.eye(N) + rng.normal(0, 0.3, (N, N))
        shape = (1, D, N + 1) if kind == "mhc" else (D, N + 1)
        arrays |= {
            f"{name}.static_alpha": np.concatenate([rng.normal(0, 1, (N, 1)), mix], axis=1),
            f"{name}.dynamic_alpha_fn": dynamic * rng.normal(0, 1, shape),
            f"{name}.static_beta": rng.normal(0, 1, N),
            f"{name}.dynamic_beta_fn": dynamic * rng.normal(0, 1, D),
            f"{name}.norm.gamma": rng.normal(0, 0.3, D),
        }
        if kind == "mhc":
            arrays |= {
                f"{name}.pre_branch_scale": [0.7],
                f"{name}.residual_scale": [0.4],
                f"{name}.h_post_scale": 0.9,
            }
        else:
            arrays |= {f"{name}.dynamic_alpha_scale": 0.4, f"{name}.dynamic_beta_scale": 0.9}
    parts = tuple(dict.fromkeys(key.removeprefix(f"{names[0]}.") for key in arrays if key.startswith(names[0])))
    given = {"head": "sum"} | ({"sinkhorn_iters": "20"} if kind == "mhc" else {})
    config = None
    if place.startswith("transformer"):
        given, config = {}, {"hyper_conn_type": "hc", "hyper_conn_n": N}
    return Foreign(_rounded(arrays), config, names, lambda t, x: stream_site(t, x, kind=kind), parts, given=given)


def tokenbender(*, blend: bool = False) -> Foreign:
    rng, arrays = np.random.default_rng(5), {}
    names = tuple(f"transformer.h.{l}.hc_{b}" for l in range(LAYERS) for b in ("attn", "mlp"))
    for name in names:
        arrays |= {
            f"{name}.H_res_logits": rng.normal(0, 0.05, (N, N)),
            f"{name}.H_pre_logits": rng.normal(0, 1, N),
            f"{name}.H_post_logits": rng.normal(0, 1, N),
            f"{name}.static_alpha": np.ones((N, N + 1)),
            f"{name}.norm.gamma": np.ones(D),
        }
        if blend:
            arrays[f"{name}.H_res_alpha_logit"] = -0.3
    config = {"n_embd": D, "sinkhorn_iters": 10, "sinkhorn_tau": 0.05, "mhc": True, "mhc_h_res_proj": "sinkhorn"}
    parts = ("H_res_logits", "H_pre_logits", "H_post_logits", "H_res_alpha_logit")
    site = lambda t, x: static_site(t, tau=0.05, iterations=10)  # noqa: E731
    return Foreign(_rounded(arrays), config, names, site, parts)


ALL: dict[str, Callable[[], Foreign]] = {
    "megatron": megatron,
    "megatron-dev": lambda: megatron(dev=True),
    "liger": liger,
    "mhc": lambda: lite("mhc"),
    "mhc_lite": lambda: lite("mhc_lite"),
    "mhc-lite hc": lambda: streams("hc", place="transformer.h"),
    "lucidrains hc": lambda: streams("hc"),
    "lucidrains mhc": lambda: streams("mhc"),
    "tokenbender": tokenbender,
    "tokenbender blend": lambda: tokenbender(blend=True),
}
STATIC: dict[str, Callable[[], Foreign]] = {
    "megatron": lambda: megatron(residual=0.0),
    "megatron-dev": lambda: megatron(dev=True, residual=0.0),
    "liger": lambda: liger(residual=0.0),
    "mhc": lambda: lite("mhc", residual=0.0),
    "mhc_lite": lambda: lite("mhc_lite", residual=0.0),
    "mhc-lite hc": lambda: streams("hc", dynamic=0.0, place="transformer.h"),
    "lucidrains hc": lambda: streams("hc", dynamic=0.0),
    "lucidrains mhc": lambda: streams("mhc", dynamic=0.0),
    "tokenbender": tokenbender,
    "tokenbender blend": lambda: tokenbender(blend=True),
}
