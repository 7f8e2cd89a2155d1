"""Megatron-Core ``HyperConnectionModule``: eps outside the root, an exp start, no eps on the read, the mean as head.

    x^ = vec X / (sqrt(mean x^2) + 1e-6),  z = alpha * mapping_proj x^ + bias

The main branch applies A = H_res, the dev branch A = H_res^T; the tensors are the same.  Nothing in a file tells the
two apart, so ``--format megatron`` or ``--format megatron-dev`` must.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import isqrt

from streamgauge.simulate.formats import catalogue
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named

KEY = re.compile(
    r"(?P<name>.*layers\.\d+\.(?:self_attention|mlp)_hyper_connection)"
    r"\.(?P<part>mapping_proj\.weight|bias|alpha_pre|alpha_post|alpha_res)"
)
PARTS = ("mapping_proj.weight", "bias", "alpha_pre", "alpha_post", "alpha_res")
NORM_EPS = 1e-6
"""Fixed in the module, not a config field."""


def _maker(recipe_name: str) -> Callable[[Shards, Settings], ModelRecord]:
    def record(shards: Shards, settings: Settings) -> ModelRecord:
        groups = catalogue.grouped(shards.entries, KEY, str(shards.folder))
        for group in groups.values():
            catalogue.complete(group, PARTS, str(shards.folder))
        n, d = _sizes(shards, next(iter(groups.values())))
        base = recipe_named(recipe_name)
        iterations = settings.integer("mhc_sinkhorn_iterations", most=10_000)
        mixing = Mixing(
            "sinkhorn", replace(base, iterations=iterations), tight="rows" if base.transpose else "columns"
        )
        streams = settings.raw("mhc_num_residual_streams")
        if streams is not None and settings.integer("mhc_num_residual_streams") != n:
            raise InputError(f"config.json mhc_num_residual_streams: found {streams}, the tensors say {n}")
        mixers = [
            _mixer(site, groups[name], n, mixing)
            for site, name in enumerate(catalogue.depth_order(groups, str(shards.folder)))
        ]
        return ModelRecord(recipe_name, "megatron-core", n, d, tuple(mixers), Head("mean"), settings=settings.used)

    return record


def _mixer(site: int, group: catalogue.Group, n: int, mixing: Mixing) -> Mixer:
    blocks = (range(n), range(n, 2 * n), range(2 * n, n * (n + 2)))
    read, write, mix = (
        Affine(
            View(group.parts["bias"], tuple(block), "flat"),
            View(group.parts["mapping_proj.weight"], tuple(block)),
            View(group.parts[alpha], (0,), "flat"),
        )
        for block, alpha in zip(blocks, ("alpha_pre", "alpha_post", "alpha_res"))
    )
    norm, branch = Norm(eps=NORM_EPS, placement="outside"), catalogue.branch_of(group.name)
    return Mixer(site, group.name, branch, read, write, mix, norm, mixing, Map("sigmoid"), Map("sigmoid", 2.0))


def _sizes(shards: Shards, group: catalogue.Group) -> tuple[int, int]:
    shape = shards.shape(group.parts["mapping_proj.weight"])
    n = isqrt(shape[0] + 1) - 1 if len(shape) == 2 else 0
    if n < 1 or shape[0] != n * (n + 2) or shape[1] % n:
        key = group.parts["mapping_proj.weight"]
        raise InputError(f"{shards.folder}: tensor {key} has shape {shape}, expected (n (n + 2), n d)")
    return n, shape[1] // n


def fits(shards: Shards) -> bool:
    """Some tensor of such a module."""
    return any(KEY.fullmatch(key) for key in shards.entries)


FORMATS = tuple(
    Adapter(name, f"Megatron-Core, {branch} branch", fits, lambda _: None, _maker(name))
    for name, branch in (("megatron", "main"), ("megatron-dev", "dev"))
)
