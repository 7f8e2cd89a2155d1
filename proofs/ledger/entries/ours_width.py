"""Ours: how many streams a pure iHC needs for a depth kernel, and how many a gated one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.entries.ours_gauge import any_network
from streamgauge.proofs.ledger.tools import Network, column, counted, depth_kernel, fixed, row, same_kernel, verdict
from streamgauge.theory.binary import binary_form
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.exact import identity
from streamgauge.theory.verdict import Verdict
from streamgauge.theory.width import Staircase, completion_rank, hankel_rank, hankel_realisation, minimal_pure

Matrix = flint.fmpq_mat
HALF = Fraction(1, 2)
Known = tuple[int, ...]
Table = dict[tuple[int, ...], int]
"""Given entries of a staircase, row by row, and the smallest rank said to be possible."""


def _smallest_ranks(value: tuple[int, int, Known, Table]) -> Verdict:
    """Every completion of every staircase of this shape over GF(p) is tried."""
    prime, cols, known, table = value
    places = [(i, j) for i in range(len(known)) for j in range(cols)]
    best: Table = {}
    for entries in itertools.product(range(prime), repeat=len(places)):
        part = tuple(x for x, (i, j) in zip(entries, places) if j < known[i])
        rank = flint.nmod_mat(len(known), cols, list(entries), prime).rank()
        best[part] = min(best.get(part, rank), rank)
    for part, rank in best.items():
        if table[part] != rank:
            reason = f"entries {part} in a staircase {known}: smallest rank {rank}, formula {table[part]}"
            return verdict(False, reason, known=known, entries=part, smallest=rank, formula=table[part])
    return verdict(True, f"{len(best)} staircases of shape {known} over GF({prime})", staircases=len(best))


def _formula_table(prime: int, rows: int, cols: int, known: Known, formula: Callable[[Staircase], int]) -> Table:
    table = {}
    for part in itertools.product(range(prime), repeat=sum(known)):
        fill = iter(part)
        entries = [next(fill) if j < known[i] else 0 for i in range(rows) for j in range(cols)]
        table[part] = formula(Staircase(flint.nmod_mat(rows, cols, entries, prime), known))
    return table


def _exhaustive(level: Level) -> Iterator[Case]:
    shapes = (
        [(2, 2, 3), (2, 3, 2)] if level is Level.QUICK else [(2, 2, 3), (2, 3, 2), (2, 3, 3), (3, 2, 3), (3, 3, 2)]
    )
    for prime, rows, cols in shapes:
        for known in itertools.combinations_with_replacement(range(cols + 1), rows):
            table = _formula_table(prime, rows, cols, known, completion_rank)
            yield Case(f"GF({prime}), {rows} x {cols}, known {known}", (prime, cols, known, table))


def network(chain: Chain) -> Network:
    """The data of an exact chain with reads, writes, entry and readout."""
    entry: Any = chain.entry
    readout: Any = chain.readout
    return Network(chain.mixers, chain.reads or (), chain.writes or (), entry, readout)


def chain_of(net: Network) -> Chain:
    """The network as the package's chain."""
    return Chain(net.mixers, net.reads, net.writes, net.entry, net.readout)


def _corner(net: Network, first: int, level: int) -> Matrix:
    """Rows: reads ``first`` .. L-1 and the readout; columns: the entry and the writes before ``level``."""
    blocks, last = depth_kernel(net), len(net)
    lines = []
    for t in range(first, last + 1):
        name = f"read {t}" if t < last else "output"
        seen = [blocks[f"{name} of {x}"] for x in ("input", *(f"write {j}" for j in range(level)))]
        lines.append([x for block in seen for x in block.entries()])
    return flint.fmpq_mat(len(lines), len(lines[0]) if lines else 0, [x for line in lines for x in line])


def _widths(net: Network) -> tuple[int, int]:
    """Woerdeman's number and the largest Hankel rank, from the kernel's corners."""
    sites = len(net)
    hankel = [_corner(net, t, t).rank() for t in range(sites + 1)]
    common = [_corner(net, t + 1, t).rank() for t in range(sites)]
    return sum(hankel) - sum(common), max(hankel)


