r"""Theorems 1, 2 and 3 for every number of streams n, width d and depth L, as identities that rewriting proves.

One induction serves all three.  Let ``A_l P_l = P_{l+1} D_l`` with every P_l invertible, and run

    source     X_{l+1} = A_l X_l + r_l F_l(p_l X_l),                          X_0 = e x,           output c X_L
    converted  Y_{l+1} = D_l Y_l + (P_{l+1}^{-1} r_l) F_l((p_l P_l) Y_l),     Y_0 = P_0^{-1} e x,  output (c P_L) Y_L.

If ``X_l = P_l Y_l`` then the branches get the same input, hence return the same output, whatever they are (attention
over all tokens, norms and biases inside), and ``P_{l+1} Y_{l+1} = X_{l+1}``.  Theorem 1 has ``D_l = I`` and
``P_{l+1} = A_l P_l``; Theorem 2 has D_l diagonal with entries 0 and 1; Theorem 3 multiplies D_l by a number c_l and
P_l by s_l with ``s_{l+1} = s_l / c_l``.

**Existence, for Theorem 2.**  *Lemma.*  For linear maps ``A_l : V_l -> V_{l+1}``, l = 0 .. L-1, over any field there
are bases P_l of V_l such that A_l sends every basis vector to a basis vector or to 0, and no two to the same one.  If
all V_l have one dimension, the columns can be ordered so that ``A_l P_l = P_{l+1} E_l`` with E_l diagonal, 0 or 1.

*Proof.*  By induction on l, keep a basis of every level up to l, ordered by birth, such that each vector of level l
comes from its birth level by the maps.  Start with any basis of V_0, all born at 0.  Take the vectors b_1, b_2, .. of
level l in their order.  If ``A_l b_k = sum x_i A_l b_i`` over elders i < k that survived, replace b_k *at every
level m since its birth* by ``b_k(m) - sum x_i b_i(m)``: the elders are there at all these levels; each of these
levels keeps a basis, since the change is unit triangular; the equations between these levels hold for both vectors,
hence for the difference; and no equation leads into the birth level, since b_k is nobody's image there.  Now ``A_l
b_k = 0``: it dies.  The images of the survivors are independent; complete them to a basis of V_{l+1} by newborn
vectors, younger than all.  If every dimension is n, site l has n - rank A_l deaths and as many births: give each
newborn the place of a dead vector, and E_l is diagonal.  (P_0 cannot be I in general: for n = 2 and A_0 the average
J, E_0 = I would make P_1 = J singular.)  []
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import sympy  # type: ignore[import-untyped]
from sympy import Identity, MatrixSymbol, Symbol

from streamgauge.proofs.rewriting import Expression, Prover, Rule, ScalarRule
from streamgauge.theory.verdict import Verdict

N, WIDTH = sympy.symbols("n d", integer=True, positive=True)
TOKEN = Symbol("x")
"""Stands for the input of a token: what may not occur in a parameter of a network."""

LEVELS = ("symbolic", "exact instances", "property tests", "networks")
EVIDENCE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Theorem 1": {
        "symbolic": ("TH1",),
        "exact instances": ("TH5",),
        "property tests": ("TH5",),
        "networks": ("NET1", "NET2"),
    },
    "Theorem 2": {
        "symbolic": ("TH2",),
        "exact instances": ("TH4", "TH6"),
        "property tests": ("TH4", "TH6"),
        "networks": ("NET1", "NET2"),
    },
    "Theorem 3": {
        "symbolic": ("TH3",),
        "exact instances": ("TH7",),
        "property tests": ("TH7",),
        "networks": ("NET1", "NET6"),
    },
    "controllers": {"symbolic": ("TH8",), "exact instances": (), "property tests": (), "networks": ("NET2", "NET10")},
    "counterexample": {
        "symbolic": ("G24", "CE04", "CE05", "CE13"),
        "exact instances": ("CE03", "CE06", "CE08", "CE14"),
        "property tests": (),
        "networks": ("CE16", "CE17"),
    },
}
"""Which claims of the ledger hold which kind of evidence for each theorem."""

Goals = Callable[[Prover], Mapping[str, tuple[Expression, Expression]]]


@dataclass(frozen=True)
class Theorem:
    """Equations to prove, the rules (with hypotheses) that may be used, and the converted network's parameters.

    ``goals`` builds {name: (left, right)} with a prover, which makes the branches' outputs.  ``parameters``: the
    stored numbers of the converted network; none may contain :data:`TOKEN`.
    """

    name: str
    goals: Goals
    rules: tuple[Rule | ScalarRule, ...]
    parameters: Mapping[str, Expression]

    def without(self, hypothesis: str) -> Theorem:
        """The same theorem with one hypothesis taken away: its rules may not be used."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.hypothesis != hypothesis))


