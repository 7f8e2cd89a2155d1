"""Ours: what stays exact with token-dependent mixers, what loops forbid, and the sigmoid boxes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.ours_gauge import unimodular
from streamgauge.proofs.ledger.tools import (
    Network,
    column,
    counted,
    fixed,
    plain,
    quadratic,
    rational,
    row,
    run_exactly,
    same_matrix,
    verdict,
)
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat


def helmert(n: int) -> sympy.Matrix:
    """Orthogonal columns, not normalised: 1, then k ones, -k, zeros."""
    return sympy.Matrix(n, n, lambda i, k: 1 if k == 0 or i < k else (-k if i == k else 0))


def _block_form(a: sympy.Matrix) -> Verdict:
    """H^-1 A H has first row and first column (1, 0, .., 0)."""
    h = helmert(a.rows)
    b = (h.inv() * a * h).applyfunc(sympy.expand)
    cross = [b[0, 0] - 1, *b[0, 1:], *b[1:, 0]]
    left = [str(x) for x in cross if sympy.simplify(x) != 0]
    reason = f"H^-1 A H: {len(left)} entries beside the block do not vanish" if left else "H^-1 A H = 1 (+) B"
    return verdict(not left, reason, remains=left, n=a.rows)


def unit_sums(n: int) -> sympy.Matrix:
    """Every matrix with unit row and column sums: (n-1)^2 free entries."""
    free = sympy.Matrix(n - 1, n - 1, sympy.symbols(f"a1:{(n - 1) ** 2 + 1}"))
    wide = free.row_join(sympy.Matrix([1 - sum(free[i, :]) for i in range(n - 1)]))
    return wide.col_join(sympy.Matrix([[1 - sum(wide[:, j]) for j in range(n)]]))


@dataclass(frozen=True)
class Token:
    """A token's input, the mixers it met and the gauges used for it."""

    start: Matrix
    mixers: tuple[Matrix, ...]
    gauge: tuple[Matrix, ...]


@dataclass(frozen=True)
class Tokens:
    """Tokens that passed the same reads and writes."""

    reads: tuple[Matrix, ...]
    writes: tuple[Matrix, ...]
    tokens: tuple[Token, ...]


def _per_token(value: Tokens) -> Verdict:
    """Pure iHC in each token's own gauge gives the same output; the gauges of two tokens differ."""
    n, sites = value.reads[0].ncols(), len(value.reads)
    for i, token in enumerate(value.tokens):
        source = Network(token.mixers, value.reads, value.writes, identity(n), identity(n))
        new = Network(
            (identity(n),) * sites,
            tuple(p * g for p, g in zip(value.reads, token.gauge)),
            tuple(g.solve(r) for r, g in zip(value.writes, token.gauge[1:])),
            token.gauge[0].inv(),
            token.gauge[-1],
        )
        branches = [quadratic] * sites
        outputs = [run_exactly(net, token.start, branches) for net in (source, new)]
        if outputs[0] != outputs[1]:
            return verdict(False, f"token {i}: the output changes", token=i, expected=outputs[0], found=outputs[1])
    apart = value.tokens[0].gauge != value.tokens[1].gauge
    shared = "differ" if apart else "are the same for all tokens"
    return verdict(
        apart, f"{len(value.tokens)} tokens exact; their gauges {shared}", gauges=[t.gauge[1] for t in value.tokens]
    )


def _dynamic(seed: int, *, static: bool = False, shared: bool = False) -> Case:
    """Mixers A(a(X)) with a depending on the token's state, recorded along its run, and P_{l+1} = A_l P_l."""
    dice = random.Random(seed)
    sites = 3
    reads = tuple(row(dice.randint(-2, 2), dice.randint(1, 3)) for _ in range(sites))
    writes = tuple(column(dice.randint(-2, 2), dice.randint(1, 3)) for _ in range(sites))
    tokens: list[Token] = []
    for k in range(2):
        state = start = rational([[dice.randint(-3, 3) + k, 1], [k, dice.randint(-3, 3)]])
        mixers, gauge = [], [identity(2)]
        for p, r in zip(reads, writes):
            s = abs(state[0, 0] - state[1, 1]) + 1
            a = flint.fmpq(4, 5) if static else (s + 1) / (s + 2)
            mixers.append(flint.fmpq_mat(2, 2, [a, 1 - a, 1 - a, a]))
            gauge.append(mixers[-1] * gauge[-1])
            state = mixers[-1] * state + r * quadratic(p * state)
        tokens.append(Token(start, tuple(mixers), tokens[0].gauge if shared and tokens else tuple(gauge)))
    return Case(f"seed {seed}", Tokens(reads, writes, tuple(tokens)))


