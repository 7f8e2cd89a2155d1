"""The choice of backend: a network runs on the one in use, and only inside the block."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import rule_networks
import torch

from streamgauge.kernels import backends, reference


def test_the_reference_is_the_default() -> None:
    assert backends.current() == "reference"
    assert backends.operations() is reference
    assert backends.available("reference")


@pytest.fixture
def doubling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A backend called "triton" whose writes are twice as large; it notes every call."""
    calls: list[str] = []
    module = ModuleType("streamgauge.kernels.triton")
    module.__spec__ = reference.__spec__
    for name in ("read", "coefficients"):
        setattr(
            module, name, lambda *a, _name=name, **k: (calls.append(_name), getattr(reference, _name)(*a, **k))[1]
        )
    module.write = lambda *a, **k: (calls.append("write"), 2 * reference.write(*a, **k))[1]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(backends, "available", lambda name: True)
    return calls


def test_a_network_runs_on_the_backend_in_use(doubling: list[str]) -> None:
    net = rule_networks.network("norm-gated")
    x = rule_networks.tokens(net)
    with torch.no_grad():
        before = net(x)
        with backends.using("triton"):
            inside = net(x)
        after = net(x)
    assert torch.equal(before, after)
    assert not torch.equal(before, inside)
    assert set(doubling) == {"read", "write", "coefficients"}


def test_names() -> None:
    with pytest.raises(ValueError, match="found 'cuda', expected one of reference, triton"):
        backends.available("cuda")
    if not backends.available("triton"):
        with pytest.raises(ModuleNotFoundError), backends.using("triton"):
            pass
    assert backends.current() == "reference"
