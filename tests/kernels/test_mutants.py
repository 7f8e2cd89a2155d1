"""The mutants of ``make mutants`` still fit the kernels; a few die here, and what is no fault survives."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

FOLDER = Path(__file__).parents[1] / "mutants"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def test_every_mutant_still_changes_one_line() -> None:
    import run
    from kernel_mutants import MUTANTS, PRELUDE
    from run import ROOT, mutated

    assert sys.modules["run"] is run
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    assert set(PRELUDE) <= {mutant.file for mutant in MUTANTS}
    for mutant in MUTANTS:
        source = (ROOT / "kernels" / mutant.file).read_text()
        compile(mutated(mutant, source), mutant.file, "exec")
        assert mutated(mutant, source) != source


def test_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from kernel_mutants import MUTANTS, Mutant
    from run import verdict

    named = {mutant.name: mutant for mutant in MUTANTS}
    assert verdict(tmp_path / "a", named["unmixed residual returned"])
    harmless = Mutant("harmless", "triton_read.py", "mixed = tl.sum(", "mixed = 1.0 * tl.sum(", ("read",))
    assert not verdict(tmp_path / "b", harmless)
    broken = Mutant("no program", "triton_read.py", "mixed = tl.sum(", "mixed = tl.some(", ("read",))
    assert not verdict(tmp_path / "c", broken)
    said = capsys.readouterr().out
    assert "SURVIVED: harmless: no check noticed" in said
    assert "badly made: no program" in said
