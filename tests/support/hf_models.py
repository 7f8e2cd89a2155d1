"""Tiny transformers models with random, spread hyper-connections, and their forward passes in float64."""

from __future__ import annotations

from typing import Any

import torch
from deepseek_v4_reference import deepseek_v4
from glm5_next_reference import glm5_next
from hyper_connection_reference import Pass
from torch import Tensor

N = 4
V4: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 16, "qk_rope_head_dim": 8, "q_lora_rank": 16,
    "o_lora_rank": 16, "o_groups": 2, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 8,
    "num_nextn_predict_layers": 0, "rms_norm_eps": 1e-5, "eos_token_id": None, "bos_token_id": None,
    "layer_types": ["sliding_attention"] * 4, "mlp_layer_types": ["hash_moe"] * 4,
}  # fmt: skip
GLM: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 16, "num_key_value_heads": 2,
    "intermediate_size": 32, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 0, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "index_n_heads": 2, "index_head_dim": 16, "index_topk": 16, "pad_token_id": 0,
    "linear_num_heads": 2, "linear_head_dim": 16,
}  # fmt: skip


def tiny(kind: str, seed: int = 0, gain: float = 6, **changed: Any) -> Any:
    """A model of that type in float32 with static mixers (``scale[2] = 0``) and dynamic reads, writes and head.

    ``gain``: of the branches' weights over initialisation, which is 0.02; deep stacks of strong ones are chaotic.
    """
    torch.manual_seed(seed)
    if kind == "deepseek_v4":
        from transformers.models.deepseek_v4 import DeepseekV4Config, DeepseekV4ForCausalLM

        model: Any = DeepseekV4ForCausalLM(DeepseekV4Config(**{**V4, **changed}))
    else:
        from transformers.models.glm5_next import Glm5NextTextConfig, Glm5NextTextModel

        model = Glm5NextTextModel(Glm5NextTextConfig(**{**GLM, **changed}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_hc.base"):
                parameter.copy_(torch.randn(parameter.shape))
                parameter[2 * N :] += (2 * torch.eye(N) + torch.randn(N, N)).flatten()
            elif name.endswith("_hc.scale"):
                parameter.copy_(torch.tensor([0.8, 1.2, 0.0]))
            elif name.endswith(("_hc.fn", "hc_head.hc_fn")):
                parameter.copy_(0.1 * torch.randn(parameter.shape))
            elif name.endswith("hc_head.hc_base"):
                parameter.copy_(torch.randn(parameter.shape))
            elif parameter.ndim > 1:
                parameter.mul_(gain)  # branches that say something
        for name, buffer in model.named_buffers():
            if name.endswith("tid2eid"):
                buffer.copy_(torch.randint(model.config.n_routed_experts, buffer.shape))
    model.set_experts_implementation("eager")  # the grouped one has no float64
    return model.eval()


def transcribed(model: Any, tokens: Tensor) -> Pass:
    """What the transcription of the model's type makes of its weights, as they are stored."""
    reference = deepseek_v4 if model.config.model_type == "deepseek_v4" else glm5_next
    return reference(model.state_dict(), model.config, tokens)
