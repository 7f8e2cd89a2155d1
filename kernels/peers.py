# mypy: disable-error-code="import-not-found,import-untyped"
"""The same site in other hands, to measure beside ours: liger-kernel's mHC where it is installed, and torch.compile.

liger has coefficients, read and write as three functions; autograd adds their gradients of the state.  Speed and
traffic are compared, not values: eps and the mixer's orientation differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

LIGER_WEIGHTS = frozenset({"phi_ptr", "grad_phi_ptr", "b_ptr", "alpha_pre_ptr", "alpha_post_ptr", "alpha_res_ptr"})


def liger_version() -> str | None:
    """The installed liger-kernel's version, None without it or without its mHC."""
    if find_spec("liger_kernel") is None or find_spec("liger_kernel.ops.mhc") is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("liger-kernel")
    except PackageNotFoundError:
        return "unknown"


def liger_tensors(n: int, d: int, tokens: int, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """What :func:`liger_calls` take: state, phi (n d, n (n + 2)), b and the three scales."""
    generator = torch.Generator().manual_seed(0)
    rows = n * (n + 2)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    out = {
        "x": draw(tokens, n, d).to(dtype),
        "phi": (0.1 * draw(n * d, rows)).to(dtype),
        "b": draw(rows),
        "alpha_pre": torch.ones((), device=device),
        "alpha_post": torch.ones((), device=device),
        "alpha_res": torch.ones((), device=device),
    }
    return {name: value.requires_grad_() for name, value in out.items()}


def liger_calls() -> dict[str, Callable[[Mapping[str, Tensor]], Any]]:
    """By name: the coefficients, and a whole site around the identity.  ``allow_fp32`` is given where it is asked."""
    from liger_kernel.transformers.functional import liger_mhc_coeffs, liger_mhc_post_res, liger_mhc_pre

    def coefficients(given: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return tuple(liger_mhc_coeffs(**given, allow_fp32=given["x"].dtype == torch.float32))

    def site(given: Mapping[str, Tensor]) -> tuple[Tensor]:
        p, r, mixer = coefficients(given)
        return (liger_mhc_post_res(given["x"], liger_mhc_pre(given["x"], p), r, mixer),)

    return {"coefficients mixer": coefficients, "site full": site}
