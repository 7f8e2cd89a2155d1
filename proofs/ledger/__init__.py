"""The claims ledger: every claim of the four documents and of this project, with a status derived from checks."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import iter_modules

from streamgauge.proofs.ledger.core import DOCUMENTS, Claim


def claims() -> dict[str, Claim]:
    """Every claim by id, in order of document and id (G9 before G10).

    Raises ValueError for an id that stands twice.
    """
    from streamgauge.proofs.ledger import entries

    found: dict[str, Claim] = {}
    for module in sorted(iter_modules(entries.__path__), key=lambda m: m.name):
        for claim in import_module(f"{entries.__name__}.{module.name}").CLAIMS:
            if claim.id in found:
                raise ValueError(f"claim {claim.id}: stands twice in the ledger")
            found[claim.id] = claim
    return dict(sorted(found.items(), key=lambda item: _place(item[1])))


def _place(claim: Claim) -> tuple[int, list[int | str]]:
    order = list(DOCUMENTS)
    parts: list[int | str] = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", claim.id)]
    return order.index(claim.document), parts
