"""Networks, both cases of the proof, and points that convict every network the theorem speaks of."""

from __future__ import annotations

from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.proofs.counterexample import boxed, controls, networks
from streamgauge.proofs.counterexample.activations import GELU, IDENTITY, PHI, RELU, SWISH, Branch, Unit, ball
from streamgauge.proofs.counterexample.matching import (
    TwoSite,
    growth_bound,
    growth_case,
    refuted,
    symbolic_remainder,
    tail_case,
)

quick = settings(deadline=None, derandomize=True, database=None, max_examples=80)
mpmath.mp.dps = 40
HALF = Fraction(1, 2)
numbers = st.builds(Fraction, st.integers(-9, 9), st.integers(1, 4))
nonzero = st.builds(Fraction, st.integers(1, 9), st.integers(1, 4)).flatmap(lambda x: st.sampled_from([x, -x]))
units = st.builds(Unit, act=st.sampled_from([SWISH, GELU, RELU, IDENTITY]), m=nonzero, w=nonzero, v=nonzero)
branches = st.builds(lambda us: Branch(tuple(us)), st.lists(units, min_size=1, max_size=3))
rows = st.tuples(numbers, numbers)
pures = st.builds(TwoSite, a=rows, u=rows, first=branches, b=rows, v=rows, second=branches)


def of_network(network: networks.Network) -> TwoSite:
    """The two-stream pure iHC as :class:`TwoSite`."""
    first, second = network.sites
    return TwoSite(
        first.read, first.write, first.branch, second.read, second.write, second.branch, network.readout[0]
    )


@quick
@given(pures)
def test_both_cases_hold_for_any_network(net):
    """gamma kappa c = 0: the bound and a Q* above it; else: the tail polynomial, and a Q* where it is not Q^4."""
    assert tail_case(net), tail_case(net).reason


@quick
@given(pures, rows)
def test_every_network_is_convicted_at_a_point(net, h):
    """Any head; the point is checked again with mpmath."""
    network = TwoSite(net.a, net.u, net.first, net.b, net.v, net.second, h).network()
    found = refuted(network)
    assert found, found.reason
    x = [mpmath.mpf(Fraction(t).numerator) / Fraction(t).denominator for t in found.witness["x"]]
    assert abs(run(network, x) - run(networks.mhc(), x)) > 0


def run(network, x):
    """A network in mpmath, step by step."""

    def number(value):
        return mpmath.mpf(Fraction(value).numerator) / Fraction(value).denominator

    acts = {
        "swish": lambda t: t / (1 + mpmath.exp(-t)),
        "gelu": lambda t: t * mpmath.erfc(-t / mpmath.sqrt(2)) / 2,
        "relu": lambda t: max(t, mpmath.mpf(0)),
        "identity": lambda t: t,
    }
    state = list(x)
    for site in network.sites:
        z = sum(number(p) * y for p, y in zip(site.read, state))
        value = sum(number(u.m) * number(u.w) * z * acts[u.act.name](number(u.v) * z) for u in site.branch.units)
        carried = [sum(number(a) * y for a, y in zip(row, state)) for row in site.mixer]
        state = [y + number(r) * value for y, r in zip(carried, site.write)]
    return sum(number(c) * y for c, y in zip(network.readout[0], state))


@quick
@given(pures, st.integers(1, 200))
def test_the_growth_bound_holds_wherever_it_is_claimed(net, quarters):
    line = net.line
    if line["gamma"] * line["kappa"] * line["c"] != 0:
        net = TwoSite(net.a, net.u, net.first, (0, 0), net.v, net.second)  # gamma = 0
    a0, a1, a2 = growth_bound(net)
    q = ball(Fraction(quarters, 4))
    assert not abs(net.along(q)) > a0 + a1 * q + a2 * q * q


def test_the_expansion_on_symbols():
    found = symbolic_remainder()
    assert found
    assert "Q**3" not in found.witness["rest"]
    assert "Q**4" not in found.witness["rest"]


def test_sign_cases_are_told_apart():
    left, right = Branch((Unit(v=-1, w=-1),)), PHI
    seen = set()
    for c, first in ((1, right), (-1, left)):
        for gamma in (1, -1):
            second = Branch((Unit(v=1), Unit(m=2, v=-1)))
            net = TwoSite((c, -c), (gamma, 0), first, (1, 1), (1, 1), second)
            found = tail_case(net)
            assert found
            seen.add((found.witness["signs"], net.line["lambda"]))
    assert len(seen) == 4
    assert {value for _, value in seen} == {1, -2}


