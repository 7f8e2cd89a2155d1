"""200 random tamperings of good certificates: each refused with its place, and true ones do not match the file."""

from __future__ import annotations

import copy
import json
import random
import re
import resource
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import certificate_cases as cases
import pytest
from certificate_truth import is_true

from streamgauge.proofs import checker

COUNT, SECONDS = 200, 2
WORDS = ["identity", "binary", "graded", "norm", "rank", "float", "rational", "0" * 64]
LITERALS = ["Infinity", "-Infinity", "NaN", "1e999", "0.5", "9" * 5000, "-1e-400"]
JUNK = [None, True, False, 5, [], {}, "x", "", "Infinity", "1e3000000", "0x1p+0", "1/0", "9" * 4400, [[]], [["1"]]]
PLACE = re.compile(r"^refused: ((?:character \d+)|[\w.\[\]-]+): .+$")


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """name -> (document, converted folder or None); converted checkpoints carry their certificate."""
    out = {name: (data, None) for name, data in cases.documents().items()}
    for name, (new, _, data) in cases.models(tmp_path_factory.mktemp("models")).items():
        (new / "certificate.json").write_text(cases.sealed_text(data))
        out[name] = data, new
    return out


def leaves(value, path=()):
    """(path, value) of everything inside, containers included."""
    if path:
        yield path, value
    for key, item in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        if path or key != "digest":
            yield from leaves(item, (*path, key))


def spelled(path):
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")


def parent(data, path):
    for step in path[:-1]:
        data = data[step]
    return data


def other_number(rng, text):
    """Another number in the same canonical spelling."""
    if "0x" in text:
        x = float.fromhex(text)
        choices = [-x, 0.0, x * (1 + 1e-6), x * (1 + 2**-52), x * (1 - 2**-52), x + 1, x * 1e300, x / 3, 5e-324]
        return rng.choice([y for y in choices if y.hex() != text and abs(y) < 1e308]).hex()
    x = Fraction(text)
    return str(rng.choice([y for y in (-x, x + 1, x - 1, x * 2, x + Fraction(1, 7), x / 10**40) if y != x]))


def well_formed(rng, data):
    """Change one number, integer, word or hash into another well-written one; returns the path."""
    path, value = rng.choice([(p, v) for p, v in leaves(data) if isinstance(v, str | int)])
    if isinstance(value, int):
        new = value + rng.choice([-1, 1])
    elif re.fullmatch(r"-?(0x[01]\.[0-9a-f]+p[+-]\d+|\d+(/\d+)?)", value) and len(value) < 64:
        new = other_number(rng, value)
    else:
        new = rng.choice([w for w in WORDS if w != value])
    parent(data, path)[path[-1]] = new
    return path


def malformed(rng, data):
    """Damage the structure or a value: the path, what to replace in the text, whether it is well written still."""
    path, value = rng.choice(list(leaves(data)))
    place, key = parent(data, path), path[-1]
    kind = rng.choice(["drop", "junk", "literal", "deep", "extra", "unknown", "duplicate"])
    if kind == "junk":
        place[key] = rng.choice([j for j in JUNK if type(j) is not type(value) or isinstance(j, str)])
    elif kind == "literal":
        place[key] = "@literal@"
    elif kind == "deep":
        for _ in range(rng.choice([9, 50])):
            place[key] = [place[key]]
    elif kind == "extra" and isinstance(value, list):
        value.append(copy.deepcopy(value[0]) if value else "1")
    elif kind == "unknown" and isinstance(value, dict) and path != ("model", "controllers"):
        value["remark"] = "1"
        path = (*path, "remark")
    elif kind == "duplicate" and isinstance(key, str):
        place["@again@"] = place[key]
        return path, ('"@again@"', json.dumps(key)), False
    else:
        del place[key]
        optional = key in ("entry", "readout", "read", "write") or (path[1:2] == ("controllers",) and len(path) == 3)
        return path, ("@", "@"), optional  # without an optional part the statement is weaker, but well written
    return path, ('"@literal@"', rng.choice(LITERALS)), False


