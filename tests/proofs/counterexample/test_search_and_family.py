"""The adversary and the approximating family: derivatives, round-off where it exists, floors in floats."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from streamgauge.proofs.counterexample import search
from streamgauge.proofs.counterexample.family import family_errors
from streamgauge.theory.errors import InputError

mpmath.mp.dps = 40


@pytest.mark.parametrize("kind", search.KINDS)
@pytest.mark.parametrize("width", [1, 3])
def test_every_derivative_by_differences(kind, width):
    rng = np.random.default_rng(2)
    theta = rng.normal(size=(3, search.parameters(kind, width)))
    x = search.grid(7)
    _, jacobian = search.outputs(theta, kind, width, x)
    assert jacobian.shape == (3, 21, search.parameters(kind, width))
    for k in range(theta.shape[1]):
        step = np.zeros_like(theta)
        step[:, k] = 1e-6
        up, down = (search.outputs(t, kind, width, x)[0] for t in (theta + step, theta - step))
        assert np.abs((up - down) / 2e-6 - jacobian[:, :, k]).max() < 1e-6 * (1 + np.abs(jacobian).max()), k


def by_hand(theta, kind, x):
    """One network of width 1, written out."""
    m, a, u, b, v, h = np.split(theta[:14], [4, 6, 8, 10, 12])
    w1, v1, w2, v2 = theta[14:18]
    mixer = np.eye(2)
    if kind == "gated iHC":
        mixer = np.diag(theta[18:])
    elif kind == "mHC":
        mixer = np.array([[theta[18], 1 - theta[18]], [1 - theta[18], theta[18]]])

    def unit(z, w, gate):
        return w * z * (gate * z) / (1 + np.exp(-gate * z))

    x0 = m.reshape(2, 2) @ x
    x1 = mixer @ x0 + u * unit(a @ x0, w1, v1)
    return h @ (x1 + v * unit(b @ x1, w2, v2))


@pytest.mark.parametrize("kind", search.KINDS)
def test_outputs_by_hand(kind):
    theta = np.random.default_rng(5).normal(size=(2, search.parameters(kind, 1)))
    x = search.grid(5)
    found = search.outputs(theta, kind, 1, x)[0]
    for t, row in zip(theta, found):
        assert np.allclose(row, [by_hand(t, kind, point) for point in x], rtol=1e-12, atol=1e-12)


def test_the_family_is_close_and_grows():
    eps = np.array([1e-2, 1e-4, 1e-6])
    theta = search._family(eps, 2)
    x = search.grid(41)
    errors = np.abs(search.outputs(theta, "pure iHC", 2, x)[0] - search.wanted(x)).max(axis=1)
    assert np.all(errors < 60 * eps)
    assert np.all(errors > 30 * eps)
    assert np.all(np.diff(np.linalg.norm(theta, axis=1)) > 0)


def test_gated_reaches_round_off_and_pure_does_not():
    found = {kind: search.search(kind, 1, starts=20, iterations=12) for kind in ("pure iHC", "gated iHC")}
    assert found["gated iHC"].within(16) < 1e-9
    assert found["pure iHC"].within(16) > 1e-5
    for each in found.values():
        assert np.all(np.diff(each.norms) >= 0)
        assert np.all(np.diff(each.errors) < 0)
        assert each.best == each.errors[-1]
        assert each.within(0.1) == np.inf
        fine = search.grid(241, 5)
        again = np.abs(search.outputs(each.weights[None], each.kind, 1, fine)[0] - search.wanted(fine)).max()
        assert again == pytest.approx(each.best, rel=0.2)
        assert np.linalg.norm(each.weights) == pytest.approx(each.norms[-1])


def test_a_search_can_be_repeated():
    options = {"starts": 4, "iterations": 4, "penalties": (1e-2, 1e-4)}
    one, two = (search.search("pure iHC", 2, **options) for _ in range(2))
    assert np.array_equal(one.weights, two.weights)
    steps: list[int] = []
    search.search("mHC", 1, **options, step=lambda: steps.append(1))
    assert len(steps) == 2


@pytest.mark.parametrize(("kind", "width", "starts"), [("iHC", 1, 1), ("mHC", 0, 1), ("mHC", 1, 0)])
def test_bad_searches_are_refused(kind, width, starts):
    with pytest.raises(InputError, match="search: found"):
        search.search(kind, width, starts=starts)


def test_family_errors_against_mpmath():
    def phi(t):
        return t * t / (1 + mpmath.exp(-t))

    for error in family_errors(range(2, 20, 4), 13):
        worst = max(
            abs(phi(phi(q) + mpmath.mpf(error.eps) * q) - phi(phi(q)))
            for q in (mpmath.mpf(i) / 2 for i in range(-6, 7))
        )
        assert error.exact == pytest.approx(float(worst), rel=1e-12)
        slope = max(abs(q * mpmath.diff(phi, phi(q))) for q in (mpmath.mpf(i) / 2 for i in range(-6, 7)))
        assert error.first_order == pytest.approx(float(slope) * error.eps, rel=1e-9)
        assert error.float64 == pytest.approx(error.exact, rel=1e-3)


def test_the_floor_is_near_the_root_of_u():
    errors = family_errors()
    best = min(errors, key=lambda e: e.float32)
    assert 2.0**-16 <= best.eps <= 2.0**-10
    assert 1e-4 < best.float32 < 1e-1
    assert errors[-1].float32 > 100 * best.float32
    assert min(e.float64 for e in errors) < 1e-5
    assert errors[-1].exact < 1e-7
