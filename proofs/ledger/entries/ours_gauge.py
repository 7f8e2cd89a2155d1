"""Ours: what no gauge changes, the barcode, and the anchor."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.ours_form import Diagonal, covariant
from streamgauge.proofs.ledger.tools import (
    Network,
    column,
    counted,
    depth_kernel,
    drawn,
    plain,
    rational,
    row,
    same_kernel,
    same_matrix,
    verdict,
)
from streamgauge.theory import strategies
from streamgauge.theory.barcode import barcode
from streamgauge.theory.doubly import uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.interval import interval_basis
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat
Bars = Sequence[tuple[int, int]]


def any_network(seed: int, *, n: int = 3, sites: int = 4) -> Network:
    """Integer maps of all ranks, zero included, with integer reads, writes, entry and readout."""
    dice = random.Random(seed)

    def numbers(rows: int, cols: int) -> Matrix:
        return rational([[dice.randint(-2, 2) for _ in range(cols)] for _ in range(rows)])

    mixers = [
        numbers(n, r) * numbers(r, n) if r else flint.fmpq_mat(n, n) for r in dice.choices(range(n + 1), k=sites)
    ]
    reads, writes = [numbers(1, n) for _ in range(sites)], [numbers(n, 1) for _ in range(sites)]
    return Network(tuple(mixers), tuple(reads), tuple(writes), numbers(n, 2), numbers(1, n))


def unimodular(n: int, dice: random.Random) -> Matrix:
    """Integer, of determinant 1."""
    lower = rational([[int(i == j) or (dice.randint(-2, 2) if j < i else 0) for j in range(n)] for i in range(n)])
    return lower * lower.transpose() * lower


def regauged(net: Network, gauge: Sequence[Matrix], *, shift: int = 0) -> Network:
    """The network in the stream bases ``gauge`` (L+1); ``shift`` 1 uses the wrong neighbour for the reads."""
    last = len(net)
    return Network(
        tuple(gauge[l + 1].solve(a * gauge[l]) for l, a in enumerate(net.mixers)),
        tuple(p * gauge[l + shift] for l, p in enumerate(net.reads)),
        tuple(gauge[l + 1].solve(r) for l, r in enumerate(net.writes)),
        gauge[0].solve(net.entry),
        net.readout * gauge[last],
    )


def _gauge_case(seed: int, shift: int = 0) -> Case:
    net, dice = any_network(seed), random.Random(-seed)
    gauge = [unimodular(3, dice) for _ in range(len(net) + 1)]
    return Case(f"seed {seed}", (net, regauged(net, gauge, shift=shift)))


def _invariant(value: tuple[Network, Network]) -> Verdict:
    """The kernels agree, and so does every rank of a cut: reads from level t on against all that came before."""
    found = same_kernel(*value)
    if not found:
        return found
    ranks = [[cut(net, t).rank() for t in range(1, len(net) + 1)] for net in value]
    return verdict(ranks[0] == ranks[1], f"kernels agree, cut ranks {ranks[0]}", ranks=ranks)


def cut(net: Network, level: int) -> Matrix:
    """Rows: what is read from ``level`` on; columns: the input and the writes that were made before it."""
    blocks = depth_kernel(net)
    lines = []
    for t in range(level, len(net) + 1):
        name = f"read {t}" if t < len(net) else "output"
        seen = [blocks[f"{name} of input"], *(blocks[f"{name} of write {j}"] for j in range(level))]
        lines.append([x for block in seen for x in block.entries()])
    return flint.fmpq_mat(len(lines), len(lines[0]), [x for line in lines for x in line])


def _counts_bars(value: tuple[Sequence[Matrix], Sequence[int], Bars]) -> Verdict:
    """Number of bars and every multiplicity from ranks of composites, multiplied out."""
    mixers, dims, bars = value
    sites = len(mixers)
    wanted = dims[0] + sum(dims[l + 1] - a.rank() for l, a in enumerate(mixers))
    if len(bars) != wanted:
        return verdict(False, f"{len(bars)} bars, expected {wanted}", bars=bars, expected=wanted)
    ranks = {(i, i): dims[i] for i in range(sites + 1)}
    for i in range(sites):
        product = mixers[i]
        for j in range(i + 1, sites + 1):
            ranks[i, j] = product.rank()
            product = mixers[j] * product if j < sites else product

    def r(i: int, j: int) -> int:
        return ranks[i, j] if i >= 0 and j <= sites else 0

    counts = Counter(tuple(bar) for bar in bars)
    for b, d in ranks:
        found, expected = counts[b, d], r(b, d) - r(b - 1, d) - r(b, d + 1) + r(b - 1, d + 1)
        if found != expected:
            return verdict(False, f"[{b}, {d}] stands {found} times, expected {expected}", bar=(b, d), found=found)
    return verdict(True, f"{wanted} bars, every multiplicity by the rank formula", bars=bars)


def _barred(chains: Any, quick: int, full: int) -> Any:
    def cases(level: Level) -> Iterator[Case]:
        for i, made in enumerate(drawn(chains, quick if level is Level.QUICK else full, start=7)):
            found = [(bar.birth, bar.death) for bar in barcode(made.chain).bars]
            yield Case(f"drawn {i}", (made.mixers, made.dims, found))

    return cases


def _two_bases(value: tuple[Diagonal, Diagonal]) -> Verdict:
    """Two different interval bases of one chain; the bars read off the slots' gates are the same."""
    first, second = value
    for form in value:
        found = covariant(replace(form, mixers=first.mixers))
        if not found:
            return found
    bars = [_read_off(form) for form in value]
    ok = bars[0] == bars[1] and first.gauge != second.gauge
    return verdict(ok, f"bars {bars[0]} and {bars[1]}; bases {'differ' if ok else 'compared'}", bars=bars)


