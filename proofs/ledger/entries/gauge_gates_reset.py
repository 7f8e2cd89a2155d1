"""Gauge essay, section 6: gates that reset single directions, the interval lemma and Theorem 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import flint

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.gauge_cases import (
    copied_entry_kept,
    cyclic_family,
    equation,
    levels,
    network,
    pair,
    regated,
    reset_and_reuse,
    stochastic_mixers,
    with_mixers,
)
from streamgauge.proofs.ledger.gauge_checks import (
    Equation,
    Family,
    Levels,
    Pair,
    equation_holds,
    equivalent,
    family_equivalent,
    levels_agree,
)
from streamgauge.proofs.ledger.tools import counted, diagonal, drawn, fixed, verdict
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import circulant_example, uniform
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.strategies import deficit_chains, square_chains
from streamgauge.theory.verdict import Verdict

STATIC = "static mixers $A_l$, one gauge for all tokens; branches arbitrary"


def deficient_network(seed: int) -> tuple[str, Sequence[flint.fmpq_mat]]:
    """A name and doubly stochastic mixers, about half of them of lower rank."""
    n, sites = 2 + seed % 3, 1 + seed % 5
    ranks = [max(1, n - (seed + l) % n) for l in range(sites)]
    return f"doubly stochastic, n = {n}, ranks {ranks}", stochastic_mixers(n, sites, seed=seed, ranks=ranks)


# G27: the zero pattern


def pattern_suffices(value: Pair, limit: int | None) -> Verdict:
    """The gates of ``converted`` are the 0/1 pattern of ``source``'s and the function is the same; with a ``limit``,
    no read or write grew by more than that factor."""
    for l, (a, b) in enumerate(zip(value.source.mixers, value.converted.mixers)):
        if b != diagonal([int(a[i, i] != 0) for i in range(a.nrows())]):
            return verdict(False, f"site {l}: not the zero pattern", site=l, gates=a, replaced=b)
    found = equivalent(value)
    if not found:
        return found
    pairs = [(value.source.reads, value.converted.reads), (value.source.writes, value.converted.writes)]
    before, after = (
        max(abs(exact.fraction(x)) for part in pairs for v in part[k] for x in v.entries()) for k in (0, 1)
    )
    growth = float(after / before)
    reason = f"same function; largest read or write grew by {growth:.3g}"
    return verdict(limit is None or growth <= limit, reason, growth=growth, sites=len(value.source))


def _gated(gates: Sequence[Sequence[int | Fraction]], seed: int = 0) -> Pair:
    net = network([diagonal(g) for g in gates], seed=seed, signed=True, ends="free")
    return Pair(net, regated(net), "binary")


def _drawn_gates(seed: int) -> Case:
    n, sites = 2 + seed % 3, 1 + seed % 5
    gates = [
        [Fraction((7 * seed + 5 * l + 3 * i) % 11, 10) * (-1) ** (i * l) for i in range(n)] for l in range(sites)
    ]
    return Case(f"gates such as {', '.join(str(g) for g in gates[0])}", _gated(gates, seed))


HALVES: list[list[int | Fraction]] = [[Fraction(1, 2), 1]] * 60
WRONG_PATTERN = replace(_gated([[1, 0]]), converted=_gated([[1, 1]]).source)

G27 = Claim(
    id="G27",
    document="G",
    section="6",
    statement="Of the gates only the zero pattern matters, not the values.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("static diagonal gates", "free reads, writes and head"),
    literal=Check(
        "Gates replaced by their 0/1 pattern, values absorbed: the same function, and no read or write a million "
        "times larger.",
        partial(pattern_suffices, limit=10**6),
        fixed(
            Case("gates (1/2, 1) at 3 sites", _gated(HALVES[:3])), Case("gates (1/2, 1) at 60 sites", _gated(HALVES))
        ),
        Case("pattern (1, 1) put for gates (1, 0)", WRONG_PATTERN),
    ),
    repair=Repair(
        "For exact function classes only the pattern matters; for conditioning the values are the point.",
        Check(
            "Depth kernels and exact runs, whatever the sizes.",
            partial(pattern_suffices, limit=None),
            counted(8, 60, _drawn_gates),
            Case("pattern (1, 1) put for gates (1, 0)", WRONG_PATTERN),
        ),
    ),
)


# G28: Theorem 2


def _theorem_2(seed: int) -> Case:
    name, mixers = deficient_network(seed)
    return Case(name, pair(network(mixers, seed=seed, signed=True, ends="free"), "binary", "binary"))


def _theorem_2_cases(level: Level) -> Iterator[Case]:
    yield Case("the essay's own counterexample, free entry", pair(reset_and_reuse(), "binary", "binary"))
    yield Case("the circulant of four streams, twice", pair(network([circulant_example()] * 2), "binary", "binary"))
    zero = network([exact.zeros(2, 2), uniform(2)], ends="free")
    yield Case("a zero mixer", pair(zero, "binary", "binary"))
    for i, chain in enumerate(drawn(square_chains(max_n=4, max_sites=5), 6 if level is Level.QUICK else 60)):
        if chain.mixers:
            net = network(chain.mixers, seed=i, signed=True, ends="free")
            yield Case(f"planted chain {i}, n = {chain.dims[0]}, L = {len(net)}", pair(net, "binary", "binary"))
    yield Case(
        "copied entry kept by an adapted basis", copied_entry_kept(network([uniform(3), circulant_3()], seed=2))
    )
    yield from counted(6, 60, _theorem_2)(level)


def circulant_3() -> flint.fmpq_mat:
    return cyclic_family()[1]


def _kept_gates() -> Pair:
    value = pair(reset_and_reuse(), "binary", "binary")
    return replace(value, converted=with_mixers(value.converted, [exact.identity(2)] * 2))


G28 = Claim(
    id="G28",
    document="G",
    section="6",
    statement="Theorem 2: every static mHC is a diagonally gated iHC of the same depth and width, end to end "
    "(read as stated: reads, writes and head rewritten, the input as before).",
    kind="theorem",
    method="exact certificate",
    hypotheses=(STATIC, "reads, writes and head free"),
    literal=Check(
        "Depth kernels, exact runs, 0/1 diagonal carries, and the same entry map.",
        equivalent,
        fixed(
            Case("I twice", replace(pair(network([exact.identity(2)] * 2), "binary", "binary"), same_entry=True)),
            Case("the essay's own counterexample", pair(reset_and_reuse(), "binary", "binary", same_entry=True)),
        ),
        Case("its gates left out", _kept_gates()),
    ),
    repair=Repair(
        "The theorem holds when the entry becomes $P_0^{-1} X_0$ as well.",
        Check(
            "Depth kernels, exact runs and 0/1 diagonal carries of doubly stochastic, planted and zero mixers.",
            equivalent,
            _theorem_2_cases,
            Case("its gates left out", _kept_gates()),
        ),
        hypothesis="a free entry map (it must take $P_0^{-1}$) beside free signed reads, writes and head; for doubly "
        "stochastic chains with copied entry a basis with $P_0^{-1} 1 = 1$ exists, and the copy stays",
    ),
    note="The essay writes X_l = P_l Y_l at every level, so a new Y_0 is implied; its list of what changes leaves it "
    "out. The essay's counterexample itself refutes the literal reading: with X_0 fed in unchanged no diagonal gates "
    "at all represent it, because reading out both inputs keeps every gate alive and then nothing can be forgotten.",
)


# G29: the lemma


def _lemma_cases(level: Level) -> Iterator[Case]:
    yield Case("J of two streams", equation([uniform(2)], "binary", "binary"))
    yield Case("the circulant, three times", equation([circulant_example()] * 3, "binary", "binary"))
    count = 8 if level is Level.QUICK else 80
    for i, chain in enumerate(drawn(square_chains(max_n=5, max_sites=8), count, start=1)):
        yield Case(f"planted chain {i}", equation(chain.mixers, "binary", "binary", dim=chain.dims[0]))
    for i, drawn_chain in enumerate(drawn(deficit_chains(max_n=5, max_sites=8), count, start=2)):
        yield Case(
            f"doubly stochastic chain {i}", equation(drawn_chain.mixers, "binary", "binary", dim=drawn_chain.n)
        )


def _flipped() -> Equation:
    value = equation([uniform(2)], "binary", "binary")
    return replace(value, carries=[exact.identity(2)])


G29 = Claim(
    id="G29",
    document="G",
    section="6",
    statement="Lemma: any finite chain of square maps has bases with $A_l P_l = P_{l+1} E_l$, $E_l$ diagonal 0/1.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("square maps over a field; for changing dimensions $E_l$ is a partial permutation",),
    literal=Check(
        "Equations multiplied out over Q, determinants, and the shape of E.",
        equation_holds,
        _lemma_cases,
        Case("E = I for J", _flipped()),
    ),
    note="Diagonal, not only a partial permutation, because all dimensions are n: deaths and births are equally many "
    "at every site, so a newborn direction takes the slot of a dead one.",
)


# G30: intervals


@dataclass(frozen=True)
class Intervals:
    """Mixers, the bases, and the intervals (birth, death, column) their columns are said to form."""

    mixers: tuple[flint.fmpq_mat, ...]
    gauge: tuple[flint.fmpq_mat, ...]
    bars: tuple[tuple[int, int, int], ...]


def are_intervals(value: Intervals) -> Verdict:
    """Each column maps to itself one level on until its death and to 0 there; every column of every level is in one
    bar; and the counts are those of the rank formula with ranks of products multiplied out here."""
    last, seen = len(value.mixers), 0
    for birth, death, j in value.bars:
        for l in range(birth, death + 1):
            seen += 1
            n = value.gauge[l].nrows()
            here = flint.fmpq_mat(n, 1, [value.gauge[l][i, j] for i in range(n)])
            if l == last:
                continue
            image = value.mixers[l] * here
            wanted = [value.gauge[l + 1][i, j] if l < death else flint.fmpq(0) for i in range(image.nrows())]
            if image.entries() != wanted:
                return verdict(
                    False, f"bar [{birth}, {death}] breaks at site {l}", site=l, image=image, expected=wanted
                )
    if seen != sum(p.ncols() for p in value.gauge) or any(p.det() == 0 for p in value.gauge):
        return verdict(False, "the bars do not cover a basis at every level", columns=seen)
    counts: dict[tuple[int, int], int] = {}
    for birth, death, _ in value.bars:
        counts[birth, death] = counts.get((birth, death), 0) + 1
    n = value.gauge[0].nrows()
    table: dict[tuple[int, int], int] = {}
    for i in range(last + 1):
        product = exact.identity(n)
        for j in range(i, last + 1):
            table[i, j] = product.rank()
            product = value.mixers[j] * product if j < last else product

    def r(i: int, j: int) -> int:
        return table[i, j] if i >= 0 and j <= last else 0

    for b, d in table:
        mu = r(b, d) - r(b - 1, d) - r(b, d + 1) + r(b - 1, d + 1)
        if counts.get((b, d), 0) != mu:
            return verdict(False, f"{counts.get((b, d), 0)} bars [{b}, {d}], by ranks {mu}", bar=(b, d), expected=mu)
    return verdict(True, f"{len(value.bars)} intervals, as many as the ranks say", bars=value.bars)


def intervals(mixers: Sequence[flint.fmpq_mat], n: int) -> Intervals:
    """A chain with the basis and bars of its 0/1 form."""
    form = normal_form(Chain(mixers, dim=n), "binary")
    return Intervals(tuple(mixers), form.gauge, tuple((bar.birth, bar.death, bar.slot) for bar in form.bars))


def _interval_cases(level: Level) -> Iterator[Case]:
    yield Case("J of two streams: [0,1], [0,0], [1,1]", intervals([uniform(2)], 2))
    for i, chain in enumerate(
        drawn(square_chains(max_n=5, max_sites=8), 10 if level is Level.QUICK else 100, start=3)
    ):
        yield Case(f"planted chain {i}", intervals(chain.mixers, chain.dims[0]))


def _long_bar() -> Intervals:
    value = intervals([uniform(2)], 2)
    return replace(value, bars=tuple((b, 1, j) if (b, d) == (0, 0) else (b, d, j) for b, d, j in value.bars))


G30 = Claim(
    id="G30",
    document="G",
    section="6",
    statement="Every basis direction is an interval: born at one level, carried unchanged, killed at one site.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("square static chains",),
    literal=Check(
        "Columns followed from level to level; numbers of intervals against "
        "$r(b,d) - r(b-1,d) - r(b,d+1) + r(b-1,d+1)$.",
        are_intervals,
        _interval_cases,
        Case("the interval killed by J said to live on", _long_bar()),
    ),
    note="The multiset of intervals is unique, the basis is not.",
)


# G31 and G32: simulation, and what it says


def _simulated(seed: int) -> Case:
    name, mixers = deficient_network(seed)
    return Case(name, levels(network(mixers, seed=seed, signed=True, ends="free"), "binary"))


def _old_reads() -> Levels:
    value = levels(reset_and_reuse(), "binary")
    return replace(value, converted=replace(value.converted, reads=value.source.reads))


G31 = Claim(
    id="G31",
    document="G",
    section="6",
    statement="With $A_l P_l = P_{l+1} E_l$ the gated network satisfies $X_l = P_l Y_l$ at every level.",
    kind="theorem",
    method="property test",
    hypotheses=(STATIC, "free reads, writes, entry and head"),
    literal=Check(
        "Both networks run exactly with branches that square; every level compared.",
        levels_agree,
        counted(8, 60, _simulated),
        Case("the reads not rewritten", _old_reads()),
    ),
)


def static_family(seed: int) -> Case:
    """One static network and its gated form, as a family of one."""
    name, mixers = deficient_network(seed)
    value = pair(network(mixers, seed=seed, signed=True, ends="free"), "binary", "binary")
    return Case(name, Family((value.source,), (value.converted,)))


def dynamic_family() -> Family:
    """A mixer that is I at one input and half a cyclic shift at another, with everything seen."""
    sources = [network([a], seed=1, ends="free") for a in cyclic_family()]
    first = pair(sources[0], "binary", "binary").converted
    return Family(tuple(sources), (first, with_mixers(first, [diagonal([Fraction(1, 2)] * 3)])))


def unreset_family() -> Family:
    value = _kept_gates()
    return Family((value.source,), (value.converted,))


G32 = Claim(
    id="G32",
    document="G",
    section="6",
    statement="mHC is iHC plus a reset for single directions.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("one set of reads, writes, entry and head; the diagonal gates may depend on the input",),
    literal=Check(
        "Depth kernels for every input of a family; then whether any static gauge could do it.",
        family_equivalent,
        lambda level: iter([static_family(0), Case("a dynamic mixer: I or half a cyclic shift", dynamic_family())]),
        Case("no reset in the essay's counterexample", unreset_family()),
    ),
    repair=Repair(
        "For static mixers it is Theorem 2.",
        Check(
            "Depth kernels and exact runs of static chains.",
            family_equivalent,
            counted(6, 40, static_family),
            Case("no reset in the essay's counterexample", unreset_family()),
        ),
        hypothesis="static mixers",
    ),
)

CLAIMS = (G27, G28, G29, G30, G31, G32)
