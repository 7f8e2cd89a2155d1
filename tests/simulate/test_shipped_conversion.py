"""The shipped checkpoints converted: same function in float64, round-off no worse than the source's own below it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from conversion_faults import FAULTS, faulty

from streamgauge import examples
from streamgauge.simulate import checkpoint
from streamgauge.simulate.convert import Conversion, convert_tensors
from streamgauge.simulate.crosscheck import (
    FLOAT64_LIMIT,
    LIMITS,
    MINIMUM_TOKENS,
    CrossCheck,
    crosscheck,
    relative_rms,
)
from streamgauge.simulate.model import ByteLM
from streamgauge.theory.form import NormGate

DATA = Path(examples.__file__).parent / "data"
SHIPPED = ("static", "deficient")


@dataclass(frozen=True)
class Shipped:
    source: ByteLM
    given: checkpoint.Checkpoint
    tokens: torch.Tensor

    def convert(self, form: str, norm: NormGate | None) -> Conversion:
        return convert_tensors(self.given.config, self.given.tensors, form=form, norm=norm, place="shipped")

    def check(self, made: Conversion, precisions: tuple[str, ...]) -> CrossCheck:
        return crosscheck(self.source, runnable(made), self.tokens, precisions=precisions)


def runnable(made: Conversion) -> ByteLM:
    out = ByteLM(made.config).to_precision("float64").eval()
    out.load_state_dict({k: v.double() for k, v in made.tensors.items()})
    return out


@pytest.fixture(scope="module", params=SHIPPED)
def shipped(request: pytest.FixtureRequest) -> Shipped:
    given = checkpoint.read(DATA / request.param)
    context = given.config.context
    rows = -(-MINIMUM_TOKENS // context)
    text = (DATA / "heldout.txt").read_bytes()[: rows * context]
    return Shipped(given.model("float64"), given, torch.tensor(list(text)).view(rows, context))


@pytest.mark.parametrize("norm", [None, NormGate()], ids=["graded", "graded+norm"])
def test_graded_is_as_exact_as_the_source(shipped: Shipped, norm: NormGate | None) -> None:
    assert shipped.tokens.numel() >= MINIMUM_TOKENS
    found = shipped.check(shipped.convert("graded", norm), ("float64", "float32", "bfloat16"))
    assert found.verdict(), found
    by = {r.precision: r for r in found.results}
    assert by["float64"].error <= FLOAT64_LIMIT
    for precision in ("float32", "bfloat16"):
        assert by[precision].ratio <= LIMITS[precision]
        assert by[precision].source_error > 0, "control: the source does round in this precision"
    assert max(found.streams) <= FLOAT64_LIMIT


def test_binary_is_exact_in_float64(shipped: Shipped) -> None:
    made = shipped.convert("binary", None)
    assert {float(g) for gate in made.form.gates for g in gate} <= {0.0, 1.0}
    assert shipped.check(made, ("float64",)).results[0].error <= FLOAT64_LIMIT


@pytest.mark.parametrize("which", FAULTS)
def test_faults_on_the_shipped_checkpoint_miss_by_a_thousand(shipped: Shipped, which: str) -> None:
    tokens = shipped.tokens[:2]
    made = shipped.convert("graded", NormGate())
    out = runnable(made)
    with torch.no_grad():
        wanted = shipped.source(tokens)
        assert relative_rms(out(tokens), wanted) <= FLOAT64_LIMIT
        out.load_state_dict(faulty(made, which))
        assert relative_rms(out(tokens), wanted) > 1000 * FLOAT64_LIMIT
