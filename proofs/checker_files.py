"""The checker's second half: whether a converted checkpoint, and its source, hold what a certificate speaks of.

Standard library alone, and it imports nothing of the checker: ``checker.py`` runs this file by its path when it is
given ``--file``, and hands over its ``Context`` (ctx): the certificate (``data``, ``root``), the levels it has
recomputed (``levels``), its arithmetic (``matrix``) and its refusals (``refused``, ``relative``).
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from fractions import Fraction
from pathlib import Path
from typing import Any

Context = Any
MAX_HEADER = 16 << 20  # bytes of a safetensors header, a config.json or a certificate
DEFAULTS = {"vocab": 256, "coefficients": "dynamic", "rms_eps": 1e-6, "hc_eps": 1e-6, "post_mult": 2.0, "loops": 1}
REPLACED = {"residual", "gauge", "norm_gate", "entry", "readout", "mixer", "recipe"}  # by a conversion


class Tensors:
    """The tensors of one safetensors file, read by its header: 8-byte length, JSON, byte ranges."""

    def __init__(self, folder: Path, ctx: Context, name: str = "model.safetensors", limit: int = MAX_HEADER) -> None:
        self.path, self.ctx = folder / name, ctx
        with self.path.open("rb") as handle:
            size = int.from_bytes(handle.read(8), "little")
            header = _json(handle.read(min(size, limit + 1)), self.path, ctx, size, limit)
        self.data, self.end = 8 + size, self.path.stat().st_size
        self.metadata = header.get("__metadata__")
        self.entries = {name: e for name, e in header.items() if name != "__metadata__"}

    def raw(self, name: str) -> tuple[str, list[int], bytes]:
        """dtype, shape and bytes."""
        try:
            entry = self.entries[name]
            dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if not 0 <= start <= stop <= self.end - self.data:
                raise ValueError("data_offsets beyond the file")
            with self.path.open("rb") as handle:
                handle.seek(self.data + start)
                return str(dtype), [int(s) for s in shape], handle.read(stop - start)
        except (KeyError, TypeError, ValueError) as error:
            raise self.ctx.refused(f"{self.path.name} {name}", f"unreadable or missing ({error})") from None

    def floats(self, name: str, size: int | None = None) -> list[float]:
        """All entries of a float tensor in order, as many as ``size`` if it is given; finite."""
        dtype, shape, raw = self.raw(name)
        letter, width = {"F64": ("d", 8), "F32": ("f", 4), "F16": ("e", 2), "BF16": ("H", 2)}.get(dtype, ("", 1))
        if not letter or len(raw) != math.prod(shape) * width or (size is not None and len(raw) != size * width):
            place = f"{self.path.name} {name}"
            raise self.ctx.refused(place, f"found {len(raw)} bytes of {dtype}, expected {size} floats")
        values = struct.unpack(f"<{len(raw) // width}{letter}", raw)
        if dtype == "BF16":
            values = struct.unpack(f"<{len(values)}f", b"".join(struct.pack("<I", v << 16) for v in values))
        if not all(map(math.isfinite, values)):
            raise self.ctx.refused(f"{self.path.name} {name}", "not finite")
        return list(values)

    def must_be(self, name: str, values: list[str]) -> None:
        """Bit for bit, in the certificate's spelling."""
        if [x.hex() for x in self.floats(name, len(values))] != values:
            raise self.ctx.refused(name, "differs from the certificate")


def _json(raw: bytes, path: Path, ctx: Context, size: int = 0, limit: int = MAX_HEADER) -> dict[str, Any]:
    try:
        value = json.loads(raw) if max(size, len(raw)) <= limit else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ctx.refused(path.name, "no JSON object, or too large")
    return value


def _config(folder: Path, ctx: Context) -> dict[str, Any]:
    path = folder / "config.json"
    with path.open("rb") as handle:
        model = _json(handle.read(MAX_HEADER + 1), path, ctx).get("model")
    if not isinstance(model, dict):
        raise ctx.refused("config.json", "no model")
    return model


def sha256(path: Path, ctx: Context) -> str:
    """Of a file, in hexadecimal."""
    if not path.is_file():
        raise ctx.refused(str(path), "not found or not a file")
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def own_certificate(ctx: Context, file: Path) -> None:
    """The certificate that lies beside the tensors, if any, must be this one."""
    if (file / "certificate.json").is_file():
        with (file / "certificate.json").open("rb") as handle:
            own = _json(handle.read(MAX_HEADER + 1), file / "certificate.json", ctx).get("digest")
        if own != ctx.data["digest"]:
            raise ctx.refused("certificate.json", "the checkpoint came with another certificate")


