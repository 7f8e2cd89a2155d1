"""Certificates of converted checkpoints: they speak of the stored tensors, and a changed file is told."""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import certificate_cases as cases
import numpy as np
import pytest
import safetensors.torch
import torch
from model_situations import CONFIGS, FILES, MUTANTS, NAMES, SOURCES, START, Bench, every_situation
from mutated_module import mutated
from safetensors.numpy import load_file, save_file
from small_networks import BASE, with_mixers

import streamgauge.examples
from streamgauge.api import convert
from streamgauge.proofs import checker, checker_files
from streamgauge.proofs.checking import check
from streamgauge.proofs.model import model_certificate
from streamgauge.simulate.checkpoint import save_model
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return cases.models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def bench(models, tmp_path):
    return lambda name="graded-gate": Bench(models[name], tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_sort_of_checkpoint_is_accepted_with_its_files(models, name, tmp_path):
    new, old, data = models[name]
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(data))
    for options in ({}, {"file": new}, {"file": new, "source": old}):
        verdict = check(cert, **options)
        assert verdict, verdict.reason
        assert "the stored network equals exactly the mHC" in verdict.reason
    assert "it matches the file and its source, controllers within" in verdict.reason
    assert verdict.witness["mixers"] < 1e-12
    if name != "static":
        assert 0 < verdict.witness["controllers"] < 1e-12


def test_controller_bound_by_fractions(models):
    """||W' - W (P (x) I)|| of one weight, entry by entry: the stated bound is the least float above."""
    new, old, data = models["graded-gate"]
    w, stored = (load_file(f / "model.safetensors")["sites.1.coef.weight"].astype(float) for f in (old, new))
    p = load_file(new / "model.safetensors")["sites.1.gauge.read"]
    (m, width), n = w.shape, len(p)
    d, worst = width // n, Fraction(0)
    for o in range(m):
        total = Fraction(0)
        for t in range(n):
            for c in range(d):
                image = sum(Fraction(w[o, s * d + c]) * Fraction(p[s, t]) for s in range(n))
                total += abs(Fraction(stored[o, t * d + c]) - image)
        worst = max(worst, total)
    stated = float.fromhex(data["model"]["controllers"]["sites.1.coef.weight"])
    assert np.nextafter(stated, 0) < worst <= stated
    assert worst > 0


def test_the_certified_network_is_the_stored_one(models):
    """Floats as a second route: run both networks with the certificate's distances on one random state."""
    _, _, data = models["norm-linear"]
    rng = np.random.default_rng(0)
    y = rng.normal(size=(4, 5))
    read = lambda grid: np.array([[float.fromhex(x) for x in row] for row in grid])  # noqa: E731
    x = read(data["levels"][0]["gauge"]) @ y
    for l, site in enumerate(data["sites"]):
        g = np.array([float.fromhex(v) for v in site["gates"]])
        c = min(1.5, 2 / (np.linalg.norm(g) + 1e-6))
        x, y = read(site["mixer"]) @ x, c * g[:, None] * y
        np.testing.assert_allclose(read(data["levels"][l + 1]["gauge"]) @ y, x, rtol=0, atol=1e-13)
        t = read(data["levels"][l + 1].get("metric", data["levels"][l + 1]["gauge"]))
        assert np.linalg.norm(t @ y) == pytest.approx(np.linalg.norm(x), rel=1e-13)


def test_twelve_sites_of_width_96_check_in_two_seconds(tmp_path):
    """Of processor time, in a process of its own, W' included."""
    new, old = cases.write_pair(tmp_path, sites=12, width=96, norm=NormGate(1e-6, 1.5))
    cert = model_certificate(new, old).save(new / "certificate.json")
    done = subprocess.run(
        [sys.executable, "-I", "-S", checker.__file__, cert, "--file", new, "--source", old],
        capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (2, 2)),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    assert "norm on graded form of 12 sites" in done.stdout


