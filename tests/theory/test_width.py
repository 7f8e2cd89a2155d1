"""Minimum width: every number by a second route (all completions of small staircases, exact realisations)."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import flint
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.theory import strategies
from streamgauge.theory.barcode import barcode
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import random_doubly_stochastic, uniform
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import identity
from streamgauge.theory.width import (
    Staircase,
    completion,
    completion_rank,
    depth_kernel,
    hankel_rank,
    hankel_realisation,
    minimal_pure,
)

HALF = Fraction(1, 2)
EXACT = settings(max_examples=40, deadline=None, derandomize=True)


def staircases(rows: int, cols: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations_with_replacement(range(cols + 1), rows))


@pytest.mark.parametrize(("prime", "rows", "cols"), [(2, 2, 2), (2, 3, 3), (3, 2, 3), (3, 3, 2)])
def test_every_small_staircase(prime: int, rows: int, cols: int) -> None:
    """All staircases over GF(p), all completions tried: formula = construction = truth."""
    places = [(i, j) for i in range(rows) for j in range(cols)]
    for known in staircases(rows, cols):
        best: dict[tuple[int, ...], int] = {}
        for entries in itertools.product(range(prime), repeat=rows * cols):
            given_part = tuple(x for x, (i, j) in zip(entries, places) if j < known[i])
            rank = flint.nmod_mat(rows, cols, list(entries), prime).rank()
            best[given_part] = min(best.get(given_part, rank), rank)
        for part, truth in best.items():
            fill = iter(part)
            entries = [next(fill) if j < known[i] else 0 for i, j in places]
            stairs = Staircase(flint.nmod_mat(rows, cols, entries, prime), known)
            made = completion(stairs)
            product = made.left * made.right
            assert completion_rank(stairs) == made.rank == product.rank() == truth, (known, part)
            assert all(product[i, j] == entries[i * cols + j] for i, j in places if j < known[i])


def test_the_unknown_part_is_ignored() -> None:
    stairs = [Staircase(flint.fmpq_mat(2, 2, [1, x, 1, 1]), (1, 2)) for x in (0, 7)]
    assert [completion_rank(s) for s in stairs] == [1, 1]
    assert stairs[0].matrix.rank() == 2


@st.composite
def wired(draw: st.DrawFn) -> Chain:
    """Square planted chains with small integer reads, writes, entry and readout."""
    planted = draw(strategies.square_chains(max_n=4, max_sites=5))
    n, sites = planted.dims[0], len(planted.mixers)
    vector = st.lists(st.integers(-3, 3), min_size=n, max_size=n)
    reads, writes = ([draw(vector) for _ in range(sites)] for _ in range(2))
    entry = [[x] for x in draw(vector)] if draw(st.booleans()) else identity(n)
    return Chain(planted.mixers, reads, writes, entry, draw(vector), dim=n)


def known_part(stairs: Staircase) -> list[object]:
    return [stairs.matrix[i, j] for i, w in enumerate(stairs.known) for j in range(w)]


@EXACT
@given(wired())
def test_minimal_pure_has_the_kernel(chain: Chain) -> None:
    kernel = depth_kernel(chain)
    pure = minimal_pure(chain)
    assert all(a == identity(pure.dims[0]) for a in pure.mixers)
    assert pure.dims[0] == max(1, completion_rank(kernel))
    assert known_part(depth_kernel(pure)) == known_part(kernel)
    assert hankel_rank(kernel) <= min(chain.dims[0], pure.dims[0])
    assert completion_rank(kernel) <= len(barcode(chain).bars)


@EXACT
@given(wired(), st.data())
def test_width_is_a_gauge_invariant(chain: Chain, data: st.DataObject) -> None:
    n = chain.dims[0]
    bases = [data.draw(strategies.unimodular(n, bound=1)) for _ in chain.dims]
    moved = Chain(
        [q * a * p.inv() for a, p, q in zip(chain.mixers, bases, bases[1:])],
        [x * p.inv() for x, p in zip(chain.reads or (), bases)],
        [p * x for x, p in zip(chain.writes or (), bases[1:])],
        bases[0] * chain.entry,
        chain.readout * bases[-1].inv(),
        dim=n,
    )
    assert known_part(depth_kernel(moved)) == known_part(depth_kernel(chain))


@EXACT
@given(wired())
def test_hankel_realisation_has_the_kernel(chain: Chain) -> None:
    kernel = depth_kernel(chain)
    made = hankel_realisation(chain)
    assert max(made.dims) == max(1, hankel_rank(kernel))
    assert known_part(depth_kernel(made)) == known_part(kernel)


def two_site(reads: list[list[object]], writes: list[list[object]]) -> Chain:
    return Chain([uniform(2), identity(2)], reads, writes, identity(2), [1, 1])


SEED = two_site([[1, -1], [1, -1]], [[1, -1], [HALF, HALF]])
BOXED = [[Fraction(3, 4), Fraction(1, 4)], [HALF, Fraction(1, 3)]]


@pytest.mark.parametrize(
    ("chain", "pure", "gated"),
    [(SEED, 3, 2), (two_site(BOXED, [[1, HALF], [1, 1]]), 3, 2), (two_site(BOXED, [[1, 1], [1, 1]]), 2, 2)],
    ids=["seed", "boxed strict", "boxed equality"],
)
def test_two_sites(chain: Chain, pure: int, gated: int) -> None:
    kernel = depth_kernel(chain)
    assert (completion_rank(kernel), completion(kernel).rank, hankel_rank(kernel)) == (pure, pure, gated)


def test_the_three_streams_of_the_seed() -> None:
    """Reads (1, -1, 0), (0, 0, 1), (1, 1, 0), by hand: the kernel is the seed's."""
    pure = Chain(
        [identity(3)] * 2, [[1, -1, 0], [0, 0, 1]], [[0, 0, 2], [HALF, HALF, 0]], [[1, 0], [0, 1], [0, 0]], [1, 1, 0]
    )
    assert known_part(depth_kernel(pure)) == known_part(depth_kernel(SEED))


