"""Support and total support of a non-negative matrix, decided by bipartite matching, with a witness either way.

A non-negative square matrix has *support* if some permutation runs through positive entries only, and *total
support* if every positive entry lies on such a permutation.  Sinkhorn converges iff there is support; it converges
to D1 M D2 iff there is total support (Sinkhorn and Knopp, Pacific J. Math. 21 (1967)).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx  # type: ignore[import-untyped]

from streamgauge.theory import exact
from streamgauge.theory.doubly import as_square, rows_of
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

Pattern = list[list[int]]
"""For every row the columns of its positive entries."""


def support(matrix: Any, *, tolerance: float = 0.0) -> Verdict:
    """Whether a permutation runs through entries above ``tolerance``.

    Witness: ``permutation`` (column of each row), or the Hall violator: ``rows`` whose positive entries lie in fewer
    ``columns``.  Cost O(n^2.5).  **Raises** :class:`InputError` for negative entries.
    """
    pattern = positive_pattern(matrix, tolerance)
    matched = perfect_matching(pattern)
    if matched is not None:
        return Verdict(True, "a permutation runs through positive entries", {"permutation": tuple(matched)})
    rows, cols = hall_violator(pattern)
    reason = f"rows {rows} have positive entries in columns {cols} only, fewer than rows"
    return Verdict(False, reason, {"rows": rows, "columns": cols})


def total_support(matrix: Any, *, tolerance: float = 0.0) -> Verdict:
    """Whether every entry above ``tolerance`` lies on a permutation through such entries (and there is one).

    With a perfect matching m, entry (i, j) does iff rows i and m^{-1}(j) lie in one strongly connected component of
    the graph i -> m^{-1}(j).  Witness of a failure: ``entry`` with ``rows`` and ``columns`` in the manner of Hall:
    those rows have positive entries in just as many columns, and the entry would take one of these for another row.
    """
    pattern = positive_pattern(matrix, tolerance)
    matched = perfect_matching(pattern)
    if matched is None:
        return support(matrix, tolerance=tolerance)
    owner = {col: row for row, col in enumerate(matched)}
    graph: Any = nx.DiGraph()
    graph.add_nodes_from(range(len(pattern)))
    graph.add_edges_from((i, owner[j]) for i, cols in enumerate(pattern) for j in cols)
    component = {row: k for k, rows in enumerate(nx.strongly_connected_components(graph)) for row in rows}
    for i, cols in enumerate(pattern):
        for j in cols:
            if component[i] != component[owner[j]]:
                rows = tuple(sorted({owner[j], *nx.descendants(graph, owner[j])}))
                witness = {"entry": (i, j), "rows": rows, "columns": tuple(sorted(matched[r] for r in rows))}
                return Verdict(False, f"entry ({i}, {j}) is positive but on no positive permutation", witness)
    return Verdict(True, "every positive entry lies on a positive permutation", {"permutation": tuple(matched)})


def positive_pattern(matrix: Any, tolerance: float = 0.0) -> Pattern:
    """Columns of the entries above ``tolerance``, row by row; a square matrix without entries below -tolerance."""
    rows = rows_of(as_square(matrix))
    for i, row in enumerate(rows):
        for j, x in enumerate(row):
            if x < -tolerance:
                found = exact.shown(x) if isinstance(x, Fraction) else x
                raise InputError(f"matrix: entry ({i}, {j}) is {found}, expected none below 0")
    return [[j for j, x in enumerate(row) if x > tolerance] for row in rows]


def perfect_matching(pattern: Pattern) -> list[int] | None:
    """A column for every row, all different, or None (Hopcroft-Karp)."""
    pairs = _matching(pattern)
    return [pairs[i] for i in range(len(pattern))] if len(pairs) == len(pattern) else None


def _matching(pattern: Pattern) -> dict[int, int]:
    n = len(pattern)
    graph: Any = nx.Graph()
    graph.add_nodes_from(range(2 * n))
    graph.add_edges_from((i, n + j) for i, cols in enumerate(pattern) for j in cols)
    pairs = nx.bipartite.hopcroft_karp_matching(graph, top_nodes=range(n))
    return {i: j - n for i, j in pairs.items() if i < n}


def hall_violator(pattern: Pattern) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows R and their neighbour columns N(R) with |N(R)| < |R|; both empty where a perfect matching exists.

    What alternating paths reach from a row left over by a maximum matching: every column reached is matched, or the
    matching could grow.
    """
    pairs = _matching(pattern)
    free = next((i for i in range(len(pattern)) if i not in pairs), None)
    if free is None:
        return (), ()
    owner = {col: row for row, col in pairs.items()}
    rows, cols, todo = {free}, set(), [free]
    while todo:
        for j in pattern[todo.pop()]:
            if j not in cols:
                cols.add(j)
                rows.add(owner[j])
                todo.append(owner[j])
    return tuple(sorted(rows)), tuple(sorted(cols))
