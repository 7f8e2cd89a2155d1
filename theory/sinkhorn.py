"""Sinkhorn normalisation by *named* recipe: the programs that people call Sinkhorn differ, and silently.

A recipe turns logits Z (n, n) into S by alternately dividing rows (sums over the last axis) and columns by their
sums, and the mixer is ``A = S`` or ``A = S^T``.  Only the marginal divided last is tight; the other one is as good
as the iteration count makes it.  Both errors of A are therefore returned, always.

Sources: Sinkhorn, Ann. Math. Statist. 35 (1964); the mHC paper arXiv:2512.24880, eq. (9); the public model codes
named in :data:`RECIPES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.verdict import Verdict

Axis = Literal["rows", "columns"]
DRIFT_LIMIT = 1e-2
"""Largest eps * sites that goes unremarked: beyond it the sums shrink visibly over the depth of a network."""

_SUM_AXIS = {"rows": -1, "columns": -2}
_PARTS = {"start": ("exp", "softmax"), "eps_mode": ("add", "clamp", "none")}


@dataclass(frozen=True)
class Recipe:
    """One way to make a mixer out of logits Z (last two axes: rows, columns).

    With z = Z / temperature:

    - ``start`` "softmax": softmax along ``order[0]``, then ``+ start_eps``; this takes the place of the first
      half-step: one half-step along ``order[1]`` and ``iterations - 1`` full sweeps follow.
    - ``start`` "exp": ``exp(z - max z)`` with the maximum along ``order[0]``, ``+ start_eps``; ``iterations`` full
      sweeps follow.
    - a half-step divides by ``sum + eps`` ("add"), ``max(sum, eps)`` ("clamp") or ``sum`` ("none").
    - ``transpose``: the mixer is ``A = S^T``.

    **Raises** :class:`InputError` naming the field for values outside these.
    """

    name: str
    start: Literal["exp", "softmax"] = "exp"
    order: tuple[Axis, Axis] = ("rows", "columns")
    iterations: int = 20
    eps: float = 0.0
    eps_mode: Literal["add", "clamp", "none"] = "none"
    start_eps: float = 0.0
    temperature: float = 1.0
    transpose: bool = False

    def __post_init__(self) -> None:
        def refuse(field: str, expected: str) -> None:
            raise InputError(f"recipe {self.name!r}: {field} is {getattr(self, field)!r}, expected {expected}")

        for field, allowed in _PARTS.items():
            if getattr(self, field) not in allowed:
                refuse(field, f"one of {', '.join(allowed)}")
        if sorted(self.order) != ["columns", "rows"]:
            refuse("order", "('rows', 'columns') or ('columns', 'rows')")
        if isinstance(self.iterations, bool) or not isinstance(self.iterations, int) or self.iterations < 1:
            refuse("iterations", "an integer of at least 1")
        if self.eps_mode == "none" and self.eps != 0:
            refuse("eps", "0 with eps_mode 'none'")
        if self.eps_mode != "none" and not 0 < self.eps < 1:
            refuse("eps", f"a number in (0, 1) with eps_mode {self.eps_mode!r}")
        if not 0 <= self.start_eps < 1:
            refuse("start_eps", "a number in [0, 1)")
        if not 0 < self.temperature < np.inf:
            refuse("temperature", "a positive number")


def _deepseek(name: str, *, transpose: bool) -> Recipe:
    return Recipe(name, "softmax", ("rows", "columns"), 20, 1e-6, "add", 1e-6, transpose=transpose)


def _megatron(name: str, *, transpose: bool) -> Recipe:
    return Recipe(name, "exp", ("rows", "columns"), 20, 1e-6, "clamp", transpose=transpose)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("paper", order=("columns", "rows")),  # arXiv:2512.24880 eq. (9): rows last, no eps
        _deepseek("deepseek-v4", transpose=True),  # the released model's comb acts transposed
        _deepseek("deepseek-v4.1", transpose=True),
        _deepseek("glm5-next", transpose=True),
        _deepseek("liger", transpose=False),
        _megatron("megatron", transpose=False),  # main branch
        _megatron("megatron-dev", transpose=True),  # its dev branch turned the orientation round
        Recipe("lucidrains", "exp", ("columns", "rows"), 20, 1e-12, "clamp", transpose=True),
        Recipe("mhc-lite", order=("columns", "rows"), transpose=True),  # that repository's "mhc" type, log domain
        Recipe("tokenbender", iterations=10, temperature=0.05, transpose=True),
    )
}
"""Every recipe by name; a network's config names one, and an unnamed variant is refused."""


