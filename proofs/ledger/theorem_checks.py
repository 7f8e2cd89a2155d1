"""Checks of Theorems 1 to 3 on exact instances: they get a normal form as data and multiply it out themselves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

import flint

from streamgauge.proofs.ledger.gauge_checks import carry_fault
from streamgauge.proofs.ledger.tools import (
    Network,
    diagonal,
    quadratic,
    row,
    run_exactly,
    same_kernel,
    same_matrix,
    verdict,
)
from streamgauge.theory import exact
from streamgauge.theory.form import NormalForm
from streamgauge.theory.verdict import Verdict


@dataclass(frozen=True)
class Pair:
    """A network and what is said to be the same one, with the data that connects them.

    ``gauge`` P_0..P_L; the mixers of ``converted`` are the gates D_l (with c_l in them for Theorem 3), of the class
    ``carry`` ("identity", "binary" or "diagonal"); ``stored``: the gates before the norm gate, or None.
    """

    source: Network
    converted: Network
    gauge: tuple[flint.fmpq_mat, ...]
    carry: str
    stored: tuple[tuple[Fraction, ...], ...] | None = None


def _equation(pair: Pair) -> Verdict:
    """``A_l P_l = P_{l+1} D_l``, every P_l invertible, and D_l of the kind the theorem names."""
    for l, (a, gates) in enumerate(zip(pair.source.mixers, pair.converted.mixers)):
        found = same_matrix(pair.gauge[l + 1] * gates, a * pair.gauge[l], f"site {l}: P' D against A P")
        if not found:
            return found
        fault = carry_fault(gates, pair.carry)
        if fault:
            return verdict(False, f"site {l}: the carry is not {pair.carry}: {fault}", site=l, carry=gates)
    for l, p in enumerate(pair.gauge):
        if p.det() == 0:
            return verdict(False, f"level {l}: P is singular", level=l, gauge=p)
    return _factors(pair)


def _factors(pair: Pair) -> Verdict:
    """For a norm gate: D_l = c diag(g) with ``c^2 ||g||^2 = n``, c > 0, or c = 1 where g = 0."""
    for l, stored in enumerate(pair.stored or ()):
        size, gates = sum(g * g for g in stored), pair.converted.mixers[l]
        c = next((exact.fraction(gates[i, i]) / g for i, g in enumerate(stored) if g), Fraction(1))
        if c <= 0 or c * c * size != (len(stored) if size else 0):
            return verdict(False, f"site {l}: c = {c} is not sqrt(n) / ||g||", site=l, c=c, gates=stored)
        if diagonal([c * g for g in stored]) != gates:
            return verdict(False, f"site {l}: the carry is not c diag(g)", site=l, c=c, gates=stored)
    return verdict(True, "gates as named")


def same_network(pair: Pair) -> Verdict:
    """The equation, equal depth kernels (hence equal functions for all branches), and one run with quadratic branches
    that mix features and have a bias."""
    found = _equation(pair)
    if not found:
        return found
    found = same_kernel(pair.source, pair.converted)
    if not found:
        return found
    x = row(1, -2, Fraction(1, 3))
    outputs = [run_exactly(net, x, [quadratic] * len(net)) for net in (pair.source, pair.converted)]
    ran = same_matrix(outputs[0], outputs[1], "outputs")
    return verdict(bool(ran), f"{found.reason}; {ran.reason}", sites=len(pair.source), output=outputs[1])


def converted_pair(source: Network, form: NormalForm) -> Pair:
    """The converted network of an exact form; with a norm gate only where every c_l is rational."""
    gauge, stored = list(form.gauge), None
    gates = [form.diagonal(l) for l in range(len(form))]
    if form.norm is not None:
        stored = tuple(tuple(Fraction(g) for g in vector) for vector in form.norm.base_gates)
        factors = [_root(square) for square in form.norm.factors_squared or ()]
        scale = Fraction(1)
        for l, c in enumerate(factors):
            gates[l] = gates[l] * exact.scalar(c)
            scale /= c
            gauge[l + 1] = gauge[l + 1] * exact.scalar(scale)
    made = Network(
        tuple(gates),
        tuple(p * g for p, g in zip(source.reads, gauge)),
        tuple(g.inv() * r for g, r in zip(gauge[1:], source.writes)),
        gauge[0].inv() * source.entry,
        source.readout * gauge[-1],
    )
    return Pair(source, made, tuple(gauge), "diagonal" if stored else form.form, stored)


def _root(square: Fraction) -> Fraction:
    root = Fraction(isqrt(square.numerator), isqrt(square.denominator))
    if root * root != square:
        raise ValueError(f"c^2 = {square} is no square of a rational")
    return root


@dataclass(frozen=True)
class Bases:
    """What the lemma says exists: a basis of every level, and 0/1 maps between them."""

    mixers: tuple[flint.fmpq_mat, ...]
    bases: tuple[flint.fmpq_mat, ...]
    maps: tuple[flint.fmpq_mat, ...]


def interval_bases(data: Bases) -> Verdict:
    """``A_l P_l = P_{l+1} E_l`` with invertible P_l, and E_l a partial matching (0/1, at most one 1 in a row and in a
    column, diagonal where the dimensions agree throughout); deaths = n_l - rank A_l."""
    dims = {p.ncols() for p in data.bases}
    for l, (a, e) in enumerate(zip(data.mixers, data.maps)):
        found = same_matrix(data.bases[l + 1] * e, a * data.bases[l], f"site {l}: P' E against A P")
        if not found:
            return found
        lines = [[int(x) for x in line] for line in e.tolist()] if _is_binary(e) else [[2]]
        crowded = any(sum(line) > 1 for line in [*lines, *zip(*lines)])
        if crowded or (
            len(dims) == 1 and any(x for i, line in enumerate(lines) for j, x in enumerate(line) if i != j)
        ):
            return verdict(False, f"site {l}: E is no 0/1 matching in place", site=l, matching=e)
        alive, rank = sum(map(sum, lines)), a.rank()
        if alive != rank:
            return verdict(False, f"site {l}: {alive} survive, expected rank {rank}", site=l, alive=alive, rank=rank)
    for l, p in enumerate(data.bases):
        if p.nrows() != p.ncols() or (p.nrows() and p.det() == 0):
            return verdict(False, f"level {l}: no basis", level=l, basis=p)
    sizes = [p.ncols() for p in data.bases]
    return verdict(True, f"bases of all {len(sizes)} levels, 0/1 matchings between them", dims=sizes)


def _is_binary(e: flint.fmpq_mat) -> bool:
    return all(x in (0, 1) for line in e.tolist() for x in line)
