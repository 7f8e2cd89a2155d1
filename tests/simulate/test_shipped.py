"""The two trained checkpoints in examples/data: every property that the demonstration stands on, from the files."""

from __future__ import annotations

import json
import math
from importlib import resources
from pathlib import Path

import flint
import numpy as np
import pytest
import torch

from streamgauge.examples.train_checkpoints import SINGULAR, STATIC
from streamgauge.simulate import checkpoint
from streamgauge.simulate.checkpoint import Checkpoint
from streamgauge.simulate.data import as_tokens, bigram_loss, heldout_loss, heldout_text, training_text
from streamgauge.simulate.model import ByteLM, initialise
from streamgauge.simulate.network import mixer_from_logits
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.graded import graded_form

DATA = Path(str(resources.files("streamgauge.examples") / "data"))
NAMES = ("static", "deficient")


@pytest.fixture(scope="module")
def stored() -> dict[str, Checkpoint]:
    return {name: checkpoint.read(DATA / name) for name in NAMES}


def mixers(model: ByteLM) -> list[np.ndarray]:
    return [a.detach().double().numpy() for a in model.carries()]


def identity_gauge_condition(chain: list[np.ndarray]) -> float:
    """cond_2 of A_{L-1} ... A_0, the product taken exactly."""
    product = exact.identity(len(chain[0]))
    for a in chain:
        product = exact.from_floats(a) * product
    return float(np.linalg.cond(exact.to_floats(product)))


def strong(chain: list[np.ndarray]) -> int:
    """Number of sites with sigma_2 below 0.9."""
    return sum(float(np.linalg.svd(a, compute_uv=False)[1]) < 0.9 for a in chain)


@pytest.mark.parametrize("name", NAMES)
def test_files(name: str, stored: dict[str, Checkpoint]) -> None:
    folder = DATA / name
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "loss.json", "model.safetensors"]
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 3_000_000
    assert {t.dtype for t in stored[name].tensors.values()} == {torch.float32}
    training = stored[name].metadata["training"]
    curve = json.loads((folder / "loss.json").read_text())["training_loss"]
    assert len(curve) == training["steps"] == training["plan"]["steps"]


def test_configurations(stored: dict[str, Checkpoint]) -> None:
    config = stored["static"].config
    assert config == STATIC
    assert (config.streams, config.residual, config.mixer, config.recipe) == (4, "mhc", "logits", "deepseek-v4")
    assert (config.coefficients, config.entry, config.readout, config.gauge) == ("dynamic", "copy", "gate", False)
    assert len(config.sites) >= 12
    other = stored["deficient"].config
    assert other.mixer == "matrix"
    assert {**other.to_json(), "mixer": "logits"} == config.to_json()


@pytest.mark.parametrize("name", NAMES)
def test_held_out_loss_beats_the_bigram_model(name: str, stored: dict[str, Checkpoint]) -> None:
    baseline = stored[name].metadata["training"]["bigram_heldout_loss"]
    assert 2.3 < baseline < 2.45
    # the corpus of this Python is about the one it was fitted on
    assert bigram_loss(training_text(), heldout_text()) == pytest.approx(baseline, abs=0.1)
    assert heldout_loss(stored[name].model(), heldout_text()) <= baseline - 0.3


def test_an_untrained_network_does_not() -> None:
    """Control for the bound above."""
    model = ByteLM(STATIC).eval()
    initialise(model, 0)
    assert heldout_loss(model, heldout_text()[:2000]) > 4


def test_the_static_chain_is_far_from_the_identity(stored: dict[str, Checkpoint]) -> None:
    chain = mixers(stored["static"].model("float64"))
    assert strong(chain) >= len(chain) / 2
    assert identity_gauge_condition(chain) >= 100
    assert all(np.linalg.matrix_rank(a) == 4 for a in chain)
    for a in chain:
        assert np.abs(a.sum(axis=1) - 1).max() < 2e-6  # rows of A are divided last in this recipe
        assert np.abs(a.sum(axis=0) - 1).max() < 1e-2
    mild = [0.02 * np.eye(4)[::-1] + 0.98 * np.eye(4)] * 12  # control: near the identity
    assert strong(mild) == 0
    assert identity_gauge_condition(mild) < 100


