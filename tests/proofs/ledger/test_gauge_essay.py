"""The gauge essay's entries: second routes for what their predicates decide, and faults that they must see."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from importlib import import_module

import flint
import numpy as np
import pytest
import sympy
from scipy.optimize import least_squares

from streamgauge.proofs.ledger.core import Claim, Level, run_claim
from streamgauge.proofs.ledger.entries.gauge_gates_norm import Masks, scale_stays
from streamgauge.proofs.ledger.entries.gauge_gates_theorem import norm_gated
from streamgauge.proofs.ledger.gauge_cases import (
    copied_entry_kept,
    cyclic_family,
    mean_gate,
    network,
    pair,
    regated,
    reset_and_reuse,
    stochastic_mixers,
    strong_contrast,
)
from streamgauge.proofs.ledger.gauge_checks import (
    boxed_obstruction,
    carry_fault,
    dynamic_obstruction,
    equivalent,
    fixed_entry_obstruction,
)
from streamgauge.proofs.ledger.tools import Network, column, diagonal, rational
from streamgauge.theory import exact
from streamgauge.theory.doubly import uniform
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import norm_growth

MODULES = (
    *("setting", "form", "rank"),
    *("gates_reset", "gates_mean", "gates_norm", "gates_theorem", "gates_practice", "gates_summary"),
)


def essay_claims() -> list[Claim]:
    found: list[Claim] = []
    for name in MODULES:
        found += import_module(f"streamgauge.proofs.ledger.entries.gauge_{name}").CLAIMS
    return found


def test_every_claim_of_the_essay_stands_once() -> None:
    wanted = [f"G{k:02d}" for k in (*range(1, 13), *range(27, 58))]
    assert sorted(claim.id for claim in essay_claims()) == wanted


@pytest.mark.parametrize("claim", essay_claims(), ids=lambda claim: claim.id)
def test_evidence_is_plain_data(claim: Claim) -> None:
    result = run_claim(claim, Level.QUICK)
    for found in (result.literal, result.repair):
        if found is not None:
            json.dumps([dict(found.verdict.witness), dict(found.control.witness)])
            assert found.verdict.reason
            assert found.control.witness


# The boxed reading of Theorem 1


def _boxed_misfit(net: Network, starts: int) -> float:
    """Smallest distance to the kernel over reads in [0, 1], writes in [0, 2]: two streams, copied entry, summed
    readout, A = I.  The kernel is multiplied out in numpy, by bounded least squares from several starts."""
    mixers, reads, writes = ([exact.to_floats(m) for m in part] for part in (net.mixers, net.reads, net.writes))
    sites = len(mixers)

    def kernel(a: list[np.ndarray], p: list[np.ndarray], r: list[np.ndarray]) -> np.ndarray:
        out, carried = [], [np.ones((2, 1))]
        for t in range(sites):
            out += [(p[t] @ x).item() for x in carried]
            carried = [a[t] @ x for x in carried] + [r[t]]
        return np.array(out + [float(x.sum()) for x in carried])

    wanted = kernel(mixers, reads, writes)

    def miss(flat: np.ndarray) -> np.ndarray:
        p = [flat[2 * t : 2 * t + 2][None, :] for t in range(sites)]
        r = [flat[2 * (sites + t) : 2 * (sites + t) + 2][:, None] for t in range(sites)]
        return kernel([np.eye(2)] * sites, p, r) - wanted

    upper = np.array([1.0] * (2 * sites) + [2.0] * (2 * sites))
    dice = np.random.default_rng(0)
    return min(
        float(np.abs(least_squares(miss, dice.uniform(0, upper), bounds=(np.zeros_like(upper), upper)).fun).max())
        for _ in range(starts)
    )


def test_no_boxed_network_is_found_where_none_exists() -> None:
    assert boxed_obstruction(strong_contrast())
    assert _boxed_misfit(strong_contrast(), 6) > 1e-3


@pytest.mark.parametrize("g", ["1", "99/100"])
def test_no_obstruction_where_boxed_networks_exist(g: str) -> None:
    mild = replace(
        strong_contrast(), mixers=(mean_gate(2, Fraction(g)),) * 3, reads=(rational([["3/5", "2/5"]]),) * 3
    )
    assert not boxed_obstruction(mild)
    assert _boxed_misfit(mild, 8) < 1e-7


def test_the_obstruction_is_silent_outside_its_shape() -> None:
    assert not boxed_obstruction(network([mean_gate(3, Fraction(9, 10))] * 3))
    assert not boxed_obstruction(network([mean_gate(2, Fraction(9, 10))] * 2))


# The fixed entry of Theorem 2


def test_no_gates_with_unchanged_entry_by_groebner_basis() -> None:
    """The counterexample's kernel with entry I and any diagonal gates: the ideal of the equations is everything."""
    names = "p00 p01 p10 p11 r00 r01 r10 r11 c0 c1 g00 g01 g10 g11"
    p00, p01, p10, p11, r00, r01, r10, r11, c0, c1, g00, g01, g10, g11 = sympy.symbols(names)
    equations = [
        *(p00 - 1, p01 + 1, p10 * g00, p11 * g01, p10 * r00 + p11 * r01 - 1),
        *(c0 * g10 * g00 - 1, c1 * g11 * g01 - 1, c0 * g10 * r00 + c1 * g11 * r01, c0 * r10 + c1 * r11 - 1),
    ]
    assert sympy.groebner(equations, order="grevlex").exprs == [1]
    assert fixed_entry_obstruction(reset_and_reuse())


