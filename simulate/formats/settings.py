"""Numbers that a format takes from its config, or from ``--set NAME=VALUE`` where the config does not say.

A missing or null field is refused by name: a default that is wrong for the model would change the function silently
(the same code ships with eps 1e-6 and 1e-5).  Fields may stand at the top or in "text_config".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamgauge.theory.errors import InputError


class Settings:
    """Fields of a config, overridden by ``given``; ``used`` records what was taken.

    **Raises** :class:`InputError` for a field that is missing, of the wrong kind, or stands twice with two values.
    """

    def __init__(self, config: Mapping[str, Any], given: Mapping[str, str] | None = None) -> None:
        self._top = config
        inner = config.get("text_config")
        self._inner: Mapping[str, Any] = inner if isinstance(inner, Mapping) else {}
        self._given = dict(given or {})
        self.used: dict[str, float | int | str] = {}

    @property
    def model_types(self) -> tuple[str, ...]:
        """What the config calls the model, outer name first."""
        found = (self._top.get("model_type"), self._inner.get("model_type"))
        return tuple(name for name in found if isinstance(name, str))

    def raw(self, name: str) -> Any:
        """The value of a field, None where there is none."""
        if name in self._given:
            return self._given[name]
        top, inner = self._top.get(name), self._inner.get(name)
        if top is not None and inner is not None and top != inner:
            raise InputError(
                f"config.json {name}: found {top!r} and, in text_config, {inner!r}; settle it with --set {name}=VALUE"
            )
        return inner if top is None else top

    def number(self, name: str, *, least: float = 0.0, most: float = 1e6, default: float | None = None) -> float:
        """A number in [least, most]; ``default`` only where the format itself fixes the value."""
        value = self.raw(name)
        if value is None and default is not None:
            value = default
        found: float = self._convert(name, value, float)
        if isinstance(value, bool) or not math.isfinite(found) or not least <= found <= most:
            raise InputError(f"config.json {name}: found {value!r}, expected a number from {least:g} to {most:g}")
        self.used[name] = found
        return found

    def integer(self, name: str, *, least: int = 1, most: int = 2**24, default: int | None = None) -> int:
        """An integer in [least, most]."""
        value = self.raw(name)
        if value is None and default is not None:
            value = default
        found: int = self._convert(name, value, int)
        if isinstance(value, bool) or (isinstance(value, float) and value != found) or not least <= found <= most:
            raise InputError(f"config.json {name}: found {value!r}, expected an integer from {least} to {most}")
        self.used[name] = found
        return found

    def choice(self, name: str, allowed: tuple[str, ...], *, default: str | None = None) -> str:
        """One of the words allowed."""
        value = self.raw(name)
        if value is None and default is not None:
            value = default
        if value is None:
            raise InputError(self._missing(name, f"one of {', '.join(allowed)}"))
        if value not in allowed:
            raise InputError(f"config.json {name}: found {value!r}, expected one of {', '.join(allowed)}")
        self.used[name] = str(value)
        return str(value)

    def refuse_unused(self) -> None:
        """A ``--set`` that nothing asked for is a misspelling, or meant for another format."""
        for name in self._given:
            if name not in self.used:
                known = ", ".join(sorted(self.used)) or "none"
                raise InputError(f"--set {name}: this format does not read it, expected one of {known}")

    def _convert(self, name: str, value: Any, kind: type) -> Any:
        if value is None:
            raise InputError(self._missing(name, "an integer" if kind is int else "a number"))
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError):
            wanted = "an integer" if kind is int else "a number"
            raise InputError(f"config.json {name}: found {value!r}, expected {wanted}") from None

    @staticmethod
    def _missing(name: str, wanted: str) -> str:
        return f"config.json {name}: missing, expected {wanted}; give it with --set {name}=VALUE"


def parse_settings(words: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` words as a dictionary."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise InputError(f"--set {word}: expected NAME=VALUE")
        if name in out:
            raise InputError(f"--set {name}: given twice, expected once")
        out[name] = value
    return out