def _pure_of_width(value: tuple[Network, Network, int]) -> Verdict:
    """The second network has mixers I on the stated number of streams and the first one's kernel."""
    net, pure, streams = value
    if any(a != identity(streams) for a in pure.mixers):
        return verdict(
            False, f"a mixer is not the identity of {streams} streams", streams=streams, mixer=pure.mixers[0]
        )
    return same_kernel(net, pure)


def _completed(seed: int) -> Case:
    net = any_network(seed, sites=5)
    return Case(f"seed {seed}", (net, network(minimal_pure(chain_of(net))), max(1, _widths(net)[0])))


def _smallest_levels(value: tuple[Network, Network]) -> Verdict:
    """Same kernel, and no level has more streams than the rank of its Hankel block (which bounds any network's)."""
    net, small = value
    found = same_kernel(net, small)
    widths = [small.entry.nrows(), *(a.nrows() for a in small.mixers)]
    ranks = [_corner(net, t, t).rank() for t in range(len(net) + 1)]
    if not found:
        return found
    ok = all(w == max(1, r) for w, r in zip(widths, ranks))
    return verdict(ok, f"streams by level {widths}, Hankel ranks {ranks}", streams=widths, ranks=ranks)


def _realised(seed: int) -> Case:
    net = any_network(seed, sites=5)
    return Case(f"seed {seed}", (net, network(hankel_realisation(chain_of(net)))))


def _stated_widths(value: tuple[Network, int, int]) -> Verdict:
    net, pure, gated = value
    found = _widths(net)
    reason = f"pure iHC {found[0]} streams, gated {found[1]}; stated {pure} and {gated}"
    return verdict(found == (pure, gated), reason, pure=found[0], gated=found[1])


def two_site(reads: Sequence[Matrix], writes: Sequence[Matrix]) -> Network:
    """Two streams, A_0 = J, A_1 = I, free input, sum readout."""
    return Network((uniform(2), identity(2)), tuple(reads), tuple(writes), identity(2), row(1, 1))


SEED = two_site([row(1, -1), row(1, -1)], [column(1, -1), column(HALF, HALF)])
BOXED_READS = [row(Fraction(3, 4), Fraction(1, 4)), row(HALF, Fraction(1, 3))]
STRICT = two_site(BOXED_READS, [column(1, HALF), column(1, 1)])
EQUAL = two_site(BOXED_READS, [column(1, 1), column(1, 1)])


def _boxed_pure(net: Network) -> Network:
    """a = p_1, b = omega e, u = r_1, v = r_2, h = e with mixers I."""
    omega = (net.reads[1][0, 0] + net.reads[1][0, 1]) / 2
    return replace(net, mixers=(identity(2),) * 2, reads=(net.reads[0], row(1, 1) * omega))


def positive_chain(mixers: Sequence[Matrix], *, free: bool, seed: int = 0) -> Network:
    """Positive reads and writes; the input free (n columns) or copied into all streams; sum readout."""
    dice, n = random.Random(seed), mixers[0].nrows()

    def drawn() -> list[Fraction]:
        return [Fraction(dice.randint(1, 99), 100) for _ in range(n)]

    reads, writes = tuple(row(*drawn()) for _ in mixers), tuple(column(*drawn()) for _ in mixers)
    return Network(tuple(mixers), reads, writes, identity(n) if free else column(*[1] * n), row(*[1] * n))


def _averaging(level: Level) -> Iterator[Case]:
    for n in (2, 4):
        for sites in (2, 3, 4) if level is Level.QUICK else (2, 3, 4, 6, 8, 12):
            for free in (True, False):
                net = positive_chain([uniform(n)] * sites, free=free, seed=sites)
                name = f"n = {n}, L = {sites}, {'free input' if free else 'copy-in'}"
                yield Case(name, (net, sites + free, 2))


