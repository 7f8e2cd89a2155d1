"""Certificates that must be refused, each with one fault, its digest recomputed, and the place that must be named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import certificate_cases as cases
import certificate_truth as truth
import numpy as np

Edit = Callable[[dict[str, Any]], None]


def put(path: str, value: Any) -> Edit:
    """Set the value at a path like "sites.1.gates.0"."""

    def edit(data: dict[str, Any]) -> None:
        *way, last = (int(p) if p.isdigit() else p for p in path.split("."))
        for step in way:
            data = data[step]
        data[last] = value

    return edit


def drop(path: str) -> Edit:
    """Remove a field or an item."""

    def edit(data: Any) -> None:
        *way, last = (int(p) if p.isdigit() else p for p in path.split("."))
        for step in way:
            data = data[step]
        del data[last]

    return edit


def bump(path: str, factor: float | None = None) -> Edit:
    """Add 1 to the rational at a path, or multiply the float there."""

    def edit(data: Any) -> None:
        *way, last = (int(p) if p.isdigit() else p for p in path.split("."))
        for step in way:
            data = data[step]
        old = data[last]
        data[last] = str(Fraction(old) + 1) if factor is None else (float.fromhex(old) * factor).hex()

    return edit


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(data: dict[str, Any]) -> None:
        for step in edits:
            step(data)

    return edit


def scaled(path: str, factor: float) -> Edit:
    """Multiply a whole float matrix."""

    def edit(data: Any) -> None:
        *way, last = (int(p) if p.isdigit() else p for p in path.split("."))
        for step in way:
            data = data[step]
        data[last] = [[(float.fromhex(x) * factor).hex() for x in row] for row in data[last]]

    return edit


def loose(level: str = "1.0") -> Edit:
    """State every bound generously, so that only limits of size can refuse."""

    def edit(data: dict[str, Any]) -> None:
        for part in data["levels"]:
            if "metric_bound" in part:
                part["metric_bound"] = float(level).hex()
        for part in data["sites"]:
            part["residual"] = part["distance"] = float(level).hex()
            for name in ("read", "write"):
                if name in part:
                    part[name]["distance"] = float(level).hex()
        for name in ("entry", "readout"):
            if name in data:
                data[name]["distance"] = float(level).hex()

    return edit


def transpose(path: str) -> Edit:
    """Transpose a matrix."""

    def edit(data: Any) -> None:
        *way, last = (int(p) if p.isdigit() else p for p in path.split("."))
        for step in way:
            data = data[step]
        data[last] = [list(row) for row in zip(*data[last])]

    return edit


def rescaled_norm(data: dict[str, Any]) -> None:
    """Factors and mixers all 1 + 1e-6 too large: the equation stays, the rule of c does not."""
    for site in data["sites"]:
        for name in ("mixer",):
            site[name] = [[(float.fromhex(x) * (1 + 2**-20)).hex() for x in row] for row in site[name]]
        site["factor"] = (float.fromhex(site["factor"]) * (1 + 2**-20)).hex()
    loose()(data)


def half_gates(data: dict[str, Any]) -> None:
    """Gates and mixers halved, exactly: true equations, but no identity or binary form."""
    for site in data["sites"]:
        site["mixer"] = [[str(Fraction(x) / 2) for x in row] for row in site["mixer"]]
        site["gates"] = [str(Fraction(x) / 2) for x in site["gates"]]


def scale_chain(data: dict[str, Any]) -> None:
    """s_0^2 = 2 and every later one doubled: the recursion holds, the start does not."""
    for part in data["levels"]:
        part["scale_squared"] = str(Fraction(part["scale_squared"]) * 2)


def squares_off(data: dict[str, Any]) -> None:
    """c_0^2 = 5 and the scales after it to match: the recursion holds, the rule does not."""
    kept = Fraction(data["sites"][0]["factor_squared"])
    data["sites"][0]["factor_squared"] = "5"
    for part in data["levels"][1:]:
        part["scale_squared"] = str(Fraction(part["scale_squared"]) * kept / 5)


def negative_inverse(level: int) -> Edit:
    """Q = -P^{-1}: rho is 2, and 1 - rho below zero would let every bound pass."""
    return both(scaled(f"levels.{level}.inverse", -1.0), put(f"levels.{level}.rho", (2.5).hex()), loose())


def lower_metric(data: dict[str, Any]) -> None:
    """An orthogonal mixture of T: the same T^T T, but no triangle."""
    t = np.array([[float.fromhex(x) for x in row] for row in data["levels"][1]["metric"]])
    t = np.roll(t, 1, axis=0)
    data["levels"][1]["metric"] = [[float(x).hex() for x in row] for row in t]


def rough(factor: float) -> Edit:
    """A poor inverse at level 1 (rho above 0.3), its bounds stated as ``factor`` times what they are."""

    def edit(data: dict[str, Any]) -> None:
        scaled("levels.1.inverse", 1.375)(data)
        put("levels.1.rho", (0.75).hex())(data)
        site, n = data["sites"][1], len(data["slots"][0])
        p, q, after = (
            truth.rows_of(data["levels"][l][key], True, n, n)
            for l, key in ((1, "gauge"), (1, "inverse"), (2, "gauge"))
        )
        rho = truth.size(truth.minus(truth.eye(n), truth.times(p, q, n)))
        gates = [Fraction(float.fromhex(g)) for g in site["gates"]]
        carried = [[x * g for x, g in zip(row, gates)] for row in after]
        mixer = truth.rows_of(site["mixer"], True, n, n)
        error = truth.minus(carried, truth.times(mixer, p, n))
        read, stored = (truth.rows_of(site["read"][key], True, 1, n) for key in ("source", "stored"))
        off = truth.minus(stored, truth.times(read, p, n))
        for part, wrong in ((site, error), (site["read"], off)):
            part["distance"] = float(truth.size(truth.times(wrong, q, n)) / (1 - rho) * Fraction(factor)).hex()

    return edit


def gap_forgotten(data: dict[str, Any]) -> None:
    """c_0 eight units in the last place off, the distance stated as if it were right."""
    site, n, up = data["sites"][0], len(data["slots"][0]), 1 + 2.0**-49
    site["factor"] = (float.fromhex(site["factor"]) * up).hex()
    scaled("mixer", up)(site)
    p, q, after = (
        truth.rows_of(data["levels"][l][key], True, n, n) for l, key in ((0, "gauge"), (0, "inverse"), (1, "gauge"))
    )
    c = Fraction(float.fromhex(site["factor"]))
    gates = [Fraction(float.fromhex(g)) for g in site["gates"]]
    carried = [[c * x * g for x, g in zip(row, gates)] for row in after]
    error = truth.minus(carried, truth.times(truth.rows_of(site["mixer"], True, n, n), p, n))
    site["residual"] = (1.0).hex()
    site["distance"] = float(truth.size(truth.times(error, q, n)) * Fraction(1.001)).hex()


EXACT, FLOAT, NORM, MODEL = "exact-binary", "float-graded", "float-norm-eps", "graded-gate"
L = cases.SITES
FALSE: dict[str, tuple[str, Edit, str]] = {
    "inverse": (EXACT, bump("levels.1.inverse.0.0"), "levels[1]: P Q = I fails"),
    "last inverse": (EXACT, bump(f"levels.{L}.inverse.2.2"), f"levels[{L}]: P Q = I fails"),
    "first mixer": (EXACT, bump("sites.0.mixer.0.0"), "sites[0]: A P = P' D fails"),
    "last mixer": (EXACT, bump(f"sites.{L - 1}.mixer.1.2"), f"sites[{L - 1}]: A P = P' D fails"),
    "middle gate": ("exact-graded", bump("sites.1.gates.1"), "sites[1]: A P = P' D fails"),
    "mixer transposed": (EXACT, transpose("sites.0.mixer"), "sites[0]: A P = P' D fails"),
    "gates reversed": (EXACT, put("sites.1.gates", ["1", "0", "0"]), "sites[1]: A P = P' D fails"),
    "read": (EXACT, bump("sites.1.read.stored.0.0"), "sites[1].read: stored = source P fails"),
    "write": (EXACT, bump("sites.1.write.source.0.0"), "sites[1].write: P stored = source fails"),
    "entry": (EXACT, bump("entry.stored.0.0"), "entry: P stored = source fails"),
    "readout": (EXACT, bump("readout.source.0.0"), "readout: stored = source P fails"),
    "half gates, identity": ("exact-identity", half_gates, "sites[0].gates[0]: expected 1"),
    "half gates, binary": (EXACT, half_gates, "expected 0 or 1 in the binary form"),
    "gate of an idle slot": ("exact-rectangular", put("sites.0.gates.2", "1"), "sites[0].gates[2]: expected 0"),
    "slots swapped": ("exact-rectangular", put("slots.1", [0, 2, 1]), "sites[0]"),
    "slot twice": ("exact-rectangular", put("slots.1", [0, 0, 1]), "slots[1]: a slot twice"),
    "slot beyond": (
        "exact-rectangular",
        put("slots.1.0", 3),
        "slots[1][0]: found 3, expected an integer from 0 to 2",
    ),
    "square of c": ("exact-norm", squares_off, "sites[0].factor_squared: is not min(cap^2, n / sum g^2)"),
    "cap of c": ("exact-norm-cap", put("norm.cap", None), "factor_squared"),
    "scale start": ("exact-norm", scale_chain, "levels[0].scale_squared"),
    "scale end": ("exact-norm", bump(f"levels.{L}.scale_squared"), f"levels[{L}].scale_squared"),
    "eps with rationals": ("exact-norm", put("norm.eps", "1/10"), "norm: expected eps >= 0"),
    "negative cap": ("float-norm-cap", put("norm.cap", (-1.0).hex()), "norm: expected eps >= 0"),
    "rho of 2": (FLOAT, negative_inverse(1), "levels[1]: ||I - P Q|| is"),
    "stated rho of 1": (FLOAT, put("levels.1.rho", (1.0).hex()), "levels[1]: ||I - P Q|| is"),
    "rho understated": (FLOAT, bump("levels.1.rho", 0.99), "levels[1].rho: states"),
    "residual understated": (FLOAT, bump("sites.2.residual", 0.99), "sites[2].residual: states"),
    "distance understated": (FLOAT, bump("sites.2.distance", 0.99), "sites[2].distance: states"),
    "read distance understated": (FLOAT, bump("sites.0.read.distance", 0.9), "sites[0].read.distance: states"),
    "write distance understated": (FLOAT, bump("sites.1.write.distance", 0.9), "sites[1].write.distance: states"),
    "entry distance understated": (FLOAT, bump("entry.distance", 0.9), "entry.distance: states"),
    "readout distance understated": (FLOAT, bump("readout.distance", 0.9), "readout.distance: states"),
    "mixer off by 1e-9": (FLOAT, both(scaled("sites.1.mixer", 1 + 1e-9), loose()), "sites[1]: mixers off by"),
    "mixer off by 3e-12": (FLOAT, both(scaled("sites.1.mixer", 1 + 3e-12), loose()), "sites[1]: mixers off by"),
    "rough distance understated": (FLOAT, rough(0.9), "sites[1].distance: states"),
    "rough read distance understated": (
        FLOAT,
        both(rough(0.9), put("sites.1.distance", (1e-14).hex())),
        "sites[1].read.distance: states",
    ),
    "read off by 1e-6": (FLOAT, both(scaled("sites.1.read.stored", 1 + 1e-6), loose()), "sites[1].read: reads off"),
    "write off by 1e-6": (
        FLOAT,
        both(scaled("sites.1.write.stored", 1 + 1e-6), loose()),
        "sites[1].write: writes off",
    ),
    "float identity gate": ("float-identity", put("sites.1.gates.0", (0.5).hex()), "sites[1].gates[0]: expected 1"),
    "factor against the rule": (NORM, rescaled_norm, "sites[0].factor: off by"),
    "factor off by 8 units": (NORM, gap_forgotten, "sites[0].distance: states"),
    "eps forgotten": (NORM, both(put("norm.eps", (0.0).hex()), loose()), "sites[0].factor: off by"),
    "cap forgotten": ("float-norm-cap", both(put("norm.cap", None), loose()), "factor: off by"),
    "factor at zero gates": ("float-norm-zero", put("sites.0.factor", (2.0).hex()), "sites[0].factor: off by"),
    "metric no triangle": (MODEL, lower_metric, "levels[1].metric: expected an upper triangle"),
    "metric off": (MODEL, both(scaled("levels.1.metric", 1 + 1e-6), loose()), "levels[1].metric: metric off by"),
    "metric bound understated": (MODEL, bump("levels.0.metric_bound", 0.9), "levels[0].metric_bound: states"),
    "write map off by 1e-6": (
        MODEL,
        both(scaled("levels.1.inverse", 1 + 1e-6), put("levels.1.rho", (0.5).hex()), loose()),
        "levels[1]: writes off by",
    ),
    "no entry": (MODEL, drop("entry"), "entry: missing"),
    "rank too high": ("rank", put("rank", 3), "rows: found 2 items, expected 3"),
    "rank minor": ("rank", bump("inverse.0.0"), "inverse: minor inverse = I fails"),
    "rank rows twice": ("rank", put("rows", [0, 0]), "rows: an index twice"),
    "rank row beyond": ("rank", put("rows.0", 3), "rows[0]: found 3, expected an integer from 0 to 2"),
    "rank factors": ("rank", bump("right.0.2"), "left: left right = matrix fails"),
    "rank matrix": ("rank", bump("matrix.1.2"), "left: left right = matrix fails"),
}
"""Statements that are false though every number is well written."""

MALFORMED: dict[str, tuple[str, Edit, str]] = {
    "version 2": (EXACT, put("format_version", 2), "format_version: found 2, expected 1"),
    "version true": (EXACT, put("format_version", True), "format_version: found True, expected 1"),
    "kind unknown": (EXACT, put("kind", "holonomy"), "kind: found 'holonomy', expected one of identity"),
    "kind a list": (EXACT, put("kind", ["binary"]), "kind: found a list"),
    "kind null": (EXACT, put("kind", None), "kind: found null"),
    "kind missing": (EXACT, drop("kind"), "kind: missing"),
    "numbers missing": (EXACT, drop("numbers"), "numbers: missing"),
    "numbers unknown": (EXACT, put("numbers", "decimal"), "numbers: found 'decimal'"),
    "base unknown": ("exact-norm", put("base", "norm"), "base: found 'norm'"),
    "unknown field": (EXACT, put("remark", "x"), "remark: unknown field"),
    "unknown field of a site": (EXACT, put("sites.1.remark", "x"), "sites[1].remark: unknown field"),
    "gauge missing": (EXACT, drop("levels.2.gauge"), "levels[2].gauge: missing"),
    "mixer missing": (EXACT, drop("sites.1.mixer"), "sites[1].mixer: missing"),
    "metric bound missing": (MODEL, drop("levels.1.metric_bound"), "levels[1].metric_bound: missing"),
    "model in a rational one": (EXACT, put("model", {}), "model: unknown field"),
    "site missing": (EXACT, drop("sites.1"), f"slots: found {L + 1} items, expected {L}"),
    "level missing": (EXACT, drop("levels.1"), f"levels: found {L} items, expected {L + 1}"),
    "row missing": (EXACT, drop("levels.1.gauge.0"), "levels[1].gauge: found 2 items, expected 3"),
    "entry of a row missing": (EXACT, drop("sites.0.mixer.1.0"), "sites[0].mixer[1]: found 2 items, expected 3"),
    "gate missing": (EXACT, drop("sites.0.gates.0"), "sites[0].gates: found 2 items, expected 3"),
    "row a string": (EXACT, put("sites.0.mixer.1", "abc"), "sites[0].mixer[1]: found 'abc', expected a list"),
    "level null": (EXACT, put("levels.0", None), "levels[0]: found null, expected an object"),
    "site a list": (EXACT, put("sites.0", []), "sites[0]: found a list, expected an object"),
    "norm a string": ("exact-norm", put("norm", "none"), "norm: found 'none', expected an object"),
    "entry empty": (FLOAT, put("entry.source", []), "entry.source: found 0 items"),
    "integer for a string": (EXACT, put("sites.0.gates.0", 1), "sites[0].gates[0]: found 1, expected a number as"),
    "truth for a string": (EXACT, put("sites.0.gates.0", True), "sites[0].gates[0]: found True"),
    "null for a string": (EXACT, put("sites.0.gates.0", None), "sites[0].gates[0]: found null"),
    "truth for a slot": (EXACT, put("slots.0.1", True), "slots[0][1]: found True, expected an integer"),
    "negative slot": (EXACT, put("slots.0.1", -1), "slots[0][1]: found -1, expected an integer"),
    "string slot": (EXACT, put("slots.0.1", "1"), "slots[0][1]: found '1', expected an integer"),
    "hash short": (
        MODEL,
        put("model.source", {"model.safetensors": "ab", "config.json": "0" * 64}),
        "model.source.mod",
    ),
    "hash missing": (MODEL, put("model.converted", {}), "model.converted.model.safetensors: missing"),
    "controllers a list": (
        MODEL,
        put("model.controllers", []),
        "model.controllers: found a list, expected an object",
    ),
    "controller no number": (MODEL, put("model.controllers", {"head.weight": "x"}), "model.controllers.head.weight"),
}
"""Statements that are not well written."""

_NINES = "9" * 4301
_RATIONALS = [
    *[
        "2/4",
        "1/1",
        "1/0",
        "+1",
        "01",
        "-0",
        "0/5",
        "1_0",
        "-",
        "/",
        "1/",
        "/2",
        "1/-2",
        "1.0",
        "1e3000000",
        "0x1",
        "Infinity",
        "NaN",
        "1/2/3",
        "--1",
    ],
    *(" 1", "1 ", "", _NINES, f"1/{_NINES}", "x" * 9000),
]
_FLOATS = [
    *[
        "1.0",
        "1",
        "0x1p+0",
        "0x1.0p0",
        "0X1.0P+0",
        "inf",
        "-inf",
        "nan",
        "0x1.0p+1024",
        "0x1.00p+0",
        "1/2",
        "0x1.0p+99999999999",
        "0x1.8p",
        "1e999",
    ],
    *(" 0x1.0p+0", "", "0x" + "1" * 40 + "p+0"),
]
for _i, _text in enumerate(_RATIONALS):
    MALFORMED[f"rational {_i} {_text[:12]!r}"] = (EXACT, put("levels.1.gauge.0.1", _text), "levels[1].gauge[0][1]: ")
for _i, _text in enumerate(_FLOATS):
    MALFORMED[f"float {_i} {_text[:12]!r}"] = (FLOAT, put("sites.2.mixer.3.0", _text), "sites[2].mixer[3][0]: ")


def good(folder: Any) -> dict[str, dict[str, Any]]:
    """Every good document by name, those of converted checkpoints included."""
    documents = cases.documents()
    documents["float-rough"] = edited(documents, (FLOAT, rough(1.001), ""))
    return {**documents, **{name: data for name, (_, _, data) in cases.models(folder).items()}}


def edited(documents: dict[str, dict[str, Any]], fault: tuple[str, Edit, str]) -> dict[str, Any]:
    """A copy of the document with its fault."""
    data = copy.deepcopy(documents[fault[0]])
    fault[1](data)
    return data