@pytest.mark.parametrize("name", FILES)
def test_a_changed_converted_file_is_told(bench, name):
    sort, change, words = FILES[name]
    it = bench(sort)
    it.tensors("new", change)
    assert it.reason() == f"{START}converted model.safetensors: its SHA-256 is not the certificate's"
    it.rehash()
    assert it.reason().startswith(START)
    assert words in it.reason()


@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_source_is_told(bench, name):
    sort, change, words = SOURCES[name]
    it = bench(sort)
    it.tensors("old", change)
    assert it.reason().endswith("source model.safetensors: its SHA-256 is not the certificate's")
    it.rehash()
    assert it.reason(source=False).startswith("accepted: ")
    assert words in it.reason()
    assert it.reason().startswith(START)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_changed_config_is_told(bench, name):
    side, change, words = CONFIGS[name]
    it = bench()
    it.config(side, lambda model: model.update(change))
    assert "config.json: its SHA-256 is not the certificate's" in it.reason()
    it.rehash()
    assert it.reason().startswith(START + words), it.reason()


def test_defaults_of_the_config_may_be_left_out(bench):
    it = bench()
    it.config("new", lambda model: model.update(hc_eps=1e-6, post_mult=2.0, vocab=256))
    it.config("old", lambda model: [model.pop(key) for key in ("loops", "rms_eps")])
    it.rehash()
    assert it.reason().startswith("accepted: "), it.reason()


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        (("norm", "cap", None), {}),
        (("norm", "eps", (0.0).hex()), {}),
        (None, {"norm_gate": {"eps": 1e-6, "cap": 2.0}}),
    ],
    ids=["cap in the certificate", "eps in the certificate", "cap in the config"],
)
def test_the_norm_rule_is_the_config_s(bench, rule, config):
    it = bench("norm-linear")
    if rule:
        it.data[rule[0]][rule[1]] = rule[2]
    it.config("new", lambda model: model.update(config))
    it.rehash()
    assert not it.reason().startswith("accepted: ")


def test_the_checkpoint_s_own_certificate_counts(bench):
    it = bench()
    (it.new / "certificate.json").write_text(cases.sealed_text(it.data))
    assert it.reason().startswith("accepted: ")
    it.data["sites"][0]["residual"] = (float.fromhex(it.data["sites"][0]["residual"]) * 2).hex()
    assert it.reason().endswith("certificate.json: the checkpoint came with another certificate")


def test_logits_are_run_again_by_the_front(bench, tmp_path):
    """The checker takes the mixers' numbers as given; ``check`` compares them with the source's logits."""
    it = bench("logits")
    it.tensors("old", lambda t: t.update({"sites.1.mixer.logits": t["sites.1.mixer.logits"] + np.eye(4) * 1e-9}))
    it.rehash()
    assert it.reason().startswith("accepted: ")
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    verdict = check(cert, file=it.new, source=it.old)
    assert not verdict
    assert "file or source do not match: sites[1].mixer: differs from the source's by" in verdict.reason


STRANGE_LOGITS = {
    "other size": (lambda z: np.zeros((5, 5)), "sites[1].mixer: has shape (4, 4), the source's (5, 5)"),
    "twice": (lambda z: np.stack([z, z]), "sites[1].mixer: has shape (4, 4), the source's (2, 4, 4)"),
    "bfloat16": (lambda z: torch.tensor(z).bfloat16(), "tensor sites.1.mixer.logits is not in float32 or float64"),
}


@pytest.mark.parametrize("name", STRANGE_LOGITS)
def test_logits_that_no_checkpoint_has_are_told(bench, tmp_path, name):
    change, words = STRANGE_LOGITS[name]
    it = bench("logits")
    weights = it.old / "model.safetensors"
    tensors = {k: torch.tensor(v) for k, v in load_file(weights).items()}
    tensors["sites.1.mixer.logits"] = torch.as_tensor(change(tensors["sites.1.mixer.logits"].numpy()))
    safetensors.torch.save_file(tensors, weights)
    it.rehash()
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    verdict = check(cert, file=it.new, source=it.old)
    assert not verdict
    assert words in verdict.reason


