"""Which format a folder is in: keys, shapes and config together, or the name given by hand.

A format is taken if its keys and shapes fit, the config does not contradict it, and no other format does the same.
Everything else is refused with what was found and the flag that settles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgauge.simulate.formats import (
    deepseek_v4,
    deepseek_v41,
    glm5_next,
    liger,
    lucidrains,
    megatron,
    mhc_lite,
    recognised,
    tokenbender,
)
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import ModelRecord
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError

ADAPTERS: dict[str, Adapter] = {
    adapter.name: adapter
    for adapter in (
        deepseek_v4.FORMAT,
        glm5_next.FORMAT,
        deepseek_v41.FORMAT,
        liger.FORMAT,
        *megatron.FORMATS,
        mhc_lite.FORMAT,
        tokenbender.FORMAT,
        lucidrains.FORMAT,
        *recognised.FORMATS,
    )
}


@dataclass(frozen=True)
class Recognised:
    """A format that is known and not converted, with the reason."""

    name: str
    title: str
    reason: str


def read_record(
    shards: Shards, *, name: str | None = None, given: Mapping[str, str] | None = None
) -> ModelRecord | Recognised:
    """The record of a folder, or why there is none.

    ``name``: the format, where the folder does not settle it; ``given``: config fields by hand.
    **Raises** :class:`InputError`, one line, for what is ambiguous, unknown, incomplete or contradicts itself.
    """
    settings = Settings(shards.config, given)
    adapter = _named(name, shards) if name is not None else _detected(shards, settings)
    if adapter.record is None:
        return Recognised(adapter.name, adapter.title, adapter.reason)
    made = adapter.record(shards, settings)
    settings.refuse_unused()
    return made


def _named(name: str, shards: Shards) -> Adapter:
    if name not in ADAPTERS:
        raise InputError(f"--format: found {name!r}, expected one of {', '.join(ADAPTERS)}")
    adapter = ADAPTERS[name]
    if not adapter.fits(shards):
        fitting = [other.name for other in ADAPTERS.values() if other.fits(shards)]
        found = f"they fit {', '.join(fitting)}" if fitting else "they fit no known format"
        raise InputError(f"{shards.folder}: the tensors are not {adapter.title}'s; {found}")
    return adapter


def _detected(shards: Shards, settings: Settings) -> Adapter:
    fitting = [adapter for adapter in ADAPTERS.values() if adapter.fits(shards)]
    if not fitting:
        raise InputError(
            f"{shards.folder}: {len(shards.entries)} tensors, none of a known hyper-connection format; expected "
            f"one of {', '.join(ADAPTERS)}, or a description with --map"
        )
    opinions = {adapter.name: adapter.agrees(settings) for adapter in fitting}
    agreed = [adapter for adapter in fitting if opinions[adapter.name]]
    if len(agreed) == 1:
        return agreed[0]
    neutral = [adapter for adapter in fitting if _silent_by_nature(adapter)]
    if not agreed and len(neutral) == 1 and len(fitting) == 1:
        return neutral[0]
    said = ", ".join(settings.model_types) or "no model_type"
    names = " or ".join(f"--format {adapter.name}" for adapter in fitting)
    raise InputError(f"{shards.folder}: config.json says {said} and the tensors fit {_titles(fitting)}; give {names}")


def _silent_by_nature(adapter: Adapter) -> bool:
    """Formats whose configs say nothing about themselves: their keys must do."""
    return adapter.agrees(Settings({"model_type": "anything"})) is None


def _titles(adapters: list[Adapter]) -> str:
    return ", ".join(adapter.title for adapter in adapters)
