"""The mhc-lite repository (arXiv:2601.05732): ``hyper_conn_type`` "mhc", "mhc_lite" or "hc"; A = S^T; GPT around it.

- mhc, mhc_lite: one norm over the flattened streams, ``x^ = x / ||x|| sqrt(n d) (gamma + 1)`` (gamma goes into the
  weights).  mhc: static_alpha (n, n + 1), weights' columns (s, t) with t = 0 the read.  mhc_lite: n reads, then n!
  logits over permutation matrices.
- hc: lucidrains' HC, each stream normalised by itself.
- The end applies ``ln_f`` to every stream and sums: not linear in X, so it is given ``X_L = P_L Y_L``.
"""

from __future__ import annotations

from dataclasses import replace
from math import factorial

from streamgauge.simulate.formats import catalogue, static_alpha
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named

ITERATIONS = 20
"""Fixed in the repository's code."""
HEAD = Head("streams", note="ln_f is applied to every stream before the sum")


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a folder of that repository."""
    where, groups = str(shards.folder), static_alpha.groups(shards)
    kind = settings.choice("hyper_conn_type", ("mhc", "mhc_lite", "hc"))
    n = settings.integer("hyper_conn_n", most=64)
    parts = static_alpha.HC if kind == "hc" else static_alpha.MHC
    mixers = []
    d = 0
    for site, name in enumerate(catalogue.depth_order(groups, where)):
        group = groups[name]
        catalogue.complete(group, parts, where)
        d = d or _width(shards, group, n, kind)
        _check(shards, group, n, d, kind)
        if kind == "hc":
            mixing = Mixing("matrix", transpose=True)
            mixers.append(static_alpha.per_stream(site, group, n, d, "hc", mixing))
        else:
            mixers.append(_flat(site, group, n, d, kind))
    return ModelRecord("mhc-lite", kind, n, d, tuple(mixers), HEAD, settings=settings.used)


def _flat(site: int, group: catalogue.Group, n: int, d: int, kind: str) -> Mixer:
    parts = group.parts
    if kind == "mhc":
        read_at = tuple(s * (n + 1) for s in range(n))
        mix_at = tuple(s * (n + 1) + 1 + t for s in range(n) for t in range(n))
        recipe = replace(recipe_named("mhc-lite"), iterations=ITERATIONS)
        mixing = Mixing("sinkhorn", recipe, tight="columns")
    else:
        read_at, mix_at = tuple(range(n)), tuple(range(n, n + factorial(n)))
        mixing = Mixing("permutations", transpose=True, tight="both")
    read, mix = (
        Affine(
            View(parts["static_alpha"], at, "flat"),
            View(parts["dynamic_alpha_fn"], at, "columns"),
            View(parts[scale], (0,), "flat"),
        )
        for at, scale in ((read_at, "pre_branch_scale"), (mix_at, "residual_scale"))
    )
    write = Affine(
        View(parts["static_beta"]),
        View(parts["dynamic_beta_fn"], None, "columns"),
        View(parts["h_post_scale"], (0,), "flat"),
    )
    norm = Norm("flat", static_alpha.NORMALIZE_EPS / (n * d) ** 0.5, "clamp", View(parts["norm.gamma"]), 1.0)
    branch = catalogue.branch_of(group.name)
    return Mixer(site, group.name, branch, read, write, mix, norm, mixing, Map("sigmoid"), Map("sigmoid", 2.0))


def _width(shards: Shards, group: catalogue.Group, n: int, kind: str) -> int:
    shape = shards.shape(group.parts["norm.gamma"])
    streams = 1 if kind == "hc" else n
    if len(shape) != 1 or shape[0] % streams:
        raise InputError(
            f"{shards.folder}: tensor {group.parts['norm.gamma']} has shape {shape}, expected ({streams} d,)"
        )
    return shape[0] // streams


def _check(shards: Shards, group: catalogue.Group, n: int, d: int, kind: str) -> None:
    shapes: dict[str, dict[str, tuple[int, ...]]] = {
        "hc": {"static_alpha": (n, n + 1), "dynamic_alpha_fn": (d, n + 1), "dynamic_beta_fn": (d,)},
        "mhc": {
            "static_alpha": (n, n + 1),
            "dynamic_alpha_fn": (n * d, n * (n + 1)),
            "dynamic_beta_fn": (n * d, n),
        },
        "mhc_lite": {
            "static_alpha": (n + factorial(n),),
            "dynamic_alpha_fn": (n * d, n + factorial(n)),
            "dynamic_beta_fn": (n * d, n),
        },
    }
    for part, wanted in shapes[kind].items():
        found = shards.shape(group.parts[part])
        if found != wanted:
            raise InputError(
                f"{shards.folder}: tensor {group.parts[part]} has shape {found}, expected {wanted} for {kind}"
            )


def fits(shards: Shards) -> bool:
    """Mixers in a GPT's place (``transformer.h.N.hc_attn``) with weights."""
    groups = static_alpha.groups(shards)
    return any(
        name.startswith("transformer.h.") and "H_res_logits" not in group.parts for name, group in groups.items()
    )


def agrees(settings: Settings) -> bool | None:
    """Its config names the kind of hyper-connection."""
    return None if settings.raw("hyper_conn_type") is None else True


FORMAT = Adapter("mhc-lite", "the mhc-lite repository", fits, agrees, record)
