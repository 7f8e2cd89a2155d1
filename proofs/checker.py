"""Checks a streamgauge certificate without trusting what made it: this one file, standard library alone.

    python -I -S proofs/checker.py CERT.json [--file CONVERTED_DIR] [--source SOURCE_DIR] [--work FACTOR]

prints one line and exits with 0 only if the certificate is accepted (1 refused, 2 wrong command line).  With --file
it also runs ``checker_files.py``, beside it, on the checkpoints that the certificate speaks of; certificates of
another program's checkpoint (``sidecar``) are read by ``checker_sidecar.py``.

**Format, version 1.** ASCII JSON without escapes.  Every number of a matrix is a string: "p" or "p/q" in lowest terms
(``numbers`` = "rational") or the canonical ``float.hex()`` ("float"; a float64 *is* a rational).  Matrices are lists
of rows.  ``digest`` is the SHA-256 of the rest with sorted keys and no spaces.

**Kinds.**  ``identity`` (all gates 1), ``binary`` (gates 0 or 1), ``graded``; ``norm`` on one of them as ``base``:

    A_l P_l = P_{l+1} D_l,   D_l[i, j] = c_l g_l[s] where column i of P_{l+1} and j of P_l carry slot s  (c_l = 1
                             but for ``norm``: c(g) = min(cap, sqrt(n) / (||g||_2 + eps)), c(0) = 1, n slots)

- rational: the equation, P_l Q_l = I, and stored = source p_l P_l etc. hold exactly; ``norm``: c_l^2, s_l^2 exactly.
- float, with ||.|| the largest row sum: R_l = I - P_l Q_l, ||R_l|| <= rho_l < 1, so P_l^{-1} = Q_l (I - R_l)^{-1};
  the stored network *is* the mHC with A~_l = P_{l+1} D_l P_l^{-1}, where
  ||A~_l - A_l|| <= ||(P_{l+1} D_l - A_l P_l) Q_l|| / (1 - rho_l) <= 1e-12 ||A_l||, else it is refused.  In a model
  certificate Q_{l+1} is the stored write map, T_l (``metric``) has T^T T = P^T P and W' = W (P (x) I): also within
  bounds, W' with --file and --source only.  Mixers that the source stores as a matrix must be these, bit for bit;
  what a source's logits make is taken as given (``streamgauge check`` runs Sinkhorn again).
  Every stated bound is computed again and may only be larger than what the data give.
- ``rank``: an invertible minor with its inverse (rank >= k), a factorisation with inner dimension k (rank <= k).
- ``nullstellensatz``: integer polynomials f_i, cofactors h_i and C != 0 with sum h_i f_i = C: no common zero over any
  field whose characteristic does not divide C.  A polynomial is a list of terms [coefficient, exponents], exponents
  strictly decreasing (lexicographic); no coefficient and no cofactor is zero, so that changing any breaks the sum.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

FORMAT_VERSION = 1
MAX_BYTES = 16 << 20  # of a certificate
MAX_DEPTH = 8
MAX_DIGITS = 4300  # of one integer, as in Python itself
MAX_VALUES = 300_000
MAX_DENOMINATOR_BITS = 100_000  # of the common denominator of one matrix
RATIONAL = re.compile(r"(?!-0$)(-?(?:0|[1-9][0-9]*))(?:/([1-9][0-9]*))?")  # lowest terms are checked apart
MAX_WORK = 400_000_000  # multiplications of 30-bit digits, about; --work raises it
MAX_DEGREE = 1000  # of one variable
EXPONENT_BITS = (2 * MAX_DEGREE).bit_length()  # of one variable in a product of two monomials
MAX_VARIABLES = 64
MIXER_LIMIT = Fraction(1, 10**12)  # backward error of A_l, relative to ||A_l||
OTHER_LIMIT = Fraction(1, 10**9)  # the same for reads, writes, entry, readout, metric and controllers
FACTOR_LIMIT = Fraction(1, 10**14)  # stored c_l against the rule, relative
FILES = ("model.safetensors", "config.json")
HEAD = ("format_version", "kind", "digest", "numbers")


class Refused(Exception):
    """Why a certificate is not accepted: the place, then what is wrong there."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")


class Result(NamedTuple):
    """``reason`` is one line; ``facts`` holds the distances found (floats, rounded up), largest over the sites."""

    accepted: bool
    reason: str
    facts: dict[str, Any]


