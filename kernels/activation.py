"""From the rows of z to reads, writes and a carry: the named part of a controller, and its torch reference."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from streamgauge.kernels import reference

CARRIES = {"none": "identity", "gates": "diag", "mixer": "full"}


@dataclass(frozen=True)
class Activation:
    """``p = sigmoid(z) + read_eps``, ``r = write_mult sigmoid(z) + write_eps`` and a carry, from rows of z in order.

    ``carry``: "none" (2n rows); "gates" g = sigmoid(z) (3n rows); "mixer" (n^2 + 2n rows): Sinkhorn of the last n^2
    rows, read as (n, n) row by row, by the remaining fields (see :func:`reference.sinkhorn`), transposed if
    ``transpose``.  ``read_eps`` and the Sinkhorn's ``eps`` are separate, as is the norm's ``rms_eps``.
    **Raises** ValueError naming the field.
    """

    carry: str = "none"
    read_eps: float = 0.0
    write_mult: float = 2.0
    write_eps: float = 0.0
    order: tuple[str, str] = ("rows", "columns")
    start: str = "softmax"
    start_eps: float = 1e-6
    eps: float = 1e-6
    eps_mode: str = "add"
    iterations: int = 20
    temperature: float = 1.0
    transpose: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (
            ("carry", tuple(CARRIES)),
            ("order", (("rows", "columns"), ("columns", "rows"))),
            ("start", ("exp", "softmax")),
            ("eps_mode", ("add", "clamp", "none")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"Activation {name}: found {getattr(self, name)!r}, expected one of {allowed}")
        if self.iterations < 1:
            raise ValueError(f"Activation iterations: found {self.iterations}, expected at least 1")
        if not self.temperature > 0:
            raise ValueError(f"Activation temperature: found {self.temperature}, expected more than 0")

    @property
    def sinkhorn(self) -> dict[str, object]:
        """The keywords of a Sinkhorn call."""
        names = [f.name for f in fields(self)][4:11]
        return {name: getattr(self, name) for name in names}

    @property
    def arguments(self) -> tuple[str, list[str], list[float], int, bool]:
        """As the raw operations take it: mode, recipe, numbers, iterations, transpose."""
        numbers = [self.read_eps, self.write_mult, self.write_eps, self.start_eps, self.eps, self.temperature]
        recipe = [self.order[0], self.start, self.eps_mode]
        return CARRIES[self.carry], recipe, [float(v) for v in numbers], self.iterations, self.transpose

    def rows(self, n: int) -> int:
        """How many rows z has for n streams."""
        return 2 * n + {"none": 0, "gates": n, "mixer": n * n}[self.carry]

    def apply(self, z: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """(p, r, carry or None) from z (..., rows), in plain torch: the meaning of the kernel's last step."""
        if z.shape[-1] != self.rows(n):
            raise ValueError(f"Activation rows: found {z.shape[-1]}, expected {self.rows(n)} for {n} streams")
        p = torch.sigmoid(z[..., :n]) + self.read_eps
        r = self.write_mult * torch.sigmoid(z[..., n : 2 * n]) + self.write_eps
        last = z[..., 2 * n :]
        if self.carry == "gates":
            return p, r, torch.sigmoid(last)
        if self.carry == "mixer":
            square = last.reshape(*last.shape[:-1], n, n)
            mixer = reference.sinkhorn(square, **self.sinkhorn)  # type: ignore[arg-type]
            return p, r, mixer.mT if self.transpose else mixer
        return p, r, None
