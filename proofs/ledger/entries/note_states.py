"""Reading note, sections 2, 3 and 8: unrolling, norms, growth, and what a frozen carry does not bound."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim
from streamgauge.proofs.ledger.tools import column, counted, diagonal, fixed, plain, rational, row, vanishes, verdict
from streamgauge.theory.exact import identity
from streamgauge.theory.sinkhorn import sinkhorn
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Unrolled:
    """A residual stack of ``depth`` opaque branches, and the sites whose outputs a sum from ``start`` collects."""

    depth: int
    start: int
    terms: range


def _unrolls(value: Unrolled) -> Verdict:
    branches = [sympy.Function(f"F{i}") for i in range(value.depth)]
    states = [sympy.Symbol("x")]
    for f in branches:
        states.append(states[-1] + f(states[-1]))
    total = states[value.start] + sum(branches[i](states[i]) for i in value.terms)
    return vanishes(states[-1] - total, f"x_{value.depth} minus x_{value.start} and {len(value.terms)} branches")


@dataclass(frozen=True)
class Norms:
    """A matrix with its stated infinity norm, 1-norm and *squared* spectral norm."""

    matrix: flint.fmpq_mat
    infinity: flint.fmpq
    one: flint.fmpq
    two_squared: flint.fmpq


def _norms(value: Norms) -> Verdict:
    """The largest gains over the extreme points of the two unit balls; s I - A^T A semidefinite and singular."""
    a, n = value.matrix, value.matrix.ncols()
    signs = [a * column(*s) for s in itertools.product((-1, 1), repeat=n)]
    units = [a * column(*(int(i == j) for i in range(n))) for j in range(n)]
    gain_infinity = max(max(abs(x) for x in y.entries()) for y in signs)
    gain_one = max(sum((abs(x) for x in y.entries()), flint.fmpq(0)) for y in units)
    gap = identity(n) * value.two_squared - a.transpose() * a
    minors = [
        flint.fmpq_mat(len(k), len(k), [gap[i, j] for i in k for j in k]).det()
        for size in range(1, n + 1)
        for k in itertools.combinations(range(n), size)
    ]
    ok = (gain_infinity, gain_one) == (value.infinity, value.one) and min(minors) >= 0 and gap.det() == 0
    reason = f"largest gains {gain_infinity} and {gain_one}, stated {value.infinity} and {value.one}"
    return verdict(
        ok, f"{reason}; squared spectral norm {value.two_squared}", gains=(gain_infinity, gain_one), matrix=a
    )


def _norm_case(seed: int) -> Case:
    """A = Q1 diag(sigma) Q2 with rational reflections, so that the spectral norm is known."""
    dice = random.Random(seed)
    sigma = sorted((Fraction(dice.randint(0, 9)) for _ in range(3)), reverse=True)

    def reflection() -> flint.fmpq_mat:
        v = column(*(dice.randint(-3, 3) for _ in range(2)), 1)
        return identity(3) - v * v.transpose() * 2 / (v.transpose() * v)[0, 0]

    a = reflection() * diagonal(sigma) * reflection()
    rows = max(sum((abs(x) for x in line), flint.fmpq(0)) for line in a.tolist())
    cols = max(sum((abs(x) for x in line), flint.fmpq(0)) for line in a.transpose().tolist())
    two = flint.fmpq(int(sigma[0]) ** 2)
    return Case(f"3 x 3 with singular values {plain(sigma)}", Norms(a, rows, cols, two))


SIGNED = rational([[10, -9], [0, 0]])


def _sums(value: tuple[tuple[int, ...], int, int]) -> Verdict:
    entries, signed, absolute = value
    found = (sum(entries), sum(abs(x) for x in entries))
    return verdict(found == (signed, absolute), f"{entries}: sum {found[0]}, absolute sum {found[1]}", found=found)


def _power(value: tuple[Fraction, int, int]) -> Verdict:
    base, exponent, stated = value
    exact = base**exponent
    reason = f"({base})^{exponent} = {float(exact):.12g}, stated about {stated}"
    return verdict(abs(exact - stated) <= Fraction(1, 2), reason, value=float(exact), stated=stated)


@dataclass(frozen=True)
class Trajectory:
    """A network whose mixers, reads and writes depend on the state, and the order its carry is multiplied in."""

    sites: int
    seed: int
    later_on_the_left: bool = True


def _along_trajectory(value: Trajectory) -> Verdict:
    """Run it exactly, record what it did, and compare X_L with the unrolled sum from every level."""
    dice = random.Random(value.seed)
    state = rational([[dice.randint(-3, 3) for _ in range(2)] for _ in range(2)])
    states, mixers, added = [state], [], []
    for _ in range(value.sites):
        s = state[0, 0] - state[1, 1] + dice.randint(-2, 2)
        a = rational([[1, 2], [0, 1]]) * (s * s / (1 + s * s)) + rational([[0, 1], [1, 0]]) / (1 + s * s)
        p, q = row(1, -1) / (1 + s * s), column(1, dice.randint(1, 3)) * s
        u = p * state
        branch = flint.fmpq_mat(1, 2, [u[0, 0] * u[0, 1] + 1, u[0, 0] ** 2])
        mixers.append(a)
        added.append(q * branch)
        state = a * state + q * branch
        states.append(state)

    def carry(low: int) -> flint.fmpq_mat:
        out = identity(2)
        for a in mixers[low:]:
            out = a * out if value.later_on_the_left else out * a
        return out

    for l in range(value.sites):
        total = carry(l) * states[l]
        for i in range(l, value.sites):
            total += carry(i + 1) * added[i]
        if total != state:
            return verdict(False, f"from level {l}: the sum is not X_L", level=l, found=total, expected=state)
    return verdict(True, f"X_{value.sites} equals the unrolled sum from every level", sites=value.sites)


def _single_stream(value: tuple[float, Fraction, Fraction]) -> Verdict:
    """n = 1: is the carry exactly 1 while the block differs from x + F(x) for some branch?"""
    carry, p, q = value
    x = Fraction(3, 2)
    differs = q * (p * x) ** 2 != x**2 or q * (p * x) != x  # branches F(z) = z^2 and F(z) = z
    reason = f"carry {carry}; with p = {p}, q = {q} the block {'is not' if differs else 'is'} x + F(x)"
    return verdict(carry == 1.0 and differs, reason, carry=carry, p=p, q=q)


def _mixer(logit: float) -> float:
    """What Sinkhorn makes of a single logit."""
    return float(sinkhorn([[logit]], "paper").mixer[0, 0])


X = sympy.Matrix(sympy.symbols("x1 x2"))
DX = sympy.Matrix(sympy.symbols("d1 d2"))
T = sympy.Symbol("t")
K = sympy.symbols("k0:4")


def _along(expression: Any) -> Any:
    """The derivative of a function of X in the direction DX."""
    moved = expression.subs(dict(zip(X, X + T * DX)), simultaneous=True)
    return moved.diff(T).subs(T, 0)


def _derivative(value: tuple[Any, Any]) -> Verdict:
    function, stated = value
    return vanishes(_along(function) - stated, "derivative minus the stated one")


A_OF_X = sympy.Matrix([[K[0] + X[0] * X[1], K[1] * X[1]], [X[0] ** 2, K[2] + K[3] * X[0]]])
P_OF_X = sympy.Matrix([[K[0] + X[1] ** 2, K[1] * X[0]]])
Q_OF_X = sympy.Matrix([K[2] * X[0] * X[1], K[3] + X[1]])
READ = (P_OF_X * X)[0]
_F = sympy.Lambda(T, sympy.Rational(1, 3) + 2 * T - T**2 + K[0] * T**3)
_DF = _F.expr.diff(T).subs(T, READ)
CARRY = A_OF_X * DX + _along(A_OF_X) * X
BRANCH = _along(Q_OF_X) * _F(READ) + Q_OF_X * _DF * (_along(P_OF_X) * X + P_OF_X * DX)[0]

State = tuple[Fraction, Fraction]


def _moving(x: State) -> tuple[State, Fraction]:
    """A(a(X)) X with a = x1^2 / (1 + x1^2): doubly stochastic at every X."""
    return _mixed(x, x[0] ** 2 / (1 + x[0] ** 2))


def _frozen(x: State) -> tuple[State, Fraction]:
    return _mixed(x, Fraction(1, 2))


def _mixed(x: State, a: Fraction) -> tuple[State, Fraction]:
    return (a * x[0] + (1 - a) * x[1], (1 - a) * x[0] + a * x[1]), a


def _expands(value: tuple[Callable[[State], tuple[State, Fraction]], State, State]) -> Verdict:
    """Every mixer used is doubly stochastic (norm 1), and yet two states move apart."""
    apply, x, y = value
    (fx, a), (fy, b) = apply(x), apply(y)
    before = sum((u - v) ** 2 for u, v in zip(x, y))
    after = sum((u - v) ** 2 for u, v in zip(fx, fy))
    inside = 0 <= a <= 1 and 0 <= b <= 1
    reason = f"squared distance {float(before):.4g} becomes {float(after):.4g} under norm-1 mixers"
    return verdict(inside and after > before, reason, before=before, after=after, mixers=plain([a, b]))


CLAIMS = (
    Claim(
        "N01",
        "N",
        "2",
        r"Residual unrolling: $x_L = x_l + \sum_{i=l}^{L-1} F_i(x_i)$.",
        "theorem",
        "symbolic",
        Check(
            "Opaque branches, every start level up to depth 6; the induction step is the recursion itself.",
            _unrolls,
            fixed(*(Case(f"L={d}, l={s}", Unrolled(d, s, range(s, d))) for d in (1, 3, 6) for s in range(d))),
            Case("last branch left out", Unrolled(3, 0, range(2))),
        ),
        hypotheses=(
            "residual networks $x_{i+1} = x_i + F_i(x_i)$",
            "arbitrary branches",
        ),
    ),
    Claim(
        "N02",
        "N",
        "2",
        r"$\|A\|_\infty$ is the largest absolute row sum and $\|A\|_1$ the largest absolute column sum: the largest "
        r"gains in the max norm and in the 1-norm; $\|A\|_2$ is the largest singular value.",
        "definition",
        "exact certificate",
        Check(
            "Gains at all extreme points of the unit balls; $s - A^T A$ semidefinite and singular, exactly.",
            _norms,
            counted(5, 60, _norm_case),
            Case("signed row sum of (10, -9)", Norms(SIGNED, flint.fmpq(1), flint.fmpq(10), flint.fmpq(181))),
        ),
    ),
    Claim(
        "N03",
        "N",
        "2",
        r"The row $(10, -9)$ sums to 1 while its absolute sum is 19: row sums of a signed matrix are no norm.",
        "number",
        "exact certificate",
        Check(
            "Integer arithmetic.",
            _sums,
            fixed(Case("(10, -9)", ((10, -9), 1, 19))),
            Case("(10, 9)", ((10, 9), 1, 19)),
        ),
        note="The Amax of the mHC paper is the absolute value of sums: for signed hyper-connections no norm.",
    ),
    Claim(
        "N04",
        "N",
        "2",
        r"A gain of 1.1 over sixty sites is about 304.",
        "number",
        "exact certificate",
        Check(
            "Exact power.",
            _power,
            fixed(Case("1.1^60", (Fraction(11, 10), 60, 304))),
            Case("one site fewer", (Fraction(11, 10), 59, 304)),
        ),
    ),
    Claim(
        "N05",
        "N",
        "3",
        r"Table 1 of the mHC paper: learning the mixing lowers the loss by 0.022, adding the read by 0.025, adding "
        r"the write by 0.027.",
        "number",
        "literature",
        source="arXiv:2512.24880v2, table 1",
        note="The row of gap 0 is a single-stream network there, so that the exchange of streams contributes most is "
        "a reading of the table, not a row of it.",
    ),
    Claim(
        "N06",
        "N",
        "3",
        r"$X_L = R_{L:l} X_l + \sum_i R_{L:i+1} q_i F_i(p_i X_i)$ with $R_{L:l} = A_{L-1} \cdots A_l$ holds along a "
        r"trajectory also where the coefficients depend on the state.",
        "theorem",
        "exact certificate",
        Check(
            "Networks with state-dependent coefficients run over Q; every start level.",
            _along_trajectory,
            counted(3, 20, lambda i: Case(f"seed {i}", Trajectory(2 + i % 4, i))),
            Case("mixers multiplied in the other order", Trajectory(3, 1, later_on_the_left=False)),
        ),
        hypotheses=("dynamic A, p, q, evaluated on the trajectory",),
    ),
    Claim(
        "N25",
        "N",
        "6",
        r"For $n = 1$ the mixer is the number 1: the carry is the identity, the block need not be $x + F(x)$.",
        "theorem",
        "symbolic",
        Check(
            "Sinkhorn of a single logit, and blocks with sigmoid reads and writes.",
            _single_stream,
            fixed(
                Case("zero logits", (_mixer(0.0), Fraction(1, 2), Fraction(1))),
                Case("logit -7", (_mixer(-7.0), Fraction(9, 10), Fraction(3, 2))),
            ),
            Case("p = q = 1 is the plain block", (_mixer(0.0), Fraction(1), Fraction(1))),
        ),
        hypotheses=(
            "one stream; exact Sinkhorn, which makes the 1 x 1 mixer 1",
            "reads and writes as sigmoids make them",
        ),
    ),
    Claim(
        "N35",
        "N",
        "8",
        r"$D[A(X)X][\Delta] = A(X)\Delta + DA(X)[\Delta]\,X$.",
        "theorem",
        "symbolic",
        Check(
            "A matrix of polynomials in X with free coefficients, differentiated along a free direction.",
            _derivative,
            fixed(Case("n = 2", (A_OF_X * X, CARRY))),
            Case("without the second term", (A_OF_X * X, A_OF_X * DX)),
        ),
        hypotheses=(r"$A(X)$ differentiable; $\Delta$ any direction",),
    ),
    Claim(
        "N36",
        "N",
        "8",
        r"$D[qF(pX)][\Delta] = Dq[\Delta]\,F(pX) + q\,DF(pX)\,[Dp[\Delta]X + p\Delta]$.",
        "theorem",
        "symbolic",
        Check(
            "Polynomial reads and writes in X, a cubic branch with bias, a free direction.",
            _derivative,
            fixed(Case("n = 2", (Q_OF_X * _F(READ), BRANCH))),
            Case("frozen read", (Q_OF_X * _F(READ), BRANCH - Q_OF_X * _DF * (_along(P_OF_X) * X)[0])),
        ),
        hypotheses=(r"$p$, $q$ and $F$ differentiable; $\Delta$ any direction",),
    ),
    Claim(
        "N52",
        "N",
        "8, 13",
        r"A bound on the frozen carry is no Lipschitz bound of the network: with every mixer doubly stochastic, two "
        r"states can move apart.",
        "theorem",
        "exact certificate",
        Check(
            "A(a(X)) X with a = x1^2/(1+x1^2), doubly stochastic at every X: pairs of states that move apart.",
            _expands,
            fixed(
                *(
                    Case(f"x2 = {h}", (_moving, (Fraction(1), Fraction(h)), (Fraction(11, 10), Fraction(h))))
                    for h in (-10, -100, -1000)
                )
            ),
            Case("frozen mixer", (_frozen, (Fraction(1), Fraction(-100)), (Fraction(11, 10), Fraction(-100)))),
        ),
        hypotheses=(
            "mixers exactly doubly stochastic at every state, and dependent on it (dynamic)",
            "the carry alone: no branch is needed for it",
        ),
    ),
)
