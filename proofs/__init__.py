"""Certificates and their independent checker. Exports are lazy: nothing is imported until a name is used.

The certificate of a normal form is ``streamgauge.proofs.certificate.certificate(form)``: a package attribute of that
name would be hidden by the module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamgauge.proofs.certificate import Certificate as Certificate
    from streamgauge.proofs.certificate import rank_certificate as rank_certificate
    from streamgauge.proofs.checking import check as check
    from streamgauge.proofs.model import model_certificate as model_certificate
    from streamgauge.proofs.nullstellensatz import nullstellensatz_certificate as nullstellensatz_certificate

_HOME = {
    "Certificate": "certificate",
    "check": "checking",
    "model_certificate": "model",
    "nullstellensatz_certificate": "nullstellensatz",
    "rank_certificate": "certificate",
}
__all__ = ["Certificate", "check", "model_certificate", "nullstellensatz_certificate", "rank_certificate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
