"""What a run of the command line gave, for the tests of tests/cli."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout as strict JSON: Python's reader would let NaN and Infinity pass."""

        def refuse(name: str) -> None:
            raise ValueError(f"{name} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


Cli = Callable[..., Ran]
