"""The checker's part for the source of a sidecar: hashes, mixers, bases, scales and the bounds of the controllers.

Standard library alone; ``checker_sidecar.py`` runs this file by its path.  A_l is evaluated anew from the source's
logits (``checker_mixers.py``), ||W' - W (P (x) I)|| in exact integers; the time is that of the source's size, half a
minute for the 336 MB of DeepSeek-V4-Pro.
"""

from __future__ import annotations

import functools
import hashlib
import math
import runpy
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

Context = Any
MAX_STREAMS = 64
SMALL = 4096
"""Entries of a tensor that is no weight; what is larger is left out where only small ones are to be read."""


@functools.cache
def _mixers() -> dict[str, Any]:
    return runpy.run_path(str(Path(__file__).with_name("checker_mixers.py")))


class Source:
    """The source's hyper-connection tensors, found by its index (``table``) or in its one file."""

    def __init__(self, ctx: Context, folder: Path, files: dict[str, Any], table: dict[str, str] | None) -> None:
        self.ctx, self.folder, self.files, self.table = ctx, folder, files, table
        single = sorted(path.name for path in folder.iterdir() if path.suffix == ".safetensors")
        if table is None and len(single) != 1:
            raise ctx.refused(str(folder), f"{len(single)} safetensors files and no index")
        self.single, self.opened = single[:1], dict[str, Any]()
        self.held: tuple[str, list[float]] = ("", [])

    def file(self, name: str) -> Any:
        """The file that holds a tensor."""
        place = self.single[0] if self.table is None else self.table.get(name)
        if place is None:
            raise self.ctx.refused(f"source {name}", "is not in the index")
        if place not in self.opened:
            if not (self.folder / place).is_file():
                raise self.ctx.refused(f"source {place}", "not found or not a file")
            self.opened[place] = self.files["Tensors"](self.folder, self.ctx, place, 100_000_000)
        return self.opened[place]

    def must_be_stated(self, name: str, stated: dict[str, Any]) -> None:
        """Of that dtype, shape and SHA-256."""
        dtype, shape, raw = self.file(name).raw(name)
        found = {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(raw).hexdigest()}
        for key, value in stated.items():
            if found[key] != value:
                raise self.ctx.refused(f"source {name}", f"its {key.replace('sha', 'SHA-')} is not the certificate's")

    def floats(self, name: str) -> list[float]:
        """All entries; the last tensor asked for is kept."""
        if self.held[0] != name:
            self.held = name, self.file(name).floats(name)
        return self.held[1]

    def view(self, view: dict[str, Any]) -> list[list[float]]:
        """The part meant, as rows ("flat": one row)."""
        values, shape = self.floats(view["tensor"]), self.ctx.data["sidecar"]["tensors"][view["tensor"]]["shape"]
        take, width = view["take"], shape[-1] if shape else 1
        try:
            if view["layout"] == "flat" or len(shape) < 2:
                return [values if take is None else [values[i] for i in take]]
            if view["layout"] == "columns":
                rows = [values[j::width] for j in range(width)]
            else:
                rows = [values[i * width : (i + 1) * width] for i in range(math.prod(shape[:-1]))]
            return rows if take is None else [rows[i] for i in take]
        except IndexError:
            raise self.ctx.refused(f"source {view['tensor']}", "too small for the part that is meant") from None

    def flat(self, view: dict[str, Any]) -> list[float]:
        """The part meant, in one row."""
        return [x for row in self.view(view) for x in row]

    def scale(self, affine: dict[str, Any]) -> float:
        """The one number of a scale; 1 without."""
        found = [1.0] if affine["scale"] is None else self.flat(affine["scale"])
        if len(found) != 1:
            raise self.ctx.refused(f"source {affine['scale']['tensor']}", "expected one number")
        return found[0]


def match(ctx: Context, stored: Any, source: Source, prefix: str, controllers: dict[str, int]) -> None:
    """Hashes, static mixers, bases and scales are the source's; controllers within their bounds."""
    part, data = ctx.data["sidecar"], ctx.data
    config = source.folder / "config.json"
    found = source.files["sha256"](config, ctx) if config.is_file() else None
    if found != part["config"]:
        raise ctx.refused("source config.json", "its SHA-256 is not the certificate's")
    for name, entry in part["tensors"].items():
        if ctx.weights or math.prod(entry["shape"]) <= SMALL:
            source.must_be_stated(name, entry)
    moved = 0
    for l, (site, stated) in enumerate(zip(part["sites"], data["sites"])):
        ctx.place, n = f"sites[{l}].mixer", len(stated["mixer"])
        moved += _moves(source, site["mix"], ctx.weights)
        _match_mixer(ctx, source, site, stated["mixer"], n)
        where = f"{prefix}sites.{l}.coef"
        base = source.flat(site["read"]["base"]) + source.flat(site["write"]["base"])
        stored.must_be(f"{where}.base", [x.hex() for x in base])
        if f"{where}.weight" in stored.entries:
            scales = [source.scale(site[key]) for key in ("read", "write")]
            stored.must_be(f"{where}.scale", [x.hex() for x in scales])
    if moved > part["dynamic"] or (ctx.weights and moved != part["dynamic"]):
        raise ctx.refused("sidecar.dynamic", f"{moved} of the source's mixers depend on the state")
    head, at = part["head"], f"{prefix}head"
    if (head is None) == (f"{at}.base" in stored.entries):
        raise ctx.refused("sidecar.head", "the file has another kind of head")
    if head is not None:
        stored.must_be(f"{at}.base", [x.hex() for x in source.flat(head["read"]["base"])])
        stored.must_be(f"{at}.scale", [source.scale(head["read"]).hex()])
    for name, l in controllers.items():
        if ctx.weights and prefix + name in stored.entries:
            place = head if name == "head.weight" else part["sites"][l]
            blocks = [place["read"]] if name == "head.weight" else [place["read"], place["write"]]
            _match_controller(ctx, source, stored, (prefix, name, l), place, blocks)


