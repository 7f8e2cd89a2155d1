"""Ours: the covariant normal form A P = P' D, its gates and its conditioning."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.tools import (
    counted,
    diagonal,
    drawn,
    plain,
    rational,
    same_matrix,
    verdict,
)
from streamgauge.theory import strategies
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.exact import columns, from_floats, identity
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.sinkhorn import sinkhorn
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat


@dataclass(frozen=True)
class Diagonal:
    """Mixers with a gauge and gates that are said to satisfy A P = P' D."""

    mixers: tuple[Matrix, ...]
    gauge: tuple[Matrix, ...]
    gates: tuple[tuple[Fraction, ...], ...]


def covariant(value: Diagonal) -> Verdict:
    """A_l P_l = P_{l+1} D_l exactly, D_l >= 0 and every P_l invertible."""
    for l, p in enumerate(value.gauge):
        if p.det() == 0:
            return verdict(False, f"P at level {l} is singular", level=l)
    for l, (a, g) in enumerate(zip(value.mixers, value.gates)):
        if min(g) < 0:
            return verdict(False, f"site {l}: gate {min(g)}", site=l, gates=g)
        found = same_matrix(a * value.gauge[l], value.gauge[l + 1] * diagonal(g), f"site {l}: A P and P' D")
        if not found:
            return found
    return verdict(True, f"A P = P' D at {len(value.mixers)} sites", gates=value.gates)


def _graded(value: Diagonal) -> Verdict:
    found = covariant(value)
    for l, (a, g) in enumerate(zip(value.mixers, value.gates)):
        if found and sum(x == 0 for x in g) != len(g) - a.rank():
            return verdict(False, f"site {l}: gates {plain(g)} with rank {a.rank()}", site=l, rank=a.rank())
    return found


def made_form(mixers: Sequence[Matrix], form: str, *, n: int) -> Diagonal:
    """The package's form of a chain, as data."""
    made = normal_form(Chain(mixers, dim=n), form)
    return Diagonal(tuple(mixers), made.gauge, tuple(tuple(Fraction(x) for x in g) for g in made.gates))


def _square(level: Level) -> Iterator[Case]:
    few = 8 if level is Level.QUICK else 40
    planted: Any = strategies.square_chains(max_n=4, max_sites=6)
    doubly: Any = strategies.deficit_chains(max_n=4, max_sites=5)
    for name, chains in (("planted", planted), ("doubly stochastic", doubly)):
        for i, made in enumerate(drawn(chains, few, start=3)):
            if made.mixers:
                yield Case(f"{name} {i}", made_form(made.mixers, "graded", n=made.mixers[0].nrows()))


def _raised() -> Diagonal:
    """The form of (J) with its dead gate set to 1."""
    form = made_form([uniform(2)], "graded", n=2)
    return replace(form, gates=tuple(tuple(x or Fraction(1) for x in g) for g in form.gates))


def _not_expanding(value: tuple[Sequence[Matrix], Sequence[Matrix], str]) -> Verdict:
    """Every gate ||A p|| / ||p||, p a column of the gauge, is at most 1 in the named norm ("one", "two", "max")."""
    mixers, gauge, norm = value
    largest = Fraction(0)
    for l, (a, p) in enumerate(zip(mixers, gauge)):
        for j in range(p.ncols()):
            before, after = (_size(v, norm) for v in (columns(p, [j]), a * columns(p, [j])))
            if after > before:
                reason = f"site {l}, column {j}: {norm}-norm (squared if two) {before} becomes {after}"
                return verdict(False, reason, site=l, column=plain(columns(p, [j])), sizes=(before, after))
            largest = max(largest, Fraction(int((after / before).p), int((after / before).q)))
    return verdict(True, f"largest gate {float(largest):.6g} in the {norm}-norm", largest=largest)


def _size(v: Matrix, norm: str) -> flint.fmpq:
    if norm == "two":
        return (v.transpose() * v)[0, 0]
    sizes = [abs(x) for x in v.entries()]
    return max(sizes) if norm == "max" else sum(sizes, flint.fmpq(0))


def _normed(level: Level) -> Iterator[Case]:
    for seed in range(3 if level is Level.QUICK else 20):
        dice = random.Random(seed)
        doubly = [random_doubly_stochastic(3, seed=dice) for _ in range(4)]
        tilted = [_row_stochastic(dice) for _ in range(4)]
        turned = [a.transpose() for a in tilted]
        for name, mixers, norms in (
            ("doubly", doubly, ("one", "two", "max")),
            ("rows", tilted, ("max",)),
            ("columns", turned, ("one",)),
        ):
            for norm in norms:
                gauge = made_form(mixers, "graded", n=3).gauge
                yield Case(f"{name} stochastic, {norm}-norm, seed {seed}", (mixers, gauge, norm))


def _row_stochastic(dice: random.Random) -> Matrix:
    lines = [[dice.randint(0, 9) + int(i == j) for j in range(3)] for i in range(3)]
    return rational([[Fraction(x, sum(line)) for x in line] for line in lines])


def _well_conditioned(value: tuple[np.ndarray, Sequence[np.ndarray], np.ndarray]) -> Verdict:
    """cond(P_l) below 1e4 with A P = P' D to round-off, where the product of the same maps has cond above 1e15."""
    mixers, gauge, gates = value
    worst = max(float(np.linalg.cond(p)) for p in gauge)
    misses = (a @ p - after * g for a, p, after, g in zip(mixers, gauge, gauge[1:], gates))
    miss = max(float((np.abs(m).max(axis=0) / np.abs(p).max(axis=0)).max()) for m, p in zip(misses, gauge))
    product = identity(4)
    for a in mixers:
        product = from_floats(a) * product
    size = [max(sum((abs(x) for x in line), flint.fmpq(0)) for line in m.tolist()) for m in (product, product.inv())]
    identity_gauge = float(size[0] * size[1])
    reason = f"largest cond {worst:.4g}, residual {miss:.2g}; identity gauge {identity_gauge:.3g}"
    ok = worst < 1e4 and miss < 1e-13 and identity_gauge > 1e15
    return verdict(ok, reason, condition=worst, residual=miss, identity=identity_gauge)


