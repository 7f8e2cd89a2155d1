"""Any hyper-connection model, described by hand: ``--map map.toml`` (the same record in Python).

    format = "my-model"
    streams = 4
    width = 64
    branches = ["attn", "mlp"]            # sites of a layer, in depth order

    [norm]                                # default: over all streams, x / sqrt(mean x^2 + eps)
    eps = 1e-6

    [read]                                # likewise [write] and [mix]
    weight = "layers.{layer}.{branch}.fn" # optional: without it the coefficient is static
    scale = "layers.{layer}.{branch}.scale"
    base = "layers.{layer}.{branch}.base"
    rows = [0, 4]                         # these rows of weight and base (first, past the last)
    scale_at = 0                          # this entry of scale
    map = "sigmoid"                       # read and write: sigmoid | softmax | linear, times mult, plus eps
    eps = 1e-6

    [mix]
    kind = "sinkhorn"                     # sinkhorn | permutations | matrix
    recipe = "deepseek-v4"                # a named recipe; iterations, eps, temperature may be overridden
    orientation = "transposed"            # transposed: A = S^T; as-stored: A = S
    tight = "rows"                        # optional: which sums of A are 1 (rows: copied streams stay copies)

    [head]
    kind = "gate"                         # gate (with weight, scale, base, map, eps) | sum | mean | none | streams

``{layer}`` counts from 0 as far as there are tensors.  With ``tight``
the orientation is checked on the mixers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from streamgauge.simulate.formats.evaluate import MAX_PERMUTED
from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import Recipe, recipe_named

tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # one parser, two names

MAX_BYTES = 1 << 20
_AFFINE = {"weight", "scale", "base", "rows", "scale_at", "squash", "layout"}
_MAPPED = _AFFINE | {"map", "mult", "eps"}
_FIELDS: dict[str, set[str]] = {
    "": {"format", "streams", "width", "branches", "norm", "read", "write", "mix", "head"},
    "norm": {"scope", "eps", "placement"},
    "read": _MAPPED,
    "write": _MAPPED,
    "mix": _AFFINE | {"kind", "recipe", "iterations", "sinkhorn_eps", "temperature", "orientation", "tight"},
    "head": {"kind"} | _MAPPED,
}


def read_map(path: Path) -> dict[str, Any]:
    """A map file as a dictionary, its fields' names checked."""
    if not path.is_file():
        raise InputError(f"{path}: not found, expected a map file (TOML)")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes, expected at most {MAX_BYTES}")
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not TOML ({str(error).splitlines()[0]})") from None
    _Map(document, str(path))
    return document


def mapped_record(document: Mapping[str, Any], shards: Shards, where: str = "map") -> ModelRecord:
    """The record that a map describes. **Raises** :class:`InputError` naming the field or the tensor."""
    described = _Map(document, where)
    n, d = described.integer("streams"), described.integer("width")
    branches = document.get("branches", ["mixer"])
    if not isinstance(branches, list) or not branches or not all(isinstance(name, str) for name in branches):
        raise InputError(f"{where}: branches is {branches!r}, expected a list of names")
    norm, mixing = described.norm(), described.mixing(n)
    layers = described.layers(shards, branches)
    mixers: list[Mixer] = []
    for layer in range(layers):
        for branch in branches:
            place = {"layer": str(layer), "branch": branch}
            read, write, mix = (described.affine(part, place) for part in ("read", "write", "mix"))
            name = f"layers.{layer}.{branch}"
            maps = described.map("read"), described.map("write")
            mixers.append(Mixer(len(mixers), name, branch, read, write, mix, norm, mixing, *maps))
    name = str(document.get("format", "mapped"))
    return ModelRecord(name, "map", n, d, tuple(mixers), described.head(norm))


