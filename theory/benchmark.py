"""Exact speed: the interval basis beside the bare sweeps it cannot do without, sympy, and auslander where installed.

The yardstick is the same chain's bare sweeps in the same run: ``M = A P; rref(M)``, with P = M, or I after a
rank-deficient site: products and row reductions on ``fmpq_mat``, without births, bookkeeping or the basis itself (and
with shorter entries, since it starts afresh at every deficient site).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import flint

from streamgauge.theory import exact
from streamgauge.theory.doubly import random_doubly_stochastic
from streamgauge.theory.errors import InputError
from streamgauge.theory.interval import interval_basis
from streamgauge.theory.modular import interval_basis_modular, reduce

PRIME = 2**31 - 1
SIZES = ((4, 64), (8, 64), (16, 64))
GROWTH = ((4, 128), (4, 256), (4, 512), (8, 128), (8, 256), (8, 512))


@dataclass(frozen=True)
class SpeedRow:
    """One chain of ``sites`` doubly stochastic (n, n) mixers, ``deficient`` of them singular.  Processor time in
    milliseconds, the best of several runs; peers are None where they were not asked for or not installed.

    - ``bare``: bare sweeps; ``basis``: interval basis over Q; ``ratio`` = basis / bare.
    - ``modular``: interval basis over GF(2^31 - 1); ``sympy``: the bare sweeps with sympy ``Matrix``;
      ``auslander``: its decomposition over the same field, and ``auslander_ratio`` = auslander / modular.
    - ``bits``: mean length of the gauge's numerators and denominators; ``per_bit``: basis time a site, entry and bit,
      in nanoseconds, constant where time is linear in depth up to the growth of the entries.
    """

    n: int
    sites: int
    deficient: int
    bare: float
    basis: float
    ratio: float
    modular: float
    bits: float
    per_bit: float
    sympy: float | None = None
    auslander: float | None = None
    auslander_ratio: float | None = None


def benchmark_chain(n: int, sites: int, *, seed: int = 0) -> list[flint.fmpq_mat]:
    """Random rational doubly stochastic mixers; every third site or so (30 %, at random places) has a lower rank."""
    if n < 2:
        raise InputError(f"n: found {n}, expected at least 2 (one stream has no rank-deficient mixer)")
    dice = random.Random(seed)
    low = set(dice.sample(range(sites), round(0.3 * sites)))
    return [_low_rank(n, dice) if l in low else _full_rank(n, dice) for l in range(sites)]


def bare_sweeps(mixers: Sequence[flint.fmpq_mat]) -> None:
    """The yardstick: ``M = A P; rref(M)``."""
    start = exact.identity(mixers[0].ncols())
    p = start
    for a in mixers:
        m = a * p
        _, rank = m.rref()
        p = m if rank == m.ncols() else start


def speed(n: int, sites: int, *, seed: int = 0, repeats: int = 5, peers: bool = False) -> SpeedRow:
    """Time one random chain; the runs of basis and yardstick alternate."""
    mixers = benchmark_chain(n, sites, seed=seed)
    dims = [n] * (sites + 1)
    times: dict[str, list[float]] = {"bare": [], "basis": [], "modular": []}
    for _ in range(repeats):
        times["bare"].append(_milliseconds(lambda: bare_sweeps(mixers)))
        times["basis"].append(_milliseconds(lambda: interval_basis(mixers, dims)))
        times["modular"].append(_milliseconds(lambda: interval_basis_modular(mixers, dims, PRIME)))
    bare, basis, modular = (min(times[name]) for name in ("bare", "basis", "modular"))
    found = interval_basis(mixers, dims)
    bits = _mean_bits(found.gauge)
    deficient = sum(rank < n for rank in found.ranks)
    bars = Counter((bar.birth, bar.death) for bar in found.bars)
    rival = _auslander(mixers, n, bars) if peers else None
    return SpeedRow(
        n=n,
        sites=sites,
        deficient=deficient,
        bare=bare,
        basis=basis,
        ratio=basis / bare,
        modular=modular,
        bits=bits,
        per_bit=1e6 * basis / (sites * n * n * bits),
        sympy=_sympy(mixers) if peers else None,
        auslander=rival,
        auslander_ratio=None if rival is None else rival / modular,
    )


def exact_speed(*, peers: bool = True, growth: bool = True, repeats: int = 5) -> list[SpeedRow]:
    """The rows of ``streamgauge bench theory``: n = 4, 8, 16 at 64 sites (peers for n = 8), then depth 128 to 512."""
    rows = [speed(n, sites, repeats=repeats, peers=peers and n == 8) for n, sites in SIZES]
    if growth:
        rows += [speed(n, sites, repeats=max(1, repeats // 2)) for n, sites in GROWTH]
    return rows


def _full_rank(n: int, dice: random.Random) -> flint.fmpq_mat:
    while True:
        a = random_doubly_stochastic(n, seed=dice, terms=n + 1)
        if a.rank() == n:
            return a


def _low_rank(n: int, dice: random.Random) -> flint.fmpq_mat:
    """A mixture after averaging a few pairs of streams."""
    averaging = exact.identity(n)
    order = dice.sample(range(n), n)
    for k in range(dice.randint(1, max(1, n // 4))):
        i, j = order[2 * k], order[2 * k + 1]
        averaging[i, i] = averaging[j, j] = averaging[i, j] = averaging[j, i] = flint.fmpq(1, 2)
    return averaging * _full_rank(n, dice)


def _milliseconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return 1e3 * (time.process_time() - start)


def _mean_bits(gauge: Sequence[flint.fmpq_mat]) -> float:
    lengths = [int(part).bit_length() for p in gauge for x in p.entries() for part in (x.p, x.q)]
    return sum(lengths) / len(lengths)


def _sympy(mixers: Sequence[flint.fmpq_mat]) -> float:
    """The bare sweeps with ``sympy.Matrix``."""
    sympy = import_module("sympy")
    given = [sympy.Matrix([[sympy.Rational(int(x.p), int(x.q)) for x in row] for row in a.tolist()]) for a in mixers]

    def run() -> None:
        start = sympy.eye(given[0].cols)
        p = start
        for a in given:
            m = a * p
            _, pivots = m.rref()
            p = m if len(pivots) == m.cols else start

    return _milliseconds(run)


def _auslander(mixers: Sequence[flint.fmpq_mat], n: int, bars: Counter[tuple[int, int]]) -> float | None:
    """auslander's decomposition of the same chain over GF(p), checked against ``bars``; None if not installed."""
    if find_spec("auslander") is None:
        return None
    auslander = import_module("auslander")
    field = auslander.PrimeField(PRIME)
    maps = [[[int(x) for x in row] for row in reduce(a, PRIME).transpose().tolist()] for a in mixers]
    module = auslander.Algebra.linear_an(len(mixers) + 1, field).module([n] * (len(mixers) + 1), maps, field)
    found: list[Any] = []
    spent = _milliseconds(lambda: found.extend(module.decompose().summands))
    ends: Counter[tuple[int, int]] = Counter()
    for summand in found:
        alive = [level for level, size in enumerate(summand.dims) if size]
        ends[alive[0], alive[-1]] += 1
    if ends != bars:
        raise ArithmeticError("auslander and the interval basis disagree on the barcode")
    return spent
