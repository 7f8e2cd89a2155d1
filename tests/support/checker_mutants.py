"""One-line changes of the checker, each of which some certificate must notice: name -> (old, new)."""

from __future__ import annotations

_RHO = 'if rho >= 1 or ctx.bound(part, place, "rho", rho) >= 1:'
_SITES = "for l, site in enumerate(sites):\n        place = ctx.place"
_ENTRIES = "for i, row in enumerate(self.rows):\n            for j, x in enumerate(row):\n"
_WRITE = '_pair(ctx, site, place, "write", after, mixer)'
_SLOTS = "for i, s in enumerate(row)}) < len(row):"
_ONE = "low = high = Fraction(1)\n    if square:"
_NORM = "max((sum(map(abs, row)) for row in self.rows)"
_LAST = "    if rule and not ctx.floats:\n        _scale(ctx, given[-1]"
_VERSION = 'isinstance(data.get("format_version"), bool)'

MUTANTS: dict[str, tuple[str, str]] = {
    "inverse not checked": ('rest.must_vanish(place, "P Q = I")', "pass"),
    "rho of 1 accepted": (_RHO, _RHO.replace("rho >= 1 or ", "").replace(">= 1:", ">= 100:")),
    "stated rho not limited": (_RHO, _RHO.replace(">= 1:", ">= 9:")),
    "rho not compared": (_RHO, "if rho >= 1:"),
    "bounds not compared": ("if stated < computed:", "if False:"),
    "bounds a tenth low": ("if stated < computed:", "if stated < computed * Fraction(9, 10):"),
    "sizes not limited": ("if error > limit * size:", "if False:"),
    "mixers limited at 1e-11": ("MIXER_LIMIT = Fraction(1, 10**12)", "MIXER_LIMIT = Fraction(1, 10**11)"),
    "others limited at 1e-5": ("OTHER_LIMIT = Fraction(1, 10**9)", "OTHER_LIMIT = Fraction(1, 10**5)"),
    "factor limited at 1e-5": ("FACTOR_LIMIT = Fraction(1, 10**14)", "FACTOR_LIMIT = Fraction(1, 10**5)"),
    "first site only": (_SITES, _SITES.replace("(sites)", "(sites[:1])")),
    "all but the last site": (_SITES, _SITES.replace("(sites)", "(sites[:-1])")),
    "first row only": (_ENTRIES, _ENTRIES.replace("self.rows", "self.rows[:1]")),
    "first column only": (_ENTRIES, _ENTRIES.replace("(row)", "(row[:1])")),
    "equation not checked": ('error.must_vanish(place, "A P = P\' D")', "pass"),
    "mixer transposed": ("carried - mixer @ before.gauge", "carried - mixer.transposed() @ before.gauge"),
    "gauge of the wrong level": ("carried = after.gauge @", "carried = before.gauge @"),
    "gates by column": ("scaled[t] if s == t else", "scaled[columns.index(t)] if s == t else"),
    "gates reversed": ("for p, q in gates]\n    diagonal", "for p, q in gates[::-1]]\n    diagonal"),
    "distance without inverse": ("distance = (error @ before.inverse).norm()", "distance = error.norm()"),
    "distance not divided": ("distance /= 1 - before.rho", "pass"),
    "read distance not divided": (".norm() / (1 - level.rho) if row", ".norm() if row"),
    "norm by the first row": (
        "max((sum(map(abs, row)) for row in self.rows)",
        "max((sum(map(abs, row)) for row in self.rows[:1])",
    ),
    "digest ignored": ('if data["digest"] != hashlib', 'if False and data["digest"] != hashlib'),
    "digest in file order": ("json.dumps(rest, sort_keys=True,", "json.dumps(rest, sort_keys=False,"),
    "version ignored": ('if data.get("format_version") != FORMAT_VERSION or', "if"),
    "version may be true": (f"or {_VERSION}", ""),
    "unknown fields allowed": ("if name not in needed and name not in tuple(optional):", "if False:"),
    "missing fields allowed": ("if name not in value:", "if False:"),
    "lengths not compared": ("if length is not None and len(value) != length:", "if False:"),
    "duplicate keys allowed": ('value if key not in out else _Bad("duplicate key")', "value"),
    "literals allowed": ('raise Refused(place or "certificate", value.why)', "pass"),
    "escapes allowed": ('r"[^\\x00-\\x7f]|\\\\"', 'r"[^\\x00-\\x7f]"'),
    "depth not limited": ("if depth > MAX_DEPTH:", "if False:"),
    "digits not limited": ("if len(d) > MAX_DIGITS:", "if len(d) > 2 * MAX_DIGITS:"),
    "values not limited": ("if count[0] > MAX_VALUES:", "if False:"),
    "rationals in any terms": ("(q < 2 or math.gcd(p, q) != 1)", "q < 1"),
    "floats in any spelling": ("if not math.isfinite(x) or x.hex() != value:", "if not math.isfinite(x):"),
    "infinity is a float": ("if not math.isfinite(x) or x.hex() != value:", "if x.hex() != value:"),
    "truth is a number": (
        "isinstance(value, bool) or not isinstance(value, int) or",
        "not isinstance(value, int) or",
    ),
    "identity gates free": ('if base == "identity" and (p, q) != (1, 1):', "if False:"),
    "binary gates free": ('if base == "binary" and (p not in (0, 1) or q != 1):', "if False:"),
    "binary gates may be halves": ("(p not in (0, 1) or q != 1)", "p not in (0, 1)"),
    "idle gates free": ("if p and not (s in slots[l] and s in slots[l + 1]):", "if False:"),
    "slots may repeat": (_SLOTS, _SLOTS.replace("< len(row)", "< 0")),
    "reads not checked": ('_pair(ctx, site, place, "read", before, mixer)', "pass"),
    "writes not checked": (_WRITE, "pass"),
    "writes at the wrong level": (_WRITE, _WRITE.replace("after", "before")),
    "entry not checked": ('_pair(ctx, data, "", "entry", levels[0], None)', "pass"),
    "readout not checked": ('_pair(ctx, data, "", "readout", levels[-1], None)', "pass"),
    "rule of c not checked": ("if gap > FACTOR_LIMIT * low:", "if False:"),
    "gap of c ignored": ("+ gap / c * (carried", "+ 0 * (carried"),
    "eps ignored": ("low, high = a / (t + eps), b / (s + eps)", "low, high = a / t, b / s"),
    "cap ignored": ("        if cap is not None:\n            low, high", "        if False:\n            low, high"),
    "zero gates as any others": (_ONE, _ONE.replace("Fraction(1)", "Fraction(2)")),
    "exact c not checked": ("if stored != true:", "if False:"),
    "exact cap ignored": ("if square and cap is not None:", "if False:"),
    "scales not checked": ("!= expected:", "!= expected and False:"),
    "last scale not checked": (_LAST, _LAST.replace("rule and not ctx.floats", "False")),
    "eps allowed with rationals": ("(eps and not ctx.floats) or ", ""),
    "negative cap allowed": (" or (cap is not None and cap <= 0)", ""),
    "metric not compared": ('ctx.bound(part, place, "metric_bound", error)', "pass"),
    "metric not limited": ('ctx.relative(f"{place}.metric", "metric", error, Fraction(1), OTHER_LIMIT)', "pass"),
    "metric may be full": ("or any(x for i, row in enumerate(t.rows) for x in row[:i])", ""),
    "metric as T T^T": ("(t.transposed() @ t - gauge", "(t @ t.transposed() - gauge"),
    "write maps not limited": ('if "model" in ctx.data and place != "levels[0]" else', "if False else"),
    "entry optional in a model": ('if "entry" not in ctx.data:', "if False:"),
    "minor not checked": ("(identity(k, ctx) - unit).must_vanish(", "(unit - unit).must_vanish("),
    "factorisation not checked": ("(given - product).must_vanish(", "(given - given).must_vanish("),
    "minor rows may repeat": ("if len(set(pick)) < k:", "if False:"),
}
