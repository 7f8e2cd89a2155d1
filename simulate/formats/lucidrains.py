"""lucidrains ``hyper-connections``: HC (free A) and mHC (Sinkhorn), each stream normalised by itself, then summed.

    alpha_s = act(norm(X_s) W) * scale + static_alpha_s;   column 0 reads, the others mix: X'_t = sum_s alpha_st X_s

Because row s of alpha sees only stream s, a change of basis does not commute with the norm: dynamic reads and writes
cannot be carried over as an equivalent controller.  The package stores no config: ``sinkhorn_iters`` (mHC) and
``head`` are given with ``--set``.
"""

from __future__ import annotations

from dataclasses import replace

from streamgauge.simulate.formats import catalogue, static_alpha
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import Head, Mixing, ModelRecord, Reader
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named


def kind_of(group: catalogue.Group, shards: Shards) -> str | None:
    """ "hc", "mhc" or None, by the parts there are and by the norm's width (one stream's)."""
    parts = set(group.parts)
    if "H_res_logits" in parts or "norm.gamma" not in parts or "dynamic_alpha_fn" not in parts:
        return None
    weights, gamma = shards.shape(group.parts["dynamic_alpha_fn"]), shards.shape(group.parts["norm.gamma"])
    if len(weights) < 2 or gamma != weights[-2:-1]:
        return None
    if "h_post_scale" in parts:
        return "mhc" if len(weights) == 3 else None
    return "hc" if len(weights) == 2 and "dynamic_alpha_scale" in parts else None


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a folder with such modules."""
    where, groups = str(shards.folder), static_alpha.groups(shards)
    kinds = {kind_of(group, shards) for group in groups.values()}
    if len(kinds) != 1 or None in kinds:
        raise InputError(f"{where}: mixers of {len(kinds)} kinds, expected HC or mHC throughout")
    kind = str(kinds.pop())
    given = settings.raw("order")
    order = catalogue.depth_order(groups, where, None if given is None else str(given))
    if given is not None:
        settings.used["order"] = str(given)
    if kind == "mhc":
        recipe = replace(recipe_named("lucidrains"), iterations=settings.integer("sinkhorn_iters", most=10_000))
        mixing = Mixing("sinkhorn", recipe, tight="columns")
    else:
        mixing = Mixing("matrix", transpose=True)
    head = settings.choice("head", ("sum", "mean", "none", "streams"))
    n, d = _sizes(shards, groups[order[0]])
    mixers = []
    for site, name in enumerate(order):
        catalogue.complete(groups[name], static_alpha.HC if kind == "hc" else static_alpha.MHC, where)
        _plain(shards, groups[name], where)
        mixers.append(static_alpha.per_stream(site, groups[name], n, d, kind, mixing))
    heads = {"sum": Head("sum"), "mean": Head("mean"), "none": Head("none"), "streams": Head("streams")}
    readers = tuple(Reader(key, 0, writes=True) for key in shards.entries if key.endswith("stream_embed"))
    return ModelRecord("lucidrains", kind, n, d, tuple(mixers), heads[head], readers=readers, settings=settings.used)


def fits(shards: Shards) -> bool:
    """Mixers of one of the two kinds, not in the mhc-lite repository's place."""
    groups = static_alpha.groups(shards)
    return any(kind_of(group, shards) for group in groups.values())


def _sizes(shards: Shards, group: catalogue.Group) -> tuple[int, int]:
    shape = shards.shape(group.parts["static_alpha"])
    if len(shape) != 2 or shape[1] != shape[0] + 1:
        raise InputError(
            f"{shards.folder}: tensor {group.parts['static_alpha']} has shape {shape}, expected (n, n + 1): "
            "several input views or fractions are not supported"
        )
    return shape[0], shards.shape(group.parts["norm.gamma"])[0]


def _plain(shards: Shards, group: catalogue.Group, where: str) -> None:
    if "maybe_mix_streams.weight" in group.parts:
        raise InputError(f"{where}: mixer {group.name} mixes the streams before its norm, which is not supported")
    shape = shards.shape(group.parts["dynamic_alpha_fn"])
    if len(shape) == 3 and shape[0] != 1:
        raise InputError(f"{where}: mixer {group.name} averages {shape[0]} proposals, expected 1")


FORMAT = Adapter("lucidrains", "lucidrains hyper-connections", fits, lambda _: None, record)
