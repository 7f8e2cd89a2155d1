"""Every snippet of the README and every script in examples/ runs, and ends in its own check."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SCRIPTS = [
    "audit_a_chain",
    "convert_trained",
    "counterexample",
    "draw_pictures",
    "exact_normal_forms",
    "property_test_a_theorem",
    "which_sum_is_one",
]


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env=clean, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"snippet {i}" for i in range(len(SNIPPETS))])
def test_snippet(snippet: str, tmp_path: Path) -> None:
    assert "assert " in snippet, "a snippet ends in its own check"
    done = run("-c", snippet, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / f"{name}.py"
    assert "raise SystemExit" in script.read_text(encoding="utf-8"), "a script ends in its own check"
    done = run(script, *([tmp_path] if name == "draw_pictures" else []), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_script_is_listed() -> None:
    """Training takes minutes, and so does fitting; both have their own tests.  The rest is run above."""
    found = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert found == {*SCRIPTS, "__init__", "train_checkpoints", "train_deepseek", "deepseek_mixers"}


def test_readme_is_short_and_its_links_exist() -> None:
    assert len(README.splitlines()) <= 110
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert targets, "a picture at least"
    for target in targets:
        assert (ROOT / target).is_file(), target
        assert (ROOT / target).stat().st_size < 200_000


@pytest.mark.parametrize("command", re.findall(r"^    streamgauge ([\w-]+)", README, re.MULTILINE))
def test_readme_commands_exist(command: str) -> None:
    from streamgauge.cli import main

    assert main([command, "--help"]) == 0