def _mixed_chain(seed: int, *, singular: int = 0) -> Network:
    dice = random.Random(seed)
    ranks = [3 if l in range(2, 2 + singular) else 4 for l in range(7)]
    return positive_chain([random_doubly_stochastic(4, seed=dice, rank=r) for r in ranks], free=True, seed=seed)


def _nonsingular(level: Level) -> Iterator[Case]:
    for seed in range(2 if level is Level.QUICK else 8):
        yield Case(f"all of rank 4, seed {seed}", (_mixed_chain(seed), 4, 4))
        yield Case(f"one of rank 3, seed {seed}", (_mixed_chain(seed, singular=1), 5, 4))


def stream_per_bar(net: Network, *, reset: bool = True) -> Network:
    """One stream per bar, mixers I: a bar is written and read only while it lives (``reset`` False: one per slot)."""
    form = binary_form(chain_of(net))
    sites, new = len(net), network(Chain(net.mixers, form.reads, form.writes, form.entry, form.readout))
    bars = form.bars if reset else [bar for bar in form.bars if bar.death == sites]

    def spread(vector: Sequence[flint.fmpq], level: int) -> list[flint.fmpq]:
        return [vector[bar.slot] if not reset or bar.birth <= level <= bar.death else flint.fmpq(0) for bar in bars]

    entry = [spread(line, 0) for line in new.entry.transpose().tolist()]
    n = len(bars)
    return Network(
        (identity(n),) * sites,
        tuple(flint.fmpq_mat(1, n, spread(p.entries(), l)) for l, p in enumerate(new.reads)),
        tuple(flint.fmpq_mat(n, 1, spread(r.entries(), l + 1)) for l, r in enumerate(new.writes)),
        flint.fmpq_mat(len(entry), n, [x for line in entry for x in line]).transpose(),
        flint.fmpq_mat(1, n, spread(new.readout.entries(), sites)),
    )


def _by_bars(seed: int) -> Case:
    net = any_network(seed)
    pure = stream_per_bar(net)
    return Case(f"seed {seed}, {pure.entry.nrows()} bars", (net, pure, pure.entry.nrows()))


