"""Whether what a certificate states is true, decided the slow way: Fractions entry by entry, square roots by Decimal.

Nothing is shared with the checker or with what makes certificates.  Malformed input is not a true statement.
"""

from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction
from typing import Any

Matrix = list[list[Fraction]]


def is_true(data: dict[str, Any]) -> bool:
    """The statement of a certificate (not its digest, not its files)."""
    try:
        if data["kind"] == "rank":
            return data["format_version"] == 1 and data["numbers"] == "rational" and _rank(data)
        return _sort_is_known(data) and _chain(data)
    except (
        KeyError,
        IndexError,
        ValueError,
        TypeError,
        AttributeError,
        ZeroDivisionError,
        OverflowError,
        StopIteration,
    ):
        return False


def _sort_is_known(data: dict[str, Any]) -> bool:
    bases, kind = ("identity", "binary", "graded"), data["kind"]
    base = data["base"] if kind == "norm" else kind
    hashes = [h for side in ("source", "converted") for h in data.get("model", {}).get(side, {}).values()]
    return (
        data["format_version"] == 1
        and base in bases
        and data["numbers"] in ("float", "rational")
        and ("norm" in data) == ("base" in data) == (kind == "norm")
        and all(len(h) == 64 for h in hashes)
        and ("model" not in data or "entry" in data)
    )


def number(text: str, floats: bool) -> Fraction:
    if floats:
        value = float.fromhex(text)
        if value.hex() != text:
            raise ValueError(text)
        return Fraction(value)
    value = Fraction(text)
    if str(value) != text:
        raise ValueError(text)
    return value


def rows_of(grid: Any, floats: bool, rows: int, cols: int) -> Matrix:
    if len(grid) != rows or any(len(row) != cols for row in grid):
        raise ValueError("shape")
    return [[number(x, floats) for x in row] for row in grid]


def times(a: Matrix, b: Matrix, cols: int) -> Matrix:
    return [
        [sum((a[i][k] * b[k][j] for k in range(len(b))), Fraction(0)) for j in range(cols)] for i in range(len(a))
    ]


def minus(a: Matrix, b: Matrix) -> Matrix:
    return [[x - y for x, y in zip(u, v)] for u, v in zip(a, b)]


def size(a: Matrix) -> Fraction:
    return max((sum((abs(x) for x in row), Fraction(0)) for row in a), default=Fraction(0))


def turned(a: Matrix, cols: int) -> Matrix:
    return [[row[j] for row in a] for j in range(cols)]


def eye(n: int) -> Matrix:
    return [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]


def factor(g: list[Fraction], eps: Fraction, cap: Fraction | None) -> Fraction:
    """c(g) to 90 digits."""
    getcontext().prec, getcontext().Emin, getcontext().Emax = 100, -9999, 9999
    total = sum((x * x for x in g), Fraction(0))
    if total == 0:
        return Fraction(1)

    def root(x: Fraction) -> Fraction:
        return Fraction((Decimal(x.numerator) / Decimal(x.denominator)).sqrt())

    c = root(Fraction(len(g))) / (root(total) + eps)
    return c if cap is None else min(c, cap)


def _rank(data: dict[str, Any]) -> bool:
    m, n = data["shape"]
    k = data["rank"]
    if any(isinstance(x, bool) for x in (m, n, k)) or len(data["rows"]) != k or len(data["cols"]) != k:
        return False
    if any(not 0 <= i < m for i in data["rows"]) or any(not 0 <= j < n for j in data["cols"]):
        return False
    a = rows_of(data["matrix"], False, m, n)
    minor = [[a[i][j] for j in data["cols"]] for i in data["rows"]]
    left, right = rows_of(data["left"], False, m, k), rows_of(data["right"], False, k, n)
    return times(minor, rows_of(data["inverse"], False, k, k), k) == eye(k) and times(left, right, n) == a


