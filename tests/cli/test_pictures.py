"""Pictures: both formats, content where it can be read back (SVG text), and no change to the user's matplotlib."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamgauge.pictures import barcode_picture, condition_picture, singular_values_picture
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import Bar

BARS = (Bar(0, 3, 0), Bar(0, 0, 1), Bar(1, 3, 1))
GATES = [np.array([1.0, 0.0]), np.array([1.0, 0.5]), np.array([1.0, 0.25])]


def draw(kind: str, path: Path) -> Path:
    if kind == "barcode":
        return barcode_picture(path, BARS, 3, gates=GATES, title="Barcode of three sites")
    if kind == "cond":
        return condition_picture(path, {"identity": [0, 3, np.inf], "graded": [0, 0.1, 0.2]})
    return singular_values_picture(path, [[0, 0], [0, -40.0], [0, -np.inf]])


KINDS = ("barcode", "cond", "singular values")


@pytest.mark.parametrize("kind", KINDS)
def test_png_is_small_and_complete(kind: str, tmp_path: Path) -> None:
    data = draw(kind, tmp_path / "picture.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data.rstrip().endswith(b"IEND\xaeB`\x82")
    assert len(data) < 200_000
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_picture_is_the_same_file(kind: str, tmp_path: Path) -> None:
    first, second = (draw(kind, tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second
    assert first.startswith(b"<?xml")


def svg_words(path: Path) -> str:
    """Matplotlib leaves every drawn text as a comment beside its glyphs."""
    return " | ".join(re.findall(r"<!-- (.*?) -->", path.read_text()))


def test_labels_say_what_is_drawn(tmp_path: Path) -> None:
    barcode = svg_words(draw("barcode", tmp_path / "b.svg"))
    for words in ("Barcode of three sites", "level", "born at this level", "sent to zero by this site", "gate"):
        assert words in barcode
    cond = svg_words(draw("cond", tmp_path / "c.svg"))
    assert "identity: singular from level 2" in cond
    assert "graded: at most 1.58" in cond
    sigma = svg_words(draw("singular values", tmp_path / "s.svg"))
    assert "0 (it died)" in sigma


def test_a_long_title_is_wrapped_not_cut(tmp_path: Path) -> None:
    path = condition_picture(tmp_path / "c.svg", {"graded": [0.0, 0.5]}, title=20 * "condition ")
    assert svg_words(path).count("| condition condition") == 4, "199 letters"


def test_one_shade_per_gate_value(tmp_path: Path) -> None:
    """Control: with all gates equal the bars have one colour, with different gates several."""

    def shades(gates: list[np.ndarray], name: str) -> int:
        text = barcode_picture(tmp_path / name, (Bar(0, 3, 0),), 3, gates=gates).read_text()
        (group,) = re.findall(r'<g id="LineCollection_1">(.*?)</g>', text, re.DOTALL)
        return len(set(re.findall(r"stroke: (#[0-9a-f]{6})", group)))

    assert shades([np.array([1.0])] * 3, "same.svg") == 1
    assert shades([np.array([g]) for g in (1.0, 0.5, 0.1)], "different.svg") == 3


def test_many_bars_are_drawn_by_slot(tmp_path: Path) -> None:
    many = [Bar(l, l, l % 3) for l in range(100)]
    assert "slot" in svg_words(barcode_picture(tmp_path / "many.svg", many, 100))
    assert "oldest first" in svg_words(barcode_picture(tmp_path / "few.svg", many[:10], 100))


def test_matplotlib_is_left_as_it_was(tmp_path: Path) -> None:
    code = f"""
import matplotlib
matplotlib.use("pdf")
matplotlib.rcParams["font.size"] = 31
before = dict(matplotlib.rcParams)
import sys
from streamgauge.pictures import singular_values_picture
singular_values_picture({str(tmp_path / "s.png")!r}, [[0, 0], [0, -1]])
print(dict(matplotlib.rcParams) == before, "matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "True False\n", done.stderr


@pytest.mark.parametrize("name", ["picture.jpg", "picture", "picture.PDF"])
def test_other_extensions_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected \.png or \.svg$"):
        draw("cond", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere is not a folder, expected a file name in an existing folder$"):
        draw("cond", tmp_path / "nowhere" / "picture.png")
