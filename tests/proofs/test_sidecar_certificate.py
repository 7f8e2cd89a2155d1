"""Certificates of sidecars: bound to the file and the source, and whatever is changed in either is told."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction

import certificate_cases as cases
import numpy as np
import pytest
from foreign_folders import read_file
from foreign_models import STATIC
from refusals import assert_refused
from sidecar_mutants import MUTANTS, copied_checker, situations, wrong
from sidecar_situations import FILES, KINDS, PLACES, SOURCES, START, Bench, bumped, index, make

from streamgauge import api
from streamgauge.proofs import checker, checker_mixers
from streamgauge.proofs.checking import check
from streamgauge.proofs.sidecar import certify, why_uncertified
from streamgauge.simulate.formats.controllers import controller_bound
from streamgauge.simulate.formats.evaluate import mixing_matrix
from streamgauge.simulate.formats.record import Mixing
from streamgauge.simulate.formats.sidecar import Options, convert_folder
from streamgauge.theory.sinkhorn import RECIPES, sinkhorn


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """By name, made when first asked for."""
    held = {}

    def pair(name):
        if name not in held:
            held[name] = make(tmp_path_factory.mktemp("pair"), name)
        return held[name]

    return pair


@pytest.fixture
def bench(pairs, tmp_path):
    return lambda name="bias": Bench(pairs(name), tmp_path)


@pytest.mark.parametrize("name", [*KINDS, *STATIC])
def test_every_sort_of_source_is_accepted_with_its_files(pairs, name):
    new, old, data = pairs(name)
    for options in ({}, {"file": new}, {"file": new, "source": old}):
        verdict = check(new / "certificate.json", **options)
        assert verdict, verdict.reason
        assert "the stored network equals exactly the mHC" in verdict.reason
    assert "it matches the file and its source, controllers within" in verdict.reason
    assert verdict.witness["mixers"] < 1e-12
    weights = list(data["sidecar"]["controllers"])
    assert bool(weights) == (verdict.witness.get("controllers", 0) > 0) or name == "mixers I"  # P = I: W' = W
    told = {"mean": "measured means", "mixers I": "its mixers are I", "bias": "2 of the source's 2 mixers depend on"}
    assert told.get(name, "") in verdict.reason
    assert ("depend on the state" in verdict.reason) == (
        data["sidecar"]["dynamic"] > 0 and name not in ("mean", "mixers I")
    )


def test_the_checker_runs_alone(pairs):
    new, old, _ = pairs("norm")
    command = [sys.executable, "-I", "-S", checker.__file__, new / "certificate.json", "--file", new, "--source", old]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "norm on graded form of 2 sites" in done.stdout


def test_controller_bound_by_fractions(pairs):
    """||W' - W (P (x) I)|| entry by entry: the bound lies above it, and not far."""
    new, _, data = pairs("mhc")
    tensors, _ = read_file(new / "sidecar.safetensors")
    foreign = STATIC["mhc"]()
    name = foreign.names[1]
    t = {part: foreign.arrays[f"{name}.{part}"] for part in foreign.parts}
    n, d = 3, 5
    columns = [s * (n + 1) for s in range(n)]
    weights = [t["dynamic_alpha_fn"][:, j] for j in columns] + [t["dynamic_beta_fn"][:, j] for j in range(n)]
    p, worst = tensors["sites.1.gauge.read"], Fraction(0)
    for row, made in zip(weights, tensors["sites.1.coef.weight"]):
        folded = [Fraction(float(w)) * (Fraction(float(g)) + 1) for w, g in zip(row, t["norm.gamma"])]
        away = sum(
            abs(Fraction(float(made[b * d + c])) - sum(folded[s * d + c] * Fraction(p[s, b]) for s in range(n)))
            for b in range(n)
            for c in range(d)
        )
        worst = max(worst, away)
    stated = Fraction(float.fromhex(data["sidecar"]["controllers"]["sites.1.coef.weight"]))
    assert 0 < worst <= stated < 100 * worst


def test_controllers_without_weights_are_off_by_nothing():
    """Reads and writes that do not depend on the state, whatever the gauge."""
    nothing, gauge = np.zeros((4, 6)), np.diag([1.0, 1e9])
    assert controller_bound(nothing, nothing, gauge) == (0.0, 0.0)
    away = controller_bound(nothing, np.full((4, 6), 2.0**-1074), gauge).away
    assert 6 * Fraction(2.0**-1074) <= Fraction(away)


