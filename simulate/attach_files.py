"""A sidecar read for attaching to a model in memory, and written back from one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from streamgauge.simulate.formats.full import CONVERTED, PREFIX
from streamgauge.simulate.formats.sidecar import FORMAT, FORMAT_VERSION, SIDECAR
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import Recipe

REFINED = "refined"
"""Field of a record whose tensors were fitted after the conversion; it keeps the source's biases and scales."""
FROM_MODEL = "from_model"
"""Field of a record that was written by an attached model's ``save_pretrained``: the source's mixers are gone."""
SITE = ("coef.weight", "coef.scale", "coef.base", "gauge.read", "gauge.write", "gauge.metric", "gates")


@dataclass(frozen=True)
class Sigmoid:
    """``mult * sigmoid(z) + eps``."""

    mult: float
    eps: float

    def __call__(self, z: Tensor) -> Tensor:
        return self.mult * torch.sigmoid(z) + self.eps


@dataclass(frozen=True)
class HeldSidecar:
    """A sidecar's float64 tensors by name (without prefix), and what its record says.

    ``format``: of the source; ``comparable``: whether the model it is meant for still holds the source's mixers, so
    that they can be compared.
    ``head_map``: None for a head that is a constant row; ``recipe``: Sinkhorn's for gates by the token, else None.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]
    format: str
    comparable: bool
    n: int
    d: int
    sites: int
    read_map: Sigmoid
    write_map: Sigmoid
    head_map: Sigmoid | None
    rms_eps: float
    head_rms_eps: float
    norm_gate: Mapping[str, Any] | None
    recipe: Recipe | None = None

    @property
    def refined(self) -> bool:
        """Whether its tensors were fitted after the conversion."""
        return REFINED in self.record

    def source_controller(self, site: int) -> tuple[Tensor, Tensor]:
        """Base and scale of a site as the source has them, also where the file's own were fitted."""
        if self.refined:
            kept = self.record[REFINED]["source"][site]
            base, scale = (torch.tensor(kept[name], dtype=torch.float64) for name in ("base", "scale"))
        else:
            base, scale = (self.tensors[f"sites.{site}.coef.{name}"] for name in ("base", "scale"))
        return base, scale

    def names(self, site: int) -> dict[str, str]:
        """Names in the gated module of a site, and in the file."""
        out = {name: f"sites.{site}.{name}" for name in SITE} | {"matrix": f"sites.{site}.mixer.matrix"}
        return out | ({"entry": "entry", "entry_gauge": "entry.gauge.write"} if site == 0 else {})

    def head_names(self) -> dict[str, str]:
        """The same for the head."""
        if self.head_map is None:
            return {"linear": "head.linear", "gauge.read": "head.gauge.read"}
        parts = {f"coef.{part}": f"head.{part}" for part in ("weight", "scale", "base")}
        return parts | {f"gauge.{part}": f"head.gauge.{part}" for part in ("read", "metric")}

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Every tensor it must have, with its shape."""
        n, width = self.n, self.n * self.d
        square = dict.fromkeys(("gauge.read", "gauge.write", "gauge.metric", "mixer.matrix"), (n, n))
        rows, scales = (2 * n, 2) if self.recipe is None else (2 * n + n * n, 3)
        site = {"coef.weight": (rows, width), "coef.scale": (scales,), "coef.base": (rows,), "gates": (n,), **square}
        out: dict[str, tuple[int, ...]] = {"entry": (n,), "entry.gauge.write": (n, n), "head.gauge.read": (n, n)}
        out |= {f"sites.{l}.{name}": shape for l in range(self.sites) for name, shape in site.items()}
        if self.head_map is None:
            return out | {"head.linear": (n,)}
        return out | {"head.weight": (n, width), "head.scale": (1,), "head.base": (n,), "head.gauge.metric": (n, n)}


def find_sidecar(place: Path) -> Path:
    """The file itself, or the one in a folder: a sidecar's, or a complete checkpoint's."""
    if not place.is_dir():
        return place
    found = [place / name for name in (SIDECAR, CONVERTED) if (place / name).is_file()]
    if len(found) != 1:
        raise InputError(f"{place}: holds {len(found)} of {SIDECAR} and {CONVERTED}, expected one of them")
    return found[0]


def read_sidecar(place: Path) -> HeldSidecar:
    """The sidecar at ``place``, a file or its folder.

    **Raises** :class:`InputError`, one line, for anything that is no complete sidecar of a model whose reads, writes
    and head transformers computes the DeepSeek way.
    """
    path = find_sidecar(place)
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            tensors = {name.removeprefix(PREFIX): stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        record = json.loads(metadata.get("record", "null"))
    except FileNotFoundError:
        raise InputError(f"{path}: not found, expected a sidecar or its folder") from None
    except (OSError, SafetensorError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no readable sidecar: {str(error).splitlines()[0]}") from None
    if (metadata.get("format"), metadata.get("format_version")) != (FORMAT, str(FORMAT_VERSION)):
        found = f"{metadata.get('format')!r} version {metadata.get('format_version')!r}"
        raise InputError(f"{path}: found format {found}, expected {FORMAT!r} version {FORMAT_VERSION}")
    try:
        held = _held(path, tensors, record)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: record: {type(error).__name__} {error}, expected a complete record") from None
    _check(held)
    return held


def _held(path: Path, tensors: Mapping[str, Tensor], record: Any) -> HeldSidecar:
    model = record["model"]
    head = model["head"]
    wanted = {"lagged": False, "norm.placement": "inside", "read.kind": "sigmoid", "write.kind": "sigmoid"}
    wanted |= dict.fromkeys(("squash.read", "squash.write", "squash.head"), "none")
    found = {key: _at(model, key) for key in wanted}
    wrong = [key for key in wanted if found[key] != wanted[key]]
    if wrong or head["kind"] not in ("gate", "mean"):
        key = wrong[0] if wrong else "head.kind"
        expected = wanted.get(key, "gate or mean")
        raise InputError(f"{path}: record {key} is {_at(model, key)!r}, expected {expected!r} to attach it")
    gated, gate = head["kind"] == "gate", record["norm_gate"]
    if gate is not None:
        gate = {"eps": float(gate["eps"]), "cap": None if gate["cap"] is None else float(gate["cap"])}
    held = HeldSidecar(
        path,
        tensors,
        record,
        str(record["source"]["format"]),
        path.name != CONVERTED and not record.get(FROM_MODEL, False),
        int(model["streams"]),
        int(model["width"]),
        len(record["sites"]),
        _sigmoid(model["read"]),
        _sigmoid(model["write"]),
        _sigmoid(head["map"]) if gated else None,
        float(model["norm"]["eps"]),
        float(model["head_norm_eps"]) if gated else 0.0,
        gate,
        _recipe(record["recipe"]) if record["mixers"] == "token-gates" else None,
    )
    _check_kept(held)
    return held


def _check_kept(held: HeldSidecar) -> None:
    """Biases and scales of the source that a record of fitted tensors keeps. **Raises** ValueError and others."""
    rows, scales = (2 * held.n, 2) if held.recipe is None else (2 * held.n + held.n**2, 3)
    for site in range(held.sites if held.refined else 0):
        shapes = tuple(tuple(kept.shape) for kept in held.source_controller(site))
        if shapes != ((rows,), (scales,)):
            raise ValueError(f"refined source {site}: found shapes {shapes}")


def _recipe(document: Mapping[str, Any]) -> Recipe:
    return Recipe(**{**document, "order": tuple(document["order"])})


def _at(document: Mapping[str, Any], key: str) -> Any:
    value: Any = document
    for part in key.split("."):
        value = value[part]
    return value


def _sigmoid(document: Mapping[str, Any]) -> Sigmoid:
    return Sigmoid(float(document["mult"]), float(document["eps"]))


def _check(held: HeldSidecar) -> None:
    layout = held.layout()
    for name in sorted(layout.keys() ^ held.tensors.keys()):
        what = "is missing" if name in layout else "is unknown"
        raise InputError(f"{held.path}: tensor {name} {what}")
    for name, shape in layout.items():
        tensor = held.tensors[name]
        if tuple(tensor.shape) != shape or tensor.dtype != torch.float64:
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise InputError(f"{held.path}: tensor {name} is {found}, expected torch.float64 {shape}")
        if not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{held.path}: tensor {name} is not finite")


def write_sidecar(path: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """A sidecar of these tensors, in float64, with a record that says it came from a model in memory."""
    made = {name: tensor.detach().to("cpu", torch.float64).contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps({**record, FROM_MODEL: True}, allow_nan=False)
    save_file(made, path, {"format": FORMAT, "format_version": str(FORMAT_VERSION), "record": text})
