"""Formats that are recognised and not converted, each with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable

from streamgauge.simulate.formats import deepseek_keys, static_alpha
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.shards import Shards

_HY4 = re.compile(
    r".*hc_(?:attn|mlp)_layer\.hc_pre\.hc_(?:fn|base|scale)(?:\.weight)?|.*hc_pre\.hc_(?:attn|mlp)_layer\.hc_(?:fn|base|scale)"
)
_QWEN4 = re.compile(
    r".*(?:attn|mlp)_hyper_connection\.(?:input_mix_weight_down|input_mix_weight_up|block_inject_weight).*"
)
_XTRANSFORMERS = re.compile(r".*attn_layers\.layers\.\d+\.2\.static_alpha")
_INSIDE = re.compile(r".*(?:phi_res\.weight|h_res_raw|H_res_raw)|(?:.*\.)?mixing_logits")


def _any(pattern: re.Pattern[str]) -> Callable[[Shards], bool]:
    return lambda shards: any(pattern.fullmatch(key) for key in shards.entries)


def _hy4(shards: Shards) -> bool:
    return _any(_HY4)(shards) or deepseek_keys.fits(shards, 2)


def _xtransformers(shards: Shards) -> bool:
    """Its own place in the module tree, and a LayerNorm (``norm.weight``) where others have ``norm.gamma``."""
    return _any(_XTRANSFORMERS)(shards) and not any(
        "norm.gamma" in group.parts for group in static_alpha.groups(shards).values()
    )


FORMATS = (
    Adapter(
        "hy4-ihc",
        "Hy4 (independent hyper-connections)",
        _hy4,
        lambda _: None,
        reason="its residual is the identity already (A = I, P = I, D = I): use it as it is",
    ),
    Adapter(
        "qwen4-exp",
        "Qwen4-Exp (gated residual)",
        _any(_QWEN4),
        lambda _: None,
        reason="its residual is the identity already (A = I); its reads are elementwise on streams normalised one by "
        "one, so no change of stream basis carries them over: use it as it is",
    ),
    Adapter(
        "x-transformers",
        "x-transformers HyperConnection",
        _xtransformers,
        lambda _: None,
        reason="its mixer is the all-ones matrix whatever the weights (its Sinkhorn normalises a 1 x n block): rank "
        "one with gain n, every stream the same after the first site",
    ),
    Adapter(
        "no-streams",
        "a package without persistent streams",
        _any(_INSIDE),
        lambda _: None,
        reason="its streams do not persist from block to block (or it mixes past outputs, not streams): "
        "there is no chain of mixers to convert",
    ),
)