def recipe_named(name: str) -> Recipe:
    """The recipe of that name. **Raises** :class:`InputError` listing the names that exist."""
    if not isinstance(name, str) or name not in RECIPES:
        raise InputError(f"recipe: found {name!r}, expected one of {', '.join(sorted(RECIPES))}")
    return RECIPES[name]


@dataclass(frozen=True)
class SinkhornResult:
    """What a recipe made.

    - ``matrix``: S (..., n, n) in the orientation of the logits; ``mixer``: A = S or S^T.
    - ``row_error``, ``column_error``: max |sum - 1| over the rows / columns **of A**, shape (...).
    - ``notes``: facts a reader must know (an eps that shrinks the sums over the depth).
    """

    matrix: Floats
    mixer: Floats
    row_error: Floats
    column_error: Floats
    notes: tuple[str, ...] = ()


def sinkhorn(logits: ArrayLike, recipe: Recipe | str, *, sites: int = 1) -> SinkhornResult:
    """S and A of the logits (..., n, n) by the recipe, in float64; finite for every finite input.

    ``sites`` is the depth of the network the recipe serves; it only decides the note on eps.

    Errors: about n * iterations round-offs.  Recipes without eps run in the log domain (nothing is lost by
    underflow); those with eps run as their sources do, and a column that underflows under "clamp" stays dead, which
    the returned errors show.  Cost O(iterations n^2) per matrix.

    **Raises** :class:`InputError` for an unknown recipe name, for logits that are not square matrices or not finite.
    """
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    matrix = deque(sweeps(logits, recipe), maxlen=1)[0]  # iterations >= 1, so there is a last one
    mixer = np.swapaxes(matrix, -1, -2) if recipe.transpose else matrix
    rows, cols = marginal_errors(mixer)
    drift = eps_drift(recipe, sites)
    return SinkhornResult(matrix, mixer, rows, cols, () if drift else (drift.reason,))


def sweeps(logits: ArrayLike, recipe: Recipe) -> Iterator[Floats]:
    """S after 1, 2, .., ``recipe.iterations`` iterations (each a pair of half-steps), shape (..., n, n).

    Cost O(n^2) per iteration; arguments and errors as in :func:`sinkhorn`.
    """
    z = _scaled(logits, recipe.temperature)
    first, second = (_SUM_AXIS[axis] for axis in recipe.order)
    z = z - z.max(axis=first, keepdims=True)
    in_logs = recipe.eps_mode == "none" and recipe.start_eps == 0
    s = z if in_logs else np.exp(z)
    if recipe.start == "softmax" and not in_logs:
        s = s / s.sum(axis=first, keepdims=True)
    if not in_logs:
        s = s + recipe.start_eps
    for step in range(recipe.iterations):
        if step > 0 or recipe.start == "exp" or in_logs:  # in the log domain softmax *is* the first half-step
            s = _half_step(s, first, recipe, in_logs)
        s = _half_step(s, second, recipe, in_logs)
        yield np.exp(s) if in_logs else s


def _half_step(s: Floats, axis: int, recipe: Recipe, in_logs: bool) -> Floats:
    if in_logs:
        top = s.max(axis=axis, keepdims=True)
        shifted = s - top
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))
    total = s.sum(axis=axis, keepdims=True)
    if recipe.eps_mode == "add":
        total = total + recipe.eps
    elif recipe.eps_mode == "clamp":
        total = np.maximum(total, recipe.eps)
    return np.asarray(s / total)


