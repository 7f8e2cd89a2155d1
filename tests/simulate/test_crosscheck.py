"""The cross-check measures what it says: a second route for every figure, and controls that must fail."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import BASE, network, random_tokens

from streamgauge.simulate.convert import convert_tensors
from streamgauge.simulate.crosscheck import crosscheck, relative_rms
from streamgauge.simulate.measure import costs
from streamgauge.simulate.model import ByteLM
from streamgauge.theory.errors import InputError


@pytest.fixture(scope="module")
def pair() -> tuple[ByteLM, ByteLM]:
    source = network()
    made = convert_tensors(source.config, source.state_dict(), form="graded", norm=None, place="model")
    out = ByteLM(made.config).to_precision("float64")
    out.load_state_dict({k: v.double() for k, v in made.tensors.items()})
    return source, out


def test_figures_by_a_second_route(pair: tuple[ByteLM, ByteLM]) -> None:
    source, out = pair
    tokens = random_tokens()
    found = crosscheck(source, out, tokens, precisions=("float64", "float32"))
    with torch.no_grad():
        exact = copy.deepcopy(source).to_precision("float64")(tokens).numpy().reshape(-1, 256)
        own = copy.deepcopy(source).to_precision("float32")(tokens).double().numpy().reshape(-1, 256)
        other = copy.deepcopy(out).to_precision("float32")(tokens).double().numpy().reshape(-1, 256)
    size = math.sqrt((exact**2).mean())
    row = found.results[1]
    assert row.source_error == pytest.approx(math.sqrt(((own - exact) ** 2).mean()) / size, rel=1e-12)
    assert row.error == pytest.approx(math.sqrt(((other - exact) ** 2).mean()) / size, rel=1e-12)
    assert row.ratio == pytest.approx(row.error / row.source_error)
    p, q = (np.exp(z - z.max(1, keepdims=True)) for z in (exact, other))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    assert row.kl == pytest.approx(float((p * np.log(p / q)).sum(1).mean()), abs=1e-12)
    assert row.agreement == float((exact.argmax(1) == other.argmax(1)).mean())
    assert math.isnan(found.results[0].ratio)
    assert found.tokens == tokens.numel()


def test_streams_compare_every_level(pair: tuple[ByteLM, ByteLM]) -> None:
    source, out = pair
    found = crosscheck(source, out, random_tokens(), precisions=("float64",))
    assert len(found.streams) == len(BASE.sites) + 1
    assert found.verdict()
    wrong = copy.deepcopy(out)
    with torch.no_grad():
        wrong.sites[3].gauge.write.mul_(1.01)
    off = crosscheck(source, wrong, random_tokens(), precisions=("float64",))
    assert max(off.streams[:4]) < 1e-9
    assert off.streams[4] > 1e-6, "the first level after the fault shows it"
    assert not off.verdict()


def test_a_worse_round_off_is_not_called_equal(pair: tuple[ByteLM, ByteLM]) -> None:
    """Equal in float64 is not enough: an ill-conditioned gauge fails by its ratio."""
    source, out = pair
    bad = copy.deepcopy(out)
    shear = torch.eye(3, dtype=torch.float64)
    shear[0, 1] = 1e4
    with torch.no_grad():
        bad.sites[2].gauge.read.copy_(bad.sites[2].gauge.read @ shear)
        before = bad.sites[1]
        before.gauge.write.copy_(torch.linalg.inv(shear) @ before.gauge.write)
    assert not crosscheck(source, bad, random_tokens(), precisions=("float32",)).verdict()


def test_strangers_are_refused(pair: tuple[ByteLM, ByteLM]) -> None:
    source, out = pair
    with pytest.raises(InputError, match="the second network has no gauge"):
        crosscheck(source, source, random_tokens())
    with pytest.raises(InputError, match="the converted network is in float32, expected it loaded in float64"):
        crosscheck(source, copy.deepcopy(out).to_precision("float32"), random_tokens())
    other = network(replace(BASE, width=16))
    with pytest.raises(InputError, match="width is 16 in the source and 8 in the converted network"):
        crosscheck(other, out, random_tokens())


def test_relative_rms_of_something_not_finite_is_infinite() -> None:
    one = torch.ones(3, dtype=torch.float64)
    assert relative_rms(one * math.nan, one) == math.inf
    assert relative_rms(one * 1.5, one) == pytest.approx(0.5)


def test_costs_count_what_is_stored(pair: tuple[ByteLM, ByteLM]) -> None:
    source, out = pair
    rows = costs(source, out, random_tokens(), repeats=1)
    assert [r.name for r in rows] == ["source", "source, mixers precomputed", "converted"]
    assert rows[1].ratio == 1
    n, d, sites = BASE.streams, BASE.width, len(BASE.sites)
    controller = 2 * n * n * d + 2 + 2 * n
    head = n * n * d + 1 + n
    assert rows[0].connection == sites * (n * n + controller) + head
    assert rows[1].parameters == rows[0].parameters, "a matrix is as large as its logits"
    assert rows[2].connection == sites * (3 * n * n + n + controller) + head + 2 * n * n + n
    assert rows[0].bytes == 4 * rows[0].parameters
    assert all(r.seconds > 0 for r in rows)


def test_zero_logits_equal_zero_logits() -> None:
    zero = torch.zeros(2, 3)
    assert relative_rms(zero, zero) == 0
    assert relative_rms(zero + 1, zero) > 1e300
