"""Does the per-token triangular form compute what the source computes?  Run both along a text and compare.

The reference is the source in true float64 (:mod:`streamgauge.simulate.hosted.widened`).  Against it stand

    e(source)     the source in its own dtype,
    e(pointwise)  the triangular form in that dtype, its coefficients in float64,
    exact         the triangular form in float64: round-off of float64 and nothing else, if the statement holds,

and e(pointwise) / e(source) is the round-off ratio.  Each is the RMS of the difference of the logits over the RMS of
the reference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from streamgauge.simulate.crosscheck import FLOAT64_LIMIT
from streamgauge.simulate.hosted.compare import Progress, batches, count_flips, experts_chosen
from streamgauge.simulate.hosted.models import run
from streamgauge.simulate.hosted.text import Text
from streamgauge.simulate.hosted.triangular import triangular_twin
from streamgauge.simulate.hosted.widened import Widened, wide_copy
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

LIMIT = 2.0
"""Largest round-off ratio of an equal network."""
FRAME_LIMIT = 1e-12
"""Largest error of the decomposition itself: below the diagonal, in orthogonality, and in A Q = Q' R."""


@dataclass(frozen=True)
class PointwiseSite:
    """One site over all tokens: ``gates`` the mean of diag(R), smallest and largest entry of it, and ``dropped``,
    the share of R above the diagonal, ``sqrt(sum ||R - diag R||_F^2 / sum ||R||_F^2)``."""

    site: int
    gates: tuple[float, ...]
    gate_min: float
    gate_max: float
    dropped: float


@dataclass(frozen=True)
class Pointwise:
    """What :func:`verify_pointwise` found; errors are relative, see the module.

    - ``ratio``: of RMS errors; ``median_ratio``: of medians over tokens, which counts where routing flips;
    - ``flipped``: tokens for which a router that chooses by score takes other experts than in the source;
    - ``below_diagonal``: max |R_ij|, i > j, of R = Q'^T A Q; ``orthogonality``: max |Q^T Q - I|; ``residual``: max
      |A Q - Q' R|; ``dropped``: what diagonal gates for every token would drop, as in :class:`PointwiseSite`.
    """

    tokens: int
    exact: float
    source_error: float
    error: float
    ratio: float
    median_ratio: float
    flipped: int
    below_diagonal: float
    orthogonality: float
    residual: float
    dropped: float
    sites: tuple[PointwiseSite, ...]

    def verdict(self) -> Verdict:
        """Whether the form is triangular, equal in float64, and equal up to round-off below."""
        name = "median_ratio" if self.flipped else "ratio"
        limits = {
            "below_diagonal": FRAME_LIMIT,
            "orthogonality": FRAME_LIMIT,
            "residual": FRAME_LIMIT,
            "exact": FLOAT64_LIMIT,
            name: LIMIT,
        }
        for figure, limit in limits.items():
            found = getattr(self, figure)
            if not found <= limit:
                reason = f"{figure.replace('_', ' ')} {found:.3g}, expected at most {limit:g}"
                return Verdict(False, reason, {"figure": figure, "found": found, "limit": limit})
        return Verdict(
            True, f"same function on {self.tokens} tokens", {"exact": self.exact, name: getattr(self, name)}
        )

    def document(self) -> dict[str, Any]:
        """The figures by name."""
        verdict = self.verdict()
        return {"ok": verdict.ok, "reason": verdict.reason, **asdict(self)}


def verify_pointwise(model: Any, text: Text, *, progress: Progress | None = None) -> Pointwise:
    """Run a Hugging Face model of dynamic mixers in its per-token triangular form, along a text.

    ``model``: a ``deepseek_v4`` or ``glm5_next`` model of transformers with its own mixers; it stays as it is.
    Without a language-model head its last hidden states are compared.

    Cost: four forward passes, two of them in float64 on a copy of the model in float64.
    **Raises** :class:`InputError`, one line, for another model, or for outputs that are not finite.
    """
    seen, errors = _Frames(), _Errors()
    twin, wide = triangular_twin(model), wide_copy(model)
    wide_twin = triangular_twin(wide, seen.site)
    with torch.no_grad(), experts_chosen(model) as mine, experts_chosen(twin) as theirs:
        for rows in batches(text, model, progress, "running"):
            with Widened():
                reference, exact = _output(wide, rows), _output(wide_twin, rows)
            errors.add(reference, exact, _output(model, rows), _output(twin, rows))
            errors.flipped += count_flips(mine, theirs)[1]
    relative = errors.relative()
    per_token = [torch.cat(parts).median() for parts in errors.per_token]
    return Pointwise(
        text.tokens.numel(),
        *relative,
        _quotient(relative[2], relative[1]),
        _quotient(float(per_token[1]), float(per_token[0])),
        errors.flipped,
        seen.below_diagonal,
        seen.orthogonality,
        seen.residual,
        seen.dropped(),
        tuple(seen.sites()),
    )


