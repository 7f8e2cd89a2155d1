"""Gauge essay, sections 2 and 3: what a change of basis is worth, permutations, lost directions, and collapse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.gauge_cases import (
    chain_of,
    mean_gate,
    network,
    pair,
    reset_and_reuse,
    stochastic_mixers,
    strong_contrast,
    with_mixers,
)
from streamgauge.proofs.ledger.gauge_checks import Pair, equivalent
from streamgauge.proofs.ledger.mixers import product
from streamgauge.proofs.ledger.tools import counted, drawn, fixed, rational, verdict
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import circulant_example, exact_sweeps, uniform
from streamgauge.theory.exact import Floats
from streamgauge.theory.identity import identity_form
from streamgauge.theory.strategies import permutation_matrices
from streamgauge.theory.verdict import Verdict

# G09: a change of basis


@dataclass(frozen=True)
class FloatPair:
    """A float64 chain and its pure iHC replacement, all parts given."""

    source: Chain
    converted: Chain


def same_computation(value: Pair | FloatPair) -> Verdict:
    """Exact pairs: one function, by their kernels.  Float pairs: outputs of one run within 1e-6 of each other."""
    if isinstance(value, Pair):
        return equivalent(value)
    left, right = _float_run(value.source), _float_run(value.converted)
    error, sites = float(np.abs(left - right).max() / np.abs(left).max()), len(value.source)
    reason = f"float64 outputs of {sites} sites differ by {error:.3g} of their size"
    return verdict(error <= 1e-6, reason, sites=sites, error=error, outputs=(left, right))


def _float_run(net: Chain) -> Floats:
    entry: Any = net.entry
    x = entry @ np.linspace(-1.0, 0.7, 2 * entry.shape[1]).reshape(-1, 2)
    for a, p, r in zip(net.mixers, net.reads or (), net.writes or ()):
        x = a @ x + r @ np.tanh(p @ x)
    return np.asarray(net.readout @ x)


HALF = mean_gate(3, Fraction(1, 2))


def float_pair(sites: int) -> FloatPair:
    """A float chain of mean gates of 1/2, and its identity form."""
    net = chain_of(network([HALF] * sites, seed=5, ends="free")).floating()
    form = identity_form(net)
    carries = [form.diagonal(l) for l in range(sites)]
    return FloatPair(net, Chain(carries, form.reads, form.writes, form.entry, form.readout))


def _basis_changes_in_floats(level: Level) -> Iterator[Case]:
    yield Case("exact, A(1/2) 48 times", pair(network([HALF] * 48), "identity", "identity"))
    yield Case("float64, A(1/2) 3 times", float_pair(3))
    yield Case("float64, A(1/2) 48 times", float_pair(48))


def _basis_changes(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 5
    net = network(stochastic_mixers(n, sites, seed=seed + 40), seed=seed, ends="free")
    return Case(f"exact, n = {n}, L = {sites}", pair(net, "identity", "identity"))


def _identity_put(seed: int = 0) -> Pair:
    net = reset_and_reuse()
    return Pair(net, with_mixers(net, [exact.identity(2)] * 2), "identity")


G09 = Claim(
    id="G09",
    document="G",
    section="2",
    statement="Full-rank mixing is a change of basis, not new computation.",
    kind="qualitative",
    method="property test",
    hypotheses=("static invertible mixers", "free signed reads, writes and head"),
    literal=Check(
        "The rewritten network computes the same: exactly, and in float64 to 1e-6, over 3 and 48 sites of A(1/2).",
        same_computation,
        _basis_changes_in_floats,
        Case("I put for J, nothing else changed", _identity_put()),
    ),
    repair=Repair(
        "As a statement about classes of functions it holds exactly.",
        Check(
            "Depth kernels and exact runs.",
            same_computation,
            counted(8, 50, _basis_changes),
            Case("I put for J, nothing else changed", _identity_put()),
        ),
        hypothesis="exact arithmetic: nothing is said of norms, precision or training",
    ),
    note="cond(P_l) is 2^l here: the pure iHC is the same function, yet at depth 48 float64 keeps four digits of it.",
)


# G10: permutations


def _permutation_network(seed: int) -> Case:
    n, sites = 2 + seed % 4, 1 + seed % 6
    mixers = drawn(permutation_matrices(n), sites, start=seed)
    net = network((mixers * sites)[:sites], seed=seed)
    return Case(f"permutations, n = {n}, L = {sites}", pair(net, "identity", "identity", boxed=True, same_entry=True))


G10 = Claim(
    id="G10",
    document="G",
    section="2",
    statement="Permutation mixers are absorbed by reads, writes and head.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("static mixers",),
    literal=Check(
        "Depth kernels, and that the new reads and writes stay in the sigmoid boxes and the entry is the same.",
        equivalent,
        counted(8, 60, _permutation_network),
        Case("A(9/10) instead", pair(strong_contrast(), "identity", "identity", boxed=True)),
    ),
    note="Permutations are the case in which Theorem 1 holds inside mHC's own parameter boxes.",
)


# G11: lost directions


@dataclass(frozen=True)
class Lost:
    """A mixer and directions that it is said to erase."""

    mixer: flint.fmpq_mat
    erased: tuple[flint.fmpq_mat, ...]


def erases(value: Lost) -> Verdict:
    """n - rank A independent directions v with A v = 0, at least one; so X and X + v z^T have one future."""
    a, n = value.mixer, value.mixer.ncols()
    together = flint.fmpq_mat(n, len(value.erased), [v[i, 0] for i in range(n) for v in value.erased])
    if a.rank() == n:
        return verdict(False, f"rank {n}: nothing is erased", rank=n, determinant=a.det())
    if len(value.erased) != n - a.rank() or together.rank() != n - a.rank():
        return verdict(False, "not a basis of the kernel", given=value.erased, rank=a.rank())
    for v in value.erased:
        if any(x != 0 for x in (a * v).entries()):
            return verdict(False, "a direction survives", direction=v, image=a * v)
    return verdict(
        True, f"rank {a.rank()} of {n}: {n - a.rank()} direction(s) erased", rank=a.rank(), erased=value.erased
    )


def lost(a: flint.fmpq_mat) -> Lost:
    """``a`` with a basis of its kernel: kernel vectors one by one, each orthogonal to those before."""
    found: list[flint.fmpq_mat] = []
    n, stacked = a.ncols(), a
    while (v := exact.kernel_vector(stacked)) is not None:
        found.append(v)
        stacked = flint.fmpq_mat(stacked.nrows() + 1, n, [*stacked.entries(), *v.entries()])
    return Lost(a, tuple(found))


def _deficient(seed: int) -> Case:
    n = 2 + seed % 4
    rank = 1 + seed % (n - 1)
    return Case(f"doubly stochastic, rank {rank} of {n}", lost(stochastic_mixers(n, 1, seed=seed, ranks=[rank])[0]))


def _lost_cases(level: Level) -> Iterator[Case]:
    yield Case("J of three streams", lost(uniform(3)))
    yield Case("the circulant of four streams", lost(circulant_example()))
    yield from counted(6, 60, _deficient)(level)


G11 = Claim(
    id="G11",
    document="G",
    section="3",
    statement="A mixer with rank $A < n$ erases stream directions.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("any square mixer",),
    literal=Check(
        "A basis of the kernel of each mixer, multiplied out.",
        erases,
        _lost_cases,
        Case("A(1/2), invertible", Lost(mean_gate(2, Fraction(1, 2)), (rational([[1], [-1]]),))),
    ),
)


# G12: collapse of long products


@dataclass(frozen=True)
class Product:
    """Mixers, and what their product is said to collapse to: "J", or "one row" (1 w^T for some w)."""

    mixers: tuple[flint.fmpq_mat, ...]
    limit: str


def _spread(a: flint.fmpq_mat) -> Fraction:
    """tau(A) = max over rows of half their l1 distance (Dobrushin)."""
    rows = [[exact.fraction(x) for x in line] for line in a.tolist()]
    return max(sum((abs(x - y) for x, y in zip(one, other)), Fraction(0)) / 2 for one in rows for other in rows)


def _miss(whole: flint.fmpq_mat, limit: str) -> Fraction:
    """The largest entry of the difference from J, or else from the matrix whose rows are all the first one."""
    n = whole.nrows()
    target = uniform(n) if limit == "J" else flint.fmpq_mat(n, n, whole.tolist()[0] * n)
    return max(abs(exact.fraction(x)) for x in (whole - target).entries())


def collapses(value: Product) -> Verdict:
    """The product is within 1/100 of J (or of a matrix with equal rows), entry by entry."""
    whole = product(value.mixers)
    n, rank = whole.nrows(), whole.rank()
    miss = _miss(whole, value.limit)
    reason = f"product of {len(value.mixers)} sites is {float(miss):.3g} from {value.limit}, its rank {rank} of {n}"
    return verdict(miss <= Fraction(1, 100), reason, miss=float(miss), rank=rank, limit=value.limit)


def collapses_at_rate(value: Product) -> Verdict:
    """With rows that sum to 1 and entries >= delta_l: tau(product) <= prod (1 - n delta_l), the limit is the one
    named to that accuracy, and the rank of a product of invertible mixers is still n."""
    n, bound = value.mixers[0].nrows(), Fraction(1)
    for l, a in enumerate(value.mixers):
        if any(sum(line) != 1 for line in a.tolist()):
            return verdict(False, f"site {l}: a row does not sum to 1", site=l, mixer=a)
        bound *= 1 - n * exact.fraction(min(a.entries()))
    whole = product(value.mixers)
    if _spread(whole) > bound:
        return verdict(False, "tau above the bound", tau=float(_spread(whole)), bound=float(bound))
    miss = _miss(whole, value.limit)
    if miss > bound:
        reason = f"the product is {float(miss):.3g} from {value.limit}, above the bound {float(bound):.3g}"
        return verdict(False, reason, miss=float(miss), bound=float(bound), limit=value.limit)
    if all(a.rank() == n for a in value.mixers) and whole.rank() != n:
        return verdict(False, "a product of invertible mixers lost rank", rank=whole.rank())
    reason = f"tau {float(_spread(whole)):.3g} <= {float(bound):.3g}, rank {whole.rank()} of {n}"
    return verdict(True, reason, tau=float(_spread(whole)), bound=float(bound), rank=whole.rank())


def _truncated() -> tuple[flint.fmpq_mat, ...]:
    """One Sinkhorn sweep, rows last: rows exact, columns not; eight sites."""
    start = rational([[9, 1], [2, 1]])
    return (next(exact_sweeps(start, count=1)),) * 8


def _positive_mixers(seed: int) -> Case:
    n, sites = 2 + seed % 3, 4 + seed % 9
    half = flint.fmpq(1, 2)
    mixers = [a * half + uniform(n) * half for a in stochastic_mixers(n, sites, seed=seed)]
    return Case(f"positive doubly stochastic, n = {n}, L = {sites}", Product(tuple(mixers), "J"))


def _positive_cases(level: Level) -> Iterator[Case]:
    yield Case("permutations: bound 1, rank kept", Product((rational([[0, 1], [1, 0]]),) * 8, "J"))
    yield Case("one sweep, rows last: to one row, not to J", Product(_truncated(), "one row"))
    yield from counted(6, 40, _positive_mixers)(level)


SWAPS = Product((rational([[0, 1], [1, 0]]),) * 64, "J")

G12 = Claim(
    id="G12",
    document="G",
    section="3",
    statement="With depth, products of doubly stochastic mixers collapse to low dimension (forgetting, mixing).",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("doubly stochastic mixers",),
    literal=Check(
        "The exact product of 64 mixers is within 1/100 of J.",
        collapses,
        fixed(Case("A(1/2) 64 times", Product((HALF,) * 64, "J")), Case("swaps of two streams, 64 times", SWAPS)),
        Case("A(999/1000) 64 times", Product((mean_gate(3, Fraction(999, 1000)),) * 64, "J")),
    ),
    repair=Repair(
        "Entries of at least $\\delta$ shrink the spread of the rows by $1 - n\\delta$ a site; no rank is lost when "
        "the mixers are invertible; and if only the rows sum to 1, the limit is $1 w^T$, not $J$.",
        Check(
            "Dobrushin's coefficient of the exact product against the product of the bounds; rank; limit.",
            collapses_at_rate,
            _positive_cases,
            Case("one sweep, rows last, said to go to J", Product(_truncated(), "J")),
        ),
    ),
    note="The essay says it of an observation and leaves open when it happens. A product of invertible mixers never "
    "loses rank, permutations never collapse, and truncated Sinkhorn collapses to equal rows, not to J.",
)

CLAIMS = (G09, G10, G11, G12)