CLAIMS = (
    Claim(
        "P09",
        "ours",
        "width",
        r"The smallest rank of a completion of a staircase matrix is "
        r"$\sum_i rank(rows \geq i, cols \leq i) - \sum_i rank(rows > i, cols \leq i)$ (Woerdeman).",
        "theorem",
        "exact certificate",
        Check(
            "All completions of all small staircases over GF(2), at level full also GF(3).",
            _smallest_ranks,
            _exhaustive,
            Case("largest Hankel rank instead", (2, 2, (1, 2), _formula_table(2, 2, 2, (1, 2), hankel_rank))),
        ),
        source="Woerdeman, Linear Algebra Appl. 121 (1989)",
        hypotheses=("entries of one field; the specified part is a staircase",),
    ),
    Claim(
        "P10",
        "ours",
        "width",
        r"A pure iHC realises a depth kernel with $N$ streams iff the staircase [input | K] has a completion of rank "
        r"at most $N$; completing columns from left to right attains the minimum.",
        "theorem",
        "exact certificate",
        Check(
            "The constructed network: mixers I, Woerdeman's number of streams, the same kernel.",
            _pure_of_width,
            counted(6, 50, _completed),
            Case("two streams for the seed", (SEED, replace(SEED, mixers=(identity(2),) * 2), 2)),
        ),
        hypotheses=("branches as black boxes: kernel level", "static p, r, free entry and readout"),
        note="Any pure iHC of N streams completes the staircase by its own products p_t r_j, of rank at most N.",
    ),
    Claim(
        "P11",
        "ours",
        "width",
        r"With free mixers (gated iHC, mHC) the minimum is the largest Hankel rank: "
        r"$\max_t rank(rows \geq t, cols < t)$.",
        "theorem",
        "exact certificate",
        Check(
            "The realisation has the kernel and at every level as many streams as the Hankel block has rank.",
            _smallest_levels,
            counted(6, 50, _realised),
            Case("the seed itself, two streams at its last level", (SEED, SEED)),
        ),
        hypotheses=("static A of any shape; diagonal 0/1 gates of the same width by Theorem 2",),
    ),
    Claim(
        "P12",
        "ours",
        "width",
        r"The seed counterexample needs 3 streams as a pure iHC and 2 with a reset.",
        "number",
        "exact certificate",
        Check(
            "Ranks of the kernel's corners.",
            _stated_widths,
            fixed(Case("seed", (SEED, 3, 2))),
            Case("2 and 2", (SEED, 2, 2)),
        ),
        hypotheses=("kernel level",),
    ),
    Claim(
        "P13",
        "ours",
        "width",
        r"Inside mHC's sigmoid boxes, $p_1 = (3/4, 1/4)$, $p_2 = (1/2, 1/3)$, $r_1 = (1, 1/2)$, $r_2 = (1, 1)$: "
        r"3 streams; with $p_2 r_1 = (p_2 1)(1 r_1)/2$, e.g. $r_1 = (1, 1)$, 2 suffice.",
        "number",
        "exact certificate",
        Check(
            "Ranks of the kernel's corners.",
            _stated_widths,
            fixed(Case("strict", (STRICT, 3, 2)), Case("equality", (EQUAL, 2, 2))),
            Case("strict with 2", (STRICT, 2, 2)),
        ),
        hypotheses=("kernel level",),
    ),
    Claim(
        "P14",
        "ours",
        "width",
        r"With equality, $a = p_1$, $b = \omega e$, $u = r_1$, $v = r_2$, $h = e$ is a pure iHC of two streams with "
        r"the same kernel, $\omega = p_2 1 / 2$.",
        "theorem",
        "exact certificate",
        Check(
            "The network written down, kernel against kernel.",
            _pure_of_width,
            fixed(Case("equality", (EQUAL, _boxed_pure(EQUAL), 2))),
            Case("strict", (STRICT, _boxed_pure(STRICT), 2)),
        ),
        hypotheses=(
            r"two streams, $A_0 = J$, $\rho = \mu\omega$",
            "reads, writes and head of the pure iHC free",
        ),
    ),
    Claim(
        "P15",
        "ours",
        "width",
        r"Depth separation: $A_l = J$ throughout, generic positive p and r. Gated needs 2 streams, pure iHC $L + 1$ "
        r"with free input and $L$ with copy-in.",
        "theorem",
        "exact certificate",
        Check(
            "Seeded positive reads and writes, n = 2 and 4.",
            _stated_widths,
            _averaging,
            Case("mixers I", (positive_chain([identity(2)] * 4, free=True), 5, 2)),
        ),
        hypotheses=("kernel level", "L at least 2", "generic p, r"),
    ),
    Claim(
        "P16",
        "ours",
        "width",
        r"A chain of nonsingular mixers needs no more than its $n$ streams; one inserted mixer of rank 3 makes it 5 "
        r"of 4 (n = 4, L = 7).",
        "theorem",
        "exact certificate",
        Check(
            "Doubly stochastic mixers of planted rank.",
            _stated_widths,
            _nonsingular,
            Case("two of rank 3 in 4 streams", (_mixed_chain(0, singular=2), 4, 4)),
        ),
        hypotheses=("kernel level", "generic p, r"),
    ),
    Claim(
        "P17",
        "ours",
        "width",
        r"One stream per bar always suffices: every static chain is a pure iHC of as many streams as it has bars.",
        "theorem",
        "exact certificate",
        Check(
            "Streams read and written while their bar lives, from binary forms of integer chains of all ranks.",
            _pure_of_width,
            counted(6, 50, _by_bars),
            Case("one stream per slot, resets left out", (SEED, stream_per_bar(SEED, reset=False), 2)),
        ),
        hypotheses=("static mixers; free reads, writes and readout; branches as black boxes",),
    ),
)
