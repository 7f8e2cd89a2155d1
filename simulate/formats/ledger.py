"""Every tensor of a source is consumed, kept or dropped: the counts must add up, or nothing is written.

A converter that loses a tensor under a non-strict loader leaves a model that runs and is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError


@dataclass(frozen=True)
class Ledger:
    """Names of all tensors of a source by what became of them; ``dropped`` with the reason.

    - ``consumed``: replaced by converted tensors; ``kept``: untouched in the source.
    """

    consumed: tuple[str, ...]
    kept: tuple[str, ...]
    dropped: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """For provenance: kept tensors (a model has 10^5) as their number and the SHA-256 of their sorted names."""
        kept = hashlib.sha256("\n".join(self.kept).encode()).hexdigest()
        return {
            "source": len(self.consumed) + len(self.kept) + len(self.dropped),
            "consumed": list(self.consumed),
            "kept": len(self.kept),
            "kept_names_sha256": kept,
            "dropped": dict(self.dropped),
        }


def ledger(record: ModelRecord, shards: Shards) -> Ledger:
    """The ledger of a record. **Raises** :class:`InputError` naming a tensor that is missing or counted twice."""
    consumed = record.tensors()
    for name in (*consumed, *record.dropped):
        shards.entry(name)
    twice = sorted(set(consumed) & set(record.dropped))
    if twice:
        raise InputError(f"{shards.folder}: tensor {twice[0]} is both consumed and dropped, expected one of them")
    taken = {*consumed, *record.dropped}
    kept = tuple(sorted(name for name in shards.entries if name not in taken))
    made = Ledger(consumed, kept, dict(record.dropped))
    if len(made.consumed) + len(made.kept) + len(made.dropped) != len(shards.entries):
        raise InputError(f"{shards.folder}: {len(shards.entries)} tensors and the ledger does not add up to them")
    return made
