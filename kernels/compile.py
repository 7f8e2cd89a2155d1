# mypy: disable-error-code="import-untyped"
"""Cross-compilation of every launch for GPUs that are not there: registers, memory and spills, and the text's rules.

The launches are those the operations make (recorded, not run), with their own tiles, so nothing is listed by hand.
A process that interprets cannot compile: :func:`table` starts a fresh one, with a cache of its own.

Rules of the text, for what running under the interpreter cannot show: whatever is multiplied out of a token index is
64 bits wide; no atomic; every masked load says what masked lanes are; no dot with a dimension below 16.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamgauge.kernels.processes import ask, question

CAPABILITIES = (80, 90, 100)
SHARED = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024}
"""Bytes of shared memory a program can have."""
TENSOR_COLUMNS = 512
_TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}


@dataclass(frozen=True)
class Compiled:
    """One kernel for one capability; bytes a thread of ``local`` memory, bytes of ``spills`` (stores + loads).

    ``situation``: the first that launches it.  ``columns``: of tensor memory (sm_100).  ``faults``: rules of the text
    it breaks, and what of it the device does not have (the compiler does not say; the launch would fail).
    """

    situation: str
    kernel: str
    capability: int
    warps: int
    registers: int
    shared: int
    columns: int
    local: int
    spills: int
    faults: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The faults; that it spills, which is slow and no fault (sixteen streams with a mixer of each token do)."""
        return "; ".join((*self.faults, *(["spills: slow"] if self.local else []))) or "ok"


def record(n: int, d: int, dtype: Any, names: Sequence[str] | None = None) -> list[tuple[str, Any]]:
    """(situation, launch) of every distinct launch of the situations (those named, or all), none of them run."""
    import torch

    from streamgauge.kernels import dispatch, launches
    from streamgauge.kernels.situations import SITUATIONS, gradients

    found: dict[str, tuple[str, Any]] = {}
    here = ""

    def keep(launch: Any, go: Any) -> None:
        signature = [(k, str(getattr(v, "dtype", v))) for k, v in launch.arguments.items()]
        found.setdefault(repr((launch.name, signature, launch.options)), (here, launch))

    asked = dispatch.interpreted
    dispatch.interpreted = lambda: True  # nothing runs, so CPU tensors will do
    try:
        with launches.intercepted(keep):
            for situation in SITUATIONS:
                if names is not None and situation.name not in names:
                    continue
                here = situation.name
                tensors = situation.draw(n, d, 64, dtype=dtype)
                outputs = situation.run("triton", tensors)
                gradients(outputs, tensors, [torch.zeros_like(out) for out in outputs])
    finally:
        dispatch.interpreted = asked
    return list(found.values())


