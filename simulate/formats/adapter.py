"""What a format module provides: how it is recognised, and the record it makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards


@dataclass(frozen=True)
class Adapter:
    """One format.

    - ``fits``: whether keys and shapes are this format's (the config is not asked).
    - ``agrees``: whether the config says so too; True, False, or None where such configs say nothing.
    - ``record``: the record.  ``reason``: for formats that are recognised and not converted, why (then no record).
    """

    name: str
    title: str
    fits: Callable[[Shards], bool]
    agrees: Callable[[Settings], bool | None]
    record: Callable[[Shards, Settings], ModelRecord] | None = None
    reason: str = ""


def says(*model_types: str) -> Callable[[Settings], bool | None]:
    """``agrees`` for formats whose config.json names a model_type."""

    def agrees(settings: Settings) -> bool | None:
        found = settings.model_types
        return any(name in model_types for name in found) if found else None

    return agrees
