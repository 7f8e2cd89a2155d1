"""Ours: what an exact check of floating-point gauges proves about the stored network."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import flint
import numpy as np
import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim
from streamgauge.proofs.ledger.tools import Network, counted, fixed, same_kernel, vanishes, verdict
from streamgauge.theory.chain import Chain
from streamgauge.theory.doubly import random_doubly_stochastic
from streamgauge.theory.exact import from_floats, identity, to_floats
from streamgauge.theory.normal_form import normal_form
from streamgauge.theory.verdict import Verdict

Matrix = flint.fmpq_mat


def norm(matrix: Matrix) -> flint.fmpq:
    """The largest absolute row sum."""
    return max(sum((abs(x) for x in line), flint.fmpq(0)) for line in matrix.tolist())


@dataclass(frozen=True)
class Inverse:
    """Float matrices as exact rationals: P, an approximate inverse Q, and a stated bound of the norm of P^-1."""

    p: Matrix
    q: Matrix
    bound: flint.fmpq


def _inverse_bounded(value: Inverse) -> Verdict:
    rho = norm(identity(value.p.nrows()) - value.p * value.q)
    if rho >= 1:
        return verdict(False, f"rho = {float(rho):.3g}, expected below 1", rho=float(rho))
    true = norm(value.p.inv())
    reason = f"||P^-1|| = {float(true):.8g}, bound {float(value.bound):.8g}, rho = {float(rho):.3g}"
    return verdict(true <= value.bound, reason, true=float(true), bound=float(value.bound), rho=float(rho))


def _inverse_case(seed: int, *, sharpened: bool = True) -> Case:
    """Q is the float inverse, or a rougher one; the bound ||Q|| / (1 - rho), or ||Q|| alone."""
    dice = np.random.default_rng(seed)
    p = dice.normal(size=(4, 4)) * 10.0 ** (-(seed % 3) * np.arange(4))
    rough = 0.9 if not sharpened else (1.0, 0.99, 0.6)[seed % 3]  # Q shrunk: rho = 1 - rough
    exact_p, exact_q = from_floats(p), from_floats(rough * np.linalg.inv(p))
    rho = norm(identity(4) - exact_p * exact_q)
    bound = norm(exact_q) / (1 - rho) if sharpened else norm(exact_q)
    return Case(f"seed {seed}, Q times {rough}", Inverse(exact_p, exact_q, bound))


@dataclass(frozen=True)
class Site:
    """A, the float gauges and gates around it, and a stated bound of ||P' D P^-1 - A||."""

    a: Matrix
    before: Matrix
    after: Matrix
    gates: Matrix
    bound: flint.fmpq


def _map_near(value: Site) -> Verdict:
    stored = value.after * value.gates * value.before.inv()
    miss = norm(stored - value.a)
    reason = f"||A~ - A|| = {float(miss):.3g}, bound {float(value.bound):.3g}"
    return verdict(miss <= value.bound, reason, distance=float(miss), bound=float(value.bound))


def _site_case(seed: int, *, weighted: bool = True, conditioned: bool = False) -> Case:
    """Graded float forms of Sinkhorn-like chains; ``weighted``: the residual times Q, over 1 - rho."""
    dice = random.Random(seed)
    mixers = [to_floats(random_doubly_stochastic(4, seed=dice, rank=4)) for _ in range(8)]
    form = normal_form(Chain(mixers))
    l = seed % 8
    scale = np.diag([1.0, 1e-6, 1.0, 1.0]) if conditioned else np.eye(4)
    before, after = form.gauge[l] @ scale, form.gauge[l + 1] @ scale
    a, p, q = from_floats(mixers[l]), from_floats(before), from_floats(np.linalg.inv(before))
    gates = from_floats(np.diag(np.asarray(form.gates[l], dtype=np.float64)))
    residual = from_floats(after) * gates - a * p
    rho = norm(identity(4) - p * q)
    bound = norm(residual * q) / (1 - rho) if weighted else norm(residual)
    return Case(f"seed {seed}, site {l}", Site(a, p, from_floats(after), gates, bound))


@dataclass(frozen=True)
class Stored:
    """A converted network of rounded numbers, with its float gauges, and the mHC it is said to be exactly."""

    converted: Network
    gauge: tuple[Matrix, ...]
    claimed: Network


def _is_exactly(value: Stored) -> Verdict:
    for l, (a, d) in enumerate(zip(value.claimed.mixers, value.converted.mixers)):
        if a * value.gauge[l] != value.gauge[l + 1] * d:
            return verdict(False, f"site {l}: A~ P is not P' D", site=l)
    found = same_kernel(value.claimed, value.converted)
    return found if not found else replace(found, reason=f"the stored network is that mHC: {found.reason}")


