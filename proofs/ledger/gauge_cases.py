"""Networks for the gauge essay's claims, and their conversions: everything here is data for the predicates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint

from streamgauge.proofs.ledger.gauge_checks import Equation, Levels, Pair
from streamgauge.proofs.ledger.tools import Network, column, diagonal, rational, row
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm
from streamgauge.theory.normal_form import normal_form


def network(
    mixers: Sequence[flint.fmpq_mat], *, seed: int = 0, signed: bool = False, ends: str = "copy and sum"
) -> Network:
    """Square mixers with drawn reads in (0, 1) and writes in (0, 2), or ``signed`` ones of any size.

    ``ends``: "copy and sum" (entry 1, readout 1^T) or "free" (entry I, readout I: everything is seen).
    """
    dice, n = random.Random(seed), mixers[0].nrows()

    def drawn(top: int) -> list[Fraction]:
        low, high = (-30, 30) if signed else (1, 9)
        return [Fraction(dice.choice([k for k in range(low, high + 1) if k]) * top, 10) for _ in range(n)]

    reads, writes = [row(*drawn(1)) for _ in mixers], [column(*drawn(2)) for _ in mixers]
    ones = [1] * n
    entry, readout = (column(*ones), row(*ones)) if ends == "copy and sum" else (exact.identity(n), exact.identity(n))
    return Network(tuple(mixers), tuple(reads), tuple(writes), entry, readout)


def stochastic_mixers(n: int, sites: int, *, seed: int, ranks: Sequence[int] | None = None) -> list[flint.fmpq_mat]:
    """Exact doubly stochastic mixers of the ranks given (default: all n)."""
    ranks = [n] * sites if ranks is None else ranks
    return [random_doubly_stochastic(n, seed=100 * seed + l, rank=ranks[l]) for l in range(sites)]


def mean_gate(n: int, g: Any) -> flint.fmpq_mat:
    """``J + g (I - J)``: A(g)."""
    return uniform(n) + (exact.identity(n) - uniform(n)) * exact.scalar(g)


def chain_of(net: Network) -> Chain:
    """The network as a :class:`Chain`."""
    return Chain(net.mixers, net.reads, net.writes, net.entry, net.readout)


def network_of(form: NormalForm) -> Network:
    """The converted network of an exact square form that has reads, writes, entry and readout."""
    if form.reads is None or form.writes is None or form.entry is None or form.readout is None:
        raise InputError("network: found a form without reads, writes, entry or readout, expected all of them")
    carries = tuple(form.diagonal(l) for l in range(len(form)))
    return Network(carries, tuple(form.reads), tuple(form.writes), form.entry, form.readout)


def pair(net: Network, form: str, carry: str, **demands: Any) -> Pair:
    """``net`` beside its conversion to the form of that name."""
    return Pair(net, network_of(normal_form(chain_of(net), form)), carry, **demands)


def levels(net: Network, form: str) -> Levels:
    """``net``, its conversion and the gauge between them."""
    found = normal_form(chain_of(net), form)
    return Levels(net, network_of(found), found.gauge)


def equation(mixers: Sequence[flint.fmpq_mat], form: str, carry: str, *, dim: int | None = None) -> Equation:
    """The normal form's equation as data."""
    found = normal_form(Chain(mixers, dim=dim), form)
    return Equation(list(mixers), found.gauge, [found.diagonal(l) for l in range(len(found))], carry)


def regated(net: Network) -> Network:
    """A diagonally gated network with its gate values absorbed: gates 0/1, ``Z = S Y`` with S_{l+1} = S_l / g_l."""
    n = net.mixers[0].nrows()
    scale = [Fraction(1)] * n
    mixers, reads, writes = [], [], []
    for a, p, r in zip(net.mixers, net.reads, net.writes):
        gates = [exact.fraction(a[i, i]) for i in range(n)]
        reads.append(p * diagonal([1 / s for s in scale]))
        scale = [s / g if g else s for s, g in zip(scale, gates)]
        writes.append(diagonal(scale) * r)
        mixers.append(diagonal([int(g != 0) for g in gates]))
    readout = net.readout * diagonal([1 / s for s in scale])
    return Network(tuple(mixers), tuple(reads), tuple(writes), net.entry, readout)


def with_mixers(net: Network, mixers: Sequence[flint.fmpq_mat]) -> Network:
    """The same reads, writes and ends around other mixers: what a careless conversion would be."""
    return replace(net, mixers=tuple(mixers))


def strong_contrast() -> Network:
    """Three sites of A(9/10) on two streams whose reads and writes are near the corners of the sigmoid boxes."""
    reads = [row("99/100", "1/100")] * 3
    writes = [column("199/100", "1/100")] * 3
    return Network((mean_gate(2, Fraction(9, 10)),) * 3, tuple(reads), tuple(writes), column(1, 1), row(1, 1))


def reset_and_reuse() -> Network:
    """The essay's counterexample as a network: erase x1 - x2 with J, write phi there, read it again."""
    return Network(
        (uniform(2), exact.identity(2)),
        (row(1, -1), row("1/2", "-1/2")),
        (column(1, -1), column("1/2", "1/2")),
        exact.identity(2),
        row(1, 1),
    )


def cyclic_family() -> tuple[flint.fmpq_mat, flint.fmpq_mat]:
    """Two doubly stochastic mixers that no static gauge makes diagonal together: I and half a cyclic shift."""
    return exact.identity(3), rational([["1/2", "1/2", 0], [0, "1/2", "1/2"], ["1/2", 0, "1/2"]])


def copied_entry_kept(net: Network) -> Pair:
    """A doubly stochastic network with copied entry, in a 0/1 form whose entry is still 1 (then P_0^{-1} 1 = 1).

    A bar [0, L] in which 1 has a component takes the place of 1 minus all other columns of its level that were there
    from the start: 1 is mapped to 1, the others to themselves or 0, so this is a bar again.
    """
    form = normal_form(chain_of(net), "binary")
    start = form.gauge[0].solve(column(*[1] * net.entry.nrows()))
    old = [bar for bar in form.bars if bar.birth == 0]
    chosen = next(b.slot for b in old if b.death == len(net) and start[b.slot, 0] != 0)
    gauge = []
    for l, p in enumerate(form.gauge):
        p = flint.fmpq_mat(p)
        others = [bar.slot for bar in old if bar.death >= l and bar.slot != chosen]
        for i in range(p.nrows()):
            p[i, chosen] = 1 - sum((p[i, j] for j in others), flint.fmpq(0))
        gauge.append(p)
    converted = Network(
        tuple(form.diagonal(l) for l in range(len(form))),
        tuple(p * g for p, g in zip(net.reads, gauge)),
        tuple(g.solve(r) for r, g in zip(net.writes, gauge[1:])),
        gauge[0].solve(net.entry),
        net.readout * gauge[-1],
    )
    return Pair(net, converted, "binary", same_entry=True)
