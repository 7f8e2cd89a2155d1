"""Matrices only: chains of stream maps, their barcodes and normal forms, doubly stochastic tools, gates and costs.

Names are looked up when first used (PEP 562), so ``import streamgauge.theory`` imports nothing heavy and never torch.
A function that shares its module's name (``barcode``, ``normal_form``, ``sinkhorn``, ``birkhoff``, ``support``,
``conditioning``) is imported from that module, or from ``streamgauge`` itself: here the name is the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgauge.theory.barcode import Barcode
    from streamgauge.theory.binary import binary_form
    from streamgauge.theory.chain import Chain, fractions
    from streamgauge.theory.doubly import doubly_stochastic, marginals, random_doubly_stochastic
    from streamgauge.theory.errors import InputError
    from streamgauge.theory.form import Bar, NormalForm, NormGate, NormScales, RankLabel
    from streamgauge.theory.gates import mean_preserving_gate, norm_factor, norm_growth
    from streamgauge.theory.graded import graded_form
    from streamgauge.theory.identity import SingularSite, identity_form, invertible
    from streamgauge.theory.interval import IntervalBasis, interval_basis
    from streamgauge.theory.modular import DividedMinor, divided_minor, interval_basis_modular
    from streamgauge.theory.norm import norm_form
    from streamgauge.theory.ranks import composite, multiplicities, rank_table
    from streamgauge.theory.sinkhorn import RECIPES, Recipe, SinkhornResult
    from streamgauge.theory.support import total_support
    from streamgauge.theory.verdict import Verdict

_HOME = {
    "Bar": "form",
    "Barcode": "barcode",
    "Chain": "chain",
    "DividedMinor": "modular",
    "InputError": "errors",
    "IntervalBasis": "interval",
    "NormGate": "form",
    "NormScales": "form",
    "NormalForm": "form",
    "RECIPES": "sinkhorn",
    "RankLabel": "form",
    "Recipe": "sinkhorn",
    "SingularSite": "identity",
    "SinkhornResult": "sinkhorn",
    "Verdict": "verdict",
    "binary_form": "binary",
    "composite": "ranks",
    "divided_minor": "modular",
    "doubly_stochastic": "doubly",
    "fractions": "chain",
    "graded_form": "graded",
    "identity_form": "identity",
    "interval_basis": "interval",
    "interval_basis_modular": "modular",
    "invertible": "identity",
    "marginals": "doubly",
    "mean_preserving_gate": "gates",
    "multiplicities": "ranks",
    "norm_factor": "gates",
    "norm_form": "norm",
    "norm_growth": "gates",
    "random_doubly_stochastic": "doubly",
    "rank_table": "ranks",
    "total_support": "support",
}

__all__ = [
    "RECIPES",
    "Bar",
    "Barcode",
    "Chain",
    "DividedMinor",
    "InputError",
    "IntervalBasis",
    "NormGate",
    "NormScales",
    "NormalForm",
    "RankLabel",
    "Recipe",
    "SingularSite",
    "SinkhornResult",
    "Verdict",
    "binary_form",
    "composite",
    "divided_minor",
    "doubly_stochastic",
    "fractions",
    "graded_form",
    "identity_form",
    "interval_basis",
    "interval_basis_modular",
    "invertible",
    "marginals",
    "mean_preserving_gate",
    "multiplicities",
    "norm_factor",
    "norm_form",
    "norm_growth",
    "random_doubly_stochastic",
    "rank_table",
    "total_support",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