def _moves(source: Source, mix: dict[str, Any], weights: bool) -> bool:
    """Whether the mixer depends on the state; without its weights, as far as its scale says."""
    if mix["weight"] is None or source.scale(mix) == 0:
        return False
    return weights and any(map(any, source.view(mix["weight"])))


def _match_mixer(ctx: Context, source: Source, site: dict[str, Any], rows: list[list[str]], n: int) -> None:
    """The stated A_l against what its recipe makes of the source's static logits."""
    part, stated = ctx.data["sidecar"], [[float.fromhex(x) for x in row] for row in rows]
    if part["mixers"] == "mean":
        return
    if part["mixers"] == "identity":
        made, allowed = [[Decimal(i == j) for j in range(n)] for i in range(n)], Fraction(0)
    else:
        recipe, logits = part["recipes"][site["recipe"]], source.flat(site["mix"]["base"])
        size = math.factorial(min(n, 7)) if recipe["kind"] == "permutations" else n * n
        blend = None if site["blend"] is None else source.flat(site["blend"])
        if n > MAX_STREAMS or len(logits) != size or (blend is not None and len(blend) != 1):
            raise ctx.refused(ctx.place, f"{len(logits)} logits, expected {size}, and one blend or none")
        made, allowed = _mixers()["mixer"](recipe, logits, n, blend and blend[0])
    away = max(abs(Fraction(x) - Fraction(y)) for given, new in zip(stated, made) for x, y in zip(given, new))
    if away > allowed:
        found = f"{float(away):.3g}, expected at most {float(allowed):.3g}"
        raise ctx.refused(ctx.place, f"differs from what the source's logits give by {found}")


def _integers(values: list[float]) -> tuple[list[int], int]:
    """Numerators over one power of two, and its exponent."""
    least = min((abs(x) for x in values if x), default=1.0)
    k = max(0, 53 - math.frexp(least)[1])  # every entry is a multiple of the last place of the smallest
    if k <= 1000 and max(map(abs, values), default=0.0) < 2.0 ** (1020 - k):
        scale = 2.0**k
        return [int(x * scale) for x in values], k
    whole = 1 << k
    return [p * (whole // q) for p, q in map(float.as_integer_ratio, values)], k


def _match_controller(
    ctx: Context, source: Source, stored: Any, at: tuple[str, str, int], place: dict[str, Any], blocks: list[Any]
) -> None:
    """``||W' - W (P (x) I)||`` against its bound, in integers; column s d + c of W is stream s, feature c."""
    prefix, name, l = at
    ctx.place, level = f"sidecar.controllers.{name}", ctx.levels[l]
    n, data = level.gauge.cols, stored.floats(prefix + name)
    rows = [row for block in blocks if block["weight"] is not None for row in source.view(block["weight"])]
    missing = [block for block in blocks if block["weight"] is None]
    width = len(data) // (len(rows) or n)
    rows += [[0.0] * width for _ in range(n)] if missing and not rows else []
    if not rows or width % n or len(data) != len(rows) * width or any(len(row) != width for row in rows):
        raise ctx.refused(ctx.place, f"found {len(data)} numbers and weights of {len(rows)} rows, expected the same")
    gamma = None
    if place["gamma"] is not None:
        offset = Fraction(float.fromhex(place["gamma_offset"]))
        gamma = [Fraction(x) + offset for x in source.flat(place["gamma"])]
        if len(gamma) != width:
            raise ctx.refused(ctx.place, f"gamma has {len(gamma)} entries, expected {width}")
    size = worst = Fraction(0)
    for o, row in enumerate(rows):
        made = data[o * width : (o + 1) * width]
        away, weight = _row(row, made, level.gauge, n, gamma)
        size, worst = max(size, weight), max(worst, away)
    ctx.root["sidecar"]["controllers"][name].covers(worst)
    ctx.relative(name, "controllers", worst * level.inverse.norm() / (1 - level.rho), size)


def _row(row: list[float], made: list[float], gauge: Any, n: int, gamma: Any) -> tuple[Fraction, Fraction]:
    """Sums of |W' - W (P (x) I)| and of |W| over one output."""
    d = len(row) // n
    (w, a), (new, c) = _integers(row), _integers(made)
    scale = 1
    if gamma is not None:
        scale = math.lcm(*(g.denominator for g in gamma))
        w = [x * (g.numerator * (scale // g.denominator)) for x, g in zip(w, gamma)]
    den = (scale * gauge.den) << a  # of the products; gauge.den is a power of two, as is scale
    up, down = (den >> c, 1) if den >= 1 << c else (1, (1 << c) // den)
    away = 0
    for t in range(n):
        image = [0] * d
        for s in range(n):
            p = gauge.rows[s][t] * down
            image = [y + p * x for y, x in zip(image, w[s * d : (s + 1) * d])]
        away += sum(abs(up * y - x) for y, x in zip(new[t * d : (t + 1) * d], image))
    return Fraction(away, den * down), Fraction(sum(map(abs, w)), scale << a)
