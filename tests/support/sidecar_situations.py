"""Sidecars with certificates of every sort of source, what was changed in them, and mutants of their checker."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certificate_cases as cases
import numpy as np
from foreign_folders import DEEPSEEK, bf16, deepseek_arrays, deepseek_folder, f32, write_folder
from foreign_models import STATIC

from streamgauge.proofs import checker
from streamgauge.proofs.sidecar import certify
from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.formats.sidecar import Options, convert_folder
from streamgauge.theory.form import NormGate

START = "consistent, but file or source do not match: "
INDEX = "model.safetensors.index.json"
SMALL = {**DEEPSEEK, "num_hidden_layers": 1}
MIXED = Calibration(
    tuple(0.7 * np.eye(4) + 0.3 * np.roll(np.eye(4), l + 1, axis=0) for l in range(2)), (np.zeros((16, 16)),) * 2, 99
)
"""Measured means of two sites, doubly stochastic."""


def deepseek(place: Path, *, static: bool = False, shards: bool = True) -> Path:
    arrays = deepseek_arrays(static=static, config=SMALL)
    return deepseek_folder(place, arrays, config=SMALL, shards=shards)


def glm(place: Path) -> Path:
    """bfloat16 weights, a text_config, a mean head."""
    arrays = {k: v for k, v in deepseek_arrays(static=True, config=SMALL).items() if "head" not in k}
    raw = {f"model.language_model.{k}": bf16(v) if k.endswith("_fn") else f32(v) for k, v in arrays.items()}
    return write_folder(
        place, raw, {"model_type": "glm5_next", "text_config": {**SMALL, "model_type": "glm5_next_text"}}
    )


def lagged(place: Path) -> Path:
    arrays = {k: v for k, v in deepseek_arrays(config=SMALL).items() if "head" not in k}
    inner = {**SMALL, "model_type": "deepseek_v41_text", "rms_norm_eps": 1e-20}
    return write_folder(
        place, {k: f32(v) for k, v in arrays.items()}, {"model_type": "deepseek_v41", "text_config": inner}
    )


def by_hand(place: Path) -> Path:
    """A config that says nothing of an eps: it is given."""
    arrays = deepseek_arrays(config=SMALL)
    return deepseek_folder(place, arrays, config={k: v for k, v in SMALL.items() if k != "hc_eps"})


def unfinished(place: Path) -> Path:
    """One sweep and a large eps: how it begins still shows."""
    arrays = deepseek_arrays(config=SMALL)
    return deepseek_folder(place, arrays, config={**SMALL, "hc_sinkhorn_iters": 1, "hc_eps": 1e-3})


KINDS: dict[str, tuple[Callable[[Path], Path], Options, dict[str, Any]]] = {
    "bias": (deepseek, Options("bias"), {}),
    "exact": (lambda place: deepseek(place, static=True), Options("exact"), {}),
    "full": (deepseek, Options("bias"), {"full": True}),
    "norm": (deepseek, Options("bias"), {"norm": NormGate(1e-6, 1.5)}),
    "binary": (deepseek, Options("bias"), {"form": "binary"}),
    "identity form": (deepseek, Options("bias"), {"form": "identity"}),
    "mean": (deepseek, Options("mean"), {"measured": MIXED}),
    "mixers I": (deepseek, Options("identity"), {}),
    "glm": (glm, Options("exact"), {}),
    "lagged": (lagged, Options("bias"), {}),
    "one sweep": (unfinished, Options("bias"), {}),
    "by hand": (by_hand, Options("bias", None, {"hc_eps": "1e-6"}), {}),
}


def make(place: Path, name: str) -> tuple[Path, Path, dict[str, Any]]:
    """(converted folder, source folder, certificate data)."""
    if name in KINDS:
        source, options, more = KINDS[name]
        given = source(place / "source")
    else:
        foreign = STATIC[name]()
        given, options, more = foreign.folder(place / "source"), Options("exact", foreign.format, foreign.given), {}
    convert_folder(given, place / "out", options, finish=certify, **more)
    return place / "out", given, json.loads((place / "out" / "certificate.json").read_text())


class Bench:
    """A copy of one pair whose files may be changed; its own certificate is taken away, or it alone would tell."""

    def __init__(self, made: tuple[Path, Path, dict[str, Any]], place: Path) -> None:
        self.new, self.old = place / "out", place / "source"
        shutil.copytree(made[0], self.new)
        shutil.copytree(made[1], self.old)
        (self.new / "certificate.json").unlink()
        self.data = copy.deepcopy(made[2])
        self.file = self.new / self.data["sidecar"]["file"]

    def floats(self, path: Path, name: str, change: Callable[[Any], Any]) -> None:
        """Change one tensor's entries in place."""
        raw = bytearray(path.read_bytes())
        size = struct.unpack("<Q", raw[:8])[0]
        spec = json.loads(raw[8 : 8 + size])[name]
        start, stop = (8 + size + at for at in spec["data_offsets"])
        dtype = {"F64": "<f8", "F32": "<f4"}[spec["dtype"]]
        array = np.frombuffer(bytes(raw[start:stop]), dtype).reshape(spec["shape"]).copy()
        raw[start:stop] = np.ascontiguousarray(change(array), dtype).tobytes()
        path.write_bytes(bytes(raw))

    def stored(self, name: str, change: Callable[[Any], Any]) -> None:
        self.floats(self.file, ("streamgauge." if self.file.name.startswith("stream") else "") + name, change)

    def source(self, name: str, change: Callable[[Any], Any]) -> None:
        table = json.loads((self.old / INDEX).read_text())["weight_map"]
        self.floats(self.old / table[name], name, change)

    def header(self, path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        """Change the header's JSON, its length kept."""
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        document = json.loads(raw[8 : 8 + size])
        change(document)
        text = json.dumps(document).encode()
        path.write_bytes(raw[:8] + text.ljust(size) + raw[8 + size :])

    def record(self, change: Callable[[dict[str, Any]], Any]) -> None:
        def edit(document: dict[str, Any]) -> None:
            record = json.loads(document.get("__metadata__", {}).get("record", "null"))
            if record is None:
                return
            change(record)
            document["__metadata__"]["record"] = json.dumps(record)

        self.header(self.file, edit)

    def rehash(self) -> None:
        """What a forger would do: every hash follows the files, the record's fingerprint too."""
        part = self.data["sidecar"]
        table = json.loads((self.old / INDEX).read_text())["weight_map"] if (self.old / INDEX).exists() else {}
        single = next(iter(self.old.glob("*.safetensors")))
        for name, entry in part["tensors"].items():
            raw = (self.old / table[name] if table else single).read_bytes()
            size = struct.unpack("<Q", raw[:8])[0]
            spec = json.loads(raw[8 : 8 + size])[name]
            start, stop = (8 + size + at for at in spec["data_offsets"])
            entry |= {"dtype": spec["dtype"], "shape": spec["shape"]}
            entry["sha256"] = hashlib.sha256(raw[start:stop]).hexdigest()
        found = checker.beside("checker_sidecar.py")["fingerprint"](part["tensors"])
        self.record(lambda record: record["source"].update(tensors_sha256=found))
        config = self.old / "config.json"
        part["config"] = hashlib.sha256(config.read_bytes()).hexdigest() if config.exists() else None
        part["sha256"] = hashlib.sha256(self.file.read_bytes()).hexdigest()

    def reason(self, *, file: bool = True, source: bool = True) -> str:
        where = {"file": self.new} if file else {}
        return checker.check_text(
            cases.sealed_text(self.data), **where, **({"source": self.old} if source else {})
        ).reason


def nudged(at: int) -> Callable[[Any], Any]:
    """One entry by one unit in the last place."""

    def change(array: Any) -> Any:
        flat = array.reshape(-1)
        flat[at] = np.nextafter(flat[at], flat.dtype.type(9))
        return array

    return change


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda array: array * factor


def transposed(array: Any) -> Any:
    return array.T


# Each: kind, change, what must be said once the hashes follow.
FILES: dict[str, tuple[str, Callable[[Bench], Any], str]] = {
    "gauge": ("bias", lambda b: b.stored("sites.1.gauge.read", nudged(5)), "sites.1.gauge.read: differs"),
    "gauge transposed": ("bias", lambda b: b.stored("sites.1.gauge.read", transposed), "sites.1.gauge.read: differs"),
    "write map": ("bias", lambda b: b.stored("sites.1.gauge.write", nudged(15)), "sites.1.gauge.write: differs"),
    "entry's map": ("bias", lambda b: b.stored("entry.gauge.write", nudged(0)), "entry.gauge.write: differs"),
    "metric": ("bias", lambda b: b.stored("sites.1.gauge.metric", nudged(1)), "sites.1.gauge.metric: differs"),
    "head metric": ("bias", lambda b: b.stored("head.gauge.metric", nudged(1)), "head.gauge.metric: differs"),
    "head gauge": ("bias", lambda b: b.stored("head.gauge.read", nudged(1)), "head.gauge.read: differs"),
    "gates": ("bias", lambda b: b.stored("sites.0.gates", nudged(2)), "sites.0.gates: differs"),
    "entry": ("bias", lambda b: b.stored("entry", nudged(3)), "entry: differs"),
    "readout": ("glm", lambda b: b.stored("head.linear", nudged(3)), "head.linear: differs"),
    "mixer": ("bias", lambda b: b.stored("sites.1.mixer.matrix", nudged(3)), "sites.1.mixer.matrix: differs"),
    "base": ("bias", lambda b: b.stored("sites.0.coef.base", nudged(7)), "sites.0.coef.base: differs"),
    "scale": ("bias", lambda b: b.stored("sites.0.coef.scale", nudged(1)), "sites.0.coef.scale: differs"),
    "head base": ("bias", lambda b: b.stored("head.base", nudged(1)), "head.base: differs"),
    "head scale": ("bias", lambda b: b.stored("head.scale", nudged(0)), "head.scale: differs"),
    "weight": ("bias", lambda b: b.stored("sites.1.coef.weight", scaled(1 + 1e-13)), "sites.1.coef.weight: states"),
    "last output": (
        "bias",
        lambda b: b.stored("sites.1.coef.weight", lambda a: np.concatenate([a[:-1], a[-1:] * (1 + 1e-13)])),
        "sites.1.coef.weight: states",
    ),
    "last stream": (
        "bias",
        lambda b: b.stored("sites.1.coef.weight", lambda a: a * (1 + 1e-13 * (np.arange(24) > 17))),
        "sites.1.coef.weight: states",
    ),
    "head weight": ("bias", lambda b: b.stored("head.weight", scaled(1 + 1e-13)), "head.weight: states"),
    "in full": ("full", lambda b: b.stored("sites.1.gauge.read", nudged(5)), "gauge.read: differs"),
    "record of mixers": ("exact", lambda b: b.record(lambda r: r.update(mixers="bias")), "record mixers: is not"),
    "record of the form": ("exact", lambda b: b.record(lambda r: r.update(form="binary")), "record form: is not"),
    "record of the gate": (
        "norm",
        lambda b: b.record(lambda r: r["norm_gate"].update(cap=2.5)),
        "record norm_gate: is not",
    ),
    "record of no gate": ("norm", lambda b: b.record(lambda r: r.update(norm_gate=None)), "record norm_gate: is not"),
    "record of a site": (
        "bias",
        lambda b: b.record(lambda r: r["sites"][0].update(static=True)),
        "record sites: is not",
    ),
    "record of the ledger": (
        "bias",
        lambda b: b.record(lambda r: r["ledger"]["consumed"].pop()),
        "record ledger: is",
    ),
    "record of a head": (
        "glm",
        lambda b: b.record(lambda r: r["model"]["head"].update(kind="sum")),
        "record head: is",
    ),
    "record of n": ("bias", lambda b: b.record(lambda r: r["model"].update(streams=3)), "record streams: is not"),
    "record of a fit": ("bias", lambda b: b.record(lambda r: r.update(refined={"steps": 3})), "fitted: is not"),
    "record of a model": ("bias", lambda b: b.record(lambda r: r.update(from_model=True)), "fitted: is not"),
    "no record": ("bias", lambda b: b.header(b.file, lambda h: h.pop("__metadata__")), "record: unreadable"),
    "format": (
        "bias",
        lambda b: b.header(b.file, lambda h: h["__metadata__"].update(format="x")),
        "record format: is",
    ),
    "another tensor": (
        "bias",
        lambda b: b.header(b.file, lambda h: h.update({"sites.0.gain": h.pop("sites.0.coef.base")})),
        "sites.0.gain: is in the file",
    ),
    "stale key in the index": (
        "full",
        lambda b: index(b.new, lambda t: t.update(hc_head_fn="model-00004-of-00004.safetensors")),
        "hc_head_fn: is still there",
    ),
    "converted key not in the index": (
        "full",
        lambda b: index(b.new, lambda t: t.pop("streamgauge.entry")),
        "streamgauge.entry: expected it in streamgauge.safetensors",
    ),
    "ghost in the index": (
        "full",
        lambda b: index(b.new, lambda t: t.update(ghost="streamgauge.safetensors")),
        "ghost: expected it in streamgauge.safetensors",
    ),
}
SOURCES: dict[str, tuple[str, Callable[[Bench], Any], str]] = {
    "logits": (
        "bias",
        lambda b: b.source("layers.0.hc_ffn_base", lambda a: bumped(a, 9, 1e-5)),
        "sites[1].mixer: differs",
    ),
    "read base": ("bias", lambda b: b.source("layers.0.hc_ffn_base", nudged(0)), "sites.1.coef.base: differs"),
    "write base": ("bias", lambda b: b.source("layers.0.hc_ffn_base", nudged(7)), "sites.1.coef.base: differs"),
    "read scale": ("bias", lambda b: b.source("layers.0.hc_ffn_scale", nudged(0)), "sites.1.coef.scale: differs"),
    "write scale": ("bias", lambda b: b.source("layers.0.hc_ffn_scale", nudged(1)), "sites.1.coef.scale: differs"),
    "mix scale": (
        "exact",
        lambda b: b.source("layers.0.hc_ffn_scale", lambda a: bumped(a, 2, 1e-9)),
        "sidecar.dynamic: 1 of the source's mixers",
    ),
    "weight of a write": ("bias", lambda b: b.source("layers.0.hc_ffn_fn", nudged(7 * 24)), "coef.weight: states"),
    "weight of a read": ("bias", lambda b: b.source("layers.0.hc_ffn_fn", nudged(23)), "coef.weight: states"),
    "weight transposed": ("bias", lambda b: b.source("layers.0.hc_ffn_fn", transposed), "coef.weight: states"),
    "head weight": ("bias", lambda b: b.source("hc_head_fn", nudged(95)), "head.weight: states"),
    "head base": ("bias", lambda b: b.source("hc_head_base", nudged(3)), "head.base: differs"),
    "head scale": ("bias", lambda b: b.source("hc_head_scale", nudged(0)), "head.scale: differs"),
    "NaN": ("bias", lambda b: b.source("hc_head_base", scaled(np.nan)), "hc_head_base: not finite"),
}


def bumped(array: Any, at: int, by: float) -> Any:
    array.reshape(-1)[at] += by
    return array


def index(folder: Path, change: Callable[[dict[str, str]], Any]) -> None:
    document = json.loads((folder / INDEX).read_text())
    change(document["weight_map"])
    (folder / INDEX).write_text(json.dumps(document))


def exchanged(key: str) -> Callable[[dict[str, Any]], None]:
    """Two sites' parts exchanged."""

    def change(part: dict[str, Any]) -> None:
        first, second = part["sites"][:2]
        first[key], second[key] = second[key], first[key]

    return change


def headless(part: dict[str, Any]) -> None:
    part["head"] = None
    for name in [name for name in part["tensors"] if "head" in name]:
        del part["tensors"][name]


# The certificate changed and its digest recomputed: kind, change, what must be said.
PLACES: dict[str, tuple[str, Callable[[dict[str, Any]], Any], str]] = {
    "read rows": ("bias", lambda s: s["sites"][1]["read"]["weight"].update(take=[1, 0, 2, 3]), "coef.weight: states"),
    "another site's": ("bias", lambda s: s["sites"].reverse(), "sites[0].mixer: differs"),
    "rows for columns": ("bias", lambda s: s["sites"][1]["read"]["weight"].update(layout="columns"), "states"),
    "bases": ("bias", lambda s: s["sites"][1]["write"]["base"].update(take=[4, 5, 6, 8]), "coef.base: differs"),
    "scales": ("bias", lambda s: s["sites"][1]["write"]["scale"].update(take=[0]), "coef.scale: differs"),
    "two scales": ("bias", lambda s: s["sites"][1]["write"]["scale"].update(take=[0, 1]), "expected one number"),
    "beyond": ("bias", lambda s: s["sites"][1]["read"]["weight"].update(take=[0, 1, 2, 99]), "too small for the"),
    "few logits": ("bias", lambda s: s["sites"][1]["mix"]["base"].update(take=[8, 9]), "2 logits, expected 16"),
    "transpose": ("bias", lambda s: s["recipes"][0].update(transpose=False), "sites[0].mixer: differs"),
    "order": ("bias", lambda s: s["recipes"][0].update(order="columns"), "sites[0].mixer: differs"),
    "start": ("bias", lambda s: s["recipes"][0].update(start="exp"), "sites[0].mixer: differs"),
    "eps": ("bias", lambda s: s["recipes"][0].update(eps=(1e-5).hex()), "sites[0].mixer: differs"),
    "start eps": ("bias", lambda s: s["recipes"][0].update(start_eps=(1e-5).hex()), "sites[0].mixer: differs"),
    "clamp": ("bias", lambda s: s["recipes"][0].update(eps_mode="clamp"), "sites[0].mixer: differs"),
    "iterations": ("bias", lambda s: s["recipes"][0].update(iterations=19), "sites[0].mixer: differs"),
    "temperature": ("bias", lambda s: s["recipes"][0].update(temperature=(2.0).hex()), "sites[0].mixer: differs"),
    "no sweep": ("bias", lambda s: s["recipes"][0].update(kind="matrix"), "expected start exp and order rows"),
    "gamma": ("mhc", lambda s: s["sites"][1].update(gamma_offset=(0.0).hex()), "coef.weight: states"),
    "another gamma": ("mhc", lambda s: s["sites"][1].update(gamma=s["sites"][0]["gamma"]), "gamma: no part of a"),
    "gammas exchanged": ("mhc", exchanged("gamma"), "coef.weight: states"),
    "offset alone": ("bias", lambda s: s["sites"][1].update(gamma_offset=(1.0).hex()), "expected 0 without a gamma"),
    "mixers": ("bias", lambda s: s.update(mixers="identity"), "record mixers: is not"),
    "exact, yet moving": ("bias", lambda s: s.update(mixers="exact"), "sidecar.dynamic: expected 0"),
    "one fewer moves": ("bias", lambda s: s.update(dynamic=1), "record sites: is not"),
    "smaller bound": (
        "bias",
        lambda s: s["controllers"].update({"sites.1.coef.weight": (1e-18).hex()}),
        "controllers.sites.1.coef.weight: states",
    ),
    "no bound": ("bias", lambda s: s["controllers"].pop("sites.1.coef.weight"), "has no bound or no metric for it"),
    "no bound of the head": ("bias", lambda s: s["controllers"].pop("head.weight"), "has no bound or no metric"),
    "no such controller": ("glm", lambda s: s["controllers"].update({"head.weight": (1.0).hex()}), "no such tensor"),
    "no head": ("bias", headless, "record ledger: is not"),
    "a tensor more": ("bias", lambda s: s["tensors"].update(x=s["tensors"]["hc_head_fn"]), "tensors.x: no part of a"),
    "shape": ("bias", lambda s: s["tensors"]["hc_head_fn"].update(shape=[24, 4]), "tensors_sha256: is not"),
    "hash of a tensor": ("bias", lambda s: s["tensors"]["hc_head_fn"].update(sha256="0" * 64), "_sha256: is not"),
    "hash of the file": ("bias", lambda s: s.update(sha256="0" * 64), "its SHA-256 is not the certificate's"),
    "hash of the config": ("bias", lambda s: s.update(config="0" * 64), "source config.json: its SHA-256 is not"),
    "no config": ("bias", lambda s: s.update(config=None), "source config.json: its SHA-256 is not"),
    "the other file": ("bias", lambda s: s.update(file="streamgauge.safetensors"), "not found or not a file"),
}  # fmt: skip
