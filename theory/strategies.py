"""Hypothesis strategies for chains whose answer is known: exact, constructed, never drawn and filtered.

Drawing matrices and filtering does not work: a drawn array is singular far too often (its fill repeats one value) and
a filter on a determinant trips the health checks.  Here every matrix has its property by construction:

- :func:`unimodular`: permutation x unit lower triangular x unit upper triangular, so it is invertible over Z;
- :func:`doubly_stochastic`: weighted permutations (Birkhoff), with planted rank by blocks of averages;
- :func:`planted_chains`: bars are drawn, then gauges; ``A_l = P_{l+1} E_l P_l^{-1}`` has those bars, over Z;
- :func:`deficit_chains`: doubly stochastic chains with the rank of every site known.

All matrices are ``flint.fmpq_mat``; :class:`streamgauge.theory.chain.Chain` takes them as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import flint
from hypothesis import strategies as st

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError

Draw = st.DrawFn
MAX_STREAMS, MAX_SITES = 6, 12


@dataclass(frozen=True)
class PlantedChain:
    """Mixers with their answer: ``bars`` as sorted pairs (birth, death), and the ``gauge`` they were made with."""

    mixers: tuple[flint.fmpq_mat, ...]
    dims: tuple[int, ...]
    bars: tuple[tuple[int, int], ...]
    gauge: tuple[flint.fmpq_mat, ...]

    @property
    def chain(self) -> Chain:
        """The mixers as a :class:`Chain`."""
        return Chain(self.mixers, dim=self.dims[0])


@dataclass(frozen=True)
class DeficitChain:
    """Square doubly stochastic mixers with their ranks."""

    mixers: tuple[flint.fmpq_mat, ...]
    n: int
    ranks: tuple[int, ...]

    @property
    def chain(self) -> Chain:
        """The mixers as a :class:`Chain`."""
        return Chain(self.mixers, dim=self.n)


@st.composite
def unimodular(draw: Draw, n: int, *, bound: int = 2) -> flint.fmpq_mat:
    """Integer (n, n) matrices of determinant 1 or -1; the entries of the factors are at most ``bound``."""
    if n == 0:
        return exact.zeros(0, 0)
    entry = st.integers(-bound, bound)
    order = draw(st.permutations(range(n)))
    lower, upper, turn = exact.identity(n), exact.identity(n), exact.zeros(n, n)
    below = draw(st.lists(entry, min_size=n * (n - 1), max_size=n * (n - 1)))
    for i in range(n):
        turn[i, order[i]] = 1
        for j in range(i):
            lower[i, j] = below.pop()
            upper[j, i] = below.pop()
    return turn * lower * upper


@st.composite
def permutation_matrices(draw: Draw, n: int) -> flint.fmpq_mat:
    """The n! permutation matrices."""
    return _permuted(draw(st.permutations(range(n))))


@st.composite
def doubly_stochastic(
    draw: Draw, n: int, *, rank: int | None = None, terms: int = 4, weight: int = 9
) -> flint.fmpq_mat:
    """Exact doubly stochastic (n, n) matrices: weighted permutations, integer weights divided by their sum.

    ``rank``: an invertible mixture times a direct sum of ``rank`` blocks of averages, so the rank is exact.  Without
    it: mostly invertible mixtures (one permutation has more than half the weight), some permutations, some free
    mixtures of any rank, some of planted lower rank.
    """
    if n < 1 or (rank is not None and not 1 <= rank <= n):
        raise InputError(f"n, rank: found {n}, {rank}, expected n at least 1 and rank 1 to n")
    if rank is not None:
        mixture = draw(_mixtures(n, terms, weight, dominant=True))
        return mixture if rank == n else mixture * draw(_averages(n, rank))
    kind = draw(st.sampled_from(["permutation", *["dominant"] * 6, "free", "deficient"]))
    if kind == "permutation":
        return draw(permutation_matrices(n))
    if kind == "deficient" and n > 1:
        return draw(doubly_stochastic(n, rank=draw(st.integers(1, n - 1)), terms=terms, weight=weight))
    return draw(_mixtures(n, terms, weight, dominant=kind == "dominant"))


@st.composite
def square_chains(draw: Draw, *, max_n: int = MAX_STREAMS, max_sites: int = MAX_SITES) -> PlantedChain:
    """Planted chains of n streams: at every site some slots reset (all of them: a zero map)."""
    n, sites = draw(st.integers(1, max_n)), draw(st.integers(0, max_sites))
    births, bars, gates = [0] * n, [], []
    for l in range(sites):
        dead = draw(_subsets(n))
        gates.append([int(s not in dead) for s in range(n)])
        bars += [(births[s], l) for s in dead]
        for s in dead:
            births[s] = l + 1
    bars += [(b, sites) for b in births]
    gauge = [draw(unimodular(n)) for _ in range(sites + 1)]
    mixers = [gauge[l + 1] * _diagonal(g) * gauge[l].inv() for l, g in enumerate(gates)]
    return PlantedChain(tuple(mixers), (n,) * (sites + 1), tuple(sorted(bars)), tuple(gauge))


@st.composite
def rectangular_chains(draw: Draw, *, max_n: int = MAX_STREAMS, max_sites: int = MAX_SITES) -> PlantedChain:
    """Planted chains of changing dimension: any multiset of bars, at most ``max_n`` alive anywhere, at least one."""
    sites = draw(st.integers(0, max_sites))
    ends = st.tuples(st.integers(0, sites), st.integers(0, sites)).map(lambda e: (min(e), max(e)))
    drawn = draw(st.lists(ends, max_size=3 * max_n))
    alive = [0] * (sites + 1)
    bars = []
    for birth, death in drawn:
        if max(alive[birth : death + 1]) < max_n:
            bars.append((birth, death))
            for level in range(birth, death + 1):
                alive[level] += 1
    for level in range(sites + 1):  # no level without streams
        if not alive[level]:
            bars.append((level, level))
            alive[level] = 1
    members = [[k for k, (b, d) in enumerate(bars) if b <= level <= d] for level in range(sites + 1)]
    gauge = [draw(unimodular(len(m))) for m in members]
    mixers = []
    for l in range(sites):
        e = exact.zeros(len(members[l + 1]), len(members[l]))
        for j, k in enumerate(members[l]):
            if k in members[l + 1]:
                e[members[l + 1].index(k), j] = 1
        mixers.append(gauge[l + 1] * e * gauge[l].inv())
    return PlantedChain(tuple(mixers), tuple(alive), tuple(sorted(bars)), tuple(gauge))


def planted_chains(*, max_n: int = MAX_STREAMS, max_sites: int = MAX_SITES) -> st.SearchStrategy[PlantedChain]:
    """Square and rectangular planted chains."""
    return st.one_of(
        square_chains(max_n=max_n, max_sites=max_sites), rectangular_chains(max_n=max_n, max_sites=max_sites)
    )


@st.composite
def deficit_chains(
    draw: Draw, *, min_n: int = 1, max_n: int = MAX_STREAMS, max_sites: int = MAX_SITES
) -> DeficitChain:
    """Doubly stochastic chains; about a third of the sites have a planted rank below n."""
    n, sites = draw(st.integers(min_n, max_n)), draw(st.integers(0, max_sites))
    planted = st.one_of(st.just(n), st.just(n), st.integers(1, max(1, n - 1)))
    ranks = [draw(planted) for _ in range(sites)]
    mixers = [draw(doubly_stochastic(n, rank=rank)) for rank in ranks]
    return DeficitChain(tuple(mixers), n, tuple(ranks))


@st.composite
def regauged(draw: Draw, mixers: Sequence[flint.fmpq_mat], dims: Sequence[int]) -> tuple[flint.fmpq_mat, ...]:
    """The same chain in other bases: ``G_{l+1} A_l G_l^{-1}`` with unimodular G_l; its barcode is the same."""
    bases = [draw(unimodular(n, bound=1)) for n in dims]
    return tuple(bases[l + 1] * a * bases[l].inv() for l, a in enumerate(mixers))


def counted(bars: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """{(birth, death): count}, sorted: the form of :meth:`Barcode.multiplicities`."""
    return dict(sorted(Counter(bars).items()))


@st.composite
def _mixtures(draw: Draw, n: int, terms: int, weight: int, *, dominant: bool) -> flint.fmpq_mat:
    """Weighted permutations; ``dominant``: the first outweighs the others together, hence invertible."""
    weights = draw(st.lists(st.integers(1, weight), min_size=min(2, terms), max_size=terms))
    if dominant:
        weights[0] += sum(weights[1:])
    total = sum(weights)
    out = exact.zeros(n, n)
    for w in weights:
        out += _permuted(draw(st.permutations(range(n)))) * flint.fmpq(w, total)
    return out


@st.composite
def _averages(draw: Draw, n: int, blocks: int) -> flint.fmpq_mat:
    """A direct sum of ``blocks`` averaging matrices on a drawn partition of the streams; its rank is ``blocks``."""
    names = [*range(blocks), *draw(st.lists(st.integers(0, blocks - 1), min_size=n - blocks, max_size=n - blocks))]
    names = draw(st.permutations(names))
    size = Counter(names)
    out = exact.zeros(n, n)
    for i in range(n):
        for j in range(n):
            if names[i] == names[j]:
                out[i, j] = flint.fmpq(1, size[names[i]])
    return out


@st.composite
def _subsets(draw: Draw, n: int) -> list[int]:
    """Slots that die: often none, sometimes all."""
    kind = draw(st.sampled_from(["none", "some", "some", "all"]))
    if kind != "some":
        return [] if kind == "none" else list(range(n))
    return [s for s in range(n) if draw(st.sampled_from([False, False, True]))]


def _permuted(order: Sequence[int]) -> flint.fmpq_mat:
    out = exact.zeros(len(order), len(order))
    for i, j in enumerate(order):
        out[i, j] = 1
    return out


def _diagonal(values: Sequence[int]) -> flint.fmpq_mat:
    out = exact.zeros(len(values), len(values))
    for i, x in enumerate(values):
        out[i, i] = x
    return out