STATIC = "static: every stored parameter of the converted network is the same for all inputs"


def proves(theorem: Theorem) -> Verdict:
    """Whether rewriting proves every goal and no parameter depends on the input; the witness lists the hypotheses
    used, or the goal that failed with what remains of it."""
    for name, parameter in theorem.parameters.items():
        if TOKEN in parameter.free_symbols:
            reason = f"{theorem.name}: the parameter {name} = {parameter} depends on the input"
            return Verdict(False, reason, {"parameter": name, "value": str(parameter), "needed": STATIC})
    prover = Prover(theorem.rules)
    goals = theorem.goals(prover)
    for name, (left, right) in goals.items():
        remains = prover.difference(left, right)
        if remains:
            return Verdict(False, f"{theorem.name}: {name} is not proved", {"goal": name, "remains": remains})
    used = [*prover.used, STATIC]
    reason = f"{theorem.name}: {len(goals)} identities for symbolic n, d and depth, from {len(used)} hypotheses"
    return Verdict(True, reason, {"goals": list(goals), "hypotheses": used})


def square(name: str) -> MatrixSymbol:
    """An (n, n) matrix."""
    return MatrixSymbol(name, N, N)


A, A_INV, D = square("A_l"), square("A_l^-1"), square("D_l")
P, P_INV, NEXT, NEXT_INV = square("P_l"), square("P_l^-1"), square("P_l+1"), square("P_l+1^-1")
READ, WRITE = MatrixSymbol("p_l", 1, N), MatrixSymbol("r_l", N, 1)
ENTRY, OUT, INPUT = MatrixSymbol("e", N, 1), MatrixSymbol("c", 1, N), MatrixSymbol("x_in", 1, WIDTH)
X, Y = MatrixSymbol("X_l[t]", N, WIDTH), MatrixSymbol("Y_l[t]", N, WIDTH)
X2, Y2 = MatrixSymbol("X_l[u]", N, WIDTH), MatrixSymbol("Y_l[u]", N, WIDTH)

INDUCTION = "induction hypothesis X_l = P_l Y_l, with the same P_l for every token"
FORM = "normal form: A_l P_l = P_{l+1} D_l"
INVERTIBLE = "P_{l+1} is invertible"
START = "P_l is invertible (P_0 at the entry; the induction carries it on)"
MIXER = "A_l is invertible (square, det A_l != 0)"
NONZERO = "c_l is a number other than 0 (c(0) := 1 where every gate is 0)"
SCALE = "s_l is a number other than 0 (s_0 = 1)"
STEP_RULES = (
    Rule((P, Y), X, INDUCTION),
    Rule((P, Y2), X2, INDUCTION),
)


def theorem_one() -> Theorem:
    """A chain of invertible static mixers is a pure iHC: ``D_l = I``, ``P_{l+1} = A_l P_l``."""
    gauge, inverse = A * P, P_INV * A_INV
    rules = (
        *STEP_RULES,
        Rule((A, A_INV), Identity(N), MIXER),
        Rule((A_INV, A), Identity(N), MIXER),
        Rule((P, P_INV), Identity(N), START),
        Rule((P_INV, P), Identity(N), START),
    )

    def goals(prover: Prover) -> Mapping[str, tuple[Expression, Expression]]:
        made = _simulation(prover, gauge, inverse, Identity(N), P, P_INV)
        return {
            "P_{l+1} P_{l+1}^{-1} = I": (gauge * inverse, Identity(N)),
            "P_{l+1}^{-1} P_{l+1} = I": (inverse * gauge, Identity(N)),
            "A_l P_l = P_{l+1}": (A * P, gauge),
            **made,
        }

    return Theorem("Theorem 1", goals, rules, _parameters(inverse, Identity(N), P, P_INV))


def theorem_two() -> Theorem:
    """Any normal form ``A_l P_l = P_{l+1} D_l`` of static mixers is a gated iHC.

    Nothing is asked of D_l here: 0/1 diagonal (Theorem 2), real diagonal (graded form), triangular.
    """
    rules = (
        *STEP_RULES,
        Rule((NEXT, D), A * P, FORM),
        Rule((NEXT, NEXT_INV), Identity(N), INVERTIBLE),
        Rule((P, P_INV), Identity(N), START),
    )

    def goals(prover: Prover) -> Mapping[str, tuple[Expression, Expression]]:
        return _simulation(prover, NEXT, NEXT_INV, D, P, P_INV)

    return Theorem("Theorem 2", goals, rules, _parameters(NEXT_INV, D, P, P_INV))


