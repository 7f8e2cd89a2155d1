"""The checker's part for sidecars: the converted hyper-connection tensors of another program's checkpoint.

Standard library alone.  ``checker.py`` runs this file by its path for a certificate with a ``sidecar`` part, which
says beside the file's SHA-256

- ``mixers``: A_l is the source's own ("exact"), its static part ("bias"), a measured mean ("mean") or I ("identity");
  ``dynamic`` sites of the source have a mixer that depends on the state;
- ``tensors``: dtype, shape and SHA-256 of the source's hyper-connection tensors, ``config``: its config.json's;
- ``sites``, ``head``, ``recipes``: where reads, writes and mixers stand in them, and what makes A_l of its logits;
- ``controllers``: bounds of ||W' - W (P (x) I)||.

With the source's folder ``checker_source.py`` compares all of these with its bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import runpy
from pathlib import Path
from typing import Any

Context = Any
Field = Any
FILES = {"sidecar.safetensors": "", "streamgauge.safetensors": "streamgauge."}  # and their tensors' prefix
INDEX, MAX_INDEX = "model.safetensors.index.json", 256 << 20
WORDS: dict[str, tuple[str, ...]] = {
    "kind": ("sinkhorn", "permutations", "matrix"), "start": ("exp", "softmax"), "order": ("rows", "columns"),
    "eps_mode": ("add", "clamp", "none"),
}  # fmt: skip
NUMBERS = ("eps", "start_eps", "temperature")
MAX_ITERATIONS = 10_000


@functools.cache
def _beside(name: str) -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).with_name(name)))


# The certificate alone.


def stated(data: Field) -> None:
    """The shape of ``sidecar``: every field there, every place in a tensor that ``tensors`` names."""
    if "entry" not in data:
        raise data.ctx.refused("entry", "missing")
    names = ("file", "sha256", "config", "mixers", "dynamic", "tensors", "sites", "head", "recipes", "controllers")
    part, sites = data["sidecar"].having(names), len(data["sites"].items())
    part["file"].choice(FILES)
    _digest(part["sha256"])
    if part["config"].value is not None:
        _digest(part["config"])
    mixers = part["mixers"].choice(("exact", "bias", "mean", "identity"))
    if part["dynamic"].integer(sites) and mixers == "exact":
        raise part["dynamic"].refused("expected 0: exact mixers do not depend on the state")
    _tensors(part["tensors"])
    recipes = part["recipes"].items()
    for recipe in recipes:
        _recipe(recipe)
    used: set[str] = set()
    for site in part["sites"].items(sites):
        site.having(("read", "write", "mix", "gamma", "gamma_offset", "blend", "recipe"))
        site["recipe"].integer(len(recipes) - 1)
        _views(site, ("read", "write", "mix"), part["tensors"], used)
    if part["head"].value is not None:
        part["head"].having(("read", "gamma", "gamma_offset"))
        _views(part["head"], ("read",), part["tensors"], used)
    for name in sorted(set(part["tensors"].value) - used):
        raise part["tensors"][name].refused("no part of a mixer or of the head")
    known, given = _controllers(sites), part["controllers"]
    for name in given.having((), known).value:
        given[name].number()


def _digest(field: Field) -> None:
    if not isinstance(field.value, str) or not re.fullmatch("[0-9a-f]{64}", field.value):
        raise field.refused("expected a SHA-256 in lower-case hexadecimal")


def _tensors(field: Field) -> None:
    for name in field.having((), field.value if isinstance(field.value, dict) else ()).value:
        tensor = field[name].having(("dtype", "shape", "sha256"))
        tensor["dtype"].choice(("F64", "F32", "F16", "BF16"))
        for size in tensor["shape"].items():
            size.integer(999_999_999)
        _digest(tensor["sha256"])


def _recipe(field: Field) -> None:
    field.having((*WORDS, *NUMBERS, "iterations", "transpose"))
    for name, words in WORDS.items():
        field[name].choice(words)
    for name in NUMBERS:
        if field[name].number() < 0 or (name == "temperature" and field[name].number() == 0):
            raise field[name].refused("expected a number of at least 0, and a temperature above")
    if field["kind"].value != "sinkhorn" and (field["start"].value, field["order"].value) != ("exp", "rows"):
        raise field.refused("expected start exp and order rows where there is no sweep")
    for name in ("eps", "start_eps"):
        if field["eps_mode"].value == "none" and field[name].number():
            raise field[name].refused("expected 0 without an eps")
    if field["iterations"].integer(MAX_ITERATIONS) < 1 or not isinstance(field["transpose"].value, bool):
        raise field.refused("expected iterations of at least 1, and transpose true or false")


def _views(field: Field, parts: tuple[str, ...], tensors: Field, used: set[str]) -> None:
    if field["gamma_offset"].number() and field["gamma"].value is None:
        raise field["gamma_offset"].refused("expected 0 without a gamma")
    views = [field[name] for name in ("gamma", "blend") if name in field and field[name].value is not None]
    for name in parts:
        affine = field[name].having(("base", "weight", "scale"))
        views += [affine[key] for key in affine.value if key == "base" or affine[key].value is not None]
    for view in views:
        view.having(("tensor", "take", "layout"))
        view["layout"].choice(("rows", "columns", "flat"))
        view["tensor"].choice(tensors.value)
        if view["take"].value is not None:
            for index in view["take"].items():
                index.integer(999_999_999)
        used.add(view["tensor"].value)


def conclusion(data: dict[str, Any]) -> str:
    """What the mixers of the statement are, where they are not the source's own."""
    part = data["sidecar"]
    sites, moved = len(data["sites"]), part["dynamic"]
    if part["mixers"] == "identity":
        return "; its mixers are I, not the source's"
    if part["mixers"] == "mean":
        return "; its mixers are measured means of the source's, taken as given"
    told = f"; {moved} of the source's {sites} mixers depend on the state, and their biases stand here"
    return told if moved else ""


