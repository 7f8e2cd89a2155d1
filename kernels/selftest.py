"""Every kernel, forward and every gradient, against the reference in float64 on the same rounded inputs.

An error is relative to the largest entry of the reference.  Its tolerance follows from the dtypes: one unit roundoff
of the dtype it is stored in for every rounding to the state's dtype on the way, and two units of float32 for every
term of the longest sum.  Not a number, or infinite, is a miss.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels.processes import ask, question
from streamgauge.kernels.situations import STATE, Situation, gradients

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SHAPES = ((4, 72, 33), (3, 40, 5))
"""(n, d, tokens): off every tile, with n a power of two and not."""
DEVICE_SHAPES = (*SHAPES, (4, 4096, 257), (1, 1000, 64), (8, 513, 33))


@dataclass(frozen=True)
class Comparison:
    """One output ("out 0", ..) or gradient ("d x", ..); ``repeats``: whether a second run gave the same bits."""

    op: str
    mode: str
    dtype: str
    shape: tuple[int, int, int]
    quantity: str
    error: float
    tolerance: float
    repeats: bool

    @property
    def ok(self) -> bool:
        """Within tolerance, and the same twice."""
        return self.error <= self.tolerance and self.repeats


def compare(
    situation: Situation, shape: tuple[int, int, int], dtype: str, *, device: str = "cpu", runs: int = 1
) -> list[Comparison]:
    """All quantities of one situation; ``runs`` above 1 compares the bits of further runs with those of the first."""
    n, d, tokens = shape
    tensors = situation.draw(n, d, tokens, dtype=DTYPES[dtype], device=device, seed=n)
    exact = {name: value.detach().double().requires_grad_() for name, value in tensors.items()}
    generator = torch.Generator().manual_seed(n + 1)
    expected = situation.run("reference", exact)
    cotangents = [torch.randn(out.shape, generator=generator).to(device) for out in expected]
    found = _quantities(situation, "triton", tensors, cotangents)
    same = dict.fromkeys(found, True)
    for _ in range(runs - 1):
        again = _quantities(situation, "triton", tensors, cotangents)
        same = {name: same[name] and torch.equal(found[name], again[name]) for name in found}
    wide = [c.to(out.dtype).double() for c, out in zip(cotangents, situation.run("triton", tensors))]
    named = {f"out {i}": out for i, out in enumerate(expected)}
    named |= {f"d {name}": value for name, value in gradients(expected, exact, wide).items()}
    return [
        Comparison(
            situation.op,
            situation.mode,
            dtype,
            shape,
            name,
            _error(found[name], value),
            tolerance(situation, shape, found[name].dtype, DTYPES[dtype]),
            same[name],
        )
        for name, value in named.items()
    ]


def _quantities(
    situation: Situation, backend: str, tensors: Mapping[str, Tensor], cotangents: Sequence[Tensor]
) -> dict[str, Tensor]:
    outputs = situation.run(backend, tensors)
    given = [c.to(out.dtype) for c, out in zip(cotangents, outputs)]
    found = {f"out {i}": out.detach() for i, out in enumerate(outputs)}
    return found | {f"d {name}": value for name, value in gradients(outputs, tensors, given).items()}


def tolerance(situation: Situation, shape: tuple[int, int, int], stored: torch.dtype, state: torch.dtype) -> float:
    """See the module; ``stored`` is the quantity's own dtype, ``state`` that of x."""
    unit = torch.finfo(stored).eps / 2
    if situation.roundings > 1:
        unit = situation.roundings * max(unit, torch.finfo(state).eps / 2)
    return unit + situation.terms(*shape) * torch.finfo(torch.float32).eps


def _error(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        return math.inf
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    off = float((found.double() - expected).abs().max()) if expected.numel() else 0.0
    return off / (largest or 1.0) if math.isfinite(off) else math.inf


def rows(
    dtypes: Iterable[str] = tuple(DTYPES),
    *,
    shapes: Iterable[Sequence[int]] = SHAPES,
    device: str = "cpu",
    runs: int = 1,
    names: Sequence[str] | None = None,
) -> list[Comparison]:
    """Every situation (or those named) in this process: it must interpret on "cpu" and compile on "cuda"."""
    from streamgauge.kernels.situations import SITUATIONS

    found = []
    for shape in shapes:
        n, d, tokens = shape
        for dtype in dtypes:
            for situation in SITUATIONS:
                if names is not None and situation.name not in names:
                    continue
                # A situation without a state in it has no other dtype than float32.
                if dtype == "float32" or any(name in STATE for name in situation.shapes(n, d, tokens)):
                    found += _compared(situation, (n, d, tokens), dtype, device, runs)
    return found


def _compared(
    situation: Situation, shape: tuple[int, int, int], dtype: str, device: str, runs: int
) -> list[Comparison]:
    """A kernel that does not even run is one miss among the others: the rest is still compared."""
    try:
        return compare(situation, shape, dtype, device=device, runs=runs)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        return [Comparison(situation.op, situation.mode, dtype, shape, said[:200], math.inf, 0.0, True)]


def interpreted(dtypes: Sequence[str] = tuple(DTYPES), names: Sequence[str] | None = None) -> list[Comparison]:
    """:func:`rows` in the interpreter, in two fresh processes side by side; float32 has a half of its own."""
    first = (len(dtypes) + 1) // 3 or 1
    questions = [{"dtypes": list(part), "names": names} for part in (dtypes[:first], dtypes[first:]) if part]
    return _asked(questions, interpret=True)


def on_device(
    dtypes: Sequence[str] = tuple(DTYPES), *, runs: int = 2, patience: float | None = None
) -> list[Comparison]:
    """:func:`rows` on the CUDA device, every run repeated; side by side, since compiling takes longest.

    **Raises** RuntimeError where one of the processes dies, or is not done after ``patience`` seconds.
    """
    shared: dict[str, Any] = {"device": "cuda", "runs": runs}
    questions = [{"dtypes": [dtype], "shapes": [list(s)], **shared} for dtype in dtypes for s in DEVICE_SHAPES]
    return _asked(questions, interpret=False, patience=patience)


def _asked(
    questions: Sequence[Mapping[str, Any]], *, interpret: bool, patience: float | None = None
) -> list[Comparison]:
    def one(asked: Mapping[str, Any]) -> Any:
        module = "streamgauge.kernels.selftest"
        return ask(module, asked, interpret=interpret, keep_cache=not interpret, patience=patience)

    with ThreadPoolExecutor(min(len(questions), os.cpu_count() or 1)) as pool:
        answers = list(pool.map(one, questions))
    return [Comparison(**{**row, "shape": tuple(row["shape"])}) for answer in answers for row in answer]


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True, warn_only=True)  # which also fills new memory with nan
    print(json.dumps([asdict(row) for row in rows(**question())]))
