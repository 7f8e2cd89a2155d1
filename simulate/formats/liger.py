"""Liger-Kernel ``LigerMHC`` modules: ``phi`` (n d, n (n + 2)) stored transposed, and A = H_res as it is.

Only the module is in the file: its constructor's arguments (``tmax``, ``rms_eps``, ``pre_eps``, ``sinkhorn_eps``,
``post_mult``) and what the network does with the streams at its end (``head``: sum, mean or none) are given with
``--set``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isqrt

from streamgauge.simulate.formats import catalogue
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named

KEY = re.compile(r"(?P<name>.+)\.(?P<part>phi|b|alpha_pre|alpha_post|alpha_res)")
PARTS = ("phi", "b", "alpha_pre", "alpha_post", "alpha_res")


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a folder with LigerMHC modules."""
    groups = {name: group for name, group in _groups(shards).items() if set(group.parts) & {"phi", "alpha_res"}}
    for group in groups.values():
        catalogue.complete(group, PARTS, str(shards.folder))
    given = settings.raw("order")
    order = catalogue.depth_order(groups, str(shards.folder), None if given is None else str(given))
    if given is not None:
        settings.used["order"] = str(given)
    rms_eps = settings.number("rms_eps", most=1.0)
    iterations, eps = settings.integer("tmax", most=10_000), settings.number("sinkhorn_eps", least=1e-30, most=0.5)
    read_map = Map("sigmoid", 1.0, settings.number("pre_eps", most=0.5))
    write_map = Map("sigmoid", settings.number("post_mult", most=1e3))
    head = settings.choice("head", ("sum", "mean", "none"))
    recipe = replace(recipe_named("liger"), iterations=iterations, eps=eps, start_eps=eps)
    n, d = _sizes(shards, groups[order[0]])
    mixers = []
    for site, name in enumerate(order):
        parts = groups[name].parts
        blocks = (range(n), range(n, 2 * n), range(2 * n, n * (n + 2)))
        read, write, mix = (
            Affine(
                View(parts["b"], tuple(block), "flat"),
                View(parts["phi"], tuple(block), "columns"),
                View(parts[alpha], (0,), "flat"),
            )
            for block, alpha in zip(blocks, ("alpha_pre", "alpha_post", "alpha_res"))
        )
        mixing = Mixing("sinkhorn", recipe, tight="columns")
        branch = catalogue.branch_of(name)
        mixers.append(Mixer(site, name, branch, read, write, mix, Norm(eps=rms_eps), mixing, read_map, write_map))
    kind = {"sum": Head("sum"), "mean": Head("mean")}.get(head, Head("none"))
    return ModelRecord("liger", "LigerMHC", n, d, tuple(mixers), kind, settings=settings.used)


def fits(shards: Shards) -> bool:
    """Some module with all five tensors."""
    return any(set(group.parts) == set(PARTS) for group in _groups(shards).values())


def _groups(shards: Shards) -> dict[str, catalogue.Group]:
    return catalogue.grouped(shards.entries, KEY, str(shards.folder))


def _sizes(shards: Shards, group: catalogue.Group) -> tuple[int, int]:
    shape = shards.shape(group.parts["phi"])
    rows = shards.shape(group.parts["b"])
    n = isqrt(rows[0] + 1) - 1 if len(rows) == 1 else 0
    if n < 1 or rows != (n * (n + 2),) or len(shape) != 2 or shape[1] != rows[0] or shape[0] % n:
        raise InputError(
            f"{shards.folder}: tensor {group.parts['phi']} has shape {shape} beside b of shape {rows}, "
            "expected (n d, n (n + 2)) and (n (n + 2),)"
        )
    return n, shape[0] // n


FORMAT = Adapter("liger", "Liger-Kernel LigerMHC", fits, lambda _: None, record)
