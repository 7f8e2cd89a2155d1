"""Makes the fixtures in tests/simulate/formats/data with the packages themselves (not dependencies of this project).

    python tests/support/package_fixtures.py FOLDER

needs hyper-connections 0.4.11 and liger-kernel 0.8.5 (run with TRITON_INTERPRET=1 where there is no GPU).  Every file
holds a model of four mixers under "layers.{i}.{branch}.*", an input "input" (tokens, n, d) of copied streams, and
"output", the streams that the package's own forward pass makes with the branch ``tanh``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

N, D, TOKENS = 4, 16, 6
NAMES = tuple(f"layers.{i}.{branch}" for i in range(2) for branch in ("attn", "mlp"))


class Tanh(torch.nn.Module):
    """A branch without weights."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


def shaken(module: torch.nn.Module, dynamic: float) -> None:
    """Random parameters; those named dynamic (or phi) scaled by ``dynamic``."""
    for name, parameter in module.named_parameters():
        with torch.no_grad():
            noise = torch.randn(parameter.shape)
            size = dynamic if "dynamic" in name or name == "phi" else 0.5
            parameter.copy_((parameter + size * noise).to(parameter.dtype))


def saved(path: Path, modules: dict[str, torch.nn.Module], start: torch.Tensor, output: torch.Tensor) -> None:
    tensors = {"input": start, "output": output}
    for name, module in modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, path)


def lucidrains(folder: Path, kind: str, dynamic: float) -> None:
    from hyper_connections import HyperConnections
    from hyper_connections.manifold_constrained_hyper_connections import ManifoldConstrainedHyperConnections

    made: Any = HyperConnections if kind == "hc" else ManifoldConstrainedHyperConnections
    modules = {name: made(N, dim=D, branch=Tanh(), layer_index=i).double() for i, name in enumerate(NAMES)}
    start = torch.randn(TOKENS, 1, D).expand(TOKENS, N, D).double()
    x = start.reshape(TOKENS * N, 1, D)  # the package's layout: (b s) tokens d
    with torch.no_grad():
        for module in modules.values():
            shaken(module, dynamic)
            x = module(x)
    label = "static" if dynamic == 0 else "dynamic"
    saved(folder / f"lucidrains-{kind}-{label}.safetensors", modules, start, x.reshape(TOKENS, N, D))


def liger(folder: Path, dynamic: float) -> None:
    from liger_kernel.transformers.mhc import LigerMHC

    device = "cuda" if torch.cuda.is_available() else "cpu"
    modules = {name: LigerMHC(Tanh(), hc=N, c=D, phi_dtype=torch.float32, allow_fp32=True) for name in NAMES}
    start = torch.randn(TOKENS, 1, D).expand(TOKENS, N, D).contiguous().to(device)
    x = start
    with torch.no_grad():
        for module in modules.values():
            shaken(module, 0.3)
            module.alpha_res.mul_(0.0 if dynamic == 0 else 1.0)  # static mixers, reads and writes still dynamic
            module.b[2 * N :] += 2 * torch.eye(N).flatten()
            x = module.to(device)(x)
    label = "static" if dynamic == 0 else "dynamic"
    saved(folder / f"liger-{label}.safetensors", modules, start.cpu(), x.cpu())


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for dynamic in (0.0, 0.3):
        torch.manual_seed(0)
        lucidrains(folder, "hc", dynamic)
        lucidrains(folder, "mhc", dynamic)
        liger(folder, dynamic)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
