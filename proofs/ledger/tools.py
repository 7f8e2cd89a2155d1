"""Small helpers that entries of the ledger share: exact matrices, drawn examples, depth kernels, plain witnesses.

The arithmetic here is the checker's own: it multiplies what it is given and knows no construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import flint
import numpy as np
import sympy  # type: ignore[import-untyped]
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from streamgauge.proofs.ledger.core import Case, Level
from streamgauge.theory import exact
from streamgauge.theory.verdict import Verdict

T = TypeVar("T")
Branch = Callable[[flint.fmpq_mat], flint.fmpq_mat]
"""What a site computes: a (1, d) row in, a (1, d) row out, exactly."""


def rational(rows: Sequence[Sequence[int | str | Fraction]]) -> flint.fmpq_mat:
    """Nested rows of ints, Fractions or texts such as "1/2" as an exact matrix."""
    return flint.fmpq_mat(len(rows), len(rows[0]), [exact.scalar(Fraction(x)) for row in rows for x in row])


def column(*entries: int | str | Fraction) -> flint.fmpq_mat:
    """An exact (n, 1) column."""
    return rational([[x] for x in entries])


def row(*entries: int | str | Fraction) -> flint.fmpq_mat:
    """An exact (1, n) row."""
    return rational([entries])


def diagonal(entries: Sequence[Any]) -> flint.fmpq_mat:
    """An exact diagonal matrix."""
    out = exact.zeros(len(entries), len(entries))
    for i, x in enumerate(entries):
        out[i, i] = exact.scalar(x)
    return out


def plain(value: Any) -> Any:
    """``value`` for a witness: numbers, texts and lists only; rationals as texts such as "3/2"."""
    if isinstance(value, flint.fmpq_mat):
        return [[str(x) for x in line] for line in value.tolist()]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def verdict(ok: bool, reason: str, **witness: Any) -> Verdict:
    """A verdict whose witness is made plain."""
    return Verdict(bool(ok), reason, {name: plain(value) for name, value in witness.items()})


def fixed(*cases: Case) -> Callable[[Level], Iterator[Case]]:
    """The same named cases at every level."""
    return lambda level: iter(cases)


def counted(quick: int, full: int, make: Callable[[int], Case]) -> Callable[[Level], Iterator[Case]]:
    """``make(0), make(1), ..``: so many at each level. ``make`` gets the number of the case, e.g. as a seed."""
    return lambda level: (make(i) for i in range(quick if level is Level.QUICK else full))


def drawn(strategy: SearchStrategy[T], count: int, *, start: int = 0) -> list[T]:
    """At most ``count`` examples of a hypothesis strategy from a fixed seed: two runs agree."""
    found: list[T] = []

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found[:count]


def drawn_cases(
    name: str, strategy: SearchStrategy[Any], *, quick: int, full: int, start: int = 0
) -> Callable[[Level], Iterator[Case]]:
    """Cases drawn from a strategy, so many at each level, named by number."""

    def cases(level: Level) -> Iterator[Case]:
        for i, value in enumerate(drawn(strategy, quick if level is Level.QUICK else full, start=start)):
            yield Case(f"{name} {i}", value)

    return cases


def same_matrix(left: flint.fmpq_mat, right: flint.fmpq_mat, what: str) -> Verdict:
    """Whether two exact matrices are equal; the witness is the first entry that differs."""
    if (left.nrows(), left.ncols()) != (right.nrows(), right.ncols()):
        shapes = (left.nrows(), left.ncols()), (right.nrows(), right.ncols())
        return verdict(False, f"{what}: shapes {shapes[0]} and {shapes[1]}", shapes=shapes)
    for i in range(left.nrows()):
        for j in range(left.ncols()):
            if left[i, j] != right[i, j]:
                reason = f"{what}: entry ({i}, {j}) is {left[i, j]}, expected {right[i, j]}"
                return verdict(False, reason, at=(i, j), found=left[i, j], expected=right[i, j])
    return verdict(True, f"{what}: equal, all {left.nrows()} x {left.ncols()} entries")


def vanishes(expression: Any, what: str) -> Verdict:
    """Whether a sympy expression (or matrix) is identically zero; the witness is what remains of it."""
    left = sympy.simplify(sympy.expand(expression))
    ok = left.is_zero_matrix if isinstance(left, sympy.MatrixBase) else left == 0
    return verdict(bool(ok), f"{what}: {'zero identically' if ok else 'does not vanish'}", remains=str(left))


@dataclass(frozen=True)
class Network:
    """The static data of a network, exact: ``X' = A X + r F(p X)``, ``X_0 = e x``, output ``c X_L``."""

    mixers: tuple[flint.fmpq_mat, ...]
    reads: tuple[flint.fmpq_mat, ...]
    writes: tuple[flint.fmpq_mat, ...]
    entry: flint.fmpq_mat
    readout: flint.fmpq_mat

    def __len__(self) -> int:
        return len(self.mixers)


def depth_kernel(net: Network) -> dict[str, flint.fmpq_mat]:
    """Everything the streams do between the branches: blocks by name, "read t of write j", "output of input", ...

    With F_j(z_j) what site j writes, the branch inputs are ``z_t = (p_t Phi(t,0) e) x + sum_{j<t} (p_t Phi(t,j+1)
    r_j) F_j(z_j)`` and the output likewise with c: two networks with the same kernel are the same function whatever
    the branches are.
    """
    blocks: dict[str, flint.fmpq_mat] = {}
    carried = {"input": net.entry}
    for t, (a, p, r) in enumerate(zip(net.mixers, net.reads, net.writes)):
        for name, x in carried.items():
            blocks[f"read {t} of {name}"] = p * x
        carried = {name: a * x for name, x in carried.items()}
        carried[f"write {t}"] = r
    for name, x in carried.items():
        blocks[f"output of {name}"] = net.readout * x
    return blocks


def same_kernel(left: Network, right: Network) -> Verdict:
    """Whether two networks have the same depth kernel, exactly: equal functions for every choice of branches."""
    if len(left) != len(right):
        return verdict(False, f"depths {len(left)} and {len(right)} differ", depths=(len(left), len(right)))
    mine, theirs = depth_kernel(left), depth_kernel(right)
    for name, block in mine.items():
        if block != theirs[name]:
            reason = f"{name}: {plain(theirs[name])}, expected {plain(block)}"
            return verdict(False, reason, block=name, found=theirs[name], expected=block)
    return verdict(True, f"all {len(mine)} blocks of the depth kernel agree exactly", blocks=len(mine))


def run_exactly(net: Network, x: flint.fmpq_mat, branches: Sequence[Branch]) -> flint.fmpq_mat:
    """The network's output on the (k, d) input ``x``, step by step over Q."""
    state = net.entry * x
    for a, p, r, branch in zip(net.mixers, net.reads, net.writes, branches):
        state = a * state + r * branch(p * state)
    return net.readout * state


def quadratic(z: flint.fmpq_mat) -> flint.fmpq_mat:
    """A branch for exact runs, with a bias and mixed features: ``F(z)_i = z_i z_{i+1} - z_i + 1``."""
    d = z.ncols()
    return flint.fmpq_mat(1, d, [z[0, i] * z[0, (i + 1) % d] - z[0, i] + 1 for i in range(d)])
