"""The interval basis: exact equation, planted bars, rank formula, dualities, and the faults that must be noticed."""

from __future__ import annotations

import random
from fractions import Fraction

import flint
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mutated_module import assert_passes, mutated, survives

from streamgauge.theory import exact, interval
from streamgauge.theory.errors import InputError
from streamgauge.theory.interval import interval_basis
from streamgauge.theory.modular import divided_minor, interval_basis_modular, reduce
from streamgauge.theory.ranks import multiplicities, rank_table
from streamgauge.theory.strategies import (
    DeficitChain,
    PlantedChain,
    counted,
    deficit_chains,
    planted_chains,
    rectangular_chains,
    regauged,
    square_chains,
    unimodular,
)

PRIME = 2**61 - 1


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def gate_matrix(basis, l):
    """E_l from slots and gates."""
    rows, cols = basis.slots[l + 1], basis.slots[l]
    out = exact.zeros(len(rows), len(cols))
    for j, slot in enumerate(cols):
        if basis.gates[l][slot]:
            out[rows.index(slot), j] = 1
    return out


def check_basis(mixers, dims, basis):
    assert len(basis.gauge) == len(dims) == len(mixers) + 1
    for l, a in enumerate(mixers):
        assert a * basis.gauge[l] == basis.gauge[l + 1] * gate_matrix(basis, l), f"site {l}"
        assert set(basis.gates[l]) <= {0, 1}
        assert len(basis.gates[l]) == max(dims)
        assert basis.ranks[l] == a.rank() == sum(basis.gates[l])
    for l, p in enumerate(basis.gauge):
        assert (p.nrows(), p.ncols()) == (dims[l], dims[l])
        assert p.rank() == dims[l], f"level {l}"
        alive = [bar.slot for bar in basis.bars if bar.birth <= l <= bar.death]
        assert sorted(alive) == list(basis.slots[l])  # one bar a slot, idle slots allowed
    assert basis.bars == tuple(sorted(basis.bars))


def bars_of(basis):
    return counted([(bar.birth, bar.death) for bar in basis.bars])


def formula(mixers, dims):
    return multiplicities(rank_table(mixers, dims))


@st.composite
def any_chain(draw):
    """(mixers, dims, planted bars or None): planted square and rectangular, regauged, doubly stochastic."""
    kind = draw(st.sampled_from(["square", "rectangular", "regauged", "doubly stochastic"]))
    if kind == "doubly stochastic":
        chain = draw(deficit_chains())
        return list(chain.mixers), [chain.n] * (len(chain.mixers) + 1), None
    chain = draw({"square": square_chains(), "rectangular": rectangular_chains()}.get(kind, planted_chains()))
    mixers = draw(regauged(chain.mixers, chain.dims)) if kind == "regauged" else chain.mixers
    return list(mixers), list(chain.dims), counted(chain.bars)


@cases(500)
@given(any_chain())
def test_theorem_2(case):
    mixers, dims, planted = case
    basis = interval_basis(mixers, dims)
    check_basis(mixers, dims, basis)
    bars = bars_of(basis)
    assert bars == formula(mixers, dims)
    assert planted in (None, bars)
    assert len(basis.bars) == dims[0] + sum(n - a.rank() for n, a in zip(dims[1:], mixers))
    modular = interval_basis_modular(mixers, dims, PRIME)
    assert divided_minor(mixers, dims, PRIME) is None
    assert bars_of(modular) == bars
    for l, a in enumerate(mixers):
        e = flint.nmod_mat(
            dims[l + 1], dims[l], [int(x) for x in (y.p for y in gate_matrix(modular, l).entries())], PRIME
        )
        assert reduce(a, PRIME) * modular.gauge[l] == modular.gauge[l + 1] * e


def entries(matrix):
    return [[exact.fraction(x) for x in row] for row in matrix.tolist()]


