"""One line of a module changed: its checks must notice."""

from __future__ import annotations

from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from mutated_module import assert_passes, mutated, survives

from streamgauge.proofs.counterexample import (
    activations,
    algebra,
    boxed,
    controls,
    family,
    matching,
    networks,
    search,
)
from streamgauge.proofs.counterexample import tails as tails_module

HALF = Fraction(1, 2)


def tails(module: ModuleType) -> None:
    for ratio, low, high in (
        (module.first_remainder(), Fraction(2, 5), Fraction(1)),
        (module.second_remainder(), HALF, Fraction(9, 4)),
        (module.negative_side(), Fraction(1, 9), Fraction(1)),
    ):
        assert module.proved_on_ray(ratio, low, high)
        assert not module.proved_on_ray(ratio, low, high * HALF)
        assert not module.proved_on_ray(ratio, high, high * 2)
    assert not module.proved_on_ray(module.first_remainder(Fraction(2)), Fraction(0), Fraction(10**6))
    assert not module.proved_on_ray(module.first_remainder(Fraction(3, 2)), Fraction(0), Fraction(10**6))
    for q, value in module.SAMPLES.items():
        direct = float(module.second_remainder().at(module.flint.arb(q))) * q**4 / float(module.flint.arb(q).exp())
        assert direct == pytest.approx(value, rel=5e-6)
        least, most = module.second_remainder().beyond(module.flint.arb(q))
        assert float(least) * (1 - 1e-14) <= float(module.second_remainder().at(module.flint.arb(q))) <= float(most)
        assert float(module.composed_remainder(q)) == pytest.approx(value, rel=5e-6)
    for q in (1, 2, 5):
        direct = float(module.second_remainder().at(module.flint.arb(q))) * q**4 * np.exp(-q)
        assert direct == pytest.approx(float(module.composed_remainder(q)), rel=1e-12)
    one = module.flint.arb(1)
    for sign in (1, -1):  # 1, but for a narrow bump or dip at 3.77
        bump = module.Ratio(
            "bump", lambda q, s=sign: one + s * (-400 * (q - 3.77) ** 2).exp() / 2, lambda q: (one, one)
        )
        assert module.proved_on_ray(bump, Fraction(2, 5), Fraction(8, 5))
        assert not module.proved_on_ray(bump, Fraction(3, 5), Fraction(7, 5))
    line = module.Ratio("Q on [0, 8], then 4", lambda q: q, lambda q: (4 * one, 4 * one))
    assert module.proved_on_ray(line, Fraction(-1), Fraction(9))
    assert not module.proved_on_ray(line, Fraction(-1), Fraction(5))
    assert not module.proved_on_ray(line, Fraction(2), Fraction(9))
    branch = activations.Branch((activations.Unit(m=3, w=2, v=HALF), activations.Unit(m=1, w=1, v=-2)))
    assert float(module.constant_bound(branch)) == pytest.approx((3 * 2 * 2 + HALF) * 4 / np.e**2)
    assert float(module.growth(branch)) == pytest.approx(5)
    assert float(module.remainder_bound(branch, module.flint.arb(2))) == pytest.approx(
        12 * np.exp(-1) + 8 * np.exp(-4)
    )


TAILS = {
    "upper bound ignored": ("if value >= bottom and value <= top:", "if value >= bottom:"),
    "lower bound ignored": ("if value >= bottom and value <= top:", "if value <= top:"),
    "beyond not looked at": ("if least >= bottom and most <= top:", "if True:"),
    "half of the interval": (
        "todo += [(left, (left + right) / 2), ((left + right) / 2, right)]",
        "todo += [(left, (left + right) / 2)]",
    ),
    "phi squared lost": ("return s * (2 - sigmoid(-q)) + s * s /", "return s * (2 - sigmoid(-q)) + s /"),
    "delta squared lost": ("        return s * (2 - sigmoid(-q)) + s", "        return s * 2 + s"),
    "growing rate bounded": (
        'flint.arb("inf")\n\n    return Ratio(f"(Q^2',
        'flint.arb(1)\n\n    return Ratio(f"(Q^2',
    ),
    "constant without gate": ("abs(ball(u.m) * ball(u.w) / ball(u.v)) * four", "abs(ball(u.m) * ball(u.w)) * four"),
    "remainder without rate": ("(-abs(ball(u.v) * z)).exp()", "(-abs(z)).exp()"),
}