class _Bad(NamedTuple):
    """A literal that json would have taken; it is refused once its place is known."""

    why: str


class Context:
    """What the checks of one certificate share: its data, the arithmetic still allowed, the distances found."""

    def __init__(self, data: dict[str, Any], factor: int) -> None:
        self.data, self.root, self.floats = data, Field(data, "", self), False
        self.work, self.place = MAX_WORK * factor, "certificate"
        self.facts: dict[str, Fraction] = {}
        self.levels: list[Level] = []
        self.weights = True  # whether a comparison with a sidecar's source reads the weights too

    def refused(self, place: str, why: str) -> Refused:
        """The refusal of something at that place, to be raised."""
        return Refused(place, why)

    def spend(self, amount: int) -> None:
        """Refusing beats running for minutes."""
        self.work -= amount
        if self.work < 0:
            raise Refused(self.place, f"needs more arithmetic than {MAX_WORK} digit products; raise it with --work")

    def matrix(self, pairs: Sequence[Sequence[tuple[int, int]]], cols: int, place: str) -> Mat:
        """A matrix of (numerator, denominator) pairs, brought to the common denominator."""
        den = 1
        for q in {q for row in pairs for _, q in row}:
            den = math.lcm(den, q)
            if den.bit_length() > MAX_DENOMINATOR_BITS:
                raise Refused(place, f"common denominator of more than {MAX_DENOMINATOR_BITS} bits")
            self.spend(den.bit_length() * q.bit_length() // 900)
        self.spend(sum(map(len, pairs)) * (den.bit_length() // 2))  # bounds the memory too
        return Mat([[p * (den // q) for p, q in row] for row in pairs], cols, den, self)

    def relative(self, place: str, name: str, error: Fraction, size: Fraction, limit: Fraction = OTHER_LIMIT) -> None:
        """The error must be small beside the size; the largest quotient of each name becomes a fact."""
        if error > limit * size:
            raise Refused(place, f"{name} off by {show(error)}, more than {float(limit):.0e} times {show(size)}")
        self.facts[name] = max(self.facts.get(name, Fraction(0)), error / size if size else Fraction(0))


class Mat:
    """A rational matrix: integer rows over one positive denominator."""

    def __init__(self, rows: list[list[int]], cols: int, den: int, ctx: Context) -> None:
        self.rows, self.cols, self.den, self.ctx = rows, cols, den, ctx

    def __matmul__(self, other: Mat) -> Mat:
        a, b = self.digits(), other.digits()
        each = 40 + a * b if a * b < 5000 else 40 + int(6 * (a * b) ** 0.8)  # Karatsuba
        self.ctx.spend(len(self.rows) * max(1, self.cols) * other.cols * each)
        columns = list(zip(*other.rows)) if other.rows else [()] * other.cols
        product = [[sum(map(int.__mul__, row, col)) for col in columns] for row in self.rows]
        return Mat(product, other.cols, self.den * other.den, self.ctx)

    def __sub__(self, other: Mat) -> Mat:
        if self.den != other.den:
            self.ctx.spend((self.den.bit_length() // 30) * (other.den.bit_length() // 30))
        den = math.lcm(self.den, other.den)
        s, t = den // self.den, den // other.den
        return Mat(
            [[s * x - t * y for x, y in zip(u, v)] for u, v in zip(self.rows, other.rows)], self.cols, den, self.ctx
        )

    def transposed(self) -> Mat:
        """Rows for columns."""
        return Mat([list(c) for c in zip(*self.rows)] or [[]] * self.cols, len(self.rows), self.den, self.ctx)

    def norm(self) -> Fraction:
        """The largest row sum of absolute values."""
        return Fraction(max((sum(map(abs, row)) for row in self.rows), default=0), self.den)

    def total(self) -> Fraction:
        """The sum of all absolute values."""
        return Fraction(sum(sum(map(abs, row)) for row in self.rows), self.den)

    def square(self) -> Fraction:
        """The sum of the squares of all entries."""
        return Fraction(sum(x * x for row in self.rows for x in row), self.den**2)

    def digits(self) -> int:
        """The length of the longest integer, in 30-bit digits."""
        return 1 + max((x.bit_length() for row in self.rows for x in row), default=0) // 30

    def must_vanish(self, place: str, what: str) -> None:
        """Refuse by the first entry that is not zero."""
        for i, row in enumerate(self.rows):
            for j, x in enumerate(row):
                if x:
                    raise Refused(place, f"{what} fails at entry ({i}, {j})")


def identity(n: int, ctx: Context) -> Mat:
    """I of size n."""
    return Mat([[int(i == j) for j in range(n)] for i in range(n)], n, 1, ctx)


# Reading.


def load(text: str) -> dict[str, Any]:
    """The JSON object of a certificate; nothing json lets slip (NaN, 1e999, duplicate keys, depth) gets through."""
    if len(text) > MAX_BYTES:
        raise Refused("certificate", f"larger than {MAX_BYTES} bytes")
    if bad := re.search(r"[^\x00-\x7f]|\\", text):
        raise Refused(
            f"character {bad.start()}", "found a backslash or a character beyond ASCII; neither belongs here"
        )
    if max(map(text.count, '",:[{')) > 4 * MAX_VALUES:
        raise Refused("certificate", f"more than {MAX_VALUES} values")
    depth = 0
    for found in re.finditer(r'"[^"]*"|[][{}]', text):  # whole strings, so that brackets inside them do not count
        depth += (found[0] in "[{") - (found[0] in "]}")
        if depth > MAX_DEPTH:
            raise Refused(f"character {found.start()}", f"nested deeper than {MAX_DEPTH}")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            out[key] = value if key not in out else _Bad("duplicate key")
        return out

    def integer_literal(s: str) -> Any:
        return int(s) if len(s) <= 9 else _Bad(f"integer literal of {len(s)} characters")

    def bad_literal(s: str) -> Any:
        return _Bad(f"number literal {s[:24]}; numbers are strings here")

    hooks: dict[str, Any] = {"object_pairs_hook": pairs, "parse_int": integer_literal}
    try:
        data = json.loads(text, parse_float=bad_literal, parse_constant=bad_literal, **hooks)
    except ValueError as error:
        raise Refused(f"character {getattr(error, 'pos', 0)}", f"not JSON ({getattr(error, 'msg', error)})") from None
    _walk(data, "", [0])
    if not isinstance(data, dict):
        raise Refused("certificate", "found no JSON object")
    return data


def _walk(value: Any, place: str, count: list[int]) -> None:
    count[0] += 1
    if count[0] > MAX_VALUES:
        raise Refused(place, f"more than {MAX_VALUES} values")
    if isinstance(value, _Bad):
        raise Refused(place or "certificate", value.why)
    if isinstance(value, dict):
        for key, item in value.items():
            _walk(item, f"{place}.{key[:60]}" if place else key[:60], count)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _walk(item, f"{place}[{i}]", count)


class Field:
    """A value of the certificate with its place; every reader refuses by that place."""

    def __init__(self, value: Any, place: str, ctx: Context) -> None:
        self.value, self.place, self.ctx = value, place, ctx

    def __getitem__(self, key: str | int) -> Field:
        return Field(self.value[key], self.at(key), self.ctx)

    def __contains__(self, name: str) -> bool:
        return name in self.value

    def at(self, key: str | int) -> str:
        """The place of a part, there or not."""
        return f"{self.place}[{key}]" if isinstance(key, int) else f"{self.place}.{key[:60]}".lstrip(".")

    def refused(self, why: str) -> Refused:
        """The refusal of this value, to be raised."""
        return Refused(self.place, why)

    def having(self, required: Sequence[str], optional: Iterable[str] = ()) -> Field:
        """An object with all required fields and no others but the optional ones."""
        if not isinstance(self.value, dict):
            raise self.refused(f"found {_kind(self.value)}, expected an object")
        for name in required:
            if name not in self.value:
                raise Refused(self.at(name), "missing")
        known = {*required, *optional}
        for name in self.value:
            if name not in known:
                raise Refused(self.at(name), "unknown field")
        return self

    def items(self, length: int | None = None) -> list[Field]:
        """A list, of that length if one is given."""
        if not isinstance(self.value, list):
            raise self.refused(f"found {_kind(self.value)}, expected a list")
        if length is not None and len(self.value) != length:
            raise self.refused(f"found {len(self.value)} items, expected {length}")
        return [self[i] for i in range(len(self.value))]

    def integer(self, top: int) -> int:
        """An integer from 0 to ``top``."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not 0 <= self.value <= top:
            raise self.refused(f"found {_kind(self.value)}, expected an integer from 0 to {top}")
        return self.value

    def choice(self, allowed: Iterable[str]) -> str:
        """One of the allowed words."""
        if not isinstance(self.value, str) or self.value not in allowed:
            raise self.refused(f"found {_kind(self.value)}, expected one of {', '.join(allowed)}")
        return self.value

    def pair(self) -> tuple[int, int]:
        """(numerator, denominator) of a number in its one canonical spelling."""
        value = self.value
        if not isinstance(value, str):
            raise self.refused(f"found {_kind(value)}, expected a number as a string")
        if len(value) > (32 if self.ctx.floats else 2 * MAX_DIGITS + 2):
            raise self.refused(f"number of {len(value)} characters, more than {MAX_DIGITS} digits allow")
        if self.ctx.floats:
            try:
                x = float.fromhex(value)
            except (ValueError, OverflowError):
                x = math.nan
            if not math.isfinite(x) or x.hex() != value:
                raise self.refused(f"found {value[:40]!r}, expected a finite float64 as float.hex() writes it")
            return x.as_integer_ratio()
        for digits in value.lstrip("-").split("/"):
            if len(digits) > MAX_DIGITS:
                raise self.refused(f"integer of {len(digits)} digits, more than {MAX_DIGITS}")
        found = RATIONAL.fullmatch(value)
        p, q = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
        if not found or (found[2] and (q < 2 or math.gcd(p, q) != 1)):
            raise self.refused(f"found {value[:40]!r}, expected p or p/q in lowest terms")
        return p, q

    def number(self) -> Fraction:
        """The same as a fraction."""
        return Fraction(*self.pair())

    def matrix(self, rows: int, cols: int) -> Mat:
        """A list of ``rows`` rows of ``cols`` numbers each."""
        pairs = [[x.pair() for x in row.items(cols)] for row in self.items(rows)]
        return self.ctx.matrix(pairs, cols, self.place)

    def covers(self, computed: Fraction) -> Fraction:
        """A stated bound, which must not be below what the data give."""
        stated = self.number()
        if stated < computed:
            raise self.refused(f"states {show(stated)} where the data give {show(computed)}")
        return stated


def _kind(value: Any) -> str:
    if isinstance(value, str | int):
        return repr(value)[:40]
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else "null"


def show(x: Fraction) -> str:
    """``x`` in two digits, rounded up."""
    return "0" if x == 0 else f"{float(x) * 1.05:.1e}" if x < 10**300 else "more than 1e300"


# The kinds.


class Level(NamedTuple):
    """P_l, its (approximate) inverse Q_l, and ||I - P_l Q_l|| (0 where exact)."""

    gauge: Mat
    inverse: Mat
    rho: Fraction


def check_chain(data: Field) -> str:
    """``identity``, ``binary``, ``graded`` and ``norm``: the equation at every site, every P_l invertible."""
    ctx, norm = data.ctx, data["kind"].value == "norm"
    ctx.floats = data["numbers"].choice(("rational", "float")) == "float"
    optional = ("entry", "readout", *(("model", "sidecar") if ctx.floats else ()))
    data.having((*HEAD, "slots", "levels", "sites", *(("base", "norm") if norm else ())), optional)
    base = (data["base"] if norm else data["kind"]).choice(("identity", "binary", "graded"))
    sites = data["sites"].items()
    slots = _slots(data["slots"].items(len(sites) + 1))
    given = data["levels"].items(len(slots))
    rule = norm_rule(data["norm"]) if norm else None
    levels = ctx.levels = [_level(part, len(row), rule) for part, row in zip(given, slots)]
    scale = Fraction(1)
    bars = len(slots[0])
    for l, site in enumerate(sites):
        ctx.place = site.place
        gates = _gates(site, slots, l, base)
        alive = sum(1 for p, _ in gates if p)
        bars += len(slots[l + 1]) - alive
        factor = Fraction(1), Fraction(0)
        if rule:
            g = ctx.matrix([gates], len(gates), site.place)
            if ctx.floats:
                factor = _factor(site["factor"], g, rule)
            else:
                scale = _scale(given[l], scale) / _factor_squared(site["factor_squared"], g, rule)
        _site(site, slots[l : l + 2], gates, levels[l : l + 2], factor)
    if rule and not ctx.floats:
        _scale(given[-1], scale)
    _pair(data, "entry", levels[0])
    _pair(data, "readout", levels[-1])
    if "model" in data:
        _model(data)
    if "sidecar" in data:
        if "model" in data:
            raise Refused("sidecar", "stands beside model, expected one of them")
        beside("checker_sidecar.py")["stated"](data)
    return _conclusion(ctx, len(sites), f"norm on {base}" if norm else base, bars)


def _slots(levels: list[Field]) -> list[list[int]]:
    """For every level the slot of each column: distinct numbers below the largest width."""
    rows = [level.items() for level in levels]
    top = max(map(len, rows)) - 1
    out = [[slot.integer(top) for slot in row] for row in rows]
    for level, row in zip(levels, out):
        if len(set(row)) < len(row):
            raise level.refused("a slot twice")
    return out


def _level(part: Field, n: int, rule: Any) -> Level:
    """P_l Q_l = I, exactly or within rho_l < 1, and the metric."""
    ctx = part.ctx
    ctx.place = part.place
    required = ("gauge", "inverse", *(("rho",) if ctx.floats else ("scale_squared",) if rule else ()))
    metric = ctx.floats and isinstance(part.value, dict) and ("metric" in part or "metric_bound" in part)
    part.having((*required, *(("metric", "metric_bound") if metric else ())))
    gauge, inverse = (part[name].matrix(n, n) for name in ("gauge", "inverse"))
    rest = identity(n, ctx) - gauge @ inverse
    if not ctx.floats:
        rest.must_vanish(part.place, "P Q = I")
        return Level(gauge, inverse, Fraction(0))
    rho, rho_columns = rest.norm(), rest.transposed().norm()
    if rho >= 1 or part["rho"].covers(rho) >= 1:
        raise part.refused(f"||I - P Q|| is {show(rho)}, expected below 1: P is not shown to be invertible")
    # in a model certificate Q_l is the write map of the site before, so rho_l is how far P_l Q_l r may be from r
    writes = ("model" in ctx.data or "sidecar" in ctx.data) and part.place != "levels[0]"
    ctx.relative(
        part.place, "writes" if writes else "inverse", rho, Fraction(1), OTHER_LIMIT if writes else Fraction(1)
    )
    if metric:
        t = part["metric"].matrix(n, n)
        if rho_columns >= 1 or any(x for i, row in enumerate(t.rows) for x in row[:i]):
            raise part["metric"].refused("expected an upper triangle and column sums of |I - P Q| below 1")
        gap = inverse.transposed() @ (t.transposed() @ t - gauge.transposed() @ gauge) @ inverse
        error = gap.norm() / ((1 - rho) * (1 - rho_columns))
        part["metric_bound"].covers(error)
        ctx.relative(part["metric"].place, "metric", error, Fraction(1))
    return Level(gauge, inverse, rho)


def _gates(site: Field, slots: list[list[int]], l: int, base: str) -> list[tuple[int, int]]:
    """The gates by slot; a slot that is not at both ends of the site has gate 0."""
    floats = site.ctx.floats
    names = ("mixer", "gates", *(("residual", "distance") if floats else ()))
    if site.ctx.data["kind"] == "norm":
        names = (*names, "factor" if floats else "factor_squared")
    site.having(names, ("read", "write"))
    given = site["gates"].items(max(map(len, slots)))
    gates = [gate.pair() for gate in given]
    for s, (p, q) in enumerate(gates):
        if base == "identity" and (p, q) != (1, 1):
            raise given[s].refused("expected 1 in the identity form")
        if base == "binary" and (p not in (0, 1) or q != 1):
            raise given[s].refused("expected 0 or 1 in the binary form")
        if p and not (s in slots[l] and s in slots[l + 1]):
            raise given[s].refused("expected 0: the slot is not at both ends of the site")
    return gates


def _site(
    site: Field,
    slots: list[list[int]],
    gates: list[tuple[int, int]],
    levels: list[Level],
    factor: tuple[Fraction, Fraction],
) -> None:
    """A_l P_l = P_{l+1} D_l; ``factor`` is the stored c_l (1 without) and how far the true one may be from it."""
    (before, after), (c, gap), columns, ctx = levels, factor, slots[0], site.ctx
    mixer = site["mixer"].matrix(len(slots[1]), len(columns))
    scaled = [(p * c.numerator, q * c.denominator) for p, q in gates]
    diagonal = [[scaled[t] if s == t else (0, 1) for t in columns] for s in slots[1]]
    carried = after.gauge @ ctx.matrix(diagonal, len(columns), site.place)
    error = carried - mixer @ before.gauge
    if ctx.floats:
        distance = (error @ before.inverse).norm() + gap / c * (carried @ before.inverse).norm()
        distance /= 1 - before.rho
        site["residual"].covers(error.norm())
        site["distance"].covers(distance)
        ctx.relative(site.place, "mixers", distance, mixer.norm(), MIXER_LIMIT)
    else:
        error.must_vanish(site.place, "A P = P' D")
    _pair(site, "read", before)
    _pair(site, "write", after)


def _pair(part: Field, name: str, level: Level) -> None:
    """A stored read or readout against p P, a stored write or entry against P stored = r."""
    if name not in part:
        return
    ctx, n, row, end = part.ctx, level.gauge.cols, name in ("read", "readout"), name in ("entry", "readout")
    given = part[name].having(("source", "stored", *(("distance",) if ctx.floats else ())))
    size = 1
    if end:  # entry (n, k) and readout (k, n) may have several columns or rows
        first = given["source"].items()
        size = len(first) if row else len(first[0].items()) if first else 0
    source, stored = (given[k].matrix(*((size, n) if row else (n, size))) for k in ("source", "stored"))
    error = stored - source @ level.gauge if row else level.gauge @ stored - source
    if not ctx.floats:
        error.must_vanish(given.place, "stored = source P" if row else "P stored = source")
        return
    distance = (error @ level.inverse).norm() / (1 - level.rho) if row else error.norm()
    given["distance"].covers(distance)
    ctx.relative(given.place, name if end else f"{name}s", distance, source.norm())


def norm_rule(part: Field) -> tuple[Fraction, Fraction | None]:
    """(eps, cap) of ``norm``."""
    part.having(("eps", "cap"))
    eps = part["eps"].number()
    cap = None if part["cap"].value is None else part["cap"].number()
    if eps < 0 or (eps and not part.ctx.floats) or (cap is not None and cap <= 0):
        raise part.refused("expected eps >= 0 (0 with rationals: c^2 would be irrational) and cap > 0 or null")
    return eps, cap


def root(x: Fraction, bits: int = 128) -> tuple[Fraction, Fraction]:
    """Rationals around sqrt(x), relative distance below 2^-bits."""
    k = max(0, bits + 1 - (x.numerator * x.denominator).bit_length() // 2)
    r, den = math.isqrt(x.numerator * x.denominator << 2 * k), x.denominator << k
    return Fraction(r, den), Fraction(r + 1, den)


def _factor(given: Field, g: Mat, rule: Any) -> tuple[Fraction, Fraction]:
    """The stored c_l and how far c(g_l) may be from it; brackets of both square roots decide."""
    stored = given.number()
    (eps, cap), square = rule, g.square()
    low = high = Fraction(1)
    if square:
        (a, b), (s, t) = root(Fraction(g.cols)), root(square)
        low, high = a / (t + eps), b / (s + eps)
        if cap is not None:
            low, high = min(low, cap), min(high, cap)
    gap = max(stored - low, high - stored, Fraction(0))
    if gap > FACTOR_LIMIT * low:
        raise given.refused(f"off by {show(gap)}, the rule gives {show(low)}")
    return stored, gap


def _factor_squared(given: Field, g: Mat, rule: Any) -> Fraction:
    """The stored c_l^2, which must be the rule's."""
    cap, square = rule[1], g.square()
    true = g.cols / square if square else Fraction(1)
    if square and cap is not None:
        true = min(true, cap * cap)
    if given.number() != true:
        raise given.refused("is not min(cap^2, n / sum g^2)")
    return true


def _scale(level: Field, expected: Fraction) -> Fraction:
    """The stored s_l^2, which must be the one expected."""
    if level["scale_squared"].number() != expected:
        raise level["scale_squared"].refused("is not s_0^2 = 1 or s_{l-1}^2 / c_{l-1}^2")
    return expected


def _model(data: Field) -> None:
    """The shape of ``model``: hashes of both checkpoints and the bounds of the controllers."""
    if "entry" not in data:
        raise Refused("entry", "missing")
    part = data["model"].having(("source", "converted", "controllers"))
    for side in ("source", "converted"):
        for name in part[side].having(FILES).value:
            digest = part[side][name]
            if not isinstance(digest.value, str) or not re.fullmatch("[0-9a-f]{64}", digest.value):
                raise digest.refused("expected a SHA-256 in lower-case hexadecimal")
    controllers = part["controllers"]
    for name in controllers.having((), controllers.value if isinstance(controllers.value, dict) else ()).value:
        controllers[name].number()


def _conclusion(ctx: Context, sites: int, form: str, bars: int) -> str:
    stated = f"{form} form of {sites} sites, {bars} bars"
    if not ctx.floats:
        return f"{stated}: A P = P' D and P^-1 hold exactly"
    parts = ", ".join(f"{name} {show(value)}" for name, value in sorted(ctx.facts.items()))
    claim = "the stored network equals exactly the mHC with (A~, p^, r^, e^, c^)"
    claim += ", W^ and T^" if "model" in ctx.data or "sidecar" in ctx.data else ""
    told = beside("checker_sidecar.py")["conclusion"](ctx.data) if "sidecar" in ctx.data else ""
    return f"{stated}: {claim}, each within its bound of the source (largest, relative: {parts}){told}"


def check_rank(data: Field) -> str:
    """rank >= k by an invertible minor, rank <= k by a factorisation."""
    ctx = data.ctx
    data.having((*HEAD, "shape", "matrix", "rank", "rows", "cols", "inverse", "left", "right"))
    data["numbers"].choice(("rational",))
    rows, cols = (size.integer(MAX_VALUES) for size in data["shape"].items(2))
    k = data["rank"].integer(min(rows, cols))
    given = data["matrix"].matrix(rows, cols)
    picks = []
    for name, size in (("rows", rows), ("cols", cols)):
        pick = [index.integer(size - 1) for index in data[name].items(k)]
        if len(set(pick)) < k:
            raise data[name].refused("an index twice")
        picks.append(pick)
    minor = Mat([[given.rows[i][j] for j in picks[1]] for i in picks[0]], k, given.den, ctx)
    ctx.place = "inverse"
    unit = minor @ data["inverse"].matrix(k, k)
    (identity(k, ctx) - unit).must_vanish("inverse", "minor inverse = I")
    ctx.place = "left"
    product = data["left"].matrix(rows, k) @ data["right"].matrix(k, cols)
    (given - product).must_vanish("left", "left right = matrix")
    return f"the {rows} x {cols} matrix has rank {k} exactly"


Poly = dict[int, int]
"""Coefficients by monomial; the exponents stand in one integer, the first variable highest: products add them."""


def polynomial(given: Field, variables: int) -> Poly:
    """Terms [coefficient, exponents] in strictly decreasing order of the exponents; not the zero polynomial."""
    out: Poly = {}
    last: int | None = None
    for term in given.items():
        coefficient, powers = term.items(2)
        monomial = 0
        for power in powers.items(variables):
            monomial = monomial << EXPONENT_BITS | power.integer(MAX_DEGREE)
        p, q = coefficient.pair()
        if not p or q != 1:
            raise coefficient.refused("expected an integer that is not zero")
        if last is not None and monomial >= last:
            raise powers.refused("terms are not in strictly decreasing order")
        out[monomial] = p
        last = monomial
    if not out:
        raise given.refused("the zero polynomial")
    return out


def check_nullstellensatz(data: Field) -> str:
    """sum h_i f_i = C by multiplying out; every h_i and f_i is used."""
    ctx = data.ctx
    data.having((*HEAD, "variables", "polynomials", "cofactors", "constant"))
    data["numbers"].choice(("rational",))
    variables = data["variables"].items()
    if len(variables) > MAX_VARIABLES:  # first: the search for a name twice is quadratic
        raise data["variables"].refused(f"more than {MAX_VARIABLES}")
    names: list[str] = []
    for given in variables:
        name = given.value
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,15}", name) or name in names:
            raise given.refused(f"found {_kind(name)}, expected a new name of up to 16 letters")
        names.append(name)
    polynomials = data["polynomials"].items()
    cofactors = data["cofactors"].items(len(polynomials))
    p, q = data["constant"].pair()
    if p <= 0 or q != 1:
        raise data["constant"].refused("expected a positive integer")
    left = {0: -p}
    for sides in zip(polynomials, cofactors):
        ctx.place = sides[1].place
        f, h = (polynomial(side, len(names)) for side in sides)
        a, b = (max(c.bit_length() for c in side.values()) // 30 + 1 for side in (f, h))
        ctx.spend(len(f) * len(h) * (400 + 8 * len(names) + a * b))  # a new term costs memory too
        for e, x in f.items():
            for t, y in h.items():
                left[e + t] = left.get(e + t, 0) + x * y
    for power, x in left.items():
        if x:
            raise Refused("cofactors", f"sum h f - C has a term in {_monomial(names, power)[:80]}")
    plural = "polynomials have no common zero"
    return f"{len(polynomials)} {plural} over any field whose characteristic does not divide {str(p)[:40]}"


def _monomial(names: list[str], power: int) -> str:
    """Its exponents, taken apart again."""
    parts = []
    for name in reversed(names):
        power, exponent = divmod(power, 1 << EXPONENT_BITS)
        parts.append(f"{name}^{exponent}" if exponent else "")
    return " ".join(filter(None, reversed(parts))) or "1"


KINDS: dict[str, Callable[[Field], str]] = {
    **dict.fromkeys(("identity", "binary", "graded", "norm"), check_chain),
    "rank": check_rank,
    "nullstellensatz": check_nullstellensatz,
}


# The front: nothing below lets an exception through.


@functools.cache
def beside(name: str) -> dict[str, Any]:
    """The names of a file beside this one, run by its path: ``python -I`` imports nothing from there."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


def check_text(text: str, *, file: Any = None, source: Any = None, work: int = 1, weights: bool = True) -> Result:
    """Check the certificate in ``text`` and, with ``file``, that the converted checkpoint is the one it speaks of.

    ``weights=False`` leaves out, of a sidecar's source, the weights: their hashes and bounds.
    """
    start = "refused: "
    try:
        data = load(text)
        if data.get("format_version") != FORMAT_VERSION or isinstance(data.get("format_version"), bool):
            raise Refused("format_version", f"found {_kind(data.get('format_version'))}, expected {FORMAT_VERSION}")
        ctx = Context(data, work)
        ctx.root.having(HEAD, data)
        reason = KINDS[ctx.root["kind"].choice(KINDS)](ctx.root)
        rest = {name: value for name, value in data.items() if name != "digest"}
        canonical = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode("ascii")
        if data["digest"] != hashlib.sha256(canonical).hexdigest():
            raise Refused("digest", "is not the SHA-256 of the contents")
        if source is not None and file is None:
            raise Refused("--source", "needs --file too")
        if file is not None:
            start = "consistent, but file or source do not match: "
            ctx.weights = weights
            compared = beside("checker_sidecar.py" if "sidecar" in data else "checker_files.py")
            compared["match"](ctx, Path(file), None if source is None else Path(source))
            reason += "; it matches the file"
            if source is not None:
                reason += f" and its source, controllers within {show(ctx.facts.get('controllers', Fraction(0)))}"
        facts = {name: float(value) * (1 + 2**-50) for name, value in ctx.facts.items()}
        return Result(True, f"accepted: {reason}", facts)
    except Refused as error:
        return Result(False, f"{start}{error}", {})
    except OSError as error:
        return Result(False, f"{start}{error.filename}: {error.strerror}", {})
    except Exception as error:  # whatever a hostile file provokes is a refusal, never an acceptance or a traceback
        return Result(False, f"{start}certificate: malformed ({type(error).__name__})", {})


def check_path(path: Any, *, file: Any = None, source: Any = None, work: int = 1) -> Result:
    """:func:`check_text` on a file."""
    try:
        if not Path(path).is_file():
            return Result(False, f"refused: {path}: not found or not a file", {})
        with Path(path).open("rb") as handle:
            raw = handle.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        return Result(False, f"refused: {path}: {error}", {})
    return check_text(raw.decode("latin-1"), file=file, source=source, work=work)


def main(arguments: list[str]) -> int:
    """The command line; see the top of the module."""
    options: dict[str, Any] = {}
    paths = []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("--file", "--source", "--work"):
            options[argument[2:]] = next(rest, None)
        else:
            paths.append(argument)
    work = options.pop("work", "1")
    if len(paths) != 1 or None in options.values() or not str(work).isdecimal() or paths[0].startswith("--"):
        print("usage: checker.py CERT.json [--file CONVERTED_DIR] [--source SOURCE_DIR] [--work FACTOR]")
        return 2
    result = check_path(paths[0], work=int(work[:9]), **options)
    print(" ".join(result.reason.encode("ascii", "backslashreplace").decode().split()))
    return 0 if result.accepted else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