def reference(mixers, n):
    """The elder rule word for word on a square chain: vectors by bar, subtractions at every level of a life."""
    alive = [(0, s) for s in range(n)]
    vectors = {(0, s): [[Fraction(int(i == s)) for i in range(n)]] for s in range(n)}  # by level since birth
    dead = {}
    for l, a in enumerate(mixers):
        rows = entries(a)
        images, kept = {}, []
        for bar in sorted(alive):
            image = [sum(x * y for x, y in zip(row, vectors[bar][-1])) for row in rows]
            x = combination([images[b] for b in kept], image)
            if x is None:
                images[bar] = image
                kept.append(bar)
                continue
            for back in range(1, len(vectors[bar]) + 1):
                elders = [vectors[b][-back] for b in kept]
                vectors[bar][-back] = [
                    v - sum(c * e[i] for c, e in zip(x, elders)) for i, v in enumerate(vectors[bar][-back])
                ]
            dead[bar] = vectors.pop(bar)
        for bar in kept:
            vectors[bar].append(images[bar])
        span = [images[b] for b in kept]
        born = []
        for f in range(n):  # rows that depend on the rows above them
            if combination([[v[i] for v in span] for i in range(f)], [v[f] for v in span]) is not None:
                born.append([Fraction(int(i == f)) for i in range(n)])
        free = sorted(set(range(n)) - {slot for _, slot in kept})
        alive = kept + [(l + 1, slot) for slot in free]
        vectors.update({(l + 1, slot): [v] for slot, v in zip(free, born)})
    lives = {**dead, **vectors}
    gauge = []
    for level in range(len(mixers) + 1):
        columns = {slot: v[level - b] for (b, slot), v in lives.items() if 0 <= level - b < len(v)}
        gauge.append([[columns[s][i] for s in range(n)] for i in range(n)])
    return gauge


def combination(vectors, target):
    """Coefficients x with sum x_k vectors_k = target, or None (Gauss-Jordan on Fractions; independent vectors)."""
    rows = [[*(v[i] for v in vectors), t] for i, t in enumerate(target)]
    used, pivots = 0, []
    for c in range(len(vectors)):
        at = next((i for i in range(used, len(rows)) if rows[i][c]), None)
        if at is None:
            continue
        rows[used], rows[at] = rows[at], rows[used]
        rows[used] = [x / rows[used][c] for x in rows[used]]
        for i in range(len(rows)):
            if i != used and rows[i][c]:
                rows[i] = [x - rows[i][c] * y for x, y in zip(rows[i], rows[used])]
        pivots.append(c)
        used += 1
    if any(row[-1] for row in rows[used:]):
        return None
    found = dict(zip(pivots, (row[-1] for row in rows)))
    return [found.get(c, Fraction(0)) for c in range(len(vectors))]


@cases(80)
@given(st.one_of(square_chains(max_n=4, max_sites=7), deficit_chains(max_n=4, max_sites=7)))
def test_basis_is_the_canonical_one(chain):
    n = chain.n if isinstance(chain, DeficitChain) else chain.dims[0]
    basis = interval_basis(chain.mixers, [n] * (len(chain.mixers) + 1))
    assert [entries(p) for p in basis.gauge] == reference(chain.mixers, n)


def mirrored(bars, sites):
    return counted([(sites - d, sites - b) for (b, d), count in bars.items() for _ in range(count)])


@cases(60)
@given(planted_chains(max_n=5, max_sites=8))
def test_transposition_mirrors_the_bars(chain):
    back = [a.transpose() for a in reversed(chain.mixers)]
    dual = interval_basis(back, chain.dims[::-1])
    assert bars_of(dual) == mirrored(counted(chain.bars), len(chain.mixers))


@cases(60)
@given(st.integers(0, 6).flatmap(lambda s: st.tuples(fixed_length(s), fixed_length(s))))
def test_direct_sums_unite_the_bars(pair):
    one, other = pair
    mixers = [direct_sum(a, b) for a, b in zip(one.mixers, other.mixers)]
    dims = [m + n for m, n in zip(one.dims, other.dims)]
    assert bars_of(interval_basis(mixers, dims)) == counted([*one.bars, *other.bars])


@st.composite
def fixed_length(draw, sites):
    chain = draw(rectangular_chains(max_n=3, max_sites=6))
    have = len(chain.mixers)
    mixers, dims, bars = list(chain.mixers[:sites]), list(chain.dims[: sites + 1]), []
    while len(mixers) < sites:  # continue with zero maps
        mixers.append(exact.zeros(1, dims[-1]))
        dims.append(1)
        bars.append((len(mixers), len(mixers)))
    bars += [(b, min(d, sites)) for b, d in chain.bars if b <= min(sites, have)]
    return PlantedChain(tuple(mixers), tuple(dims), tuple(sorted(bars)), ())


