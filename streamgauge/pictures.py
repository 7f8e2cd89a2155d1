"""Pictures of a chain and its normal forms: PNG or SVG by the file's extension.

Drawn on matplotlib's Agg and SVG canvases directly: no window, no pyplot, and the user's settings are neither read
nor changed.  Colours tell apart for every common colour blindness, and each is also said by a label or a shape.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from streamgauge.theory.errors import InputError
from streamgauge.theory.form import Bar

EXTENSIONS = (".png", ".svg")
INK, FAINT = "#222222", "#d9d9d9"
# Okabe and Ito's palette, in an order whose neighbours also differ in lightness
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
TITLE_WIDTH = 66
ROWS_SHOWN = 48
"""More bars than this are drawn one row per slot instead of one row per bar."""


def barcode_picture(
    path: str | Path,
    bars: Sequence[Bar],
    sites: int,
    *,
    gates: Sequence[Any] | None = None,
    title: str = "Barcode",
) -> Path:
    """Bars over depth: a dot where a bar is born, a cross at the site where it dies.

    - ``bars``: (birth, death, slot); level l lies between site l - 1 and site l, levels run from 0 to ``sites``.
    - ``gates``: for every site the gates by slot; the colour of a bar across site l is its gate there.

    **Raises** :class:`InputError` for another extension and for a folder that is not there or cannot be written.
    """
    ordered = sorted(bars, key=lambda bar: (bar.birth, -bar.death, bar.slot))
    by_slot = len(ordered) > ROWS_SHOWN
    rows = [bar.slot for bar in ordered] if by_slot else list(range(len(ordered)))
    count = max(rows, default=0) + 1
    top = max([1.0, *(float(np.max(np.asarray(g, dtype=float), initial=0.0)) for g in gates or ())])
    scale = Normalize(0.0, top)
    colour = matplotlib.colormaps["viridis_r"]

    def draw(figure: Figure) -> None:
        axes = _axes(figure, title, "level (site l leads from level l to level l + 1)", above=20)
        for bar, row in zip(ordered, rows):
            _draw_bar(axes, bar, row, sites, gates, lambda g: colour(scale(g)), mark=3 if by_slot else 5)
        axes.set_xlim(-0.6, sites + 0.6)
        axes.set_ylim(count - 0.4, -0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=12))
        axes.set_ylabel("slot" if by_slot else "bar, oldest first", fontsize=9)
        _explain_ends(axes)
        if gates is not None:
            bar_axis = figure.colorbar(ScalarMappable(scale, colour), ax=axes, pad=0.02, fraction=0.05)
            bar_axis.set_label("gate (1 keeps, 0 forgets)", size=9)
            bar_axis.ax.tick_params(labelsize=8)

    return _save(path, draw, height=1.8 + 0.22 * min(count, ROWS_SHOWN))


def condition_picture(path: str | Path, log10_cond: Mapping[str, ArrayLike], *, title: str | None = None) -> Path:
    """log10 cond_2(P_l) of every level, one line per form; values beyond float64 are welcome, as they are logs.

    Infinite values (a singular P_l: the form does not exist there) end a line, which its label then says.
    """
    lines = {name: np.asarray(values, dtype=float) for name, values in log10_cond.items()}

    def draw(figure: Figure) -> None:
        axes = _axes(figure, title or "Condition number of the stream basis", "level")
        for i, (name, values) in enumerate(lines.items()):
            shown = np.where(np.isfinite(values), values, np.nan)
            singular = np.flatnonzero(~np.isfinite(values))
            worst = _power(float(np.max(values[np.isfinite(values)], initial=0.0)))
            label = f"{name}: at most {worst}" if not len(singular) else f"{name}: singular from level {singular[0]}"
            _line(axes, shown, i, label)
        _log_axis(axes, r"$\mathrm{cond}_2(P_l)$")
        axes.set_ylim(-0.08, max(2.0, axes.get_ylim()[1]))  # no condition number is below 1
        axes.legend(fontsize=9, frameon=False)

    return _save(path, draw)


def singular_values_picture(
    path: str | Path, log10_sigma: ArrayLike, *, title: str = "Singular values of the running product"
) -> Path:
    """log10 of the singular values of ``A_{l-1} .. A_0``, shape (levels, n), level 0 first (all ones).

    Take them from QR accumulation: an SVD of the formed product is noise below 1e-16 of its largest value.
    """
    values = np.asarray(log10_sigma, dtype=float)

    def draw(figure: Figure) -> None:
        axes = _axes(figure, title, "level l, after the sites 0 .. l - 1")
        for i, column in enumerate(values.T):
            shown = np.where(np.isfinite(column), column, np.nan)
            end = float(column[-1]) if len(column) else 0.0
            said = _power(end) if np.isfinite(end) else "0 (it died)"
            _line(axes, shown, i, rf"$\sigma_{{{i + 1}}}$, at the end {said}")
        _log_axis(axes, r"$\sigma_i(A_{l-1} \cdots A_0)$")
        axes.legend(fontsize=9, frameon=False)

    return _save(path, draw)


def check_target(path: str | Path) -> Path:
    """The path, if its extension names a format that can be drawn and its folder exists."""
    target = Path(path)
    if target.suffix.lower() not in EXTENSIONS:
        raise InputError(f"{target}: found extension {target.suffix!r}, expected {' or '.join(EXTENSIONS)}")
    if target.is_dir() or not target.parent.is_dir():
        what = f"{target.parent} is not a folder" if not target.is_dir() else "is a folder"
        raise InputError(f"{target}: {what}, expected a file name in an existing folder")
    return target


def _draw_bar(
    axes: Axes,
    bar: Bar,
    row: int,
    sites: int,
    gates: Sequence[Any] | None,
    colour: Callable[[float], Any],
    mark: float,
) -> None:
    reach = min(bar.death, sites)
    steps = range(bar.birth, reach)
    segments = [[(l, row), (l + 1, row)] for l in steps]
    shades = [INK if gates is None else colour(float(np.asarray(gates[l])[bar.slot])) for l in steps]
    axes.add_collection(LineCollection(segments, colors=shades, linewidths=6, capstyle="butt"))
    axes.plot([bar.birth], [row], "o", color=INK, markersize=mark, zorder=3)
    if bar.death < sites:
        axes.plot([bar.death, bar.death + 0.5], [row, row], color=INK, linewidth=1, linestyle=":", zorder=2)
        axes.plot([bar.death + 0.5], [row], "x", color=INK, markersize=mark + 1, markeredgewidth=1.5, zorder=3)


def _explain_ends(axes: Axes) -> None:
    axes.plot([], [], "o", color=INK, markersize=5, label="born at this level")
    axes.plot(
        [], [], "x", color=INK, markersize=6, markeredgewidth=1.5, linestyle="none", label="sent to zero by this site"
    )
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        ncols=2,
        fontsize=8,
        frameon=False,
        handletextpad=0.2,
        borderpad=0,
    )


def _axes(figure: Figure, title: str, xlabel: str, above: float = 8) -> Axes:
    axes: Axes = figure.add_subplot()
    shown = textwrap.fill(title.encode("utf-8", "backslashreplace").decode(), TITLE_WIDTH)
    # a file name is no mathematics, whatever dollars are in it
    axes.set_title(shown, loc="left", fontsize=11, fontweight="bold", pad=above, parse_math=False)
    axes.set_xlabel(xlabel, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return axes


def _line(axes: Axes, values: Any, i: int, label: str) -> None:
    axes.plot(
        np.arange(len(values)),
        values,
        color=COLOURS[i % len(COLOURS)],
        marker=MARKS[i % len(MARKS)],
        markersize=4,
        linewidth=1.5,
        label=label,
    )


def _log_axis(axes: Axes, label: str) -> None:
    low, high = axes.get_ylim()
    if high - low < 2:  # at least two decades, so that rounding does not look like an event
        axes.set_ylim((low + high) / 2 - 1, (low + high) / 2 + 1)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: rf"$10^{{{v:.0f}}}$"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_ylabel(label, fontsize=10)


def _power(log10: float) -> str:
    return f"{10**log10:.3g}" if abs(log10) < 4 else rf"$10^{{{log10:.1f}}}$"


def _save(path: str | Path, draw: Callable[[Figure], None], *, width: float = 7.0, height: float = 3.6) -> Path:
    target = check_target(path)
    suffix = target.suffix.lower()
    staged = target.with_name(f".{target.stem}.{os.getpid()}{suffix}")
    settings: Any = {k: v for k, v in matplotlib.rcParamsDefault.items() if k not in _LEFT_ALONE}
    settings["svg.hashsalt"] = "streamgauge"  # the same picture gives the same file
    with matplotlib.rc_context(rc=settings):
        figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
        draw(figure)
        try:
            if suffix == ".png":
                png: Any = FigureCanvasAgg(figure)
                png.print_png(staged, metadata={"Software": None})
            else:
                svg: Any = FigureCanvasSVG(figure)
                svg.print_svg(staged, metadata={"Date": None, "Creator": None})
            staged.replace(target)
        except OSError as error:
            raise InputError(f"{target}: cannot be written ({error.strerror}), expected a writable folder") from None
        finally:
            staged.unlink(missing_ok=True)
    return target


# Settings that matplotlib acts on when they are set, which would touch the user's session.
_LEFT_ALONE = frozenset({"backend", "backend_fallback", "interactive", "toolbar", "timezone", "date.epoch"})
