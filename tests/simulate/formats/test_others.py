"""Every other format: coefficients and conversions against transcriptions of the documented formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_folders import f32, read_file, write_folder
from foreign_formulas import Site, run, run_sidecar
from foreign_models import ALL, STATIC, D, N, liger, lite, megatron, streams
from refusals import assert_refused

from streamgauge.simulate.formats.detect import Recognised, read_record
from streamgauge.simulate.formats.evaluate import coefficients, load, static_mixer
from streamgauge.simulate.formats.probe import orientation
from streamgauge.simulate.formats.record import Map, Mixer, ModelRecord
from streamgauge.simulate.formats.shards import Shards
from streamgauge.simulate.formats.sidecar import Options, convert_folder
from streamgauge.simulate.formats.static import static_share
from streamgauge.theory.errors import InputError

E = np.array([0.7, -1.2, 0.4, 2.0, -0.3])


@pytest.mark.parametrize("name", ALL)
def test_coefficients_are_the_documented_ones(name: str, tmp_path: Path) -> None:
    foreign = ALL[name]()
    shards = Shards(foreign.folder(tmp_path / "source"))
    record = read_record(shards, name=foreign.format, given=foreign.given)
    assert isinstance(record, ModelRecord)
    assert (record.n, record.d, len(record.mixers)) == (N, D, len(foreign.names))
    x = np.random.default_rng(9).normal(0, 1, (4, N, D)) * np.array([1.0, 1e-3, 30.0, 1.0])[:, None, None]
    for mixer, site in zip(record.mixers, foreign.sites()):
        found = coefficients(mixer, load(mixer, shards, N, D), x)
        for i, state in enumerate(x):
            for made, wanted in zip(found, site(state)):
                np.testing.assert_allclose(
                    made[i] if made.ndim > wanted.ndim else made, wanted, rtol=1e-11, atol=1e-13
                )


@pytest.mark.parametrize("name", STATIC)
def test_static_checkpoints_convert_to_the_same_function(name: str, tmp_path: Path) -> None:
    foreign = STATIC[name]()
    source = foreign.folder(tmp_path / "source")
    made = convert_folder(source, tmp_path / "out", Options("exact", foreign.format, foreign.given))
    tensors, record = read_file(made.path)
    x = run(foreign.sites(), np.outer(np.ones(N), E))
    y, levels, head = run_sidecar(tensors, record, E)
    for p, a, b in zip(levels, x, y):
        np.testing.assert_allclose(p @ b, a, rtol=0, atol=1e-11 * np.abs(a).max())
    kind = record["model"]["head"]["kind"]
    if kind in ("sum", "mean"):
        np.testing.assert_allclose(head, getattr(x[-1], kind)(0), rtol=0, atol=1e-11 * np.abs(x[-1]).max())
    else:
        assert (kind, head) == ("streams", None)  # ln_f per stream before the sum reads P_L Y_L itself


def test_megatron_branches_cannot_be_told_apart(tmp_path: Path) -> None:
    source = megatron(residual=0.0).folder(tmp_path / "source")
    message = "give --format megatron or --format megatron-dev"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options()), message)


def test_constructor_arguments_must_be_given(tmp_path: Path) -> None:
    foreign = liger(residual=0.0)
    source = foreign.folder(tmp_path / "source")
    for name in foreign.given:
        given = {k: v for k, v in foreign.given.items() if k != name}
        message = rf"{name}: missing.* --set {name}=VALUE"
        assert_refused(lambda given=given: read_record(Shards(source), given=given), message)
    extra = {**foreign.given, "tmx": "3"}
    assert_refused(lambda: read_record(Shards(source), given=extra), "--set tmx: this format does not read it")


@pytest.mark.parametrize("kind", ["hc", "mhc"])
def test_a_norm_per_stream_admits_no_dynamic_reads(kind: str, tmp_path: Path) -> None:
    foreign = streams(kind)
    source = foreign.folder(tmp_path / "source")
    message = "normalise each stream by itself .* only permutations and positive scales"
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options("bias", None, foreign.given)), message)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_permutation_mixtures_are_doubly_stochastic_to_rounding(tmp_path: Path) -> None:
    shards = Shards(lite("mhc_lite").folder(tmp_path / "source"))
    record = read_record(shards)
    assert isinstance(record, ModelRecord)
    mixers = [static_mixer(m, load(m, shards, N, D), N) for m in record.mixers]
    assert max(orientation(mixers, "both").witness.values()) < 1e-14


def test_orientation_probe_sees_the_other_way_round() -> None:
    from streamgauge.theory.sinkhorn import sinkhorn

    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (5, 4, 4))
    acting = sinkhorn(logits, "deepseek-v4").mixer
    assert orientation(acting, "rows")
    assert "opposite orientation fits better" in orientation(acting.swapaxes(-1, -2), "rows").reason
    assert not orientation(acting, "columns")
    loose = acting + 1e-3
    assert "neither" in orientation(loose, "rows").reason
    assert "does not show" in orientation(np.eye(4)[None], "rows").reason


def test_share_is_the_movement_of_the_mixer_under_random_directions(tmp_path: Path) -> None:
    """A second route: 4000 random states through the mixer itself."""
    foreign = lite("mhc")
    shards = Shards(foreign.folder(tmp_path / "source"))
    record = read_record(shards)
    assert isinstance(record, ModelRecord)
    mixer = record.mixers[0]
    weights = load(mixer, shards, N, D)
    share = static_share(mixer, weights, N, D)
    x = np.random.default_rng(1).normal(0, 1, (4000, N, D))
    moved, base = coefficients(mixer, weights, x)[2], static_mixer(mixer, weights, N)
    wanted = np.sqrt(np.mean(np.sum((moved - base) ** 2, (-1, -2)))) / np.linalg.norm(base)
    assert share.share == pytest.approx(wanted, rel=0.3)
    z = weights.mix(x / np.sqrt(np.mean(x**2, (-1, -2), keepdims=True)), "flat") - weights.mix.base
    assert share.logit_rms == pytest.approx(np.sqrt(np.mean(z**2)), rel=0.05)
    assert np.abs(z).max() <= share.logit_bound


MAP = """
format = "lab"
streams = 3
width = 5
branches = ["attn", "mlp"]
[norm]
eps = 1e-5
[read]
weight = "b.{layer}.{branch}.w"
scale = "b.{layer}.{branch}.s"
base = "b.{layer}.{branch}.c"
rows = [0, 3]
map = "sigmoid"
eps = 1e-3
[write]
weight = "b.{layer}.{branch}.w"
scale = "b.{layer}.{branch}.s"
base = "b.{layer}.{branch}.c"
rows = [3, 6]
scale_at = 1
map = "sigmoid"
mult = 2
[mix]
weight = "b.{layer}.{branch}.w"
scale = "b.{layer}.{branch}.s"
base = "b.{layer}.{branch}.c"
rows = [6, 15]
scale_at = 2
kind = "sinkhorn"
recipe = "liger"
orientation = "as-stored"
[head]
kind = "sum"
"""


def test_a_map_describes_a_format_in_full(tmp_path: Path) -> None:
    """The Liger model under other names, described by hand, converts to the same tensors."""
    foreign = liger(residual=0.0)
    wanted = convert_folder(
        foreign.folder(tmp_path / "liger"), tmp_path / "liger-out", Options("exact", None, foreign.given)
    )
    arrays = {}
    for i, name in enumerate(foreign.names):
        new = f"b.{i // 2}.{('attn', 'mlp')[i % 2]}"
        t = {part: foreign.arrays[f"{name}.{part}"] for part in foreign.parts}
        arrays |= {f"{new}.w": f32(t["phi"].T), f"{new}.c": f32(t["b"])}
        arrays[f"{new}.s"] = f32([t["alpha_pre"], t["alpha_post"], t["alpha_res"]])
    source = write_folder(tmp_path / "source", arrays, None)
    (tmp_path / "map.toml").write_text(MAP)
    made = convert_folder(source, tmp_path / "out", Options(map=tmp_path / "map.toml"))
    first, second = read_file(wanted.path)[0], read_file(made.path)[0]
    assert list(first) == list(second)
    assert all(np.array_equal(first[k], second[k]) for k in first)
    assert _squashes(made.path) == {"read": "none", "write": "none", "head": "none"}
    # A squash belongs to the controller the sidecar carries, so its record must say it.
    (tmp_path / "map.toml").write_text(MAP.replace("[write]", '[write]\nsquash = "tanh"'))
    made = convert_folder(source, tmp_path / "tanh", Options(map=tmp_path / "map.toml"))
    assert _squashes(made.path) == {"read": "none", "write": "tanh", "head": "none"}


def _squashes(path: Path) -> Any:
    return read_file(path)[1]["model"]["squash"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'orientation = "as-stored"',
            'orientation = "transposed"\ntight = "columns"',
            "orientation: .* the opposite orientation fits better",
        ),
        ('orientation = "as-stored"\n', "", "mix.orientation is None"),
        ('recipe = "liger"', 'recipe = "lager"', "recipe: found 'lager'"),
        ("eps = 1e-5\n", "", "norm.eps is missing"),
        ("streams = 3", "streams = 4", "gives 3 numbers, expected 4"),
        ("rows = [0, 3]", "rows = [0, 99]", "too small for its part"),
        ("[head]", "[haed]", "unknown field haed"),
        ("b.{layer}.{branch}.c", "b.{layer}.{branch}.nope", "match .*nope, expected 0, 1, 2"),
    ],
)
def test_maps_that_do_not_fit_are_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    foreign = liger(residual=0.0)
    arrays = {}
    for i, name in enumerate(foreign.names):
        new_name = f"b.{i // 2}.{('attn', 'mlp')[i % 2]}"
        arrays |= {
            f"{new_name}.w": f32(foreign.arrays[f"{name}.phi"].T),
            f"{new_name}.c": f32(foreign.arrays[f"{name}.b"]),
        }
        arrays[f"{new_name}.s"] = f32([0.8, 1.1, 0.0])
    source = write_folder(tmp_path / "source", arrays, None)
    assert old in MAP
    (tmp_path / "map.toml").write_text(MAP.replace(old, new))
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options(map=tmp_path / "map.toml")), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"model.layers.0.hc_attn_layer.hc_pre.hc_fn": (8, 24)}, "hy4-ihc"),
        ({"model.layers.0.hc_pre.hc_attn_layer.hc_fn": (8, 24)}, "hy4-ihc"),
        ({"model.layers.0.attn_hc.scale": (2,), "model.layers.0.attn_hc.fn": (8, 24)}, "hy4-ihc"),
        ({"model.layers.0.attn_hyper_connection.input_mix_weight_down.weight": (2, 24)}, "qwen4-exp"),
        (
            {"attn_layers.layers.0.2.static_alpha": (4, 5), "attn_layers.layers.0.2.norm.weight": (6,)},
            "x-transformers",
        ),
        ({"h.0.mixing_logits": (3,)}, "no-streams"),
    ],
)
def test_formats_without_a_mixer_are_recognised(keys: dict[str, tuple[int, ...]], name: str, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "source", {k: f32(np.ones(shape)) for k, shape in keys.items()}, {})
    found = read_record(Shards(source))
    assert isinstance(found, Recognised)
    assert found.name == name
    assert_refused(lambda: convert_folder(source, tmp_path / "out", Options()), found.reason[:30].replace("(", r"\("))


def _turned(mixer: Mixer) -> Mixer:
    mixing = mixer.mixing
    if mixing.recipe is None:
        return replace(mixer, mixing=replace(mixing, transpose=not mixing.transpose))
    recipe = replace(mixing.recipe, transpose=not mixing.recipe.transpose)
    return replace(mixer, mixing=replace(mixing, recipe=recipe))


def _recipe(**changes: object) -> Callable[[Mixer], Mixer | None]:
    def fault(mixer: Mixer) -> Mixer | None:
        if mixer.mixing.recipe is None:
            return None
        return replace(mixer, mixing=replace(mixer.mixing, recipe=replace(mixer.mixing.recipe, **changes)))

    return fault


FAULTS: dict[str, Callable[[Mixer], Mixer | None]] = {
    "turned round": _turned,
    "reads and writes exchanged": lambda m: replace(m, read=m.write, write=m.read),
    "write without its factor": lambda m: replace(m, write_map=replace(m.write_map, mult=m.write_map.mult / 2)),
    "eps on the read": lambda m: replace(m, read_map=replace(m.read_map, eps=m.read_map.eps + 1e-6)),
    "another norm eps": lambda m: (
        replace(m, norm=replace(m.norm, eps=m.norm.eps + (1 if m.norm.placement == "clamp" else 1e-6)))
        if m.mix.weight
        else None
    ),
    "no gamma": lambda m: replace(m, norm=replace(m.norm, gamma=None)) if m.norm.gamma and m.mix.weight else None,
    "gamma without one": lambda m: replace(m, norm=replace(m.norm, gamma_offset=0.0)) if m.norm.gamma else None,
    "no tanh": lambda m: replace(m, mix=replace(m.mix, squash="none")) if m.mix.squash == "tanh" else None,
    "no scale": lambda m: replace(m, mix=replace(m.mix, scale=None)) if m.mix.scale else None,
    "static": lambda m: replace(m, mix=replace(m.mix, weight=None)) if m.mix.weight else None,
    "linear read": lambda m: replace(m, read_map=Map("linear")) if m.read_map.kind != "linear" else None,
    "one sweep": _recipe(iterations=1),
    "order exchanged": lambda m: (
        _recipe(order=m.mixing.recipe.order[::-1])(m) if m.mixing.recipe is not None else None
    ),
    "no blend": lambda m: replace(m, mixing=replace(m.mixing, blend=None)) if m.mixing.blend else None,
}


@pytest.mark.parametrize("name", ALL)
def test_every_part_of_a_record_matters(name: str, tmp_path: Path) -> None:
    """Faults planted in the record one at a time: the comparison with the transcription must notice each."""
    foreign = ALL[name]()
    shards = Shards(foreign.folder(tmp_path / "source"))
    record = read_record(shards, name=foreign.format, given=foreign.given)
    assert isinstance(record, ModelRecord)
    x = np.random.default_rng(9).normal(0, 1, (3, N, D)) * 1e-3
    pairs = list(zip(record.mixers, foreign.sites()))

    def gap(changed: Mixer, site: Site) -> float:
        try:
            found = coefficients(changed, load(changed, shards, N, D), x)
        except InputError:  # the faulty record does not even fit the tensors
            return np.inf
        made = [array[0] if array.ndim > want.ndim else array for array, want in zip(found, site(x[0]))]
        return max(float(np.abs(array - want).max()) for array, want in zip(made, site(x[0])))

    assert max(gap(mixer, site) for mixer, site in pairs) < 1e-12
    tried = 0
    for fault, apply in FAULTS.items():
        changed = [(made, site) for mixer, site in pairs if (made := apply(mixer)) is not None]
        if changed:
            assert max(gap(mixer, site) for mixer, site in changed) > 1e-9, fault
            tried += 1
    assert tried >= 6


@pytest.mark.parametrize("name", ALL)
def test_every_consumed_tensor_matters(name: str, tmp_path: Path) -> None:
    """A tensor that can change without changing p, r or A is mapped to nothing."""
    foreign = ALL[name]()
    x = np.random.default_rng(9).normal(0, 1, (N, D))

    def made(folder: Path) -> tuple[ModelRecord, np.ndarray]:
        shards = Shards(folder)
        record = read_record(shards, name=foreign.format, given=foreign.given)
        assert isinstance(record, ModelRecord)
        mixer = record.mixers[1]
        return record, np.concatenate([part.ravel() for part in coefficients(mixer, load(mixer, shards, N, D), x)])

    record, wanted = made(foreign.folder(tmp_path / "source"))
    keys = record.mixers[1].tensors()
    assert {key for key in foreign.arrays if key.startswith(foreign.names[1] + ".")} - set(record.dropped) - {
        f"{foreign.names[1]}.layer.weight"
    } == set(keys)
    for i, key in enumerate(keys):
        array = np.asarray(foreign.arrays[key])
        noise = np.random.default_rng(i).normal(0, 0.1, array.shape)
        _, found = made(foreign.folder(tmp_path / str(i), {key: array + noise}))
        assert np.abs(found - wanted).max() > 1e-6, key


def test_tensors_that_the_source_never_uses_are_dropped_by_name(tmp_path: Path) -> None:
    foreign = ALL["tokenbender"]()
    made = convert_folder(foreign.folder(tmp_path / "source"), tmp_path / "out", Options())
    assert set(made.ledger.dropped) == {
        f"{name}.{part}" for name in foreign.names for part in ("static_alpha", "norm.gamma")
    }
    assert len(made.ledger.consumed) == 3 * len(foreign.names)


def test_two_formats_that_both_agree_are_ambiguous(tmp_path: Path) -> None:
    from foreign_folders import DEEPSEEK, deepseek_arrays

    arrays = {**deepseek_arrays(), **lite("mhc").arrays}
    config = {**DEEPSEEK, "hyper_conn_type": "mhc", "hyper_conn_n": N}
    source = write_folder(tmp_path / "source", {k: f32(v) for k, v in arrays.items()}, config)
    message = "the tensors fit DeepSeek-V4, .*; give --format deepseek-v4 or .*--format mhc-lite"
    assert_refused(lambda: read_record(Shards(source)), message)
    found = read_record(Shards(source), name="mhc-lite")
    assert isinstance(found, ModelRecord)
    assert found.format == "mhc-lite"


def test_variants_of_lucidrains_that_are_another_function_are_refused(tmp_path: Path) -> None:
    foreign = streams("mhc", dynamic=0.0)
    name = foreign.names[2]
    cases = {
        "averages 2 proposals": {f"{name}.dynamic_alpha_fn": np.zeros((2, D, N + 1))},
        "mixes the streams before its norm": {f"{name}.maybe_mix_streams.weight": np.eye(N)[..., None, None]},
    }
    for i, (message, changed) in enumerate(cases.items()):
        source = foreign.folder(tmp_path / str(i), changed)
        assert_refused(lambda source=source: read_record(Shards(source), given=foreign.given), message)
    wide = {f"{n}.static_alpha": np.ones((N, N + 2)) for n in foreign.names}
    source = foreign.folder(tmp_path / "wide", wide)
    assert_refused(lambda: read_record(Shards(source), given=foreign.given), "several input views or fractions")