def _stored_case(seed: int, *, restored: bool = True) -> Case:
    """Everything rounded to float32 after conversion, then A~ = P' D P^-1, p^ = p~ P^-1, r^ = P' r~ and so on."""
    dice = random.Random(seed)
    n, sites = 3, 4
    chain = Chain(
        [to_floats(random_doubly_stochastic(n, seed=dice, rank=dice.choice((2, 3)))) for _ in range(sites)],
        [[dice.random() for _ in range(n)] for _ in range(sites)],
        [[2 * dice.random() for _ in range(n)] for _ in range(sites)],
        [1.0] * n,
        [1.0] * n,
    )
    form = normal_form(chain)

    def rounded(x: Any) -> Matrix:
        return from_floats(np.asarray(x).astype(np.float32).astype(np.float64))

    gauge = tuple(from_floats(p) for p in form.gauge)
    inverse = [p.inv() for p in gauge]
    converted = Network(
        tuple(rounded(np.diag(g)) for g in form.gates),
        tuple(rounded(p) for p in form.reads or ()),
        tuple(rounded(r) for r in form.writes or ()),
        rounded(form.entry),
        rounded(form.readout),
    )
    reads = (
        tuple(p * inverse[l] for l, p in enumerate(converted.reads))
        if restored
        else tuple(map(from_floats, chain.reads or ()))
    )
    claimed = Network(
        tuple(gauge[l + 1] * d * inverse[l] for l, d in enumerate(converted.mixers)),
        reads,
        tuple(gauge[l + 1] * r for l, r in enumerate(converted.writes)),
        gauge[0] * converted.entry,
        converted.readout * inverse[-1],
    )
    return Case(f"seed {seed}", Stored(converted, gauge, claimed))


def _rows_one(value: Sequence[tuple[Matrix, Matrix, Matrix]]) -> Verdict:
    """P' D P^-1 1 = 1 exactly at every site."""
    for l, (before, after, gates) in enumerate(value):
        n = before.nrows()
        ones = flint.fmpq_mat(n, 1, [1] * n)
        sums = after * gates * before.solve(ones)
        if sums != ones:
            miss = max(abs(x - 1) for x in sums.entries())
            return verdict(
                False, f"site {l}: a row of A~ sums to 1 within {float(miss):.3g} only", site=l, miss=float(miss)
            )
    return verdict(True, f"A~ 1 = 1 exactly at {len(value)} sites", sites=len(value))


def _anchored_sites(seed: int, *, constant: bool = True) -> Case:
    """Random float gauges whose column 0 is one float constant and whose gate there is 1."""
    dice = np.random.default_rng(seed)
    gauge = [dice.normal(size=(4, 4)) for _ in range(5)]
    for l, p in enumerate(gauge):
        p[:, 0] = 0.1 if constant or l != 2 else np.nextafter(0.1, 1)
    gates = [np.diag([1.0, *dice.uniform(size=3)]) for _ in range(4)]
    return Case(
        f"seed {seed}", [tuple(from_floats(x) for x in (p, q, d)) for p, q, d in zip(gauge, gauge[1:], gates)]
    )


def _triangular(value: tuple[sympy.Matrix, sympy.Matrix]) -> Verdict:
    """T^T T = P^T P gives ||T Y||_F^2 = ||P Y||_F^2 for a free Y."""
    p, t = value
    y = sympy.Matrix(2, 2, sympy.symbols("y1:5"))
    size = (p * y).T * (p * y)
    stored = (t * y).T * (t * y)
    return vanishes((size - stored).trace(), "||P Y||_F^2 minus ||T Y||_F^2")


Size = Callable[[np.ndarray, np.ndarray], float]


def _by_triangle(p: np.ndarray, y: np.ndarray) -> float:
    t = np.asarray(np.linalg.qr(p, mode="r")).astype(np.float32)
    return float(np.sqrt(((t @ y.astype(np.float32)) ** 2).sum(dtype=np.float32)))


def _by_gram(p: np.ndarray, y: np.ndarray) -> float:
    gram, y32 = (p.T @ p).astype(np.float32), y.astype(np.float32)
    return float(np.sqrt(max(np.float32(0), (y32 * (gram @ y32)).sum(dtype=np.float32))))