class _Map:
    def __init__(self, document: Mapping[str, Any], where: str) -> None:
        self.document, self.where = document, where
        for section, known in _FIELDS.items():
            table = document if not section else document.get(section, {})
            if not isinstance(table, Mapping):
                raise InputError(f"{where}: {section} is {table!r}, expected a table")
            for key in table:
                if key not in known:
                    place = f"{section}.{key}" if section else key
                    raise InputError(f"{where}: unknown field {place}, expected one of {', '.join(sorted(known))}")

    def section(self, name: str) -> Mapping[str, Any]:
        found = self.document.get(name, {})
        return found if isinstance(found, Mapping) else {}

    def integer(self, name: str) -> int:
        value = self.document.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 2**24:
            raise InputError(f"{self.where}: {name} is {value!r}, expected a positive integer")
        return value

    def number(self, section: str, name: str, default: float) -> float:
        value = self.section(section).get(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1e6:
            raise InputError(f"{self.where}: {section}.{name} is {value!r}, expected a number of at least 0")
        return float(value)

    def word(self, section: str, name: str, allowed: tuple[str, ...], default: str | None = None) -> Any:
        value = self.section(section).get(name, default)
        if value not in allowed:
            raise InputError(f"{self.where}: {section}.{name} is {value!r}, expected one of {', '.join(allowed)}")
        return value

    def norm(self) -> Norm:
        scope = self.word("norm", "scope", ("flat", "stream"), "flat")
        placement = self.word("norm", "placement", ("inside", "outside", "clamp"), "inside")
        if "eps" not in self.section("norm"):
            raise InputError(f"{self.where}: norm.eps is missing, expected a number")
        return Norm(scope, self.number("norm", "eps", 0.0), placement)

    def map(self, section: str) -> Map:
        kind = self.word(section, "map", ("sigmoid", "softmax", "linear"))
        return Map(kind, self.number(section, "mult", 1.0), self.number(section, "eps", 0.0))

    def mixing(self, n: int) -> Mixing:
        kind = self.word("mix", "kind", ("sinkhorn", "permutations", "matrix"))
        transposed = self.word("mix", "orientation", ("transposed", "as-stored")) == "transposed"
        if kind == "matrix":
            return Mixing("matrix", transpose=transposed)
        if kind == "permutations":
            if n > MAX_PERMUTED:
                raise InputError(f"{self.where}: streams is {n}, expected at most {MAX_PERMUTED} with permutations")
            return Mixing("permutations", transpose=transposed, tight="both")
        recipe = replace(self.recipe(), transpose=transposed)
        last = recipe.order[1]
        turned: dict[str, Literal["rows", "columns"]] = {"rows": "columns", "columns": "rows"}
        implied = turned[last] if transposed else last
        return Mixing("sinkhorn", recipe, tight=self.word("mix", "tight", ("rows", "columns", "both"), implied))

    def recipe(self) -> Recipe:
        table = self.section("mix")
        made = recipe_named(str(table.get("recipe")))
        if "iterations" in table:
            made = replace(made, iterations=table["iterations"])
        if "temperature" in table:
            made = replace(made, temperature=self.number("mix", "temperature", 1.0))
        if "sinkhorn_eps" in table:
            eps = self.number("mix", "sinkhorn_eps", 0.0)
            made = replace(made, eps=eps, start_eps=eps if made.start_eps else 0.0)
        return made

    def affine(self, section: str, place: Mapping[str, str]) -> Affine:
        table = self.section(section)
        if "base" not in table:
            raise InputError(f"{self.where}: {section}.base is missing, expected a tensor name")
        rows = table.get("rows")
        take = None
        if rows is not None:
            if not isinstance(rows, list) or len(rows) != 2 or not all(isinstance(i, int) for i in rows):
                raise InputError(f"{self.where}: {section}.rows is {rows!r}, expected [first, past the last]")
            take = tuple(range(*rows))
        layout = self.word(section, "layout", ("rows", "columns"), "rows")
        weight = None if "weight" not in table else View(_named(table["weight"], place), take, layout)
        at = table.get("scale_at", 0)
        scale = None if "scale" not in table else View(_named(table["scale"], place), (at,), "flat")
        squash = self.word(section, "squash", ("none", "tanh"), "none")
        return Affine(View(_named(table["base"], place), take, "flat"), weight, scale, squash)

    def head(self, norm: Norm) -> Head:
        kind = self.word("head", "kind", ("gate", "sum", "mean", "none", "streams"))
        if kind != "gate":
            return Head(kind)
        return Head("gate", self.affine("head", {}), norm, self.map("head"))

    def layers(self, shards: Shards, branches: list[str]) -> int:
        pattern = str(self.section("mix").get("base", ""))
        if "{layer}" not in pattern:
            return 1
        words = re.split(r"(\{layer\}|\{branch\})", pattern)
        parts = {"{layer}": r"(\d+)", "{branch}": "(?:" + "|".join(map(re.escape, branches)) + ")"}
        found = re.compile("".join(parts.get(word, re.escape(word)) for word in words))
        numbers = {int(match[1]) for match in map(found.fullmatch, shards.entries) if match}
        if not numbers or numbers != set(range(len(numbers))):
            raise InputError(f"{shards.folder}: layers {sorted(numbers)} match {pattern}, expected 0, 1, 2, ..")
        return len(numbers)


def _named(pattern: Any, place: Mapping[str, str]) -> str:
    out = str(pattern)
    for word, value in place.items():
        out = out.replace("{" + word + "}", value)
    return out
