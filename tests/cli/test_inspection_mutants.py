"""One line of the inspection changed at a time: the second routes of test_inspect_command.py must notice each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import small_networks
import torch
from mutated_module import mutated, survives

from streamgauge.simulate import checkpoint as files
from streamgauge.simulate import inspection
from streamgauge.simulate.network import mixer_from_logits
from streamgauge.simulate.stored import static_mixers


def without_gradient(logits: torch.Tensor) -> float:
    """Share of the logits that move no entry of A by 1e-6 per unit, by central differences."""
    still = 0
    for place in range(9):
        step = torch.zeros(9, dtype=torch.float64)
        step[place] = 1e-4
        up, down = (mixer_from_logits(logits + s.view(3, 3), "deepseek-v4") for s in (step, -step))
        still += int((up - down).abs().max() / 2e-4 < 1e-6)
    return still / 9


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ModuleType], None]:
    """Numbers of three checkpoints by plain numpy: random, converted, with singular mixers."""
    folder = tmp_path_factory.mktemp("inspection")
    plain = files.save_model(folder / "plain", small_networks.network())
    config = replace(small_networks.BASE, mixer="matrix", recipe=None)
    mixers = [small_networks.MIX, small_networks.J2, small_networks.CYCLE]
    singular = files.save_model(folder / "singular", small_networks.with_mixers(config, mixers))
    import streamgauge

    streamgauge.convert(plain, folder / "converted", norm=True)
    partly = torch.tensor([[40.0, 0, 0], [0, 1, 0.5], [0, 0.2, 1]], dtype=torch.float64)
    flat = torch.zeros(3, 3, dtype=torch.float64)

    def check(module: ModuleType) -> None:
        found = module.inspect_checkpoint(plain)
        stored = files.read(plain)
        product = np.eye(3)
        for site, mixer in zip(found.sites, static_mixers(stored.config, stored.tensors)):
            product = mixer @ product
            sigma = np.linalg.svd(product, compute_uv=False)
            assert site.row_error == pytest.approx(abs(mixer.sum(1) - 1).max(), abs=1e-15)
            assert site.column_error == pytest.approx(abs(mixer.sum(0) - 1).max(), abs=1e-15)
            assert site.forward_gain == pytest.approx(np.linalg.norm(mixer, np.inf), rel=1e-12)
            assert site.backward_gain == pytest.approx(np.linalg.norm(mixer, 1), rel=1e-12)
            assert site.running_forward_gain == pytest.approx(np.linalg.norm(product, np.inf), rel=1e-12)
            assert site.running_backward_gain == pytest.approx(np.linalg.norm(product, 1), rel=1e-12)
            assert 10**site.log10_running_sigma2 == pytest.approx(sigma[1], rel=1e-9)
            assert 10**site.log10_identity_cond == pytest.approx(sigma[0] / sigma[-1], rel=1e-6)
            share = sigma / sigma.sum()
            assert np.log(site.running_effective_rank) == pytest.approx(-(share * np.log(share)).sum())
        assert found.sites[0].cond == found.cond[1] != found.cond[0]
        again = module.inspect_checkpoint(folder / "converted")
        assert again.cond == pytest.approx(found.cond, rel=1e-6)
        for one, two in zip(found.sites, again.sites):
            assert two.singular_values == pytest.approx(one.singular_values, rel=1e-10)
        dead = module.inspect_checkpoint(singular)
        assert np.isfinite(dead.log10_sigma[1]).all()
        assert np.isneginf(dead.log10_sigma[2:, 2]).all()
        assert np.isfinite(dead.log10_sigma[:, :2]).all()
        assert np.isposinf([site.log10_identity_cond for site in dead.sites[1:]]).all()
        assert 0 < module.saturation(partly, "deepseek-v4") == without_gradient(partly) < 1
        assert module.saturation(flat, "deepseek-v4") == 0
        assert module.saturation(60 * torch.eye(3), "deepseek-v4") == 1

    return check


MUTANTS = {
    "product reversed": ("product = mixer @ product", "product = product @ mixer"),
    "natural logarithms": ("running_log_singular_values(mixers) / LOG10", "running_log_singular_values(mixers)"),
    "level before the site": ("sigma[l + 1], gauge", "sigma[l], gauge"),
    "cond before the site": ("gauge.cond[l + 1]", "gauge.cond[l]"),
    "rows for columns": ("rows, columns = marginal_errors", "columns, rows = marginal_errors"),
    "first singular value": ("float(log10_sigma[1]) if", "float(log10_sigma[0]) if"),
    "gain of the wrong axis": (
        "forward_gain=float(np.abs(mixer).sum(axis=1)",
        "forward_gain=float(np.abs(mixer).sum(axis=0)",
    ),
    "singular is infinitely ill": ('else float("inf")', 'else float("nan")'),
    "one entry only": ("effect.abs().amax(dim=(0, 1))", "effect.abs().amin(dim=(0, 1))"),
    "entropy in the wrong base": ("np.exp(-(p * np.log(p))", "np.exp(-(p * np.log2(p))"),
}


def test_the_module_itself_passes(battery: Callable[[ModuleType], None]) -> None:
    battery(inspection)
    assert survives(battery, inspection)


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_mutant_dies(old: str, new: str, battery: Callable[[ModuleType], None]) -> None:
    assert not survives(battery, mutated(inspection, old, new)), f"{new!r} goes unnoticed"
