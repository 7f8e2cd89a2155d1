"""What a network is: :class:`ModelConfig`, and its place in ``config.json``.

    {"format": "streamgauge", "format_version": 1, "model": {...}, ...}

Inside "model" an unknown key is refused by name, because a misspelt or newer field would silently change the
function; a missing or null field takes its documented default, or is named where it has none.  Other keys at the top
("training", "conversion", ...) say nothing about the function: they are kept as they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgauge.theory.errors import InputError

FORMAT = "streamgauge"
FORMAT_VERSION = 1
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127

RESIDUALS = ("residual", "hc", "mhc", "ihc", "gated", "mean-gated", "norm-gated")
CHOICES: dict[str, tuple[str, ...]] = {
    "residual": RESIDUALS,
    "coefficients": ("static", "dynamic"),
    "mixer": ("logits", "matrix"),
    "entry": ("copy", "free"),
    "readout": ("sum", "mean", "linear", "gate"),
}
BRANCHES = ("attention", "mlp")
CONVERTED = ("ihc", "gated", "norm-gated")
"""Residual rules that a converted network (``gauge`` = true) may have."""


@dataclass(frozen=True)
class NormGateConfig:
    """``c(g) = min(cap, sqrt(n) / (||g||_2 + eps))``."""

    eps: float = 0.0
    cap: float | None = None


@dataclass(frozen=True)
class ModelConfig:
    """The residual rule, its coefficients and the byte language model around it (n streams, d = width).

    - ``sites``: the branch of every site in order, "attention" or "mlp".
    - ``residual``: the carry.  "residual" X (n = 1, no coefficients); "hc" a free A X; "mhc" A X with A doubly
      stochastic; "ihc" X; "gated" diag(g) X; "mean-gated" (J + g (I - J)) X; "norm-gated" c(g) diag(g) X.
    - ``coefficients``: reads ``sigmoid(z) + hc_eps`` and writes ``post_mult sigmoid(z)`` with z a constant
      ("static") or a function of the state ("dynamic").
    - ``mixer``: whether mHC stores A as "logits", made doubly stochastic by the Sinkhorn ``recipe`` of that name, or
      as the "matrix" A itself.  HC always stores the matrix.  Other rules ignore both fields.
    - ``entry``: X_0 = e x^T with e = 1 ("copy") or learned ("free").  ``readout``: "sum" | "mean" | "linear" (a
      learned row) | "gate" (a learned dynamic row).
    - ``loops``: the stack is applied that many times with the same weights.
    - ``gauge``: a converted network, whose sites carry P_l, P_{l+1}^{-1} and T_l.

    **Raises** :class:`InputError`, one line naming the field.
    """

    context: int
    width: int
    streams: int
    sites: tuple[str, ...]
    heads: int
    hidden: int
    residual: str
    coefficients: str = "dynamic"
    mixer: str = "matrix"
    recipe: str | None = None
    vocab: int = 256
    rms_eps: float = 1e-6
    hc_eps: float = 1e-6
    post_mult: float = 2.0
    entry: str = "copy"
    readout: str = "sum"
    loops: int = 1
    gauge: bool = False
    norm_gate: NormGateConfig | None = field(default=None)

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            _choice(name, getattr(self, name), choices)
        for name in ("vocab", "context", "width", "streams", "heads", "hidden", "loops"):
            _positive_int(name, getattr(self, name), 1024 if name == "streams" else 2**24)
        for name, least in (("rms_eps", 0.0), ("hc_eps", 0.0), ("post_mult", 0.0)):
            _number(name, getattr(self, name), least)
        if not isinstance(self.gauge, bool):
            raise InputError(f"config model.gauge: found {self.gauge!r}, expected true or false")
        if not isinstance(self.sites, list | tuple):
            raise InputError(f"config model.sites: found {self.sites!r}, expected a list of branch kinds")
        if len(self.sites) > 10_000:
            raise InputError(f"config model.sites: found {len(self.sites)} sites, expected at most 10000")
        for l, kind in enumerate(self.sites):
            _choice(f"sites[{l}]", kind, BRANCHES)
        object.__setattr__(self, "sites", tuple(self.sites))
        if self.residual == "norm-gated" and self.norm_gate is None:
            object.__setattr__(self, "norm_gate", NormGateConfig())
        self._check_together()

    def _check_together(self) -> None:
        if self.width % (2 * self.heads):
            raise InputError(f"config model.heads: found {self.heads}, expected width / heads even ({self.width})")
        if self.residual == "residual" and self.streams != 1:
            raise InputError(f"config model.streams: found {self.streams}, expected 1 for residual 'residual'")
        if self.residual == "hc" and self.mixer != "matrix":
            raise InputError(f"config model.mixer: found {self.mixer!r}, expected 'matrix' for residual 'hc'")
        if self.residual == "mhc" and self.mixer == "logits":
            self._check_recipe()
        if self.gauge:
            for name, allowed in (("residual", CONVERTED), ("entry", ("free",)), ("readout", ("linear", "gate"))):
                value = getattr(self, name)
                if value not in allowed:
                    wanted = " or ".join(map(repr, allowed))
                    raise InputError(f"config model.{name}: found {value!r}, expected {wanted} with gauge true")
            if self.loops != 1:
                raise InputError(f"config model.loops: found {self.loops}, expected 1 with gauge true")

    def _check_recipe(self) -> None:
        from streamgauge.theory.sinkhorn import RECIPES

        if not isinstance(self.recipe, str) or self.recipe not in RECIPES:
            known = ", ".join(RECIPES)
            raise InputError(f"config model.recipe: found {self.recipe!r}, expected a Sinkhorn recipe: {known}")

    @property
    def mixes(self) -> bool:
        """Whether the sites store a mixing matrix."""
        return self.residual in ("hc", "mhc")

    @property
    def gated(self) -> bool:
        """Whether the sites store gates."""
        return self.residual in ("gated", "mean-gated", "norm-gated")

    def to_json(self) -> dict[str, Any]:
        """The "model" object of config.json."""
        out = dataclasses.asdict(self)
        out["sites"] = list(self.sites)
        return out

    @classmethod
    def from_json(cls, model: Any) -> ModelConfig:
        """The inverse of :meth:`to_json`; defaults fill in missing and null fields."""
        if not isinstance(model, Mapping):
            raise InputError(f"config model: found {type(model).__name__}, expected an object")
        fields = {f.name: f for f in dataclasses.fields(cls)}
        for key in model:
            if key not in fields:
                raise InputError(f"config model.{key}: unknown field, expected one of {', '.join(fields)}")
        given: dict[str, Any] = {}
        for name, spec in fields.items():
            value = model.get(name)
            if value is not None:
                given[name] = _norm_gate(value) if name == "norm_gate" else value
            elif spec.default is dataclasses.MISSING:
                raise InputError(f"config model.{name}: missing, expected a value (it has no default)")
        return cls(**given)


def to_document(config: ModelConfig, metadata: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole of config.json: the model and, beside it, ``metadata`` ("training", "conversion", ...)."""
    reserved = {"format", "format_version", "model"}
    extra = {key: value for key, value in (metadata or {}).items() if key not in reserved}
    return {"format": FORMAT, "format_version": FORMAT_VERSION, "model": config.to_json(), **extra}