def _not_removable(value: tuple[Matrix, Sequence[Matrix]]) -> Verdict:
    """A tied gauge only conjugates the loop's map: rank(G A G^-1 - I) is the same for every G, and not 0."""
    a, gauges = value
    n = a.nrows()
    ranks = [((g * a * g.inv()) - identity(n)).rank() for g in gauges]
    powers = [(_power(g * a * g.inv(), 3) - identity(n)).rank() for g in gauges]
    ok = len(set(ranks)) == 1 and len(set(powers)) == 1 and ranks[0] > 0
    return verdict(
        ok, f"rank of G A G^-1 - I: {ranks}, of three loops: {powers}", ranks=ranks, three_loops=powers, mixer=a
    )


def _power(a: Matrix, k: int) -> Matrix:
    out = identity(a.nrows())
    for _ in range(k):
        out = a * out
    return out


def _looped(seed: int) -> Case:
    dice = random.Random(seed)
    a = random_doubly_stochastic(3, seed=dice, rank=dice.choice((1, 2, 3)))
    return Case(
        f"seed {seed}, rank {a.rank()}",
        (a if a != identity(3) else uniform(3), [unimodular(3, dice) for _ in range(4)]),
    )


def _untied_breaks(value: tuple[Matrix, Matrix, Matrix, int]) -> Verdict:
    """A looped site (A, p, r) and the same site tied as (I, p', r'): equal kernels p A^k r = p' r' for k < loops?

    A tied pure iHC gives the same number for every distance, so the numbers p A^k r must not depend on k.
    """
    a, p, r, loops = value
    numbers = [(p * _power(a, k) * r)[0, 0] for k in range(loops)]
    constant = len(set(numbers)) == 1
    return verdict(not constant, f"p A^k r for k < {loops}: {plain(numbers)}", numbers=numbers)


@dataclass(frozen=True)
class Boxed:
    """Doubly stochastic mixers with reads in (0, 1) and writes in (0, 2)."""

    mixers: tuple[Matrix, ...]
    reads: tuple[Matrix, ...]
    writes: tuple[Matrix, ...]


def _leaves_box(value: Boxed) -> Verdict:
    """In the gauge P_{l+1} = A_l P_l, P_0 = I: reads stay in (0, 1), writes keep their sum, and some leave (0, 2)."""
    gauge = identity(value.reads[0].ncols())
    outside: list[Any] = []
    for l, (a, p, r) in enumerate(zip(value.mixers, value.reads, value.writes)):
        read = p * gauge
        gauge = a * gauge
        write = gauge.solve(r)
        if not 0 < min(read.entries()) <= max(read.entries()) < 1:
            return verdict(False, f"site {l}: read {plain(read)} leaves (0, 1)", site=l, read=read)
        if sum(write.entries(), flint.fmpq(0)) != sum(r.entries(), flint.fmpq(0)):
            return verdict(False, f"site {l}: the write's sum changes", site=l, write=write)
        if not 0 < min(write.entries()) <= max(write.entries()) < 2:
            outside.append((l, plain(write)))
    reason = f"reads in the box; {len(outside)} of {len(value.mixers)} writes outside (0, 2)"
    return verdict(bool(outside), reason, outside=outside)


def _boxed(seed: int, sites: int = 8) -> Case:
    dice = random.Random(seed)

    def inside(top: int) -> list[Fraction]:
        return [Fraction(dice.randint(1, 99), 100) * top for _ in range(3)]

    mixers = tuple(random_doubly_stochastic(3, seed=dice, rank=3) for _ in range(sites))
    return Case(
        f"seed {seed}",
        Boxed(mixers, tuple(row(*inside(1)) for _ in mixers), tuple(column(*inside(2)) for _ in mixers)),
    )


