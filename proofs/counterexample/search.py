"""Numerical search as an adversary: least squares over two-site networks of the counterexample's shape.

    out = h (X1 + v G2(b X1)),   X1 = A X0 + u G1(a X0),   X0 = M x,   G_i(z) = sum_j w_ij z swish(v_ij z)

with A = I (pure iHC), A = diag(g) (gated iHC) or A = [[t, 1-t], [1-t, t]] (mHC); everything else free and signed.
Many starts are fitted at once (batched Levenberg-Marquardt with exact derivatives) to the target on Q in [-3, 3],
S in [-1, 1], with a penalty ``mu |theta|^2`` that is lowered decade by decade: what is found along the way is the
trade-off between error and weight norm.  They are the best of 16 times as many random ones after a few steps on a
coarse grid; for pure iHC the worse half is replaced, decade by decade, by members of the family with weights 1/eps,
so the adversary knows where to look.  Closure says that for pure iHC the error tends to 0 only as the weights grow;
gated iHC and mHC contain the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit  # type: ignore[import-untyped]

from streamgauge.theory.errors import InputError

Array = NDArray[np.float64]
KINDS = ("pure iHC", "gated iHC", "mHC")
REACH = 3.0
"""Q runs over [-REACH, REACH], S over [-1, 1]."""
_MIXER = {"pure iHC": 0, "gated iHC": 2, "mHC": 1}
_FIXED = 14  # M (4), a, u, b, v, h (2 each)


@dataclass(frozen=True)
class Found:
    """The best networks of one kind and width: weight norms |theta|_2 and largest errors.

    Points are on the Pareto front (norms increase, errors decrease); ``best`` is the least error with its weights.
    """

    kind: str
    width: int
    norms: Array
    errors: Array
    weights: Array
    starts: int

    @property
    def best(self) -> float:
        """The least largest error found."""
        return float(self.errors[-1])

    def within(self, norm: float) -> float:
        """The least error found with weights of norm at most ``norm`` (infinite if there is none)."""
        inside = self.errors[self.norms <= norm]
        return float(inside.min(initial=np.inf))


BEGINNERS = 16
"""Random starts per one that is kept."""
PENALTIES = (*(10.0**-k for k in range(1, 15)), 0.0, 0.0)


def parameters(kind: str, width: int) -> int:
    """How many weights a network has."""
    return _FIXED + 4 * width + _MIXER[kind]


def grid(points: int, rows: int = 3, reach: float = REACH) -> Array:
    """Inputs (points * rows, 2) with Q in [-reach, reach] and S in [-1, 1]."""
    q, s = np.meshgrid(np.linspace(-reach, reach, points), np.linspace(-1, 1, rows))
    return np.stack([(s + q).ravel() / 2, (s - q).ravel() / 2], axis=1)


def phi(t: Array) -> Array:
    """t^2 sigma(t)."""
    return np.asarray(t * t * expit(t))


def wanted(x: Array) -> Array:
    """x1 + x2 + phi(phi(x1 - x2))."""
    return np.asarray(x[:, 0] + x[:, 1] + phi(phi(x[:, 0] - x[:, 1])))


@np.errstate(all="ignore")  # a trial step may overflow; it is then not taken
def search(
    kind: str,
    width: int,
    *,
    starts: int = 32,
    iterations: int = 30,
    penalties: tuple[float, ...] = PENALTIES,
    seed: int = 0,
    step: Callable[[], None] = lambda: None,
) -> Found:
    """The trade-off between error and weight norm that ``starts`` random starts find; ``step`` after each penalty.

    Cost about 25 starts (26 + 4 width)^2 iterations len(penalties) 100 operations.  **Raises** :class:`InputError`
    for an unknown kind or a width below 1.
    """
    if kind not in KINDS or width < 1 or starts < 1:
        raise InputError(
            f"search: found {kind!r}, width {width}, {starts} starts; expected one of {KINDS}, at least 1"
        )
    rng = np.random.default_rng(seed)
    x, fine = grid(41), grid(241, 5)
    y, target = wanted(x), wanted(fine)
    theta = _beginners(kind, width, starts, rng)
    seen: list[tuple[float, float, Array]] = []
    for penalty in penalties:
        if kind == "pure iHC":
            theta = _with_family(theta, width, penalty, x, y, rng)
        theta = _fit(theta, kind, width, x, y, penalty, iterations)
        error = np.abs(outputs(theta, kind, width, fine)[0] - target).max(axis=1)
        norms = np.linalg.norm(theta, axis=1)
        seen += [(float(n), float(e), t) for n, e, t in zip(norms, error, theta) if np.isfinite(e)]
        step()
    front: list[tuple[float, float, Array]] = []
    for point in sorted(seen, key=lambda p: (p[0], p[1])):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    norms, errors = (np.array([p[i] for p in front]) for i in (0, 1))
    return Found(kind, width, norms, errors, front[-1][2], starts)


def _beginners(kind: str, width: int, starts: int, rng: np.random.Generator) -> Array:
    """The best ``starts`` of BEGINNERS times as many random ones, after 60 steps on a coarse grid."""
    theta = 0.6 * rng.normal(size=(BEGINNERS * starts, parameters(kind, width)))
    x = grid(15, 2)
    for penalty in (1e-2, 1e-4):
        theta = _fit(theta, kind, width, x, wanted(x), penalty, 30)
    away = outputs(theta, kind, width, x)[0] - wanted(x)
    return theta[np.argsort(np.nan_to_num((away * away).mean(axis=1), nan=np.inf))[:starts]]


def _with_family(theta: Array, width: int, penalty: float, x: Array, y: Array, rng: np.random.Generator) -> Array:
    """The worse half replaced by new members of the family with random eps."""
    residual = outputs(theta, "pure iHC", width, x)[0] - y
    cost = np.nan_to_num((residual**2).mean(axis=1) + penalty * (theta**2).sum(axis=1), nan=np.inf)
    kept = theta[np.argsort(cost)[: (len(theta) + 1) // 2]]
    eps = 10 ** rng.uniform(-9, -0.5, len(theta) - len(kept))
    return np.concatenate([kept, _family(eps, width) * (1 + 1e-3 * rng.normal(size=(len(eps), theta.shape[1])))])


def _family(eps: Array, width: int) -> Array:
    """The approximating networks, with the factor 1 / (2 eps) shared by a, u and the first unit.

    a = u = k q, G1(z) = k z swish(z / k), b = r q, G2(z) = r z swish(r z), v = e/2, h = e, r = sqrt(eps).
    """
    theta = np.zeros((len(eps), parameters("pure iHC", width)))
    k, r = (0.5 / eps) ** (1 / 3), np.sqrt(eps)
    theta[:, [0, 3, 12, 13]], theta[:, [10, 11]] = 1.0, 0.5
    theta[:, [4, 6]], theta[:, [5, 7]] = k[:, None], -k[:, None]
    theta[:, 8], theta[:, 9] = r, -r
    units = theta[:, _FIXED:].reshape(len(eps), 4, width)  # a view: w1, v1, w2, v2
    units[:, 0, 0], units[:, 1], units[:, 2, 0], units[:, 3] = k, 1 / k[:, None], r, r[:, None]
    return theta


def _fit(theta: Array, kind: str, width: int, x: Array, y: Array, penalty: float, iterations: int) -> Array:
    """Batched Levenberg-Marquardt on the mean square error plus ``penalty |theta|^2``; never ends above its start."""
    batch, count = theta.shape
    damping = np.full(batch, 1e-2)

    def cost(r: Array, t: Array) -> Array:
        return np.asarray((r * r).mean(axis=1) + penalty * (t * t).sum(axis=1))

    residual, jacobian = _residual(theta, kind, width, x, y)
    now = cost(residual, theta)
    for _ in range(iterations):
        normal = np.einsum("bpk,bpl->bkl", jacobian, jacobian, optimize=True) / len(x)
        slope = np.einsum("bpk,bp->bk", jacobian, residual) / len(x) + penalty * theta
        diagonal = normal[:, np.arange(count), np.arange(count)]
        lifted = normal.copy()
        lifted[:, np.arange(count), np.arange(count)] += penalty + damping[:, None] * (diagonal + 1e-12) + 1e-300
        try:
            move = np.linalg.solve(lifted, slope[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            damping *= 10
            continue
        trial = theta - move
        r, j = _residual(trial, kind, width, x, y)
        new = cost(r, trial)
        better = new < now  # NaN is not better
        theta = np.where(better[:, None], trial, theta)
        residual = np.where(better[:, None], r, residual)
        jacobian = np.where(better[:, None, None], j, jacobian)
        now = np.where(better, new, now)
        damping = np.clip(np.where(better, damping / 4, damping * 5), 1e-15, 1e8)
    return theta


def _residual(theta: Array, kind: str, width: int, x: Array, y: Array) -> tuple[Array, Array]:
    out, jacobian = outputs(theta, kind, width, x)
    return out - y, jacobian


def outputs(theta: Array, kind: str, width: int, x: Array) -> tuple[Array, Array]:
    """Outputs (B, P) of B networks ``theta`` (B, K) on inputs x (P, 2), and their derivatives (B, P, K)."""
    m, a, u, b, v, h = np.split(theta[:, :_FIXED], (4, 6, 8, 10, 12), axis=1)
    units = theta[:, _FIXED : _FIXED + 4 * width].reshape(-1, 4, width)
    extra = theta[:, _FIXED + 4 * width :]
    x0 = np.einsum("bij,pj->bpi", m.reshape(-1, 2, 2), x)
    y1, slope1, by_units1 = _branch(np.einsum("bpi,bi->bp", x0, a), units[:, 0], units[:, 1])
    x1 = _mixed(x0, kind, extra) + u[:, None] * y1[:, :, None]
    y2, slope2, by_units2 = _branch(np.einsum("bpi,bi->bp", x1, b), units[:, 2], units[:, 3])
    x2 = x1 + v[:, None] * y2[:, :, None]
    hv = (h * v).sum(axis=1)[:, None]
    s1 = h[:, None] + (hv * slope2)[:, :, None] * b[:, None]  # d out / d X1
    su = np.einsum("bpi,bi->bp", s1, u)
    s0 = _mixed(s1, kind, extra) + (su * slope1)[:, :, None] * a[:, None]  # every mixer here is symmetric
    parts = [
        (s0[:, :, :, None] * x[None, :, None, :]).reshape(*s0.shape[:2], 4),
        (su * slope1)[:, :, None] * x0,
        s1 * y1[:, :, None],
        (hv * slope2)[:, :, None] * x1,
        h[:, None] * y2[:, :, None],
        x2,
        su[:, :, None] * by_units1,
        hv[:, :, None] * by_units2,
    ]
    if kind == "gated iHC":
        parts.append(s1 * x0)
    elif kind == "mHC":
        parts.append(((s1[:, :, 0] - s1[:, :, 1]) * (x0[:, :, 0] - x0[:, :, 1]))[:, :, None])
    return np.einsum("bpi,bi->bp", x2, h), np.concatenate(parts, axis=2)


def _mixed(x: Array, kind: str, extra: Array) -> Array:
    """A X for the kind's mixer."""
    if kind == "pure iHC":
        return x
    if kind == "gated iHC":
        return np.asarray(x * extra[:, None])
    t = extra[:, None]
    return np.asarray(t * x + (1 - t) * x[:, :, ::-1])