def _relative(value: tuple[float, Size]) -> Verdict:
    """Relative error of ||X||_F in float32 from Y alone, X = P Y of every direction, at most 1e-4."""
    condition, size = value
    worst = 0.0
    for seed in range(20):
        dice = np.random.default_rng(seed)
        u, v = (np.linalg.qr(dice.normal(size=(4, 4)))[0] for _ in range(2))
        p = u @ np.diag(np.geomspace(1, 1 / condition, 4)) @ v
        y = v.T @ np.diag([0, 0, 0, 1.0]) @ dice.normal(size=(4, 8))  # the state lies where P is small
        y = y.astype(np.float32).astype(np.float64)
        true = float(np.linalg.norm(p @ y))
        worst = max(worst, abs(size(p, y) - true) / true)
    reason = f"cond {condition:g}: relative error {worst:.3g}"
    return verdict(worst <= 1e-4 * condition / 1e3, reason, condition=condition, error=worst)


P2 = sympy.Matrix(2, 2, [3, 1, 4, 2])
T2 = sympy.Matrix(2, 2, [5, sympy.Rational(11, 5), 0, sympy.Rational(2, 5)])

CLAIMS = (
    Claim(
        "P32",
        "ours",
        "certificates",
        r"$PQ = I - R$ with $\|R\|_\infty = \rho < 1$ gives $\|P^{-1}\|_\infty \leq \|Q\|_\infty / (1 - \rho)$.",
        "theorem",
        "exact certificate",
        Check(
            "Float matrices as exact rationals, Q the float inverse or a rougher one; P inverted exactly.",
            _inverse_bounded,
            counted(5, 40, _inverse_case),
            Case("without 1 - rho", _inverse_case(3, sharpened=False).value),
        ),
        hypotheses=("real square matrices; the induced max norm (row sums)",),
    ),
    Claim(
        "P33",
        "ours",
        "certificates",
        r"With $\tilde A = P' D P^{-1}$: $\|\tilde A - A\| \leq \|(P' D - A P)\,Q\| / (1 - \rho)$.",
        "theorem",
        "exact certificate",
        Check(
            "Graded float forms, everything exact from the floats on.",
            _map_near,
            counted(4, 24, _site_case),
            Case(
                "the residual alone, a column scaled by 1e-6", _site_case(1, weighted=False, conditioned=True).value
            ),
        ),
        hypotheses=("infinity norm",),
    ),
    Claim(
        "P34",
        "ours",
        "certificates",
        r"The stored network, rounding included, equals exactly the mHC with $\tilde A = P' D P^{-1}$, "
        r"$\hat p = \tilde p P^{-1}$, $\hat r = P' \tilde r$, $\hat e = P_0 \tilde e$, $\hat c = \tilde c P_L^{-1}$.",
        "theorem",
        "exact certificate",
        Check(
            "Networks converted in float64 and stored in float32, kernels compared over Q.",
            _is_exactly,
            counted(4, 30, _stored_case),
            Case("the source's own reads", _stored_case(0, restored=False).value),
        ),
        hypotheses=("every float gauge invertible",),
    ),
    Claim(
        "P35",
        "ours",
        "certificates",
        r"With one float constant in every anchor column and gate 1, $\tilde A 1 = 1$ exactly.",
        "theorem",
        "exact certificate",
        Check(
            "Random float gauges, exact rationals.",
            _rows_one,
            counted(4, 30, _anchored_sites),
            Case("one level's constant an ulp larger", _anchored_sites(0, constant=False).value),
        ),
        hypotheses=("floats taken as the rationals they hold; the stored gauge is invertible",),
    ),
    Claim(
        "P36",
        "ours",
        "RMS in the new basis",
        r"$T^T T = P^T P$ with T triangular gives $\|X\|_F = \|T Y\|_F$ for $X = PY$.",
        "theorem",
        "symbolic",
        Check(
            "Free Y.", _triangular, fixed(Case("2 x 2", (P2, T2))), Case("T = P up to a sign", (P2, sympy.diag(5, 2)))
        ),
        hypotheses=("real matrices; one norm for the whole state",),
    ),
    Claim(
        "P37",
        "ours",
        "RMS in the new basis",
        r"In float32 $\|T Y\|_F$ is right to $u\,cond(P)$; the Gram form $\sqrt{tr(Y^T P^T P Y)}$ loses "
        r"$u\,cond(P)^2$.",
        "number",
        "numeric reproduction",
        Check(
            "States in the direction P shrinks most: relative error at most 1e-7 cond(P).",
            _relative,
            fixed(*(Case(f"cond {c:g}", (c, _by_triangle)) for c in (1e2, 1e3, 1e4))),
            Case("Gram form at cond 1e3", (1e3, _by_gram)),
        ),
    ),
)
