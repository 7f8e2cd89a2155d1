"""Refusals: bad input is told in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streamgauge.theory.errors import InputError


def assert_refused(call: Callable[[], object], message: str) -> None:
    """``call`` raises :class:`InputError` whose one line matches ``message`` (a regular expression)."""
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
