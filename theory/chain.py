"""A chain of stream maps with its reads, writes, entry and readout: the static part of a network.

    X_{l+1} = A_l X_l + r_l F_l(p_l X_l),    X_0 = e x^T,    output c X_L.

A chain is exact (every number a rational, held as ``flint.fmpq_mat``) or numeric (float64, held as numpy arrays);
mixing the two is refused, because a float that meets a rational silently decides a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.theory import exact
from streamgauge.theory.errors import InputError

Matrix = Any
"""``flint.fmpq_mat`` in an exact chain, a float64 array in a numeric one."""


@dataclass(frozen=True, init=False)
class Chain:
    """Mixers ``A_0 .. A_{L-1}`` and, optionally, what reads and writes the streams.

    **Arguments** (nested lists, numpy arrays, sympy matrices, flint matrices)

    - ``mixers``: L matrices, ``A_l`` of shape (n_{l+1}, n_l); square chains have every n_l = n.
    - ``reads``: L row vectors ``p_l``, shape (n_l,); ``writes``: L column vectors ``r_l``, shape (n_{l+1},).
    - ``entry``: ``e``, shape (n_0,) or (n_0, k); ``readout``: ``c``, shape (n_L,) or (k, n_L).
    - ``dim``: n_0, needed only when there are no mixers, entry or readout to tell it (L = 0).

    Reads are kept as (1, n_l), writes as (n_{l+1}, 1), entry as (n_0, k), readout as (k, n_L).

    **Raises** :class:`InputError`, one line naming the site, for ragged, non-finite, mixed exact and float input,
    for booleans and complex numbers, and for shapes that do not fit.
    """

    mixers: tuple[Matrix, ...]
    reads: tuple[Matrix, ...] | None
    writes: tuple[Matrix, ...] | None
    entry: Matrix | None
    readout: Matrix | None
    dims: tuple[int, ...]
    exact: bool

    def __init__(
        self,
        mixers: Sequence[Any],
        reads: Sequence[Any] | None = None,
        writes: Sequence[Any] | None = None,
        entry: Any = None,
        readout: Any = None,
        *,
        dim: int | None = None,
    ) -> None:
        tables = [_table(a, f"mixer {l}") for l, a in enumerate(_sequence(mixers, "mixers"))]
        dims = _dims(tables, entry, readout, dim)
        sites = len(tables)
        parts: dict[str, list[_Table]] = {"mixers": tables}
        for name, given, orient, size in (
            ("reads", reads, "row", lambda l: dims[l]),
            ("writes", writes, "column", lambda l: dims[l + 1]),
        ):
            if given is not None:
                parts[name] = _vectors(_sequence(given, name), name, sites, orient, size)
        if entry is not None:
            parts["entry"] = [_oriented(_table(entry, "entry", vector="column"), 0, dims[0])]
        if readout is not None:
            parts["readout"] = [_oriented(_table(readout, "readout", vector="row"), 1, dims[-1])]
        is_exact = _common_kind([t for group in parts.values() for t in group])
        build: Callable[[_Table], Matrix] = _Table.rational if is_exact else _Table.floating

        def made(name: str) -> tuple[Matrix, ...] | None:
            return tuple(build(t) for t in parts[name]) if name in parts else None

        set_ = object.__setattr__
        set_(self, "mixers", made("mixers"))
        set_(self, "reads", made("reads"))
        set_(self, "writes", made("writes"))
        entry_made, readout_made = made("entry"), made("readout")
        set_(self, "entry", entry_made[0] if entry_made else None)
        set_(self, "readout", readout_made[0] if readout_made else None)
        set_(self, "dims", dims)
        set_(self, "exact", is_exact)

    def __len__(self) -> int:
        return len(self.mixers)

    @property
    def square(self) -> bool:
        """Whether every level has the same number of streams."""
        return len(set(self.dims)) == 1

    def rational(self) -> Chain:
        """The same chain over Q: floats become the dyadic rationals they hold. Exact chains return themselves."""
        return self if self.exact else self._mapped(lambda matrix, where: exact.from_floats(matrix))

    def floating(self) -> Chain:
        """The same chain in float64, every entry correctly rounded. Numeric chains return themselves.

        **Raises** :class:`InputError` where an entry is beyond the range of float64.
        """

        def rounded(matrix: Matrix, where: str) -> Matrix:
            try:
                return exact.to_floats(matrix)
            except OverflowError:
                raise InputError(f"{where}: found an entry beyond the range of float64") from None

        return self._mapped(rounded) if self.exact else self

    def _mapped(self, f: Callable[[Matrix, str], Matrix]) -> Chain:
        def each(items: tuple[Matrix, ...] | None, name: str) -> list[Matrix] | None:
            return None if items is None else [f(m, f"{name} {l}") for l, m in enumerate(items)]

        def one(item: Matrix | None, name: str) -> Matrix | None:
            return None if item is None else f(item, name)

        return Chain(
            each(self.mixers, "mixer") or [],
            each(self.reads, "read"),
            each(self.writes, "write"),
            one(self.entry, "entry"),
            one(self.readout, "readout"),
            dim=self.dims[0],
        )


@dataclass(frozen=True)
class _Table:
    """One matrix on its way in: a grid of scalars, all exact or all float, and the name used in messages."""

    where: str
    rows: int
    cols: int
    entries: Any  # list of fmpq, or a float64 array
    is_exact: bool | None  # None: no entries, fits either kind

    def rational(self) -> flint.fmpq_mat:
        return flint.fmpq_mat(self.rows, self.cols, list(self.entries))

    def floating(self) -> exact.Floats:
        return np.array(self.entries, dtype=np.float64).reshape(self.rows, self.cols)


def _sequence(given: Any, name: str) -> list[Any]:
    try:
        return list(given)
    except TypeError:
        raise InputError(f"{name}: found {type(given).__name__}, expected a sequence, one item per site") from None


def _table(given: Any, where: str, *, vector: str | None = None) -> _Table:
    """Read one matrix (or, with ``vector`` = "row"/"column", a vector of that orientation)."""
    if isinstance(given, flint.fmpz_mat | flint.fmpq_mat):
        entries = [exact.scalar(x) for x in given.entries()]
        return _Table(where, given.nrows(), given.ncols(), entries, True if entries else None)
    if isinstance(given, np.ndarray) and np.issubdtype(given.dtype, np.floating):
        grid: Any = given
    elif hasattr(given, "tolist"):  # numpy, sympy matrices
        grid = given.tolist()
    else:
        grid = given
    if isinstance(grid, np.ndarray):
        return _float_table(grid, where, vector)
    rows = _rows(grid, where, vector)
    flat = [x for row in rows for x in row]
    shape = (len(rows), len(rows[0]) if rows else 0)
    floats = [isinstance(x, float | np.floating) for x in flat]
    if any(floats):
        return _float_table(np.array([_beside_floats(x, where) for x in flat]).reshape(shape), where, None)
    try:
        exacts = [exact.scalar(x) for x in flat]
    except TypeError as error:
        raise InputError(f"{where}: {error}; expected int, Fraction, sympy or flint rational, or float64") from None
    return _Table(where, *shape, exacts, True if exacts else None)


def _beside_floats(x: Any, where: str) -> float:
    """``x`` as float64 where it is a float, or an integer that float64 holds exactly."""
    if isinstance(x, np.longdouble):
        raise InputError(f"{where}: found longdouble, expected float64")
    if isinstance(x, float | np.floating):
        return float(x)
    if not isinstance(x, int | np.integer) or isinstance(x, bool):
        raise InputError(
            f"{where}: found {type(x).__name__} beside float; expected all float64 or all exact "
            "(int, Fraction, sympy or flint rational)"
        )
    if abs(int(x)) > 2**53:
        raise InputError(f"{where}: found an integer above 2^53 beside float; expected all float64 or all exact")
    return float(x)


def _rows(grid: Any, where: str, vector: str | None) -> list[list[Any]]:
    if not isinstance(grid, list | tuple):
        wanted = "a vector or matrix" if vector else "a matrix (rows of numbers)"
        raise InputError(f"{where}: found {type(grid).__name__}, expected {wanted}")
    if vector and all(not isinstance(row, list | tuple) for row in grid):
        return [list(grid)] if vector == "row" else [[x] for x in grid]
    rows = [list(row) if isinstance(row, list | tuple) else None for row in grid]
    if any(row is None for row in rows):
        raise InputError(f"{where}: found a number where a row was expected")
    if any(isinstance(x, list | tuple) for row in rows if row is not None for x in row):
        raise InputError(f"{where}: found lists nested three deep, expected two dimensions")
    widths = {len(row) for row in rows if row is not None}
    if len(widths) > 1:
        raise InputError(f"{where}: ragged, rows of lengths {sorted(widths)}; expected equal lengths")
    return [row for row in rows if row is not None]


def _float_table(array: Any, where: str, vector: str | None) -> _Table:
    if array.dtype.itemsize > 8:
        raise InputError(f"{where}: found {array.dtype}, expected float64")
    grid = np.asarray(array, dtype=np.float64)
    if vector and grid.ndim == 1:
        grid = grid[None, :] if vector == "row" else grid[:, None]
    if grid.ndim != 2:
        raise InputError(f"{where}: found an array of shape {tuple(np.shape(array))}, expected two dimensions")
    if not np.isfinite(grid).all():
        i, j = np.argwhere(~np.isfinite(grid))[0]
        raise InputError(f"{where}: entry ({i}, {j}) is {grid[i, j]}, expected a finite number")
    return _Table(where, grid.shape[0], grid.shape[1], grid, False if grid.size else None)


def _dims(tables: list[_Table], entry: Any, readout: Any, dim: int | None) -> tuple[int, ...]:
    if dim is not None and (isinstance(dim, bool) or not isinstance(dim, int | np.integer) or dim < 0):
        raise InputError(f"dim: found {dim!r}, expected a whole number of streams")
    if not tables:
        for given, axis, vector in ((entry, 0, "column"), (readout, 1, "row")):
            if given is not None and dim is None:
                table = _table(given, "entry" if axis == 0 else "readout", vector=vector)
                dim = (table.rows, table.cols)[axis]
        if dim is None:
            raise InputError("mixers: found none; expected at least one, or dim, entry or readout to tell n")
        return (dim,)
    dims = [tables[0].cols]
    for l, table in enumerate(tables):
        if table.cols != dims[-1]:
            raise InputError(
                f"mixer {l}: found shape ({table.rows}, {table.cols}), expected {dims[-1]} columns "
                f"({'dim' if l == 0 else f'the rows of mixer {l - 1}'})"
            )
        dims.append(table.rows)
    if dim is not None and dim != dims[0]:
        raise InputError(f"dim: found {dim}, expected {dims[0]}, the columns of mixer 0")
    return tuple(dims)


def _vectors(given: list[Any], name: str, sites: int, orient: str, size: Callable[[int], int]) -> list[_Table]:
    if len(given) != sites:
        raise InputError(f"{name}: found {len(given)}, expected {sites}, one per mixer")
    tables = []
    for l, item in enumerate(given):
        table = _table(item, f"{name[:-1]} {l}", vector=orient)
        wanted = (1, size(l)) if orient == "row" else (size(l), 1)
        if (table.rows, table.cols) != wanted:
            raise InputError(
                f"{name[:-1]} {l}: found shape ({table.rows}, {table.cols}), expected {wanted} or ({size(l)},)"
            )
        tables.append(table)
    return tables


def _oriented(table: _Table, axis: int, size: int) -> _Table:
    if (table.rows, table.cols)[axis] != size:
        raise InputError(
            f"{table.where}: found shape ({table.rows}, {table.cols}), expected {size} "
            f"{'rows' if axis == 0 else 'columns'}, one per stream"
        )
    return table


def _common_kind(tables: list[_Table]) -> bool:
    """Whether the chain is exact; refuses a mixture, naming the first place that differs."""
    known = [t for t in tables if t.is_exact is not None]
    if not known:
        return True
    first = known[0]
    for table in known[1:]:
        if table.is_exact != first.is_exact:
            kinds = {True: "exact", False: "float64"}
            raise InputError(
                f"{table.where}: found {kinds[bool(table.is_exact)]} numbers where {first.where} is "
                f"{kinds[bool(first.is_exact)]}; expected one kind throughout"
            )
    return bool(first.is_exact)


def fractions(matrix: flint.fmpq_mat) -> list[list[Fraction]]:
    """The entries of an exact matrix as Fractions, row by row."""
    return [[exact.fraction(x) for x in row] for row in matrix.tolist()]
