"""Theorems 1 to 3: symbolically for every size, then on exact instances and drawn chains over the rationals.

The forms are made in the cases only; the checks get them as data.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import flint
from hypothesis import strategies as st

from streamgauge.proofs import theorems
from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.theorem_checks import Bases, Pair, converted_pair, interval_bases, same_network
from streamgauge.proofs.ledger.tools import (
    Network,
    column,
    drawn,
    fixed,
    plain,
    rational,
    row,
)
from streamgauge.theory import exact, strategies
from streamgauge.theory.chain import Chain
from streamgauge.theory.form import NormGate

HALF = Fraction(1, 2)
SWAP, STAY = [[0, 1], [1, 0]], [[Fraction(9, 10), Fraction(1, 10)], [Fraction(1, 10), Fraction(9, 10)]]
AVERAGE = [[HALF, HALF], [HALF, HALF]]


def _vectors(n: int, sites: int, seed: int) -> tuple[list[flint.fmpq_mat], list[flint.fmpq_mat]]:
    """Reads (1, n) and writes (n, 1) of small integers, generic enough to see every entry of a gauge."""
    values = random.Random(seed).choices([-3, -2, -1, 1, 2, 3], k=2 * n * sites)
    cut = [values[i * n : (i + 1) * n] for i in range(2 * sites)]
    return [row(*v) for v in cut[:sites]], [column(*v) for v in cut[sites:]]


def _network(mixers: tuple[flint.fmpq_mat, ...], n: int, seed: int) -> Network:
    reads, writes = _vectors(n, len(mixers), seed)
    return Network(mixers, tuple(reads), tuple(writes), column(*range(1, n + 1)), row(*(3 * i - 4 for i in range(n))))


def _pair(mixers: Any, form: str, *, seed: int = 0, norm: bool = False) -> Pair:
    from streamgauge.theory.normal_form import normal_form

    matrices = tuple(a if isinstance(a, flint.fmpq_mat) else rational(a) for a in mixers)
    n = matrices[0].ncols()
    made = normal_form(Chain(matrices), form, norm=NormGate() if norm else None)
    return converted_pair(_network(matrices, n, seed), made)


def _theorem_cases(*made: theorems.Theorem) -> Any:
    return fixed(*(Case(each.name, each) for each in made))


def _invertible_cases(level: Level) -> Iterator[Case]:
    yield Case("swap, then 9/10 to 1/10", _pair([SWAP, STAY], "identity"))
    chains = drawn(_invertible(), 6 if level is Level.QUICK else 60, start=1)
    for i, mixers in enumerate(chains):
        yield Case(f"drawn doubly stochastic chain {i}", _pair(mixers, "identity", seed=i))


@st.composite
def _invertible(draw: strategies.Draw) -> list[flint.fmpq_mat]:
    n, sites = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    return [draw(strategies.doubly_stochastic(n, rank=n)) for _ in range(sites)]


def _any_cases(level: Level) -> Iterator[Case]:
    yield Case("the average resets q = (1, -1)", _pair([AVERAGE], "binary"))
    yield Case("swap, average, swap", _pair([SWAP, AVERAGE, SWAP], "binary"))
    yield Case("a zero map: every direction dies", _pair([[[0, 0], [0, 0]], SWAP], "binary"))
    for i, chain in enumerate(drawn(strategies.deficit_chains(min_n=2, max_n=4, max_sites=5), _many(level), start=2)):
        if chain.mixers:
            yield Case(f"drawn doubly stochastic chain {i}", _pair(chain.mixers, "binary", seed=i))
    for i, planted in enumerate(drawn(strategies.square_chains(max_n=4, max_sites=4), _many(level), start=3)):
        if planted.mixers:
            yield Case(f"drawn integer chain {i}", _pair(planted.mixers, "binary", seed=i))


def _many(level: Level) -> int:
    return 5 if level is Level.QUICK else 60


def _norm_cases(level: Level) -> Iterator[Case]:
    """n = 4 with one or four directions alive at a site (c = 2 or 1), n = 2 with both or none: rational factors."""
    quarter = [[Fraction(1, 4)] * 4] * 4
    cycle = [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]]
    yield Case("four streams averaged: c = 2", _pair([cycle, quarter, cycle, quarter], "binary", norm=True))
    yield Case("no direction left: c(0) := 1", _pair([[[0, 0], [0, 0]], SWAP], "binary", norm=True))
    yield Case("invertible mixers: c = 1", _pair([SWAP, STAY, STAY], "identity", norm=True))
    for i, mixers in enumerate(drawn(_one_or_four(), _many(level), start=4)):
        yield Case(f"drawn four-stream chain {i}", _pair(mixers, "binary", seed=i, norm=True))


@st.composite
def _one_or_four(draw: strategies.Draw) -> list[flint.fmpq_mat]:
    ranks = draw(st.lists(st.sampled_from([1, 4]), min_size=1, max_size=4))
    return [draw(strategies.doubly_stochastic(4, rank=rank)) for rank in ranks]


@cache
def _reset() -> Pair:
    return _pair([SWAP, AVERAGE, SWAP], "binary")


def _without_reset() -> Pair:
    """The control of Theorem 1: the same gauge for a singular mixer, carried as if nothing died."""
    pair = _reset()
    return replace(pair, carry="identity")


def _wrong_write() -> Pair:
    """The control of Theorem 2: writes taken through P_l instead of P_{l+1}."""
    pair = _reset()
    wrong = tuple(g.inv() * r for g, r in zip(pair.gauge, pair.source.writes))
    return replace(pair, converted=replace(pair.converted, writes=wrong))


def _unscaled() -> Pair:
    """The control of Theorem 3: norm-gated carry, but reads and writes of the gated network."""
    quarter = [[Fraction(1, 4)] * 4] * 4
    plain_pair, normed = (_pair([quarter, quarter], "binary", norm=norm) for norm in (False, True))
    return replace(normed, converted=replace(plain_pair.converted, mixers=normed.converted.mixers))


def _bases(mixers: tuple[flint.fmpq_mat, ...], dim: int) -> Bases:
    from streamgauge.theory.normal_form import normal_form

    form = normal_form(Chain(mixers, dim=dim), "binary")
    return Bases(mixers, form.gauge, tuple(form.diagonal(l) for l in range(len(form))))


def _lemma_cases(level: Level) -> Iterator[Case]:
    average = rational(AVERAGE)
    yield Case("the average of two streams", _bases((average,), 2))
    yield Case("no site at all", _bases((), 3))
    for i, planted in enumerate(drawn(strategies.planted_chains(), 12 if level is Level.QUICK else 150, start=5)):
        yield Case(f"planted chain {i}, dims {plain(planted.dims)}", _bases(planted.mixers, planted.dims[0]))
    for i, made in enumerate(drawn(strategies.deficit_chains(max_n=5), 5 if level is Level.QUICK else 60, start=6)):
        yield Case(f"doubly stochastic chain {i}", _bases(made.mixers, made.n))


def _average_in_unit_basis() -> Bases:
    average, one = rational(AVERAGE), exact.identity(2)
    return Bases((average,), (one, one), (one,))


FREE = (
    r"static mixers: the same $A_l$ for every input and token",
    "reads, writes and readout free (real numbers of any sign), or dynamic through controllers that are converted "
    "too",
    r"entry map free: $Y_0 = P_0^{-1} X_0$",
    r"any branches, of the whole sequence; one $P_l$ for all tokens; no norm of single streams; no site used twice",
)
INVERTIBLE = r"every $A_l$ is square and invertible"
STATIC_GATES = r"static gates"

CLAIMS = (
    Claim(
        id="TH1",
        document="ours",
        section="Theorem 1",
        statement=(
            r"A network with invertible mixers equals a pure iHC of the same depth and width, end to end: with "
            r"$P_{l+1} = A_l P_l$ and $X_l = P_l Y_l$ the carry is $I$, reads are $p_l P_l$, writes $P_{l+1}^{-1} "
            r"r_l$, entry $P_0^{-1} e$, readout $c\,P_L$. Proved for symbolic $n$, $d$ and $L$."
        ),
        hypotheses=(*FREE, INVERTIBLE),
        kind="theorem",
        method="symbolic",
        literal=Check(
            "Non-commutative rewriting with matrix symbols proves invertibility of the next gauge, entry, branch "
            "inputs, step and readout; the witness lists the hypotheses that the rewriting used.",
            theorems.proves,
            _theorem_cases(theorems.theorem_one()),
            Case("without invertible mixers", theorems.theorem_one().without(theorems.MIXER)),
        ),
    ),
    Claim(
        id="TH2",
        document="ours",
        section="Theorem 2, the induction",
        statement=(
            r"Whatever the diagonal $D_l$: if $A_l P_l = P_{l+1} D_l$ with every $P_l$ invertible, the network "
            r"equals the gated iHC with carry $D_l$, end to end. Proved for symbolic $n$, $d$ and $L$; that such "
            r"bases exist is TH4."
        ),
        hypotheses=FREE,
        kind="theorem",
        method="symbolic",
        literal=Check(
            "Non-commutative rewriting as in TH1, with the normal form's equation as a hypothesis.",
            theorems.proves,
            _theorem_cases(theorems.theorem_two()),
            Case("without the normal form's equation", theorems.theorem_two().without(theorems.FORM)),
        ),
    ),
    Claim(
        id="TH3",
        document="ours",
        section="Theorem 3",
        statement=(
            r"A gated iHC with static gates equals a norm-gated one: with $Q_l = s_l P_l$ and $s_{l+1} = s_l / c_l$, "
            r"$A_l Q_l = Q_{l+1} (c_l D_l)$, so the factor $c_l = \sqrt{n} / (\Vert g_l \Vert + \varepsilon)$ (or a "
            r"cap) moves into reads and writes. Proved for symbolic $n$, $d$ and $L$."
        ),
        hypotheses=(*FREE, STATIC_GATES, r"$c_l \neq 0$, with $c(0) := 1$ where every gate is 0"),
        kind="theorem",
        method="symbolic",
        literal=Check(
            "Non-commutative rewriting; no stored parameter may contain the input. The control has gates that depend "
            "on the input: all identities still hold, but the writes would need a number per token.",
            theorems.proves,
            _theorem_cases(theorems.theorem_three()),
            Case("token-dependent gates", theorems.theorem_three(token_dependent=True)),
        ),
        note="Token-dependent gates are not absorbed: the scale s_l(x) would have to be a parameter.",
    ),
    Claim(
        id="TH4",
        document="ours",
        section="Theorem 2, existence",
        statement=(
            r"Every chain of linear maps over a field has bases $P_l$ with $A_l P_l = P_{l+1} E_l$, where $E_l$ "
            r"sends each basis vector to a basis vector or to 0, and no two to the same one; with equal dimensions "
            r"$E_l$ is diagonal, 0 or 1. (Paper proof: the elder rule, in the module proofs/theorems.py.)"
        ),
        hypotheses=("linear maps over a field; dimensions may change",),
        kind="theorem",
        method="property test",
        literal=Check(
            "Exact bases of planted chains (square and rectangular) and of doubly stochastic ones, multiplied out.",
            interval_bases,
            _lemma_cases,
            Case("the average in the unit basis", _average_in_unit_basis()),
        ),
    ),
    Claim(
        id="TH5",
        document="ours",
        section="Theorem 1, instances",
        statement=(
            r"Theorem 1 over the rationals: doubly stochastic invertible chains and their identity forms have the "
            r"same depth kernel and the same outputs, exactly."
        ),
        hypotheses=(*FREE, INVERTIBLE),
        kind="theorem",
        method="property test",
        literal=Check(
            "Rational networks with generic reads and writes: equation, depth kernel, one run with quadratic "
            "branches.",
            same_network,
            _invertible_cases,
            Case("a singular mixer carried by I", _without_reset()),
        ),
    ),
    Claim(
        id="TH6",
        document="ours",
        section="Theorem 2, instances",
        statement=(
            r"Theorem 2 over the rationals: every static chain, singular sites and zero maps included, and its 0/1 "
            r"gated form have the same depth kernel and the same outputs, exactly."
        ),
        hypotheses=FREE,
        kind="theorem",
        method="property test",
        literal=Check(
            "Rational networks on doubly stochastic and integer chains: equation, depth kernel, one run.",
            same_network,
            _any_cases,
            Case("writes through P_l instead of P_{l+1}", _wrong_write()),
        ),
    ),
    Claim(
        id="TH7",
        document="ours",
        section="Theorem 3, instances",
        statement=(
            r"Theorem 3 over the rationals, where $\sqrt{n/k}$ is rational: norm-gated forms of four-stream chains "
            r"with $k$ in $\{1, 4\}$ directions alive, and with none ($c(0) := 1$), are the same networks exactly."
        ),
        hypotheses=(*FREE, STATIC_GATES),
        kind="theorem",
        method="property test",
        literal=Check(
            "Rational networks; the factors are checked against c^2 ||g||^2 = n.",
            same_network,
            _norm_cases,
            Case("norm-gated carry with the gated network's reads and writes", _unscaled()),
        ),
    ),
    Claim(
        id="TH8",
        document="ours",
        section="dynamic reads, writes, head",
        statement=(
            r"Controllers $W\,\mathrm{vec}(X) / \sqrt{\Vert X \Vert_F^2/(nd) + \varepsilon}$ convert exactly: with "
            r"$W' = W (P_l \otimes I_d)$ and a triangular $T_l$, $T_l^T T_l = P_l^T P_l$, they see the same "
            r"projection and the same norm, $\Vert T_l Y_l \Vert_F = \Vert X_l \Vert_F$. Proved for symbolic $n$, "
            r"$d$."
        ),
        hypotheses=("one norm for the whole state (not one per stream)", r"the same $P_l$ for read, write and RMS"),
        kind="theorem",
        method="symbolic",
        literal=Check(
            "Non-commutative rewriting, row by row of W; the trace of the second identity is the squared norm.",
            theorems.proves,
            _theorem_cases(theorems.controllers()),
            Case(
                "without T^T T = P^T P (the norm of Y itself)",
                theorems.controllers().without("T_l^T T_l = P_l^T P_l"),
            ),
        ),
    ),
)
