"""Gauge essay, sections 0 and 14 to 16: recurrent networks, linear attention, public evidence, the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level, Repair
from streamgauge.proofs.ledger.entries.gauge_gates_reset import dynamic_family, static_family, unreset_family
from streamgauge.proofs.ledger.gauge_checks import carry_fault, family_equivalent
from streamgauge.proofs.ledger.tools import counted, diagonal, rational, row, verdict
from streamgauge.theory import exact
from streamgauge.theory.verdict import Verdict

G54 = Claim(
    id="G54",
    document="G",
    section="14",
    statement="The step from pure to gated iHC is that from RNN to LSTM: that of 1997 met gradient decay, the forget "
    "gate came later.",
    kind="empirical",
    method="literature",
    source="Hochreiter, Schmidhuber, Neural Computation 9(8), 1997 (constant error carousel, no forget gate); Gers, "
    "Schmidhuber, Cummins, Neural Computation 12(10), 2000 (forget gate)",
)


@dataclass(frozen=True)
class Recurrence:
    """Keys, values, queries (rows), the transition of the state's key side at each step, and the class named."""

    keys: tuple[flint.fmpq_mat, ...]
    values: tuple[flint.fmpq_mat, ...]
    queries: tuple[flint.fmpq_mat, ...]
    transitions: tuple[flint.fmpq_mat, ...]
    carry: str


def attention_is_streams(value: Recurrence) -> Verdict:
    """``o_t = S_t q_t`` by the unrolled sum ``sum_s v_s (k_s T_{s+1}^T .. T_t^T q_t)`` equals what a stream network
    reads that keeps ``X = S^T``, carries it with T_t, writes k_t times v_t; and T_t is of the class named."""
    n, d = value.keys[0].ncols(), value.values[0].ncols()
    state = flint.fmpq_mat(n, d)
    for t, (k, v, q, carry) in enumerate(zip(value.keys, value.values, value.queries, value.transitions)):
        fault = carry_fault(carry, value.carry) if value.carry != "full" else ""
        if fault:
            return verdict(False, f"step {t}: the transition is not {value.carry}: {fault}", step=t, transition=carry)
        state = carry * state + k.transpose() * v
        unrolled = flint.fmpq_mat(1, d)
        for s in range(t + 1):
            reach = q
            for later in range(t, s, -1):
                reach = reach * value.transitions[later]
            unrolled += value.values[s] * (reach * value.keys[s].transpose())[0, 0]
        if q * state != unrolled:
            return verdict(False, f"step {t}: read {(q * state).entries()}, expected {unrolled.entries()}", step=t)
    return verdict(True, f"{len(value.keys)} steps: a stream network with {value.carry} carry", steps=len(value.keys))


def recurrence(seed: int, carry: str, transition: Callable[[int, flint.fmpq_mat], flint.fmpq_mat]) -> Recurrence:
    """Six steps with three key and two value features; ``transition(t, key)``."""
    dice = np.random.default_rng(seed)

    def rows(width: int) -> tuple[flint.fmpq_mat, ...]:
        return tuple(rational([[int(x) for x in dice.integers(-3, 4, width)]]) for _ in range(6))

    keys = tuple(k if any(x != 0 for x in k.entries()) else row(1, 0, 0) for k in rows(3))
    transitions = tuple(transition(t, k) for t, k in enumerate(keys))
    return Recurrence(keys, rows(2), rows(3), transitions, carry)


def _additive(t: int, key: flint.fmpq_mat) -> flint.fmpq_mat:
    return exact.identity(3)


def _gated(t: int, key: flint.fmpq_mat) -> flint.fmpq_mat:
    return diagonal([Fraction(t % 3, 2), 1, Fraction(1, t + 1)])


def _delta(t: int, key: flint.fmpq_mat) -> flint.fmpq_mat:
    """Decay 9/10 times I - k k^T / |k|^2: the delta rule at full strength erases the key's direction."""
    size = sum((x * x for x in key.entries()), flint.fmpq(0))
    return (exact.identity(3) - key.transpose() * key / size) * flint.fmpq(9, 10)


def _attention_cases(level: Level) -> Iterator[Case]:
    for seed in range(2 if level is Level.QUICK else 20):
        yield Case(f"linear attention {seed}: pure iHC", recurrence(seed, "identity", _additive))
        yield Case(f"gated linear attention {seed}: gated iHC", recurrence(seed, "diagonal", _gated))
        yield Case(f"gated delta rule {seed}: full mixers of rank 2", recurrence(seed, "full", _delta))


G55 = Claim(
    id="G55",
    document="G",
    section="15",
    statement="Linear attention is the same story along the sequence: additive state, gates (GLA), targeted erasure "
    "(Gated DeltaNet).",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("the recurrences $S_t = S_{t-1} T_t + v_t k_t^T$, $o_t = S_t q_t$ of arXiv:2312.06635, 2412.06464",),
    literal=Check(
        "With X = S^T the keys are writes and the queries reads: exact recurrences against unrolled sums; T = I is "
        "pure iHC's carry, GLA's is diagonal, the delta rule's a full matrix that loses rank.",
        attention_is_streams,
        _attention_cases,
        Case("the delta rule said to be diagonal", recurrence(0, "diagonal", _delta)),
    ),
    note="The delta rule erases a direction that depends on the token: that is a dynamic full mixer, which no static "
    "basis makes a per-stream gate.",
)

G56 = Claim(
    id="G56",
    document="G",
    section="0",
    statement="A public comparison reports identity mixers ahead of mHC, mHC-lite and orthogonal mHC at 1.7B and 8B.",
    kind="empirical",
    method="literature",
    source="zhuanlan.zhihu.com/p/2010852389670908320 (blog, single seeds, about 0.007 nats at 6k steps)",
)

G57 = Claim(
    id="G57",
    document="G",
    section="16",
    statement="A diagonal gate per stream is enough; the full $n \\times n$ Sinkhorn matrix is not needed.",
    kind="qualitative",
    method="exact certificate",
    hypotheses=("exact equality; static reads, writes, entry and head; gates may depend on the input",),
    literal=Check(
        "Depth kernels for static mixers and for a mixer that depends on the input.",
        family_equivalent,
        lambda level: iter([static_family(1), Case("a dynamic mixer: I or half a cyclic shift", dynamic_family())]),
        Case("no gate at all", unreset_family()),
    ),
    repair=Repair(
        "For static mixers a per-stream gate is enough, with free entry, reads, writes and head.",
        Check(
            "Depth kernels and exact runs of static chains.",
            family_equivalent,
            counted(6, 40, static_family),
            Case("no gate at all", unreset_family()),
        ),
        hypothesis="static mixers; free entry, signed reads, writes and head",
    ),
    note="Of the depth kernel the branches are arbitrary, so static equality holds for every network around it.",
)

CLAIMS = (G54, G55, G56, G57)
