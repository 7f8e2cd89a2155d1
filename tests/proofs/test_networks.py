"""Networks that run: faults in a conversion are noticed by the comparison, and the parts do what they say."""

from __future__ import annotations

import conversion_faults
import pytest
import torch

from streamgauge.kernels import reference
from streamgauge.proofs import network_parts, networks
from streamgauge.proofs.ledger import network_cases as cases
from streamgauge.proofs.networks import Comparison, same_function
from streamgauge.simulate.convert import convert_tensors
from streamgauge.simulate.network import HyperNetwork

DYNAMIC = cases.DYNAMIC


@pytest.mark.parametrize("fault", conversion_faults.FAULTS)
@pytest.mark.parametrize("precision", ["float64", "bfloat16"])
def test_faults_are_noticed(fault: str, precision: str) -> None:
    config = cases.config(**DYNAMIC)
    source = networks.network(config, 0, cases.SINGULAR)
    made = convert_tensors(config, source.state_dict(), form="graded", norm=None, place="network")
    wrong = HyperNetwork(made.config, [site.branch for site in source._sites()]).to_precision("float64")
    wrong.load_state_dict(made.tensors)
    assert same_function(Comparison(source, wrong, networks.inputs(config), precision)), "the control"
    wrong.load_state_dict(conversion_faults.faulty(made, fault))
    assert not same_function(Comparison(source, wrong, networks.inputs(config), precision))


def test_the_comparison_runs_the_networks_as_given() -> None:
    """By hand: the state after one static site, and the readout, in float64."""
    config = cases.config(sites=("mlp",), entry="free", readout="linear")
    net = networks.network(config, 3, cases.SINGULAR)
    x = networks.inputs(config)
    site = net._sites()[0]
    with torch.no_grad():
        state = net.entry[:, None] * x[..., None, :]
        p, r = site.reads_writes(state)
        y = site.branch(torch.einsum("s,btsd->btd", p, state))
        after = torch.einsum("ij,btjd->btid", site.mixer.matrix, state) + r[:, None] * y[..., None, :]
        by_hand = torch.einsum("s,btsd->btd", net.head.linear, after)
        assert torch.allclose(net(x), by_hand, rtol=0, atol=1e-12)


def test_dropout_masks_are_shared_by_seed() -> None:
    branch = torch.nn.Identity()
    x = torch.ones(2, 50, 3)
    first, same, other = (network_parts.Dropped(branch, 0.3, seed)(x) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert 0.5 < float((first > 0).double().mean()) < 0.9
    assert torch.equal(first[first > 0], torch.full_like(first[first > 0], 1 / 0.7))


def test_token_gates_depend_on_the_token_and_not_on_the_size_of_the_state() -> None:
    config = cases.config(entry="free", readout="linear")
    made = networks.converted(networks.network(config, 0, cases.INVERTIBLE), "graded", norm=cases.NORMS[" + norm"])
    site = made._sites()[0]
    direction = torch.randn(3, 3, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gated = network_parts.TokenGated.of(site, direction)
    state = made.enter(networks.inputs(config)).double()
    gates = gated.gates_of(state).detach()
    assert float(gates.std(dim=(0, 1)).min()) > 0.01
    assert torch.allclose(gates, gated.gates_of(7 * state))
    assert isinstance(made._sites()[0], type(site)), "the site itself is as it was"
    factor = reference.norm_factor(gates)
    assert float(factor.max() - factor.min()) > 0.01, "and so does c(g(x))"


def test_stream_norm_is_the_only_change() -> None:
    config = cases.config(sites=("mlp",), entry="free", readout="linear")
    net = networks.network(config, 0, cases.INVERTIBLE)
    site = net._sites()[0]
    normed = network_parts.StreamNormed.of(site)
    state = net.enter(networks.inputs(config))
    unit = state * torch.rsqrt(state.square().mean(-1, keepdim=True))
    with torch.no_grad():
        assert not torch.allclose(site(state), normed(state))
        assert torch.allclose(site(unit), normed(unit), atol=1e-9)


def test_rms_formulas_agree_in_exact_arithmetic() -> None:
    case = networks.rms_case(50.0, "triangular")
    triangle = torch.linalg.qr(case.basis)[1]
    by_triangle = (triangle @ case.state).norm()
    by_gram = torch.trace(case.state.mT @ case.basis.mT @ case.basis @ case.state).sqrt()
    assert torch.allclose(by_triangle, by_gram)
    assert float(torch.linalg.cond(case.basis)) == pytest.approx(50.0)


def test_float64_runs_on_the_reference_whatever_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamgauge.kernels import backends

    seen: list[str] = []
    operations = backends.operations

    def note() -> object:
        seen.append(backends.current())
        return reference

    monkeypatch.setattr(backends, "available", lambda name: True)
    monkeypatch.setattr(backends, "device", lambda: "cpu")
    monkeypatch.setattr("streamgauge.simulate.network.operations", note)
    pair = cases.compare(precision="float32", **DYNAMIC)()
    with backends.using("triton"):
        same_function(pair)
    assert set(seen) == {"reference", "triton"}
    assert operations() is reference