@pytest.mark.parametrize("name", NAMES)
def test_reads_and_writes_depend_on_the_token(name: str, stored: dict[str, Checkpoint]) -> None:
    """Standard deviation over 4096 held-out tokens, mean over streams, at every site; no site is constant."""
    model = stored[name].model()
    tokens = as_tokens(heldout_text())[: 32 * 128].view(32, 128)
    with torch.no_grad():
        states = model.streams(tokens)
        for l, site in enumerate(model.sites):
            p, r = site.reads_writes(states[l])
            assert float(p.flatten(0, 1).std(0).mean()) >= 0.05, l
            assert float(r.flatten(0, 1).std(0).mean()) >= 0.05, l
        head = model.head(states[-1])
        assert float(head.flatten(0, 1).std(0).mean()) >= 0.05
        spread = [float((s - s.mean(-2, keepdim=True)).norm() / s.norm()) for s in states[1:]]
    assert min(spread) > 0.1  # the streams carry different things


def test_some_mixers_are_singular_over_the_rationals(stored: dict[str, Checkpoint]) -> None:
    tensors = stored["deficient"].tensors
    expected = {2: 3, 5: 2, 7: 3, 10: 3}
    assert set(expected) == set(SINGULAR)
    for l in range(len(STATIC.sites)):
        a = exact.from_floats(tensors[f"sites.{l}.mixer.matrix"].double().numpy())
        assert a.rank() == expected.get(l, 4), l
        if l in expected:
            assert a == flint.fmpq_mat([[flint.fmpq(q, 4) for q in row] for row in SINGULAR[l]])
            ones = flint.fmpq_mat(4, 1, [1] * 4)
            assert a * ones == ones
            assert a.transpose() * ones == ones  # exactly doubly stochastic
            nudged = a + flint.fmpq_mat(4, 4, [flint.fmpq(i == j, 2**24) for i in range(4) for j in range(4)])
            assert nudged.rank() == 4  # control: one unit in the last place is enough to lose it


def test_the_deficient_network_was_trained_further_with_its_mixers_fixed(stored: dict[str, Checkpoint]) -> None:
    static, deficient = stored["static"], stored["deficient"]
    assert tuple(deficient.metadata["training"]["plan"]["freeze"]) == ("mixer",)
    for l in range(len(STATIC.sites)):
        if l not in SINGULAR:
            made = mixer_from_logits(static.tensors[f"sites.{l}.mixer.logits"], "deepseek-v4")
            kept = deficient.tensors[f"sites.{l}.mixer.matrix"]
            torch.testing.assert_close(kept, made, rtol=0, atol=1e-6)
    moved = [
        n for n in static.tensors if "mixer" not in n and not torch.equal(static.tensors[n], deficient.tensors[n])
    ]
    assert len(moved) == sum("mixer" not in n for n in static.tensors)


@pytest.mark.parametrize("name", NAMES)
def test_float32_and_float64_agree(name: str, stored: dict[str, Checkpoint]) -> None:
    tokens = as_tokens(heldout_text())[: 4 * 128].view(4, 128)
    with torch.no_grad():
        wide = stored[name].model("float64")(tokens)
        error = (stored[name].model("float32")(tokens) - wide).norm() / wide.norm()
    assert math.isfinite(float(error))
    assert float(error) < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_a_diagonal_form_is_well_conditioned(name: str, stored: dict[str, Checkpoint]) -> None:
    """Where no form is, a round-off ratio would say nothing about the conversion."""
    form = graded_form(Chain(mixers(stored[name].model("float64"))))
    assert max(float(np.linalg.cond(p)) for p in form.gauge) < 10
    lost = [int((np.asarray(g) == 0).sum()) for g in form.gates]
    singular = {2: 1, 5: 2, 7: 1, 10: 1} if name == "deficient" else {}
    assert lost == [singular.get(l, 0) for l in range(len(lost))]
