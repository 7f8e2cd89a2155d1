"""Reading note, sections 4.2, 4.3, 5 and 6: what double stochasticity does not guarantee."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import flint
import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Level
from streamgauge.proofs.ledger.entries.note_mixing import (
    SWAP,
    Matrix,
    is_doubly_stochastic,
    note_claim,
    square,
    two_streams,
)
from streamgauge.proofs.ledger.tools import column, fixed, plain, rational, same_matrix, vanishes, verdict
from streamgauge.theory.doubly import uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.verdict import Verdict

HALF = Fraction(1, 2)
A_ = sympy.Symbol("a")
X1, X2 = sympy.symbols("x1 x2")
MIX = sympy.Matrix([[A_, 1 - A_], [1 - A_, A_]])
MEAN_AND_DIFFERENCE = sympy.Matrix([[1, 1], [1, -1]])
Gate = Callable[[int], Any]


def _contracts(value: tuple[Matrix, Matrix, Fraction, bool]) -> Verdict:
    """v is not zero and |Av| <= bound |v| (``strict``: and orthogonal to 1, with equality, bound below 1)."""
    a, v, bound, strict = value
    limit = flint.fmpq(bound.numerator, bound.denominator) ** 2 * square(v)
    size, total = square(a * v), sum(v.entries(), flint.fmpq(0))
    ok = is_doubly_stochastic(a) and square(v) > 0 and size <= limit
    if strict:
        ok = ok and total == 0 and size == limit and bound < 1
    return verdict(ok, f"|Av|^2 = {size}, |v|^2 = {square(v)}, stated gain {bound}", matrix=a, v=v)


def _eigen(values: tuple[Any, Any]) -> Verdict:
    return vanishes(MIX * MEAN_AND_DIFFERENCE - MEAN_AND_DIFFERENCE * sympy.diag(*values), "A V - V diag(values)")


def _decays(ratio: Fraction) -> Verdict:
    """Induction step of A(.9)^k (5, 1) = 3 +- 2 q^k for a free q^k, and twenty powers."""
    c = sympy.Symbol("c")
    a = MIX.subs(A_, sympy.Rational(9, 10))
    q = sympy.Rational(ratio.numerator, ratio.denominator)
    step = a * sympy.Matrix([3 + 2 * c, 3 - 2 * c]) - sympy.Matrix([3 + 2 * q * c, 3 - 2 * q * c])
    found = vanishes(step, "induction step")
    if not found:
        return found
    state = column(5, 1)
    for k in range(20):
        wanted = column(3 + 2 * ratio**k, 3 - 2 * ratio**k)
        if state != wanted:
            return verdict(False, f"k = {k}: {plain(state)}, expected {plain(wanted)}", k=k)
        state = two_streams(Fraction(9, 10)) * state
    return verdict(True, "induction step and twenty powers", tenth=float(3 + 2 * ratio**10))


def _maps_to(value: tuple[Any, Any]) -> Verdict:
    """A(a) (x, y)^T equals the stated pair, for symbolic x, y."""
    a, stated = value
    return vanishes(
        MIX.subs(A_, a) * sympy.Matrix([X1, X2]) - sympy.Matrix(stated), f"A({a}) x minus the stated streams"
    )


def _kills_zero_mean(a: Matrix) -> Verdict:
    n = a.nrows()
    return same_matrix(a * (identity(n) - uniform(n)), flint.fmpq_mat(n, n), "A (I - J)")


def _never_mixes(a: Matrix) -> Verdict:
    """The zero-mean part keeps its size under twelve powers."""
    n = a.nrows()
    x = column(*(2**i for i in range(n)))
    centred = x - uniform(n) * x
    size, state = square(centred), centred
    for k in range(1, 13):
        state = a * state
        if square(state) != size:
            return verdict(False, f"after {k} steps the spread is {square(state)}, before {size}", steps=k)
    return verdict(True, f"squared spread stays {size} for twelve steps", spread=size)


def _ball_sigmoid(scale: int, logit: int) -> Any:
    """scale * sigma(logit) as a ball of enough bits."""
    before, flint.ctx.prec = flint.ctx.prec, 128 + 2 * abs(logit)
    try:
        e = flint.arb(-logit).exp()
        return scale / (1 + e), scale * e / (1 + e)
    finally:
        flint.ctx.prec = before


def _float_sigmoid(scale: int, logit: int) -> Any:
    y = scale / (1 + float(np.exp(-float(logit))))
    return y, scale - y


def _strictly_inside(value: tuple[Gate, int, int]) -> Verdict:
    """0 < y and 0 < scale - y, the two returned by the gate."""
    gate, scale, logit = value
    y, rest = gate(logit)
    ok = bool(y > 0) and bool(rest > 0)
    return verdict(
        ok, f"{scale} sigma({logit}) = {float(y):.6g}, distance to {scale}: {float(rest):.3g}", gate=float(y)
    )


def _gates(level: Level) -> Iterator[Case]:
    for scale in (1, 2):
        for logit in (0, 3, -3, 40, -40, 700 if level is Level.QUICK else 5000):
            yield Case(f"{scale} sigma({logit})", (partial(_ball_sigmoid, scale), scale, logit))


def _non_positive_eigenvalue(value: tuple[Matrix, Matrix, Fraction]) -> Verdict:
    """A is non-negative and doubly stochastic, A v = lambda v with v not zero and lambda <= 0."""
    a, v, eigenvalue = value
    if not is_doubly_stochastic(a) or square(v) == 0 or eigenvalue > 0:
        return verdict(False, f"eigenvalue {eigenvalue} of {plain(v)}", matrix=a, eigenvalue=eigenvalue)
    return same_matrix(a * v, v * flint.fmpq(eigenvalue.numerator, eigenvalue.denominator), "A v and lambda v")


CLAIMS = (
    note_claim(
        "N13",
        "4.2",
        r"Other singular values may be below 1, and 0.",
        Check(
            "Singular vectors orthogonal to 1, exactly.",
            _contracts,
            fixed(
                Case("A(.9), 4/5", (two_streams(Fraction(9, 10)), column(1, -1), Fraction(4, 5), True)),
                Case("J, 0", (uniform(4), column(1, -1, 0, 0), Fraction(0), True)),
            ),
            Case("the swap", (SWAP, column(1, -1), Fraction(1), True)),
        ),
        hypotheses=("$A$ exactly doubly stochastic",),
    ),
    note_claim(
        "N16",
        "4.3",
        r"There is no positive lower bound on $\sigma_{min}$.",
        Check(
            "For every bound a doubly stochastic matrix and a vector that shrinks below it.",
            _contracts,
            fixed(
                *(
                    Case(
                        f"1e-{k}",
                        (two_streams((1 + Fraction(1, 10**k)) / 2), column(1, -1), Fraction(1, 10**k), False),
                    )
                    for k in (1, 3, 6, 12)
                )
            ),
            Case("the identity", (identity(2), column(1, -1), HALF, False)),
        ),
        hypotheses=("exactly doubly stochastic, two streams or more",),
    ),
    note_claim(
        "N17",
        "5",
        r"$A(a)$ has the eigenvalues 1 on $(1,1)$ and $2a - 1$ on $(1,-1)$.",
        Check("Symbolic a.", _eigen, fixed(Case("1, 2a-1", (1, 2 * A_ - 1))), Case("1, 1-2a", (1, 1 - 2 * A_))),
        method="symbolic",
        hypotheses=("two streams, $a$ on the diagonal and $1 - a$ beside it; any real $a$",),
    ),
    note_claim(
        "N18",
        "5",
        r"$A(0.9)^k (5,1)^T = (3 + 2 (0.8)^k, 3 - 2 (0.8)^k)^T$.",
        Check(
            "Induction step with a free power, twenty powers.",
            _decays,
            fixed(Case("ratio 4/5", Fraction(4, 5))),
            Case("ratio 9/10", Fraction(9, 10)),
        ),
        kind="number",
        method="symbolic",
    ),
    note_claim(
        "N19",
        "5",
        r"$a = 0.5$ makes the two streams equal in one step; $a = 0$ exchanges them.",
        Check(
            "Symbolic streams.",
            _maps_to,
            fixed(
                Case("a = 1/2", (sympy.Rational(1, 2), ((X1 + X2) / 2, (X1 + X2) / 2))), Case("a = 0", (0, (X2, X1)))
            ),
            Case("a = 1/4 merges", (sympy.Rational(1, 4), ((X1 + X2) / 2, (X1 + X2) / 2))),
        ),
        kind="number",
    ),
    note_claim(
        "N20",
        "5",
        r"$J = 11^T/n$ is allowed and removes every zero-mean direction.",
        Check(
            "J (I - J) = 0, n = 1 to 8.",
            _kills_zero_mean,
            fixed(*(Case(f"n = {n}", uniform(n)) for n in range(1, 9))),
            Case("A(.9)", two_streams(Fraction(9, 10))),
        ),
        hypotheses=(
            "two streams or more",
            "the carry alone",
        ),
    ),
    note_claim(
        "N21",
        "5",
        r"Permutations only move streams: doubly stochastic matrices need not mix more with every layer.",
        Check(
            "Size of the zero-mean part over twelve powers.",
            _never_mixes,
            fixed(
                Case("swap", SWAP),
                Case("cycle of four", rational([[int(j == (i + 1) % 4) for j in range(4)] for i in range(4)])),
            ),
            Case("A(.9)", two_streams(Fraction(9, 10))),
        ),
        note="The mHC paper's 'monotone mixing' is too strong.",
        hypotheses=("exactly doubly stochastic carry, without branches",),
    ),
    note_claim(
        "N22",
        "6",
        r"For finite logits reads $\sigma(\cdot)$ lie in $(0,1)$ and writes $2\sigma(\cdot)$ in $(0,2)$.",
        Check(
            "Balls of enough bits (flint arb), logits up to thousands.",
            _strictly_inside,
            _gates,
            Case("float64 at logit 40", (partial(_float_sigmoid, 1), 1, 40)),
        ),
        hypotheses=("real arithmetic: in float64 a read is exactly 1 from logit 37 on",),
    ),
    note_claim(
        "N23",
        "6",
        r"Non-negative weights do not rule out cancellation: eigenvalues may be negative or zero.",
        Check(
            "Eigenvectors of doubly stochastic matrices, exactly.",
            _non_positive_eigenvalue,
            fixed(
                Case("A(.1)", (two_streams(Fraction(1, 10)), column(1, -1), Fraction(-4, 5))),
                Case("J", (uniform(2), column(1, -1), Fraction(0))),
            ),
            Case("A(.9)", (two_streams(Fraction(9, 10)), column(1, -1), Fraction(4, 5))),
        ),
        hypotheses=("exactly doubly stochastic, two streams or more",),
    ),
)