def _controllers(sites: int) -> dict[str, int]:
    """Name of every weight that reads the whole state -> its level."""
    return {**{f"sites.{l}.coef.weight": l for l in range(sites)}, "head.weight": sites}


# With the file.


def match(ctx: Context, file: Path, source: Path | None) -> None:
    """Whether the folder ``file`` (and the checkpoint ``source``) hold what the certificate speaks of."""
    files, data, part = _beside("checker_files.py"), ctx.data, ctx.data["sidecar"]
    name, prefix = part["file"], FILES[part["file"]]
    if files["sha256"](file / name, ctx) != part["sha256"]:
        raise ctx.refused(name, "its SHA-256 is not the certificate's")
    files["own_certificate"](ctx, file)
    stored = files["Tensors"](file, ctx, name)
    expected, sites = _expected(data), len(data["sites"])
    controllers, free = _controllers(sites), ("coef.scale", "coef.base", "head.scale", "head.base")
    found = {key.removeprefix(prefix) for key in stored.entries if key.startswith(prefix)}
    if len(found) < len(stored.entries):
        raise ctx.refused(name, f"holds tensors whose names do not start with {prefix}")
    for key in sorted(found - set(expected)):
        if key in controllers:
            if not (key in part["controllers"] and "metric" in data["levels"][controllers[key]]):
                raise ctx.refused(key, "is in the file, but the certificate has no bound or no metric for it")
        elif not key.endswith(free):
            raise ctx.refused(key, "is in the file, but the certificate does not speak of it")
    for key in part["controllers"]:
        if key not in found:
            raise ctx.refused(f"sidecar.controllers.{key}", "no such tensor in the file")
    for key, values in expected.items():
        stored.must_be(prefix + key, values)
    _match_record(ctx, stored)
    if prefix:
        _match_index(ctx, file, set(stored.entries))
    if source:
        held = _beside("checker_source.py")["Source"](ctx, source, files, _index(ctx, source))
        _beside("checker_source.py")["match"](ctx, stored, held, prefix, controllers)


def _expected(data: dict[str, Any]) -> dict[str, list[str]]:
    """Tensor name -> the values, in the certificate's spelling, that the file must hold bit for bit."""
    levels, sites = data["levels"], data["sites"]
    out = {"entry": data["entry"]["stored"], "entry.gauge.write": levels[0]["inverse"]}
    for l, site in enumerate(sites):
        out[f"sites.{l}.gauge.read"] = levels[l]["gauge"]
        out[f"sites.{l}.gauge.write"] = levels[l + 1]["inverse"]
        out[f"sites.{l}.mixer.matrix"] = site["mixer"]
        out[f"sites.{l}.gates"] = [site["gates"]]
    out["head.gauge.read"] = levels[-1]["gauge"]
    for l, level in enumerate(levels):
        if "metric" in level:
            out[f"sites.{l}.gauge.metric" if l < len(sites) else "head.gauge.metric"] = level["metric"]
    if "readout" in data:
        out["head.linear"] = data["readout"]["stored"]
    return {name: [x for row in rows for x in row] for name, rows in out.items()}


