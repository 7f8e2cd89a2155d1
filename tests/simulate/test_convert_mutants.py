"""Every line of the converter that carries mathematics is needed: changed, the network misses or the file differs."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch
from mutated_module import assert_passes, mutated, survives
from small_networks import BASE, CYCLE, J2, MIX, network, random_tokens, with_mixers

from streamgauge.simulate import convert, restore, stored
from streamgauge.simulate.crosscheck import FLOAT64_LIMIT, crosscheck, relative_rms
from streamgauge.simulate.model import ByteLM
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate

SINGULAR = replace(BASE, mixer="matrix", recipe=None, readout="linear", entry="free")


def same_function(module: ModuleType) -> None:
    """Both readout kinds, singular and regular, with and without the norm gate; loops and growth refused."""
    for model in (network(), with_mixers(SINGULAR, [MIX, J2, CYCLE])):
        if model.config.entry == "free":
            with torch.no_grad():
                model.entry.copy_(torch.tensor([1.0, -2.0, 0.5]))
                model.head.linear.copy_(torch.tensor([0.3, -1.0, 2.0]))
        for norm in (None, NormGate(eps=0.05, cap=1.5)):
            made = module.convert_tensors(model.config, model.state_dict(), form="graded", norm=norm, place="model")
            out = ByteLM(made.config).to_precision("float64")
            out.load_state_dict({k: v.double() for k, v in made.tensors.items()})
            found = crosscheck(model, out, random_tokens(), precisions=("float64",))
            assert found.results[0].error < FLOAT64_LIMIT
            assert max(found.streams) < FLOAT64_LIMIT
            tensors = restore._restored(model.config, made.config, made.tensors, {})
            back = ByteLM(replace(model.config, mixer="matrix", recipe=None)).to_precision("float64")
            back.load_state_dict({k: v.double() for k, v in tensors.items()})
            model64 = ByteLM(model.config).to_precision("float64")
            model64.load_state_dict(model.state_dict())
            with torch.no_grad():
                assert relative_rms(back(random_tokens()), model64(random_tokens())) < FLOAT64_LIMIT
    regular = module.convert_tensors(BASE, network().state_dict(), form="identity", norm=None, place="model")
    assert regular.config.residual == "ihc"
    for config, reason in ((replace(BASE, loops=2), "holonomy"), (replace(BASE, residual="ihc"), "no mixing matrix")):
        with pytest.raises(InputError, match=reason):
            module.convert_tensors(config, network(config).state_dict(), form="graded", norm=None, place="model")
    deep = replace(BASE, sites=("mlp",) * 140, residual="hc", mixer="matrix", recipe=None)
    grown = with_mixers(deep, [[[1 / 3] * 3] * 3])
    with pytest.raises(InputError, match="set a cap"):
        module.convert_tensors(deep, grown.state_dict(), form="graded", norm=NormGate(), place="model")


MUTANTS = {
    "weight through P transposed": ('"msd,st->mtd"', '"msd,ts->mtd"'),
    "metric of the identity": ('np.linalg.qr(gauge, mode="r")', "np.eye(len(gauge))"),
    "write map of this level": ("form.gauge_inverse[l + 1]", "form.gauge_inverse[l]"),
    "write map not inverted": ("put(form.gauge_inverse[l + 1])", "put(form.gauge[l + 1])"),
    "read map of the next level": ('gauge.read"] = put(form.gauge[l])', 'gauge.read"] = put(form.gauge[l + 1])'),
    "norm gates stored twice scaled": ("form.norm.base_gates if form.norm is not None else form.gates", "form.gates"),
    "entry not transformed": ("entry, readout = form.entry,", "entry, readout = form.chain.entry,"),
    "readout not transformed": ("= form.entry, form.readout", "= form.entry, form.chain.readout"),
    "head map of the entry": ('head.gauge.read"] = put(form.gauge[-1])', 'head.gauge.read"] = put(form.gauge[0])'),
    "head metric of the entry": ("put(metric(form.gauge[-1]))", "put(metric(form.gauge[0]))"),
    "head weight of the entry": (
        'floats(tensors["head.weight"]), form.gauge[-1]',
        'floats(tensors["head.weight"]), form.gauge[0]',
    ),
    "eps forgotten": ("NormGateConfig(float(gate.eps), ", "NormGateConfig(0.0, "),
    "cap forgotten": ("None if gate.cap is None else float(gate.cap)", "None"),
    "gates of an identity form": ('"ihc" if form.form == "identity" else "gated"', '"gated"'),
    "loops accepted": ("config.loops != 1", "config.loops < 1"),
    "pure iHC accepted": ('not in ("mhc", "hc", "mean-gated")', 'not in ("mhc", "hc", "mean-gated", "ihc")'),
    "growth not refused": ("> STATE_LIMIT", "> 10 * STATE_LIMIT"),
}


def test_the_battery_passes_on_the_converter() -> None:
    assert_passes(same_function, convert)


@pytest.mark.parametrize(("old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_mutant_dies(old: str, new: str) -> None:
    assert not survives(same_function, mutated(convert, old, new))


RESTORE_MUTANTS = {
    "weight of the wrong level": ("floats(tensors[name]), inverses[l])", "floats(tensors[name]), inverses[l + 1])"),
    "entry kept": ('gauge[0] @ floats(tensors["entry"])', 'floats(tensors["entry"])'),
    "readout kept": ('floats(tensors["head.linear"]) @ inverses[-1]', 'floats(tensors["head.linear"])'),
    "head weight kept": (
        'floats(tensors["head.weight"]), inverses[-1]',
        'floats(tensors["head.weight"]), inverses[0]',
    ),
}


@pytest.mark.parametrize(("old", "new"), RESTORE_MUTANTS.values(), ids=RESTORE_MUTANTS)
def test_restore_mutant_dies(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutated(restore, old, new)
    monkeypatch.setattr(restore, "_restored", mutant._restored)
    assert not survives(same_function, convert)


STORED_MUTANTS = {
    "carry the other way": (
        "(levels[l + 1] * gate) @ inverse(levels[l])",
        "(levels[l] * gate) @ inverse(levels[l + 1])",
    ),
    "gates on rows": ("(levels[l + 1] * gate) @", "(levels[l + 1] * gate[:, None]) @"),
    "gates ignored": ("(levels[l + 1] * gate) @", "levels[l + 1] @"),
    "norm factor ignored": ("out[l] *= norm_factor", "out[l] += 0 * norm_factor"),
    "last level not inverted": (
        'inverse(floats(tensors[f"sites.{len(levels) - 1}',
        '(floats(tensors[f"sites.{len(levels) - 1}',
    ),
}


@pytest.mark.parametrize(("old", "new"), STORED_MUTANTS.values(), ids=STORED_MUTANTS)
def test_stored_mutant_dies(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = mutated(stored, old, new)
    monkeypatch.setattr(restore, "carries", mutant.carries)
    monkeypatch.setattr(restore, "stored_levels", mutant.stored_levels)
    assert not survives(same_function, convert)
