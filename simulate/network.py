"""The hyper-connection network: one module, the residual rule is a choice.

    X_{l+1} = A_l X_l + r_l F_l(p_l X_l),    X_0 = e x^T,    output c X_L

with the carry A_l by rule: "residual", "ihc" I; "hc" free; "mhc" doubly stochastic; "gated" diag(g); "mean-gated"
J + g (I - J); "norm-gated" c(g) diag(g).  Reads ``p = sigmoid(z) + hc_eps`` and writes ``r = post_mult sigmoid(z)``
have constant or state-dependent z.  A converted site computes p and r from W' = W (P_l (x) I) and T_l and multiplies
them by P_l and P_{l+1}^{-1} afterwards; it is the same code with three more buffers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from streamgauge.kernels import reference
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.backends import operations
from streamgauge.kernels.site import Controller as ControllerTensors
from streamgauge.simulate.config import ModelConfig, NormGateConfig
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import Recipe, recipe_named

PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_COEFFICIENT_PARTS = frozenset({"coef", "gauge", "mixer", "gates", "head", "entry"})


def is_coefficient(name: str) -> bool:
    """Whether the tensor of that name belongs to the hyper-connection, not to a branch, embedding or head matrix."""
    return "branch" not in name.split(".") and not _COEFFICIENT_PARTS.isdisjoint(name.split("."))


def mixer_from_logits(logits: Tensor, recipe: str | Recipe) -> Tensor:
    """A (..., n, n), applied as A X, from logits through a recipe with its transpose; the logits' dtype."""
    named = recipe_named(recipe) if isinstance(recipe, str) else recipe
    matrix = reference.sinkhorn(
        logits,
        order=named.order,
        start=named.start,
        start_eps=named.start_eps,
        eps=named.eps,
        eps_mode=named.eps_mode,
        iterations=named.iterations,
        temperature=named.temperature,
    )
    return matrix.mT.contiguous() if named.transpose else matrix


class Mixer(nn.Module):
    """A, stored as logits of a Sinkhorn recipe or as itself."""

    def __init__(self, n: int, recipe: str | None) -> None:
        super().__init__()
        self.recipe = recipe
        if recipe is None:
            self.matrix = nn.Parameter(torch.eye(n))
        else:
            self.logits = nn.Parameter(2 * torch.eye(n))

    def forward(self) -> Tensor:
        return self.matrix if self.recipe is None else mixer_from_logits(self.logits, self.recipe)


class Gauge(nn.Module):
    """The buffers of a converted site (read P_l, write P_{l+1}^{-1}, metric T_l) or head (no write); float64.

    Buffers, not parameters: W' and T_l are tied to P_l, so changing one alone breaks the network.
    """

    read: Tensor
    write: Tensor
    metric: Tensor

    def __init__(self, n: int, *, write: bool, metric: bool) -> None:
        super().__init__()
        for name, present in (("read", True), ("write", write), ("metric", metric)):
            if present:
                self.register_buffer(name, torch.eye(n, dtype=torch.float64))


class Controller(nn.Module):
    """z (..., groups * n): ``scale_g (weight vec X) / rms(T X) + base``; only ``base`` if static.

    ``scale`` has one number per group of n rows (read, write), or one for the head.
    """

    def __init__(self, n: int, width: int, groups: int, *, dynamic: bool, rms_eps: float) -> None:
        super().__init__()
        self.n, self.dynamic, self.rms_eps = n, dynamic, rms_eps
        if dynamic:
            self.weight = nn.Parameter(torch.randn(groups * n, n * width) * (n * width) ** -0.5)
            self.scale = nn.Parameter(torch.ones(groups))
        self.base = nn.Parameter(torch.zeros(groups * n))

    def forward(self, x: Tensor, metric: Tensor | None) -> Tensor:
        if not self.dynamic:
            return self.base
        scale = self.scale.repeat_interleave(self.n)
        z: Tensor = operations().coefficients(x, self.weight, scale, self.base, rms_eps=self.rms_eps, metric=metric)
        return z