def tampering(seed, originals):
    """(name, path or None, changed data or None, text with the old digest, text with a new one)."""
    rng = random.Random(seed)
    name = rng.choice(sorted(originals))
    original = originals[name][0]
    data, old = copy.deepcopy(original), json.loads(cases.sealed_text(original))["digest"]
    sort = rng.choice(["number", "number", "structure", "structure", "text"])
    if sort == "text":
        text = cases.sealed_text(original)
        cut = rng.randrange(len(text))
        return name, None, None, text[:cut], text[:cut] + text[cut + 1 :].replace(old, "0" * 64)
    if sort == "number":
        path = well_formed(rng, data)
        return name, path, data, json.dumps({**data, "digest": old}), cases.sealed_text(data)
    path, (mark, literal), whole = malformed(rng, data)
    sealed = cases.sealed_text(data)
    plain = json.dumps({**data, "digest": old})
    return name, path, data if whole else None, plain.replace(mark, literal), sealed.replace(mark, literal)


def limited():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def test_random_tamperings(originals, tmp_path):
    accepted = matched = 0
    flags = [("-I", "-S"), ("-I", "-S", "-O")]
    for seed in range(COUNT):
        name, path, data, plain, sealed = tampering(seed, originals)
        where = (seed, name, path)
        cert = tmp_path / "cert.json"
        cert.write_text(plain)
        done = subprocess.run(
            [sys.executable, *flags[seed % 2], checker.__file__, str(cert)],
            capture_output=True, text=True, timeout=60, preexec_fn=limited, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, ""), (where, done)
        place = PLACE.match(done.stdout.strip())
        assert place, (where, done.stdout)
        assert "malformed" not in done.stdout, (where, done.stdout)
        result = checker.check_text(sealed)
        if data is None:
            assert not result.accepted, (where, result.reason)
            found = place[1]
            near = path is None or found.startswith(("character", spelled(path))) or spelled(path).startswith(found)
            assert near or _counts(found, path), (where, done.stdout)
            continue
        assert result.accepted == is_true(data), (where, result.reason)
        if result.accepted:
            accepted += 1
            cert.write_text(sealed)
            folder = originals[name][1]
            told = checker.check_path(cert, file=folder or Path(tmp_path))
            assert not told.accepted
            assert told.reason.startswith("consistent, but file or source do not match: "), told.reason
            matched += folder is not None
        else:
            assert PLACE.match(result.reason), (where, result.reason)
    assert accepted >= 5, accepted
    assert matched >= 2, matched


def _counts(found, path):
    """A removed or added site, level, slot or row is told where two lengths disagree."""
    if path[0] == "slots":
        return found.startswith(("slots", "levels", "sites"))
    if path[0] in ("entry", "readout"):
        return found.startswith(path[0])
    return found in ("slots", "levels", "rows", "cols", "inverse", "left", "right") and path[0] in (
        "sites", "slots", "levels", "rank", "shape", "rows", "cols", "matrix",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["graded-gate", "norm-linear"])
def test_true_alterations_differ_from_the_file_bit_for_bit(originals, name, tmp_path):
    """Without the checkpoint's own certificate to compare with: one unit in the last place of anything stored."""
    data, folder = originals[name]
    bare = tmp_path / "bare"
    bare.mkdir()
    for part in ("model.safetensors", "config.json"):
        (bare / part).write_bytes((folder / part).read_bytes())
    assert checker.check_text(cases.sealed_text(data), file=bare).accepted
    tried = 0
    for path, value in leaves(data):
        if isinstance(value, str) and "0x" in value and {"gauge", "inverse", "gates", "metric", "stored"} & set(path):
            if path[:3] in (("levels", 0, "inverse"), ("levels", cases.SITES, "gauge")):
                continue  # in no file: the inverse at entry, and a last gauge folded into the readout
            changed = copy.deepcopy(data)
            x = float.fromhex(value)
            parent(changed, path)[path[-1]] = (x * (1 + 2**-52) if x else 5e-324).hex()
            _loosen(changed)
            if is_true(changed):
                tried += 1
                reason = checker.check_text(cases.sealed_text(changed), file=bare).reason
                assert reason.startswith("consistent, but file or source do not match: "), (path, reason)
                assert "differs from the certificate" in reason
    assert tried > 30, tried


def _loosen(data):
    """Twice every bound: generous, still true."""
    for part in (*data["levels"], *data["sites"], data["entry"], data.get("readout", {})):
        for key in ("rho", "metric_bound", "residual", "distance"):
            if key in part:
                part[key] = (float.fromhex(part[key]) * 2 + 1e-15).hex()
