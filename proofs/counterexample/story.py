"""The counterexample told in figures: what is claimed, what was checked, and what approximating costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint

from streamgauge.proofs.certificate import Certificate
from streamgauge.proofs.counterexample import algebra, boxed, matching, search, tails
from streamgauge.proofs.counterexample.activations import (
    GELU,
    IDENTITY,
    KINDS,
    PHI,
    RELU,
    SWISH,
    Branch,
    Unit,
    ball,
    covered,
)
from streamgauge.proofs.counterexample.controls import CONTROLS, is_shifted, resetting
from streamgauge.proofs.counterexample.family import FamilyError, family_errors
from streamgauge.proofs.counterexample.networks import (
    PSI,
    computes_target,
    gated,
    mhc,
    near,
    one_more_stream,
    same_function,
    target,
    three_streams,
    wide_target,
)
from streamgauge.proofs.counterexample.search import Found
from streamgauge.theory.verdict import Verdict

ROUND_OFF, WEIGHTS = 1e-11, 16.0
"""What counts as reaching the target in the search (it reaches 73), and within which weight norm."""
STEPS = 4 + 5 * len(search.PENALTIES)


@dataclass(frozen=True)
class Line:
    """One statement, how it was checked, and whether it holds."""

    part: str
    statement: str
    verdict: Verdict


@dataclass(frozen=True)
class TailRow:
    """At Q: the remainder Q^4 - phi(phi(Q)), its bounds, and what eps Q left in the streams adds (eps = 1/100)."""

    q: float
    remainder: float
    lower: float
    upper: float
    polluted: float


@dataclass(frozen=True)
class KindRow:
    """A kind of branch: whether the theorem covers it, why (not), and whether pure iHC is known to be the target."""

    name: str
    covered: bool
    reason: str
    represented: bool


@dataclass(frozen=True)
class Story:
    """Everything the command prints and draws."""

    lines: tuple[Line, ...]
    tails: tuple[TailRow, ...]
    kinds: tuple[KindRow, ...]
    certificates: Mapping[str, Certificate]
    family: tuple[FamilyError, ...]
    searches: tuple[Found, ...]

    @property
    def ok(self) -> bool:
        """Whether every line holds."""
        return all(line.verdict for line in self.lines)


def story(*, full: bool = False, step: Callable[[], None] = lambda: None) -> Story:
    """Check everything anew; about 8 seconds, or 50 with ``full`` (a longer search).  ``step``: STEPS times."""
    certificates = {s.name: s.certificate() for s in systems()}
    lines = [*_function(), *_tails()]
    step()
    lines += _proof()
    step()
    kinds = tuple(_kind(name) for name in KINDS)
    lines += _edges(kinds)
    step()
    family = tuple(family_errors())
    step()
    searches = tuple(search.full(step) if full else search.quick(step))
    lines += [*_family(family), *_searched(searches)]
    rows = tuple(tail_row(q) for q in (1, 2, 5, 10, 20, 40, 80))
    return Story(tuple(lines), rows, kinds, certificates, family, searches)


def systems() -> list[algebra.System]:
    """The polynomial systems with their cofactors."""
    numbers = boxed.system(boxed.Boxed())
    return [algebra.seed(), algebra.embedded(), algebra.every_direction(2), boxed.general_system(), numbers]


def _function() -> list[Line]:
    part = "the function"
    return [
        Line(part, "mHC with A_0 = J is x1 + x2 + phi(phi(x1 - x2))", computes_target(mhc())),
        Line(part, "gated iHC, gates (1, 0), is the same function", computes_target(gated())),
        Line(part, "pure iHC with a third stream is the same function", computes_target(three_streams())),
    ]


def _tails() -> list[Line]:
    part, fifths = "tails, every Q >= 0", Fraction(2, 5)
    first = tails.proved_on_ray(tails.first_remainder(), fifths, Fraction(1))
    second = tails.proved_on_ray(tails.second_remainder(), Fraction(1, 2), Fraction(9, 4))
    negative = tails.proved_on_ray(tails.negative_side(), Fraction(1, 9), Fraction(1))
    acts = [tails.activation_tail(act) for act in (SWISH, GELU, RELU, IDENTITY)]
    widths = Verdict(all(acts), "for swish, gelu, relu and identity", {"activations": 4})
    return [
        Line(part, "2/5 Q^2 e^-Q <= Q^2 - phi(Q) <= Q^2 e^-Q", _ray(first)),
        Line(part, "1/2 Q^4 e^-Q <= Q^4 - phi(phi(Q)) <= 9/4 Q^4 e^-Q", _ray(second)),
        Line(part, "phi(phi(-Q)) <= Q^4 e^-2Q", _ray(negative)),
        Line(part, "t^2 e^-t <= 4/e^2", tails.largest_of_square_times_exponential()),
        Line(part, "any width: |G(z) - kappa z^2| <= sum |c_i| z^2 e^(-|v_i z|)", widths),
    ]


def _ray(found: Verdict) -> Verdict:
    """The same verdict in fewer words, where it holds."""
    facts = found.witness
    words = f"{facts['balls']} balls cover [0, {facts['from']}], monotone beyond" if found else found.reason
    return Verdict(found.ok, words, facts)


def _proof() -> list[Line]:
    part, seed = "no pure iHC", algebra.seed()
    primes = [algebra.basis_is_one(seed.polynomials, seed.variables, p) for p in (3, 5, 7, 101)]
    in_two = algebra.vanish_at(seed.polynomials, seed.in_two, 2)
    return [
        *(Line(part, f"{name}: the network is O(Q^2)", matching.growth_case(net)) for name, net in _GROWTH.items()),
        *(Line(part, f"{name}: not Q^4", matching.tail_case(net)) for name, net in _SIGNS.items()),
        Line(part, "gamma kappa c != 0: all but Q^4, Q^3, Q^2 is o(Q^2)", matching.symbolic_remainder()),
        *(Line(part, f"no common zero: {s.name}", algebra.has_no_zero(s)) for s in systems()),
        Line(part, "each of the six polynomials is needed", algebra.every_polynomial_is_needed(seed)),
        Line(part, "modulo 3, 5, 7, 101: basis {1}", Verdict(all(primes), "four Groebner bases")),
        Line(part, "modulo 2: a common zero", in_two),
    ]


_LEFT, _BOTH = Branch((Unit(v=-1, w=-1),)), Branch((Unit(), Unit(m=3, v=-1)))
_GROWTH = {
    "gamma = 0": matching.TwoSite((1, -1), (1, 1), PHI, (1, -1), (1, 2), PHI),
    "c = 0": matching.TwoSite((1, 1), (1, 0), PHI, (1, -2), (1, 2), PHI),
    "kappa = 0": matching.TwoSite((-1, 1), (1, 0), PHI, (1, 2), (1, 2), PHI),
}
_SIGNS = {
    f"c {'> 0' if c > 0 else '< 0'}, gamma kappa {'> 0' if g > 0 else '< 0'}": matching.TwoSite(
        (c, -c), (g, 0), PHI if c > 0 else _LEFT, (1, 2), (1, 2), _BOTH
    )
    for c in (1, -1)
    for g in (1, -1)
}


def _edges(kinds: tuple[KindRow, ...]) -> list[Line]:
    part = "where it ends"
    settled = all(k.covered != k.represented for k in kinds)
    boxes, equal = boxed.Boxed(), boxed.EQUAL
    inside = boxed.in_boxes(boxes.mhc()) and boxed.excluded(boxes)
    same = same_function(equal.pure(), lambda x: [equal.target(x, PSI)])
    v = (Fraction(1, 3), Fraction(2, 3), Fraction(1))
    wide = same_function(one_more_stream(3, v), wide_target(3, v), 3)
    return [
        Line(part, "each kind of branch: covered, or a network that is the target", Verdict(settled, "all settled")),
        Line(part, "inside mHC's sigmoid boxes: rho - mu omega != 0", inside),
        Line(part, "equality rho = mu omega: two streams of pure iHC do it", same),
        Line(part, "n = 3, all streams read out: four streams do it", wide),
    ]


def _kind(name: str) -> KindRow:
    found = covered(KINDS[name])
    pair = CONTROLS.get(name)
    known = pair is not None and bool(is_shifted(*pair)) and bool(computes_target(resetting(*pair)))
    return KindRow(name, found.ok, found.reason.removeprefix(f"{name}: "), known)


def _family(family: tuple[FamilyError, ...]) -> list[Line]:
    part = "approximation"
    small = [e for e in family if e.eps <= 2.0**-6]
    away = max(abs(e.exact / e.first_order - 1) for e in small)
    best = min(e.float64 for e in small), min(e.float32 for e in small)
    return [
        Line(part, "error = eps max|Q phi'(phi(Q))| (1 + O(eps))", Verdict(away < 0.01, f"within {away:.2g} of it")),
        Line(
            part,
            "floating point stops near sqrt(u)",
            Verdict(best[0] < 1e-5 and best[1] < 1e-1, f"float64 {best[0]:.2g}, float32 {best[1]:.2g}"),
        ),
    ]


def _searched(searches: tuple[Found, ...]) -> list[Line]:
    lines = []
    for found in searches:
        error = found.within(WEIGHTS)
        reached = error <= ROUND_OFF
        name = f"search, {found.kind}, width {found.width}: " + (
            "stays above round-off" if found.kind == "pure iHC" else "reaches round-off"
        )
        verdict = Verdict(reached != (found.kind == "pure iHC"), f"error {error:.2g} within weight norm {WEIGHTS:g}")
        lines.append(Line("adversary", name, verdict))
    return lines


def tail_row(q: int) -> TailRow:
    """Exact to float64."""
    with flint.ctx.workprec(400):
        x = flint.arb(q)
        scale = x**4 * (-x).exp()
        away = near(Fraction(1, 100)).run([x / 2, -x / 2])[0] - target([x / 2, -x / 2])
        remainder = tails.composed_remainder(q)
        return TailRow(q, float(remainder), float(scale / 2), float(scale * ball(Fraction(9, 4))), float(away))


def figures(told: Story) -> dict[str, Any]:
    """The story as plain data."""
    return {
        "ok": told.ok,
        "lines": [
            {"part": x.part, "statement": x.statement, "ok": x.verdict.ok, "found": x.verdict.reason}
            for x in told.lines
        ],
        "tails": [vars(row) for row in told.tails],
        "kinds": [vars(row) for row in told.kinds],
        "family": [vars(row) for row in told.family],
        "search": [
            {
                "kind": f.kind,
                "width": f.width,
                "starts": f.starts,
                "best": f.best,
                "norms": f.norms,
                "errors": f.errors,
                "within": {f"{n:g}": f.within(n) for n in (4.0, 8.0, 16.0, 32.0, 64.0)},
            }
            for f in told.searches
        ],
        "certificates": {name: made.digest for name, made in told.certificates.items()},
    }
