"""Situations that the checker of sidecars must judge, and mutants of it that judge one of them wrongly."""

from __future__ import annotations

import itertools
import runpy
from pathlib import Path

import certificate_cases as cases
from foreign_models import STATIC
from sidecar_situations import FILES, KINDS, PLACES, SOURCES, Bench, index, nudged

from streamgauge.proofs import checker


def situations(pairs, folder):
    """(certificate, converted, source, how the verdict must start, what it must contain)."""
    out, count = [], itertools.count()

    def add(kind, change, words, hashes=True):
        it = Bench(pairs(kind), folder / str(next(count)))
        change(it)
        if hashes:
            it.rehash()
        out.append((cases.sealed_text(it.data), it.new, it.old, "accepted: " if words == "" else None, words))

    for kind in (*KINDS, *STATIC):
        add(kind, lambda it: None, "", hashes=False)
    for table in (FILES, SOURCES):
        for name, (kind, change, words) in table.items():
            add(kind, change, words, hashes="index" not in name)
    for kind, change, words in PLACES.values():
        add(kind, lambda it, change=change: change(it.data["sidecar"]), words, hashes=False)
    add("bias", lambda it: it.source("hc_head_fn", nudged(3)), "source hc_head_fn: its SHA-256", hashes=False)
    add("bias", lambda it: it.stored("head.base", nudged(3)), "sidecar.safetensors: its SHA-256", hashes=False)
    add("bias", lambda it: index(it.old, lambda t: t.update(hc_head_fn="../x")), "names a file out", hashes=False)
    add("bias", _loose_and_wrong, "controllers off by")
    add("bias", _other_certificate, "came with another certificate", hashes=False)
    return out


def _loose_and_wrong(it):
    it.stored("head.weight", lambda a: a * 1.001)
    it.data["sidecar"]["controllers"]["head.weight"] = (1e9).hex()


def _other_certificate(it):
    (it.new / "certificate.json").write_text(cases.sealed_text(it.data))
    it.data["sites"][0]["residual"] = (1.0).hex()


def wrong(check_text, situations_):
    """The first situation that this checker judges wrongly."""
    for text, new, old, start, words in situations_:
        reason = check_text(text, file=new, source=old).reason
        if (start is None) == reason.startswith("accepted: ") or words not in reason:
            return words, reason
    return None


def copied_checker(folder, file=None, old="", new=""):
    """``check_text`` of a copy of the checker's files, one of them changed at the one place where ``old`` stands."""
    folder.mkdir()
    for path in Path(checker.__file__).parent.glob("checker*.py"):
        text = path.read_text()
        if path.name == file:
            assert text.count(old) == 1, (file, old, text.count(old))
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return runpy.run_path(str(folder / "checker.py"))["check_text"]


