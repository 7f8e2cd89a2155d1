"""Theorems 1 to 3 on networks that run, feature by feature; and what a change of basis does not absorb, as
controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.proofs.ledger.network_cases import (
    BACK,
    CYCLE,
    DYNAMIC,
    INVERTIBLE,
    MILD,
    NORMS,
    SINGULAR,
    STRONG,
    biased,
    compare,
    drop_metric,
    gated_pair,
    masked,
    shift_entry,
    stream_normed,
    tied,
    token_basis,
    without_biases,
)
from streamgauge.theory.form import NormGate
from streamgauge.theory.verdict import Verdict

if TYPE_CHECKING:
    from streamgauge.proofs.networks import Comparison

PRECISIONS = ("float64", "float32", "bfloat16")


def same_function(pair: Comparison | Callable[[], Comparison]) -> Verdict:
    """The comparison of :mod:`streamgauge.proofs.networks`; the pair may be given as what builds it."""
    from streamgauge.proofs import networks

    return networks.same_function(pair() if callable(pair) else pair)


def norm_in_float32(given: tuple[float, str, int]) -> Verdict:
    """The RMS formula on a basis of a condition number: (cond, formula, seed)."""
    from streamgauge.proofs import networks

    return networks.norm_in_float32(networks.rms_case(*given))


def _static_cases(level: Level) -> Iterator[Case]:
    ends = [("copy", "sum"), ("copy", "mean"), ("free", "linear")]
    for form, mixers in (("identity", INVERTIBLE), ("binary", SINGULAR), ("graded", SINGULAR)):
        for entry, readout in ends if level is Level.FULL else ends[-1:]:
            name = f"{form}, entry {entry}, readout {readout}"
            yield Case(name, compare(form, mixers=mixers, entry=entry, readout=readout))
    yield from _precisions("static", level, entry="free", readout="linear")


def _precisions(name: str, level: Level, **how: Any) -> Iterator[Case]:
    """The graded form in every precision, with and without the norm gate at level full."""
    for precision in PRECISIONS:
        for norm in ("", " + norm") if level is Level.FULL else (" + norm",):
            yield Case(f"{name}, graded{norm}, {precision}", compare(norm=NORMS[norm], precision=precision, **how))


def _dynamic_cases(level: Level) -> Iterator[Case]:
    for form, mixers in (("identity", INVERTIBLE), ("binary", SINGULAR)):
        yield Case(f"dynamic reads, writes and head, {form}", compare(form, mixers=mixers, **DYNAMIC))
    yield Case(
        "mixers from Sinkhorn logits", compare(**DYNAMIC, mixer="logits", recipe="deepseek-v4", norm=NormGate())
    )
    yield from _precisions("dynamic reads, writes and head", level, **DYNAMIC)


def _attention_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("attention only", level, sites=("attention",) * 4, **DYNAMIC)


def _bias_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("biases in gate, up and down", level, branches=biased, **DYNAMIC)


def _dropout_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("dropout 0.3, one mask for both", level, branches=masked(10), **DYNAMIC)


def _norm_cases(level: Level) -> Iterator[Case]:
    for name, norm in NORMS.items():
        if norm is not None:
            yield Case(f"gated against gated{name}", gated_pair(norm, token_dependent=False))
            for form, mixers in (("identity", INVERTIBLE), ("binary", SINGULAR), ("graded", SINGULAR)):
                if level is Level.FULL or form == "graded":
                    yield Case(f"mHC against {form}{name}", compare(form, mixers=mixers, norm=norm, **DYNAMIC))


def _tied_cases(level: Level) -> Iterator[Case]:
    eye = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    shear, unshear = [[1.0, 2, 0], [0, 1, 0], [0, 0, 1]], [[1.0, -2, 0], [0, 1, 0], [0, 0, 1]]
    yield Case("A_1 A_0 = I: a cycle and its inverse", tied((CYCLE, BACK)))
    yield Case("A_1 A_0 = I: a shear and its inverse", tied((shear, unshear), "hc"))
    yield Case("A_l = I", tied((eye, eye)))


def _stream_cases(level: Level) -> Iterator[Case]:
    yield Case("permutations", stream_normed((CYCLE, BACK, CYCLE, CYCLE)))


DEEP: dict[str, Any] = {
    "sites": ("attention", "mlp") * 6,
    "entry": "free",
    "readout": "gate",
    "coefficients": "dynamic",
}


def _precision_cases(level: Level) -> Iterator[Case]:
    for precision in ("float32", "bfloat16"):
        for seed in range(1 if level is Level.QUICK else 4):
            for norm in ("", " + norm"):
                made = compare(mixers=(STRONG,), norm=NORMS[norm], precision=precision, seed=seed, **DEEP)
                yield Case(f"12 sites, graded{norm}, {precision}, seed {seed}", made)


def _rms_cases(level: Level) -> Iterator[Case]:
    for cond in (10.0, 1e2, 1e3) if level is Level.QUICK else (10.0, 1e2, 1e3, 3e3, 1e4):
        for seed in range(3 if level is Level.QUICK else 20):
            yield Case(f"cond {cond:g}, seed {seed}", (cond, "triangular", seed))


STATIC = (
    "static mixers",
    "free entry and readout in the converted network",
    "sigmoid-boxed reads and writes of the source, real ones after the change of basis",
)


def _claim(
    id: str, section: str, statement: str, check: Check, *, note: str = "", extra: tuple[str, ...] = ()
) -> Claim:
    return Claim(
        id=id,
        document="ours",
        section=section,
        statement=statement,
        hypotheses=(*STATIC, *extra),
        kind="theorem",
        method="numeric reproduction",
        literal=check,
        needs=("torch",),
        note=note,
    )


CLAIMS = (
    _claim(
        "NET1",
        "entry and readout",
        r"Networks with static reads and writes and their identity, binary and graded forms give the same outputs, "
        r"with entry $P_0^{-1} e$ and readout $c\,P_L$ (copy or free entry; sum, mean or learned readout).",
        Check(
            "Random four-site networks with attention and SwiGLU, float64, float32 and bfloat16.",
            same_function,
            _static_cases,
            Case(
                "the source's copy entry kept as it is",
                compare("binary", spoil=shift_entry, entry="copy", readout="linear"),
            ),
        ),
    ),
    _claim(
        "NET2",
        "dynamic reads, writes, head",
        r"Networks whose reads, writes and head depend on the state convert to the same function: projection "
        r"$W (P_l \otimes I_d)$, RMS through a triangular $T_l$ with $T_l^T T_l = P_l^T P_l$.",
        Check(
            "Random four-site networks with dynamic coefficients, stored and Sinkhorn mixers, three precisions.",
            same_function,
            _dynamic_cases,
            Case("RMS of Y itself: T_l = I", compare("binary", spoil=drop_metric, **DYNAMIC)),
        ),
    ),
    _claim(
        "NET3",
        "branches across tokens",
        r"Branches may see all tokens: causal attention (with its RMS norm inside) converts, since one $P_l$ serves "
        r"every token.",
        Check(
            "Networks of four attention sites, three precisions.",
            same_function,
            _attention_cases,
            Case("odd tokens in another basis", token_basis),
        ),
    ),
    _claim(
        "NET4",
        "biases in the branch",
        r"Branches with an RMS norm and biases on gate, up and down projection convert: the branch sees the same "
        r"vector, so nothing in it changes.",
        Check(
            "Networks of four biased SwiGLU sites, three precisions.",
            same_function,
            _bias_cases,
            Case("down-projection biases lost on the way", compare(branches=biased, spoil=without_biases, **DYNAMIC)),
        ),
    ),
    _claim(
        "NET5",
        "dropout",
        r"Dropout inside branches converts when both networks draw the same mask.",
        Check(
            "Dropout 0.3 on every branch output, the mask from a seed.",
            same_function,
            _dropout_cases,
            Case("each network its own mask", compare(branches=masked(10), others=masked(50), **DYNAMIC)),
        ),
        extra=("the same dropout mask in both networks",),
    ),
    _claim(
        "NET6",
        "norm gate",
        r"Norm-gated networks with static gates, $c(g) = \min(\mathrm{cap}, \sqrt{n} / (\Vert g \Vert + "
        r"\varepsilon))$, equal the gated ones and the source.",
        Check(
            "Plain norm gate, eps = 1/10 and cap = 1. The control: gates that depend on the token, in the gated "
            "network and in its norm-gated rewriting alike; c(g(x)) then differs from token to token.",
            same_function,
            _norm_cases,
            Case("token-dependent gates under the norm gate", gated_pair(NormGate(), token_dependent=True)),
        ),
        extra=("static gates",),
        note="Token-dependent gates are not absorbed by the scales $s_l$, as TH3 says.",
    ),
    _claim(
        "NET7",
        "tied sites",
        r"A stack that is applied twice with the same weights converts if its holonomy is trivial, "
        r"$A_{L-1} \cdots A_0 = I$.",
        Check(
            "Two sites applied twice; the control has the product of two mixing matrices as its holonomy.",
            same_function,
            _tied_cases,
            Case("a holonomy other than I", tied((MILD, CYCLE))),
        ),
        extra=("the product of the mixers around the loop is I",),
        note="Otherwise $P_L$ differs from $P_0$ and no change of basis fits both rounds: loops are refused.",
    ),
    _claim(
        "NET8",
        "norms of single streams",
        r"Networks that divide every stream by its own RMS before the read convert under permutations of the "
        r"streams.",
        Check(
            "Four sites with permutation mixers; the control has mixers that mix.",
            same_function,
            _stream_cases,
            Case("mixers that mix", stream_normed((MILD,))),
        ),
        extra=("every mixer is a permutation, where each stream has a norm of its own",),
        note="A norm of each stream commutes with permutations only: the group of basis changes shrinks to them.",
    ),
    _claim(
        "NET9",
        "precision",
        r"A graded conversion costs little: its round-off is at most twice the source's own in float32 and bfloat16, "
        r"at 12 strongly mixing sites.",
        Check(
            "Ratio of errors against the source in float64; the control is the identity form of the same chain, "
            "whose basis is ill-conditioned.",
            same_function,
            _precision_cases,
            Case(
                "identity form, float32",
                compare("identity", mixers=(STRONG,), precision="float32", **DEEP),
            ),
        ),
    ),
    Claim(
        id="NET10",
        document="ours",
        section="precision of the RMS",
        statement=(
            r"The norm of the state in the new basis, taken as $\Vert T_l Y_l \Vert_F$ with a triangular $T_l$, is "
            r"right to $10^{-4}$ in float32 for bases of condition number up to $10^4$; the Gram form "
            r"$\mathrm{tr}(Y^T P^T P\,Y)$ is not, already at $10^3$."
        ),
        hypotheses=("float32 arithmetic on a float64 basis, states whose streams are of one size",),
        kind="number",
        method="numeric reproduction",
        literal=Check(
            "Random bases with singular values from 1 to 1/cond.",
            norm_in_float32,
            _rms_cases,
            Case("Gram form, cond 1e4", (1e4, "gram", 3)),
        ),
        needs=("torch",),
    ),
)
