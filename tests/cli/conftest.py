"""The command line in this process, and one small converted checkpoint shared by the tests of a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli, Ran

from streamgauge.cli import main


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*argv: object) -> Ran:
        code = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random mHC network (not trained), saved."""
    import small_networks

    from streamgauge.simulate.checkpoint import save_model

    return save_model(tmp_path_factory.mktemp("small") / "source", small_networks.network())


@pytest.fixture(scope="session")
def converted(checkpoint: Path) -> Path:
    """The same network converted (graded, norm gate), with its certificate."""
    import streamgauge

    destination = checkpoint.parent / "converted"
    streamgauge.convert(checkpoint, destination, norm=True)
    return destination
