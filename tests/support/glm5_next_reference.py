"""GLM-5.3's text model in float64, transcribed from its definition: linear and sparse attention, experts, mean head.

An independent second route for transformers' ``glm5_next``, which has no true float64 (it casts inside).  For whole
sequences without padding and without a cache, keys without rotary part, every sparse layer with its own indexer.  It
makes its own discrete choices (experts, pools of keys) and records them, so that another forward pass' choices can be
compared with them; it never takes choices from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hyper_connection_reference import Pass, Weights, marked, mixed, mlp, rms_norm, routed, shares, silu
from torch import Tensor


def glm5_next(state: Mapping[str, Tensor], config: Any, tokens: Tensor) -> Pass:
    """Last hidden states (B, T, d) of the text model with that state dict, and its choices.

    ``config``: the model's sizes and settings, as attributes.
    """
    if config.qk_rope_head_dim != 0 or "shared" in config.indexer_types:
        raise ValueError("glm5_next: found rotary keys or shared indexers, expected neither")
    weights, choices, eps = Weights(state), {}, config.rms_norm_eps
    e = weights["embed_tokens.weight"][tokens]
    x = e[:, :, None, :].expand(-1, -1, config.hc_mult, -1)
    for index in range(config.num_hidden_layers):
        layer = weights.under(f"layers.{index}")
        linear = config.layer_types[index] == "linear_attention"
        dense = config.mlp_layer_types[index] == "dense"

        def attention(u: Tensor, layer: Weights = layer, linear: bool = linear) -> Tensor:
            u, part = rms_norm(u, eps, layer["input_layernorm.weight"]), layer.under("self_attn")
            return _linear_attention(u, part, config) if linear else _sparse_attention(u, part, config, choices)

        def experts(u: Tensor, layer: Weights = layer, dense: bool = dense) -> Tensor:
            u, part = rms_norm(u, eps, layer["post_attention_layernorm.weight"]), layer.under("mlp")
            return mlp(u, part, config.swiglu_limit) if dense else _experts(u, part, config, choices)

        x = mixed(x, layer.under("attn_hc"), config, attention)
        x = mixed(x, layer.under("ffn_hc"), config, experts)
    return Pass(rms_norm(x.mean(-2), eps, weights["norm.weight"]), choices)


def _linear_attention(u: Tensor, weights: Weights, config: Any) -> Tensor:
    """A delta rule with a decay per channel: ``S = diag(a) S; S += b k (v - k^T S)^T; o = q^T S``, token by token."""
    heads = config.linear_num_heads
    qkv = torch.cat([weights.linear(f"{name}_proj", u) for name in "qkv"], -1)
    kernel = weights["conv1d.weight"][:, 0]  # (channels, width), the last tap on the token itself
    width = kernel.shape[-1]
    before = torch.cat([torch.zeros_like(qkv[:, :1]).expand(-1, width - 1, -1), qkv], 1)
    qkv = silu(torch.einsum("btcw,cw->btc", before.unfold(1, width, 1), kernel))
    q, k, v = (part.unflatten(-1, (heads, -1)) for part in qkv.chunk(3, -1))
    q, k = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (q, k))
    q = q / config.linear_head_dim**0.5
    decay = torch.exp(_log_decay(u, weights.under("forget_gate"), config))
    strength = torch.sigmoid(weights.linear("b_proj", u))[..., None]
    memory = torch.zeros(len(u), heads, config.linear_head_dim, config.linear_head_dim, dtype=u.dtype)
    out = []
    for t in range(u.shape[1]):
        memory = decay[:, t, ..., None] * memory
        known = torch.einsum("bhk,bhkv->bhv", k[:, t], memory)
        memory = memory + torch.einsum("bhk,bhv->bhkv", k[:, t], strength[:, t] * (v[:, t] - known))
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], memory))
    gate = torch.sigmoid(weights.linear("g_b_proj", weights.linear("g_a_proj", u))).unflatten(-1, (heads, -1))
    normed = rms_norm(torch.stack(out, 1), config.rms_norm_eps, weights["o_norm.weight"])
    return weights.linear("o_proj", (normed * gate).flatten(-2))


def _log_decay(u: Tensor, weights: Weights, config: Any) -> Tensor:
    """(B, T, H, K): between the lower bound and 0, or minus a softplus where there is no bound."""
    z = weights.linear("f_b_proj", weights.linear("f_a_proj", u)) + weights["dt_bias"]
    z, rate = z.unflatten(-1, (config.linear_num_heads, -1)), torch.exp(weights["A_log"])[:, None]
    if config.linear_lower_bound is None:
        return -rate * torch.log1p(torch.exp(z))
    return config.linear_lower_bound * torch.sigmoid(rate * z)


def _sparse_attention(u: Tensor, weights: Weights, config: Any, choices: dict[str, Tensor]) -> Tensor:
    """Low-rank queries, keys and values; each query sees the tokens that the indexer picks for it."""
    heads, eps = config.num_attention_heads, config.rms_norm_eps
    latent = rms_norm(weights.linear("q_a_proj", u), eps, weights["q_a_layernorm.weight"])
    q = weights.linear("q_b_proj", latent).unflatten(-1, (heads, -1))
    kv = rms_norm(weights.linear("kv_a_proj_with_mqa", u), eps, weights["kv_a_layernorm.weight"])
    kv = weights.linear("kv_b_proj", kv).unflatten(-1, (heads, -1))
    k, v = kv.split([config.qk_nope_head_dim, config.v_head_dim], -1)
    seen = _picked(u, latent, weights.under("indexer"), config)
    choices[weights.prefix + "indexer"] = seen
    z = torch.einsum("bthd,bshd->bths", q, k) / config.qk_nope_head_dim**0.5
    amounts = z.masked_fill(~seen[:, :, None], -torch.inf).softmax(-1)
    return weights.linear("o_proj", torch.einsum("bths,bshd->bthd", amounts, v).flatten(-2))


def _picked(u: Tensor, latent: Tensor, weights: Weights, config: Any) -> Tensor:
    """(B, T, T) of bool: the best pools of tokens that are over, and the query's own unfinished pool."""
    pool, length = config.index_kpool, u.shape[1]
    full = length // pool
    times, members = torch.arange(length), torch.arange(length) // pool
    seen = (times <= times[:, None]).expand(len(u), -1, -1)
    last = (times + 1) // pool  # pools that are over, when the query is read
    tail = seen & (members == last[:, None]) if config.index_kpool_always_select_tail else torch.zeros_like(seen)
    if full == 0:
        return tail
    keys = weights.linear("wk", u)
    keys = (keys - keys.mean(-1, keepdim=True)) / (keys.var(-1, correction=0, keepdim=True) + 1e-6).sqrt()
    keys = keys * weights["k_norm.weight"] + weights["k_norm.bias"]
    gate = u @ weights["index_kpool_compress_gate"].T
    keys, gate = (part[:, : full * pool].unflatten(1, (full, pool)) for part in (keys, gate))
    keys = (keys * (gate + weights["index_kpool_compress_ape"]).softmax(2)).sum(2)  # (B, pools, D)
    q = weights.linear("wq_b", latent).unflatten(-1, (config.index_n_heads, -1))
    fit = torch.einsum("bthd,bpd->bthp", q, keys).clamp(min=0) / config.index_head_dim**0.5
    amount = weights.linear("weights_proj", u) / config.index_n_heads**0.5
    over = (torch.arange(full) < last[:, None]).expand(len(u), -1, -1)
    score = torch.einsum("bth,bthp->btp", amount, fit).masked_fill(~over, -torch.inf)
    kept = marked(score.topk(min(config.index_topk // pool, full), -1).indices, full) & over
    whole = torch.zeros_like(seen)
    whole[..., : full * pool] = kept.repeat_interleave(pool, -1)
    return whole | tail


def _experts(u: Tensor, weights: Weights, config: Any, choices: dict[str, Tensor]) -> Tensor:
    """The best experts of the best groups, by score and correction, and the one that all tokens share."""
    count, groups = config.n_routed_experts, config.n_group
    scores = torch.sigmoid(weights.linear("gate", u))
    wish = scores + weights["gate.e_score_correction_bias"]
    strong = wish.unflatten(-1, (groups, -1)).topk(2, -1).values.sum(-1).topk(config.topk_group, -1).indices
    allowed = marked(strong, groups).repeat_interleave(count // groups, -1)
    chosen = wish.masked_fill(~allowed, -torch.inf).topk(config.num_experts_per_tok, -1).indices
    choices[weights.prefix + "gate"] = marked(chosen, count)
    amounts = shares(scores, chosen, config.routed_scaling_factor, normalised=config.norm_topk_prob)
    limit = config.swiglu_limit
    return routed(u, weights.under("experts"), amounts, limit) + mlp(u, weights.under("shared_experts"), limit)
