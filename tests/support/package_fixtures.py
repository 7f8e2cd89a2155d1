"""Makes the fixtures in tests/simulate/formats/data with the packages themselves (not dependencies of this project).

    python tests/support/package_fixtures.py FOLDER

needs hyper-connections 0.4.11, liger-kernel 0.8.5 (with TRITON_INTERPRET=1 where there is no GPU) and transformers
5.24.0.  The files of the first two hold a model of four mixers under "layers.{i}.{branch}.*", an input "input"
(tokens, n, d) of copied streams, and "output", the streams that the package's own forward pass makes with the branch
``tanh``.  Those of transformers hold the hyper-connection tensors as ``save_pretrained`` names them and, for every
site k of one forward pass, the streams "trace.{k}.x" before it, the branch's input "trace.{k}.u" and output
"trace.{k}.y"; "trace.last" is X_L and "trace.head" what the head makes of it; the config is in the metadata.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

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


V4_SIZES = {
    "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 8, "o_lora_rank": 8, "o_groups": 2, "index_topk": 4,
    "index_n_heads": 2, "index_head_dim": 8, "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-5,
}  # fmt: skip
GLM_SIZES = {
    "head_dim": 8, "num_key_value_heads": 2, "intermediate_size": 16, "q_lora_rank": 8, "kv_lora_rank": 8,
    "qk_rope_head_dim": 0, "qk_nope_head_dim": 8, "v_head_dim": 8, "index_n_heads": 2, "index_head_dim": 16,
    "index_topk": 16, "pad_token_id": 0,
}  # fmt: skip
SIZES = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 8,
}  # fmt: skip
FIELDS = (
    "model_type", "hidden_size", "num_hidden_layers", "hc_mult", "hc_sinkhorn_iters", "hc_eps", "rms_norm_eps",
)  # fmt: skip


def tiny(kind: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A randomly initialised model of that type, and the part of it that runs the streams."""
    if kind == "deepseek_v4":
        from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

        whole: Any = DeepseekV4ForCausalLM(DeepseekV4Config(**SIZES, **V4_SIZES))
        return whole, whole.model
    from transformers.models.glm5_next import Glm5NextTextConfig, Glm5NextTextModel

    text: Any = Glm5NextTextModel(Glm5NextTextConfig(**SIZES, **GLM_SIZES))
    return text, text


def huggingface(folder: Path, kind: str, dynamic: float) -> None:
    """One forward pass of transformers' own model, traced with hooks."""
    whole, streams = tiny(kind)
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            if name.endswith("_hc.base"):
                parameter.copy_(torch.randn(parameter.shape))
                parameter[2 * N :] += (2 * torch.eye(N) + 2 * torch.randn(N, N)).flatten()
            elif name.endswith("_hc.scale"):
                parameter.copy_(torch.tensor([0.8, 1.2, dynamic]))
            elif name.endswith(("_hc.fn", "hc_head.hc_fn")):
                parameter.copy_(0.3 * torch.randn(parameter.shape).bfloat16().float())
    trace: dict[str, torch.Tensor] = {}
    inputs, branches = [], []
    for name, module in streams.named_modules():
        if name.endswith(("attn_hc", "ffn_hc")):
            module.register_forward_hook(lambda _, given, made: inputs.append((given[0][0], made[2][0])))
        elif name.endswith(("self_attn", "mlp")) and name.count(".") == 2:
            module.register_forward_hook(lambda _, given, made: branches.append(made[0]))
    head = {}
    last = next(module for name, module in streams.named_modules() if name.endswith("hc_head"))
    last.register_forward_hook(lambda _, given, made: head.update(x=given[0][0], h=made[0]))
    with torch.no_grad():
        whole(torch.arange(TOKENS)[None] * 7 % 64, use_cache=False)
    for k, ((x, u), y) in enumerate(zip(inputs, branches, strict=True)):
        trace |= {f"trace.{k}.x": x, f"trace.{k}.u": u, f"trace.{k}.y": y[0] if y.dim() == 3 else y}
    trace |= {"trace.last": head["x"], "trace.head": head["h"]}
    with tempfile.TemporaryDirectory() as place:
        whole.save_pretrained(place)
        stored = load_file(Path(place) / "model.safetensors")
        config = json.loads((Path(place) / "config.json").read_text())
    tensors = {name: tensor for name, tensor in stored.items() if "hc_" in name or "_hc" in name} | trace
    label = "static" if dynamic == 0 else "dynamic"
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        folder / f"transformers-{kind}-{label}.safetensors",
        {"config": json.dumps({name: config[name] for name in FIELDS})},
    )


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for dynamic in (0.0, 0.3):
        torch.manual_seed(0)
        lucidrains(folder, "hc", dynamic)
        lucidrains(folder, "mhc", dynamic)
        liger(folder, dynamic)
        huggingface(folder, "deepseek_v4", dynamic)
        huggingface(folder, "glm5_next", dynamic)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