def source(launch: Any) -> Any:
    """The launch as the compiler takes it: types, constants and divisibility as the launcher would find them."""
    from triton.compiler import ASTSource

    signature, constants, attributes = {}, {}, {}
    for i, parameter in enumerate(launch.kernel.params):
        value = launch.arguments[parameter.name]
        free = not parameter.do_not_specialize
        if parameter.is_constexpr or (free and isinstance(value, int) and value == 1):
            signature[parameter.name], constants[parameter.name] = "constexpr", value
        elif hasattr(value, "data_ptr"):
            signature[parameter.name] = "*" + _TYPES[str(value.dtype)]
            attributes[(i,)] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
            if free and isinstance(value, int) and value % 16 == 0:
                attributes[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(launch.kernel, signature, constants, attributes)


def compiled(situation: str, launch: Any, capability: int) -> Compiled:
    """Compile one launch.  Cost: 0.3 to 3 s."""
    import triton
    from triton.backends.compiler import GPUTarget

    binary = triton.compile(source(launch), target=GPUTarget("cuda", capability, 32), options=launch.options)
    usage = _usage(binary.asm["cubin"])
    local = usage["STACK"] + usage["LOCAL"]
    # What is spilled lies in the stack frame: without one there are no spills.
    spills = _spills(binary.asm["ptx"]) if local else 0
    shared, columns = max(usage["SHARED"], binary.metadata.shared), getattr(binary.metadata, "tmem_size", None) or 0
    found = faults(binary.asm["ttir"])
    if shared > SHARED.get(capability, shared):
        found.append(f"{shared} bytes of shared memory, of {SHARED[capability]}")
    if columns > TENSOR_COLUMNS:
        found.append(f"{columns} columns of tensor memory, of {TENSOR_COLUMNS}")
    return Compiled(
        situation,
        launch.name,
        capability,
        binary.metadata.num_warps,
        usage["REG"],
        shared,
        columns,
        local,
        spills,
        tuple(found),
    )


def _usage(cubin: bytes) -> dict[str, int]:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        out = subprocess.check_output([knobs.nvidia.cuobjdump.path, "-res-usage", file.name], text=True)
    return {name: int(value) for name, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", out)}


def _spills(ptx: str) -> int:
    from triton import knobs

    target = re.search(r"^\.target (\w+)", ptx, re.MULTILINE)
    if target is None:
        raise ValueError("ptx: found no .target line, expected one")
    tool = knobs.nvidia.ptxas_blackwell if target[1].startswith("sm_10") else knobs.nvidia.ptxas
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.ptx")
        with open(path, "w") as file:
            file.write(ptx)
        command = [tool.path, "-v", f"--gpu-name={target[1]}", path, "-o", os.path.join(folder, "kernel.cubin")]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return sum(int(b) for b in re.findall(r"(\d+) bytes spill (?:stores|loads)", said))


def faults(text: str) -> list[str]:
    """The rules that a kernel's text in Triton's own intermediate language breaks, one line each.

    A 32-bit number made from a program's index or a loop's counter may be added to (it stays below the number of
    tokens, or the width), but not multiplied: but for the index itself, times a tile's size or a ``span``.
    """
    found = []
    indices = set(re.findall(r"(%\w+) = tt\.get_program_id", text))
    grows = indices | set(re.findall(r"scf\.for (%\w+) =", text))
    for line in text.splitlines():
        code = line.split(" loc(")[0].strip()
        result, _, operation = code.partition(" = ")
        operands = re.findall(r"%\w+", operation.split(" : ")[0])
        touched = any(name in grows for name in operands)
        if touched and operation.startswith(("arith.", "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape")):
            grows.add(result.split(":")[0])
        narrow = bool(re.search(r"i32>?$", operation))
        if touched and operation.startswith(("arith.muli", "arith.shli")) and narrow:
            steps = [name for name in operands if name not in indices]
            scalar = not operation.endswith(">")
            if not (scalar and len(steps) == 1 and steps[0].startswith(("%c", "%span"))):
                found.append(f"a product in 32 bits: {code}")
        if touched and operation.startswith("arith.trunci"):
            found.append(f"an offset cut to 32 bits: {code}")
        if "tt.atomic" in code:
            found.append(f"an atomic: {code}")
        if operation.startswith("tt.load") and len(operands) == 2:
            found.append(f"a masked load without other: {code}")
        if operation.startswith("tt.dot"):
            sizes = [int(v) for shape in re.findall(r"tensor<([\dx]+)x[a-z]", code) for v in shape.split("x")]
            if min(sizes) < 16:
                found.append(f"a dot with a dimension of {min(sizes)}: {code}")
    return found


def rows(
    capabilities: Iterable[int] = CAPABILITIES, *, n: int = 4, d: int = 4096, names: Sequence[str] | None = None
) -> list[Compiled]:
    """Every distinct launch of the situations, in this process, which must not interpret; bfloat16 state."""
    import torch

    from streamgauge.kernels import configs

    found = []
    for capability in capabilities:
        with configs.for_capability(capability):
            recorded = record(n, d, torch.bfloat16, names)
        found += [compiled(name, launch, capability) for name, launch in recorded]
    return found


def table(
    capabilities: Sequence[int] = CAPABILITIES, *, n: int = 4, d: int = 4096, names: Sequence[str] | None = None
) -> list[Compiled]:
    """:func:`rows` in a fresh process without TRITON_INTERPRET and with an empty cache."""
    asked = {"capabilities": list(capabilities), "n": n, "d": d, "names": names}
    answer = ask("streamgauge.kernels.compile", asked, interpret=False)
    return [Compiled(**{**row, "faults": tuple(row["faults"])}) for row in answer]


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in rows(**question())]))