@pytest.mark.parametrize("seed", range(8))
def test_controller_bounds_hold_whatever_the_scales(seed):
    rng = np.random.default_rng(seed)
    n, d, rows = int(rng.integers(1, 6)), 3, 4
    weight = rng.normal(size=(rows, n * d)) * 10.0 ** rng.integers(-30, 30, (rows, n * d))
    gauge = rng.normal(size=(n, n)) * 10.0 ** rng.integers(-8, 8, (n, n))
    made = np.einsum("msd,st->mtd", weight.reshape(rows, n, d), gauge).reshape(rows, -1)
    made[0, 0] *= 1 + 2.0**-40 * (seed % 2)  # a stored number that no rounding explains
    worst = max(
        sum(
            abs(
                Fraction(made[o, t * d + c])
                - sum(Fraction(weight[o, s * d + c]) * Fraction(gauge[s, t]) for s in range(n))
            )
            for t in range(n)
            for c in range(d)
        )
        for o in range(rows)
    )
    assert worst <= Fraction(controller_bound(weight, made, gauge).away)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_sidecar_is_told(bench, name):
    kind, change, words = FILES[name]
    it = bench(kind)
    change(it)
    if "index" not in name:
        assert it.reason(source=False).endswith("its SHA-256 is not the certificate's")
        it.rehash()
    assert it.reason().startswith(START), it.reason()
    assert words in it.reason()


@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_source_is_told(bench, name):
    kind, change, words = SOURCES[name]
    it = bench(kind)
    change(it)
    assert it.reason(source=False).startswith("accepted: ")
    assert "its SHA-256 is not the certificate's" in it.reason()
    assert "source " in it.reason()
    it.rehash()
    assert it.reason(source=False).startswith("accepted: "), it.reason(source=False)
    assert it.reason().startswith(START)
    assert words in it.reason()


@pytest.mark.parametrize("name", PLACES)
def test_a_changed_certificate_is_told(bench, name):
    kind, change, words = PLACES[name]
    it = bench(kind)
    change(it.data["sidecar"])
    assert not it.reason().startswith("accepted: ")
    assert words in it.reason()


def test_missing_files_of_the_source_are_told(bench):
    it = bench()
    index(it.old, lambda table: table.pop("hc_head_fn"))
    assert it.reason().endswith("source hc_head_fn: is not in the index")
    index(it.old, lambda table: table.update(hc_head_fn="../x"))
    assert it.reason().endswith("names a file out of the folder")
    index(it.old, lambda table: table.update(hc_head_fn="x"))
    assert it.reason().endswith("source x: not found or not a file")
    (it.old / "config.json").unlink()
    assert it.reason().endswith("source config.json: its SHA-256 is not the certificate's")


def test_its_own_certificate_counts(bench):
    it = bench()
    (it.new / "certificate.json").write_text(cases.sealed_text(it.data))
    assert it.reason().startswith("accepted: ")
    it.data["sites"][0]["residual"] = (1e-9).hex()
    assert it.reason().endswith("certificate.json: the checkpoint came with another certificate")


def leaves(value, path=()):
    if not isinstance(value, dict | list):
        yield path
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, key))


