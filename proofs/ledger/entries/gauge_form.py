"""Gauge essay, section 2: Theorem 1 (invertible mixers are a change of basis), step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import flint

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.gauge_cases import (
    chain_of,
    levels,
    network,
    pair,
    reset_and_reuse,
    stochastic_mixers,
    strong_contrast,
    with_mixers,
)
from streamgauge.proofs.ledger.gauge_checks import Pair, equivalent, levels_agree
from streamgauge.proofs.ledger.tools import counted, fixed, rational, same_matrix, verdict
from streamgauge.theory import exact
from streamgauge.theory.doubly import uniform
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.verdict import Verdict

STATIC = "static mixers $A_l$ and one gauge for all tokens"
FREE = "reads $p_l$, writes $r_l$ and the head may be any signed numbers"
BRANCHES = (
    "branches $F_l$ arbitrary (whole sequences, norms and biases inside); no norm of single streams before a read"
)
CONTROLLERS = (
    "controllers that make $p(X)$, $r(X)$ may be changed with the basis (gauge in the projection and the RMS)"
)


# G04: Theorem 1


def _theorem_1(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 5
    net = network(stochastic_mixers(n, sites, seed=seed), seed=seed, signed=seed % 2 == 1, ends="free")
    return Case(f"doubly stochastic, n = {n}, L = {sites}, everything seen", pair(net, "identity", "identity"))


def _free_cases(level: Level) -> Iterator[Case]:
    yield Case("the boxed network of the literal check, its replacement free", _contrast(False))
    general = [rational([[1, 2], [3, 4]]), rational([[0, "1/2"], [-1, 5]])]
    yield Case("mixers that are not stochastic", pair(network(general, ends="free"), "identity", "identity"))
    yield from counted(8, 60, _theorem_1)(level)


def _contrast(boxed: bool) -> Pair:
    return pair(strong_contrast(), "identity", "identity", boxed=boxed)


def _careless() -> Pair:
    net = reset_and_reuse()
    return Pair(net, with_mixers(net, [exact.identity(2)] * 2), "identity")


SAME_FUNCTION = (
    "All blocks of the depth kernel and the outputs of exact runs with a branch that squares and has a bias"
)

G04 = Claim(
    id="G04",
    document="G",
    section="2",
    statement="Theorem 1: if every $\\det A_l \\neq 0$, a static mHC is a static iHC of the same depth and width, "
    "end to end (read here with the parameters of both models: $p$ in (0,1), $r$ in (0,2)).",
    kind="theorem",
    method="exact certificate",
    hypotheses=(STATIC, BRANCHES),
    literal=Check(
        f"{SAME_FUNCTION}; then that reads and writes lie in the sigmoid boxes.",
        equivalent,
        fixed(
            Case("swaps of two streams", pair(network([rational([[0, 1], [1, 0]])] * 3), "identity", "identity")),
            Case("A(9/10) three times, r = (1.99, 0.01)", _contrast(True)),
        ),
        Case("I put for J, nothing else changed", _careless()),
    ),
    repair=Repair(
        "With signed, unbounded reads, writes and head the theorem holds for every invertible static chain.",
        Check(
            f"{SAME_FUNCTION}; parameters free.",
            equivalent,
            _free_cases,
            Case("I put for J, nothing else changed", _careless()),
        ),
        hypothesis=f"{FREE}; {CONTROLLERS}",
    ),
    note="The witness is stronger than one bad gauge: no reads and writes inside the boxes do it, because a kernel "
    "entry two sites apart would have to be 10 % smaller than the entries between neighbours force it to be. The "
    "general-n identity and networks with controllers, RMS and attention are in the theorems' own modules.",
)


# G05 to G08: the steps of the proof


@dataclass(frozen=True)
class Cumulative:
    """Mixers and the gauge P_0 .. P_L that is said to be their cumulative product, invertible."""

    mixers: tuple[flint.fmpq_mat, ...]
    gauge: tuple[flint.fmpq_mat, ...]


def gauge_invertible(value: Cumulative) -> Verdict:
    """P_0 = I, P_{l+1} = A_l P_l, and ``det P_{l+1} = det A_l det P_l`` is never 0."""
    found = same_matrix(value.gauge[0], exact.identity(value.gauge[0].nrows()), "P_0 against I")
    determinant = flint.fmpq(1)
    for l, a in enumerate(value.mixers):
        found = found and same_matrix(value.gauge[l + 1], a * value.gauge[l], f"P_{l + 1} against A P_{l}")
        determinant *= a.det()
        if found and (determinant == 0 or value.gauge[l + 1].det() != determinant):
            return verdict(
                False, f"det P_{l + 1} is {value.gauge[l + 1].det()}", level=l + 1, gauge=value.gauge[l + 1]
            )
    return found and verdict(True, f"det P_L = {determinant}", determinant=determinant)


def _cumulative(seed: int) -> Case:
    n, sites = 2 + seed % 4, 1 + seed % 6
    mixers = stochastic_mixers(n, sites, seed=seed)
    form = normal_form(chain_of(network(mixers)), "identity")
    return Case(f"doubly stochastic, n = {n}, L = {sites}", Cumulative(tuple(mixers), form.gauge))


G05 = Claim(
    id="G05",
    document="G",
    section="2",
    statement="With $P_0 = I$ and $P_{l+1} = A_l P_l$, every $P_l$ is invertible.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("every A_l invertible",),
    literal=Check(
        "Products and determinants over Q, multiplied out again.",
        gauge_invertible,
        counted(6, 60, _cumulative),
        Case("a chain with J", Cumulative((uniform(2),), (exact.identity(2), uniform(2)))),
    ),
)


@dataclass(frozen=True)
class Rewritten:
    """A row vector c, a gauge P, the row that is said to be its rewriting, and coordinates Y with X = P Y."""

    row: flint.fmpq_mat
    gauge: flint.fmpq_mat
    rewritten: flint.fmpq_mat
    y: flint.fmpq_mat


def reads_the_same(value: Rewritten) -> Verdict:
    """``c~ Y = c (P Y)``: the state is built first, then read, so the two sides associate differently."""
    x = value.gauge * value.y
    return same_matrix(value.rewritten * value.y, value.row * x, "rewritten row times Y against row times X")


def _rewritten(which: str) -> Any:
    def make(seed: int) -> Case:
        n, sites = 2 + seed % 4, 1 + seed % 4
        net = network(stochastic_mixers(n, sites, seed=seed), seed=seed)
        form = normal_form(chain_of(net), "identity")
        y = flint.fmpq_mat(n, 3, [flint.fmpq(k * k - 2 * k + 1, 1 + k) for k in range(3 * n)])
        if which == "read":
            given, made, gauge = net.reads[-1], (form.reads or ())[-1], form.gauge[sites - 1]
        else:
            given, made, gauge = net.readout, form.readout, form.gauge[sites]
        return Case(f"{which}, n = {n}, L = {sites}", Rewritten(given, gauge, made, y))

    return make


LOPSIDED = rational([[1, 1], [0, 1]])

G06 = Claim(
    id="G06",
    document="G",
    section="2",
    statement="The read $p P_l$ sees of $Y$ what $p$ sees of $X = P_l Y$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=(STATIC,),
    literal=Check(
        "Converted reads of exact chains against the state they are read from.",
        reads_the_same,
        counted(6, 60, _rewritten("read")),
        Case("the transpose used", Rewritten(rational([[1, 2]]), LOPSIDED, rational([[3, 2]]), exact.identity(2))),
    ),
)


def _levels(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 4
    net = network(stochastic_mixers(n, sites, seed=seed), seed=seed, signed=True)
    return Case(f"doubly stochastic, n = {n}, L = {sites}", levels(net, "identity"))


def _forgot_writes() -> Any:
    value = levels(strong_contrast(), "identity")
    return replace(value, converted=replace(value.converted, writes=value.source.writes))


G07 = Claim(
    id="G07",
    document="G",
    section="2",
    statement="By induction $X_l = P_l Y_l$ at every level.",
    kind="theorem",
    method="property test",
    hypotheses=(STATIC, FREE, BRANCHES),
    literal=Check(
        "Both networks run exactly, with branches that square; states, branch inputs and outputs compared by level.",
        levels_agree,
        counted(6, 50, _levels),
        Case("the writes not rewritten", _forgot_writes()),
    ),
)

G08 = Claim(
    id="G08",
    document="G",
    section="2",
    statement="A linear head $C$ becomes $C P_L$.",
    kind="theorem",
    method="exact certificate",
    hypotheses=(STATIC, "a linear head"),
    literal=Check(
        "Converted heads of exact chains against the state they read.",
        reads_the_same,
        counted(6, 60, _rewritten("head")),
        Case("the sum head kept", Rewritten(rational([[1, 1]]), LOPSIDED, rational([[1, 1]]), exact.identity(2))),
    ),
    note="For doubly stochastic chains with copied entry and summed readout both ends stay as they are: "
    "P_L 1 = 1 and 1^T P_L = 1^T. The control's gauge is not column-stochastic.",
)

CLAIMS = (G04, G05, G06, G07, G08)
