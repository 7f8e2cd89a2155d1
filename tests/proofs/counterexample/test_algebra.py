"""The polynomial systems: other engines, finite fields by exhaustion, and what each polynomial is for."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import flint
import numpy as np
import pytest
import sympy as sp

from streamgauge.proofs.counterexample import algebra, boxed
from streamgauge.proofs.counterexample.algebra import (
    System,
    basis_is_one,
    every_polynomial_is_needed,
    has_no_zero,
    vanish_at,
)

SYSTEMS = {
    "six": algebra.seed(),
    "embedded": algebra.embedded(),
    "two": algebra.every_direction(2),
    "four": algebra.every_direction(4),
    "boxed": boxed.general_system(),
}


def in_flint(system: System, polynomials=None):
    names = [str(v) for v in system.variables]
    ring = flint.fmpq_mpoly_ctx.get(names)
    polys = []
    for f in polynomials or system.polynomials:
        terms = sp.Poly(f, *system.variables).terms()
        polys.append(ring.from_dict({e: flint.fmpq(int(c.p), int(c.q)) for e, c in terms}))
    return ring, polys


@pytest.mark.parametrize("name", SYSTEMS)
def test_cofactors_by_flint(name):
    system = SYSTEMS[name]
    _, fs = in_flint(system)
    _, hs = in_flint(system, system.cofactors)
    total = sum((h * f for h, f in zip(hs[1:], fs[1:])), hs[0] * fs[0])
    assert total == 2 or total == 1
    assert has_no_zero(system)


@pytest.mark.parametrize("name", ["six", "two"])
def test_groebner_by_flint(name):
    """Buchberger over the integers in another library."""
    system = SYSTEMS[name]
    names = [str(v) for v in system.variables]
    ring = flint.fmpz_mpoly_ctx.get(names, "degrevlex")

    def basis(polynomials):
        polys = [ring.from_dict({e: int(c) for e, c in sp.Poly(f, *system.variables).terms()}) for f in polynomials]
        vec = flint.fmpz_mpoly_vec(polys, ring).buchberger_naive()
        return vec.autoreduction()

    whole = list(basis(system.polynomials))
    assert len(whole) == 1
    assert whole[0].is_constant()
    for i in range(len(system.polynomials)):
        assert not any(p.is_constant() for p in basis(system.dropped(i)))


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_polynomial_is_needed(name):
    assert every_polynomial_is_needed(SYSTEMS[name])
    assert len(SYSTEMS[name].without) == len(SYSTEMS[name].polynomials)


def test_a_polynomial_twice_is_not_needed():
    six = SYSTEMS["six"]
    twice = dataclasses.replace(
        six, polynomials=(*six.polynomials, six.polynomials[0]), without=(*six.without, six.without[0])
    )
    found = every_polynomial_is_needed(twice)
    assert not found
    assert found.witness["values"]


def zeros_modulo(system: System, p: int) -> int:
    """All points of F_p^m, tried."""
    variables = system.variables
    values = np.array(list(itertools.product(range(p), repeat=len(variables))), dtype=np.int64).T
    count = np.ones(values.shape[1], dtype=bool)
    for f in system.polynomials:
        total = np.zeros(values.shape[1], dtype=np.int64)
        for exponents, c in sp.Poly(f, *variables).terms():
            term = np.full(values.shape[1], int(c) % p, dtype=np.int64)
            for x, e in zip(values, exponents):
                for _ in range(e):
                    term = term * x % p
            total = (total + term) % p
        count &= total == 0
    return int(count.sum())


def test_over_small_fields_every_point_is_tried():
    assert zeros_modulo(SYSTEMS["six"], 3) == 0
    assert zeros_modulo(SYSTEMS["six"], 2) > 0
    assert zeros_modulo(SYSTEMS["two"], 3) == 0
    assert zeros_modulo(SYSTEMS["two"], 2) > 0


@pytest.mark.parametrize("name", SYSTEMS)
def test_characteristic_two_has_a_zero(name):
    system = SYSTEMS[name]
    assert vanish_at(system.polynomials, system.in_two, 2)
    assert not vanish_at(system.polynomials, system.in_two)


def test_primes():
    six = SYSTEMS["six"]
    assert all(basis_is_one(six.polynomials, six.variables, p) for p in (3, 5, 7, 101))
    assert not basis_is_one(six.polynomials, six.variables, 2)


@pytest.mark.parametrize("i", range(6))
def test_a_changed_cofactor_is_noticed(i):
    six = SYSTEMS["six"]
    cofactors = list(six.cofactors)
    cofactors[i] = cofactors[i] + sp.Symbol("d")
    with pytest.raises(ValueError, match="expected a constant"):
        dataclasses.replace(six, cofactors=tuple(cofactors)).certificate()


def test_the_systems_are_those_of_the_networks():
    """Polynomials from scratch: expand a network with quadratic branches and read the coefficients."""
    b, l, g, a, d, f, k1, c, c2, q, s = sp.symbols("b l g a d f k1 c c2 q s")
    first = k1 * (c * q + c2 * s) ** 2
    out = sp.Poly(sp.expand(a * first + b * l * (d * q + f * s + g * first) ** 2), q, s)
    k, p1, f1 = sp.symbols("k p1 f1")
    here = {k: k1 * c**2, p1: k1 * c * c2, f1: f}
    two = SYSTEMS["two"].polynomials
    assert sp.expand(out.coeff_monomial(q**4) - 1 - two[0].subs(here)) == 0
    assert sp.expand(out.coeff_monomial(q**3) - two[1].subs(here)) == 0
    assert sp.expand(out.coeff_monomial(q**2 * s) - two[2].subs(here)) == 0
    six = SYSTEMS["six"].polynomials
    assert sp.expand(out.coeff_monomial(q**2) - six[2].subs(here)) == 0


def test_the_boxed_system_is_that_of_the_network():
    """The same for P4, in S and t."""
    b, l, g, k, a, ds, dt, t, s, mu, nu, omega, rho = sp.symbols("b l g k a ds dt t s mu nu omega rho")
    ours = a * k * t**2 + b * l * (ds * s + dt * t + g * k * t**2) ** 2
    theirs = mu * t**2 + nu * (omega * s + rho * t**2) ** 2
    away = sp.Poly(sp.expand(ours - theirs), t, s)
    f = boxed.general_system().polynomials
    assert sp.expand(away.coeff_monomial(t**4) - f[0]) == 0
    assert sp.expand(away.coeff_monomial(t**3) - f[1]) == 0
    assert sp.expand(away.coeff_monomial(t**2 * s) - f[2]) == 0
    assert sp.expand(away.coeff_monomial(t**2) - f[3]) == 0


def test_the_numbers_of_p4():
    value = boxed.Boxed()
    assert (value.mu, value.nu, value.omega, value.rho) == (Fraction(3, 2), 2, Fraction(5, 12), Fraction(2, 3))
    system = boxed.system(value)
    total = sp.expand(sum(h * f for h, f in zip(system.cofactors, system.polynomials)))
    assert total == sp.Rational(1, 9)  # 2 nu rho (rho - mu omega)
    assert has_no_zero(system)
    equal = boxed.system(boxed.EQUAL)
    assert sp.expand(sum(h * f for h, f in zip(equal.cofactors, equal.polynomials))) == 0
    assert not boxed.excluded(boxed.EQUAL)
    assert boxed.in_boxes(value.mhc())