def test_an_unchanged_entry_is_possible_without_resets() -> None:
    net = network([mean_gate(2, Fraction(1, 2))] * 2, ends="free")
    assert not fixed_entry_obstruction(net)
    assert equivalent(pair(net, "identity", "identity", same_entry=True))


@pytest.mark.parametrize("seed", range(6))
def test_copied_entries_stay_in_an_adapted_basis(seed: int) -> None:
    n = 2 + seed % 3
    mixers = stochastic_mixers(n, 3, seed=seed, ranks=[1 + seed % n, n, max(1, n - 1)])
    value = copied_entry_kept(network(mixers, seed=seed))
    assert value.converted.entry == column(*[1] * n)
    assert equivalent(value)


# Dynamic mixers


def test_complex_eigenvalues_are_seen_by_numpy_too() -> None:
    first, second = (exact.to_floats(a) for a in cyclic_family())
    eigenvalues = np.linalg.eigvals(np.linalg.solve(first, second))
    assert (np.abs(eigenvalues.imag) > 0.1).sum() == 2
    assert "only 1 are real" in dynamic_obstruction(cyclic_family())


def test_commuting_mean_gates_have_no_obstruction() -> None:
    assert not dynamic_obstruction([mean_gate(3, Fraction(1, 2)), mean_gate(3, Fraction(1, 3))])
    assert not dynamic_obstruction([uniform(3), mean_gate(3, Fraction(1, 3))])


# Faults


def _changed(matrix: flint.fmpq_mat) -> flint.fmpq_mat:
    out = flint.fmpq_mat(matrix)
    out[0, 0] += flint.fmpq(1, 7)
    return out


@pytest.mark.parametrize("part", ["reads", "writes", "mixers", "entry", "readout"])
@pytest.mark.parametrize("form", ["identity", "binary"])
def test_a_changed_part_is_refused(form: str, part: str) -> None:
    net = network(stochastic_mixers(3, 3, seed=2), seed=2, signed=True, ends="free")
    value = pair(net, form, form)
    assert equivalent(value)
    old = getattr(value.converted, part)
    new = tuple(_changed(m) for m in old) if isinstance(old, tuple) else _changed(old)
    found = equivalent(replace(value, converted=replace(value.converted, **{part: new})))
    assert not found
    assert found.witness


@pytest.mark.parametrize(
    ("carry", "matrix", "fault"),
    [
        ("identity", [[1, 0], [0, 1]], ""),
        ("identity", [[1, 0], [0, 0]], "entry (1, 1) is 0"),
        ("binary", [[1, 0], [0, "1/2"]], "entry (1, 1) is 1/2"),
        ("diagonal", [[1, 0], [0, "1/2"]], ""),
        ("diagonal", [[1, 0], [1, 1]], "entry (1, 0) is 1"),
    ],
)
def test_carry_classes(carry: str, matrix: list[list[int | str | Fraction]], fault: str) -> None:
    assert carry_fault(rational(matrix), carry) == fault


# Conversions of gates, run in float64 by a second route


def _float_output(net: Network) -> np.ndarray:
    x = exact.to_floats(net.entry) @ np.linspace(-1, 1, 2 * net.entry.ncols()).reshape(-1, 2)
    for a, p, r in zip(net.mixers, net.reads, net.writes):
        x = exact.to_floats(a) @ x + exact.to_floats(r) @ np.tanh(exact.to_floats(p) @ x)
    return np.asarray(exact.to_floats(net.readout) @ x)


def test_gate_values_and_norm_gates_are_absorbed_in_floats() -> None:
    gates = [(Fraction(3, 5), Fraction(4, 5), 0, 0), (1, 1, 1, 1), (0, Fraction(-3, 5), 0, Fraction(4, 5))]
    net = network([diagonal(g) for g in gates], seed=4, signed=True, ends="free")
    for other in (regated(net), norm_gated(net)):
        np.testing.assert_allclose(_float_output(other), _float_output(net), rtol=1e-12)


def test_norm_growth_by_logarithms() -> None:
    masks = [(1, 1, 1, 0)] * 60
    growth = scale_stays(Masks(masks)).witness["growth"]
    assert growth == pytest.approx((4 / 3) ** 30, rel=1e-12)
    assert np.log2(growth) == pytest.approx(norm_growth([np.array(m, float) for m in masks], NormGate()).gain[-1])