def match(ctx: Context, file: Path, source: Path | None) -> None:
    """Whether the converted checkpoint ``file`` (and its ``source``) hold what the certificate speaks of."""
    data = ctx.data
    if "model" not in data:
        raise ctx.refused("model", "missing: the certificate speaks of no file")
    for side, folder in (("converted", file), ("source", source)):
        for name, value in data["model"][side].items() if folder else ():
            if sha256(folder / name, ctx) != value:
                raise ctx.refused(f"{side} {name}", "its SHA-256 is not the certificate's")
    own_certificate(ctx, file)
    tensors, config, sites = Tensors(file, ctx), _config(file, ctx), len(data["sites"])
    expected, controllers = _expected(data, config), _controllers(sites)
    for name in tensors.entries:
        changed = ".gauge." in name or name.endswith(".gates") or name in ("entry", "head.linear")
        level = data["levels"][controllers.get(name, 0)]
        if changed and name not in expected:
            raise ctx.refused(name, "is in the file, but the certificate does not speak of it")
        if name in controllers and not (name in data["model"]["controllers"] and "metric" in level):
            raise ctx.refused(name, "is in the file, but the certificate has no bound or no metric for it")
    for name, values in expected.items():
        tensors.must_be(name, values)
    rule = data.get("norm") and [x and float.fromhex(x) for x in (data["norm"]["eps"], data["norm"]["cap"])]
    gate = config.get("norm_gate") and [config["norm_gate"].get("eps"), config["norm_gate"].get("cap")]
    rules = ("norm-gated",) if rule else ("ihc", "gated") if data["kind"] == "identity" else ("gated",)
    ends = ("free", "linear" if "readout" in data else "gate")
    found = (config.get("residual") in rules, gate, config.get("loops", 1), config.get("gauge"))
    if found != (True, rule, 1, True) or (config.get("entry"), config.get("readout")) != ends:
        raise ctx.refused(
            "config.json", "residual, norm_gate, loops, gauge, entry or readout is not the certificate's"
        )
    if len(config.get("sites", ())) != sites:
        raise ctx.refused("config.json", f"found {len(config.get('sites', ()))} sites, expected {sites}")
    if source:
        _match_source(ctx, tensors, config, Tensors(source, ctx), _config(source, ctx), set(expected))


def _controllers(sites: int) -> dict[str, int]:
    """Name of every weight that reads the whole state -> its level."""
    return {**{f"sites.{l}.coef.weight": l for l in range(sites)}, "head.weight": sites}


def _expected(data: dict[str, Any], config: dict[str, Any]) -> dict[str, list[str]]:
    """Tensor name -> the values, in the certificate's spelling, that the converted file must hold bit for bit."""
    levels, sites, out = data["levels"], data["sites"], {}
    for l, site in enumerate(sites):
        out[f"sites.{l}.gauge.read"] = levels[l]["gauge"]
        out[f"sites.{l}.gauge.write"] = levels[l + 1]["inverse"]
        if config.get("residual") != "ihc":
            out[f"sites.{l}.gates"] = [site["gates"]]
    for l, level in enumerate(levels):
        at = f"sites.{l}" if l < len(sites) else "head"
        if "metric" in level:
            out[f"{at}.gauge.metric"] = level["metric"]
    out["entry"] = data["entry"]["stored"]
    if "readout" in data:
        out["head.linear"] = data["readout"]["stored"]
    else:
        out["head.gauge.read"] = levels[-1]["gauge"]
    return {name: [x for row in rows for x in row] for name, rows in out.items()}


def _match_source(
    ctx: Context, new: Tensors, config: dict[str, Any], old: Tensors, before: dict[str, Any], expected: set[str]
) -> None:
    """Mixers and ends are the source's, controllers within their bounds, everything else untouched."""
    data, stated, sites = ctx.data, ctx.data["model"]["controllers"], len(ctx.data["sites"])
    for key in {*config, *before} - REPLACED:
        a, b = (DEFAULTS.get(key) if c.get(key) is None else c[key] for c in (config, before))
        if a != b:
            raise ctx.refused(f"config.json {key}", "differs between source and converted checkpoint")
    gone = {f"sites.{l}.{name}" for l in range(sites) for name in ("mixer.matrix", "mixer.logits", "gates")}
    if before.get("residual") not in ("mhc", "hc", "mean-gated") or len(gone & set(old.entries)) != sites:
        raise ctx.refused("config.json residual", "the source does not have one mixer at every site")
    for l, site in enumerate(data["sites"]):
        if f"sites.{l}.mixer.matrix" in old.entries:
            old.must_be(f"sites.{l}.mixer.matrix", [x for row in site["mixer"] for x in row])
    constant = {"copy": 1.0, "sum": 1.0, "mean": 1.0 / max(1, len(data["slots"][0]))}
    for name, tensor in (("entry", "entry"), ("readout", "head.linear")):
        values = [x for row in data[name]["source"] for x in row] if name in data else []
        if name in data and tensor in old.entries:
            old.must_be(tensor, values)
        elif set(values) - {constant.get(str(before.get(name)), math.nan).hex()}:
            raise ctx.refused(f"{name}.source", "is not the source's")
    controllers = _controllers(sites)
    for name in sorted((set(old.entries) - gone - {"entry", "head.linear"}) | (set(new.entries) - expected)):
        both = name in old.entries and name in new.entries
        if both and name in controllers:
            _controller(ctx, name, controllers[name], old, new)
        elif not both or old.raw(name) != new.raw(name):
            raise ctx.refused(name, "differs between source and converted checkpoint")
    for name in stated:
        if name not in controllers or name not in new.entries:
            raise ctx.refused(f"model.controllers.{name[:60]}", "no such tensor in the file")


def _controller(ctx: Context, name: str, l: int, old: Tensors, new: Tensors) -> None:
    """``||W' - W (P (x) I)||`` against its bound; column s d + c of W is stream s, feature c."""
    ctx.place, level = f"model.controllers.{name}", ctx.levels[l]
    n, (outputs, width) = level.gauge.cols, old.raw(name)[1]
    size, worst, d = Fraction(0), Fraction(0), width // n
    pairs = [[x.as_integer_ratio() for x in t.floats(name, outputs * n * d)] for t in (old, new)]
    for o in range(outputs):
        rows = ([p[o * width + c : (o + 1) * width : d] for c in range(d)] for p in pairs)
        w, stored = (ctx.matrix(row, n, ctx.place) for row in rows)
        size = max(size, w.total())
        worst = max(worst, (stored - w @ level.gauge).total())
    ctx.root["model"]["controllers"][name].covers(worst)
    error = worst * level.inverse.norm() / (1 - level.rho)
    ctx.relative(name, "controllers", error, size)
