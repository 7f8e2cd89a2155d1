"""streamgauge: expressivity-theorem verification for hyper-connection networks.

The front door.  Every name below is looked up when it is first used (PEP 562), so ``import streamgauge`` and
``import streamgauge.theory`` import nothing heavy; what needs torch says so in one line when it is missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from streamgauge.api import (
        attach,
        check,
        convert,
        crosscheck,
        evaluate,
        example_checkpoint,
        inspect,
        inspect_format,
        restore,
        sidecar,
        verify_pointwise,
    )
    from streamgauge.proofs.certificate import Certificate, certificate, rank_certificate
    from streamgauge.theory import strategies
    from streamgauge.theory.barcode import Barcode, barcode
    from streamgauge.theory.chain import Chain
    from streamgauge.theory.conditioning import Conditioning, conditioning
    from streamgauge.theory.errors import InputError
    from streamgauge.theory.form import Bar, NormalForm, NormGate
    from streamgauge.theory.normal_form import normal_form
    from streamgauge.theory.sinkhorn import RECIPES, Recipe, sinkhorn
    from streamgauge.theory.verdict import Verdict

_HOME = {
    "Bar": "theory.form",
    "Barcode": "theory.barcode",
    "Certificate": "proofs.certificate",
    "Chain": "theory.chain",
    "Conditioning": "theory.conditioning",
    "InputError": "theory.errors",
    "NormGate": "theory.form",
    "NormalForm": "theory.form",
    "RECIPES": "theory.sinkhorn",
    "Recipe": "theory.sinkhorn",
    "Verdict": "theory.verdict",
    "attach": "api",
    "barcode": "theory.barcode",
    "certificate": "proofs.certificate",
    "check": "api",
    "conditioning": "theory.conditioning",
    "convert": "api",
    "crosscheck": "api",
    "evaluate": "api",
    "example_checkpoint": "api",
    "inspect": "api",
    "inspect_format": "api",
    "normal_form": "theory.normal_form",
    "rank_certificate": "proofs.certificate",
    "restore": "api",
    "sidecar": "api",
    "sinkhorn": "theory.sinkhorn",
    "strategies": "theory",
    "verify_pointwise": "api",
}

__all__ = [
    "RECIPES",
    "Bar",
    "Barcode",
    "Certificate",
    "Chain",
    "Conditioning",
    "InputError",
    "NormGate",
    "NormalForm",
    "Recipe",
    "Verdict",
    "__version__",
    "attach",
    "barcode",
    "certificate",
    "check",
    "conditioning",
    "convert",
    "crosscheck",
    "evaluate",
    "example_checkpoint",
    "inspect",
    "inspect_format",
    "normal_form",
    "rank_certificate",
    "restore",
    "sidecar",
    "sinkhorn",
    "strategies",
    "verify_pointwise",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.{_HOME[name]}"
    value = import_module(f"{home}.{name}") if name == "strategies" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
