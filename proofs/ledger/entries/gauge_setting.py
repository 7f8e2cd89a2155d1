"""Gauge essay, section 1: what mHC and iHC are, and what Sinkhorn sweeps do and do not give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.gauge_cases import mean_gate, network
from streamgauge.proofs.ledger.tools import Network, counted, fixed, quadratic, rational, verdict
from streamgauge.theory import exact
from streamgauge.theory.doubly import circulant_example, exact_sweeps, uniform
from streamgauge.theory.sinkhorn import sinkhorn
from streamgauge.theory.verdict import Verdict

# G01: the two classes


@dataclass(frozen=True)
class Step:
    """One site by its class name, with the state before and the state that a matrix formula gives after it."""

    kind: str
    net: Network
    x: flint.fmpq_mat
    after: flint.fmpq_mat


def is_update(step: Step) -> Verdict:
    """The mixer belongs to the class, and every entry of the new state is ``sum_k A_ik X_kc + r_i F(pX)_c``."""
    a, p, r, x = step.net.mixers[0], step.net.reads[0], step.net.writes[0], step.x
    n, d = x.nrows(), x.ncols()
    if step.kind == "iHC" and a != exact.identity(n):
        return verdict(False, "iHC: the mixer is not I", mixer=a)
    sums = [sum(a[i, j] for j in range(n)) for i in range(n)] + [sum(a[i, j] for i in range(n)) for j in range(n)]
    if any(s != 1 for s in sums) or min(a.entries()) < 0:
        return verdict(False, f"{step.kind}: the mixer is not doubly stochastic", mixer=a, sums=sums)
    read = [sum((p[0, k] * x[k, c] for k in range(n)), flint.fmpq(0)) for c in range(d)]
    branch = quadratic(flint.fmpq_mat(1, d, read))
    for i in range(n):
        for c in range(d):
            expected = sum((a[i, k] * x[k, c] for k in range(n)), flint.fmpq(0)) + r[i, 0] * branch[0, c]
            if step.after[i, c] != expected:
                return verdict(False, f"stream {i}, feature {c} differs", found=step.after[i, c], expected=expected)
    return verdict(True, f"{step.kind}: X' = A X + r F(p X), entry by entry", mixer=a)


def step(kind: str, a: flint.fmpq_mat) -> Step:
    """One step of a network with mixer ``a`` and a quadratic branch."""
    net, n = network([a], seed=3), a.nrows()
    x = flint.fmpq_mat(n, 2, [flint.fmpq(i * i - 3, 2) for i in range(2 * n)])
    return Step(kind, net, x, a * x + net.writes[0] * quadratic(net.reads[0] * x))


G01 = Claim(
    id="G01",
    document="G",
    section="1",
    statement="A site is $X' = A X + r F(p X)$; mHC takes $A$ doubly stochastic, iHC takes $A = I$.",
    kind="definition",
    method="exact certificate",
    hypotheses=("n streams of width d, one read p and one write r a site",),
    literal=Check(
        "The formula entry by entry and the membership of A in its class, exactly; I belongs to both classes.",
        is_update,
        fixed(
            Case("J as mHC", step("mHC", uniform(3))),
            Case("the circulant of four streams as mHC", step("mHC", circulant_example())),
            Case("A(9/10) as mHC", step("mHC", mean_gate(2, Fraction(9, 10)))),
            Case("I as mHC", step("mHC", exact.identity(3))),
            Case("I as iHC", step("iHC", exact.identity(3))),
        ),
        Case("J as iHC", step("iHC", uniform(3))),
    ),
)


# G02: identity carries still mix


def mixes(net: Network) -> Verdict:
    """With A = I at every site: a change of any one input stream changes every output stream."""
    n = net.mixers[0].nrows()
    if any(a != exact.identity(n) for a in net.mixers):
        return verdict(False, "a mixer is not I", mixers=net.mixers)

    def run(x: flint.fmpq_mat) -> flint.fmpq_mat:
        for p, r in zip(net.reads, net.writes):
            x = x + r * quadratic(p * x)
        return x

    x = flint.fmpq_mat(n, 1, list(range(1, n + 1)))
    base = run(x)
    for j in range(n):
        moved = flint.fmpq_mat(x)
        moved[j, 0] += 1
        after = run(moved)
        for i in range(n):
            if i != j and after[i, 0] == base[i, 0]:
                return verdict(False, f"stream {i} does not see stream {j}", stream=i, source=j, value=base[i, 0])
    return verdict(True, f"all {n * (n - 1)} pairs of streams communicate", outputs=base)


def _iHC(i: int) -> Case:
    n, sites = 2 + i % 3, 1 + i % 2
    return Case(f"{n} streams, {sites} sites, boxed reads and writes", network([exact.identity(n)] * sites, seed=i))


def _blind() -> Network:
    net = network([exact.identity(2)])
    return replace(net, reads=(rational([[1, 0]]),), writes=(rational([[1], [0]]),))


G02 = Claim(
    id="G02",
    document="G",
    section="1",
    statement="iHC still lets streams communicate: the reads $p$ and writes $r$ mix them.",
    kind="qualitative",
    method="property test",
    hypotheses=("p and r with positive entries, as sigmoids make them; they need not even be dynamic",),
    literal=Check(
        "Exact runs with A = I and static positive reads and writes: every stream's output depends on every stream.",
        mixes,
        counted(6, 40, _iHC),
        Case("a read and a write of one stream only", _blind()),
    ),
)


# G03: finitely many sweeps


@dataclass(frozen=True)
class Swept:
    """A matrix after so many Sinkhorn sweeps, and by how much it is said to miss a sum of 1 (more than)."""

    matrix: Any
    miss: float


def misses_sums(value: Swept) -> Verdict:
    """Some row or column sum differs from 1 by more than ``miss`` (0: at all, exactly)."""
    table = value.matrix.tolist()
    entries = [[exact.fraction(x) if isinstance(x, flint.fmpq) else Fraction(x) for x in line] for line in table]
    sums = [sum(line) for line in entries] + [sum(line) for line in zip(*entries)]
    error = max(abs(s - 1) for s in sums)
    return verdict(error > value.miss, f"largest |sum - 1| is {float(error):.4g}", error=float(error), sums=sums[:8])


def _positive(seed: int, n: int) -> flint.fmpq_mat:
    table = np.random.default_rng(seed).integers(1, 9, (n, n))
    table[0, 0], table[1, 1] = 11, 13  # the 2 x 2 corner has a non-zero determinant: rank above 1
    return rational(table.tolist())


def _sweeps(level: Level) -> Iterator[Case]:
    for i in range(3 if level is Level.QUICK else 12):
        n = 2 + i % 2
        for count, swept in enumerate(exact_sweeps(_positive(i, n), count=3), 1):
            yield Case(f"rational {n} x {n} matrix {i}, {count} sweeps", Swept(swept, 0))
    wide = np.array([[8, 1, -1, 0], [7, 0, 1, -2], [0, 6, 1, -1], [1, 5, -2, 0]], dtype=float)
    yield Case("the note's logits, 20 sweeps", Swept(sinkhorn(wide, "paper").matrix, 1e-8))
    crowded = np.array([[30, 0, 0], [30, 0, 0], [0, 30, 30]], dtype=float)
    yield Case("two rows of logits that want one column, 20 sweeps", Swept(sinkhorn(crowded, "paper").matrix, 0.8))


G03 = Claim(
    id="G03",
    document="G",
    section="0, 1",
    statement="Finitely many Sinkhorn sweeps do not guarantee a doubly stochastic matrix.",
    kind="theorem",
    method="exact certificate",
    hypotheses=("positive starting matrices",),
    literal=Check(
        "Exact sweeps of rational matrices: after every one some sum differs from 1. In float64, 20 sweeps of mild "
        "logits miss by 2e-8, of logits where two rows want one column by more than 80 %.",
        misses_sums,
        _sweeps,
        Case("a positive matrix of rank 1 after one sweep", Swept(uniform(2), 0)),
    ),
    note="The essay says 'does not guarantee'; 'never gives' would be false: rank 1 is done in one sweep (control).",
)


CLAIMS = (G01, G02, G03)
