"""The float64 transcriptions of DeepSeek-V4 and GLM-5.3 against transformers' own float32 forward passes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", minversion="5.24")

from deepseek_v4_reference import deepseek_v4
from glm5_next_reference import glm5_next
from hf_models import tiny

ROUND_OFF = 3e-6
"""Largest relative RMS difference between float32 and float64: tens of units of round-off after 8 sites."""
REFERENCES = {"deepseek_v4": deepseek_v4, "glm5_next": glm5_next}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sliding-hash": ("deepseek_v4", {"sliding_window": 8}),
    "sparse": ("deepseek_v4", {"layer_types": ["compressed_sparse_attention"] * 4, "mlp_layer_types": ["moe"] * 4}),
    "heavy": ("deepseek_v4", {"layer_types": None, "mlp_layer_types": None,
              "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}}),
    "sigmoid-scores": ("deepseek_v4", {"scoring_func": "sigmoid", "mlp_layer_types": ["moe"] * 4}),
    "glm": ("glm5_next", {}),
    "glm-sparse": ("glm5_next", {"layer_types": ["indexed_attention"] * 4, "mlp_layer_types": ["sparse"] * 4,
                   "index_kpool": 4, "index_topk": 12}),
    "glm-groups": ("glm5_next", {"n_group": 2, "mlp_layer_types": ["sparse"] * 4, "linear_lower_bound": None}),
}  # fmt: skip


def tokens() -> Tensor:
    return torch.randint(64, (2, 40), generator=torch.Generator().manual_seed(1))


def varied(case: str) -> Any:
    """The case's model, with dynamic mixers, and no vector left at its initial zeros or ones."""
    kind, changed = CASES[case]
    model = tiny(kind, swiglu_limit=0.5, **changed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.is_floating_point() and "_hc." not in name and "inv_freq" not in name:
                flat = name.endswith(("position_bias", "compress_ape")) or tensor.ndim == 1
                tensor.add_(0.5 * torch.randn(tensor.shape) if flat else 0)
            elif name.endswith("_hc.scale"):
                tensor.fill_(0.8)
    return model


def forwards(case: str) -> tuple[Any, Tensor, Any]:
    """The model, its own output, and what the transcription makes of its weights."""
    model, kind = varied(case), CASES[case][0]
    with torch.no_grad():
        out = model(tokens())
    found = out.logits if kind == "deepseek_v4" else out.last_hidden_state
    return model, found, REFERENCES[kind](model.state_dict(), model.config, tokens())


def difference(found: Tensor, reference: Tensor) -> float:
    return float((found.double() - reference).norm() / reference.norm())


@pytest.mark.parametrize("case", CASES)
def test_transcription_agrees_to_float32_round_off(case: str) -> None:
    _, found, reference = forwards(case)
    assert reference.output.dtype is torch.float64
    assert difference(found, reference.output) < ROUND_OFF


CONTROLS = {
    "sliding-hash": {"sliding_window": 9, "hc_eps": 1e-5, "rms_norm_eps": 1e-6, "hc_sinkhorn_iters": 2,
                     "swiglu_limit": 0.4, "routed_scaling_factor": 1.0},
    "sparse": {"index_topk": 3, "num_experts_per_tok": 1},
    "glm-sparse": {"index_topk": 8, "norm_topk_prob": False},
    "glm-groups": {"topk_group": 2, "linear_lower_bound": -5.0},
}  # fmt: skip


@pytest.mark.parametrize("case", CONTROLS)
def test_every_setting_counts(case: str) -> None:
    """With one setting changed the transcription is another function, far outside round-off."""
    model, found, _ = forwards(case)
    for name, value in CONTROLS[case].items():
        config = copy.deepcopy(model.config)
        assert getattr(config, name) != value
        setattr(config, name, value)
        other = REFERENCES[CASES[case][0]](model.state_dict(), config, tokens())
        assert difference(found, other.output) > 3 * ROUND_OFF, name