def _read_off(form: Diagonal) -> list[tuple[int, int]]:
    births, bars = [0] * form.gauge[0].ncols(), []
    for l, g in enumerate(form.gates):
        for slot, gate in enumerate(g):
            if gate == 0:
                bars.append((births[slot], l))
                births[slot] = l + 1
    return sorted([*bars, *((b, len(form.gates)) for b in births)])


def _interval(mixers: Sequence[Matrix], start: Matrix | None) -> Diagonal:
    n = mixers[0].nrows()
    basis = interval_basis(mixers, (n,) * (len(mixers) + 1), start=start)
    return Diagonal(tuple(mixers), basis.gauge, tuple(tuple(Fraction(x) for x in g) for g in basis.gates))


def _basis_pair(seed: int) -> Case:
    mixers = any_network(seed).mixers
    return Case(f"seed {seed}", (_interval(mixers, None), _interval(mixers, unimodular(3, random.Random(seed)))))


def _other_chain() -> tuple[Diagonal, Diagonal]:
    return _interval([uniform(2)], None), _interval([identity(2)], None)


def _anchored(value: tuple[Network, Sequence[Matrix]]) -> Verdict:
    """In the gauge the mixers are 1 (+) B_l, the entry is e_0, the readout sees stream 0 alone."""
    net, gauge = value
    n = gauge[0].nrows()
    if any(p.det() == 0 for p in gauge):
        return verdict(False, "a gauge is singular", determinants=[p.det() for p in gauge])
    new = regauged(net, gauge)
    for l, a in enumerate(new.mixers):
        cross = [a[0, 0] - 1, *(a[0, j] for j in range(1, n)), *(a[i, 0] for i in range(1, n))]
        if any(x != 0 for x in cross):
            return verdict(False, f"site {l}: stream 0 is not carried alone and unchanged", site=l, mixer=a)
    found = same_matrix(new.entry, column(1, *[0] * (n - 1)), "entry")
    if not found:
        return found
    seen = new.readout.entries()
    ok = seen[0] != 0 and not any(seen[1:])
    return verdict(ok, f"the readout sees the streams with weights {plain(seen)}", readout=seen)