def marginal_errors(matrix: Floats) -> tuple[Floats, Floats]:
    """(max |row sum - 1|, max |column sum - 1|) of matrices (..., n, n), each of shape (...)."""
    rows = np.abs(matrix.sum(axis=-1) - 1).max(axis=-1, initial=0.0)
    cols = np.abs(matrix.sum(axis=-2) - 1).max(axis=-1, initial=0.0)
    return np.asarray(rows), np.asarray(cols)


def eps_drift(recipe: Recipe, sites: int) -> Verdict:
    """Whether the recipe's eps is harmless over that many sites: eps * sites at most :data:`DRIFT_LIMIT`.

    With eps added to the sums, a sweep settles where x = x / (x + eps), i.e. both marginals at 1 - eps, and a chain
    of L mixers multiplies the stream total by (1 - eps)^L.
    """
    eps = recipe.eps if recipe.eps_mode == "add" else 0.0
    gain = (1 - eps) ** sites
    witness = {"eps": eps, "sites": sites, "gain": gain}
    if eps * sites > DRIFT_LIMIT:
        size = f"eps {eps:g} over {sites} sites: eps * sites is {eps * sites:.3g}, expected at most {DRIFT_LIMIT:g}"
        return Verdict(False, f"{size}; the sums shrink by the factor {gain:.3g}", witness)
    return Verdict(True, f"eps {eps:g} over {sites} sites changes the sums by the factor {gain:.9g}", witness)


@dataclass(frozen=True)
class SinkhornLimit:
    """The doubly stochastic matrix D1 exp(Z) D2, as far as ``sweeps`` sweeps carried it.

    ``singular_values`` are the limit's, descending; an error shrinks by ``rate`` = sigma_2^2 per sweep.  ``verdict``
    says whether *both* marginals are within tolerance (rows = 1 alone says nothing: they are divided last).
    """

    matrix: Floats
    sweeps: int
    singular_values: Floats
    rate: float
    verdict: Verdict


def sinkhorn_limit(logits: ArrayLike, *, tolerance: float = 1e-13, max_sweeps: int = 10_000) -> SinkhornLimit:
    """Sweep one matrix of logits (n, n) until both marginals are within ``tolerance``; no eps.

    Stops early when they are, and says so when ``max_sweeps`` did not suffice.  Near-decomposable logits
    ([[0, 0], [-30, 0]]) converge only like 1/sweeps at first: sigma_2 is close to 1.
    """
    z = _scaled(logits, 1.0)
    if z.ndim != 2:
        raise InputError(f"logits: found shape {z.shape}, expected one matrix (n, n)")
    recipe = Recipe("limit", order=("columns", "rows"), iterations=max_sweeps)
    count, matrix, error = 0, z, np.inf
    for matrix in sweeps(z, recipe):
        count += 1
        error = float(max(marginal_errors(matrix)))
        if error <= tolerance:
            break
    sigma = np.asarray(np.linalg.svd(matrix, compute_uv=False), dtype=np.float64)
    words = f"marginal error {error:.3g} after {count} sweeps, expected at most {tolerance:g}"
    verdict = Verdict(error <= tolerance, words, {"error": error, "sweeps": count, "tolerance": tolerance})
    return SinkhornLimit(matrix, count, sigma, float(sigma[1] ** 2) if len(sigma) > 1 else 0.0, verdict)


def _scaled(logits: ArrayLike, temperature: float) -> Floats:
    try:
        z: Any = np.asarray(logits, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"logits: {error}; expected real numbers of shape (..., n, n)") from None
    if z.ndim < 2 or z.shape[-1] != z.shape[-2] or z.shape[-1] == 0:
        raise InputError(f"logits: found shape {z.shape}, expected (..., n, n) with n at least 1")
    # half the float64 range, so that a difference of two logits is finite too
    bad = ~(np.abs(z) < np.finfo(np.float64).max / 2 * min(1.0, temperature))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(f"logits: entry {at} is {z[at]}, expected a finite number")
    return np.asarray(z / temperature)