def from_document(document: Any) -> tuple[ModelConfig, dict[str, Any]]:
    """The model and the metadata of a config.json document."""
    if not isinstance(document, Mapping):
        raise InputError(f"config: found {type(document).__name__}, expected an object")
    if document.get("format") != FORMAT:
        foreign = "; another program's checkpoint: sg.sidecar, sg.inspect_format" if "model_type" in document else ""
        raise InputError(f"config format: found {document.get('format')!r}, expected {FORMAT!r}{foreign}")
    version = document.get("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise InputError(f"config format_version: found {version!r}, expected {FORMAT_VERSION}")
    if "model" not in document:
        raise InputError("config model: missing, expected an object")
    config = ModelConfig.from_json(document["model"])
    return config, {k: v for k, v in document.items() if k not in ("format", "format_version", "model")}


def _norm_gate(value: Any) -> NormGateConfig:
    if not isinstance(value, Mapping) or not set(value) <= {"eps", "cap"}:
        raise InputError(
            f"config model.norm_gate: found {value!r}, expected {{'eps': number, 'cap': number or null}}"
        )
    eps, cap = value.get("eps", 0.0), value.get("cap")
    _number("norm_gate.eps", eps, 0.0)
    if cap is not None:
        _number("norm_gate.cap", cap, 0.0)
        if cap == 0:
            raise InputError("config model.norm_gate.cap: found 0, expected a positive number or null")
    return NormGateConfig(float(eps), None if cap is None else float(cap))


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"config model.{name}: found {value!r}, expected one of {', '.join(choices)}")


def _positive_int(name: str, value: Any, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"config model.{name}: found {value!r}, expected a positive integer")
    if value > most:  # a tensor's size must fit in 64 bits, or torch fails without naming the field
        shown = value if value < 10**18 else f"about 2^{value.bit_length() - 1}"
        raise InputError(f"config model.{name}: found {shown}, expected at most {most}")


def _number(name: str, value: Any, least: float) -> None:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 2**64:
        raise InputError(f"config model.{name}: found an integer beyond 2^64, expected a finite number >= {least:g}")
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < least:
        raise InputError(f"config model.{name}: found {value!r}, expected a finite number >= {least:g}")
    if value > FLOAT32_MAX:  # networks in float32 and below compute with it in float32
        raise InputError(f"config model.{name}: found {value!r}, expected at most {FLOAT32_MAX:.6g} (float32)")