def _anchor_case(seed: int) -> Case:
    """A chain of any maps with c Phi e != 0; columns a_l = Phi(l, 0) e and a basis of ker w_l, w_l = c Phi(L, l)."""
    dice = random.Random(seed)
    n, sites = 3, 4
    while True:
        net = replace(any_network(dice.randrange(10**6)), entry=column(1, 1, 1), readout=row(1, 2, -1))
        forward, backward = [net.entry], [net.readout]
        for a, b in zip(net.mixers, reversed(net.mixers)):
            forward.append(a * forward[-1])
            backward.insert(0, backward[0] * b)
        if (net.readout * forward[-1])[0, 0] != 0:
            break
    gauge = []
    for a_l, w_l in zip(forward, backward):
        pivot = next(j for j in range(n) if w_l[0, j] != 0)
        p = flint.fmpq_mat(n, n)
        for i in range(n):
            p[i, 0] = a_l[i, 0]
        for k, j in enumerate(j for j in range(n) if j != pivot):
            p[j, k + 1], p[pivot, k + 1] = w_l[0, pivot], -w_l[0, j]
        gauge.append(p)
    return Case(f"seed {seed}, {sites} sites", (net, gauge))


def _unanchored() -> tuple[Network, Sequence[Matrix]]:
    net, _ = _anchor_case(0).value
    return net, [identity(3)] * 5


J_BARS = ([uniform(2)], (2, 2), [(0, 1), (0, 1)])


CLAIMS = (
    Claim(
        "P01",
        "ours",
        "gauge",
        r"For any mixers, singular ones included, $K_{tj} = p_t \Phi(t,j+1) r_j$, the input row $p_t \Phi(t,0) e$, "
        r"the outputs and the ranks of all cut blocks do not depend on the gauge.",
        "theorem",
        "exact certificate",
        Check(
            "Seeded integer networks of all ranks in random unimodular gauges.",
            _invariant,
            counted(8, 60, _gauge_case),
            Case("reads with the next level's gauge", _gauge_case(1, shift=1).value),
        ),
        hypotheses=("static A, any rank", "free p, r, entry and readout"),
    ),
    Claim(
        "P02",
        "ours",
        "barcode",
        r"A chain has $n_0 + \sum_l (n_{l+1} - rank\,A_l)$ bars, and $[b,d]$ stands "
        r"$r(b,d) - r(b-1,d) - r(b,d+1) + r(b-1,d+1)$ times.",
        "theorem",
        "property test",
        Check(
            "Planted square and rectangular chains; ranks of composites multiplied out.",
            _counts_bars,
            _barred(strategies.planted_chains(max_n=4, max_sites=6), 10, 80),
            Case("(J) with [0, 1] twice", J_BARS),
        ),
        hypotheses=("static A, any shapes",),
    ),
    Claim(
        "P03",
        "ours",
        "barcode",
        r"The barcode is unique, the interval basis is not.",
        "theorem",
        "exact certificate",
        Check(
            "Two interval bases of one chain from different starts; bars read off the gates.",
            _two_bases,
            counted(6, 50, _basis_pair),
            Case("the basis of another chain", _other_chain()),
        ),
        hypotheses=("a chain of linear maps over a field; dimensions may change",),
    ),
    Claim(
        "P06",
        "ours",
        "anchor",
        r"If $c\,\Phi(L,0)\,e \neq 0$, the network is one residual stream with gate 1 plus $n-1$ streams of memory "
        r"that start at zero and are not read out.",
        "theorem",
        "exact certificate",
        Check(
            "Columns Phi(l,0) e and ker c Phi(L,l), for seeded maps of any rank.",
            _anchored,
            counted(5, 40, _anchor_case),
            Case("the unchanged basis", _unanchored()),
        ),
        hypotheses=("static A, any rank", "one entry column, one readout row"),
    ),
)