def test_config_that_no_checkpoint_has_is_told(bench, tmp_path):
    it = bench("logits")
    it.config("old", lambda model: model.update(residual="mean-gated"))
    for side in ("old", "new"):
        it.config(side, lambda model: model.update(streams="four"))
    it.rehash()
    cert = tmp_path / "c.json"
    cert.write_text(cases.sealed_text(it.data))
    reason = check(cert, file=it.new, source=it.old).reason
    assert reason.startswith("consistent, but file or source do not match: ")


@pytest.fixture(scope="module")
def situations(models, tmp_path_factory):
    return every_situation(models, lambda: tmp_path_factory.mktemp("case"))


def wrong(module, situations):
    """The first situation that is judged wrongly."""
    for text, new, old, start, words in situations:
        reason = module.check_text(text, file=new, source=old).reason
        if not reason.startswith(start) or words not in reason:
            return start, words, reason
    return None


def test_the_situations_themselves(situations):
    assert wrong(checker, situations) is None
    assert len(situations) >= 55


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_comparison_are_noticed(situations, name, monkeypatch):
    mutant = vars(mutated(checker_files, *MUTANTS[name]))
    monkeypatch.setattr(checker, "beside", lambda _: mutant)
    assert wrong(checker, situations) is not None


def broken_files():
    """Files that are no checkpoint, and what must be named."""
    header = json.dumps({"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    beyond = json.dumps({"entry": {"dtype": "F64", "shape": [4], "data_offsets": [0, 1 << 60]}}).encode()
    return {
        "empty": (b"", "no JSON object"),
        "short": (b"\x08\0\0", "no JSON object"),
        "huge header": (struct.pack("<Q", 1 << 62) + b"{}", "no JSON object, or too large"),
        "no JSON": (struct.pack("<Q", 4) + b"abcd", "no JSON object"),
        "deep": (struct.pack("<Q", 100_000) + b"[" * 100_000, "no JSON object"),
        "a list": (struct.pack("<Q", 2) + b"[]", "no JSON object"),
        "no tensors": (struct.pack("<Q", len(header)) + header + b"\0" * 8, "unreadable or missing"),
        "beyond": (struct.pack("<Q", len(beyond)) + beyond + b"\0" * 8, "unreadable or missing"),
        "entry no object": (struct.pack("<Q", 21) + b'{"entry": [1, 2, 3]} ', "unreadable or missing"),
    }


@pytest.mark.parametrize("name", broken_files())
def test_a_file_that_is_no_checkpoint_is_told(bench, name):
    raw, words = broken_files()[name]
    it = bench()
    (it.new / "model.safetensors").write_bytes(raw)
    it.rehash()
    assert it.reason().startswith(START + "model.safetensors")
    assert words in it.reason()
    assert "malformed" not in it.reason()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"model": 3}', "[" * 100_000, '{"model": {"sites": 3}}'])
def test_a_config_that_is_none_is_told(bench, text):
    it = bench()
    (it.new / "config.json").write_text(text)
    it.rehash()
    assert it.reason().startswith(START)


def test_missing_folders_are_told(bench, tmp_path):
    it = bench()
    text = cases.sealed_text(it.data)
    for folder in (tmp_path / "none", it.new / "config.json"):
        reason = checker.check_text(text, file=folder).reason
        assert reason.startswith(START)
        assert "not found or not a file" in reason


def test_bf16_and_float16_tensors_are_read(tmp_path):
    values = np.array([1.5, -2.0, 0.0078125, 3.0], dtype=np.float32)
    bits = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    half = values.astype("<f2").tobytes()
    entries = {
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},
        "h": {"dtype": "F16", "shape": [4], "data_offsets": [8, 16]},
    }
    header = json.dumps(entries).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bits + half)
    tensors = checker_files.Tensors(tmp_path, None)
    assert tensors.floats("b", 4) == tensors.floats("h", 4) == values.tolist()