def _chain(data: dict[str, Any]) -> bool:
    floats, slots = data["numbers"] == "float", data["slots"]
    norm, base = data["kind"] == "norm", data.get("base", data["kind"])
    widest = max(len(s) for s in slots)
    sites, levels = data["sites"], data["levels"]
    for row in slots:
        if any(isinstance(s, bool) or not 0 <= s < widest for s in row) or len(set(row)) < len(row):
            return False
    if not len(sites) + 1 == len(slots) == len(levels):
        return False
    rule = None
    if norm:
        eps, cap = number(data["norm"]["eps"], floats), data["norm"]["cap"]
        rule = eps, None if cap is None else number(cap, floats)
        if eps < 0 or (eps and not floats) or (rule[1] is not None and rule[1] <= 0):
            return False
    known = [_level(data, l, len(slots[l]), floats) for l in range(len(levels))]
    if None in known:
        return False
    scale = Fraction(1)
    for l, site in enumerate(sites):
        gates = [number(g, floats) for g in site["gates"]]
        if len(gates) != widest or not _gates_fit(gates, base, slots[l], slots[l + 1]):
            return False
        if norm and not floats:
            square, total = number(site["factor_squared"], False), sum((g * g for g in gates), Fraction(0))
            wanted = Fraction(len(gates)) / total if total else Fraction(1)
            if total and rule[1] is not None:
                wanted = min(wanted, rule[1] ** 2)
            if square != wanted or number(levels[l]["scale_squared"], False) != scale:
                return False
            scale /= square
        if not _site(site, gates, slots[l], slots[l + 1], known[l], known[l + 1], floats, rule):
            return False
    if norm and not floats and number(levels[-1]["scale_squared"], False) != scale:
        return False
    ends = (("entry", known[0]), ("readout", known[-1]))
    return all(_pair(data[name], name, level, floats) for name, level in ends if name in data)


def _gates_fit(gates: list[Fraction], base: str, before: list[int], after: list[int]) -> bool:
    allowed = {"identity": {Fraction(1)}, "binary": {Fraction(0), Fraction(1)}}.get(base)
    if allowed is not None and not set(gates) <= allowed:
        return False
    return all(g == 0 or (s in before and s in after) for s, g in enumerate(gates))


def _level(data: dict[str, Any], l: int, n: int, floats: bool) -> tuple[Matrix, Matrix, Fraction] | None:
    part = data["levels"][l]
    p, q = rows_of(part["gauge"], floats, n, n), rows_of(part["inverse"], floats, n, n)
    rest = minus(eye(n), times(p, q, n))
    rho, columns = size(rest), size(turned(rest, n))
    if not floats:
        return (p, q, rho) if rho == 0 else None
    stated = number(part["rho"], True)
    if rho >= 1 or not rho <= stated < 1 or ("model" in data and l > 0 and rho > Fraction(1, 10**9)):
        return None
    if "metric" in part:
        t = rows_of(part["metric"], True, n, n)
        gram = minus(times(turned(t, n), t, n), times(turned(p, n), p, n))
        error = size(times(times(turned(q, n), gram, n), q, n)) / ((1 - rho) * (1 - columns)) if columns < 1 else 2
        upper = all(t[i][j] == 0 for i in range(n) for j in range(i))
        if not upper or error > Fraction(1, 10**9) or number(part["metric_bound"], True) < error:
            return None
    return p, q, rho


def _site(
    site: Any, gates: list[Fraction], before: list[int], after: list[int], level: Any, following: Any, floats: bool,
    rule: Any,
) -> bool:  # fmt: skip
    (p, q, rho), (p_next, _, _) = level, following
    a = rows_of(site["mixer"], floats, len(after), len(before))
    c, off = Fraction(1), Fraction(0)
    if floats and rule:
        c, true = number(site["factor"], True), factor(gates, *rule)
        off = abs(c - true)
        if off > Fraction(1, 10**14) * true:
            return False
    d = [[gates[t] if s == t else Fraction(0) for t in before] for s in after]
    carried = times(p_next, d, len(before))
    error = minus([[c * x for x in row] for row in carried], times(a, p, len(before)))
    pairs = [("read", level), ("write", following)]
    if not all(_pair(site[name], name, at, floats) for name, at in pairs if name in site):
        return False
    if not floats:
        return size(error) == 0
    distance = (size(times(error, q, len(before))) + off * size(times(carried, q, len(before)))) / (1 - rho)
    return (
        distance <= size(a) / 10**12
        and number(site["residual"], True) >= size(error)
        and number(site["distance"], True) >= distance
    )


def _pair(part: Any, name: str, level: tuple[Matrix, Matrix, Fraction], floats: bool) -> bool:
    p, q, rho = level
    n, row = len(p), name in ("read", "readout")
    many = len(part["source"]) if row else len(part["source"][0])
    shape = (many if name == "readout" else 1, n) if row else (n, many if name == "entry" else 1)
    source, stored = (rows_of(part[key], floats, *shape) for key in ("source", "stored"))
    if row:
        error = minus(stored, times(source, p, n))
        distance = size(times(error, q, n)) / (1 - rho)
    else:
        distance = size(minus(times(p, stored, shape[1]), source))
    if not floats:
        return distance == 0
    return distance <= size(source) / 10**9 and number(part["distance"], True) >= distance
