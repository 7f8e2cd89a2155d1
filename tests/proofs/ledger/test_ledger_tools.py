"""The helpers that ledger entries share."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy
from hypothesis import strategies as st

from streamgauge.proofs.ledger.tools import (
    Network,
    column,
    depth_kernel,
    drawn,
    plain,
    quadratic,
    rational,
    row,
    run_exactly,
    same_kernel,
    same_matrix,
    vanishes,
)
from streamgauge.theory import exact


def test_draws_agree_between_runs_and_differ_between_seeds() -> None:
    numbers = st.lists(st.integers(0, 10**6), min_size=4, max_size=4)
    assert drawn(numbers, 20) == drawn(numbers, 20)
    assert drawn(numbers, 20) != drawn(numbers, 20, start=1)
    assert len(drawn(numbers, 20)) == 20


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (rational([[1, "1/2"]]), [["1", "1/2"]]),
        (Fraction(3, 4), "3/4"),
        (flint.fmpq(3, 4), "3/4"),
        (np.array([1.5, 2.0]), [1.5, 2.0]),
        (np.float64(1.5), 1.5),
        ({1: (flint.fmpz(2), None)}, {"1": ["2", None]}),
    ],
)
def test_witnesses_are_plain(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_matrices_that_differ_name_the_place() -> None:
    found = same_matrix(rational([[1, 2]]), rational([[1, 3]]), "row")
    assert found.witness == {"at": [0, 1], "found": "2", "expected": "3"}
    assert not same_matrix(rational([[1]]), rational([[1, 1]]), "row")


def test_symbolic_zero_and_what_remains() -> None:
    x, y = sympy.symbols("x y")
    assert vanishes((x + y) ** 2 - x**2 - 2 * x * y - y**2, "square")
    assert vanishes(sympy.Matrix([[x - x, 0]]), "matrix")
    left = vanishes((x + y) ** 2 - x**2 - y**2, "square")
    assert not left
    assert left.witness["remains"] == "2*x*y"


def _net(read: int) -> Network:
    return Network(
        (rational([["1/2", "1/2"], ["1/2", "1/2"]]), exact.identity(2)),
        (row(1, -1), row(read, 2)),
        (column(1, 0), column(1, 1)),
        exact.identity(2),
        row(1, 1),
    )


def test_kernel_predicts_runs_with_linear_branches() -> None:
    """With F = identity a run is a polynomial in kernel blocks, put together by hand here."""
    net = _net(3)
    k = depth_kernel(net)
    x = rational([[1, 2], [5, -1]])
    z0 = k["read 0 of input"] * x
    z1 = k["read 1 of input"] * x + k["read 1 of write 0"] * z0
    expected = k["output of input"] * x + k["output of write 0"] * z0 + k["output of write 1"] * z1
    assert run_exactly(net, x, [lambda z: z] * 2) == expected


def test_kernels_that_differ_name_the_block() -> None:
    assert same_kernel(_net(3), _net(3))
    found = same_kernel(_net(3), _net(4))
    assert found.witness["block"] == "read 1 of input"


def test_the_branch_of_exact_runs_is_not_linear_and_has_a_bias() -> None:
    assert quadratic(row(0, 0)) == row(1, 1)
    assert quadratic(row(2, 3)) == row(2 * 3 - 2 + 1, 3 * 2 - 3 + 1)
