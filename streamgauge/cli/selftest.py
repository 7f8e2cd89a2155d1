"""``streamgauge selftest``: every kernel against float64 on the device at hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgauge.cli.terminal import Failed, JsonFlag, emit_json, progress, stdout, table
from streamgauge.theory.errors import InputError

if TYPE_CHECKING:
    from streamgauge.kernels.selftest import Comparison

EXAMPLE = "Example: streamgauge selftest --dtype float32"


def command(
    dtype: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="float32, bfloat16 or float16; may be given again. Default: all."),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="auto|cuda|cpu", help="Where; cpu: the interpreter, in processes of its own.")
    ] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Compare every kernel, forward and every gradient, with the reference in float64.

    Exit code 1 if an error is above its tolerance, which follows from the dtypes, or a second run on a GPU gives
    other bits.
    """
    import torch

    from streamgauge.kernels import selftest

    for name in dtype or ():
        if name not in selftest.DTYPES:
            raise InputError(f"--dtype: found {name!r}, expected one of {', '.join(selftest.DTYPES)}")
    if device not in ("auto", "cuda", "cpu"):
        raise InputError(f"--device: found {device!r}, expected auto, cuda or cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device: found cuda, expected a CUDA device that torch sees, or cpu")
    working_triton()
    used = "cpu" if device == "cpu" or not torch.cuda.is_available() else "cuda"
    chosen = tuple(dtype or selftest.DTYPES)
    with progress("comparing"):
        rows = selftest.on_device(chosen) if used == "cuda" else selftest.interpreted(chosen)
    where = torch.cuda.get_device_name() if used == "cuda" else "cpu, in Triton's interpreter"
    missed = sum(not row.ok for row in rows)
    if as_json:
        document = [{**dataclasses.asdict(row), "ok": row.ok} for row in rows]
        emit_json({"ok": not missed, "device": where, "comparisons": document})
    else:
        _show(rows, where, missed)
    if missed:
        raise Failed


def working_triton() -> None:
    """**Raises** InputError where triton is installed but does not import, ModuleNotFoundError where it is not."""
    from streamgauge.kernels.processes import need_triton

    try:
        need_triton()
    except ModuleNotFoundError:
        raise
    except ImportError as error:
        raise InputError(str(error)) from None


def _show(rows: Sequence[Comparison], where: str, missed: int) -> None:
    """Of every op, mode and dtype the worst output and the worst gradient."""
    lines: list[tuple[Any, ...]] = []
    ordered = sorted(rows, key=lambda row: (row.op, row.mode, row.dtype))
    for (op, mode, dtype), group in groupby(ordered, key=lambda row: (row.op, row.mode, row.dtype)):
        every = list(group)
        forward = [row for row in every if row.quantity.startswith("out")]
        backward = [row for row in every if not row.quantity.startswith("out")]
        cells: list[Any] = []
        for part in (forward, backward):
            worst = max(part, key=lambda row: row.error / (row.tolerance or 1.0), default=None)
            cells += [worst.error, worst.tolerance] if worst else [None, None]
            name = worst.quantity if worst else "-"
        lines.append((op, mode, dtype, name, *cells, "ok" if all(row.ok for row in every) else "MISS"))
    columns = ("op", "mode", "dtype", "worst gradient", "forward", "tolerance", "gradient", "tolerance", "")
    console = stdout()
    console.print(table(f"kernels against float64 on {where}", columns, lines, left=4))
    for row in rows:
        if not row.ok:
            why = "other bits in a second run" if row.error <= row.tolerance else f"error {row.error:.3g}"
            console.print(
                f"missed: {row.op} {row.mode} {row.dtype} {row.shape} {row.quantity}: {why}", soft_wrap=True
            )
    word = "every error is within its tolerance" if not missed else f"{missed} missed"
    console.print(f"\n{len(rows)} comparisons; {word}", soft_wrap=True)