class Site(nn.Module):
    """``X' = A X + r F(p X)`` with the branch F, any module (B, T, d) -> (B, T, d)."""

    def __init__(self, config: ModelConfig, branch: nn.Module) -> None:
        super().__init__()
        n, rule = config.streams, config.residual
        self.rule, self.n = rule, n
        self.hc_eps, self.post_mult = config.hc_eps, config.post_mult
        self.norm_gate = config.norm_gate or NormGateConfig()
        self.mixer = Mixer(n, config.recipe if config.mixer == "logits" else None) if config.mixes else None
        self.gates: nn.Parameter | None = None
        if config.gated:
            self.gates = nn.Parameter(torch.ones(()) if rule == "mean-gated" else torch.ones(n))
        dynamic = config.coefficients == "dynamic"
        self.coef = (
            None if rule == "residual" else Controller(n, config.width, 2, dynamic=dynamic, rms_eps=config.rms_eps)
        )
        self.gauge = Gauge(n, write=True, metric=dynamic) if config.gauge else None
        self.branch = branch

    def reads_writes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """p and r (..., n) as they act on the stored streams, in the coefficient dtype; constants if static."""
        if self.coef is None:
            one = x.new_ones(self.n)
            return one, one
        z = self.coef(x, getattr(self.gauge, "metric", None))
        p = torch.sigmoid(z[..., : self.n]) + self.hc_eps
        r = self.post_mult * torch.sigmoid(z[..., self.n :])
        if self.gauge is not None:
            p, r = p @ self.gauge.read, r @ self.gauge.write.mT
        return p, r

    def carry(self) -> Tensor:
        """The carry as a matrix (n, n), in the coefficient dtype (float64 if the rule has no tensors of its own)."""
        if self.mixer is not None:
            matrix: Tensor = self.mixer()
            return matrix
        if self.gates is None:
            return torch.eye(self.n, dtype=torch.float64)
        eye = torch.eye(self.n, dtype=self.gates.dtype, device=self.gates.device)
        if self.rule == "mean-gated":
            return (1 - self.gates) / self.n + self.gates * eye
        gates: Tensor = self.gates
        if self.rule == "norm-gated":
            gates = reference.norm_factor(gates, self.norm_gate.eps, self.norm_gate.cap) * gates
        return torch.diag(gates)

    def forward(self, x: Tensor) -> Tensor:
        carry: dict[str, Any] = {"mode": "identity"}
        if self.rule in ("hc", "mhc", "mean-gated"):
            carry = {"mode": "full", "mixer": self.carry()}
        elif self.rule == "norm-gated":
            carry = {"mode": "norm", "gates": self.gates, "eps": self.norm_gate.eps, "cap": self.norm_gate.cap}
        elif self.rule == "gated":
            carry = {"mode": "diag", "gates": self.gates}
        whole = getattr(operations(), "site", None)
        if whole is not None:  # one pass for the gradient of x; the reference is made of its parts
            out: Tensor = whole(x, self.branch, **self._coefficients(x), **carry)
            return out
        p, r = self.reads_writes(x)
        out = operations().write(x, self.branch(operations().read(x, p)), r, **carry)
        return out

    def _coefficients(self, x: Tensor) -> dict[str, Any]:
        """What makes reads and writes, for a whole site: the controller, or p and r themselves if static."""
        if self.coef is None or not self.coef.dynamic:
            p, r = self.reads_writes(x)
            return {"p": p, "r": r}
        activation = Activation(read_eps=self.hc_eps, write_mult=self.post_mult)
        scale = self.coef.scale.repeat_interleave(self.n)
        gauge = self.gauge
        named = {f"gauge_{k}": getattr(gauge, k) for k in ("read", "write")} if gauge is not None else {}
        metric = getattr(gauge, "metric", None)
        coef = self.coef
        made = ControllerTensors(coef.weight, scale, coef.base, activation, coef.rms_eps, metric, **named)
        return {"controller": made}


