"""The roofline picture of the kernels: work a byte against work a second, under the device's bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from streamgauge.pictures import COLOURS, FAINT, INK, MARKS, _axes, _save


def roofline_picture(path: str | Path, timings: Sequence[Any], *, device: str, copy: float) -> Path:
    """Every timing (of :mod:`streamgauge.kernels.device_benchmark`) as a point; filled is forward, hollow backward.

    ``copy``: the measured copy bandwidth in TB/s, the slanted line no memory-bound pass can be above for long.
    """
    ops = list(dict.fromkeys(each.name.split()[0] for each in timings))
    limits = [min(each.flops_per_byte for each in timings) / 2, max(each.flops_per_byte for each in timings) * 2]

    def draw(figure: Figure) -> None:
        axes = _axes(figure, f"Roofline on {device}", "floating-point operations a byte")
        line = np.array(limits)
        axes.plot(line, copy * line, color=INK, linewidth=1.2, label=f"copy, {copy:.2f} TB/s")
        axes.plot(line, copy * line / 2, color=FAINT, linewidth=1.2, label="half of it")
        for i, op in enumerate(ops):
            colour, mark = COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]
            for direction in ("forward", "backward"):
                points = [t for t in timings if t.name.split()[0] == op and t.direction == direction]
                axes.plot(
                    [t.flops_per_byte for t in points],
                    [t.flops_per_byte * t.terabytes_per_second for t in points],
                    linestyle="",
                    marker=mark,
                    color=colour,
                    markerfacecolor=colour if direction == "forward" else "none",
                    label=op if direction == "forward" else None,
                )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylabel("TFLOP/s (filled: forward, hollow: backward)", fontsize=9)
        axes.legend(fontsize=8, frameon=False)

    return _save(path, draw, height=4.2)
