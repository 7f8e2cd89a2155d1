"""A theory module with one line changed, to see whether the checks notice."""

from __future__ import annotations

import inspect
import itertools
import sys
from types import ModuleType

import pytest

_count = itertools.count()


def mutated(module: ModuleType, old: str, new: str) -> ModuleType:
    """A copy of ``module`` whose source has ``old``, which must stand there exactly once, replaced by ``new``."""
    source = inspect.getsource(module)
    found = source.count(old)
    if found != 1:
        raise LookupError(f"{module.__name__}: {old!r} stands there {found} times, expected once")
    copy = ModuleType(f"mutant_{next(_count)}")
    copy.__file__ = module.__file__
    sys.modules[copy.__name__] = copy  # dataclasses look their module up
    exec(compile(source.replace(old, new), f"<mutant of {module.__name__}>", "exec"), copy.__dict__)
    return copy


def assert_passes(battery, *arguments) -> None:
    """The battery of checks on what is not mutated: it raises where it fails, with the reason in the traceback."""
    battery(*arguments)


def survives(battery, module: ModuleType) -> bool:
    """Whether the battery of checks passes on the module. A crash is a kill too."""
    try:
        battery(module)
    except (Exception, pytest.fail.Exception):  # pytest.raises fails with the latter
        return False
    return True
