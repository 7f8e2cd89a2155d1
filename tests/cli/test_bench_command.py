"""``streamgauge bench theory``: small rows measured for real; the table and the JSON say the same."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import Cli

from streamgauge.theory import benchmark, graded_benchmark


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = graded_benchmark.graded_figures
    monkeypatch.setattr(benchmark, "exact_speed", lambda **_: [benchmark.speed(3, 6, repeats=1)])
    monkeypatch.setattr(graded_benchmark, "graded_figures", lambda **_: figures(n=3, sites=8, chains=4, timed=1))


@pytest.mark.usefixtures("small")
def test_table_and_json(cli: Cli) -> None:
    shown = cli("bench", "theory")
    assert (shown.code, shown.err) == (0, "")
    for words in ("exact forms, milliseconds", "ratio", "graded form of Sinkhorn chains", "gate excess", "deaths"):
        assert words in shown.out
    document: Any = cli("bench", "theory", "--json").document
    ((row,), (sinkhorn,), deaths) = document.values()
    assert row["ratio"] == pytest.approx(row["basis"] / row["bare"])
    assert row["auslander"] is None
    assert sinkhorn["residual"] < 1e-13
    assert all(kind["found"] == kind["deaths"] for kind in deaths)
