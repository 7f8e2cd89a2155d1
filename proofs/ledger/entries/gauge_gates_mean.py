"""Gauge essay, sections 7 and 8: what gates below 1 do to gradients, and the mean-preserving gate J + g (I - J)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.gauge_cases import mean_gate, network, with_mixers
from streamgauge.proofs.ledger.gauge_checks import carry_fault
from streamgauge.proofs.ledger.tools import (
    Network,
    counted,
    diagonal,
    fixed,
    rational,
    same_kernel,
    verdict,
)
from streamgauge.theory import exact
from streamgauge.theory.doubly import uniform
from streamgauge.theory.verdict import Verdict

# G33: the carried gradient


def shrinks(gates: Sequence[Sequence[Fraction]]) -> Verdict:
    """Derivative of every output stream with respect to its input stream along the carry, by an exact difference of
    two runs without branches: below 1, and falling at every site."""
    n = len(gates[0])
    below = [Fraction(1)] * n
    for l in range(len(gates)):
        states = []
        for shift in (0, 1):
            x = flint.fmpq_mat(n, 1, [3 + shift] * n)
            for g in gates[: l + 1]:
                x = diagonal(g) * x
            states.append(x)
        slopes = [exact.fraction(x) for x in (states[1] - states[0]).entries()]
        for i, (new, old) in enumerate(zip(slopes, below)):
            if not abs(new) < abs(old) and old != 0:
                return verdict(False, f"stream {i} keeps its gradient at site {l}", stream=i, site=l, gradient=new)
        below = slopes
    largest = max(abs(x) for x in below)
    return verdict(True, f"largest gradient after {len(gates)} sites: {float(largest):.3g}", largest=float(largest))


def _gate_stack(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed
    gates = [[Fraction(1 + (3 * seed + 7 * l + i) % 9, 10) for i in range(n)] for l in range(sites)]
    return Case(f"{sites} sites of {n} gates in (0, 1)", gates)


NINETIES = [[Fraction(9, 10)] * 2] * 60

G33 = Claim(
    id="G33",
    document="G",
    section="7",
    statement="Diagonal gates below 1 shrink the carried gradient at every site.",
    kind="theorem",
    method="numeric reproduction",
    hypotheses=("gates in [0, 1) on a stream; the path through the residual carry, not through the branches",),
    literal=Check(
        "Exact differences through the carry: 60 gates of 9/10 leave 1.8e-3.",
        shrinks,
        lambda level: iter([Case("9/10 at 60 sites", NINETIES), *counted(5, 30, _gate_stack)(level)]),
        Case("one stream with gate 1", [[Fraction(1), Fraction(1, 2)]] * 3),
    ),
)


# G34 and G35: the mean-preserving gate


def keeps_mean(matrix: Any) -> Verdict:
    """``1^T A = 1^T``: every column sums to 1 (sympy matrices: identically)."""
    rows = matrix.tolist()
    for j in range(len(rows[0])):
        total = sum(row[j] for row in rows)
        left = sympy.simplify(total - 1) if isinstance(matrix, sympy.MatrixBase) else total - 1
        if left != 0:
            return verdict(False, f"column {j} sums to {total}", column=j, sum=total)
    return verdict(True, f"all {len(rows)} columns sum to 1", matrix=rows)


def _symbolic_gate(n: int) -> sympy.Matrix:
    g = sympy.Symbol("g")
    average = sympy.ones(n, n) / n
    return average + g * (sympy.eye(n) - average)


G34 = Claim(
    id="G34",
    document="G",
    section="8",
    statement="$A(g) = J + g (I - J)$ keeps the mean of the streams.",
    kind="theorem",
    method="symbolic",
    hypotheses=("any g, any n",),
    literal=Check(
        "Column sums with g a symbol, n = 1 to 6; for any n the column sum is $n (1-g)/n + g = 1$.",
        keeps_mean,
        lambda level: (Case(f"n = {n}, g a symbol", _symbolic_gate(n)) for n in range(1, 7)),
        Case("the plain gate (1/2) I", mean_gate(2, 1) * flint.fmpq(1, 2)),
    ),
)


@dataclass(frozen=True)
class MeanGate:
    """A matrix that is said to be J + g (I - J)."""

    matrix: flint.fmpq_mat
    g: Fraction


def tame(value: MeanGate) -> Verdict:
    """1 is fixed, each of n - 1 zero-sum directions e_0 - e_i is multiplied by g with |g| <= 1; and the matrix is
    doubly stochastic exactly when -1/(n-1) <= g <= 1."""
    a, n, g = value.matrix, value.matrix.nrows(), exact.scalar(value.g)
    ones = flint.fmpq_mat(n, 1, [1] * n)
    if a * ones != ones:
        return verdict(False, "1 is not fixed", image=a * ones)
    for i in range(1, n):
        z = flint.fmpq_mat(n, 1, [int(k == 0) - int(k == i) for k in range(n)])
        if a * z != z * g:
            return verdict(False, f"e_0 - e_{i} is not multiplied by {g}", image=a * z)
    if abs(value.g) > 1:
        return verdict(False, f"zero-sum directions are amplified by {g}", g=g)
    inside = n == 1 or -Fraction(1, n - 1) <= value.g <= 1
    stochastic = min(a.entries()) >= 0 and a.transpose() * ones == ones
    if stochastic != inside:
        return verdict(False, "doubly stochastic outside the interval, or not inside it", g=g, matrix=a)
    return verdict(True, f"eigenvalues 1 and {g}, doubly stochastic: {stochastic}", g=g, stochastic=stochastic)


def _tame_cases(level: Level) -> Iterator[Case]:
    for n in range(2, 5 if level is Level.QUICK else 8):
        for g in (Fraction(0), Fraction(1, 3), Fraction(1), -Fraction(1, n - 1), Fraction(-9, 10)):
            yield Case(f"n = {n}, g = {g}", MeanGate(mean_gate(n, g), g))


G35 = Claim(
    id="G35",
    document="G",
    section="8",
    statement="For $0 \\leq g \\leq 1$ the gate $J + g(I - J)$ does not amplify zero-sum modes.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("any n",),
    literal=Check(
        "Eigenvectors multiplied out: 1 with eigenvalue 1, n - 1 zero-sum ones with eigenvalue g.",
        tame,
        _tame_cases,
        Case("g = 3/2", MeanGate(mean_gate(3, Fraction(3, 2)), Fraction(3, 2))),
    ),
    note="The gate is doubly stochastic exactly for -1/(n-1) <= g <= 1.",
)


# G36: partial reset


def beyond_scalar(a: flint.fmpq_mat) -> Verdict:
    """A doubly stochastic mixer that kills some zero-sum direction and keeps another; a scalar mean gate has rank 1
    (g = 0) or n, and no basis change alters a rank."""
    n = a.nrows()
    ones = flint.fmpq_mat(n, 1, [1] * n)
    if min(a.entries()) < 0 or a * ones != ones or a.transpose() * ones != ones:
        return verdict(False, "not doubly stochastic", mixer=a)
    g = sympy.Symbol("g")
    determinant = sympy.factor(_symbolic_gate(n).det())
    if sympy.expand(determinant - g ** (n - 1)) != 0:
        return verdict(False, "the scalar gate's determinant is not g^(n-1)", determinant=str(determinant))
    rank = a.rank()
    if rank in (1, n):
        return verdict(
            False, f"rank {rank}: the scalar gate with g = {int(rank == n)} has it too", rank=rank, mixer=a
        )
    return verdict(True, f"rank {rank}, a scalar gate has rank 1 or {n} (determinant g^{n - 1})", rank=rank, mixer=a)


HALF_MIXED = rational([["1/2", "1/2", 0], ["1/2", "1/2", 0], [0, 0, 1]])

G36 = Claim(
    id="G36",
    document="G",
    section="8",
    statement="A scalar mean-preserving gate cannot reset one of two zero-sum directions ($n = 3$); mHC can.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("one site; ranks are the same in every gauge",),
    literal=Check(
        "Rank of diag(J_2, 1), and the scalar gate's determinant $g^{n-1}$ with g a symbol.",
        beyond_scalar,
        fixed(
            Case("diag(J_2, 1)", HALF_MIXED),
            Case("a swap after it", rational([[1, 0, 0], [0, 0, 1], [0, 1, 0]]) * HALF_MIXED),
        ),
        Case("J of three streams", uniform(3)),
    ),
)


# G37: vector mean-preserving gates


@dataclass(frozen=True)
class VectorGates:
    """A network whose mixers are mean-preserving vector gates, beside one with diagonal carries."""

    mean_gated: Network
    diagonal: Network


def needs_mixing(value: VectorGates) -> Verdict:
    """No: fails when the diagonal network of the same size is the same function and all mixers keep the mean."""
    n = value.mean_gated.mixers[0].nrows()
    ones = flint.fmpq_mat(1, n, [1] * n)
    keep = all(ones * a == ones for a in value.mean_gated.mixers)
    faults = [carry_fault(a, "diagonal") for a in value.diagonal.mixers]
    same = same_kernel(value.mean_gated, value.diagonal)
    if keep and same and not any(faults) and len(value.diagonal.mixers[0].tolist()) == n:
        gates = [[a[i, i] for i in range(n)] for a in value.diagonal.mixers]
        reason = "the same function with diagonal gates and no mixing at all"
        return verdict(False, reason, gates=gates, mixers=value.mean_gated.mixers, blocks=same.witness["blocks"])
    return verdict(True, f"not matched by diagonal gates: {same.reason}", kernel=same.reason)


def zero_sum_basis(n: int) -> flint.fmpq_mat:
    """U = [1, zero-sum directions of Helmert]: orthogonal columns, rational without their norms."""
    out = exact.zeros(n, n)
    for i in range(n):
        out[i, 0] = 1
        for j in range(1, n):
            out[i, j] = 1 if i < j else -j if i == j else 0
    return out


def vector_gates(n: int, gates: Sequence[Sequence[int | Fraction]]) -> VectorGates:
    """Mixers U diag(1, g) U^{-1}; the diagonal network has U absorbed in reads, writes, entry and readout."""
    u = zero_sum_basis(n)
    carries = [diagonal([1, *g]) for g in gates]
    net = network([u * d * u.inv() for d in carries], seed=n, ends="free")
    absorbed = Network(
        tuple(carries),
        tuple(p * u for p in net.reads),
        tuple(u.inv() * r for r in net.writes),
        u.inv() * net.entry,
        net.readout * u,
    )
    return VectorGates(net, absorbed)


VECTOR = vector_gates(3, [[Fraction(1, 2), 0], [1, Fraction(1, 3)], [0, 1]])


def unabsorbed() -> VectorGates:
    """The mean-gated network, and itself with the vector gates put in: nothing is absorbed."""
    return VectorGates(VECTOR.mean_gated, with_mixers(VECTOR.mean_gated, VECTOR.diagonal.mixers))


G37 = Claim(
    id="G37",
    document="G",
    section="8",
    statement="A vector of mean-preserving gates needs a basis change and so brings mixing back into the carry.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("static basis; free reads, writes and ends, as in the essay's Theorem 1",),
    literal=Check(
        "Whether the network with vector mean gates differs from every diagonally gated one: its own basis absorbed, "
        "kernels compared.",
        needs_mixing,
        fixed(
            Case("n = 3, the same reads and writes around diagonal gates", unabsorbed()),
            Case("n = 3, gates (1/2, 0), (1, 1/3), (0, 1), basis absorbed", VECTOR),
        ),
        Case("n = 4", vector_gates(4, [[0, 1, Fraction(1, 2)], [1, 0, 1]])),
    ),
    note="By the essay's own Theorem 1 the fixed basis U is absorbed once: U diag(1, g) U^T is the gate (1, g), "
    "which is the anchored gate that the essay recommends later. It works for gates that depend on the input, "
    "too: U does not.",
)


# G38: mean against gradient scale


@dataclass(frozen=True)
class Stack:
    """The product of ``sites`` gates J + g (I - J), and the largest gain it may leave to a zero-sum direction."""

    product: flint.fmpq_mat
    sites: int
    most: float


def mean_but_not_scale(value: Stack) -> Verdict:
    """The mean is carried with factor 1, and every zero-sum direction with a factor of at most ``most``."""
    a, n = value.product, value.product.nrows()
    found = keeps_mean(a)
    if not found:
        return found
    gains = []
    for i in range(1, n):
        z = flint.fmpq_mat(n, 1, [int(k == 0) - int(k == i) for k in range(n)])
        gains.append(max(abs(float(exact.fraction(x))) for x in (a * z).entries()))
    reason = f"mean gain 1, zero-sum gain {max(gains):.3g} after {value.sites} sites"
    return verdict(max(gains) <= value.most, reason, mean=1, zero_sum=max(gains), sites=value.sites)


def _stack(g: Fraction, sites: int, most: float) -> Stack:
    product = exact.identity(3)
    for _ in range(sites):
        product = mean_gate(3, g) * product
    return Stack(product, sites, most)


G38 = Claim(
    id="G38",
    document="G",
    section="8",
    statement="Keeping the mean does not keep the scale of gradients.",
    kind="theorem",
    method="numeric reproduction",
    hypotheses=("gates $J + g(I - J)$ with $|g| < 1$",),
    literal=Check(
        "Exact products: the mean passes 60 sites with factor 1, zero-sum directions with $g^{60}$.",
        mean_but_not_scale,
        fixed(
            Case("g = 9/10, 60 sites", _stack(Fraction(9, 10), 60, 0.002)),
            Case("g = 1/2, 20 sites", _stack(Fraction(1, 2), 20, 1e-6)),
        ),
        Case("g = 1", _stack(Fraction(1), 60, 0.002)),
    ),
)

CLAIMS = (G33, G34, G35, G36, G37, G38)