class _Errors:
    """Sums of squares over batches: of the reference, and of the three differences from it."""

    def __init__(self) -> None:
        self.squares = [0.0] * 4
        self.per_token: tuple[list[Tensor], list[Tensor]] = [], []
        self.flipped = 0

    def add(self, reference: Tensor, exact: Tensor, own: Tensor, found: Tensor) -> None:
        gaps = [(output.double() - reference).square().sum(-1).flatten().cpu() for output in (exact, own, found)]
        for kept, gap in zip(self.per_token, gaps[1:], strict=True):
            kept.append(gap.sqrt())
        for index, square in enumerate([reference.square(), *gaps]):
            self.squares[index] += float(square.sum())

    def relative(self) -> tuple[float, float, float]:
        """Of the form in float64, of the source and of the form in the model's own dtype."""
        size = self.squares[0]
        first, second, third = (math.sqrt(gap / size) if gap else 0.0 for gap in self.squares[1:])
        return first, second, third


class _Frames:
    """What the decomposition did at every site, over all tokens: maxima, and sums by site."""

    def __init__(self) -> None:
        self.below_diagonal = self.orthogonality = self.residual = 0.0
        self._sums: dict[int, dict[str, Any]] = {}

    def site(self, site: int, mixer: Tensor, before: Tensor, after: Tensor, r: Tensor) -> None:
        one = torch.eye(mixer.shape[-1], dtype=mixer.dtype, device=mixer.device)
        carried = mixer @ before
        self.below_diagonal = max(self.below_diagonal, _largest((after.mT @ carried).tril(-1)))
        self.orthogonality = max(self.orthogonality, *(_largest(q.mT @ q - one) for q in (before, after)))
        self.residual = max(self.residual, _largest(carried - after @ r))
        gates = r.diagonal(dim1=-2, dim2=-1).flatten(0, -2).cpu()
        new = {"gates": gates.sum(0), "count": len(gates), "above": float(r.triu(1).square().sum())}
        new |= {"whole": float(r.square().sum())}
        old = self._sums.get(site)
        ends = [float(gates.min()), float(gates.max())]
        if old is not None:
            new = {name: value + old[name] for name, value in new.items()}
            ends = [min(ends[0], old["ends"][0]), max(ends[1], old["ends"][1])]
        self._sums[site] = {**new, "ends": ends}

    def sites(self) -> Iterator[PointwiseSite]:
        for site, sums in sorted(self._sums.items()):
            mean = tuple(float(g) for g in sums["gates"] / sums["count"])
            least, most = sums["ends"]
            yield PointwiseSite(site, mean, least, most, _share(sums["above"], sums["whole"]))

    def dropped(self) -> float:
        above, whole = (sum(sums[name] for sums in self._sums.values()) for name in ("above", "whole"))
        return _share(above, whole)


def _output(model: Any, tokens: Tensor) -> Tensor:
    made = run(model, tokens)
    output: Tensor = made.logits if hasattr(made, "logits") else made.last_hidden_state
    if not bool(torch.isfinite(output).all()):
        raise InputError("pointwise: the model's outputs are not finite, expected numbers")
    return output


def _share(above: float, whole: float) -> float:
    return math.sqrt(above / whole) if above else 0.0


def _largest(entries: Tensor) -> float:
    return float(entries.abs().max())


def _quotient(found: float, own: float) -> float:
    if own == found:
        return 1.0  # also where neither has any error
    return found / own if own > 0 else math.inf