def _boxes(level: Level) -> Iterator[Case]:
    near = rational([[Fraction(9, 10), Fraction(1, 10)], [Fraction(1, 10), Fraction(9, 10)]])
    edge = (column(Fraction(199, 100), Fraction(1, 100)),)
    yield Case("A(.9), r near (2, 0)", Boxed((near,), (row(Fraction(1, 2), Fraction(1, 3)),), edge))
    for seed in range(3 if level is Level.QUICK else 20):
        yield _boxed(seed)


def _still(value: Boxed) -> Boxed:
    return replace(value, mixers=(identity(3),) * len(value.mixers))


def _inverse_write(value: tuple[Matrix, Matrix, Matrix]) -> Verdict:
    a, r, stated = value
    return same_matrix(a.solve(r), stated, "P^-1 r")


NEAR = rational([["9/10", "1/10"], ["1/10", "9/10"]])

CLAIMS = (
    Claim(
        "P43",
        "ours",
        "dynamic mixers",
        r"In the fixed Helmert basis every matrix with unit row and column sums, token-dependent or not, is "
        r"$1 \oplus B$: the mean stream never needs mixing.",
        "theorem",
        "symbolic",
        Check(
            "All (n-1)^2 free entries symbolic.",
            _block_form,
            fixed(*(Case(f"n = {n}", unit_sums(n)) for n in (2, 3, 4))),
            Case("rows only", sympy.Matrix([[1, 0], [1, 0]])),
        ),
        hypotheses=("exact row and column sums; dynamic A allowed",),
    ),
    Claim(
        "P44",
        "ours",
        "dynamic mixers",
        r"Along a trajectory the rewriting with $P_{l+1}(x) = A_l(x) P_l(x)$ is exact, but the gauge "
        r"is each token's own.",
        "theorem",
        "exact certificate",
        Check(
            "Two tokens, state-dependent mixers, quadratic branches with bias, over Q.",
            _per_token,
            counted(3, 20, _dynamic),
            Case("the first token's gauge for both", _dynamic(0, shared=True).value),
        ),
        hypotheses=("every A_l(x) invertible on the trajectory",),
    ),
    Claim(
        "P45",
        "ours",
        "tied layers",
        r"The holonomy of a looped layer is not removable: a gauge tied over the loops only conjugates $A^T$, so "
        r"$rank(A^T - I)$ stays.",
        "theorem",
        "exact certificate",
        Check(
            "Doubly stochastic mixers of all ranks, tied unimodular gauges, one and three loops.",
            _not_removable,
            counted(5, 40, _looped),
            Case("A = I", (identity(3), [identity(3), unimodular(3, random.Random(1))])),
        ),
        hypotheses=("the same stored weights in every loop",),
    ),
    Claim(
        "P46",
        "ours",
        "tied layers",
        r"A looped site $(A, p, r)$ has the kernel $p A^k r$ at distance $k$; a tied pure iHC has one number for all "
        r"distances.",
        "theorem",
        "exact certificate",
        Check(
            "Kernels over five loops.",
            _untied_breaks,
            fixed(
                Case("A(.9)", (NEAR, row(1, 0), column(1, 0), 5)),
                Case("J", (uniform(2), row(1, -1), column(1, -1), 5)),
            ),
            Case("a write along the mean", (NEAR, row(1, 0), column(1, 1), 5)),
        ),
        hypotheses=("one site applied again and again with the same weights; branches as black boxes",),
    ),
    Claim(
        "P47",
        "ours",
        "sigmoid boxes",
        r"In a nonsingular doubly stochastic chain with $P_0 = I$ the new reads stay in $(0,1)$ and the new writes "
        r"keep their sum, but writes leave $(0,2)$: Theorem 1 needs free writes.",
        "theorem",
        "exact certificate",
        Check(
            "Seeded chains of eight sites inside the boxes, over Q.",
            _leaves_box,
            _boxes,
            Case("mixers I", _still(_boxed(0).value)),
        ),
        hypotheses=("left gauge P_{l+1} = A_l P_l",),
    ),
    Claim(
        "P48",
        "ours",
        "sigmoid boxes",
        r"$A(0.9)$ and $r = (2, 0)$ give the write $(2.25, -0.25)$.",
        "number",
        "exact certificate",
        Check(
            "One solve over Q.",
            _inverse_write,
            fixed(Case("A(.9)", (NEAR, column(2, 0), column("9/4", "-1/4")))),
            Case("r unchanged", (NEAR, column(2, 0), column(2, 0))),
        ),
    ),
)
