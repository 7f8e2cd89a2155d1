"""The operations by backend: "triton" the kernels, "reference" plain torch, "auto" the kernels where they compile.

``auto`` takes the kernels for a CUDA state of 1 to 16 streams in float32, bfloat16 or float16, and the reference for
everything else.  The interpreter (``TRITON_INTERPRET=1`` when the process starts) is taken only by name.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from streamgauge.kernels import reference
from streamgauge.kernels.activation import Activation

BACKENDS = ("auto", "triton", "reference")
_HAVE_TRITON = find_spec("triton") is not None


def takes_kernels(where: str, x: Tensor, backend: str) -> bool:
    """Whether ``backend`` means the kernels for the tensor x.

    **Raises** ValueError for an unknown backend, or for "triton" where it cannot run: the missing package, CPU
    tensors in a process that compiles, CUDA tensors in a process that interprets.
    """
    if backend not in BACKENDS:
        raise ValueError(f"{where} backend: found {backend!r}, expected 'auto', 'triton' or 'reference'")
    if backend == "reference":
        return False
    if backend == "auto":
        plain = x.is_cuda and x.dtype in (torch.float32, torch.bfloat16, torch.float16) and x.shape[-2] <= 16
        return plain and _HAVE_TRITON and not interpreted()
    if not _HAVE_TRITON:
        raise ValueError(f"{where} backend: found no triton, expected it installed: pip install 'streamgauge[torch]'")
    if interpreted() and x.is_cuda:
        raise ValueError(f"{where} backend: found cuda tensors under TRITON_INTERPRET=1, expected it unset")
    if not interpreted() and not x.is_cuda:
        raise ValueError(
            f"{where} backend: found {x.device.type} tensors, expected cuda (or TRITON_INTERPRET=1 at start)"
        )
    return True


def interpreted() -> bool:
    """Whether this process's kernels run in the interpreter: a property of triton's first import."""
    from streamgauge.kernels.triton_common import INTERPRETED

    return INTERPRETED


def _kernel(name: str) -> Callable[..., Any]:
    """A kernel-backed operation; triton is imported here, at the first use."""
    from streamgauge.kernels import functions, functions_coefficients

    found: Callable[..., Any] = getattr(functions, name, None) or getattr(functions_coefficients, name)
    return found


def sinkhorn(logits: Tensor, *, backend: str = "auto", **recipe: Any) -> Tensor:
    """:func:`reference.sinkhorn`."""
    use = _kernel("sinkhorn") if takes_kernels("sinkhorn", logits, backend) else reference.sinkhorn
    out: Tensor = use(logits, **recipe)
    return out


def coefficients(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    rms_eps: float,
    metric: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """:func:`reference.coefficients`: z (..., m)."""
    use = _kernel("coefficients") if takes_kernels("coefficients", x, backend) else reference.coefficients
    out: Tensor = use(x, weight, scale, base, rms_eps=rms_eps, metric=metric)
    return out


def activated(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    base: Tensor,
    *,
    activation: Activation,
    rms_eps: float,
    metric: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Reads, writes and carry: ``activation.apply`` of :func:`coefficients`, in two launches on the kernels."""
    if takes_kernels("coefficients", x, backend):
        out: tuple[Tensor, Tensor, Tensor | None] = _kernel("activated")(
            x, weight, scale, base, activation=activation, rms_eps=rms_eps, metric=metric
        )
        return out
    return activation.apply(
        reference.coefficients(x, weight, scale, base, rms_eps=rms_eps, metric=metric), x.shape[-2]
    )


def read(x: Tensor, p: Tensor, *, backend: str = "auto") -> Tensor:
    """:func:`reference.read`: u = p X."""
    out: Tensor = (_kernel("read") if takes_kernels("read", x, backend) else reference.read)(x, p)
    return out


def write(x: Tensor, y: Tensor, r: Tensor, *, mode: str, backend: str = "auto", **carry: Any) -> Tensor:
    """:func:`reference.write`: X' = A X + r y; ``carry``: mixer, or gates with eps and cap."""
    use = _kernel("write") if takes_kernels("write", x, backend) else reference.write
    out: Tensor = use(x, y, r, mode=mode, **carry)
    return out
