"""Gauge essay, sections 9 to 11: strict norm preservation, the norm gate, its scale, eps and cap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.tools import diagonal, fixed, rational, verdict
from streamgauge.theory import exact
from streamgauge.theory.doubly import uniform
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_factor_squared, norm_gate_matrix
from streamgauge.theory.verdict import Verdict

# G39 and G40: strict norm preservation


def _norm_form(r: flint.fmpq_mat) -> flint.fmpq_mat:
    """The form ``||R x||^2 - ||x||^2``: R^T R - I."""
    return r.transpose() * r - exact.identity(r.ncols())


def _unpreserved(r: flint.fmpq_mat) -> flint.fmpq_mat | None:
    """A vector whose norm R changes: e_i, or e_i + e_j where the diagonal of R^T R - I vanishes."""
    form, n = _norm_form(r), r.ncols()
    for i in range(n):
        for j in range(i, n):
            if form[i, j] != 0 and (i == j or (form[i, i] == 0 and form[j, j] == 0)):
                return flint.fmpq_mat(n, 1, [int(k in (i, j)) for k in range(n)])
    return None


def preserves_and_is_full(r: flint.fmpq_mat) -> Verdict:
    """R keeps every norm, hence has full rank; a diagonal R has entries of absolute value 1."""
    x = _unpreserved(r)
    if x is not None:
        return verdict(False, "a norm changes", vector=x, image=r * x)
    if r.rank() < r.ncols():
        return verdict(False, "norms kept without full rank", matrix=r)
    n = r.ncols()
    if all(r[i, j] == 0 for i in range(n) for j in range(n) if i != j):
        sizes = [abs(exact.fraction(r[i, i])) for i in range(n)]
        if any(size != 1 for size in sizes):
            return verdict(False, "a diagonal entry is not +-1", sizes=sizes)
    return verdict(True, f"all norms kept, rank {n}, determinant {r.det()}", determinant=r.det())


ROTATION = rational([["3/5", "4/5", 0], ["-4/5", "3/5", 0], [0, 0, 1]])

G39 = Claim(
    id="G39",
    document="G",
    section="9",
    statement="A linear gate that keeps every norm has full rank; a diagonal one has $|d_i| = 1$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("$||Rx|| = ||x||$ for all x, that is $R^T R = I$; then $\\det R = \\pm 1$",),
    literal=Check(
        "Norm-keeping matrices: the form R^T R - I, rank, diagonal entries.",
        preserves_and_is_full,
        fixed(
            *(Case(f"diag{s}", diagonal(s)) for s in itertools.product((1, -1), repeat=3)),
            Case("a rotation", ROTATION),
            Case("a permutation", rational([[0, 1], [1, 0]])),
        ),
        Case("diag(1, 9/10)", diagonal([1, Fraction(9, 10)])),
    ),
)


def resets_and_breaks_norms(r: flint.fmpq_mat) -> Verdict:
    """R erases some direction v != 0, and so ||R v|| = 0 is not ||v||."""
    v = exact.kernel_vector(r)
    if v is None:
        return verdict(False, "nothing is reset", determinant=r.det(), norm_form=_norm_form(r))
    size = sum((x * x for x in v.entries()), flint.fmpq(0))
    if size == 0 or any(x != 0 for x in (r * v).entries()) or _unpreserved(r) is None:
        return verdict(False, "norms kept with a reset", vector=v, image=r * v)
    return verdict(True, f"R v = 0 for v with ||v||^2 = {size}", vector=v, squared=size)


G40 = Claim(
    id="G40",
    document="G",
    section="9",
    statement="Strict norm preservation excludes reset.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("linear gates",),
    literal=Check(
        "For each gate with a reset: a vector that goes to 0.",
        resets_and_breaks_norms,
        fixed(
            Case("diag(1, 0)", diagonal([1, 0])),
            Case("sqrt(2) diag(1, 0), squared entries 2 and 0, by 3/2", diagonal([Fraction(3, 2), 0])),
            Case("J of three streams", uniform(3)),
            Case("diag(1, 1, 0) after a rotation", diagonal([1, 1, 0]) * ROTATION),
        ),
        Case("a rotation", ROTATION),
    ),
)


# G41 and G42: the normalisation


@dataclass(frozen=True)
class Gate:
    """A gate vector and the matrix D(g) that was made of it (float64)."""

    g: tuple[float, ...]
    matrix: Floats


def gate(*g: float, eps: float = 0.0, cap: float | None = None) -> Gate:
    """The norm gate of g as the library makes it."""
    return Gate(g, norm_gate_matrix(np.array(g), NormGate(eps, cap)))


def mean_square_one(value: Gate) -> Verdict:
    """``(1/n) ||D||_F^2 = 1`` to 1e-12, with D a multiple of diag(g)."""
    d, g = value.matrix, np.array(value.g)
    n = len(g)
    if (
        np.abs(d - np.diag(np.diag(d))).max() > 0
        or np.abs(np.outer(np.diag(d), g) - np.outer(g, np.diag(d))).max() > 1e-12
    ):
        return verdict(False, "D is not a multiple of diag(g)", matrix=d)
    square = float((d**2).sum()) / n
    return verdict(
        abs(square - 1) <= 1e-12, f"(1/n) ||D(g)||_F^2 = {square:.12g} at g = {value.g}", g=value.g, square=square
    )


def _random_gates(seed: int) -> Case:
    g = np.random.default_rng(seed).uniform(-1, 1, 2 + seed % 6)
    g[seed % len(g)] = 0.0
    return Case(f"g = {np.round(g, 2).tolist()}", gate(*g.tolist()))


def _normal_gates(level: Level) -> Iterator[Case]:
    yield Case("g = (1, 1, 1, 0)", gate(1, 1, 1, 0))
    yield Case("g = (1e-200, 0)", gate(1e-200, 0))
    yield from (_random_gates(i) for i in range(10 if level is Level.QUICK else 200))


def _plain(*g: float) -> Gate:
    return Gate(g, np.diag(g))


G41 = Claim(
    id="G41",
    document="G",
    section="9",
    statement="$D(g) = \\sqrt{n}\\, diag(g) / ||g||_2$ has $(1/n) ||D(g)||_F^2 = 1$.",
    kind="theorem",
    method="property test",
    hypotheses=("as written, for every gate vector",),
    literal=Check(
        "The Frobenius mean square of D(g).",
        mean_square_one,
        fixed(
            Case("g = (1, 1, 1, 0)", gate(1, 1, 1, 0)),
            Case("all gates 0, where the formula divides by 0 and D is 0 whatever c is", gate(0, 0, 0)),
        ),
        Case("diag(1, 1/2) as it is", _plain(1, 0.5)),
    ),
    repair=Repair(
        "It holds for $g \\neq 0$, without eps and cap.",
        Check(
            "The Frobenius mean square of D(g), g with zeros, signs and tiny entries.",
            mean_square_one,
            _normal_gates,
            Case("eps = 0.1 at g = (1/2, 1/2)", gate(0.5, 0.5, eps=0.1)),
        ),
        hypothesis="some gate is not zero, eps = 0, no cap",
    ),
)


@dataclass(frozen=True)
class Alive:
    """n gates of which k are 1 and the rest 0, and the square of the factor they get."""

    n: int
    k: int
    square: Fraction


def factor_of_alive(value: Alive) -> Verdict:
    """c^2 k = n: the factor is sqrt(n / k)."""
    reason = f"n = {value.n}, k = {value.k}: c^2 = {value.square}"
    return verdict(value.square * value.k == value.n, reason, n=value.n, k=value.k, square=value.square)


def alive(n: int, k: int) -> Alive:
    """k ones among n gates."""
    return Alive(n, k, norm_factor_squared([1] * k + [0] * (n - k), NormGate()))


G42 = Claim(
    id="G42",
    document="G",
    section="9",
    statement="With $k$ of $n$ binary gates alive the factor is $\\sqrt{n/k}$; $n = 4$, $k = 2$ gives $\\sqrt{2}$.",
    kind="number",
    method="exact certificate",
    hypotheses=("k at least 1",),
    literal=Check(
        "Exact squares of the factors for every k <= n <= 8.",
        factor_of_alive,
        lambda level: (
            Case(f"n = {n}, k = {k}", alive(n, k)) for n in (4, 1, 2, 3, 5, 6, 7, 8) for k in range(1, n + 1)
        ),
        Case("n = 4, k = 2 with factor 2", Alive(4, 2, Fraction(4))),
    ),
)


# G43: stability


@dataclass(frozen=True)
class Masks:
    """Gate masks site by site (tuples of 0 and 1)."""

    gates: Sequence[Sequence[int]]


def scale_stays(value: Masks) -> Verdict:
    """The carry product's spectral norm stays within [1/2, 2]; its square is exact for 0/1 gates: every slot's
    product of n/k over the sites it survived."""
    n = len(value.gates[0])
    squares = [Fraction(1)] * n
    for g in value.gates:
        squares = [s * Fraction(n, sum(g)) * x for s, x in zip(squares, g)]
    growth = math.sqrt(max(squares))
    reason = f"the carry grows by {growth:.6g} over {len(value.gates)} sites"
    return verdict(0.5 <= growth <= 2, reason, growth=growth, squared=max(squares), sites=len(value.gates))


G43 = Claim(
    id="G43",
    document="G",
    section="9, 10, 11",
    statement="The norm gate stabilises the scale of the residual path.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("eps = 0, no cap",),
    literal=Check(
        "The exact spectral norm of products of norm gates lies between 1/2 and 2.",
        scale_stays,
        fixed(
            Case("all gates 1, 60 sites", Masks([(1, 1, 1, 1)] * 60)),
            Case("(1, 1, 1, 0), 60 sites", Masks([(1, 1, 1, 0)] * 60)),
        ),
        Case("(1, 1, 0, 0), 60 sites", Masks([(1, 1, 0, 0)] * 60)),
    ),
    note="||D||_2 = sqrt(n) ||g||_inf / ||g||_2 >= 1, with equality only for equal |g_i|: the norm gate gives up "
    "mHC's one guarantee, a carry of norm at most 1. The plain gate keeps it; deaths in turn stay under sqrt(e). "
    "What the essay defines, the mean square over the directions, is kept at every site (G41). The cap that it "
    "offers helps only below sqrt(4/3) = 1.155 here, where the normalisation is given up (G45).",
)


# G44: eps


def keeps_normalisation(value: tuple[tuple[float, ...], float, Floats]) -> Verdict:
    """With eps in the denominator the Frobenius mean square is still 1, to 1e-6."""
    g, eps, d = value
    square = float((d**2).sum()) / len(g)
    return verdict(
        abs(square - 1) <= 1e-6,
        f"(1/n) ||D||_F^2 = {square:.6g} at g = {g}, eps = {eps}",
        g=g,
        eps=eps,
        square=square,
    )


def damped_by_eps(value: tuple[tuple[float, ...], float, Floats]) -> Verdict:
    """``(1/n) ||D||_F^2 = (||g|| / (||g|| + eps))^2``, below 1; 0 at g = 0; and D = t sqrt(n) / (t sqrt(n) + eps) I
    at g = t 1, so "all streams decay" cannot be said."""
    g, eps, d = value
    norm = math.sqrt(sum(x * x for x in g))
    square, expected = float((d**2).sum()) / len(g), (norm / (norm + eps)) ** 2
    if abs(square - expected) > 1e-12 * max(1.0, expected) or not square < 1:
        return verdict(
            False, f"mean square {square:.6g}, expected {expected:.6g} and below 1", g=g, eps=eps, square=square
        )
    if len(set(g)) == 1 and g[0] > 0:
        uniform_gain = norm / (norm + eps)
        if np.abs(d - uniform_gain * np.eye(len(g))).max() > 1e-12:
            return verdict(False, "a uniform gate is not that multiple of I", matrix=d)
    return verdict(True, f"mean square {square:.9g} = (||g|| / (||g|| + eps))^2", square=square)


def epsilon(eps: float, *g: float) -> tuple[tuple[float, ...], float, Floats]:
    return g, eps, norm_gate_matrix(np.array(g), NormGate(eps))


def _eps_cases(level: Level) -> Iterator[Case]:
    for t in (1.0, 0.5, 0.1, 0.01):
        yield Case(f"uniform g = {t}, eps = 1e-6: still I to 1e-3", epsilon(1e-6, t, t, t, t))
    yield Case("g = 0", epsilon(0.1, 0, 0, 0))
    dice = np.random.default_rng(7)
    for i in range(10 if level is Level.QUICK else 100):
        yield Case(
            f"drawn gates {i}", epsilon(float(dice.uniform(1e-6, 1)), *dice.uniform(-1, 1, 2 + i % 5).tolist())
        )


G44 = Claim(
    id="G44",
    document="G",
    section="9",
    statement="In practice $c(g) = \\sqrt{n} / (||g||_2 + \\epsilon)$, the same normalisation made numerically safe.",
    kind="definition",
    method="property test",
    hypotheses=("eps > 0",),
    literal=Check(
        "The Frobenius mean square is still 1.",
        keeps_normalisation,
        fixed(Case("(1, 1), eps = 1e-9", epsilon(1e-9, 1, 1)), Case("(1/2, 1/2), eps = 0.1", epsilon(0.1, 0.5, 0.5))),
        Case("eps = 1", epsilon(1.0, 1, 1)),
    ),
    repair=Repair(
        "The mean square is $(||g|| / (||g|| + \\epsilon))^2 < 1$, $D(0) = 0$, and uniform gates $g = t 1$ give "
        "nearly $I$ for every $t$ far above eps: decay of all streams cannot be expressed.",
        Check(
            "The formula on drawn, uniform and zero gates.",
            damped_by_eps,
            _eps_cases,
            Case("the matrix without eps", ((1.0, 1.0), 0.5, norm_gate_matrix(np.array([1.0, 1.0]), NormGate()))),
        ),
    ),
)


CLAIMS = (G39, G40, G41, G42, G43, G44)
