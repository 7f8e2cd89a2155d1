"""The one exception for bad input: a single line that says what was found and what was expected."""

from __future__ import annotations


class InputError(ValueError):
    """Input that cannot be used; the message is one line naming the place (file, tensor, site, field)."""
