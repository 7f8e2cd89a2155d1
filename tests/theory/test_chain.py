"""What a chain accepts, how it holds it, and the exact line with which it refuses the rest."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy

from streamgauge.theory import exact
from streamgauge.theory.chain import Chain, fractions
from streamgauge.theory.errors import InputError

EYE = [[1, 0], [0, 1]]
HALF = Fraction(1, 2)
EXACT = "expected int, Fraction, sympy or flint rational, or float64"
ONE_KIND = "expected all float64 or all exact (int, Fraction, sympy or flint rational)"
FLOATS = np.array([[0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    "given",
    [
        [[HALF, 0], [0, 1]],
        ((HALF, 0), (0, 1)),
        sympy.Matrix([[sympy.Rational(1, 2), 0], [0, 1]]),
        sympy.ImmutableMatrix([[sympy.Rational(1, 2), 0], [0, 1]]),
        flint.fmpq_mat(2, 2, [flint.fmpq(1, 2), 0, 0, 1]),
        [[flint.fmpq(1, 2), flint.fmpz(0)], [np.int64(0), sympy.Integer(1)]],
        np.array([[HALF, 0], [0, 1]], dtype=object),
    ],
    ids=["lists", "tuples", "sympy", "immutable sympy", "flint", "scalars of every kind", "object array"],
)
def test_exact_input(given):
    chain = Chain([given])
    assert chain.exact
    assert chain.square
    assert chain.dims == (2, 2)
    assert fractions(chain.mixers[0]) == [[HALF, 0], [0, 1]]
    assert all(type(x) is Fraction for row in fractions(chain.mixers[0]) for x in row)
    assert chain.rational() is chain


@pytest.mark.parametrize(
    "given",
    [FLOATS, FLOATS.tolist(), FLOATS.astype(np.float32), FLOATS.astype(np.float16), np.asfortranarray(FLOATS)],
    ids=["float64", "lists", "float32", "float16", "column-major"],
)
def test_float_input(given):
    chain = Chain([given])
    assert not chain.exact
    assert chain.mixers[0].dtype == np.float64
    assert np.array_equal(chain.mixers[0], FLOATS)
    assert chain.floating() is chain


def test_integers_beside_floats_are_floats_where_they_are_held_exactly():
    chain = Chain([[[1, 0.5], [2**53, 0]]])
    assert not chain.exact
    assert chain.mixers[0][1, 0] == 2.0**53


def test_a_copy_is_kept():
    given = FLOATS.copy()
    chain = Chain([given])
    given[0, 0] = 7.0
    assert chain.mixers[0][0, 0] == 0.5


def test_rectangular_with_vectors():
    chain = Chain(
        [[[1, 0], [0, 1], [1, 1]], [[1, 2, 3]]],
        reads=[[1, 2], [[3, 4, 5]]],
        writes=[[1, 2, 3], [[7]]],
        entry=[1, 1],
        readout=[[2], [3]],
    )
    assert (len(chain), chain.dims, chain.square) == (2, (2, 3, 1), False)
    assert [(p.nrows(), p.ncols()) for p in chain.reads] == [(1, 2), (1, 3)]
    assert [(r.nrows(), r.ncols()) for r in chain.writes] == [(3, 1), (1, 1)]
    assert (chain.entry.nrows(), chain.entry.ncols()) == (2, 1)
    assert (chain.readout.nrows(), chain.readout.ncols()) == (2, 1)


def test_there_and_back():
    rng = np.random.default_rng(1)
    mixers, vector = [rng.standard_normal((3, 3)) * 10.0**k for k in (-300, 0, 300)], rng.standard_normal(3)
    chain = Chain(mixers, reads=[vector] * 3, writes=[vector] * 3, entry=vector, readout=vector)
    rational = chain.rational()
    assert rational.exact
    assert fractions(rational.mixers[0])[0][0] == Fraction(float(mixers[0][0, 0]))
    again = rational.floating()
    for name in ("mixers", "reads", "writes"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(again, name), getattr(chain, name)))
    assert np.array_equal(again.entry, chain.entry)
    assert np.array_equal(again.readout, chain.readout)


def test_floating_rounds_correctly():
    assert Chain([[[Fraction(1, 3)]]]).floating().mixers[0][0, 0] == 1 / 3
    assert Chain([[[Fraction(2**53 + 1)]]]).floating().mixers[0][0, 0] == 2.0**53


def test_beyond_the_range_of_float64():
    with pytest.raises(InputError, match=r"^read 1: found an entry beyond the range of float64$"):
        Chain([EYE, EYE], reads=[[1, 2], [1, 10**400]]).floating()


@pytest.mark.parametrize(
    ("options", "dims"),
    [({"dim": 3}, (3,)), ({"entry": [1, 2]}, (2,)), ({"readout": [1, 2, 3, 4]}, (4,)), ({"dim": 0}, (0,))],
    ids=["dim", "entry", "readout", "no stream"],
)
def test_no_sites(options, dims):
    chain = Chain([], **options)
    assert (chain.dims, len(chain), chain.exact) == (dims, 0, True)


def test_kernel_vector_is_integral_without_common_factor():
    vector = exact.kernel_vector(flint.fmpq_mat(2, 3, [flint.fmpq(1, 2), flint.fmpq(1, 3), 0, 0, 0, 1]))
    assert fractions(vector) == [[-2], [3], [0]]
    assert exact.kernel_vector(exact.identity(3)) is None


REFUSED = {
    "ragged": (lambda: Chain([[[1, 2], [3]]]), "mixer 0: ragged, rows of lengths [1, 2]; expected equal lengths"),
    "number for a row": (lambda: Chain([EYE, [[1, 2], 3]]), "mixer 1: found a number where a row was expected"),
    "number for a matrix": (lambda: Chain([EYE, 5]), "mixer 1: found int, expected a matrix (rows of numbers)"),
    "text for a matrix": (lambda: Chain(["ab"]), "mixer 0: found str, expected a matrix (rows of numbers)"),
    "nothing for a matrix": (lambda: Chain([None]), "mixer 0: found NoneType, expected a matrix (rows of numbers)"),
    "no sequence": (lambda: Chain(5), "mixers: found int, expected a sequence, one item per site"),
    "no mixers": (lambda: Chain([]), "mixers: found none; expected at least one, or dim, entry or readout to tell n"),
    "nan": (
        lambda: Chain([np.eye(2), np.array([[1, np.nan], [0, 1]])]),
        "mixer 1: entry (0, 1) is nan, expected a finite number",
    ),
    "infinite": (
        lambda: Chain([[[1.0, 0.0], [float("-inf"), 1.0]]]),
        "mixer 0: entry (1, 0) is -inf, expected a finite number",
    ),
    "float site in an exact chain": (
        lambda: Chain([EYE, EYE, FLOATS]),
        "mixer 2: found float64 numbers where mixer 0 is exact; expected one kind throughout",
    ),
    "exact site in a float chain": (
        lambda: Chain([FLOATS, EYE]),
        "mixer 1: found exact numbers where mixer 0 is float64; expected one kind throughout",
    ),
    "float read in an exact chain": (
        lambda: Chain([EYE], reads=[[1.0, 2.0]]),
        "read 0: found float64 numbers where mixer 0 is exact; expected one kind throughout",
    ),
    "fraction beside float": (
        lambda: Chain([[[HALF, 0.5], [0.5, 0.5]]]),
        f"mixer 0: found Fraction beside float; {ONE_KIND}",
    ),
    "truth value beside float": (
        lambda: Chain([[[True, 0.5], [0.5, 0.5]]]),
        f"mixer 0: found bool beside float; {ONE_KIND}",
    ),
    "large integer beside float": (
        lambda: Chain([[[2**53 + 1, 0.5], [0.5, 0.5]]]),
        "mixer 0: found an integer above 2^53 beside float; expected all float64 or all exact",
    ),
    "long double": (
        lambda: Chain([np.eye(2, dtype=np.longdouble)]),
        f"mixer 0: found {np.dtype(np.longdouble)}, expected float64",
    ),
    "truth value": (lambda: Chain([[[True, 0], [0, 1]]]), f"mixer 0: True is a truth value, not a number; {EXACT}"),
    "array of truth values": (
        lambda: Chain([np.eye(2, dtype=bool)]),
        f"mixer 0: True is a truth value, not a number; {EXACT}",
    ),
    "complex": (lambda: Chain([[[1 + 0j, 0], [0, 1]]]), f"mixer 0: (1+0j) (complex) is not an exact scalar; {EXACT}"),
    "complex array": (lambda: Chain([np.eye(1) * 1j]), f"mixer 0: 1j (complex) is not an exact scalar; {EXACT}"),
    "text": (lambda: Chain([[["1", 0], [0, 1]]]), f"mixer 0: '1' (str) is not an exact scalar; {EXACT}"),
    "irrational": (
        lambda: Chain([[[sympy.sqrt(2), 0], [0, 1]]]),
        f"mixer 0: sqrt(2) (Pow) is not an exact scalar; {EXACT}",
    ),
    "symbol": (
        lambda: Chain([sympy.Matrix([[sympy.Symbol("x")]])]),
        f"mixer 0: x (Symbol) is not an exact scalar; {EXACT}",
    ),
    "three axes": (
        lambda: Chain([np.zeros((2, 2, 2))]),
        "mixer 0: found an array of shape (2, 2, 2), expected two dimensions",
    ),
    "three axes of integers": (
        lambda: Chain([np.zeros((2, 2, 2), dtype=int)]),
        "mixer 0: found lists nested three deep, expected two dimensions",
    ),
    "sites that do not fit": (
        lambda: Chain([EYE, [[1, 2, 3], [4, 5, 6]]]),
        "mixer 1: found shape (2, 3), expected 2 columns (the rows of mixer 0)",
    ),
    "dim that does not fit": (lambda: Chain([EYE], dim=3), "dim: found 3, expected 2, the columns of mixer 0"),
    "negative dim": (lambda: Chain([], dim=-1), "dim: found -1, expected a whole number of streams"),
    "fractional dim": (lambda: Chain([], dim=2.5), "dim: found 2.5, expected a whole number of streams"),
    "too many reads": (lambda: Chain([EYE], reads=[[1, 2]] * 2), "reads: found 2, expected 1, one per mixer"),
    "long read": (lambda: Chain([EYE], reads=[[1, 2, 3]]), "read 0: found shape (1, 3), expected (1, 2) or (2,)"),
    "column for a read": (
        lambda: Chain([EYE], reads=[[[1], [2]]]),
        "read 0: found shape (2, 1), expected (1, 2) or (2,)",
    ),
    "number for a read": (lambda: Chain([EYE], reads=[1]), "read 0: found int, expected a vector or matrix"),
    "number for reads": (lambda: Chain([EYE], reads=3), "reads: found int, expected a sequence, one item per site"),
    "short write": (lambda: Chain([EYE], writes=[[1]]), "write 0: found shape (1, 1), expected (2, 1) or (2,)"),
    "long entry": (
        lambda: Chain([EYE], entry=[1, 2, 3]),
        "entry: found shape (3, 1), expected 2 rows, one per stream",
    ),
    "number for the entry": (lambda: Chain([EYE], entry=4), "entry: found int, expected a vector or matrix"),
    "nan in the entry": (
        lambda: Chain([FLOATS], entry=[1.0, np.nan]),
        "entry: entry (1, 0) is nan, expected a finite number",
    ),
    "short readout": (
        lambda: Chain([EYE], readout=[1]),
        "readout: found shape (1, 1), expected 2 columns, one per stream",
    ),
    "entry and readout apart": (
        lambda: Chain([], entry=[1, 2], readout=[1, 2, 3]),
        "readout: found shape (1, 3), expected 2 columns, one per stream",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, message = REFUSED[name]
    with pytest.raises(InputError) as error:
        make()
    assert str(error.value) == message
    assert "\n" not in message
