"""The checker on its own: what it refuses and by what place, its limits, its command line, its one-file-ness."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import certificate_cases as cases
import certificate_faults as faults
import pytest
from certificate_truth import is_true
from checker_mutants import MUTANTS
from mutated_module import mutated

from streamgauge.proofs import checker

CHECKER = Path(checker.__file__)


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    return faults.good(tmp_path_factory.mktemp("models"))


def run(*arguments, flags=("-I", "-S"), cwd="/"):
    return subprocess.run(
        [sys.executable, *flags, str(CHECKER), *map(str, arguments)],
        capture_output=True, text=True, timeout=30, cwd=cwd, check=False,
    )  # fmt: skip


def test_every_good_document_is_accepted_and_true(documents):
    for name, data in documents.items():
        result = checker.check_text(cases.sealed_text(data))
        assert result.accepted, (name, result.reason)
        assert is_true(data), name


@pytest.mark.parametrize("name", faults.FALSE)
def test_a_false_statement_is_refused_by_its_place(documents, name):
    data = faults.edited(documents, faults.FALSE[name])
    assert not is_true(data), "the fault does not make it false"
    result = checker.check_text(cases.sealed_text(data))
    assert not result.accepted
    assert faults.FALSE[name][2] in result.reason
    assert result.reason.startswith("refused: ")


@pytest.mark.parametrize("name", faults.MALFORMED)
def test_a_malformed_statement_is_refused_by_its_place(documents, name):
    result = checker.check_text(cases.sealed_text(faults.edited(documents, faults.MALFORMED[name])))
    assert not result.accepted
    assert result.reason.startswith(f"refused: {faults.MALFORMED[name][2]}"), result.reason
    assert "malformed" not in result.reason
    assert len(result.reason) < 250
    assert "\n" not in result.reason


def literal(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


def texts(text):
    """Faults of the text itself: what json would let through, or choke on."""
    gate = '"gates": ["'
    return {
        "empty": ("", "character 0: not JSON"),
        "not JSON": ("hello", "character 0: not JSON"),
        "a list": ("[]", "certificate: found no JSON object"),
        "a string": ('"x"', "certificate: found no JSON object"),
        "a number": ("1", "certificate: found no JSON object"),
        "Infinity": (literal(text, gate, '"gates": [Infinity, "'), "sites[0].gates[0]: number literal Infinity"),
        "NaN": (literal(text, gate, '"gates": [NaN, "'), "sites[0].gates[0]: number literal NaN"),
        "1e999": (literal(text, gate, '"gates": [1e999, "'), "sites[0].gates[0]: number literal 1e999"),
        "float literal": (literal(text, gate, '"gates": [0.5, "'), "sites[0].gates[0]: number literal 0.5"),
        "float version": (
            literal(text, '"format_version": 1', '"format_version": 1.0'),
            "format_version: number literal 1.0",
        ),
        "huge integer": (
            literal(text, gate, f'"gates": [{"9" * 5000}, "'),
            "sites[0].gates[0]: integer literal of 5000 characters",
        ),
        "top-level Infinity": ("Infinity", "certificate: number literal Infinity"),
        "duplicate key": (literal(text, '"kind"', '"kind": "binary", "kind"'), "kind: duplicate key"),
        "duplicate inner key": (literal(text, '"mixer"', '"mixer": [], "mixer"'), "sites[0].mixer: duplicate key"),
        "deep list": ("[" * 100_000, "character 8: nested deeper than 8"),
        "deep object": ('{"a":' * 100_000, "character 40: nested deeper than 8"),
        "deep inside": (literal(text, gate, '"gates": [[[[[[["'), "nested deeper than 8"),
        "truncated": (text[: len(text) // 2], "character"),
        "last byte lost": (text[:-1], f"character {len(text) - 1}: not JSON"),
        "trailing data": (text + "{}", f"character {len(text)}: not JSON"),
        "escape": (literal(text, '"kind"', '"\\u006bind"'), "found a backslash"),
        "beyond ASCII": (literal(text, '"kind"', '"k\u0131nd"'), "found a backslash or a character beyond ASCII"),
        "byte order mark": ("\ufeff" + text, "character 0: found a backslash or a character beyond ASCII"),
        "null byte": (literal(text, '"kind"', '"ki\0nd"'), "not JSON"),
        "arabic digit": (literal(text, gate, '"gates": ["\u0661", "'), "a character beyond ASCII"),
        "too large": (text + " " * checker.MAX_BYTES, f"certificate: larger than {checker.MAX_BYTES} bytes"),
        "too many values": (json.dumps({"a": [0] * 400_000}), "a[299998]: more than 300000 values"),
        "millions of values": ("[" + "[]," * 2_000_000, "certificate: more than 300000 values"),
        "millions of quotes": ('"' * 2_000_001, "certificate: more than 300000 values"),
        "long key": (json.dumps({"k" * 100_000: 1}), "format_version: found null"),
    }


NAMES = list(texts(cases.sealed_text({"kind": "", "format_version": 1, "sites": [{"gates": ["", ""], "mixer": 0}]})))


@pytest.mark.parametrize("name", NAMES)
def test_text_that_json_would_let_through_is_refused_by_its_place(documents, name):
    text, place = texts(cases.sealed_text(documents["exact-binary"]))[name]
    result = checker.check_text(text)
    assert not result.accepted
    assert place in result.reason
    assert "malformed" not in result.reason
    assert len(result.reason) < 250


def test_digest_is_checked_last_and_by_name(documents):
    data = documents["exact-binary"]
    text = cases.sealed_text(data)
    digest = json.loads(text)["digest"]
    for wrong in (digest.upper(), digest[:-1], "", "0" * 64):
        assert (
            checker.check_text(text.replace(digest, wrong)).reason
            == "refused: digest: is not the SHA-256 of the contents"
        )
    for literal_value in ("null", "1", "[]", "{}"):
        assert "digest" in checker.check_text(text.replace(f'"{digest}"', literal_value)).reason


def test_layout_and_key_order_do_not_matter(documents):
    data = json.loads(cases.sealed_text(documents["float-norm"]))
    assert checker.check_text(json.dumps(dict(reversed(data.items())), indent=3)).accepted


def unit_chain(gauge, inverse, mixer=None, sites=0):
    """A chain of equal levels and sites."""
    n = len(gauge)
    return {
        "format_version": 1,
        "kind": "identity",
        "numbers": "rational",
        "slots": [list(range(n))] * (sites + 1),
        "levels": [{"gauge": gauge, "inverse": inverse}] * (sites + 1),
        "sites": [{"mixer": mixer, "gates": ["1"] * n}] * sites,
    }


def unit(n, value="1"):
    return [[value if i == j else "0" for j in range(n)] for i in range(n)]


def limits():
    """Certificates too costly to check, and the limit that must be named."""
    dense = [[str(7 ** (i + j) % 10**9) for j in range(380)] for i in range(380)]
    digits = [["7" * 4300] * 30] * 30
    primes = [[f"1/{10**4299 + 3 * i + 60 * j}" for j in range(10)] for i in range(10)]
    thin = [[f"1/{10**4299 + 3 * (i == j) + 3}" for j in range(20)] for i in range(20)]
    middling = [["7" * 300] * 8] * 8
    return {
        "dense": (unit_chain(dense, dense), "levels[0]: needs more arithmetic than"),
        "digits": (unit_chain(digits, digits), "levels[0]: needs more arithmetic than"),
        "denominators": (unit_chain(primes, primes), "levels[0].gauge: common denominator of more than 100000 bits"),
        "thin denominators": (unit_chain(unit(20), unit(20), thin, 3), "sites[0]"),
        "many sites": (unit_chain(unit(8), unit(8), middling, 170), "sites[0]: A P = P' D fails"),
    }


@pytest.mark.parametrize("name", limits())
def test_arithmetic_is_limited_by_name(tmp_path, name):
    """Each ends in seconds of processor time, in a process of its own."""
    data, place = limits()[name]
    path = tmp_path / "cert.json"
    path.write_text(cases.sealed_text(data))
    done = run(path)
    assert done.returncode == 1
    assert place in done.stdout
    assert done.stderr == ""


def test_more_work_can_be_allowed(documents, monkeypatch):
    monkeypatch.setattr(checker, "MAX_WORK", 1000)
    text = cases.sealed_text(documents["exact-binary"])
    refused = checker.check_text(text)
    assert (
        refused.reason == "refused: levels[0]: needs more arithmetic than 1000 digit products; raise it with --work"
    )
    assert checker.check_text(text, work=1000).accepted


@pytest.mark.parametrize("flags", [("-I", "-S"), ("-I", "-S", "-O"), ("-I", "-S", "-OO"), ()], ids=" ".join)
def test_runs_alone_from_any_folder(documents, tmp_path, flags):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(cases.sealed_text(documents["float-norm"]))
    bad.write_text(cases.sealed_text(faults.edited(documents, faults.FALSE["last mixer"])))
    accepted, refused = run(good, flags=flags, cwd=tmp_path), run(bad, flags=flags, cwd=tmp_path)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert accepted.stdout.startswith("accepted: norm on graded form of 3 sites")
    assert accepted.stdout.count("\n") == 1
    assert (refused.returncode, refused.stderr) == (1, "")
    assert refused.stdout.startswith("refused: sites[2]: A P = P' D fails at entry")


def test_command_line_faults(tmp_path, documents):
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(documents["exact-binary"]))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for arguments, code, words in (
        ((), 2, "usage: checker.py CERT.json"),
        ((cert, cert), 2, "usage"),
        (("--file",), 2, "usage"),
        ((cert, "--file"), 2, "usage"),
        ((cert, "--work", "x"), 2, "usage"),
        ((cert, "--colour"), 2, "usage"),
        ((tmp_path / "none.json",), 1, "none.json: not found or not a file"),
        ((tmp_path,), 1, "not found or not a file"),
        ((fifo,), 1, "not found or not a file"),
        ((cert, "--file", tmp_path), 1, "consistent, but file or source do not match: model: missing"),
        ((cert, "--source", tmp_path), 1, "refused: --source: needs --file too"),
        ((cert, "--work", "3"), 0, "accepted: binary form"),
    ):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (code, ""), arguments
        assert words in done.stdout
        assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("name", ["checker.py", "checker_files.py"])
def test_only_the_standard_library_and_no_assert(name):
    tree = ast.parse(CHECKER.with_name(name).read_text())
    names = set()
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert)
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(str(node.module).split(".")[0])
    assert names <= sys.stdlib_module_names
    assert not names & {"os", "subprocess", "pickle", "importlib", "ctypes", "socket"}


# Mutants: the checker with one line changed must treat at least one certificate differently.


@pytest.fixture(scope="module")
def corpus(documents):
    good = [cases.sealed_text(data) for data in documents.values()]
    faulty = [*faults.FALSE.values(), *faults.MALFORMED.values()]
    bad = [(cases.sealed_text(faults.edited(documents, fault)), fault[2]) for fault in faulty]
    bad += [v for k, v in texts(cases.sealed_text(documents["exact-binary"])).items() if k != "too large"]
    bad += [(good[1].replace(json.loads(good[1])["digest"], "0" * 64), "digest: is not")]
    return good, bad


def noticed(module, good, bad):
    """Whether something bad is accepted or refused for another reason, or something good is refused."""
    if not all(module.check_text(text).accepted for text in good):
        return True
    results = ((module.check_text(text), place) for text, place in bad)
    return any(result.accepted or place not in result.reason for result, place in results)


def test_the_corpus_convicts_no_innocent(corpus):
    assert not noticed(mutated(checker, "FORMAT_VERSION = 1", "FORMAT_VERSION = 1 "), *corpus)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(corpus, name):
    assert noticed(mutated(checker, *MUTANTS[name]), *corpus)