def test_controls_of_the_cases():
    growing = TwoSite((1, -1), (1, 0), PHI, (1, 2), (1, 2), PHI)
    assert growth_case(growing).witness["network"] > growth_case(growing).witness["bound"]
    biased = TwoSite((1, -1), (1, 0), PHI, (1, 2), (1, 2), controls.up_biased())
    assert not tail_case(biased)
    assert tail_case(biased).witness["Q"]


@pytest.mark.parametrize("name", controls.CONTROLS)
def test_what_can_be_represented_is(name):
    f, psi = controls.CONTROLS[name]
    network = controls.resetting(f, psi)
    assert network.pure
    assert controls.is_shifted(f, psi)
    assert networks.computes_target(network)
    assert networks.balls_meet(network, psi, controls.random_points(30, 1))
    t = np.linspace(-5, 5, 101)
    assert np.abs(f.array(t) - psi.array(t) + t / 2).max() < 1e-14
    if psi is PHI:
        assert not refuted(network)
        assert refuted(network).witness["points"] > 50


def test_what_is_not_the_target_is_seen():
    f, psi = controls.CONTROLS["ReLU"]
    assert not controls.is_shifted(psi, f)
    sites = tuple(networks.Site(networks.identity(2), s.read, s.write) for s in networks.mhc().sites)
    without = networks.Network(sites, networks.mhc().readout)
    assert "psi" in networks.computes_target(without).witness["difference"]
    assert not networks.balls_meet(without, PHI, controls.random_points(5))
    assert refuted(without)
    assert of_network(without).network() == without


@pytest.mark.parametrize("make", [networks.mhc, networks.gated, networks.three_streams])
def test_networks_that_are_the_target(make):
    network = make()
    assert networks.computes_target(network)
    assert networks.balls_meet(network, PHI, controls.random_points(30))
    assert network.pure == (make is networks.three_streams)
    x = [mpmath.mpf(3) / 2, mpmath.mpf(-2)]
    if make is networks.mhc:
        q = x[0] - x[1]
        inner = q * q / (1 + mpmath.exp(-q))
        assert abs(run(network, x) - (x[0] + x[1] + inner**2 / (1 + mpmath.exp(-inner)))) < 1e-30


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_n_streams(n):
    v = tuple(Fraction(i - 1, 2) for i in range(n))
    wanted = networks.wide_target(n, v)
    assert networks.same_function(networks.wide_mhc(n, v), wanted, n)
    more = networks.one_more_stream(n, v)
    assert more.pure
    assert len(more.sites[0].read) == n + 1
    assert networks.same_function(more, wanted, n)
    other = networks.one_more_stream(n, tuple(x + 1 for x in v))
    assert not networks.same_function(other, wanted, n)


def test_near_is_mhc_with_an_invertible_mixer_in_another_basis():
    """Theorem 1 by hand: A = J + 2 eps (I - J), P = A, reads times P, writes times P^-1."""
    eps = Fraction(1, 8)
    a = sp.Matrix([[HALF + eps, HALF - eps], [HALF - eps, HALF + eps]])
    network, source = networks.near(eps), networks.mhc()
    site = network.sites
    assert list(site[0].read) == [1, -1]
    assert sp.Matrix(site[0].write) == a.inv() * sp.Matrix(source.sites[0].write)
    assert sp.Matrix([site[1].read]) == sp.Matrix([source.sites[1].read]) * a
    assert sp.Matrix(site[1].write) == a.inv() * sp.Matrix(source.sites[1].write)
    assert sp.Matrix([network.readout[0]]) == sp.Matrix([source.readout[0]]) * a


def test_boxes():
    value = boxed.Boxed()
    assert boxed.in_boxes(value.mhc())
    outside = {
        "read": boxed.Boxed(p1=(Fraction(1), Fraction(1, 4))),
        "write": boxed.Boxed(r2=(Fraction(2), Fraction(1))),
    }
    for word, changed in outside.items():
        found = boxed.in_boxes(changed.mhc())
        assert not found
        assert word in found.witness
    sites = value.mhc().sites
    skew = networks.Network((networks.Site(((1, 0), (1, 0)), sites[0].read, sites[0].write), sites[1]), ((1, 1),))
    assert not boxed.in_boxes(skew)
    for each in (value, boxed.EQUAL):
        assert networks.same_function(each.mhc(), lambda x, each=each: [each.target(x, networks.PSI)])
        same = networks.same_function(each.pure(), lambda x, each=each: [each.target(x, networks.PSI)])
        assert bool(same) != bool(boxed.excluded(each))
    assert not boxed.excluded(boxed.Boxed(p1=(HALF, HALF)))


def test_balls_are_exact_where_numbers_are():
    assert ball(Fraction(1, 3)).contains(flint.arb(1) / 3)
    assert ball(sp.exp(-1)).overlaps(flint.arb(-1).exp())
    assert ball(flint.arb(2)) == 2
