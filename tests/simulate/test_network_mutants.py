"""One line wrong in the network or in a reference operation: the comparison with numpy notices each time."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy_network as second
import pytest
import rule_networks
import torch
from mutated_module import assert_passes, mutated, survives

from streamgauge.kernels import reference
from streamgauge.simulate import model as model_module
from streamgauge.simulate import network as network_module

CASES = ("mhc-logits", "norm-gated", "converted-gated", "converted-ihc", "mean-gated")
IMPORT = "from streamgauge.simulate.network import HyperNetwork, is_coefficient"
NETWORK = {
    "recipe not transposed": ("matrix.mT.contiguous() if named.transpose else matrix", "matrix"),
    "read uses P^T": ("p @ self.gauge.read, r", "p @ self.gauge.read.mT, r"),
    "write uses P^-T": ("r @ self.gauge.write.mT", "r @ self.gauge.write"),
    "T_l dropped": ('z = self.coef(x, getattr(self.gauge, "metric", None))', "z = self.coef(x, None)"),
    "head without T_L": ('metric = getattr(self.gauge, "metric", None)', "metric = None"),
    "head without P_L": ("c if self.gauge is None else c @ self.gauge.read", "c"),
    "eps after the gauge": (
        "p = torch.sigmoid(z[..., : self.n]) + self.hc_eps",
        "p = torch.sigmoid(z[..., : self.n])",
    ),
    "write without its factor": ("r = self.post_mult * torch", "r = torch"),
    "scale of the other group": ("self.scale.repeat_interleave(self.n)", "self.scale.repeat(self.n)"),
    "mean gate without J": ("(1 - self.gates) / self.n + self.gates * eye", "self.gates * eye"),
    "norm gate without its norm": ('{"mode": "norm", ', '{"mode": "diag", '),
    "entry ignored": ("self.entry.to(wide)[:, None] *", "1 *"),
}
REFERENCE = {
    "features before streams": ("wide.flatten(-2) @", "wide.mT.flatten(-2) @"),
    "rms over one axis": (".square().mean((-2, -1))", ".square().mean(-1).mean(-1) * 2"),
    "eps not squared": ("(root / unit).square()", "(root / unit)"),
    "one sweep fewer": ("remaining = iterations - 1", "remaining = iterations - 20"),
    "mixer transposed": ('"...ij,...jd->...id"', '"...ji,...jd->...id"'),
    "no carry": ("torch.addcmul(carry,", "torch.addcmul(0 * carry,"),
    "norm gate by n": ("g.shape[-1] ** 0.5", "g.shape[-1]"),
}


def battery(built: ModuleType) -> None:
    """Logits of every case against numpy, with the classes of ``built``."""
    for case in CASES:
        source = rule_networks.network(case)
        net = built.ByteLM(source.config).to_precision("float64")
        net.load_state_dict(source.state_dict())
        x = rule_networks.tokens(source)
        tensors = {name: tensor.detach().numpy() for name, tensor in source.state_dict().items()}
        with torch.no_grad():
            got = net(x)[0].numpy()
        expected = second.logits(tensors, source.config.to_json(), x[0].tolist())
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def with_network(network: ModuleType) -> ModuleType:
    return mutated(model_module, IMPORT, IMPORT.replace("streamgauge.simulate.network", network.__name__))


def test_the_battery_passes_unchanged() -> None:
    assert_passes(battery, with_network(mutated(network_module, "import copy", "import copy  # as it is")))


@pytest.mark.parametrize("name", NETWORK)
def test_network_mutants_fail(name: str) -> None:
    assert not survives(battery, with_network(mutated(network_module, *NETWORK[name])))


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_mutants_fail(name: str) -> None:
    operations = mutated(reference, *REFERENCE[name])
    activation = "from streamgauge.kernels.activation import Activation"
    backends = "from streamgauge.kernels.backends import operations"
    lines = f"from streamgauge.kernels import reference\n{activation}\n{backends}"
    here = f"import {operations.__name__} as reference\n{activation}\noperations = lambda: reference"
    network = mutated(network_module, lines, here)
    assert not survives(battery, with_network(network))