def averaging(n: int, sites: int, *, free: bool, mixers: list[object] | None = None) -> Chain:
    dice = random.Random(n * 100 + sites)
    vectors = [[Fraction(dice.randint(1, 99), 100) for _ in range(n)] for _ in range(2 * sites)]
    entry = identity(n) if free else [1] * n
    return Chain(mixers or [uniform(n)] * sites, vectors[:sites], vectors[sites:], entry, [1] * n)


@pytest.mark.parametrize("sites", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("n", [2, 4])
def test_depth_separation(n: int, sites: int) -> None:
    free, copied = (depth_kernel(averaging(n, sites, free=free)) for free in (True, False))
    assert (completion_rank(free), completion_rank(copied)) == (sites + 1, sites)
    assert (hankel_rank(free), hankel_rank(copied)) == (2, 2 if sites > 1 else 1)


def test_nonsingular_chains_need_no_more_streams() -> None:
    dice = random.Random(5)
    mixers = [random_doubly_stochastic(4, seed=dice, rank=4) for _ in range(7)]
    assert completion_rank(depth_kernel(averaging(4, 7, free=True, mixers=mixers))) == 4
    mixers[3] = random_doubly_stochastic(4, seed=dice, rank=3)
    assert completion_rank(depth_kernel(averaging(4, 7, free=True, mixers=mixers))) == 5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Staircase(flint.fmpq_mat(2, 2), (2, 1)), "known: row 1 has 1, expected 2 to 2 (a staircase)"),
        (lambda: Staircase(flint.fmpq_mat(2, 2), (1,)), "known: found 1 lengths, expected 2, one per row"),
        (lambda: depth_kernel(Chain([[[1]]])), "chain: found no reads, expected reads, writes and an entry"),
        (lambda: depth_kernel(Chain([[[1.0]]])), "chain: found float64 numbers"),
    ],
    ids=["decreasing", "length", "no reads", "floats"],
)
def test_bad_input(make: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)
