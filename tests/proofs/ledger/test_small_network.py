"""The small trained network: gradients against differences, and more runs behind claim T08."""

from __future__ import annotations

import numpy as np
import pytest

from streamgauge.proofs.ledger.training_checks import Experiment, mixers_of, stable_only_if_not_expanding, trained
from streamgauge.proofs.small_network import fresh_network, gradients, teacher_task
from streamgauge.theory.errors import InputError

NAMES = ("inner", "outer", "head", "mixers")


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_central_differences(name: str) -> None:
    dice = np.random.default_rng(0)
    net = fresh_network(dice.standard_normal((3, 2, 2)), width=3, hidden=4, outputs=2, seed=5)
    task = teacher_task(width=3, outputs=2, samples=7, seed=1)
    found = gradients(net, task)[1][NAMES.index(name)]
    values = getattr(net, name)
    for at in np.ndindex(values.shape):
        kept, losses = values[at], []
        for step in (1e-6, -1e-6):
            values[at] = kept + step
            losses.append(gradients(net, task)[0])
        values[at] = kept
        assert found[at] == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-5, abs=1e-8)


def test_one_step_forward_is_the_formula() -> None:
    mixers = np.random.default_rng(1).standard_normal((2, 3, 3))
    net = fresh_network(mixers, width=2, hidden=2, outputs=1, seed=2)
    task = teacher_task(width=2, outputs=1, samples=4, seed=3)
    total = 0.0
    for x, target in zip(task.inputs, task.targets):
        state = np.outer(np.ones(3), x)
        for l in range(2):
            written = np.tanh(net.reads[l] @ state @ net.inner[l]) @ net.outer[l]
            state = mixers[l] @ state + np.outer(net.writes[l], written)
        total += float(((np.ones(3) / 3 @ state @ net.head - target) ** 2).sum()) / 2
    assert gradients(net, task)[0] == pytest.approx(total / 4, rel=1e-12)


def test_mixers_must_be_square_and_stacked() -> None:
    with pytest.raises(InputError, match=r"found shape \(2, 3\), expected \(sites, n, n\)"):
        fresh_network(np.ones((2, 3)), width=2, hidden=2, outputs=1, seed=0)


def test_the_reference_is_doubly_stochastic_and_the_others_expand() -> None:
    reference = mixers_of(Experiment("doubly stochastic"))
    np.testing.assert_allclose(reference.sum(axis=1), 1, atol=1e-10)
    np.testing.assert_allclose(reference.sum(axis=2), 1, atol=1e-14)
    rotations = mixers_of(Experiment("rotations", 1.05))
    squares = np.swapaxes(rotations, 1, 2) @ rotations
    np.testing.assert_allclose(squares, np.broadcast_to(np.eye(4) * 1.05**2, squares.shape), atol=1e-14)


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_reference_runs_are_stable_and_learn(seed: int) -> None:
    run = trained(Experiment("doubly stochastic", seed=seed))
    assert run.losses[-1] < 0.01 * run.losses[0]
    assert run.spike < 1.5
    assert stable_only_if_not_expanding(Experiment("doubly stochastic", seed=seed))


def test_strong_expansion_does_not_train() -> None:
    """The claim has a true core: a factor 2 per site is lost from the start."""
    run = trained(Experiment("rotations", 2.0, steps=60))
    assert run.losses[-1] > 1000


@pytest.mark.parametrize(
    "experiment",
    [Experiment("identity", 1.05), Experiment("rotations", 1.05, seed=7), Experiment("free", steps=800, rate=0.015)],
    ids=["scaled-identity", "scaled-rotations", "free-mixers"],
)
def test_expanding_mixers_train_as_well(experiment: Experiment) -> None:
    found = stable_only_if_not_expanding(experiment)
    assert not found
    assert found.witness["mixer_norms"][0] > 1.02
    assert found.witness["final_loss"] <= found.witness["reference_loss"]