def _trained_like(seed: int, form: str = "graded") -> Case:
    dice = np.random.default_rng(seed)
    mixers = sinkhorn(dice.normal(size=(60, 4, 4)) + 2 * np.eye(4), "paper").mixer
    if form == "graded":
        made = normal_form(Chain(list(mixers)))
        return Case(f"seed {seed}", (mixers, made.gauge, made.gates))
    gauge = [np.eye(4)]
    for a in mixers:
        gauge.append(a @ gauge[-1])
    return Case("the identity gauge", (mixers, gauge, np.ones((60, 4))))


def _ill(value: tuple[Fraction, Diagonal]) -> Verdict:
    """cond_2(P_1) >= 2 / delta in a diagonal form: for 2 x 2, cond + 1/cond = ||P||_F^2 / |det P|."""
    delta, form = value
    found = covariant(form)
    if not found:
        return found
    p = form.gauge[1]
    quotient = sum((x * x for x in p.entries()), flint.fmpq(0)) / abs(p.det())
    least = flint.fmpq((2 / delta + delta / 2).numerator, (2 / delta + delta / 2).denominator)
    reason = f"cond + 1/cond = {float(quotient):.6g}, of 2/delta it is {float(least):.6g}"
    return verdict(quotient >= least, reason, delta=delta, quotient=quotient, least=least)


def _ill_cases(level: Level) -> Iterator[Case]:
    for k in (1, 3, 6):
        delta = Fraction(1, 10**k)
        mixers = [rational([[1, 0], [0, 0]]), rational([[delta, -1], [0, 0]])]
        for name in ("binary", "graded"):
            form = made_form(mixers, name, n=2)
            yield Case(f"delta {delta}, {name}", (delta, form))
            for factor in (Fraction(1, 7), Fraction(5)):  # columns of one level scaled: still a diagonal form
                gauge = (form.gauge[0], form.gauge[1] * diagonal([factor, 1]), form.gauge[2])
                before, after = form.gates
                scaled = ((before[0] / factor, before[1]), (after[0] * factor, after[1]))
                yield Case(
                    f"delta {delta}, {name}, column times {factor}", (delta, Diagonal(form.mixers, gauge, scaled))
                )


def _mild() -> tuple[Fraction, Diagonal]:
    kept = rational([[1, 0], [0, 0]])
    return Fraction(1, 10), made_form([kept, kept], "binary", n=2)


CLAIMS = (
    Claim(
        "P04",
        "ours",
        "normal form",
        r"Every square real chain, singular maps included, has $A_l P_l = P_{l+1} D_l$ with $D_l \geq 0$ diagonal, "
        r"$P_l$ invertible and $n - rank\,A_l$ zero gates at every site; over Q if the chain is.",
        "theorem",
        "exact certificate",
        Check(
            "Exact graded forms of planted and of doubly stochastic chains.",
            _graded,
            _square,
            Case("a dead gate set to 1", _raised()),
        ),
        hypotheses=("static square A",),
        note="Proof: forward orthonormal frames make the maps triangular; backwards, the survivors' triangular "
        "system is solvable because newborns stand last, and a dead column is the kernel vector over its elders.",
    ),
    Claim(
        "P05",
        "ours",
        "normal form",
        r"Gates at most 1 by the right column norm: doubly stochastic chains in every p-norm, row-stochastic ones in "
        r"the max norm, column-stochastic ones in the 1-norm.",
        "theorem",
        "exact certificate",
        Check(
            "Gates of exact graded forms in the norms named.",
            _not_expanding,
            _normed,
            Case("rows (1, 0) in the 2-norm", ([rational([[1, 0], [1, 0]])], [identity(2)] * 2, "two")),
        ),
        hypotheses=(
            "static square chains, exactly doubly, row- or column-stochastic",
            "columns of the gauge scaled in the norm named",
        ),
        note="Checked for p = 1, 2 and infinity; between them by interpolation, since $A$ has norm 1 at both ends.",
    ),
    Claim(
        "P07",
        "ours",
        "conditioning",
        r"Over 60 Sinkhorn mixers of four streams the graded gauge keeps its condition number below $10^4$, where "
        r"the identity gauge passes $10^{15}$.",
        "number",
        "numeric reproduction",
        Check(
            "Seeded logits N(0,1) + 2I; the product over exact dyadic rationals.",
            _well_conditioned,
            counted(2, 12, _trained_like),
            _trained_like(0, "identity"),
        ),
    ),
    Claim(
        "P08",
        "ours",
        "conditioning",
        r"Ill-conditioning can be intrinsic: $A_0 = e_1 e_1^T$, $A_1 = [[\delta, -1], [0, 0]]$ forces "
        r"$cond(P_1) \geq 2/\delta$ in every diagonal form.",
        "theorem",
        "exact certificate",
        Check(
            "Binary and graded forms and rescaled ones; the image e1 and the kernel (1, delta) must be columns.",
            _ill,
            _ill_cases,
            Case("A_1 with kernel e2", _mild()),
        ),
        hypotheses=("cond in the 2-norm", r"0 < delta <= 1"),
    ),
)
