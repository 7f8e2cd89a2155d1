"""DeepSeek-V4's forward pass in float64, transcribed from its definition: attention, experts, head.

An independent second route for transformers' ``deepseek_v4``, which has no true float64 (it casts inside).  For whole
sequences without padding and without a cache, plain rotary embeddings (no YaRN), no attention bias.  It makes its own
discrete choices (experts, compressed entries) and records them, so that another forward pass' choices can be compared
with them; it never takes choices from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from hyper_connection_reference import Pass, Weights, marked, mixed, mlp, rms_norm, routed, shares
from torch import Tensor

SCORES = {
    "sqrtsoftplus": lambda z: torch.log1p(torch.exp(z)).sqrt(),
    "sigmoid": torch.sigmoid,
    "softmax": lambda z: z.softmax(-1),
}


def deepseek_v4(state: Mapping[str, Tensor], config: Any, tokens: Tensor) -> Pass:
    """Logits (B, T, V) of the language model with that state dict, and its choices.

    ``config``: the model's sizes and settings, as attributes.
    """
    weights, choices = Weights(state), {}
    e = weights["model.embed_tokens.weight"][tokens]
    x = e[:, :, None, :].expand(-1, -1, config.hc_mult, -1)
    for index in range(config.num_hidden_layers):
        layer = weights.under(f"model.layers.{index}")

        def attention(u: Tensor, layer: Weights = layer, index: int = index) -> Tensor:
            u = rms_norm(u, config.rms_norm_eps, layer["input_layernorm.weight"])
            return _attention(u, layer.under("self_attn"), config, config.layer_types[index], choices)

        def experts(u: Tensor, layer: Weights = layer, index: int = index) -> Tensor:
            u = rms_norm(u, config.rms_norm_eps, layer["post_attention_layernorm.weight"])
            return _experts(u, layer.under("mlp"), config, config.mlp_layer_types[index], tokens, choices)

        x = mixed(x, layer.under("attn_hc"), config, attention)
        x = mixed(x, layer.under("ffn_hc"), config, experts)
    head = weights.under("model.hc_head")
    z = rms_norm(x.flatten(-2), config.rms_norm_eps) @ head["hc_fn"].T
    c = torch.sigmoid(z * head["hc_scale"] + head["hc_base"]) + config.hc_eps
    h = rms_norm(torch.einsum("btn,btnd->btd", c, x), config.rms_norm_eps, weights["model.norm.weight"])
    return Pass(weights.linear("lm_head", h), choices)


def _attention(u: Tensor, weights: Weights, config: Any, kind: str, choices: dict[str, Tensor]) -> Tensor:
    """One key-value head that is key and value at once, a sink per head, and compressed entries beside the window."""
    heads, eps = config.num_attention_heads, config.rms_norm_eps
    rope = "main" if kind == "sliding_attention" else "compress"
    times = torch.arange(u.shape[1])
    latent = rms_norm(weights.linear("q_a_proj", u), eps, weights["q_a_norm.weight"])
    q = rms_norm(weights.linear("q_b_proj", latent).unflatten(-1, (heads, -1)), eps)
    q = _rotated(q, times[:, None], config, rope)  # (B, T, H, D)
    keys = rms_norm(weights.linear("kv_proj", u), eps, weights["kv_norm.weight"])
    keys = _rotated(keys, times, config, rope)  # (B, T, D)
    back = times[:, None] - times
    seen = ((back >= 0) & (back < config.sliding_window)).expand(len(u), -1, -1)
    if kind != "sliding_attention":
        entries, visible = _compressed(u, latent, weights.under("compressor"), config, kind, choices)
        keys, seen = torch.cat([keys, entries], 1), torch.cat([seen, visible], -1)
    z = torch.einsum("bthd,bsd->bths", q, keys) / config.head_dim**0.5
    z = z.masked_fill(~seen[:, :, None], -torch.inf)
    sinks = weights["sinks"].expand(*z.shape[:-1])[..., None]
    shares_of = torch.cat([z, sinks], -1).softmax(-1)[..., :-1]  # the sink takes its share and gives nothing
    out = torch.einsum("bths,bsd->bthd", shares_of, keys)
    out = _rotated(out, -times[:, None], config, rope)  # values were rotated as keys: back, at the query's place
    groups = config.o_groups
    first = weights["o_a_proj.weight"].unflatten(0, (groups, -1))  # (G, rank, H D / G)
    out = torch.einsum("btgi,gri->btgr", out.flatten(-2).unflatten(-1, (groups, -1)), first)
    return weights.linear("o_b_proj", out.flatten(-2))


def _compressed(
    u: Tensor, latent: Tensor, weights: Weights, config: Any, kind: str, choices: dict[str, Tensor]
) -> tuple[Tensor, Tensor]:
    """Entries (B, W, D) that each sum up ``rate`` tokens, and which of them a query sees, (B, T, W) of bool.

    Entry w may be seen once its tokens are over.  The sparse kind keeps ``index_topk`` of those, by the indexer.
    """
    rate, sparse = config.compress_rates[kind], kind == "compressed_sparse_attention"
    entries = _pooled(u, weights, config, rate, overlapping=sparse)
    count = entries.shape[1]
    over = (torch.arange(u.shape[1]) + 1) // rate
    visible = (torch.arange(count) < over[:, None]).expand(len(u), -1, -1)
    if not sparse or count == 0:
        return entries, visible
    part = weights.under("indexer")
    places = torch.arange(u.shape[1])[:, None]
    q = part.linear("q_b_proj", latent).unflatten(-1, (config.index_n_heads, -1))
    q = _rotated(q, places, config, "compress")
    keys = _pooled(u, part, config, rate, overlapping=True)
    fit = torch.einsum("bthd,bwd->bthw", q, keys).clamp(min=0) / config.index_head_dim**0.5
    amount = part.linear("scorer.weights_proj", u) / config.index_n_heads**0.5
    score = torch.einsum("bth,bthw->btw", amount, fit).masked_fill(~visible, -torch.inf)
    kept = marked(score.topk(min(config.index_topk, count), -1).indices, count) & visible
    choices[weights.prefix + "indexer"] = kept
    return entries, kept


def _pooled(u: Tensor, weights: Weights, config: Any, rate: int, *, overlapping: bool) -> Tensor:
    """Per channel a softmax-weighted sum over each full window of ``rate`` tokens, normed and rotated: (B, W, D).

    Overlapping: the second half of the channels is of the window itself, the first half of the window before it.
    """
    full = u.shape[1] // rate
    value, gate = (
        weights.linear(name, u[:, : full * rate]).unflatten(1, (full, rate)) for name in ("kv_proj", "gate_proj")
    )
    gate = gate + weights["position_bias"]
    if overlapping:
        (late, value), (late_gate, gate) = value.chunk(2, -1), gate.chunk(2, -1)
        before = torch.zeros_like(late[:, :1]), torch.full_like(late[:, :1], -torch.inf)
        value = torch.cat([torch.cat([before[0], late[:, :-1]], 1)[:, :full], value], 2)
        gate = torch.cat([torch.cat([before[1], late_gate[:, :-1]], 1)[:, :full], gate], 2)
    out = rms_norm((value * gate.softmax(2)).sum(2), config.rms_norm_eps, weights["kv_norm.weight"])
    return _rotated(out, torch.arange(full) * rate, config, "compress")


def _rotated(x: Tensor, places: Tensor, config: Any, rope: str) -> Tensor:
    """The last R channels turned, pair (2i, 2i + 1) by the angle ``place base^(-2i / R)``; places as x[..., 0]."""
    settings = config.rope_parameters[rope]
    if settings["rope_type"] != "default":
        raise ValueError(f"rope {rope}: found {settings['rope_type']!r}, expected 'default'")
    size = int(config.head_dim * settings["partial_rotary_factor"])
    speeds = settings["rope_theta"] ** (-torch.arange(0, size, 2).double() / size)
    angle = places[..., None] * speeds
    still, moving = x[..., :-size], x[..., -size:]
    turned = torch.view_as_complex(moving.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.cat([still, torch.view_as_real(turned).flatten(-2)], -1)


def _experts(
    u: Tensor, weights: Weights, config: Any, kind: str, tokens: Tensor, choices: dict[str, Tensor]
) -> Tensor:
    """Routed experts, by a table of the token ids or by score, and the one that all tokens share."""
    scores = SCORES[config.scoring_func](weights.linear("gate", u))
    if kind == "hash_moe":
        chosen = weights["gate.tid2eid"][tokens]
    else:
        chosen = (scores + weights["gate.e_score_correction_bias"]).topk(config.num_experts_per_tok, -1).indices
        choices[weights.prefix + "gate"] = marked(chosen, config.n_routed_experts)
    amounts = shares(scores, chosen, config.routed_scaling_factor)
    limit = config.swiglu_limit
    return routed(u, weights.under("experts"), amounts, limit) + mlp(u, weights.under("shared_experts"), limit)