def _branch(z: Array, w: Array, v: Array) -> tuple[Array, Array, Array]:
    """Values, slopes, and derivatives by (w, v) of ``sum_j w_j z swish(v_j z)``; z is (B, P), w and v are (B, m)."""
    w, v = w[:, None], v[:, None]
    t = v * z[:, :, None]
    s = expit(t)
    swish, swish_slope = t * s, s * (1 + t * (1 - s))
    z3 = z[:, :, None]
    value = (w * z3 * swish).sum(axis=2)
    slope = (w * (swish + t * swish_slope)).sum(axis=2)
    return value, slope, np.concatenate([z3 * swish, w * z3 * z3 * swish_slope], axis=2)


def quick(step: Callable[[], None] = lambda: None) -> list[Found]:
    """Pure iHC of widths 1, 2 and 4 beside gated iHC and mHC of width 1; a few seconds."""
    return _runs(16, 20, step)


def full(step: Callable[[], None] = lambda: None) -> list[Found]:
    """The same with many more starts; about a minute."""
    return _runs(96, 40, step)


def _runs(starts: int, iterations: int, step: Callable[[], None]) -> list[Found]:
    jobs: list[tuple[str, int]] = [*(("pure iHC", m) for m in (1, 2, 4)), ("gated iHC", 1), ("mHC", 1)]
    options: dict[str, Any] = {"starts": starts, "iterations": iterations, "step": step}
    return [search(kind, width, **options) for kind, width in jobs]
