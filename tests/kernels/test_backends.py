"""The choice of backend: a network runs on the one in use, and only inside the block."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    """Kernels whose writes are twice as large; every call is noted."""
    calls: list[str] = []
    module = SimpleNamespace()

    def noted(name: str, factor: int) -> Any:
        operation = getattr(reference, name)
        return lambda *given, **more: (calls.append(name), factor * operation(*given, **more))[1]

    for name in ("read", "write", "coefficients"):
        setattr(module, name, noted(name, 2 if name == "write" else 1))
    monkeypatch.setattr(backends, "_kernels", lambda: module)
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


INTERPRETED = """
import rule_networks, torch
from streamgauge.kernels import backends
assert backends.available("triton") and backends.device() == "cpu"
net = rule_networks.network("converted-norm-gated").to_precision("float32")
x = rule_networks.tokens(net)
with torch.no_grad():
    expected = net(x)
    with backends.using("triton"):
        found = net(x)
print(float((found - expected).abs().max() / expected.abs().max()), torch.equal(found, expected))
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_the_kernels_interpreted_give_the_same_network() -> None:
    """In a process of its own: the interpreter is chosen at triton's first import."""
    support = Path(rule_networks.__file__).parent
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(support), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", INTERPRETED]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    error, equal = done.stdout.split()
    assert float(error) < 1e-5
    assert equal == "False", "not one and the same code"
