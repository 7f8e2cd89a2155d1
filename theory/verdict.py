"""The outcome of a check, as data: raising is a thin wrapper on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Verdict:
    """What a predicate found.

    ``reason`` is one line in words; ``witness`` holds the numbers that show it (site, residual, bound, ...),
    also when the verdict is positive.
    """

    ok: bool
    reason: str
    witness: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.ok
