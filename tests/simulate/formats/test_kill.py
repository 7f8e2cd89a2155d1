"""Killed at any moment, a conversion leaves the source as it was and no destination that looks finished."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from foreign_folders import DEEPSEEK, deepseek_arrays, deepseek_folder

LOOP = Path(__file__).parents[2] / "support" / "kill_loop.py"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize(("mode", "kills"), [((), 20), (("full",), 10)])
def test_random_kills(mode: tuple[str, ...], kills: int, tmp_path: Path) -> None:
    config = {**DEEPSEEK, "hidden_size": 192, "num_hidden_layers": 12}
    source = deepseek_folder(tmp_path / "source", deepseek_arrays(config=config), config=config, shards=True)
    command = [sys.executable, str(LOOP), str(source), str(tmp_path / "place"), str(kills), *mode]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["wrong"] == []
    assert found["seen"]["absent"] >= 1  # some kills did come before the end
    assert found["seen"]["left"] >= 1  # and some in the middle of writing


def test_a_running_conversion_is_not_swept_away(tmp_path: Path) -> None:
    """A second run removes what a dead one left, and leaves alone what a live one holds."""
    from streamgauge.simulate.formats.staging import staged

    abandoned = tmp_path / ".out.partial.dead"
    abandoned.mkdir()
    with staged(tmp_path / "out") as live:
        assert not abandoned.exists()
        (live / "file").write_text("first")
        with staged(tmp_path / "out") as other:
            assert live.is_dir()
            assert other != live
            (other / "file").write_text("second")
    assert (tmp_path / "out" / "file").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(RuntimeError, match="on the way"), staged(tmp_path / "new"):
        raise RuntimeError("on the way")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