MUTANTS = {
    "checker_sidecar.py": {
        "hash of the file": ('if files["sha256"](file / name, ctx) != part["sha256"]:', "if False:"),
        "own certificate": ('    files["own_certificate"](ctx, file)\n', ""),
        "tensors unspoken of": ("elif not key.endswith(free):", "elif False:"),
        "bounds and metrics": ('if not (key in part["controllers"] and', "if not (True or"),
        "invented controllers": ("        if key not in found:\n", "        if False:\n"),
        "bit for bit": ("        stored.must_be(prefix + key, values)", "        pass"),
        "no mixers": ('        out[f"sites.{l}.mixer.matrix"] = site["mixer"]\n', ""),
        "no gates": ('        out[f"sites.{l}.gates"] = [site["gates"]]\n', ""),
        "no write maps": ('        out[f"sites.{l}.gauge.write"] = levels[l + 1]["inverse"]\n', ""),
        "record unread": ("    _match_record(ctx, stored)\n", ""),
        "record of mixers": ('            "mixers": record["mixers"],\n', '            "mixers": part["mixers"],\n'),
        "record of sites": ('(len(record["sites"]), moved)', '(len(data["sites"]), part["dynamic"])'),
        "record of tensors": ('record["source"]["tensors_sha256"]', 'fingerprint(part["tensors"])'),
        "record of a fit": ('"refined" in record or bool(record.get("from_model"))', "False"),
        "record of the ledger": ('sorted(counted["consumed"])', 'sorted(part["tensors"])'),
        "index unread": ("        _match_index(ctx, file, set(stored.entries))", "        pass"),
        "stale keys": ("        if name in table:\n", "        if False:\n"),
        "ghosts": ("or name not in made:", "or False:"),
        "source unread": (
            '        _beside("checker_source.py")["match"](ctx, stored, held, prefix, controllers)',
            "        pass",
        ),
        "paths in the index": ('if any("/" in value or', "if any("),
        "exact and moving": ('and mixers == "exact":', "and False:"),
        "tensors that nobody uses": ('sorted(set(part["tensors"].value) - used)', "()"),
        "offset without gamma": ('and field["gamma"].value is None:', "and False:"),
        "sweeps where there are none": ('if field["kind"].value != "sinkhorn" and', "if False and"),
    },
    "checker_source.py": {
        "hashes": ("            source.must_be_stated(name, entry)", "            pass"),
        "config": ('    if found != part["config"]:', "    if False:"),
        "mixers": ("    if away > allowed:", "    if False:"),
        "identity": ('if part["mixers"] == "identity":', 'if part["mixers"] == "none":'),
        "mean": ('    if part["mixers"] == "mean":\n        return\n', ""),
        "bases": ('        stored.must_be(f"{where}.base", [x.hex() for x in base])\n', ""),
        "scales": ('            stored.must_be(f"{where}.scale", [x.hex() for x in scales])', "            pass"),
        "head bases": (
            '        stored.must_be(f"{at}.base", [x.hex() for x in source.flat(head["read"]["base"])])\n',
            "",
        ),
        "head scales": ('        stored.must_be(f"{at}.scale", [source.scale(head["read"]).hex()])\n', ""),
        "moving": ('    if moved > part["dynamic"] or', "    if False and"),
        "scale of a mixer": ('if mix["weight"] is None or source.scale(mix) == 0:', "if True:"),
        "columns": ('if view["layout"] == "columns":', "if False:"),
        "rows": ("else [rows[i] for i in take]", "else rows[: len(take)]"),
        "flat": ("else [values[i] for i in take]]", "else values[: len(take)]]"),
        "controllers": (
            "            _match_controller(ctx, source, stored, (prefix, name, l), place, blocks)",
            "            pass",
        ),
        "bounds": ("[name].covers(worst)", "[name].covers(Fraction(0))"),
        "limits": ('    ctx.relative(name, "controllers", worst *', '    ctx.relative(name, "controllers", 0 *'),
        "gauge transposed": ("p = gauge.rows[s][t] * down", "p = gauge.rows[t][s] * down"),
        "first output": ("    for o, row in enumerate(rows):", "    for o, row in enumerate(rows[:1]):"),
        "first stream": ("    for t in range(n):\n        image", "    for t in range(1):\n        image"),
        "gamma": ("    if gamma is not None:\n        scale =", "    if False:\n        scale ="),
        "offset": ("[Fraction(x) + offset for x", "[Fraction(x) for x"),
        "one number": ("        if len(found) != 1:", "        if False:"),
        "blend": ('None if site["blend"] is None else', "None if True else"),
    },
    "checker_mixers.py": {
        "transpose": ('if recipe["transpose"]:', "if False:"),
        "order": ('    if recipe["order"] == "columns":\n        z = _turned(z)\n', ""),
        "start": ('if recipe["start"] == "softmax":', "if True:"),
        "start eps": ("s = [[x + start_eps for x in row] for row in s]", "pass"),
        "eps": ('total = total + eps if mode == "add" else', "total ="),
        "first half-step": ('if step or recipe["start"] == "exp" or not linear:', "if True:"),
        "iterations": ('range(recipe["iterations"])', "range(20)"),
        "temperature": ("Decimal(x) / Decimal(warmth)", "Decimal(x)"),
        "tolerance": ("10**13)", "10**3)"),
        "blend": ("share * x + (1 - share)", "(1 - share) * x + share"),
        "permutations": ("made[i][j] += weight", "made[j][i] += weight"),
    },
}  # fmt: skip