def altered(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return "x"
    if "0x" in value:
        return (-float.fromhex(value) / 3 - 1e-30).hex()
    return {"rows": "columns", "columns": "rows"}.get(value, value[:-1] + ("0" if value[-1:] != "0" else "1"))


@pytest.mark.parametrize("name", ["bias", "mhc"])
def test_every_leaf_counts(pairs, name, tmp_path):
    """Every value of the certificate altered, digest recomputed: refused, with the front's look at the format."""
    new, old, data = pairs(name)
    bare = tmp_path / "bare"
    shutil.copytree(new, bare)
    (bare / "certificate.json").unlink()
    taken, cert, tried = [], tmp_path / "c.json", 0
    paths = [path for path in leaves(data) if path[0] == "sidecar"]
    step = 1 if name == "bias" else 5
    for path in paths[::step]:
        changed = json.loads(json.dumps(data))
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = altered(place[path[-1]])
        cert.write_text(cases.sealed_text(changed))
        tried += 1
        if check(cert, file=bare, source=old):
            taken.append(path)
    assert taken == []
    assert tried >= 60


def test_the_front_reads_the_format_anew(bench, tmp_path):
    """A forger points a mixer's scale at another's zero: the checker takes the place as given, the front does not."""
    it = bench("exact")
    it.source("layers.0.hc_ffn_scale", lambda a: bumped(a, 2, 0.25))
    it.rehash()
    assert "sidecar.dynamic: 1 of the source's mixers" in it.reason()
    it.data["sidecar"]["sites"][1]["mix"]["scale"]["tensor"] = "layers.0.hc_attn_scale"
    assert it.reason().startswith("accepted: ")
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    verdict = check(cert, file=it.new, source=it.old)
    assert not verdict
    assert "sidecar.sites: is not what deepseek-v4 says" in verdict.reason


def test_a_record_cannot_take_its_format_for_a_map_s(bench, tmp_path):
    """A map describes its source itself, but not what a known format of that name says otherwise."""
    it = bench("bias")
    it.record(lambda record: record["source"].update(spelling="map"))
    it.rehash()
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    assert check(cert, file=it.new, source=it.old)
    it.record(lambda record: record["model"]["norm"].update(eps=1e-3))
    it.rehash()
    cert.write_text(cases.sealed_text(it.data))
    assert "record model: is not what deepseek-v4 says" in check(cert, file=it.new, source=it.old).reason


def test_the_front_tells_another_eps(bench, tmp_path):
    """Record and certificate agree, the config does not: only the format itself says so."""
    it = bench("bias")
    config = json.loads((it.old / "config.json").read_text())
    (it.old / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    it.rehash()
    assert it.reason().startswith("accepted: ")
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    verdict = check(cert, file=it.new, source=it.old)
    assert verdict  # the record says that 1e-5 was set by hand, as it may be
    it.record(lambda record: record["source"]["settings"].update(rms_norm_eps=1e-3))
    it.rehash()
    cert.write_text(cases.sealed_text(it.data))
    verdict = check(cert, file=it.new, source=it.old)
    assert not verdict
    assert "record model: is not what deepseek-v4 says" in verdict.reason


def test_token_gates_and_fits_have_none():
    assert why_uncertified("exact") is why_uncertified("bias") is why_uncertified("mean") is None
    assert "the gates depend on the state" in why_uncertified("token-gates")
    assert "were fitted" in why_uncertified("mean", refined=True)


def test_a_conversion_without_a_certificate_writes_nothing(pairs, tmp_path, monkeypatch):
    """A wrong W' (the product with P^T) is found before anything appears."""
    from streamgauge.simulate.formats import controllers

    _, old, _ = pairs("bias")
    monkeypatch.setattr(
        controllers,
        "gauged_weight",
        lambda w, p: np.einsum("msd,ts->mtd", w.reshape(len(w), 4, -1), p).reshape(w.shape),
    )
    message = "certificate: cannot be given, .*controllers"
    assert_refused(lambda: convert_folder(old, tmp_path / "out", Options("bias"), finish=certify), message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("spread", [1.0, 6.0, 40.0])
def test_decimal_mixers_are_numpy_s(name, spread):
    recipe = RECIPES[name]
    for seed, n in itertools.product(range(2), (1, 2, 4)):
        z = np.random.default_rng(seed).normal(0, spread * recipe.temperature, (n, n))
        found, allowed = checker_mixers.mixer(_stated(recipe), z.ravel().tolist(), n, None)
        wanted = sinkhorn(z, recipe).mixer
        away = max(abs(Fraction(x) - Fraction(float(y))) for x, y in zip(itertools.chain(*found), wanted.ravel()))
        assert away <= allowed, (float(away), float(allowed))


def _stated(recipe):
    parts = {name: float(getattr(recipe, name)).hex() for name in ("eps", "start_eps", "temperature")}
    rest = {name: getattr(recipe, name) for name in ("start", "eps_mode", "iterations", "transpose")}
    return {"kind": "sinkhorn", "order": recipe.order[0], **rest, **parts}


def test_decimal_permutations_and_matrices_are_numpy_s():
    rng = np.random.default_rng(0)
    for kind, size in (("permutations", 6), ("matrix", 9)):
        for transpose, blend in itertools.product((False, True), (None, -0.7)):
            z = rng.normal(0, 2, size)
            stated = {**_stated(RECIPES["paper"]), "kind": kind, "transpose": transpose}
            found, _ = checker_mixers.mixer(stated, z.tolist(), 3, blend)
            wanted = mixing_matrix(Mixing(kind, transpose=transpose), z, 3, blend)
            np.testing.assert_allclose(np.array(found, dtype=float), wanted, rtol=0, atol=1e-14)


def test_decimal_sums_are_one_to_all_digits():
    """Without eps the axis divided last sums to 1 to 48 digits: no float64 is in it."""
    found, _ = checker_mixers.mixer(_stated(RECIPES["paper"]), [0.1, 2.0, -3.0, 0.7], 2, None)
    assert max(abs(sum(row) - 1) for row in found) < Decimal(10) ** -48


@pytest.fixture(scope="module")
def all_situations(pairs, tmp_path_factory):
    return situations(pairs, tmp_path_factory.mktemp("situations"))


def test_the_situations_themselves(all_situations, tmp_path):
    assert wrong(copied_checker(tmp_path / "checker"), all_situations) is None
    assert len(all_situations) >= 90


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, table in MUTANTS.items() for name in table])
def test_mutants_of_the_checker_are_noticed(all_situations, tmp_path, file, name):
    mutant = copied_checker(tmp_path / "checker", file, *MUTANTS[file][name])
    assert wrong(mutant, all_situations) is not None


@pytest.mark.parametrize("full", [False, True])
def test_the_front_door_writes_one_and_restores_nothing(pairs, full, tmp_path):
    _, old, _ = pairs("bias")
    made = api.sidecar(old, tmp_path / "out", mixers="bias", full=full)
    assert (made.path.parent / "certificate.json").is_file()
    assert api.check(tmp_path / "out" / "certificate.json", file=tmp_path / "out", source=old)
    message = f"holds {made.path.name}, made beside a checkpoint that is as it was: nothing to restore"
    assert_refused(lambda: api.restore(tmp_path / "out", tmp_path / "back"), message)
    assert not (tmp_path / "back").exists()
