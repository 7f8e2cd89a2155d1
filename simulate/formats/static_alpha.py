"""The keys of the ``static_alpha`` family (ByteDance's appendix code and what descends from it).

Shared by lucidrains ``hyper-connections``, the mhc-lite and tokenbender repositories and x-transformers; each module
says what its own shapes are.
"""

from __future__ import annotations

import re

from streamgauge.simulate.formats import catalogue
from streamgauge.simulate.formats.record import Affine, Map, Mixer, Mixing, Norm, View
from streamgauge.simulate.formats.shards import Shards

KEY = re.compile(
    r"(?P<name>.+)\.(?P<part>static_alpha|dynamic_alpha_fn|dynamic_alpha_scale|static_beta|dynamic_beta_fn"
    r"|dynamic_beta_scale|pre_branch_scale|residual_scale|h_post_scale|norm\.gamma|maybe_mix_streams\.weight"
    r"|H_res_logits|H_pre_logits|H_post_logits|H_res_alpha_logit)"
)
HC = (
    "static_alpha",
    "dynamic_alpha_fn",
    "dynamic_alpha_scale",
    "static_beta",
    "dynamic_beta_fn",
    "dynamic_beta_scale",
    "norm.gamma",
)
MHC = (
    "static_alpha",
    "dynamic_alpha_fn",
    "pre_branch_scale",
    "residual_scale",
    "static_beta",
    "dynamic_beta_fn",
    "h_post_scale",
    "norm.gamma",
)
NORMALIZE_EPS = 1e-12
"""The clamp of ``torch.nn.functional.normalize``, on the 2-norm."""


def groups(shards: Shards) -> dict[str, catalogue.Group]:
    """Mixers by name; a ``norm.gamma`` that belongs to no mixer is left out."""
    found = catalogue.grouped(shards.entries, KEY, str(shards.folder))
    return {name: group for name, group in found.items() if {"static_alpha", "H_res_logits"} & set(group.parts)}


def per_stream(site: int, group: catalogue.Group, n: int, d: int, kind: str, mixing: Mixing) -> Mixer:
    """HC ("hc") or mHC ("mhc") with each stream normalised by itself: row s of alpha depends on X_s alone."""
    parts, norm_eps = group.parts, NORMALIZE_EPS / d**0.5
    read_at = tuple(s * (n + 1) for s in range(n))
    mix_at = tuple(s * (n + 1) + 1 + t for s in range(n) for t in range(n))
    hc = kind == "hc"
    scales = ("dynamic_alpha_scale",) * 2 if hc else ("pre_branch_scale", "residual_scale")
    out = []
    for at, columns, scale in ((read_at, (0,), scales[0]), (mix_at, tuple(range(1, n + 1)), scales[1])):
        out.append(
            Affine(
                View(parts["static_alpha"], at, "flat"),
                View(parts["dynamic_alpha_fn"], columns, "columns"),
                View(parts[scale], (0,), "flat"),
                "tanh" if hc else "none",
            )
        )
    write = Affine(
        View(parts["static_beta"]),
        View(parts["dynamic_beta_fn"], None, "flat"),
        View(parts["dynamic_beta_scale" if hc else "h_post_scale"], (0,), "flat"),
        "tanh" if hc else "none",
    )
    norm = Norm("stream", norm_eps, "clamp", View(parts["norm.gamma"]), 1.0)
    maps = (Map("linear"), Map("linear")) if hc else (Map("sigmoid"), Map("sigmoid", 2.0))
    return Mixer(site, group.name, catalogue.branch_of(group.name), out[0], write, out[1], norm, mixing, *maps)
