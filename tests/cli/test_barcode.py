"""``streamgauge barcode``: exact and float files give the bars that the ranks demand; bad files give one line."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Cli

HALF = "1/2"
J2 = [[HALF, HALF], [HALF, HALF]]
I2 = [[1, 0], [0, 1]]
ROW = [[1, 1]]


def write(path: Path, matrices: Any) -> Path:
    path.write_text(json.dumps(matrices))
    return path


def ranks(matrices: list[Any]) -> dict[tuple[int, int], int]:
    """Multiplicities by the rank formula, in floats: a second route for small, well-conditioned cases."""
    maps = [np.array([[eval(str(x)) for x in row] for row in m], dtype=float) for m in matrices]
    dims = [maps[0].shape[1], *(m.shape[0] for m in maps)]
    last = len(maps)

    def rank(i: int, j: int) -> int:
        if i < 0 or j > last:
            return 0
        product = np.eye(dims[i])
        for a in maps[i:j]:
            product = a @ product
        return int(np.linalg.matrix_rank(product)) if product.size else 0

    found = {}
    for b in range(last + 1):
        for d in range(b, last + 1):
            count = rank(b, d) - rank(b - 1, d) - rank(b, d + 1) + rank(b - 1, d + 1)
            if count:
                found[b, d] = count
    return found


EXACT = {
    "identity": [I2, I2],
    "averages": [J2, J2, I2],
    "integers": [[[1, 2], [2, 4]], [[0, 1], [1, 0]], [[1, 1], [0, 1]]],
    "rectangular": [ROW, [[2], [0], [1]]],
    "one stream": [[[3]], [[0]]],
}


@pytest.mark.parametrize("matrices", EXACT.values(), ids=EXACT)
def test_exact_bars_follow_the_rank_formula(matrices: list[Any], tmp_path: Path, cli: Cli) -> None:
    ran = cli("barcode", write(tmp_path / "m.json", matrices), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.document["field"] == "Q"
    assert {(b["birth"], b["death"]): b["count"] for b in ran.document["bars"]} == ranks(matrices)


def test_a_prime_that_divides_a_minor_changes_the_bars(tmp_path: Path, cli: Cli) -> None:
    path = write(tmp_path / "m.json", [[[3, 0], [0, 1]]])
    over_q, over_3, over_5 = (
        cli("barcode", path, "--json", *p).document for p in ((), ("--prime", 3), ("--prime", 5))
    )
    assert over_q["bars"] == over_5["bars"] == [{"birth": 0, "death": 1, "count": 2}]
    assert [bar["death"] for bar in over_3["bars"]] == [0, 1, 1]
    assert over_3["field"] == "GF(3)"


NUMERIC = {"float json": "m.json", "npy": "m.npy", "npz": "m.npz"}


@pytest.mark.parametrize("name", NUMERIC.values(), ids=NUMERIC)
def test_floats_are_decided_by_numerical_rank(name: str, tmp_path: Path, cli: Cli) -> None:
    a = np.array([[0.5, 0.5], [0.5, 0.5]])
    b = np.array([[0.75, 0.25], [0.25, 0.75]])
    path = tmp_path / name
    if name.endswith(".json"):
        write(path, [a.tolist(), b.tolist()])
    elif name.endswith(".npy"):
        np.save(path, np.stack([a, b]))
    else:
        np.savez(path, a, b)
    picture = tmp_path / "picture.svg"
    ran = cli("barcode", path, "--json", "--out", picture)
    assert ran.code == 0, ran.err
    assert ran.document["field"] == "float64, numerical rank"
    assert {(x["birth"], x["death"]): x["count"] for x in ran.document["bars"]} == ranks([a.tolist(), b.tolist()])
    assert picture.read_text().startswith("<?xml")


def test_nearly_singular_floats_differ_from_the_rationals_they_hold(tmp_path: Path, cli: Cli) -> None:
    third = 1 / 3
    path = write(tmp_path / "m.json", [[[1.0, 3.0], [third, 1.0]]])  # singular but for the rounding of 1/3
    deaths = [
        [bar["death"] for bar in cli("barcode", path, "--json", *f).document["bars"]] for f in ((), ("--exact",))
    ]
    assert deaths == [[0, 1, 1], [1]]


def test_file_names_are_not_markup(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "[bold]:smile:"
    folder.mkdir()
    ran = cli("barcode", write(folder / "m.json", [J2]), "--out", folder / "m.svg")
    assert f"picture: {folder / 'm.svg'}\n" in ran.out


def test_table_names_every_bar(tmp_path: Path, cli: Cli) -> None:
    ran = cli("barcode", write(tmp_path / "m.json", [J2]))
    assert ran.code == 0
    assert "3 bars over Q, 1 sites" in ran.out
    assert "at site 0" in ran.out
    assert "never" in ran.out


def test_checkpoint_folder_is_a_chain(checkpoint: Path, cli: Cli) -> None:
    ran = cli("barcode", checkpoint, "--json")
    assert ran.code == 0, ran.err
    assert ran.document["bars"] == [{"birth": 0, "death": 6, "count": 3}]


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def as_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps([1, 2]))


def objects(path: Path) -> None:
    np.save(path, np.array([None, 1], dtype=object), allow_pickle=True)


# what is in the file, its name, and the exact message after "streamgauge: error: PATH"
BAD: dict[str, tuple[Callable[[Path], object] | None, str, str]] = {
    "missing": (None, "m.json", ": not found, expected matrices (.json, .npy, .npz) or a checkpoint folder"),
    "empty folder": (
        Path.mkdir,
        "folder",
        "/config.json: not found, expected a file",
    ),
    "no JSON": (text("[[1, 2"), "m.json", ": not JSON (Expecting ',' delimiter: line 1 column 7 (char 6))"),
    "NaN literal": (text("[[[NaN]]]"), "m.json", ": not JSON (found NaN, expected finite numbers)"),
    "infinite float": (
        text("[[[1e999]]]"),
        "m.json",
        ": mixer 0: entry (0, 0) is inf, expected a finite number",
    ),
    "object": (text("{}"), "m.json", ": found an object, expected a list of matrices (lists of rows)"),
    "a vector": (
        text("[[1, 2]]"),
        "m.json",
        ": mixer 0: found no matrix, expected a list of rows, each a list of numbers",
    ),
    "boolean": (
        text("[[[true]]]"),
        "m.json",
        ": mixer 0, entry (0, 0): found true, expected a number or a 'p/q' string",
    ),
    "division by zero": (text('[[["1/0"]]]'), "m.json", ": mixer 0, entry (0, 0): found '1/0', expected p or p/q"),
    "words": (text('[[["x"]]]'), "m.json", ": mixer 0, entry (0, 0): found 'x', expected p or p/q"),
    "rational beside float": (
        text('[[["1/2", 0.5]]]'),
        "m.json",
        ": mixer 0, entry (0, 0): found '1/2' beside decimal numbers; expected one kind throughout",
    ),
    "ragged": (
        text("[[[1, 2], [3]]]"),
        "m.json",
        ": mixer 0: ragged, rows of lengths [1, 2]; expected equal lengths",
    ),
    "wrong shape": (
        text("[[[1, 2], [3, 4]], [[1]]]"),
        "m.json",
        ": mixer 1: found shape (1, 1), expected 2 columns (the rows of mixer 0)",
    ),
    "no matrices": (
        text("[]"),
        "m.json",
        ": mixers: found none; expected at least one, or dim, entry or readout to tell n",
    ),
    "unknown extension": (
        text("x"),
        "m.csv",
        ": found extension '.csv', expected .json, .npy, .npz or a checkpoint folder",
    ),
    "flat array": (
        lambda path: np.save(path, np.zeros(3)),
        "m.npy",
        ": found shape (3,), expected (L, n, m), or L matrices in an .npz",
    ),
    "NaN array": (
        lambda path: np.save(path, np.full((1, 1, 1), np.nan)),
        "m.npy",
        ": mixer 0: entry (0, 0) is nan, expected a finite number",
    ),
    "complex array": (
        lambda path: np.save(path, np.zeros((1, 1, 1), dtype=complex)),
        "m.npy",
        ": mixer 0 has dtype complex128, expected floats or integers",
    ),
}


@pytest.mark.parametrize(("make", "name", "message"), BAD.values(), ids=BAD)
def test_bad_file(make: Callable[[Path], object] | None, name: str, message: str, tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / name
    if make is not None:
        make(path)
    ran = cli("barcode", path, "--json")
    assert (ran.code, ran.out, ran.err) == (2, "", f"streamgauge: error: {path}{message}\n")


def boastful(path: Path) -> None:
    """A header that promises far more numbers than the file has, or memory."""
    np.save(path, np.zeros((1, 1, 1)))
    path.write_bytes(path.read_bytes().replace(b"(1, 1, 1), }      ", b"(9" + 8 * b"9" + b", 9999, 1), }")[:128])


UNREADABLE = {"pickle": as_pickle, "object array": objects, "empty": text(""), "huge": boastful}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_arrays(make: Callable[[Path], object], tmp_path: Path, cli: Cli) -> None:
    make(tmp_path / "m.npy")
    ran = cli("barcode", tmp_path / "m.npy")
    start = f"streamgauge: error: {tmp_path / 'm.npy'}: not a readable numpy file, expected plain arrays ("
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(start)
    assert ran.err.count("\n") == 1


OPTIONS = {
    "picture format": (("--out", "p.pdf"), "p.pdf: found extension '.pdf', expected .png or .svg"),
    "picture under a file": (
        ("--out", "m.json/p.png"),
        "m.json/p.png: m.json is not a folder, expected a file name in an existing folder",
    ),
    "no prime": (("--prime", 4), "4"),
    "dividing prime": (
        ("--prime", 2),
        "mixer 0: entry (0, 0) = 1/2 has a denominator divisible by 2; expected a prime",
    ),
    "prime is no number": (("--prime", "two"), "Invalid value for '--prime': "),
    "unknown option": (("--fast",), "No such option: --fast"),
}


@pytest.mark.parametrize(("options", "message"), OPTIONS.values(), ids=OPTIONS)
def test_bad_options(
    options: tuple[object, ...], message: str, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "m.json", [J2])
    ran = cli("barcode", "m.json", *options)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("streamgauge: error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.json"]
