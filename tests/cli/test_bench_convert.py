"""``streamgauge bench convert`` on a small synthetic checkpoint: the figures, and what the commands made."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli

from streamgauge.simulate.formats.benchmark import scale_figures, synthetic_checkpoint
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError


def test_table_and_figures(cli: Cli, tmp_path: Path) -> None:
    ran = cli("bench", "convert", "--layers", 2, "--width", 512, "--tensors", 60, "--folder", tmp_path, "--json")
    assert ran.code == 0, ran.err
    assert [row["what"] for row in ran.document["figures"]] == [
        "inspect",
        "convert --mixers bias",
        "convert --mixers bias --full",
        "plain read and write",
    ]
    for row in ran.document["figures"]:
        assert 0.9 < row["requested"] < 1.1  # inspect leaves the head alone
        assert row["peak_mib"] > 10
    assert list(tmp_path.iterdir()) == []


def test_the_synthetic_checkpoint_has_the_real_shapes(tmp_path: Path) -> None:
    """V4-Pro: 122 mixers of 24 x 28672, 369 hyper-connection tensors, 336 MB (here two layers of them)."""
    mixers = synthetic_checkpoint(tmp_path / "source", layers=2, tensors=40)
    shards = Shards(tmp_path / "source")
    assert shards.shape("layers.1.hc_ffn_fn") == (24, 28672)
    assert (mixers - 4 * (4 * 28672 + 5)) / 4 * 122 == pytest.approx(335.8e6, rel=1e-3)
    assert len(shards.files) == 2
    assert {entry.dtype for entry in shards.entries.values()} == {"F32", "F4", "F8_E8M0", "F8_E4M3", "BF16"}


def test_a_command_that_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    with pytest.raises(InputError, match=r"bench: inspect ended with 2: .*config.json: not found"):
        scale_figures(tmp_path / "source", tmp_path, 1)