def kinds(module: ModuleType) -> None:
    can = {name for name, kind in module.KINDS.items() if not module.covered(kind)}
    assert can == {"SwiGLU, up-projection bias", "SwiGLU, gate bias", "SiLU", "GELU", "ReLU", "GLU"}
    assert "T0 and Tinf" in module.covered(module.KINDS["SwiGLU"]).reason
    assert "constant" in module.covered(module.KINDS["SwiGLU, down-projection bias"]).reason
    unit = module.Unit(m=2, w=3, v=-HALF, c=1, b=5)
    assert module.Branch((unit,), 7).tail(-1) == (2 * 5 + 7, 2 * (15 - HALF), -3)
    assert module.Branch((unit,)).tail(1) == ()
    off = module.Kind("off", module.SIGMOID)
    assert "off" in module.covered(off).reason


KINDS = {
    "up bias forgotten": ("(c if kind.up_bias else 0)", "0"),
    "gate bias forgotten": ("(b if kind.gate_bias else 0)", "0"),
    "only powers above 1": ("if power not in (0, 2) and", "if power > 2 and"),
    "sides exchanged": ("if sign * side > 0 else", "if sign * side < 0 else"),
    "T0 not asked": ("if kind.down_bias or kind.up_bias or kind.gate_bias:", "if False:"),
    "tail without bias": ("_times(shifted, (self.b, self.v))", "_times(shifted, (0, self.v))"),
}


def systems(module: ModuleType) -> None:
    for system in (module.seed(), module.embedded(), module.every_direction(3)):
        assert module.has_no_zero(system)
        assert module.every_polynomial_is_needed(system)
        assert module.vanish_at(system.polynomials, system.in_two, 2)
    lax = module.System("lax", module.seed().polynomials, module.seed().cofactors, ({},) * 6, {})
    assert not module.every_polynomial_is_needed(lax)


SYSTEMS = {
    "cofactor of f2": ("-k * u2 - b1 * b * l * d / 2", "-k * u2 - b1 * b * l * d"),
    "polynomial of u": ("a - (u1 + u2),", "a - (u1 - u2),"),
    "embedding may vanish": ("hp - 2, sm - 1", "hp - 2, sm"),
    "direction": ("2 * b * l * g * (k * f + 2 * p * d)", "2 * b * l * g * (k * f + p * d)"),
    "zeros not looked at": ("if not zero or (", "if (False or "),
    "modulus ignored": ("value if modulus is None else value % modulus", "value"),
}


def cases(module: ModuleType) -> None:
    phi, left = activations.PHI, activations.Branch((activations.Unit(v=-1),))
    assert module.symbolic_remainder()
    assert module.growth_case(module.TwoSite((-1, 1), (1, 0), phi, (1, 2), (1, 2), phi))
    assert module.growth_case(module.TwoSite((1, -1), (1, 1), phi, (1, -1), (1, 2), phi))
    assert not module.growth_case(module.TwoSite((1, -1), (1, 0), phi, (1, 2), (1, 2), phi))
    second = activations.Branch((activations.Unit(), activations.Unit(m=5, v=-1)))
    for c, first in ((1, phi), (-1, left)):
        for g in (1, -1):
            found = module.tail_case(module.TwoSite((c, -c), (g, 1), first, (1, 3), (2, 1), second))
            assert found
            stated = found.witness["coefficients"][0]
            net = module.TwoSite((c, -c), (g, 1), first, (1, 3), (2, 1), second)
            assert float(net.along(module.flint.arb(2) ** 12)) / 2**48 == pytest.approx(stated, rel=0.01)
    assert not module.refuted(networks.three_streams())
    assert module.refuted(networks.near(Fraction(1, 1000)))


CASES = {
    "kappa of the other side": ('self.first.kappa(1 if out["c"] > 0', 'self.first.kappa(1 if out["c"] < 0'),
    "lambda of the other side": ("self.second.kappa(1 if direction > 0", "self.second.kappa(1 if direction < 0"),
    "gamma by u and h": ('"gamma": dot(self.b, self.u)', '"gamma": dot(self.h, self.u)'),
    "bound not compared": ("if abs(value) > bound:", "if False:"),
    "rest not compared": ("if abs(net.along(q) - polynomial(q)) > rest(q):", "if abs(net.along(q)) > rest(q):"),
    "cubic term": ("+ 2 * beta * lam * gamma * k * mixed * q**3", "+ beta * lam * gamma * k * mixed * q**3"),
    "balls that meet": ("if not found.overlaps(value):", "if found.overlaps(value):"),
}