def direct_sum(a, b):
    out = exact.zeros(a.nrows() + b.nrows(), a.ncols() + b.ncols())
    for matrix, down, right in ((a, 0, 0), (b, a.nrows(), a.ncols())):
        for i, row in enumerate(matrix.tolist()):
            for j, x in enumerate(row):
                out[down + i, right + j] = x
    return out


@cases(40)
@given(square_chains(max_n=4, max_sites=6).flatmap(lambda c: st.tuples(st.just(c), unimodular(c.dims[0]))))
def test_start_and_newborns_are_honoured(pair):
    chain, start = pair
    rng = random.Random(len(chain.bars))
    given_to = []

    def newborns(level, image):
        """The unit vectors the image lacks, scaled, last first, plus something in the image."""
        given_to.append((level, image))
        columns = [
            [flint.fmpq(int(i == f), 3) + sum(row) for i, row in enumerate(image.tolist() or [[]] * chain.dims[0])]
            for f in missing(image)
        ]
        rng.shuffle(columns)
        return flint.fmpq_mat(
            chain.dims[level], len(columns), [c[i] for i in range(chain.dims[level]) for c in columns]
        )

    basis = interval_basis(chain.mixers, chain.dims, start=start, newborns=newborns)
    check_basis(chain.mixers, chain.dims, basis)
    assert bars_of(basis) == counted(chain.bars)
    for bar in basis.bars:
        if bar.birth == 0 and bar.death == len(chain.mixers):  # nothing was subtracted from it
            assert columns_of(basis.gauge[0])[bar.slot] == columns_of(start)[bar.slot]
    for level, image in given_to:  # the images are those of the uncorrected elder columns: same span as A P
        assert image.rank() == image.ncols() == chain.mixers[level - 1].rank()


def columns_of(matrix):
    return matrix.transpose().tolist()


def missing(image):
    """Rows of the image that depend on the rows above them."""
    table = image.tolist() if image.ncols() else [[] for _ in range(image.nrows())]
    out, rank = [], 0
    for i in range(image.nrows()):
        rows = flint.fmpq_mat(i + 1, image.ncols(), [x for row in table[: i + 1] for x in row])
        if rows.rank() == rank:
            out.append(i)
        rank = rows.rank()
    return out


def test_start_and_newborns_that_are_no_basis_are_refused():
    a = flint.fmpq_mat(2, 2, [1, 1, 1, 1])
    singular, tall = flint.fmpq_mat(2, 2, [1, 2, 2, 4]), flint.fmpq_mat(2, 2, [1, 0, 0, 1])
    with pytest.raises(InputError, match=r"^start: expected an invertible matrix of shape \(2, 2\)$"):
        interval_basis([a], [2, 2], start=singular)
    with pytest.raises(InputError, match=r"^newborns of level 1: found columns that depend on the image, expected a"):
        interval_basis([a], [2, 2], newborns=lambda level, image: image)
    with pytest.raises(InputError, match=r"^newborns of level 1: found shape \(2, 2\), expected \(2, 1\)$"):
        interval_basis([a], [2, 2], newborns=lambda level, image: tall)


@pytest.mark.parametrize(
    ("mixers", "dims", "bars"),
    [
        ([], [3], {(0, 0): 3}),
        ([[1, 1, 1, 1]], [2, 2], {(0, 0): 1, (0, 1): 1, (1, 1): 1}),
        ([[0, 0, 0, 0]], [2, 2], {(0, 0): 2, (1, 1): 2}),
        ([[0]] * 3, [1] * 4, {(0, 0): 1, (1, 1): 1, (2, 2): 1, (3, 3): 1}),
        ([[1, 0], [0, 1]], [2, 1, 2], {(0, 0): 1, (0, 2): 1, (2, 2): 1}),
        ([[], []], [2, 0, 3], {(0, 0): 2, (2, 2): 3}),
    ],
    ids=["no site", "average", "zero map", "zero chain", "narrow", "no stream"],
)
def test_smallest_cases(mixers, dims, bars):
    maps = [flint.fmpq_mat(dims[l + 1], dims[l], entries) for l, entries in enumerate(mixers)]
    basis = interval_basis(maps, dims)
    check_basis(maps, dims, basis)
    assert bars_of(basis) == bars == formula(maps, dims)


