"""Small kernels whose traffic and whose faults are known; run in a process of its own (see planted_runs)."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl
from triton.compiler import ASTSource

from streamgauge.kernels import compile as cross


@triton.jit
def copy_kernel(out, x, weight, tokens, d, TWICE: tl.constexpr, BD: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BD)
    row = tl.load(x + t * d + c, mask=c < d, other=0.0)
    if TWICE:
        row += tl.load(x + t * d + c, mask=c < d, other=0.0)
    tl.store(out + t * d + c, row * tl.load(weight), mask=c < d)


@triton.jit
def narrow_kernel(out, x, d, BD: tl.constexpr):
    c = tl.program_id(0) * d + tl.arange(0, BD)
    tl.store(out + c, tl.load(x + c, mask=c < d, other=0.0), mask=c < d)


@triton.jit
def narrow_product_kernel(out, x, d, BD: tl.constexpr):
    t = tl.program_id(0) * BD + tl.arange(0, BD)
    c = (t * d).to(tl.int64)
    tl.store(out + c, tl.load(x + c, mask=t < d, other=0.0), mask=t < d)


@triton.jit
def atomic_kernel(out, x, d, BD: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    tl.atomic_add(out, tl.sum(tl.load(x + c, mask=c < d, other=0.0)))


@triton.jit
def unfilled_kernel(out, x, d, BD: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    tl.store(out + c, tl.load(x + c, mask=c < d), mask=c < d)


@triton.jit
def dot_kernel(out, x, d, BD: tl.constexpr):
    i = tl.arange(0, 8).to(tl.int64)
    k = tl.arange(0, BD).to(tl.int64)
    a = tl.load(x + i[:, None] * BD + k[None, :])
    b = tl.load(x + k[:, None] * 8 + i[None, :])
    tl.store(out + i[:, None] * 8 + i[None, :], tl.dot(a, b))


@triton.jit
def clean_kernel(out, x, d, BD: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BD + tl.arange(0, BD)
    tl.store(out + c + 1, tl.load(x + c, mask=c < d, other=0.0), mask=c < d)


def bytes_moved() -> dict[str, object]:
    """Two tokens of 5 float32 in tiles of 8, and a weight both programs read; and torch's own copy beside a view."""
    from streamgauge.kernels.traffic import counted

    found = {}
    x, weight = torch.ones(2, 5), torch.ones(1)
    for twice in (False, True):
        with counted() as record:
            copy_kernel[(2,)](torch.empty_like(x), x, weight, 2, 5, TWICE=twice, BD=8)
        (launch,) = record
        found[str(twice)] = [launch.loaded, launch.stored, launch.streamed(), launch.apart()]
    with counted() as record:
        x.mT.contiguous()
        x.view(5, 2)
        torch.empty_like(x)
    found["torch"] = [[launch.kernel, launch.streamed()] for launch in record]
    return found


def texts() -> dict[str, list[str]]:
    """The faults found in each kernel's text."""
    found = {}
    for kernel in (
        narrow_kernel, narrow_product_kernel, atomic_kernel, unfilled_kernel, dot_kernel, clean_kernel
    ):  # fmt: skip
        signature = {"out": "*fp32", "x": "*fp32", "d": "i32", "BD": "constexpr"}
        source = ASTSource(kernel, signature, {"BD": 32})
        target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
        made = triton.compile(source, target=target)
        found[kernel.fn.__name__] = cross.faults(made.asm["ttir"])
    return found


if __name__ == "__main__":
    print(json.dumps(bytes_moved() if sys.argv[1] == "bytes" else texts()))
