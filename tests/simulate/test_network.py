"""The network against a second implementation in numpy, rule by rule; orientation, precision, liveness."""

from __future__ import annotations

import copy

import numpy as np
import numpy_network as second
import pytest
import torch
from rule_networks import CASES, config, network, tokens
from torch import Tensor, nn

from streamgauge.simulate.network import HyperNetwork, is_coefficient, precompute_mixers
from streamgauge.theory.errors import InputError


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 7.0)


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def as_numpy(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("case", CASES)
def test_every_rule_equals_the_numpy_recursion(case: str) -> None:
    model = network(case, seed=sorted(CASES).index(case))
    x = tokens(model)
    with torch.no_grad():
        logits, streams = model(x), model.streams(x)
    tensors, settings = as_numpy(model), model.config.to_json()
    assert len(streams) == model.depth + 1 == len(model.config.sites) * model.config.loops + 1
    for b in range(len(x)):
        expected = second.states(tensors, settings, x[b].tolist())
        for level, state in enumerate(expected):
            np.testing.assert_allclose(streams[level][b].numpy(), state, rtol=1e-11, atol=1e-11)
        wanted = second.logits(tensors, settings, x[b].tolist())
        np.testing.assert_allclose(logits[b].numpy(), wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_carries_are_the_matrices_that_act(case: str) -> None:
    model = network(case)
    for l, carry in enumerate(model.carries()):
        expected = second.carry(as_numpy(model), l, model.config.to_json())
        np.testing.assert_allclose(carry.detach().numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_used(case: str) -> None:
    """Every tensor in the file changes the logits, and every parameter receives a gradient."""
    model = network(case)
    x = tokens(model)
    model.loss(x, x).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        before = model(x)
        for name, tensor in model.state_dict().items():
            saved = tensor.clone()
            # random: Sinkhorn does not see u_i + v_j added to the logits
            tensor.add_(0.01 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype))
            assert (model(x) - before).abs().max() > 1e-9, name
            tensor.copy_(saved)
        assert torch.equal(model(x), before)


def test_the_first_doubly_stochastic_mixer_cannot_act_on_copies() -> None:
    """With copy-in the streams of X_0 are equal and A_0 1 = 1: the first mixer does nothing and nothing trains it."""
    model = network("mean-gated", entry="copy")
    x = tokens(model)
    model.loss(x, x).backward()
    sizes = [float(model.get_parameter(f"sites.{l}.gates").grad.abs()) for l in range(3)]
    assert sizes[0] < 1e-15
    assert min(sizes[1:]) > 1e-6


def test_a_cyclic_mixer_turns_the_streams_the_published_way() -> None:
    """Item 1 of public bug reports: comb [[0,1,0],[0,0,1],[1,0,0]] sends (1, 2, 3) to (3, 1, 2)."""
    comb = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.float64)
    for mixer, recipe in (("matrix", None), ("logits", "deepseek-v4")):
        settings = config(mixer=mixer, recipe=recipe, sites=["mlp"], entry="free", readout="sum")
        model = HyperNetwork(settings, [Nothing()]).to_precision("float64")
        with torch.no_grad():
            model.get_parameter("entry").copy_(torch.tensor([1.0, 2, 3]))
            # a logits mixer stores comb itself, the recipe transposes; a matrix mixer stores A = comb^T
            tensor = model.get_parameter(f"sites.0.mixer.{mixer}")
            tensor.copy_(comb.mT if mixer == "matrix" else 200 * comb)
            last = model.states(torch.ones(1, 1, 8, dtype=torch.float64))[-1][0, 0, :, 0]
        np.testing.assert_allclose(last.numpy(), [3, 1, 2], atol=1e-4)


def test_equal_streams_stay_equal_under_a_row_exact_recipe() -> None:
    """n equal streams through the hard logits move by 1e-6 only in the right orientation (0.0257 in the other)."""
    hard = torch.tensor([[12.0, 0, 0, 0], [12, 0, 0, 0], [0, 12, 0, 0], [0, 0, 12, 0]], dtype=torch.float64)
    settings = config(mixer="logits", recipe="deepseek-v4", sites=["mlp"], streams=4)
    model = HyperNetwork(settings, [Nothing()]).to_precision("float64")
    with torch.no_grad():
        model.get_parameter("sites.0.mixer.logits").copy_(hard)
        moved = (model.states(torch.ones(1, 1, 8, dtype=torch.float64))[-1] - 1).abs().max()
        other = (model.carries()[0].mT.sum(-1) - 1).abs().max()
    assert float(moved) < 2e-6
    assert float(other) == pytest.approx(0.0257, abs=2e-4)


def test_any_module_is_a_branch() -> None:
    model = HyperNetwork(config(residual="ihc", coefficients="static", sites=["mlp"] * 2), [Constant(), Nothing()])
    model = model.to_precision("float64")
    x = torch.zeros(1, 2, 8, dtype=torch.float64)
    with torch.no_grad():
        first, last = model.states(x)[1:]
    write = 2 / (1 + np.exp(-model.get_parameter("sites.0.coef.base")[3:].detach().numpy()))
    np.testing.assert_allclose(first[0, 0, :, 0].numpy(), 7 * write)
    assert torch.equal(first, last)
    with pytest.raises(InputError, match="branches: found 1, expected 2, one per site"):
        HyperNetwork(config(sites=["mlp"] * 2), [Constant()])


def test_precomputed_mixers_are_the_same_function_bit_for_bit() -> None:
    model = network("mhc-logits").to_precision("float32")
    x = tokens(model)
    fast = precompute_mixers(model)
    assert fast.config.mixer == "matrix"
    assert "sites.0.mixer.logits" in dict(model.named_parameters())
    assert set(fast.state_dict()) == {n.replace("mixer.logits", "mixer.matrix") for n in model.state_dict()}
    with torch.no_grad():
        assert torch.equal(fast(x), model(x))
    with pytest.raises(InputError, match="expected 'mhc' with mixer 'logits'"):
        precompute_mixers(fast)


@pytest.mark.parametrize("case", ["mhc-logits", "converted-norm-gated", "gated"])
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16", "float16"])
def test_precision_policy(case: str, precision: str) -> None:
    source = network(case)
    model = copy.deepcopy(source).to_precision(precision)
    state = getattr(torch, precision)
    coefficient = torch.float64 if precision == "float64" else torch.float32
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == (coefficient if is_coefficient(name) else state), name
    x = tokens(model)
    with torch.no_grad():
        p, r = model.sites[0].reads_writes(model.streams(x)[0])
        assert p.dtype == r.dtype == coefficient
        assert all(s.dtype == state for s in model.streams(x))
        error = (model(x).double() - source(x)).abs().max() / source(x).abs().max()
    assert float(error) < {"float64": 1e-15, "float32": 1e-5, "bfloat16": 0.25, "float16": 0.02}[precision]
    with pytest.raises(InputError, match="precision: found 'fp8'"):
        model.to_precision("fp8")


def test_coefficients_are_not_rounded_to_the_state_dtype() -> None:
    """A bfloat16 network mixes with float32 matrices: row sums stay within 2e-6 (bfloat16 would give 1e-3)."""
    model = network("mhc-logits").to_precision("bfloat16")
    with torch.no_grad():
        rows = torch.stack([carry.sum(-1) for carry in model.carries()])
        assert rows.dtype == torch.float32
        assert float((rows - 1).abs().max()) < 3e-6
        rounded = torch.stack([carry.bfloat16().float().sum(-1) for carry in model.carries()])
    assert float((rounded - 1).abs().max()) > 1e-4  # control


def test_names_of_coefficients() -> None:
    for name in ("entry", "sites.3.coef.weight", "sites.0.gates", "head.gauge.metric", "sites.1.mixer.logits"):
        assert is_coefficient(name), name
    for name in ("embed.weight", "lm_head.weight", "final_norm.weight", "sites.2.branch.gate.weight"):
        assert not is_coefficient(name), name
