"""Finding tensors by pattern: the keys of a checkpoint grouped into mixers and put into depth order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from streamgauge.theory.errors import InputError

ROLES = {"attn": 0, "attention": 0, "self_attn": 0, "self_attention": 0, "mlp": 1, "ffn": 1, "ff": 1, "moe": 1}
_NUMBER = re.compile(r"(?<![0-9])([0-9]+)(?![0-9])")


@dataclass(frozen=True)
class Group:
    """The tensors of one mixer: the name they share, and each by its part."""

    name: str
    parts: dict[str, str]


def grouped(keys: Iterable[str], pattern: re.Pattern[str], where: str) -> dict[str, Group]:
    """Groups of the keys that match ``pattern`` (named groups "name" and "part") in full, by name.

    **Raises** :class:`InputError` for one part found twice under two spellings.
    """
    out: dict[str, Group] = {}
    for key in sorted(keys):
        found = pattern.fullmatch(key)
        if found is None:
            continue
        group = out.setdefault(found["name"], Group(found["name"], {}))
        if found["part"] in group.parts:
            raise InputError(f"{where}: tensors {group.parts[found['part']]} and {key} are the same part of a mixer")
        group.parts[found["part"]] = key
    return out


def complete(group: Group, parts: Iterable[str], where: str) -> None:
    """Refuse a mixer some of whose tensors are missing."""
    missing = [part for part in parts if part not in group.parts]
    if missing:
        raise InputError(f"{where}: mixer {group.name} has no {', '.join(missing)}, expected {', '.join(parts)}")


def consecutive(layers: Iterable[int], where: str, wanted: int | None = None) -> list[int]:
    """Layer numbers 0 .. L-1, all there. **Raises** naming the first gap, or a depth other than the config's."""
    found = sorted(set(layers))
    expected = len(found) if wanted is None else wanted
    gaps = sorted(set(range(expected)) - set(found))
    if gaps:
        raise InputError(f"{where}: layer {gaps[0]} has no mixers, expected layers 0 to {max(expected, *found) - 1}")
    return found


def branch_of(name: str) -> str:
    """The word of a name that says which branch it wraps: its last dotted word without "hc_" or "_hc"."""
    last = name.rsplit(".", 1)[-1]
    for affix in ("_hyper_connection", "_hc", "hc_"):
        last = last.removesuffix(affix) if affix.startswith("_") else last.removeprefix(affix)
    return last


def depth_order(names: Iterable[str], where: str, given: str | None = None) -> list[str]:
    """Names in depth order: by the numbers in them, attention before MLP.  ``given``: the order by hand, commas.

    **Raises** :class:`InputError` where the names do not settle it.
    """
    known = sorted(names)
    if given is not None:
        order = [word.strip() for word in given.split(",")]
        if sorted(order) != known:
            raise InputError(f"--set order: found {', '.join(order)}, expected the mixers {', '.join(known)}")
        return order
    ranked: dict[tuple[tuple[int, ...], int], str] = {}
    for name in known:
        numbers = tuple(int(word) for word in _NUMBER.findall(name))
        role = ROLES.get(branch_of(name), -1)
        if (numbers, role) in ranked:
            other = ranked[numbers, role]
            raise InputError(
                f"{where}: mixers {other} and {name}: their names do not say which is first; give --set order=A,B,.."
            )
        ranked[numbers, role] = name
    unknown = {numbers for numbers, role in ranked if role == -1}
    for numbers, role in ranked:
        if role != -1 and numbers in unknown:
            pair = f"{ranked[numbers, -1]} and {ranked[numbers, role]}"
            raise InputError(
                f"{where}: mixers {pair}: their names do not say which is first; give --set order=A,B,.."
            )
    return [ranked[key] for key in sorted(ranked)]
