"""Networks and their conversions for the claims on networks that run; torch is imported when one is built.

A builder without arguments stands for a :class:`streamgauge.proofs.networks.Comparison`, so that listing the claims
builds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from streamgauge.theory.form import NormGate

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
NORMS: dict[str, NormGate | None] = {
    "": None,
    " + norm": NormGate(),
    " + norm, eps 1/10": NormGate(0.1),
    " + norm, cap 1": NormGate(0.0, 1.0),
}
DYNAMIC: dict[str, Any] = {"coefficients": "dynamic", "entry": "free", "readout": "gate"}


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


def token_basis() -> Comparison:
    """Attention sites, and a conversion that puts odd tokens in another basis than even ones."""
    from streamgauge.proofs import network_parts, networks

    setting = config(sites=("attention",) * 4, **DYNAMIC)
    source = networks.network(setting, 0, SINGULAR)
    made = networks.converted(source, "graded", kind=network_parts.TokenBasis)
    return networks.Comparison(source, made, networks.inputs(setting))


def gated_pair(norm: NormGate, *, token_dependent: bool, seed: int = 0) -> Callable[[], Comparison]:
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


def tied(mixers: Sequence[Any], residual: str = "mhc") -> Callable[[], Comparison]:
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


def stream_normed(mixers: Sequence[Any]) -> Callable[[], Comparison]:
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


def biased(setting: ModelConfig) -> list[nn.Module]:
    """Branches with biases on all three projections."""
    from streamgauge.proofs.network_parts import BiasedMLP

    return [BiasedMLP(setting.width, setting.hidden, setting.rms_eps) for _ in setting.sites]


def masked(first: int) -> Callable[[ModelConfig], list[nn.Module]]:
    """Branches with dropout 0.3, the mask of site l drawn from the seed ``first + l``."""

    def branches(setting: ModelConfig) -> list[nn.Module]:
        from streamgauge.proofs.network_parts import Dropped
        from streamgauge.proofs.networks import plain_branches

        return [Dropped(branch, 0.3, first + l) for l, branch in enumerate(plain_branches(setting))]

    return branches


def without_biases(net: HyperNetwork) -> None:
    """A fault: the biases of the down projections are lost."""
    import torch

    with torch.no_grad():
        for name, tensor in net.named_parameters():
            if name.endswith("branch.down.bias"):
                tensor.zero_()


def shift_entry(net: HyperNetwork) -> None:
    """A fault: the entry is a copy to every stream, as in the source."""
    import torch

    with torch.no_grad():
        if net.entry is not None:
            net.entry.copy_(torch.ones_like(net.entry))


def drop_metric(net: HyperNetwork) -> None:
    """A fault: the norm is that of the state in the new basis, T_l = I."""
    import torch

    for name, buffer in net.named_buffers():
        if name.endswith("gauge.metric"):
            buffer.copy_(torch.eye(len(buffer), dtype=buffer.dtype))
