"""Marginals, support, Birkhoff and random doubly stochastic matrices; brute force over permutations decides."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from types import ModuleType

import flint
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_module import mutated, survives
from refusals import assert_refused

from streamgauge.theory import birkhoff as birkhoff_module
from streamgauge.theory import doubly as doubly_module
from streamgauge.theory import support as support_module
from streamgauge.theory.birkhoff import birkhoff, permutation_mixture
from streamgauge.theory.doubly import (
    circulant_example,
    doubly_stochastic,
    exact_sweeps,
    marginals,
    random_doubly_stochastic,
    uniform,
)
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import kernel_vector, to_floats
from streamgauge.theory.support import hall_violator, positive_pattern, support, total_support

quick = settings(deadline=None, derandomize=True, max_examples=120)
patterns = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0, 0, 1, 3]), min_size=n, max_size=n), min_size=n, max_size=n)
)


def positive_permutations(matrix):
    n = len(matrix)
    return [p for p in itertools.permutations(range(n)) if all(matrix[i][p[i]] > 0 for i in range(n))]


def assert_support_is_right(m: ModuleType, matrix) -> None:
    """Verdicts against all n! permutations, and every witness checked by itself."""
    n, found = len(matrix), positive_permutations(matrix)
    verdict = m.support(matrix)
    assert verdict.ok == bool(found)
    if verdict.ok:
        assert verdict.witness["permutation"] in found
    else:
        rows, cols = verdict.witness["rows"], set(verdict.witness["columns"])
        assert {j for i in rows for j in range(n) if matrix[i][j] > 0} == cols
        assert len(cols) < len(rows)
    total = m.total_support(matrix)
    covered = {(i, p[i]) for p in found for i in range(n)}
    positive = {(i, j) for i in range(n) for j in range(n) if matrix[i][j] > 0}
    assert total.ok == (bool(found) and covered == positive)
    if found and not total.ok:
        (i, j), rows, cols = (total.witness[key] for key in ("entry", "rows", "columns"))
        assert (i, j) in positive - covered
        assert {b for a in rows for b in range(n) if matrix[a][b] > 0} == set(cols)
        assert len(cols) == len(rows)
        assert i not in rows
        assert j in cols


@quick
@given(patterns)
def test_support_and_total_support_against_all_permutations(matrix) -> None:
    assert_support_is_right(support_module, matrix)


@quick
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_doubly_stochastic_matrices_have_total_support(n: int, terms: int, seed: int) -> None:
    assert total_support(random_doubly_stochastic(n, seed=seed, terms=terms))


def test_known_patterns() -> None:
    triangle = [[1, 0], [1, 1]]  # support, but (1, 0) lies on no positive permutation: Sinkhorn only creeps to I
    assert support(triangle)
    verdict = total_support(triangle)
    assert (verdict.ok, verdict.witness["entry"]) == (False, (1, 0))
    broken = [[1, 0, 0], [1, 0, 0], [1, 1, 1]]
    assert support(broken).witness == {"rows": (0, 1), "columns": (0,)}
    assert not total_support(broken)
    assert hall_violator(positive_pattern(triangle)) == ((), ())
    assert not support([[0.0, 1e-9], [1.0, 0.0]], tolerance=1e-6)
    assert support([[0.0, 1e-9], [1.0, 0.0]])


SUPPORT_MUTANTS = {
    "edges reversed once": ("(i, n + j) for i, cols", "(i, n + i) for i, cols"),
    "any path counts": ("if component[i] != component[owner[j]]", "if i not in component"),
    "descendants without the start": ("{owner[j], *nx.descendants", "{i, *nx.descendants"),
    "violator keeps only the free row": ("                rows.add(owner[j])\n", ""),
    "zero counts as positive": ("if x > tolerance] for", "if x >= tolerance] for"),
}


@pytest.mark.parametrize("name", SUPPORT_MUTANTS)
def test_support_mutants_die(name: str) -> None:
    dice = random.Random(1)

    def battery(m: ModuleType) -> None:
        for _ in range(60):
            n = dice.randint(1, 4)
            assert_support_is_right(m, [[dice.choice([0, 0, 1]) for _ in range(n)] for _ in range(n)])

    battery(support_module)
    assert not survives(battery, mutated(support_module, *SUPPORT_MUTANTS[name]))


@quick
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10**6))
def test_birkhoff_exact(n: int, terms: int, seed: int) -> None:
    matrix = random_doubly_stochastic(n, seed=seed, terms=terms)
    found = birkhoff(matrix)
    assert found.exact
    assert found.matrix() == matrix
    assert sum(found.weights) == 1
    assert min(found.weights) > 0
    assert len(set(found.permutations)) == len(found) <= (n - 1) ** 2 + 1
    assert found.residual == 0


def test_birkhoff_reaches_the_bound() -> None:
    """A generic interior point of B_n needs a vertex for every dimension and one more."""
    sizes = {
        n: max(len(birkhoff(random_doubly_stochastic(n, seed=s, terms=40))) for s in range(6)) for n in (2, 3, 4)
    }
    assert sizes == {2: 2, 3: 5, 4: 10}


@quick
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10**6))
def test_birkhoff_float(n: int, terms: int, seed: int) -> None:
    matrix = to_floats(random_doubly_stochastic(n, seed=seed, terms=terms))
    found = birkhoff(matrix, tolerance=1e-10)
    assert found.residual <= (n * n + 2 * n) * 1e-10
    assert np.abs(found.matrix() - matrix).max() <= found.residual + 1e-15
    assert abs(sum(found.weights) - 1) <= n * (n * n + 2 * n) * 1e-10
    assert all(w > 1e-10 for w in found.weights)


def test_birkhoff_of_truncated_sinkhorn_is_refused_or_within_tolerance() -> None:
    from streamgauge.theory.sinkhorn import sinkhorn

    matrix = sinkhorn([[12, 0, 0, 0], [12, 0, 0, 0], [0, 12, 0, 0], [0, 0, 12, 0]], "paper").matrix
    with pytest.raises(InputError, match=r"matrix: column \d sums to .*; expected a doubly stochastic one"):
        birkhoff(matrix)
    assert birkhoff(matrix, tolerance=0.03).residual <= 24 * 0.03


def test_permutation_mixture_is_the_weighted_sum_transposed() -> None:
    logits = np.random.default_rng(2).normal(size=(3, 24))
    found = permutation_mixture(logits, 4)
    for k in range(3):
        weights = np.exp(logits[k]) / np.exp(logits[k]).sum()
        wanted = np.zeros((4, 4))
        for w, p in zip(weights, itertools.permutations(range(4))):
            for i in range(4):
                wanted[p[i], i] += w  # S has (i, p(i)), the mixer its transpose
        assert np.abs(found[k] - wanted).max() < 1e-15
        assert doubly_stochastic(found[k], tolerance=1e-14)
    huge = permutation_mixture(1e4 * logits[0], 4)
    assert sorted(huge.ravel()) == [0.0] * 12 + [1.0] * 4
    with pytest.raises(InputError, match=r"logits: found shape \(23,\), expected \(..., 24\)"):
        permutation_mixture(np.zeros(23), 4)
    with pytest.raises(InputError, match="n: found 8"):
        permutation_mixture(np.zeros(23), 8)
    with pytest.raises(InputError, match="not finite"):
        permutation_mixture([np.inf, 0.0], 2)


BIRKHOFF_MUTANTS = {
    "takes too much": ("weight = min(left", "weight = max(left"),
    "subtracts in floats": ("left[i][j] -= weight", "left[i][j] -= float(weight)"),
    "mixture not transposed": ("...k,kij->...ji", "...k,kij->...ij"),
}


@pytest.mark.parametrize("name", BIRKHOFF_MUTANTS)
def test_birkhoff_mutants_die(name: str) -> None:
    matrix = random_doubly_stochastic(4, seed=3, terms=9)
    logits = np.arange(6.0)
    cyclic = permutation_mixture([0, 0, 0, 60.0, 0, 0], 3)

    def battery(m: ModuleType) -> None:
        found = m.birkhoff(matrix)
        assert found.matrix() == matrix
        assert len(found) <= 10
        assert np.allclose(m.permutation_mixture([0, 0, 0, 60.0, 0, 0], 3), np.eye(3)[:, [1, 2, 0]], atol=1e-20)
        assert np.array_equal(m.permutation_mixture(logits, 3), permutation_mixture(logits, 3))

    assert np.allclose(cyclic @ [1, 2, 3], [3, 1, 2])  # the orientation fixture: combined streams (3, 1, 2)
    battery(birkhoff_module)
    assert not survives(battery, mutated(birkhoff_module, *BIRKHOFF_MUTANTS[name]))


@quick
@given(st.integers(1, 6), st.integers(0, 10**6), st.data())
def test_random_matrices_are_doubly_stochastic_with_the_planted_rank(n: int, seed: int, data) -> None:
    rank = data.draw(st.integers(1, n))
    matrix = random_doubly_stochastic(n, seed=seed, rank=rank)
    assert doubly_stochastic(matrix)
    assert matrix.rank() == rank
    assert np.linalg.matrix_rank(to_floats(matrix), tol=1e-9) == rank or n > 4
    assert matrix == random_doubly_stochastic(n, seed=seed, rank=rank)
    assert doubly_stochastic(random_doubly_stochastic(n, seed=seed) * matrix)  # closed under products


def test_unplanted_ranks_vary() -> None:
    ranks = [random_doubly_stochastic(4, seed=s).rank() for s in range(300)]
    assert ranks.count(4) > 150
    assert min(ranks) < 4  # rarely: plant the rank where it matters
    permutations = [random_doubly_stochastic(4, seed=s, terms=1) for s in range(40)]
    assert all(set(m.entries()) == {0, 1} for m in permutations)


def test_circulant_example_is_singular() -> None:
    """E02, E03: unit sums, rank 3, kernel (1,-1,1,-1), singular values 1, .7071, .7071, 0; it is (I + S) / 2."""
    matrix = circulant_example()
    assert doubly_stochastic(matrix)
    assert matrix.rank() == 3
    kernel = kernel_vector(matrix)
    assert [abs(x) for x in kernel.entries()] == [1, 1, 1, 1]
    assert kernel[0, 0] == -kernel[1, 0] == kernel[2, 0] == -kernel[3, 0]
    sigma = np.linalg.svd(to_floats(matrix), compute_uv=False)
    assert sigma == pytest.approx([1, 0.5**0.5, 0.5**0.5, 0], abs=1e-15)
    squares = (matrix.transpose() * matrix).charpoly()  # exact second route: x (x - 1) (x - 1/2)^2
    x = flint.fmpq_poly([0, 1])
    assert squares == x * (x - 1) * (x - flint.fmpq(1, 2)) ** 2
    for n in range(2, 9):
        shift = flint.fmpq_mat(n, n, [int(j == (i + 1) % n) + int(i == j) for i in range(n) for j in range(n)]) / 2
        assert (shift.rank() < n) == (n % 2 == 0)
    assert uniform(4).rank() == 1


def test_marginals_and_verdicts() -> None:
    half = Fraction(1, 2)
    sums = marginals([[half, half], [1, 0]])
    assert (sums.rows, sums.columns, sums.smallest) == ((1, 1), (Fraction(3, 2), half), 0)
    assert (sums.row_error, sums.column_error) == (0, half)
    verdict = doubly_stochastic([[half, half], [1, 0]])
    assert (verdict.ok, verdict.reason) == (False, "column 0 sums to 3/2, expected 1")
    negative = doubly_stochastic([[Fraction(3, 2), -half], [-half, Fraction(3, 2)]])
    assert (negative.ok, negative.witness["at"]) == (False, (0, 1))
    thirds = np.full((3, 3), 1 / 3)
    assert doubly_stochastic(thirds)
    assert not doubly_stochastic(thirds + 1e-9)
    assert doubly_stochastic(thirds + 1e-9, tolerance=1e-8)
    assert not doubly_stochastic(doubly_module.exact.from_floats(thirds))  # the float thirds are not thirds
    assert doubly_stochastic([[1]])


def test_exact_sweeps_by_fractions() -> None:
    """Second route: element loops over Fractions; both orders; the last marginal exactly one."""
    k = [[Fraction(1, 3), 2, 5], [7, Fraction(1, 2), 1], [1, 1, 4]]
    for order in (("columns", "rows"), ("rows", "columns")):
        m = [[Fraction(x) for x in row] for row in k]
        for found in exact_sweeps(k, order, count=3):
            for axis in order:
                if axis == "rows":
                    m = [[x / sum(row) for x in row] for row in m]
                else:
                    totals = [sum(col) for col in zip(*m)]
                    m = [[x / totals[j] for j, x in enumerate(row)] for row in m]
            assert found == flint.fmpq_mat(3, 3, [flint.fmpq(x.numerator, x.denominator) for row in m for x in row])
        sums = marginals(found)
        assert set(sums.rows if order[1] == "rows" else sums.columns) == {Fraction(1)}
        assert (sums.row_error == 0) != (sums.column_error == 0)


BAD = {
    "float sweeps": (lambda: next(exact_sweeps([[1.0]], count=1)), "matrix: found float64 entries, expected exact"),
    "negative sweeps": (lambda: next(exact_sweeps([[1, -1], [1, 1]], count=1)), "matrix: smallest entry is -1"),
    "zero row": (lambda: next(exact_sweeps([[0, 0], [1, 1]], count=1)), "matrix: row 0 is zero, expected a positive"),
    "zero column": (lambda: next(exact_sweeps([[1, 0], [1, 0]], count=1)), "matrix: column 1 is zero"),
    "order": (lambda: next(exact_sweeps([[1]], ("rows",), count=1)), r"order: found \('rows',\)"),
    "rectangular": (lambda: doubly_stochastic([[1, 0]]), r"matrix: found shape \(1, 2\), expected a square one"),
    "empty": (lambda: marginals(np.zeros((0, 0))), r"matrix: found shape \(0, 0\)"),
    "not finite": (lambda: marginals([[float("nan")]]), r"matrix: entry \(0, 0\) is nan, expected a finite number"),
    "mixed": (lambda: marginals([[1.0, Fraction(1, 2)]]), "matrix: found Fraction beside float"),
    "negative support": (lambda: support([[-1]]), r"matrix: entry \(0, 0\) is -1, expected none below 0"),
    "rank 0": (lambda: random_doubly_stochastic(3, seed=0, rank=0), "rank: found 0, expected 1 to 3"),
    "n 0": (lambda: random_doubly_stochastic(0, seed=0), r"n, terms, weight: found \(0, 0, 9\)"),
    "not stochastic": (
        lambda: birkhoff([[2]]),
        "matrix: row 0 sums to 2, expected 1; expected a doubly stochastic one",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case: str) -> None:
    assert_refused(*BAD[case])


@pytest.mark.parametrize("judge", [lambda m: doubly_stochastic(m).reason, birkhoff, support, total_support])
def test_long_rationals_are_named_by_their_size(judge) -> None:
    """Python refuses to print an integer of more than 4300 digits."""
    long = Fraction(10**5000 + 7, 3)
    try:
        reason = judge([[-long, 1 + long], [1 + long, -long]])
    except InputError as error:
        reason = str(error)
    assert "entry (0, 0) is -2^16608" in reason
