"""The report's own pictures: small SVGs in the page's colours, so that they follow light and dark.

:data:`PICTURES` says which claim shows which.  Numbers are computed here from the library's functions, not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

WIDTH, HEIGHT = 520, 250


@dataclass(frozen=True)
class Picture:
    """An SVG, what it shows in words (for readers of the text alone), and a caption."""

    svg: str
    alternative: str
    caption: str


@cache
def barcode_picture() -> Picture:
    """The bars of a chain of four streams: two pairs averaged, all averaged, then two cycles and a pair again."""
    from fractions import Fraction

    from streamgauge.theory.barcode import barcode

    half, cycle = Fraction(1, 2), [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    pair = [[half, half, 0, 0], [half, half, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    average = [[Fraction(1, 4)] * 4] * 4
    mixers = [cycle, pair, cycle, pair, cycle, average, cycle, pair]
    bars = sorted((bar.birth, bar.death) for bar in barcode(mixers).bars)
    sites, left, right, top, row = len(mixers), 40, 20, 26, 17
    step = (WIDTH - left - right) / sites
    height = top + row * len(bars) + 44
    parts = []
    for level in range(sites + 1):
        x, base = left + step * level, top + row * len(bars) + 4
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top - 8}" x2="{x:.1f}" y2="{base}"/>')
        parts.append(f'<text x="{x:.1f}" y="{base + 15}" text-anchor="middle">{level}</text>')
    for i, (birth, death) in enumerate(bars):
        x, y = left + step * birth, top + row * i
        end = left + step * death + (step * 0.45 if death < sites else 0)
        parts.append(f'<line class="bar" x1="{x:.1f}" y1="{y}" x2="{left + step * death:.1f}" y2="{y}"/>')
        if death < sites:
            parts.append(
                f'<line class="dying" x1="{left + step * death:.1f}" y1="{y}" x2="{end:.1f}" y2="{y}"/>'
                f'<path class="cross" d="M{end - 4:.1f} {y - 4}l8 8m0 -8l-8 8"/>'
            )
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="4"/>')
    parts.append(f'<text x="{WIDTH / 2}" y="{height - 6}" text-anchor="middle">level</text>')
    died = sum(death < sites for _, death in bars)
    words = "; ".join(f"[{b}, {d}]" for b, d in bars)
    return Picture(
        _svg(parts, height),
        f"Barcode with {len(bars)} bars over {sites} sites: {words}",
        f"Bars of a four-stream chain whose averages have rank 3 and 1: {len(bars)} bars, of which {died} are sent "
        "to zero (a cross) and replaced by a newborn direction (a dot).",
    )


@cache
def tail_picture() -> Picture:
    """Q^4 - phi(phi(Q)), which is what stands between the target and a pure fourth power, and its leading term."""
    points = [2 + 0.5 * i for i in range(77)]
    gap = [_log10_gap(q) for q in points]
    bound = [math.log10(2) + 4 * math.log10(q) - q / math.log(10) for q in points]
    axes = _Axes((points[0], points[-1]), (-12.5, math.ceil(max(gap + bound))))
    parts = axes.frame("Q", [10, 20, 30, 40], [-12, -8, -4, 0])
    parts += [axes.line(points, gap, "first"), axes.line(points, bound, "second")]
    for q in (10.0, 20.0, 40.0):
        x, y = axes.at(q, _log10_gap(q))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        anchor, right, down = ("end", -10, 8) if q > 30 else ("start", 8, -7)
        value = f"{10 ** _log10_gap(q):.4g}"
        parts.append(f'<text x="{x + right:.1f}" y="{y + down:.1f}" text-anchor="{anchor}">{value}</text>')
    return Picture(
        _svg(parts, HEIGHT),
        "The difference of Q to the fourth and phi of phi of Q, on a logarithmic axis: 0.908 at Q = 10, 6.6e-4 at "
        "20, 2.2e-11 at 40, along the line 2 Q^4 exp(-Q)",
        "Q⁴ − φ(φ(Q)) with φ(t) = t² σ(t) (line), and 2 Q⁴ exp(−Q) (dashed): the positive tail is a pure fourth "
        "power up to an exponentially small rest, which is why its lower coefficients can be read.",
    )


def _log10_gap(q: float) -> float:
    """log10 of ``q^4 - phi(phi(q))``, with 40 digits: in float64 the difference is lost beyond q = 35."""
    import mpmath  # type: ignore[import-untyped]

    with mpmath.workdps(40):

        def phi(t: mpmath.mpf) -> mpmath.mpf:
            return t * t / (1 + mpmath.exp(-t))

        x = mpmath.mpf(q)
        return float(mpmath.log10(x**4 - phi(phi(x))))


@dataclass(frozen=True)
class _Axes:
    """A frame in data coordinates; the vertical axis is a power of ten."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Drawing coordinates of a point."""
        left, right, top, bottom = 58, 14, 12, 40
        across = left + (WIDTH - left - right) * (x - self.x[0]) / (self.x[1] - self.x[0])
        return across, HEIGHT - bottom - (HEIGHT - top - bottom) * (y - self.y[0]) / (self.y[1] - self.y[0])

    def line(self, xs: Sequence[float], ys: Sequence[float], kind: str) -> str:
        """A curve of that class."""
        points = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in zip(xs, ys))
        return f'<polyline class="curve {kind}" points="{points}"/>'

    def frame(self, name: str, xs: Sequence[float], ys: Sequence[int]) -> list[str]:
        """Grid and labels; ``xs`` the ticks of the axis called ``name``, ``ys`` powers of ten."""
        parts = []
        for y in ys:
            (left, height), (right, _) = self.at(self.x[0], y), self.at(self.x[1], y)
            parts.append(f'<line class="grid" x1="{left:.1f}" y1="{height:.1f}" x2="{right:.1f}" y2="{height:.1f}"/>')
            shown = f'10<tspan dy="-5" font-size="9">{str(y).replace("-", "−")}</tspan>'
            parts.append(f'<text x="{left - 6:.1f}" y="{height + 4:.1f}" text-anchor="end">{shown}</text>')
        for x in xs:
            place, base = self.at(x, self.y[0])
            parts.append(f'<text x="{place:.1f}" y="{base + 17:.1f}" text-anchor="middle">{x:g}</text>')
        parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle" font-style="italic">{name}</text>')
        return parts


def _svg(parts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" aria-hidden="true">{"".join(parts)}</svg>'


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "G20": tail_picture,
    "G30": barcode_picture,
    "TH4": barcode_picture,
}


def figure(claim: str) -> str:
    """The figure of a claim as HTML, "" if it has none."""
    if claim not in PICTURES:
        return ""
    made = PICTURES[claim]()
    return (
        f'<figure><div role="img" aria-label="{escape(made.alternative, quote=True)}">{made.svg}</div>'
        f"<figcaption>{escape(made.caption)}</figcaption></figure>"
    )