def _match_record(ctx: Context, stored: Any) -> None:
    """What the file says of itself agrees with the certificate."""
    data, part = ctx.data, ctx.data["sidecar"]
    try:
        record = json.loads(stored.metadata["record"])
        gate, model, counted = record["norm_gate"], record["model"], record["ledger"]
        moved = sum(not site["static"] for site in record["sites"])
        found = {
            "format": (stored.metadata["format"], stored.metadata["format_version"]),
            "form": record["form"],
            "mixers": record["mixers"],
            "norm_gate": gate and [float(gate["eps"]).hex(), gate["cap"] and float(gate["cap"]).hex()],
            "sites": (len(record["sites"]), moved),
            "streams": model["streams"],
            "head": model["head"]["kind"] if model["head"]["kind"] in ("sum", "mean") else None,
            "ledger": sorted(counted["consumed"]),
            "tensors_sha256": record["source"]["tensors_sha256"],
            "fitted": "refined" in record or bool(record.get("from_model")),
        }
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ctx.refused(f"{stored.path.name} record", f"unreadable ({type(error).__name__})") from None
    rule, n = data.get("norm"), len(data["slots"][0])
    base = data["base"] if rule else data["kind"]
    wanted = {
        "format": ("streamgauge-sidecar", "1"),
        "form": base,
        "mixers": part["mixers"],
        "norm_gate": rule and [rule["eps"], rule["cap"]],
        "sites": (len(data["sites"]), part["dynamic"]),
        "streams": n,
        "head": _readout(data, n),
        "ledger": sorted(part["tensors"]),
        "tensors_sha256": fingerprint(part["tensors"]),
        "fitted": False,
    }
    for key, value in wanted.items():
        if found[key] != value:
            raise ctx.refused(f"{stored.path.name} record {key}", "is not the certificate's")
    if {x for row in data["entry"]["source"] for x in row} != {(1.0).hex()}:
        raise ctx.refused("entry.source", "is not the source's: the embedding copied to every stream")


def _readout(data: dict[str, Any], n: int) -> str | None:
    if "readout" not in data:
        return None
    values = {x for row in data["readout"]["source"] for x in row}
    return {(1.0).hex(): "sum", (1.0 / n).hex(): "mean"}.get(values.pop(), "") if len(values) == 1 else ""


def fingerprint(tensors: dict[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and SHA-256 of the tensors, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(json.dumps([name, entry["dtype"], entry["shape"], entry["sha256"]]).encode() + b"\n")
    return digest.hexdigest()


def _index(ctx: Context, folder: Path) -> dict[str, str] | None:
    path = folder / INDEX
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        raw = handle.read(MAX_INDEX + 1)
    try:
        table: Any = json.loads(raw)["weight_map"] if len(raw) <= MAX_INDEX else None
        names = {str(key): str(value) for key, value in table.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise ctx.refused(INDEX, "no weight_map, or too large") from None
    if any("/" in value or "\\" in value or value in ("", ".", "..") for value in names.values()):
        raise ctx.refused(INDEX, "names a file out of the folder")
    return names


def _match_index(ctx: Context, folder: Path, made: set[str]) -> None:
    """A complete checkpoint: the converted tensors are reachable, what they replace is not."""
    table, part = _index(ctx, folder), ctx.data["sidecar"]
    if table is None:
        raise ctx.refused(INDEX, "not found")
    for name in part["tensors"]:
        if name in table:
            raise ctx.refused(f"{INDEX} {name}", "is still there, expected its converted tensors alone")
    for name in made | {key for key, value in table.items() if value == part["file"]}:
        if table.get(name) != part["file"] or name not in made:
            raise ctx.refused(f"{INDEX} {name}", f"expected it in {part['file']}, and nothing else there")
