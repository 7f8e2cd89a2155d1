"""Theorems 1 to 3 on networks that run, feature by feature; and what a change of basis does not absorb, as
controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamgauge.proofs.ledger.core import Case, Check, Claim, Level
from streamgauge.theory.form import NormGate
from streamgauge.theory.verdict import Verdict

if TYPE_CHECKING:
    from torch import nn

    from streamgauge.proofs.networks import Comparison
    from streamgauge.simulate.config import ModelConfig
    from streamgauge.simulate.network import HyperNetwork

MILD = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]
AVERAGED = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
CYCLE = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
BACK = [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
STRONG = [[0.4, 0.35, 0.25], [0.3, 0.4, 0.3], [0.3, 0.25, 0.45]]
INVERTIBLE, SINGULAR = (MILD, CYCLE, MILD, MILD), (MILD, AVERAGED, CYCLE, AVERAGED)
PRECISIONS = ("float64", "float32", "bfloat16")
NORMS: dict[str, NormGate | None] = {
    "": None,
    " + norm": NormGate(),
    " + norm, eps 1/10": NormGate(0.1),
    " + norm, cap 1": NormGate(0.0, 1.0),
}


def same_function(pair: Comparison | Callable[[], Comparison]) -> Verdict:
    """The comparison of :mod:`streamgauge.proofs.networks`; the pair may be given as what builds it."""
    from streamgauge.proofs import networks

    return networks.same_function(pair() if callable(pair) else pair)


def norm_in_float32(given: tuple[float, str, int]) -> Verdict:
    """The RMS formula on a basis of a condition number: (cond, formula, seed)."""
    from streamgauge.proofs import networks

    return networks.norm_in_float32(networks.rms_case(*given))


def config(**changes: Any) -> ModelConfig:
    """A small network: four sites, three streams, static coefficients, stored mixers."""
    from streamgauge.simulate.config import ModelConfig

    base: dict[str, Any] = {
        "context": 16,
        "width": 16,
        "streams": 3,
        "sites": ("attention", "mlp", "attention", "mlp"),
        "heads": 2,
        "hidden": 24,
        "residual": "mhc",
        "coefficients": "static",
        "mixer": "matrix",
    }
    return ModelConfig(**{**base, **changes})


def compare(
    form: str = "graded",
    *,
    mixers: Sequence[Any] = SINGULAR,
    norm: NormGate | None = None,
    precision: str = "float64",
    seed: int = 0,
    branches: Callable[[ModelConfig], list[nn.Module]] | None = None,
    others: Callable[[ModelConfig], list[nn.Module]] | None = None,
    spoil: Callable[[HyperNetwork], None] | None = None,
    **changes: Any,
) -> Callable[[], Comparison]:
    """What builds a network and its conversion; ``others``: branches of the conversion; ``spoil``: a fault put in."""

    def build() -> Comparison:
        from streamgauge.proofs import networks

        setting = config(**changes)
        given = () if setting.mixer == "logits" else mixers
        source = networks.network(setting, seed, given, branches or networks.plain_branches)
        made = networks.converted(source, form, norm=norm, branches=others)
        if spoil is not None:
            spoil(made)
        return networks.Comparison(source, made, networks.inputs(setting, seed), precision)

    return build


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


DYNAMIC: dict[str, Any] = {"coefficients": "dynamic", "entry": "free", "readout": "gate"}


def _dynamic_cases(level: Level) -> Iterator[Case]:
    for form, mixers in (("identity", INVERTIBLE), ("binary", SINGULAR)):
        yield Case(f"dynamic reads, writes and head, {form}", compare(form, mixers=mixers, **DYNAMIC))
    yield Case(
        "mixers from Sinkhorn logits", compare(**DYNAMIC, mixer="logits", recipe="deepseek-v4", norm=NormGate())
    )
    yield from _precisions("dynamic reads, writes and head", level, **DYNAMIC)


def _attention_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("attention only", level, sites=("attention",) * 4, **DYNAMIC)


def _token_basis() -> Comparison:
    from streamgauge.proofs import network_parts, networks

    setting = config(sites=("attention",) * 4, **DYNAMIC)
    source = networks.network(setting, 0, SINGULAR)
    made = networks.converted(source, "graded", kind=network_parts.TokenBasis)
    return networks.Comparison(source, made, networks.inputs(setting))


def _biased(setting: ModelConfig) -> list[nn.Module]:
    from streamgauge.proofs.network_parts import BiasedMLP

    return [BiasedMLP(setting.width, setting.hidden, setting.rms_eps) for _ in setting.sites]


def _bias_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("biases in gate, up and down", level, branches=_biased, **DYNAMIC)


def _without_biases(net: HyperNetwork) -> None:
    import torch

    with torch.no_grad():
        for name, tensor in net.named_parameters():
            if name.endswith("branch.down.bias"):
                tensor.zero_()


def _masked(first: int) -> Callable[[ModelConfig], list[nn.Module]]:
    def branches(setting: ModelConfig) -> list[nn.Module]:
        from streamgauge.proofs.network_parts import Dropped
        from streamgauge.proofs.networks import plain_branches

        return [Dropped(branch, 0.3, first + l) for l, branch in enumerate(plain_branches(setting))]

    return branches


def _dropout_cases(level: Level) -> Iterator[Case]:
    yield from _precisions("dropout 0.3, one mask for both", level, branches=_masked(10), **DYNAMIC)


def _gated_pair(norm: NormGate, *, token_dependent: bool, seed: int = 0) -> Callable[[], Comparison]:
    """A gated network and the norm-gated one of the same source; with gates that depend on the token in both."""

    def build() -> Comparison:
        import torch

        from streamgauge.proofs import network_parts, networks

        setting = config(entry="free", readout="linear")
        source = networks.network(setting, seed, INVERTIBLE)
        gated, normed = (networks.converted(source, "graded", norm=gate) for gate in (None, norm))
        if token_dependent:
            generator = torch.Generator().manual_seed(seed)
            shape = (setting.streams, setting.streams, setting.width)
            for l in range(len(setting.sites)):
                direction = torch.randn(shape, generator=generator, dtype=torch.float64)
                for net in (gated, normed):
                    net.sites[l] = network_parts.TokenGated.of(net._sites()[l], direction)
        return networks.Comparison(gated, normed, networks.inputs(setting, seed))

    return build


def _norm_cases(level: Level) -> Iterator[Case]:
    for name, norm in NORMS.items():
        if norm is not None:
            yield Case(f"gated against gated{name}", _gated_pair(norm, token_dependent=False))
            for form, mixers in (("identity", INVERTIBLE), ("binary", SINGULAR), ("graded", SINGULAR)):
                if level is Level.FULL or form == "graded":
                    yield Case(f"mHC against {form}{name}", compare(form, mixers=mixers, norm=norm, **DYNAMIC))


def _tied(mixers: Sequence[Any], residual: str = "mhc") -> Callable[[], Comparison]:
    """A stack of two sites applied twice with the same weights, and its conversion applied twice."""

    def build() -> Comparison:
        from streamgauge.proofs import network_parts, networks

        setting = config(sites=("attention", "mlp"), entry="free", readout="linear", residual=residual)
        source = networks.network(setting, 0, mixers)
        looped = network_parts.Twice(setting, [site.branch for site in source._sites()]).to_precision("float64")
        looped.load_state_dict(source.state_dict())
        made = networks.converted(source, "identity", kind=network_parts.Twice)
        return networks.Comparison(looped, made, networks.inputs(setting))

    return build


def _tied_cases(level: Level) -> Iterator[Case]:
    eye = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    shear, unshear = [[1.0, 2, 0], [0, 1, 0], [0, 0, 1]], [[1.0, -2, 0], [0, 1, 0], [0, 0, 1]]
    yield Case("A_1 A_0 = I: a cycle and its inverse", _tied((CYCLE, BACK)))
    yield Case("A_1 A_0 = I: a shear and its inverse", _tied((shear, unshear), "hc"))
    yield Case("A_l = I", _tied((eye, eye)))


def _stream_normed(mixers: Sequence[Any]) -> Callable[[], Comparison]:
    """Every site reads from streams divided by their own RMS, in the source and in the conversion."""

    def build() -> Comparison:
        from streamgauge.proofs import network_parts, networks

        setting = config(entry="free", readout="linear")
        source = networks.network(setting, 0, mixers)
        made = networks.converted(source, "identity")
        for net in (source, made):
            for l, site in enumerate(net._sites()):
                net.sites[l] = network_parts.StreamNormed.of(site)
        return networks.Comparison(source, made, networks.inputs(setting))

    return build


def _stream_cases(level: Level) -> Iterator[Case]:
    yield Case("permutations", _stream_normed((CYCLE, BACK, CYCLE, CYCLE)))


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


def _shift_entry(net: HyperNetwork) -> None:
    import torch

    with torch.no_grad():
        if net.entry is not None:
            net.entry.copy_(torch.ones_like(net.entry))


def _drop_metric(net: HyperNetwork) -> None:
    import torch

    for name, buffer in net.named_buffers():
        if name.endswith("gauge.metric"):
            buffer.copy_(torch.eye(len(buffer), dtype=buffer.dtype))


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
                compare("binary", spoil=_shift_entry, entry="copy", readout="linear"),
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
            Case("RMS of Y itself: T_l = I", compare("binary", spoil=_drop_metric, **DYNAMIC)),
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
            Case("odd tokens in another basis", _token_basis),
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
            Case(
                "down-projection biases lost on the way", compare(branches=_biased, spoil=_without_biases, **DYNAMIC)
            ),
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
            Case("each network its own mask", compare(branches=_masked(10), others=_masked(50), **DYNAMIC)),
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
            Case("token-dependent gates under the norm gate", _gated_pair(NormGate(), token_dependent=True)),
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
            Case("a holonomy other than I", _tied((MILD, CYCLE))),
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
            Case("mixers that mix", _stream_normed((MILD,))),
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