class Head(nn.Module):
    """The readout c (..., n): "linear" a learned row, "gate" ``sigmoid(z) + hc_eps`` (times P_L if converted)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n = config.streams
        self.hc_eps = config.hc_eps
        self.n, self.rms_eps = n, config.rms_eps
        self.gauge: Gauge | None = None
        self.dynamic = config.readout == "gate"
        if self.dynamic:
            self.weight = nn.Parameter(torch.randn(n, n * config.width) * (n * config.width) ** -0.5)
            self.scale = nn.Parameter(torch.ones(1))
            self.base = nn.Parameter(torch.zeros(n))
            if config.gauge:
                self.gauge = Gauge(n, write=False, metric=True)
        else:
            self.linear = nn.Parameter(torch.full((n,), 1.0 / n))

    def forward(self, x: Tensor) -> Tensor:
        if not self.dynamic:
            return self.linear
        metric = getattr(self.gauge, "metric", None)
        scale = self.scale.expand(self.n)
        z = operations().coefficients(x, self.weight, scale, self.base, rms_eps=self.rms_eps, metric=metric)
        c = torch.sigmoid(z) + self.hc_eps
        return c if self.gauge is None else c @ self.gauge.read


class HyperNetwork(nn.Module):
    """The stack of sites between entry and readout, (B, T, d) -> (B, T, d).

    ``branches``: one module per site of ``config.sites`` (their kinds are not looked at here).
    **Raises** :class:`InputError` if their number differs.
    """

    def __init__(self, config: ModelConfig, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        if len(branches) != len(config.sites):
            raise InputError(f"branches: found {len(branches)}, expected {len(config.sites)}, one per site")
        self.config = config
        if config.entry == "free":
            self.entry: nn.Parameter | None = nn.Parameter(torch.ones(config.streams))
        else:
            self.entry = None
        self.sites = nn.ModuleList(Site(config, branch) for branch in branches)
        self.head = Head(config) if config.readout in ("linear", "gate") else None

    @property
    def depth(self) -> int:
        """Number of site applications, loops included."""
        return len(self.sites) * self.config.loops

    def enter(self, x: Tensor) -> Tensor:
        """``X_0 = e x^T``: (..., d) to (..., n, d)."""
        if self.entry is None:
            return x[..., None, :].expand(*x.shape[:-1], self.config.streams, x.shape[-1])
        wide = torch.promote_types(x.dtype, self.entry.dtype)
        return (self.entry.to(wide)[:, None] * x.to(wide)[..., None, :]).to(x.dtype)

    def states(self, x: Tensor) -> list[Tensor]:
        """``[X_0, .., X_L]``, each (..., n, d), L = :attr:`depth`."""
        out = [self.enter(x)]
        for _ in range(self.config.loops):
            for site in self.sites:
                out.append(site(out[-1]))
        return out

    def leave(self, state: Tensor) -> Tensor:
        """``c X_L``: (..., n, d) to (..., d), in the state's dtype."""
        if self.head is not None:
            out: Tensor = operations().read(state, self.head(state))
            return out
        weight = 1.0 if self.config.readout == "sum" else 1.0 / self.config.streams
        wide = torch.promote_types(state.dtype, torch.float32)
        return (weight * state.to(wide).sum(-2)).to(state.dtype)

    def run(self, x: Tensor) -> Tensor:
        """``c X_L`` of the vectors x, without keeping the states."""
        state = self.enter(x)
        for _ in range(self.config.loops):
            for site in self.sites:
                state = site(state)
        return self.leave(state)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def carries(self) -> list[Tensor]:
        """A_l of every site, (n, n), in the coefficient dtype."""
        return [site.carry() for site in self._sites()]

    def _sites(self) -> list[Site]:
        return [site for site in self.sites if isinstance(site, Site)]

    def to_precision(self: Net, precision: str) -> Net:
        """State and branches in ``precision``; every hyper-connection coefficient, and its arithmetic, in float64
        for "float64" and in float32 otherwise.  In place, like ``nn.Module.to``; returns itself.

        **Raises** :class:`InputError` for any other name.
        """
        if precision not in PRECISIONS:
            raise InputError(f"precision: found {precision!r}, expected one of {', '.join(PRECISIONS)}")
        state = PRECISIONS[precision]
        coefficient = torch.float64 if precision == "float64" else torch.float32
        for name, tensor in [*self.named_parameters(), *self.named_buffers()]:
            # rotary angles stay float64 and are rounded after cos and sin
            if tensor.is_floating_point() and not name.endswith("branch.angles"):
                tensor.data = tensor.data.to(coefficient if is_coefficient(name) else state)
        return self


Net = TypeVar("Net", bound=HyperNetwork)


def precompute_mixers(network: Net) -> Net:
    """A copy whose mixers are stored as matrices: the same function bit for bit, without Sinkhorn at run time.

    The honest baseline for the cost of a network with static mixers.
    **Raises** :class:`InputError` if its mixers are not logits.
    """
    if network.config.residual != "mhc" or network.config.mixer != "logits":
        found = f"{network.config.residual!r} with mixer {network.config.mixer!r}"
        raise InputError(f"precompute_mixers: found residual {found}, expected 'mhc' with mixer 'logits'")
    out = copy.deepcopy(network)
    config = ModelConfig.from_json({**network.config.to_json(), "mixer": "matrix"})
    out.config = config
    for site in out._sites():
        if site.mixer is not None:
            made = site.mixer().detach().clone(memory_format=torch.contiguous_format)
            site.mixer = Mixer(config.streams, None)
            site.mixer.matrix = nn.Parameter(made)
    return out
