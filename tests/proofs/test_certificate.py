"""Certificates: every sort of form gets one, what it states is true by a second route, false forms get none."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
from fractions import Fraction

import certificate_cases as cases
import flint
import numpy as np
import pytest
from certificate_truth import factor, is_true
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgauge.proofs import checker, statements
from streamgauge.proofs.certificate import certificate, rank_certificate
from streamgauge.proofs.checking import check
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate
from streamgauge.theory.identity import identity_form

FORMS = cases.forms()
ORTHOGONAL = np.linalg.qr(np.random.default_rng(5).normal(size=(4, 4))).Q
NEARLY_SINGULAR = ORTHOGONAL @ np.diag([1, 1, 1, 1e-18]) @ ORTHOGONAL.T
fixed = settings(deadline=None, derandomize=True, max_examples=60)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_has_a_certificate_that_is_true_and_accepted(name):
    made = certificate(FORMS[name])
    data = json.loads(made.text)
    assert is_true(data)
    assert checker.check_text(made.text).accepted
    rest = {k: v for k, v in data.items() if k != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    assert made.digest == data["digest"] == hashlib.sha256(canonical).hexdigest()
    assert made.kind == ("norm" if FORMS[name].norm else FORMS[name].form)


@pytest.mark.parametrize("name", [n for n, f in FORMS.items() if not f.chain.exact])
def test_stated_bounds_are_tight(name):
    """Any bound made smaller by 1e-12 of itself makes the statement false."""
    data = json.loads(certificate(FORMS[name]).text)
    bounds = [(p, "rho") for p in data["levels"]] + [(p, k) for p in data["sites"] for k in ("residual", "distance")]
    for part, key in bounds:
        kept = part[key]
        if float.fromhex(kept) > 0:
            part[key] = (float.fromhex(kept) * (1 - 1e-12)).hex()
            assert not is_true(data), key
            assert not checker.check_text(cases.sealed_text(data)).accepted
        part[key] = kept


@fixed
@given(
    seed=st.integers(0, 2**20),
    n=st.integers(1, 4),
    sites=st.integers(0, 4),
    form=st.sampled_from(["identity", "binary", "graded"]),
)
def test_planted_exact_chains(seed, n, sites, form):
    planted = cases.exact_form(form, seed, n, sites)
    made = certificate(planted)
    deaths = sum(g == 0 for gates in planted.gates for g in gates)
    assert f"{n + deaths} bars" in checker.check_text(made.text).reason
    assert is_true(json.loads(made.text))


@fixed
@given(seed=st.integers(0, 2**20), rows=st.integers(0, 5), cols=st.integers(1, 5), data=st.data())
def test_rank_certificate_finds_the_planted_rank(seed, rows, cols, data):
    """A = U E V with unimodular U, V and k ones in E has rank k."""
    k = data.draw(st.integers(0, min(rows, cols)))
    rng = np.random.default_rng(seed)
    middle = flint.fmpq_mat(rows, cols, [int(i == j < k) for i in range(rows) for j in range(cols)])
    matrix = cases.unimodular(rng, rows) * middle * cases.unimodular(rng, cols) * flint.fmpq(1, 3)
    made = rank_certificate(matrix)
    assert made.data["rank"] == k
    assert is_true(json.loads(made.text))
    assert f"rank {k} exactly" in checker.check_text(made.text).reason


def test_rank_of_floats_is_the_rank_of_the_numbers_stored():
    """0.1 * 3 is not 0.3 in binary: the stored matrix has rank 2, whatever a tolerance would say."""
    assert rank_certificate(np.full((2, 2), 0.1)).data["rank"] == 1
    assert rank_certificate(np.array([[0.1, 0.3], [1.0, 3.0]])).data["rank"] == 2


@fixed
@given(
    gates=st.lists(st.floats(0, 1, allow_subnormal=True), min_size=1, max_size=5),
    eps=st.sampled_from([0.0, 1e-6, 0.5]),
    cap=st.sampled_from([None, 0.5, 1.25]),
)
def test_factor_gap_holds_the_real_factor(gates, eps, cap):
    """c(g) by Decimal to 90 digits lies within the stated gap of the stored float, and the gap is not slack."""
    true = factor([Fraction(g) for g in gates], Fraction(eps), None if cap is None else Fraction(cap))
    if true > 10**300:
        return
    stored = float(true)
    gap = statements.factor_gap(np.array(gates), NormGate(eps, cap), stored)
    away = abs(Fraction(stored) - true)
    assert away <= gap <= away + Fraction(stored) / 2**90


def false_forms():
    """Forms that do not hold, and the place that must be named."""
    exact, floating, norm = FORMS["exact-binary"], FORMS["float-graded"], FORMS["float-norm"]
    flipped = (tuple(1 - g for g in exact.gates[0]), *exact.gates[1:])
    shifted = (floating.gauge[0] * (1 + 1e-9), *floating.gauge[1:])
    off = dataclasses.replace(norm.norm, factors=norm.norm.factors * (1 + 1e-10))
    return {
        "gate flipped": (dataclasses.replace(exact, gates=flipped), "sites[0]: A P = P' D fails"),
        "not the identity form": (dataclasses.replace(exact, form="identity"), "expected 1 in the identity form"),
        "not the binary form": (dataclasses.replace(FORMS["exact-graded"], form="binary"), "expected 0 or 1"),
        "gauge off by 1e-9": (dataclasses.replace(floating, gauge=shifted), "sites[0]: mixers off by"),
        "factor off by 1e-10": (dataclasses.replace(norm, norm=off), "sites[0].factor: off by"),
    }


@pytest.mark.parametrize("name", false_forms())
def test_a_false_form_gets_no_certificate(name):
    form, words = false_forms()[name]
    with pytest.raises(InputError, match=r"^certificate: cannot be given, refused: ") as caught:
        certificate(form)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("near", "words"),
    [
        (np.ones((4, 4)), "gauge 1: singular, expected an invertible matrix"),
        (NEARLY_SINGULAR, "expected below 1 (too ill-conditioned)"),
    ],
    ids=["singular", "condition 1e18"],
)
def test_a_gauge_that_floats_cannot_invert_is_named(near, words):
    form = FORMS["float-graded"]
    broken = dataclasses.replace(form, gauge=(form.gauge[0], near, *form.gauge[2:]))
    with pytest.raises(InputError, match=r"^gauge 1: ") as caught:
        certificate(broken)
    assert words in str(caught.value)


def test_rationals_beyond_the_checkers_digits_are_refused_by_name():
    huge = Fraction(10**4400 + 1, 3)
    with pytest.raises(InputError, match=r"^certificate: an integer of 14617 bits, expected at most 4300 digits$"):
        rank_certificate([[huge]])


def test_norm_with_eps_on_an_exact_form_has_no_exact_square():
    form = FORMS["exact-norm"]
    norm = dataclasses.replace(form.norm, gate=NormGate(Fraction(1, 10)))
    with pytest.raises(InputError, match=r"norm: expected eps >= 0 \(0 with rationals"):
        certificate(dataclasses.replace(form, norm=norm))


def test_save_writes_once_and_check_reads(tmp_path):
    made = certificate(FORMS["float-graded"])
    target = made.save(tmp_path / "deep" / "cert.json")
    assert target.read_text() == made.text
    assert [p.name for p in target.parent.iterdir()] == ["cert.json"]
    with pytest.raises(InputError, match=r"cert\.json: exists already; expected a new path, or force to replace it"):
        made.save(target)
    other = certificate(FORMS["exact-binary"])
    other.save(target, force=True)
    verdict = check(target)
    assert verdict
    assert verdict.reason == checker.check_text(other.text).reason
    with pytest.raises(InputError, match="is a directory, expected a file name"):
        made.save(tmp_path)
    with pytest.raises(InputError, match="cannot be created"):
        made.save(target / "below" / "cert.json")


def test_witness_holds_the_distances(tmp_path):
    form = FORMS["float-graded"]
    witness = check(certificate(form).save(tmp_path / "c.json")).witness
    assert set(witness) == {"mixers", "inverse", "reads", "writes", "entry", "readout"}
    assert all(0 <= value < 1e-13 for value in witness.values())


def test_a_chain_without_sites_and_ends():
    form = cases.exact_form("identity", 0, 2, 0, with_ends=False)
    assert isinstance(form.chain, Chain)
    assert checker.check_text(certificate(form).text).accepted


def test_the_room_exports_lazily():
    """Importing proofs and its checker brings in neither numpy nor flint nor torch."""
    code = (
        "import sys, streamgauge.proofs, streamgauge.proofs.checker as c\n"
        "heavy = {'numpy', 'flint', 'torch', 'scipy', 'safetensors'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert {'check', 'model_certificate', 'rank_certificate', 'Certificate'} <= set(dir(streamgauge.proofs))\n"
        "assert streamgauge.proofs.check.__module__ == 'streamgauge.proofs.checking'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("size", [5e-324, 1e-310])
def test_inverse_beyond_float64_is_refused_by_name(size):
    form = identity_form(Chain([size * np.eye(2)]))
    with pytest.raises(InputError, match=r"^gauge 1: its inverse is beyond float64"):
        certificate(form)
