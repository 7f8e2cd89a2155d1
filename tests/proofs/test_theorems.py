"""The symbolic theorems: every hypothesis is needed, the rewriting is sound, and numbers agree with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import sympy
from mutated_module import mutated
from sympy import Identity, MatrixSymbol

from streamgauge.proofs import theorems
from streamgauge.proofs.rewriting import Prover, Rule, ScalarRule, words
from streamgauge.proofs.theorems import Theorem, proves

THEOREMS = {
    "one": theorems.theorem_one(),
    "two": theorems.theorem_two(),
    "three": theorems.theorem_three(),
    "controllers": theorems.controllers(),
}
HYPOTHESES = [(name, rule.hypothesis) for name, each in THEOREMS.items() for rule in each.rules]


@pytest.mark.parametrize("theorem", THEOREMS.values(), ids=THEOREMS)
def test_proved_from_exactly_the_hypotheses_it_lists(theorem: Theorem) -> None:
    verdict = proves(theorem)
    assert verdict, verdict.reason
    assert set(verdict.witness["hypotheses"]) == {*(rule.hypothesis for rule in theorem.rules), theorems.STATIC}


@pytest.mark.parametrize(("name", "hypothesis"), sorted(set(HYPOTHESES)))
def test_every_hypothesis_is_needed(name: str, hypothesis: str) -> None:
    verdict = proves(THEOREMS[name].without(hypothesis))
    assert not verdict
    assert verdict.witness["remains"]


def test_token_dependent_gates_need_token_dependent_writes() -> None:
    verdict = proves(theorems.theorem_three(token_dependent=True))
    assert not verdict
    assert verdict.witness["parameter"] == "write P_{l+1}^{-1} r_l"
    identities_only = replace(theorems.theorem_three(token_dependent=True), parameters={})
    assert proves(identities_only), "along one trajectory the identities hold"


WRONG = {
    "reads through P_{l+1}": ("    read = READ * now\n", "    read = READ * later\n"),
    "writes through P_l": ("(later_inv * WRITE) * found", "(now_inv * WRITE) * found"),
    "gates forgotten": ("step = gates * Y +", "step = Y +"),
    "another branch": ("found = prover.branch(", "found = prover.branch('G' + "),
    "readout kept": ("((OUT * now) * Y, OUT * X)", "(OUT * Y, OUT * X)"),
    "entry kept": ("now * ((now_inv * ENTRY) * INPUT)", "now * (ENTRY * INPUT)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rewriting_is_not_proved(name: str) -> None:
    wrong = mutated(theorems, *WRONG[name])
    assert not proves(wrong.theorem_two())


def numeric(theorem: Theorem) -> dict[str, float]:
    """Every goal evaluated with random matrices that meet the hypotheses (n = 3, d = 2): the largest difference.

    A branch's output is a random row per symbol: equal symbols, equal rows.
    """
    draw = np.random.default_rng(0).normal
    n, d = 3, 2
    a, p, y, y2 = draw(size=(n, n)), draw(size=(n, n)), draw(size=(n, d)), draw(size=(n, d))
    diagonal = np.diag([1.0, 0.0, 0.5]) if theorem.name != "Theorem 1" else np.eye(n)
    later = draw(size=(n, n))
    a = later @ diagonal @ np.linalg.inv(p) if theorem.name != "Theorem 1" else a
    s, c = 0.7, 1.4
    x = p @ y * (s if theorem.name == "Theorem 3" else 1)
    x2 = p @ y2 * (s if theorem.name == "Theorem 3" else 1)
    known = {
        "A_l": a, "A_l^-1": np.linalg.pinv(a), "D_l": diagonal, "P_l": p, "P_l^-1": np.linalg.inv(p),
        "P_l+1": later, "P_l+1^-1": np.linalg.inv(later), "p_l": draw(size=(1, n)), "r_l": draw(size=(n, 1)),
        "e": draw(size=(n, 1)), "c": draw(size=(1, n)), "x_in": draw(size=(1, d)), "V": draw(size=(n, d)),
        "T_l": np.linalg.qr(p)[1], "X_l[t]": x, "X_l[u]": x2, "Y_l[t]": y, "Y_l[u]": y2,
    }  # fmt: skip
    scalars = {"s_l": s, "s_l^-1": 1 / s, "c_l": c, "c_l^-1": 1 / c}

    def matrix(expression: object) -> np.ndarray:
        total = 0.0
        for word, scalar in words(expression).items():
            value = float(scalar.subs(scalars)) if hasattr(scalar, "subs") else float(scalar)
            product = None
            for factor in word:
                one = np.eye(n) if isinstance(factor, Identity) else entry(factor)
                product = one if product is None else product @ one
            total = total + value * product
        return total

    def entry(factor: object) -> np.ndarray:
        if isinstance(factor, sympy.matrices.expressions.transpose.Transpose):
            return entry(factor.arg).T
        if factor.name not in known:
            known[factor.name] = draw(size=(1, d))
        return known[factor.name]

    prover = Prover(theorem.rules)
    return {k: float(np.abs(matrix(u) - matrix(v)).max()) for k, (u, v) in theorem.goals(prover).items()}


@pytest.mark.parametrize("theorem", THEOREMS.values(), ids=THEOREMS)
def test_numbers_agree(theorem: Theorem) -> None:
    """A second route: the goals with numbers put in, where numpy multiplies."""
    gaps = numeric(theorem)
    assert max(gaps.values()) < 1e-10, gaps


def test_numbers_notice_a_wrong_goal() -> None:
    def goals(prover: Prover) -> dict[str, tuple[object, object]]:
        return {"wrong": (theorems.P * theorems.Y, theorems.Y)}

    assert numeric(Theorem("Theorem 2", goals, theorems.theorem_two().rules, {}))["wrong"] > 0.1


A, B = MatrixSymbol("A", theorems.N, theorems.N), MatrixSymbol("B", theorems.N, theorems.N)


def test_products_do_not_commute_and_inverses_do_not_cancel_by_themselves() -> None:
    assert Prover(()).difference(A * B, B * A) != ""
    inverse = MatrixSymbol("A^-1", theorems.N, theorems.N)
    assert Prover(()).difference(A * inverse, Identity(theorems.N)) != ""
    prover = Prover((Rule((A, inverse), Identity(theorems.N), "A is invertible"),))
    assert prover.difference(B * A * inverse * B, B * B) == ""
    assert prover.used == ["A is invertible"]


def test_sums_are_expanded_and_scalars_kept() -> None:
    t = sympy.Symbol("t")
    assert Prover(()).difference((A + t * B) * B, A * B + t * B * B) == ""
    assert Prover(()).difference((A + t * B) * B, A * B + B * B) == "(t - 1) B**2"
    inverse = sympy.Symbol("t^-1")
    prover = Prover((ScalarRule(t, inverse, "t is not 0"),))
    assert prover.difference(t * inverse * A, A) == ""
    assert prover.used == ["t is not 0"]


def test_equal_arguments_give_equal_outputs_and_others_do_not() -> None:
    prover = Prover((Rule((A, B), A, "A B = A"),))
    shape = (theorems.N, theorems.N)
    assert prover.branch("F", [A * B], shape) == prover.branch("F", [A], shape)
    assert prover.branch("F", [A * B], shape) != prover.branch("F", [B], shape)
    assert prover.branch("F", [A, B], shape) != prover.branch("F", [B, A], shape)


def test_rules_that_go_round_are_stopped() -> None:
    prover = Prover((Rule((A, B), B * A, "there"), Rule((B, A), A * B, "and back")))
    with pytest.raises(RuntimeError, match="does not end"):
        prover.normal(A * B)


def test_evidence_names_claims_of_the_ledger() -> None:
    from streamgauge.proofs.ledger import claims

    known = claims()
    for theorem, found in theorems.EVIDENCE.items():
        assert set(found) == set(theorems.LEVELS)
        for ids in found.values():
            assert set(ids) <= set(known), theorem
    assert known["TH1"].method == "symbolic"
