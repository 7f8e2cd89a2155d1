"""The tensors ``fn``, ``base``, ``scale`` of the DeepSeek family, in every spelling that is in use.

==========  =============================================  ================================  =====================
spelling    mixers                                         head                              written by
==========  =============================================  ================================  =====================
release     layers.N.hc_attn_fn                            hc_head_fn                        the published weights
hybrid      model.layers.N.hc_attn_fn                      model.hc_head.hc_fn               save_pretrained
native      model.layers.N.attn_hc.fn                      model.hc_head.hc_fn               the state dict
==========  =============================================  ================================  =====================

each with or without ``model.`` (and ``model.language_model.``).  Rows of fn and base: pre (n), post (n), comb (n^2,
row-major); columns stream-major.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from streamgauge.simulate.formats.record import Affine, Head, Map, Mixer, Mixing, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.sinkhorn import recipe_named

PREFIX = r"(?:model\.)?(?:language_model\.)?(?:model\.)?"
FLAT = re.compile(PREFIX + r"layers\.(?P<layer>\d+)\.hc_(?P<branch>attn|ffn)_(?P<part>fn|base|scale)")
DOTTED = re.compile(PREFIX + r"layers\.(?P<layer>\d+)\.(?P<branch>attn|ffn)_hc\.(?P<part>fn|base|scale)")
HEADS = (
    re.compile(PREFIX + r"hc_head_(?P<part>fn|base|scale)"),
    re.compile(PREFIX + r"hc_head\.hc_(?P<part>fn|base|scale)"),
)
APART = re.compile(r"(?:model\.)?(?:mtp|mtp_layers)\..*")
LOOKS = re.compile(r"(?:^|[._])hc_|_hc\.")
PARTS = ("fn", "base", "scale")
BRANCHES = ("attn", "ffn")


@dataclass(frozen=True)
class Found:
    """Keys by (layer, branch) and part; keys of the head; keys that look like hyper-connections and fit nothing."""

    mixers: dict[tuple[int, str], dict[str, str]]
    head: dict[str, str]
    unknown: tuple[str, ...]
    spelling: str


def find(shards: Shards) -> Found:
    """The family's keys in a folder. **Raises** :class:`InputError` for one tensor in two spellings."""
    mixers: dict[tuple[int, str], dict[str, str]] = {}
    head: dict[str, str] = {}
    unknown, spellings = [], set()
    for key in sorted(shards.entries):
        found = FLAT.fullmatch(key) or DOTTED.fullmatch(key)
        of_head = next((match for match in (pattern.fullmatch(key) for pattern in HEADS) if match), None)
        if found is not None:
            parts = mixers.setdefault((int(found["layer"]), found["branch"]), {})
            dotted = DOTTED.fullmatch(key) is not None
            spellings.add("native" if dotted else "hybrid" if key.startswith("model.") else "release")
        elif of_head is not None:
            found, parts = of_head, head
        else:
            if LOOKS.search(key) and not APART.fullmatch(key):
                unknown.append(key)
            continue
        if found["part"] in parts:
            raise InputError(f"{shards.folder}: tensors {parts[found['part']]} and {key} are the same tensor twice")
        parts[found["part"]] = key
    if len(spellings) > 1:
        raise InputError(f"{shards.folder}: mixers in {len(spellings)} spellings, expected one of them throughout")
    return Found(mixers, head, tuple(unknown), next(iter(spellings), "none"))


def fits(shards: Shards, rows_of_scale: int) -> bool:
    """Whether there are such mixers and their scale has this many entries (3: mHC; 2: no mixing matrix)."""
    shapes = {
        entry.shape
        for key, entry in shards.entries.items()
        if key.endswith("scale") and (FLAT.fullmatch(key) or DOTTED.fullmatch(key))
    }
    return (rows_of_scale,) in shapes


@dataclass(frozen=True)
class Numbers:
    """What the family takes from the config."""

    n: int
    d: int
    layers: int
    iterations: int
    hc_eps: float
    rms_eps: float


