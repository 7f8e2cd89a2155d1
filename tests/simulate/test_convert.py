"""Conversion in memory: every form, with and without norm gate, computes the source's function; faults do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conversion_faults import FAULTS, faulty
from small_networks import BASE, CYCLE, J2, MIX, network, random_tokens, with_mixers

from streamgauge.simulate.config import ModelConfig
from streamgauge.simulate.convert import Conversion, convert_tensors, gauged_weight, metric
from streamgauge.simulate.crosscheck import crosscheck, relative_rms
from streamgauge.simulate.model import ByteLM
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate

FLOAT64_LIMIT = 1e-9


def converted(model: ByteLM, form: str, norm: NormGate | None = None) -> tuple[ByteLM, Conversion]:
    made = convert_tensors(model.config, model.state_dict(), form=form, norm=norm, place="model")
    out = ByteLM(made.config)
    load(out, made.tensors)
    return out, made


def load(model: ByteLM, tensors: Any) -> None:
    model.to_precision("float64")
    model.load_state_dict({k: v.double() for k, v in tensors.items()})


ZERO = [[0.0] * 3] * 3
GROWING = [[1.5, -0.5, 0.0], [0.25, 2.0, -1.0], [0.0, 0.5, 0.75]]

NORMS = {"plain": None, "norm": NormGate(), "eps": NormGate(eps=0.1), "cap": NormGate(cap=1.05)}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("form", ["identity", "binary", "graded"])
@pytest.mark.parametrize("readout", ["gate", "sum", "mean", "linear"])
@pytest.mark.parametrize("coefficients", ["static", "dynamic"])
def test_full_rank_network_keeps_its_function(
    form: str, norm: NormGate | None, readout: str, coefficients: str
) -> None:
    config = replace(BASE, readout=readout, coefficients=coefficients)
    model = network(config)
    out, _ = converted(model, form, norm)
    result = crosscheck(model, out, random_tokens(config), precisions=("float64",))
    assert result.results[0].error < FLOAT64_LIMIT
    assert max(result.streams) < FLOAT64_LIMIT


CHAINS = {
    "one dead": [MIX, J2, CYCLE],
    "every site dead": [J2, [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]],
    "zero map": [MIX, ZERO, MIX],
    "rank one": [[[1 / 4, 1 / 2, 1 / 4]] * 3, MIX],
    "growing": [GROWING, MIX, J2],
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("form", ["binary", "graded"])
@pytest.mark.parametrize("mixers", CHAINS.values(), ids=CHAINS)
def test_singular_network_keeps_its_function(form: str, norm: NormGate | None, mixers: list[Any]) -> None:
    config = replace(BASE, mixer="matrix", residual="hc", entry="free", recipe=None)
    model = with_mixers(config, mixers)
    with torch.no_grad():
        model.entry.copy_(torch.tensor([1.0, -0.5, 2.0]))
    out, made = converted(model, form, norm)
    deaths = sum(int((np.asarray(g) == 0).sum()) for g in made.form.gates)
    assert deaths == sum(3 - int(np.linalg.matrix_rank(np.array(mixers[l % len(mixers)]))) for l in range(6))
    result = crosscheck(model, out, random_tokens(config), precisions=("float64",))
    assert result.results[0].error < FLOAT64_LIMIT
    assert max(result.streams) < FLOAT64_LIMIT


def test_mean_gated_network_converts_to_gates_of_its_own() -> None:
    """J + g(I - J) is diag(1, g, .., g) in a fixed basis: the graded gates say so."""
    model = network(replace(BASE, residual="mean-gated", recipe=None, mixer="matrix"))
    with torch.no_grad():
        for l, site in enumerate(model.sites):
            site.gates.fill_(0.3 + 0.1 * l)
    out, made = converted(model, "graded")
    for l, gate in enumerate(made.form.gates):
        np.testing.assert_allclose(np.sort(gate), [float(model.sites[l].gates.detach())] * 2 + [1.0], rtol=1e-6)
    assert crosscheck(model, out, random_tokens(BASE), precisions=("float64",)).results[0].error < FLOAT64_LIMIT


@pytest.mark.parametrize("form", ["identity", "graded"])
def test_rule_of_the_result(form: str) -> None:
    _, made = converted(network(BASE), form)
    assert made.config.residual == ("ihc" if form == "identity" else "gated")
    _, made = converted(network(BASE), form, NormGate(cap=2.0))
    assert made.config.residual == "norm-gated"
    assert made.config.norm_gate is not None
    assert made.config.norm_gate.cap == 2.0


@pytest.mark.parametrize("norm", [None, NormGate()], ids=["plain", "norm"])
@pytest.mark.parametrize("which", FAULTS)
def test_deliberate_faults_miss_by_far(which: str, norm: NormGate | None) -> None:
    model = network(BASE)
    out, made = converted(model, "graded", norm)
    assert crosscheck(model, out, random_tokens(BASE), precisions=("float64",)).results[0].error < FLOAT64_LIMIT
    out.load_state_dict(faulty(made, which))
    wide = model.to_precision("float64")
    with torch.no_grad():
        assert relative_rms(out(random_tokens(BASE)), wide(random_tokens(BASE))) > 1000 * FLOAT64_LIMIT


def test_metric_is_triangular_and_keeps_the_norm() -> None:
    rng = np.random.default_rng(3)
    p = rng.normal(size=(4, 4)) @ np.diag([1.0, 1e-3, 1e3, 1.0])
    t = metric(p)
    y = rng.normal(size=(4, 7))
    assert np.array_equal(t, np.triu(t))
    assert (np.diag(t) >= 0).all()
    np.testing.assert_allclose(np.linalg.norm(t @ y), np.linalg.norm(p @ y), rtol=1e-12)


def test_gauged_weight_is_the_kronecker_product() -> None:
    rng = np.random.default_rng(4)
    n, d, p, w = 3, 5, rng.normal(size=(3, 3)), rng.normal(size=(6, 15))
    np.testing.assert_allclose(gauged_weight(w, p), w @ np.kron(p, np.eye(d)), rtol=1e-12)
    assert not np.allclose(gauged_weight(w, p), w @ np.kron(p.T, np.eye(d))), "control: the transpose is not it"
    assert n * d == w.shape[1]


BAD = {
    "unknown form": (BASE, {"form": "diagonal"}, "form: found 'diagonal', expected one of identity, binary, graded"),
    "looped": (
        replace(BASE, loops=2),
        {},
        "model: the stack is applied 2 times with the same weights; expected 1 "
        "(around a loop the product of the mixers is a holonomy that no change of basis removes)",
    ),
    "already gated": (
        replace(BASE, residual="gated", mixer="matrix", recipe=None),
        {},
        "model: residual is 'gated', expected 'mhc', 'hc' or 'mean-gated' "
        "(the others have no mixing matrix to remove)",
    ),
    "singular for Theorem 1": (replace(BASE, mixer="matrix", recipe=None), {"form": "identity"}, "mixer 1"),
    "bad cap": (BASE, {"norm": NormGate(cap=0.0)}, "cap"),
}


@pytest.mark.parametrize(("config", "options", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_converted_is_refused_in_one_line(
    config: ModelConfig, options: dict[str, Any], message: str
) -> None:
    model = with_mixers(config, [MIX, J2]) if config.mixes and config.mixer == "matrix" else network(config)
    arguments = {"form": "graded", "norm": None, **options}
    with pytest.raises(InputError) as caught:
        convert_tensors(config, model.state_dict(), place="model", **arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", ["identity", "binary"])
def test_gauge_that_float64_cannot_invert_is_refused_by_name(form: str) -> None:
    config = replace(BASE, residual="hc", mixer="matrix", recipe=None)
    near = 0.5 + 2.0**-24  # the product over three sites differs from a singular one by 2^-72
    model = with_mixers(config, [[[near, 0.5, 0.0], [0.5, near, 0.0], [0.0, 0.0, 1.0]]])
    with pytest.raises(InputError, match=r"^gauge \d+: singular.*the graded form"):
        convert_tensors(config, model.state_dict(), form=form, norm=None, place="model")
    assert convert_tensors(config, model.state_dict(), form="graded", norm=None, place="model").form.check()


def test_dropped_singular_value_that_a_later_site_brings_back_is_refused() -> None:
    """1 beside 1e30 counts as zero, and the next site makes it the largest: equal logits would be luck."""
    config = replace(BASE, residual="hc", mixer="matrix", recipe=None)
    model = with_mixers(config, [np.diag([1e30, 1.0, 1e-30]), np.diag([1e-30, 1.0, 1e30])])
    message = r"^mixer 0: singular values up to 1 count as zero and by level 2 they make 1 of the state; expected at"
    with pytest.raises(InputError, match=message):
        convert_tensors(config, model.state_dict(), form="graded", norm=None, place="model")
    # control: the same values in an order that brings none back, and a product that is zero up to round-off
    for mixers in ([np.diag([1.0, 1e-30, 1e-30])], [np.eye(3) - 1 / 3, np.full((3, 3), 1 / 3)]):
        model = with_mixers(config, mixers)
        out, _ = converted(model, "graded")
        assert crosscheck(model, out, random_tokens(), precisions=("float64",)).verdict()


def test_norm_growth_beyond_the_range_is_refused_and_the_cap_helps() -> None:
    """Rank-one mixers double the survivor at every site: 2^(L/2) passes float32 at depth."""
    config = replace(BASE, sites=("mlp",) * 140, residual="hc", mixer="matrix", recipe=None)
    third = 1.0 / 3
    model = with_mixers(config, [[[third] * 3] * 3])
    with pytest.raises(InputError, match=r"state would grow by 2\^\d+, expected at most 2\^100 .*set a cap"):
        convert_tensors(config, model.state_dict(), form="graded", norm=NormGate(), place="model")
    made = convert_tensors(config, model.state_dict(), form="graded", norm=NormGate(cap=1.0), place="model")
    assert made.form.norm is not None
    assert float(np.abs(made.form.norm.log2_scales).max()) < 1
