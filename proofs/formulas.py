r"""Formulas for a web page: LaTeX (matplotlib's mathtext subset) to inline SVG that takes the text's colour and size.

``$A_l P_l$`` becomes an ``<svg>`` of references to glyph outlines; every outline stands once in the page, in
:attr:`Formulas.definitions`.  No font, script or network is needed to read it, and a screen reader gets the LaTeX.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextToPath

UNIT = 100.0
"""Drawing units per em."""
WIDE = 17.0
"""Formulas wider than this many em are cut at relations, so that a narrow page can break the line there."""
_BREAKS = frozenset(
    ("=", "<", ">", r"\leq", r"\geq", r"\neq", r"\Rightarrow", r"\rightarrow", r"\approx", r"\in", r"\equiv", r"\sim")
)
_LETTERS = {Outline.MOVETO: ("M", 1), Outline.LINETO: ("L", 1), Outline.CURVE3: ("Q", 2), Outline.CURVE4: ("C", 3)}


class Formulas:
    """Renders formulas and remembers the glyphs that they share."""

    def __init__(self) -> None:
        self._parser = TextToPath()
        self._font = FontProperties(size=UNIT, math_fontfamily="stix")
        self._glyphs: dict[str, tuple[str, str]] = {}
        self._done: dict[str, str] = {}

    def text(self, text: str) -> str:
        """HTML of a text whose formulas stand between dollar signs."""
        parts = text.split("$")
        if len(parts) % 2 == 0:  # an odd number of dollar signs: no formulas in it
            return escape(text)
        return "".join(self.formula(part) if i % 2 else escape(part) for i, part in enumerate(parts))

    def formula(self, latex: str) -> str:
        """HTML of one formula, without its dollar signs; its source as code where mathtext cannot read it."""
        if latex not in self._done:
            label = escape(latex.strip(), quote=True)
            try:
                drawn = "<wbr>".join(self._drawing(piece) for piece in self._pieces(latex))
                self._done[latex] = f'<span class="formula" role="img" aria-label="{label}">{drawn}</span>'
            except ValueError:
                self._done[latex] = f'<code class="latex">{label}</code>'
        return self._done[latex]

    @property
    def definitions(self) -> str:
        """A hidden SVG with the outline of every glyph used so far."""
        outlines = "".join(f'<path id="{name}" d="{d}"/>' for name, d in self._glyphs.values())
        return f'<svg width="0" height="0" class="glyphs" aria-hidden="true"><defs>{outlines}</defs></svg>'

    def _pieces(self, latex: str) -> list[str]:
        if self._size(latex)[0] <= WIDE * UNIT:
            return [latex]
        pieces = [""]
        for token, depth in _tokens(latex):
            if depth == 0 and token in _BREAKS and pieces[-1].strip():
                pieces.append("")
            pieces[-1] += token
            if depth == 0 and token in (",", ";"):
                pieces.append("")
        return [piece for piece in pieces if piece.strip()]

    def _size(self, latex: str) -> tuple[float, float, float]:
        width, height, depth = self._parser.get_text_width_height_descent(f"${latex}$", self._font, ismath=True)
        return float(width), float(height), float(depth)

    def _drawing(self, latex: str) -> str:
        width, height, depth = self._size(latex)
        placed, outlines, lines = self._parser.get_glyphs_mathtext(self._font, f"${latex}$")
        marks = []
        for key, x, y, size in placed:
            name = self._named(str(key), outlines)
            scale = f" scale({_short(size, 3)})" if abs(size - 1) > 1e-3 else ""
            marks.append(f'<use href="#{name}" transform="translate({_short(x)} {_short(y)}){scale}"/>')
        marks += [f'<path d="{_path(vertices, codes)}"/>' for vertices, codes in lines]
        top, pad = height - depth, 4.0
        view = f"0 {_short(-pad)} {_short(width)} {_short(height + 2 * pad)}"
        style = f"width:{width / UNIT:.3f}em;height:{(height + 2 * pad) / UNIT:.3f}em;"
        style += f"vertical-align:{-(depth + pad) / UNIT:.3f}em"
        flip = f'<g transform="translate(0 {_short(top)}) scale(1 -1)">{"".join(marks)}</g>'
        return f'<svg class="m" viewBox="{view}" style="{style}" aria-hidden="true">{flip}</svg>'

    def _named(self, key: str, outlines: Any) -> str:
        if key not in self._glyphs:
            found = next(value for name, value in outlines.items() if str(name) == key)
            self._glyphs[key] = (f"g{len(self._glyphs)}", _path(*found))
        return self._glyphs[key][0]


def _tokens(latex: str) -> list[tuple[str, int]]:
    """Commands, single characters, and how deep each stands in braces and brackets."""
    depth, out = 0, []
    for token in re.findall(r"\\[A-Za-z]+|\\.|.", latex, re.DOTALL):
        if token in ("}", ")", "]", r"\right", r"\}"):
            depth -= token != r"\right"
        out.append((token, depth))
        if token in ("{", "(", "[", r"\{"):
            depth += 1
    return out


def _path(vertices: Any, codes: Any) -> str:
    """An outline as SVG path data, in whole units."""
    points, kinds, out, i = np.asarray(vertices), list(codes), [], 0
    while i < len(kinds):
        if kinds[i] == Outline.CLOSEPOLY:
            out.append("Z")
            i += 1
            continue
        letter, count = _LETTERS[kinds[i]]
        out.append(letter + " ".join(f"{_short(x)} {_short(y)}" for x, y in points[i : i + count]))
        i += count
    return "".join(out)


def _short(value: float, digits: int = 1) -> str:
    return f"{round(float(value), digits) + 0.0:.{digits}f}".rstrip("0").rstrip(".")