def numbers(settings: Settings) -> Numbers:
    """n, d, depth, Sinkhorn iterations and both eps from the config, all required."""
    return Numbers(
        settings.integer("hc_mult", most=64),
        settings.integer("hidden_size"),
        settings.integer("num_hidden_layers", most=10_000),
        settings.integer("hc_sinkhorn_iters", most=10_000),
        settings.number("hc_eps", least=1e-30, most=0.5),
        settings.number("rms_norm_eps", most=1.0),
    )


def mixers(shards: Shards, found: Found, given: Numbers, recipe: str) -> tuple[Mixer, ...]:
    """Two mixers a layer, attention first, of the layers that the config counts.

    **Raises** :class:`InputError` naming what is missing, has another shape, or is unknown.
    """
    if found.unknown:
        raise InputError(f"{shards.folder}: tensor {found.unknown[0]} is no part of a mixer that this format has")
    out: list[Mixer] = []
    for layer in range(given.layers):
        for branch in BRANCHES:
            parts = found.mixers.get((layer, branch), {})
            missing = [part for part in PARTS if part not in parts]
            if missing:
                wanted = ", ".join(PARTS)
                raise InputError(
                    f"{shards.folder}: layer {layer} has no {branch} mixer {missing[0]}, expected {wanted}"
                )
            _check_shapes(shards, parts, given.n, given.d, given.n * (given.n + 2), 3)
            out.append(_mixer(len(out), f"layers.{layer}.{branch}", branch, parts, given, recipe))
    return tuple(out)


def beyond(found: Found, layers: int, settings: Settings) -> list[int]:
    """Layers past the config's depth that have mixers of their own (multi-token-prediction blocks).

    **Raises** :class:`InputError` for more of them than the config counts: then its depth is another model's.
    """
    past = sorted({layer for layer, _ in found.mixers if layer >= layers})
    if past and len(past) > settings.integer("num_nextn_predict_layers", least=0, most=1000, default=1):
        raise InputError(
            f"config.json num_hidden_layers: found {layers}, but layers {past[0]} to {past[-1]} have mixers too; "
            "settle it with --set num_hidden_layers=VALUE or --set num_nextn_predict_layers=VALUE"
        )
    return past


def gated_head(shards: Shards, found: Found, given: Numbers) -> Head:
    """The learned head: ``sigmoid(scale fn x^ + base) + hc_eps``."""
    missing = [part for part in PARTS if part not in found.head]
    if missing:
        raise InputError(f"{shards.folder}: the head has no {missing[0]} tensor, expected {', '.join(PARTS)}")
    _check_shapes(shards, found.head, given.n, given.d, given.n, 1)
    affine = Affine(View(found.head["base"]), View(found.head["fn"]), View(found.head["scale"], (0,), "flat"))
    return Head("gate", affine, Norm(eps=given.rms_eps), Map("sigmoid", 1.0, given.hc_eps))


def _mixer(site: int, name: str, branch: str, parts: dict[str, str], given: Numbers, recipe: str) -> Mixer:
    n = given.n
    rows = (range(n), range(n, 2 * n), range(2 * n, n * (n + 2)))
    read, write, mix = (
        Affine(
            View(parts["base"], tuple(block), "flat"),
            View(parts["fn"], tuple(block)),
            View(parts["scale"], (i,), "flat"),
        )
        for i, block in enumerate(rows)
    )
    base = recipe_named(recipe)
    made = replace(base, iterations=given.iterations, eps=given.hc_eps, start_eps=given.hc_eps)
    tight: Literal["rows", "columns"] = "rows" if base.transpose else "columns"
    return Mixer(
        site,
        name,
        branch,
        read,
        write,
        mix,
        Norm(eps=given.rms_eps),
        Mixing("sinkhorn", made, tight=tight),
        Map("sigmoid", 1.0, given.hc_eps),
        Map("sigmoid", 2.0),
    )


def _check_shapes(shards: Shards, parts: dict[str, str], n: int, d: int, rows: int, scales: int) -> None:
    for part, wanted in (("fn", (rows, n * d)), ("base", (rows,)), ("scale", (scales,))):
        found = shards.shape(parts[part])
        if found != wanted:
            hint = "; it is transposed" if found == wanted[::-1] and len(wanted) == 2 else ""
            raise InputError(f"{shards.folder}: tensor {parts[part]} has shape {found}, expected {wanted}{hint}")
