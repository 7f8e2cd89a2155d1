"""Theorems 1 to 3 end to end, on networks that run: source and conversion must be the same function.

    e(net, dtype) = RMS of (output of net in dtype - float64 output of the source) / RMS of the latter

float64: e(converted) vanishes up to rounding.  Below it the source has an error of its own, and the figure is the
ratio e(converted) / e(source).  Networks run on the backend in use (:mod:`streamgauge.kernels.backends`), in float64
always on the reference. Here is also what two formulas for the RMS in the new basis lose in float32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from streamgauge.kernels import backends
from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.convert import convert_tensors
from streamgauge.simulate.crosscheck import relative_rms
from streamgauge.simulate.model import make_branch
from streamgauge.simulate.network import PRECISIONS, HyperNetwork
from streamgauge.theory.form import NormGate
from streamgauge.theory.verdict import Verdict

LIMITS = {"float64": 1e-10, "float32": 2.0, "bfloat16": 2.0}
"""float64: largest error; below: largest ratio of errors (small networks: the ratio itself scatters by a half)."""
BATCH, LENGTH = 8, 12

Branches = Callable[[ModelConfig], Sequence[nn.Module]]


@dataclass(frozen=True)
class Comparison:
    """Two float64 networks and what to compare them on: ``x`` (B, T, d), float64."""

    source: HyperNetwork
    converted: HyperNetwork
    x: Tensor
    precision: str = "float64"


def same_function(pair: Comparison) -> Verdict:
    """Whether the second network computes what the first does, in that precision; the witness has the errors."""
    device = backends.device()
    wanted = _output(pair.source, pair.x, "float64", device)
    found = relative_rms(_output(pair.converted, pair.x, pair.precision, device), wanted)
    limit = LIMITS[pair.precision]
    if pair.precision == "float64":
        word = f"relative error {found:.2g}, limit {limit:g}"
        return Verdict(found <= limit, word, {"error": found, "limit": limit})
    own = relative_rms(_output(pair.source, pair.x, pair.precision, device), wanted)
    ratio = found / own if own > 0 else float("inf")
    word = f"{pair.precision}: error {found:.2g}, source's own {own:.2g}, ratio {ratio:.3g}, limit {limit:g}"
    return Verdict(ratio <= limit, word, {"error": found, "own error": own, "ratio": ratio, "limit": limit})


def _output(network: HyperNetwork, x: Tensor, precision: str, device: str) -> Tensor:
    net = copy.deepcopy(network).to_precision(precision).eval().to(device)
    # float64 is the yardstick, and no kernel has it: always the reference.
    with torch.no_grad(), backends.using("reference" if precision == "float64" else backends.current()):
        out: Tensor = net(x.to(device, PRECISIONS[precision])).double().cpu()
    return out


def plain_branches(config: ModelConfig) -> list[nn.Module]:
    """The branches of ``config.sites``: causal attention and SwiGLU, each with its RMS norm."""
    return [make_branch(config, kind) for kind in config.sites]


def network(
    config: ModelConfig,
    seed: int,
    mixers: Sequence[Sequence[Sequence[float]]] = (),
    branches: Branches = plain_branches,
) -> HyperNetwork:
    """A float64 network with every tensor drawn from ``seed``; ``mixers``, if any, are repeated over the sites."""
    net = HyperNetwork(config, branches(config)).to_precision("float64")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted(net.named_parameters()):
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            if name.endswith("norm.weight"):
                drawn = 1 + 0.2 * drawn
            elif name.endswith("weight"):
                drawn = drawn * tensor.shape[-1] ** -0.5
            elif name.endswith("mixer.logits"):
                drawn = drawn + 2 * torch.eye(len(tensor), dtype=torch.float64)
            elif name in ("entry", "head.linear"):
                drawn = 1 + 0.5 * drawn
            tensor.copy_(drawn)
        for l, site in enumerate(net._sites() if mixers else ()):
            if site.mixer is not None:
                site.mixer.matrix.copy_(torch.tensor(mixers[l % len(mixers)], dtype=torch.float64))
    return net


def inputs(config: ModelConfig, seed: int = 0) -> Tensor:
    """(B, T, d) float64."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randn((BATCH, LENGTH, config.width), generator=generator, dtype=torch.float64)


def converted(
    source: HyperNetwork,
    form: str,
    *,
    norm: NormGate | None = None,
    branches: Branches | None = None,
    kind: type[HyperNetwork] = HyperNetwork,
) -> HyperNetwork:
    """The conversion of a network, with copies of its branches (or other ones of the same tensors)."""
    made = convert_tensors(source.config, source.state_dict(), form=form, norm=norm, place="network")
    bodies = branches(made.config) if branches else [copy.deepcopy(site.branch) for site in source._sites()]
    out = kind(made.config, bodies).to_precision("float64")
    out.load_state_dict(made.tensors)
    return out


@dataclass(frozen=True)
class RmsCase:
    """A basis P (n, n) and a state Y (n, d), float64, with the formula that finds ``||P Y||_F`` in float32:
    "triangular" ``||T Y||``, T from a QR of P, or "gram" ``sqrt(tr(Y^T (P^T P) Y))``."""

    basis: Tensor
    state: Tensor
    formula: str


RMS_LIMIT = 1e-4


def norm_in_float32(case: RmsCase) -> Verdict:
    """Whether the formula finds the Frobenius norm of P Y to 1e-4 in float32."""
    exact = float((case.basis @ case.state).norm())
    y = case.state.float()
    if case.formula == "triangular":
        square = float((torch.linalg.qr(case.basis)[1].float() @ y).square().sum())
    else:
        gram = (case.basis.mT @ case.basis).float()
        square = float((y * (gram @ y)).sum())
    cond = float(torch.linalg.cond(case.basis))
    if square < 0:
        witness = {"sum of squares": square, "cond": cond}
        return Verdict(False, f"{case.formula}: a negative sum of squares, {square:.3g}", witness)
    error = abs(square**0.5 - exact) / exact
    word = f"{case.formula}, cond {cond:.3g}: relative error {error:.2g}, limit {RMS_LIMIT:g}"
    return Verdict(error <= RMS_LIMIT, word, {"error": error, "cond": cond, "limit": RMS_LIMIT})


def rms_case(cond: float, formula: str, seed: int = 0, n: int = 4, width: int = 64) -> RmsCase:
    """A basis of that condition number, and ``Y = P^{-1} X`` of a state X with streams of one size."""
    generator = torch.Generator().manual_seed(seed)

    def turn() -> Tensor:
        orthogonal: Tensor = torch.linalg.qr(torch.randn((n, n), generator=generator, dtype=torch.float64))[0]
        return orthogonal

    basis = turn() @ torch.diag(torch.logspace(0, -torch.log10(torch.tensor(cond)).item(), n).double()) @ turn()
    x = torch.randn((n, width), generator=generator, dtype=torch.float64)
    return RmsCase(basis, torch.linalg.solve(basis, x), formula)
