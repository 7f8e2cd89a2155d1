"""Certificates of polynomials without a common zero: made, checked by a second route, tampered with, mutated."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import flint
import pytest
import sympy as sp

from streamgauge.proofs import checker
from streamgauge.proofs.counterexample import algebra, boxed
from streamgauge.proofs.nullstellensatz import nullstellensatz_certificate
from streamgauge.theory.errors import InputError

CHECKER = Path(checker.__file__)
SYSTEMS = {
    "six": algebra.seed,
    "embedded": algebra.embedded,
    "directions": lambda: algebra.every_direction(3),
    "boxed": boxed.general_system,
    "numbers": lambda: boxed.system(boxed.Boxed()),
}


@pytest.fixture(scope="module")
def documents() -> dict[str, dict[str, Any]]:
    return {name: json.loads(make().certificate().text) for name, make in SYSTEMS.items()}


def sealed(data: dict[str, Any]) -> str:
    rest = {k: v for k, v in data.items() if k != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**rest, "digest": hashlib.sha256(canonical).hexdigest()})


def multiplied_out(data: dict[str, Any]) -> bool:
    """The same statement by flint's polynomials."""
    names = data["variables"]
    ring = flint.fmpz_mpoly_ctx.get(names)

    def poly(terms: Any) -> Any:
        return ring.from_dict({tuple(e): int(c) for c, e in terms})

    total = sum((poly(h) * poly(f) for h, f in zip(data["cofactors"], data["polynomials"])), ring.from_dict({}))
    return bool(total == ring.constant(int(data["constant"])) and int(data["constant"]) > 0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_accepted_and_true_by_another_multiplication(documents, name):
    data = documents[name]
    assert multiplied_out(data)
    result = checker.check_text(sealed(data))
    assert result.accepted
    assert f"characteristic does not divide {data['constant']}" in result.reason


@pytest.mark.parametrize("name", ["six", "directions", "numbers"])
def test_tampering_any_coefficient_or_exponent_is_refused(documents, name):
    """Every single number, with a digest that fits."""
    original, tried = documents[name], 0
    for side in ("polynomials", "cofactors"):
        for i, poly in enumerate(original[side]):
            for j, (coefficient, exponents) in enumerate(poly):
                for value in {int(coefficient) + 1, int(coefficient) - 1, -int(coefficient), 2 * int(coefficient), 0}:
                    data = copy.deepcopy(original)
                    data[side][i][j][0] = str(value)
                    assert not checker.check_text(sealed(data)).accepted, (side, i, j, value)
                    tried += 1
                for k in range(len(exponents)):
                    data = copy.deepcopy(original)
                    data[side][i][j][1][k] += 1
                    assert not checker.check_text(sealed(data)).accepted, (side, i, j, k)
                    tried += 1
                data = copy.deepcopy(original)
                del data[side][i][j]
                assert not checker.check_text(sealed(data)).accepted, (side, i, j)
    for constant in ("1", "3", "0", "-2", "4"):
        if constant != original["constant"]:
            assert not checker.check_text(sealed({**original, "constant": constant})).accepted
    assert tried > 100


FAULTS: dict[str, tuple[Any, str]] = {
    "numbers": (lambda d: d.update(numbers="float"), "numbers: "),
    "no constant": (lambda d: d.pop("constant"), "constant: missing"),
    "constant 0": (lambda d: d.update(constant="0"), "constant: expected a positive integer"),
    "constant 1/2": (lambda d: d.update(constant="1/2"), "constant: expected a positive integer"),
    "constant is a number": (lambda d: d.update(constant=2), "constant: found 2"),
    "extra field": (lambda d: d.update(remark="1"), "remark: unknown field"),
    "a cofactor too few": (lambda d: d["cofactors"].pop(), "cofactors: found 5 items, expected 6"),
    "a variable twice": (lambda d: d["variables"].__setitem__(1, "a"), "variables[1]: "),
    "a variable with a space": (lambda d: d["variables"].__setitem__(1, "a b"), "variables[1]: "),
    "a long variable": (lambda d: d["variables"].__setitem__(1, "a" * 17), "variables[1]: "),
    "variables no list": (lambda d: d.update(variables="ab"), "variables: found 'ab'"),
    "too many bad variables": (lambda d: d.update(variables=[1] * 65), "variables: more than 64"),
    "too many variables": (lambda d: d.update(variables=[f"x{i}" for i in range(65)]), "variables: more than 64"),
    "a variable too many": (lambda d: d["variables"].append("z"), "polynomials[0][0][1]: found 10 items"),
    "empty polynomial": (lambda d: d["polynomials"].__setitem__(0, []), "polynomials[0]: the zero polynomial"),
    "empty cofactor": (lambda d: d["cofactors"].__setitem__(0, []), "cofactors[0]: the zero polynomial"),
    "term of three": (lambda d: d["polynomials"][0][0].append("1"), "polynomials[0][0]: found 3 items"),
    "coefficient 0": (
        lambda d: d["polynomials"][1][0].__setitem__(0, "0"),
        "polynomials[1][0][0]: expected an integer",
    ),
    "coefficient 1/2": (lambda d: d["polynomials"][1][0].__setitem__(0, "1/2"), "polynomials[1][0][0]: expected"),
    "coefficient 02": (lambda d: d["polynomials"][1][0].__setitem__(0, "02"), "polynomials[1][0][0]: found '02'"),
    "negative exponent": (
        lambda d: d["polynomials"][0][0][1].__setitem__(0, -1),
        "polynomials[0][0][1][0]: found -1",
    ),
    "huge exponent": (
        lambda d: d["polynomials"][0][0][1].__setitem__(0, 1001),
        "polynomials[0][0][1][0]: found 1001",
    ),
    "order": (lambda d: d["polynomials"][0].reverse(), "polynomials[0][1][1]: terms are not in strictly decreasing"),
    "a term twice": (lambda d: d["polynomials"][0].insert(0, d["polynomials"][0][0]), "polynomials[0][1][1]: terms"),
    "huge coefficient": (lambda d: d["polynomials"][1][0].__setitem__(0, "9" * 4301), "polynomials[1][0][0]: "),
    "false": (lambda d: d["polynomials"][1][0].__setitem__(0, "4"), "cofactors: sum h f - C has a term in "),
    "no polynomials": (lambda d: d.update(polynomials=[], cofactors=[]), "cofactors: sum h f - C has a term in 1"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_refused_by_their_place(documents, name):
    data = copy.deepcopy(documents["six"])
    FAULTS[name][0](data)
    result = checker.check_text(sealed(data))
    assert not result.accepted
    assert result.reason.startswith(f"refused: {FAULTS[name][1]}"), result.reason
    assert "\n" not in result.reason
    assert len(result.reason) < 250


def test_work_is_limited_by_name():
    terms = [["1", [i, j]] for i in reversed(range(60)) for j in reversed(range(60))]
    data = {
        "format_version": 1, "kind": "nullstellensatz", "numbers": "rational", "variables": ["x", "y"],
        "polynomials": [terms], "cofactors": [terms], "constant": "1",
    }  # fmt: skip
    result = checker.check_text(sealed(data))
    assert result.reason.startswith("refused: cofactors[0]: needs more arithmetic than")


def test_terms_that_all_differ_are_refused_before_they_fill_the_memory():
    """A million products without a common monomial once took seconds and a gigabyte."""
    terms = [["1", [i, (37 * i) % 1000]] for i in reversed(range(1000))]
    other = [["1", [(i * i) % 997, i]] for i in range(1000)]
    data = {
        "format_version": 1, "kind": "nullstellensatz", "numbers": "rational", "variables": ["x", "y"],
        "polynomials": [terms], "cofactors": [sorted(other, key=lambda t: t[1], reverse=True)], "constant": "1",
    }  # fmt: skip
    result = checker.check_text(sealed(data))
    assert result.reason.startswith("refused: cofactors[0]: needs more arithmetic than")


def test_largest_exponents_keep_their_places():
    """x^1000 y^1000 times itself: no exponent of a product runs into its neighbour's."""
    data = {
        "format_version": 1, "kind": "nullstellensatz", "numbers": "rational", "variables": ["x", "y", "z"],
        "polynomials": [[["1", [1000, 1000, 1000]]]], "cofactors": [[["1", [1000, 0, 1000]]]], "constant": "1",
    }  # fmt: skip
    assert "has a term in 1" in checker.check_text(sealed(data)).reason
    data["polynomials"].append([["1", [0, 0, 0]]])
    data["cofactors"].append([["1", [0, 0, 0]]])
    assert checker.check_text(sealed(data)).reason.endswith("has a term in x^2000 y^1000 z^2000")


def test_runs_alone(documents, tmp_path):
    path = tmp_path / "cert.json"
    path.write_text(sealed(documents["six"]))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CHECKER), str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("accepted: 6 polynomials have no common zero")


MUTANTS = {
    "constant not subtracted": ("left = {0: -p}", "left = {0: 0 * p}"),
    "sum not looked at": ("        if x:\n            raise", "        if False:\n            raise"),
    "cofactors ignored": ("left.get(e + t, 0) + x * y", "left.get(e + t, 0) + x"),
    "exponents of f alone": ("left[e + t] = left.get(e + t, 0)", "left[e] = left.get(e, 0)"),
    "order free": ("if last is not None and monomial >= last:", "if False:"),
    "zero coefficients": ("if not p or q != 1:", "if q != 1:"),
    "fractions": ("if not p or q != 1:", "if not p:"),
    "zero constant": ("if p <= 0 or q != 1:", "if q != 1:"),
    "empty polynomials": ("    if not out:\n", "    if False:\n"),
    "variables twice": (" or name in names:", ":"),
    "any number of variables": ("if len(variables) > MAX_VARIABLES:", "if False:"),
    "exponents that run into each other": ("<< EXPONENT_BITS |", "<< 1 |"),
    "exponents without place": ("monomial << EXPONENT_BITS |", "monomial |"),
    "any degree": ("power.integer(MAX_DEGREE)", "power.integer(10**9)"),
    "work not counted": ("ctx.spend(len(f) * len(h) * (400 + 8 * len(names) + a * b))", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_checker_are_noticed(documents, name):
    old, new = MUTANTS[name]
    source = CHECKER.read_text()
    assert source.count(old) == 1, source.count(old)
    module: dict[str, Any] = {"__name__": "checker_mutant"}
    exec(compile(source.replace(old, new), "mutant", "exec"), module)
    check_text = module["check_text"]
    noticed = not check_text(sealed(documents["six"])).accepted
    for change, place in FAULTS.values():
        data = copy.deepcopy(documents["six"])
        change(data)
        result = check_text(sealed(data))
        noticed |= result.accepted or not result.reason.startswith(f"refused: {place}")
    if name == "work not counted":
        noticed |= "needs more arithmetic" not in _costly(check_text)
    assert noticed


def _costly(check_text: Any) -> str:
    terms = [["1", [i]] for i in reversed(range(1000))]
    data = {
        "format_version": 1, "kind": "nullstellensatz", "numbers": "rational", "variables": ["x"],
        "polynomials": [terms] * 9, "cofactors": [terms] * 9, "constant": "1",
    }  # fmt: skip
    return str(check_text(sealed(data)).reason)


REFUSED = {
    "no cofactor for one": (
        (["x", "1 - x"], ["1"]),
        "cofactors: found 1, expected one for each of the 2 polynomials",
    ),
    "nothing": (([], []), "cofactors: found 0"),
    "no constant": ((["x", "1 - x"], ["1", "2"]), "cofactors: sum h f = 2 - x, expected a constant that is not zero"),
    "zero": ((["x", "-x"], ["1", "1"]), "cofactors: sum h f = 0, expected"),
    "zero cofactor": ((["1", "x"], ["1", "0"]), "cofactors[1]: is zero"),
    "no polynomial": ((["sqrt(x)", "1 - x"], ["1", "1"]), "polynomials[0]: "),
    "no rational": ((["pi*x", "1 - x"], ["1", "1"]), "polynomials[0]: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_certificate_is_refused_in_one_line(name):
    (polynomials, cofactors), message = REFUSED[name]
    with pytest.raises(InputError) as error:
        nullstellensatz_certificate(polynomials, cofactors)
    assert str(error.value).startswith(message), str(error.value)
    assert "\n" not in str(error.value)


def test_denominators_are_cleared_and_nothing_is_divided_out():
    made = nullstellensatz_certificate(["x/3", "2*x - 2"], ["-3", "1/2"])  # -x + x - 1 = -1
    data = json.loads(made.text)
    assert multiplied_out(data)
    assert data["polynomials"] == [[["1", [1]]], [["2", [1]], ["-2", [0]]]]
    assert data["constant"] == "2"
    chosen = nullstellensatz_certificate(["y", "1 - y"], ["1", "1"], variables=sp.symbols("x y"))
    assert chosen.data["variables"] == ["x", "y"]