def test_what_cannot_be_certified_is_refused(tmp_path):
    new, old = cases.write_pair(tmp_path / "pair")
    for left, right, words in (
        (tmp_path, old, "model.safetensors: not found"),
        (old, old, "not a converted checkpoint, expected gauge true and conversion.form"),
        (new, tmp_path, "model.safetensors: not found"),
    ):
        with pytest.raises(InputError) as caught:
            model_certificate(left, right)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    (new / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    with pytest.raises(InputError, match="damaged or truncated"):
        model_certificate(new, old)


def test_a_conversion_that_is_wrong_gets_no_certificate(tmp_path):
    """Deliberate faults: P of the next site, P transposed, a dropped factor, the inverse of the wrong site."""
    faults = {
        "shifted": lambda t: t.update({f"sites.{l}.gauge.read": t[f"sites.{l + 1}.gauge.read"] for l in range(2)}),
        "transposed": lambda t: t.update({"sites.1.gauge.read": np.ascontiguousarray(t["sites.1.gauge.read"].T)}),
        "wrong inverse": lambda t: t.update({"sites.1.gauge.write": t["sites.0.gauge.write"]}),
        "wrong metric": lambda t: t.update({"sites.1.gauge.metric": t["sites.0.gauge.metric"]}),
        "metric the identity": lambda t: t.update({"sites.1.gauge.metric": np.eye(4)}),
        "gates": lambda t: t.update({"sites.1.gates": t["sites.1.gates"] * 0.999}),
        "entry": lambda t: t.update(entry=np.ones(4)),
    }
    for name, fault in faults.items():
        new, old = cases.write_pair(tmp_path / name.replace(" ", ""))
        path = new / "model.safetensors"
        tensors = load_file(path)
        fault(tensors)
        save_file(tensors, path)
        with pytest.raises(InputError, match=r"^(certificate: cannot be given, refused: |gauge \d: )") as caught:
            model_certificate(new, old)
        assert "\n" not in str(caught.value), name


@pytest.mark.parametrize("norm", [None, NormGate(), NormGate(1e-6, 1.25)], ids=["plain", "norm", "capped"])
@pytest.mark.parametrize("form", ["identity", "binary", "graded"])
@pytest.mark.parametrize("name", ["static", "deficient"])
def test_shipped_checkpoints_convert_with_a_certificate(tmp_path, name, form, norm):
    """Source, conversion and certificate of the real thing; a singular mixer has no identity form."""
    pytest.importorskip("torch")
    from streamgauge.simulate.convert import convert

    source = Path(streamgauge.examples.__path__[0]) / "data" / name
    if name == "deficient" and form == "identity":
        return
    out = tmp_path / "out"
    convert(
        source, out, form=form, norm=norm,
        finish=lambda staged: model_certificate(staged, source).save(staged / "certificate.json"),
    )  # fmt: skip
    verdict = check(out / "certificate.json", file=out, source=source)
    assert verdict, verdict.reason
    assert max(verdict.witness[k] for k in ("mixers", "writes", "entry", "controllers", "metric")) < 1e-11


def test_what_the_files_would_refuse_is_not_given(tmp_path):
    """Badly scaled streams: every equation holds, but W' misses W (P (x) I) by far more than its limit allows."""
    config = replace(BASE, residual="hc", mixer="matrix", recipe=None)
    mixers = [np.diag([1e30, 1.0, 1e-30]), np.diag([1e-30, 1.0, 1e30])]
    source = save_model(tmp_path / "source", with_mixers(config, mixers))
    with pytest.raises(
        InputError, match=r"^certificate: cannot be given, file or source do not match: .*controllers off"
    ):
        convert(source, tmp_path / "out", form="binary")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]
