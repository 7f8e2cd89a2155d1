"""The claims ledger: every claim of the four documents and of this project, with a status derived from checks."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from streamgauge.proofs.ledger.core import Claim


def claims() -> dict[str, Claim]:
    """Every claim by id, in order of document and id as the modules of ``entries`` list them.

    Raises ValueError for an id that stands twice.
    """
    from streamgauge.proofs.ledger import entries

    found: dict[str, Claim] = {}
    for module in sorted(iter_modules(entries.__path__), key=lambda m: m.name):
        for claim in import_module(f"{entries.__name__}.{module.name}").CLAIMS:
            if claim.id in found:
                raise ValueError(f"claim {claim.id}: stands twice in the ledger")
            found[claim.id] = claim
    return found
