"""Cases for the predicates on mixers: exact doubly stochastic matrices, chains, states and decompositions by seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import flint

from streamgauge.proofs.ledger.core import Case, Level
from streamgauge.proofs.ledger.tools import counted
from streamgauge.theory.birkhoff import birkhoff
from streamgauge.theory.doubly import random_doubly_stochastic


def decomposed(a: flint.fmpq_mat) -> tuple[flint.fmpq_mat, Sequence[Fraction], Sequence[Sequence[int]]]:
    """A mixer with its greedy decomposition, as data for :func:`permutation_mixture`."""
    found = birkhoff(a)
    return a, found.weights, found.permutations


def random_state(n: int, d: int, seed: int) -> flint.fmpq_mat:
    """Integers from -9 to 9, never all zero."""
    dice = random.Random(seed)
    cells = [dice.randint(-9, 9) for _ in range(n * d)]
    cells[0] = cells[0] or 1
    return flint.fmpq_mat(n, d, cells)


def mixed_states(quick: int = 12, full: int = 300) -> Callable[[Level], Iterator[Case]]:
    """Random exact doubly stochastic mixers of 2 to 6 streams, a third of planted rank, with integer states."""

    def make(i: int) -> Case:
        n = 2 + i % 5
        rank = 1 + i % n if i % 3 == 0 else None
        a = random_doubly_stochastic(n, seed=i, rank=rank)
        return Case(f"mixer {i}, n = {n}", (a, random_state(n, 1 + i % 3, i)))

    return counted(quick, full, make)


def chains(quick: int = 8, full: int = 100, *, sites: int = 6) -> Callable[[Level], Iterator[Case]]:
    """Chains of exact doubly stochastic mixers of 2 to 5 streams."""

    def make(i: int) -> Case:
        n = 2 + i % 4
        dice = random.Random(i)
        return Case(
            f"chain {i}, n = {n}", tuple(random_doubly_stochastic(n, seed=dice, weight=3) for _ in range(sites))
        )

    return counted(quick, full, make)
