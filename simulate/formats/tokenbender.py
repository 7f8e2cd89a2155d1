"""tokenbender's static mHC: ``H_res_logits``, ``H_pre_logits``, ``H_post_logits`` and nothing dynamic.

A = S^T with S = Sinkhorn(logits / tau), read softmax(H_pre), write softmax(H_post) (it sums to 1, there is no factor
2).  ``H_res_alpha_logit``, where present, blends with the identity.  ``ln_f`` is applied to every stream before the
sum.  Iterations and tau come from the config (``sinkhorn_iters``, ``sinkhorn_tau``).  Checkpoints of the repository
are pickles: save ``model`` as safetensors and its config as config.json first.
"""

from __future__ import annotations

from dataclasses import replace

from streamgauge.simulate.formats import catalogue, static_alpha
from streamgauge.simulate.formats.adapter import Adapter
from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named

PARTS = ("H_res_logits", "H_pre_logits", "H_post_logits")
UNUSED = "unused by the static mixer"


def record(shards: Shards, settings: Settings) -> ModelRecord:
    """The record of a folder of that repository."""
    where, groups = str(shards.folder), static_alpha.groups(shards)
    projection = settings.raw("mhc_h_res_proj")
    if projection is not None and settings.choice("mhc_h_res_proj", ("sinkhorn", "orthostochastic")) != "sinkhorn":
        raise InputError(
            f"{where}: mhc_h_res_proj is {projection!r}, expected 'sinkhorn' (the other is not supported)"
        )
    recipe = replace(
        recipe_named("tokenbender"),
        iterations=settings.integer("sinkhorn_iters", most=10_000),
        temperature=settings.number("sinkhorn_tau", least=1e-6),
    )
    d = settings.integer("n_embd")
    n = shards.shape(next(iter(groups.values())).parts.get("H_res_logits", ""))[0]
    mixers: list[Mixer] = []
    dropped: dict[str, str] = {}
    for site, name in enumerate(catalogue.depth_order(groups, where)):
        group = groups[name]
        catalogue.complete(group, PARTS, where)
        if shards.shape(group.parts["H_res_logits"]) != (n, n):
            found = shards.shape(group.parts["H_res_logits"])
            raise InputError(f"{where}: tensor {group.parts['H_res_logits']} has shape {found}, expected {(n, n)}")
        blend = group.parts.get("H_res_alpha_logit")
        mixing = Mixing("sinkhorn", recipe, tight="rows", blend=None if blend is None else View(blend, (0,), "flat"))
        read, write, mix = (
            Affine(View(group.parts[part])) for part in ("H_pre_logits", "H_post_logits", "H_res_logits")
        )
        branch, soft = catalogue.branch_of(name), Map("softmax")
        mixers.append(Mixer(site, name, branch, read, write, mix, Norm(), mixing, soft, soft))
        dropped |= {key: UNUSED for part, key in group.parts.items() if part not in (*PARTS, "H_res_alpha_logit")}
    head = Head("streams", note="ln_f is applied to every stream before the sum")
    return ModelRecord("tokenbender", "static", n, d, tuple(mixers), head, dropped=dropped, settings=settings.used)


def fits(shards: Shards) -> bool:
    """Static logits."""
    return any("H_res_logits" in group.parts for group in static_alpha.groups(shards).values())


FORMAT = Adapter("tokenbender", "tokenbender's static mHC", fits, lambda _: None, record)