def theorem_three(*, token_dependent: bool = False) -> Theorem:
    """A gated iHC with static gates is a norm-gated one: ``Q_l = s_l P_l``, gates ``c_l D_l``, ``s_{l+1} = s_l /
    c_l``.

    ``token_dependent``: gates g(x) that depend on the input, c_l = c(g_l(x)): the identities hold, but the writes of
    the converted network would have to depend on the input.  (A control.)
    """
    c: Expression = sympy.Function("c_l")(TOKEN) if token_dependent else Symbol("c_l")
    c_inv: Expression = sympy.Function("c_l^-1")(TOKEN) if token_dependent else Symbol("c_l^-1")
    s, s_inv = Symbol("s_l"), Symbol("s_l^-1")
    now, now_inv = s * P, s_inv * P_INV
    later, later_inv = s * c_inv * NEXT, c * s_inv * NEXT_INV
    rules = (
        Rule((P, Y), s_inv * X, INDUCTION),
        Rule((P, Y2), s_inv * X2, INDUCTION),
        Rule((NEXT, D), A * P, FORM),
        Rule((NEXT, NEXT_INV), Identity(N), INVERTIBLE),
        Rule((P, P_INV), Identity(N), START),
        ScalarRule(c, c_inv, NONZERO),
        ScalarRule(s, s_inv, SCALE),
    )

    def goals(prover: Prover) -> Mapping[str, tuple[Expression, Expression]]:
        made = _simulation(prover, later, later_inv, c * D, now, now_inv)
        return {
            "A_l Q_l = Q_{l+1} (c_l D_l)": (A * now, later * (c * D)),
            "Q_{l+1} Q_{l+1}^{-1} = I": (later * later_inv, Identity(N)),
            **made,
        }

    # What is stored are the gates D_l: the network computes c_l itself.
    return Theorem("Theorem 3", goals, rules, _parameters(later_inv, D, now, now_inv))


def controllers() -> Theorem:
    """What a dynamic read, write or head sees, ``W vec(X) / sqrt(||X||_F^2 / (n d) + eps)``, in the new basis.

    Row m of W is an (n, d) matrix V with ``(W vec X)_m = tr(V^T X)``; the converted row is ``P_l^T V``, that is
    ``W (P_l (x) I_d)``.  The norm goes through T_l with ``T_l^T T_l = P_l^T P_l``: ``(T Y)^T (T Y) = X^T X``, whose
    trace is the squared norm.
    """
    row, metric = MatrixSymbol("V", N, WIDTH), square("T_l")
    triangular = "T_l^T T_l = P_l^T P_l"
    rules = (
        Rule((metric.T, metric), P.T * P, triangular),
        Rule((P, Y), X, INDUCTION),
        Rule((Y.T, P.T), X.T, INDUCTION),
    )

    def goals(prover: Prover) -> Mapping[str, tuple[Expression, Expression]]:
        return {
            "(P_l^T V)^T Y_l = V^T X_l": ((P.T * row).T.doit() * Y, row.T * X),
            "(T_l Y_l)^T (T_l Y_l) = X_l^T X_l": ((metric * Y).T.doit() * (metric * Y), X.T * X),
        }

    return Theorem("Controllers", goals, rules, {"P_l^T V": P.T * row, "T_l": metric})


def _simulation(
    prover: Prover, later: Expression, later_inv: Expression, gates: Expression, now: Expression, now_inv: Expression
) -> Mapping[str, tuple[Expression, Expression]]:
    """Entry, branch inputs, step and output of the converted network, against the source's; two tokens t and u stand
    for all (a branch sees both, as attention does)."""
    read = READ * now
    source = prover.branch("F", (READ * X, READ * X2), (1, WIDTH))
    found = prover.branch("F", (read * Y, read * Y2), (1, WIDTH))
    step = gates * Y + (later_inv * WRITE) * found
    return {
        "entry: P_0 Y_0 = e x": (now * ((now_inv * ENTRY) * INPUT), ENTRY * INPUT),
        "read: (p_l P_l) Y_l = p_l X_l": (read * Y, READ * X),
        "step: P_{l+1} Y_{l+1} = X_{l+1}": (later * step, A * X + WRITE * source),
        "readout: (c P_L) Y_L = c X_L": ((OUT * now) * Y, OUT * X),
    }


def _parameters(
    later_inv: Expression, gates: Expression, now: Expression, now_inv: Expression
) -> Mapping[str, Expression]:
    return {
        "gates": gates,
        "read p_l P_l": READ * now,
        "write P_{l+1}^{-1} r_l": later_inv * WRITE,
        "entry P_0^{-1} e": now_inv * ENTRY,
        "readout c P_L": OUT * now,
    }