def boxes(module: ModuleType) -> None:
    value, equal = module.Boxed(), module.EQUAL
    assert module.in_boxes(value.mhc())
    assert not module.in_boxes(networks.mhc())
    assert not module.in_boxes(module.Boxed(p1=(Fraction(1), HALF)).mhc())
    assert not module.in_boxes(module.Boxed(r2=(Fraction(2), HALF)).mhc())
    assert module.excluded(value).witness["gap"] == "1/24"
    assert not module.excluded(equal)
    assert not module.excluded(module.Boxed(p1=(HALF, HALF)))
    for each in (value, equal):
        assert networks.same_function(each.mhc(), lambda x, each=each: [each.target(x, networks.PSI)])
    assert networks.same_function(equal.pure(), lambda x: [equal.target(x, networks.PSI)])
    assert algebra.has_no_zero(module.system(value))
    assert algebra.has_no_zero(module.general_system())
    assert algebra.every_polynomial_is_needed(module.general_system())


BOXES = {
    "omega not halved": ("return Fraction(sum(self.p2)) * HALF", "return Fraction(sum(self.p2))"),
    "reads may be 1": ("if not all(0 < x < 1 for x in site.read):", "if not all(abs(x) <= 1 for x in site.read):"),
    "parallel reads": ("boxed.p1[0] != boxed.p1[1] and ", ""),
    "cofactor": ("        2 * nu * omega * rho,\n", "        nu * omega * rho,\n"),
    "a read of the wrong write": ("zip(self.p2, self.r1)", "zip(self.p2, self.r2)"),
}


def represented(module: ModuleType) -> None:
    for f, psi in module.CONTROLS.values():
        assert module.is_shifted(f, psi)
        net = module.resetting(f, psi)
        assert networks.computes_target(net)
        assert networks.balls_meet(net, psi, module.random_points(8))
    assert not module.is_shifted(activations.PHI, activations.PHI)
    assert not module.is_shifted(module.plain(activations.RELU), module.plain(activations.RELU))


REPRESENTED = {
    "no bias": ("Unit(c=-HALF)", "Unit()"),
    "gate bias of another size": ("-(1 + sp.exp(-1)) / 2", "-(1 + sp.exp(1)) / 2"),
    "difference not looked at": ("if difference != 0:", "if False:"),
    "one unit": ("Unit(act, HALF, w=0, c=1), ", ""),
}


def searched(module: ModuleType) -> None:
    for kind in module.KINDS:
        theta = np.random.default_rng(1).normal(size=(2, module.parameters(kind, 2)))
        x = module.grid(5)
        jacobian = module.outputs(theta, kind, 2, x)[1]
        for k in range(theta.shape[1]):
            step = np.eye(theta.shape[1])[k] * 1e-6
            up, down = (module.outputs(t, kind, 2, x)[0] for t in (theta + step, theta - step))
            assert np.allclose((up - down) / 2e-6, jacobian[:, :, k], rtol=1e-5, atol=1e-5)
    found = module.search("gated iHC", 1, starts=20, iterations=12)
    assert found.within(16) < 1e-9
    assert np.all(np.diff(found.errors) < 0)


SEARCHED = {
    "slope of swish": ("s * (1 + t * (1 - s))", "s * (1 + t)"),
    "mixed backwards": ("(su * slope1)[:, :, None] * a[:, None]", "(su * slope1)[:, :, None] * b[:, None]"),
    "steps uphill": ("better = new < now", "better = new > now"),
    "front of all points": ("if not front or point[1] < front[-1][1]:", "if True:"),
}


def approximating(module: ModuleType) -> None:
    for error in module.family_errors(range(4, 11, 3), 7):
        assert error.exact == pytest.approx(error.first_order, rel=0.1)
        assert error.float64 == pytest.approx(error.exact, rel=1e-6)
    assert module.family_errors(range(24, 25), 7)[0].float32 > 0.1


APPROXIMATING = {
    "slope": ("s * (2 * t + t * t * (1 - s))", "s * (2 * t + t * t)"),
    "float32 in float64": ("(np.float64, np.float32)", "(np.float64, np.float64)"),
    "eps twice": ("network = near(eps)", "network = near(2 * eps)"),
}

BATTERIES = {
    "tails": (tails, tails_module, TAILS),
    "activations": (kinds, activations, KINDS),
    "algebra": (systems, algebra, SYSTEMS),
    "matching": (cases, matching, CASES),
    "boxed": (boxes, boxed, BOXES),
    "controls": (represented, controls, REPRESENTED),
    "search": (searched, search, SEARCHED),
    "family": (approximating, family, APPROXIMATING),
}


@pytest.mark.parametrize("name", BATTERIES)
def test_the_battery_passes_on_the_module_itself(name):
    battery, module, _ = BATTERIES[name]
    assert_passes(battery, module)


@pytest.mark.parametrize(("name", "change"), [(n, c) for n, (_, _, cs) in BATTERIES.items() for c in cs])
def test_mutants_are_killed(name, change):
    battery, module, changes = BATTERIES[name]
    assert not survives(battery, mutated(module, *changes[change]))