@cases(60)
@given(deficit_chains(min_n=2, max_n=6, max_sites=12))
@example(DeficitChain((flint.fmpq_mat(2, 2, [flint.fmpq(1, 2)] * 4),) * 30, 2, (1,) * 30))
def test_square_gates_are_diagonal_in_fixed_slots(chain):
    n = chain.n
    basis = interval_basis(chain.mixers, [n] * (len(chain.mixers) + 1))
    assert set(basis.slots) == {tuple(range(n))}
    for l, rank in enumerate(chain.ranks):
        deaths, births = (sum(end == at for end in ends) for ends, at in zip(ends_of(basis), (l, l + 1)))
        assert deaths == births == n - rank


def ends_of(basis):
    return [bar.death for bar in basis.bars], [bar.birth for bar in basis.bars]


def planted(seed, n=4, sites=8):
    """A planted chain without hypothesis, a denominator at every site: (mixers, bars)."""
    dice = random.Random(seed)
    births, bars, gates = [0] * n, [], []
    for l in range(sites):
        dead = [s for s in range(n) if dice.random() < 0.35]
        bars += [(births[s], l) for s in dead]
        for s in dead:
            births[s] = l + 1
        gates.append(flint.fmpq_mat(n, n, [int(i == j and i not in dead) for i in range(n) for j in range(n)]))
    bars += [(b, sites) for b in births]
    gauge = []
    for _ in range(sites + 1):
        lower, upper = exact.identity(n), exact.identity(n)
        for i in range(n):
            for j in range(i):
                lower[i, j], upper[j, i] = dice.randint(-2, 2), dice.randint(-2, 2)
        gauge.append(lower * upper)
    mixers = [gauge[l + 1] * e * gauge[l].inv() * flint.fmpq(1, l + 2) for l, e in enumerate(gates)]
    return mixers, counted(bars)


def battery(module):
    for seed in range(12):
        mixers, bars = planted(seed)
        dims = [4] * (len(mixers) + 1)
        basis = module.interval_basis(mixers, dims)
        check_basis(mixers, dims, basis)
        assert bars_of(basis) == bars
        assert [entries(p) for p in basis.gauge] == reference(mixers, 4)


MUTANTS = {
    "elder update stopped one level early": (
        "_sparse(columns, len(alive), [combination[j] for j in born])",
        "_sparse(columns, len(alive), [{j: factors[j]} for j in born])",
    ),
    "birth ignored on lane reuse": ("born = [(l + 1, slot)", "born = [(0, slot)"),
    "update of an earlier bar in the lane": (
        "columns[c] = {pivots[b]: x for b, x in later[a].items()}",
        "columns[c] = {pivots[min(b, len(pivots) - 1)]: x for b, x in later[c].items()}",
    ),
    "columns not in birth order": (
        "        columns.append(image)\n        alive.append(survivors + born)\n",
        "        every = survivors + born\n"
        "        order = sorted(range(len(every)), key=lambda j: every[j][1])\n"
        "        columns.append(image * _sparse(image, len(order), [{j: 1} for j in order]))\n"
        "        alive.append([every[j] for j in order])\n",
    ),
    "relation with the wrong sign": ("{i: -x for i, x", "{i: x for i, x"),
    "births not scaled back": ("[factor * weights.get(bar, 1) for", "[weights.get(bar, 1) for"),
    "newborn rows of the wrong map": (
        "            return missing_units(integers[level - 1])",
        "            return missing_units(integers[level - 2])",
    ),
    "newborn in the wrong lane": ("column = after.index(slot)", "column = after.index(newborn[-1 - j])"),
}


def test_battery_passes():
    assert_passes(battery, interval)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name):
    assert not survives(battery, mutated(interval, *MUTANTS[name]))
