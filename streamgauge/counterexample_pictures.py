"""Pictures of the counterexample: its tails, error against weight norm, and the approximating family in floats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamgauge.pictures import COLOURS, FAINT, INK, MARKS, _axes, _save

if TYPE_CHECKING:
    from streamgauge.proofs.counterexample.family import FamilyError
    from streamgauge.proofs.counterexample.search import Found
    from streamgauge.proofs.counterexample.story import TailRow


def tails_picture(path: str | Path, rows: Sequence[TailRow]) -> Path:
    """``Q^4 - phi(phi(Q))`` between its two bounds, and what a raw Q left in the streams adds."""
    q = np.array([row.q for row in rows])

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "The tail has no Q³: the target is Q⁴ up to an exponential", "Q = x1 - x2")
        axes.fill_between(
            q, [r.lower for r in rows], [r.upper for r in rows], color=COLOURS[0], alpha=0.25, linewidth=0,
            label=r"proved on the whole ray: $\frac{1}{2}Q^4e^{-Q}$ to $\frac{9}{4}Q^4e^{-Q}$",
        )  # fmt: skip
        axes.plot(
            q, [r.remainder for r in rows], "-", color=COLOURS[0], linewidth=1.2, label=r"$Q^4 - \varphi(\varphi(Q))$"
        )
        axes.plot(
            q, [r.polluted for r in rows], "--", color=COLOURS[1], label="pure iHC, 1/100 of Q left: $2Q^3/100$"
        )
        _logarithmic(axes, "size")
        axes.set_xscale("log")
        shown = (1, 2, 5, 10, 20, 40, 80)
        axes.set_xticks(shown, [str(x) for x in shown])
        axes.minorticks_off()

    return _save(path, draw)


def search_picture(path: str | Path, searches: Sequence[Found]) -> Path:
    """The least error found against the weight norm: pure iHC pays with weights, gated iHC and mHC do not."""

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "Search: error against weight norm", "weight norm (all weights of the network)")
        for i, found in enumerate(searches):
            label = f"{found.kind}, width {found.width}: {found.best:.1e}"
            line = "-" if found.kind == "pure iHC" else ":"
            axes.plot(
                found.norms, found.errors, line, drawstyle="steps-post", color=COLOURS[i % len(COLOURS)],
                marker=MARKS[i % len(MARKS)], markersize=3.5, linewidth=1.3, label=label,
            )  # fmt: skip
        axes.axhline(73 * 2.0**-53, color=INK, linewidth=0.8, linestyle="-.", label="round-off of the target")
        _logarithmic(axes, "largest error, |Q| at most 3")
        axes.set_xscale("log")

    return _save(path, draw, height=4.2)


def family_picture(path: str | Path, errors: Sequence[FamilyError]) -> Path:
    """Error of the pure iHC with weights 1/(2 eps): exact arithmetic, float64, float32."""
    eps = np.array([e.eps for e in errors])

    def draw(figure: Figure) -> None:
        axes = _axes(figure, "Approximating with weights 1/(2ε): rounding sets a floor near √u", "ε")
        axes.plot(eps, [e.first_order for e in errors], color=FAINT, linewidth=5, label="ε max |Q φ'(φ(Q))|")
        for i, name in enumerate(("exact", "float64", "float32")):
            values = [getattr(e, name) for e in errors]
            axes.plot(
                eps, values, color=COLOURS[i], marker=MARKS[i], markersize=4, linewidth=1.4,
                label=f"{name}: best {min(values):.1e}",
            )  # fmt: skip
        _logarithmic(axes, "largest error, |Q| at most 3")
        axes.set_xscale("log")
        axes.invert_xaxis()

    return _save(path, draw)


def _logarithmic(axes: Axes, label: str) -> None:
    axes.set_yscale("log")
    axes.set_ylabel(label, fontsize=9)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.legend(fontsize=8, frameon=False)
