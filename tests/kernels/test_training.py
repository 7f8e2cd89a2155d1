"""200 steps of training give the same losses on the reference and on the kernels (interpreted, so on any machine)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SCRIPT = Path(__file__).parents[1] / "support" / "training_pair.py"


def test_the_losses_agree() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    out = subprocess.check_output([sys.executable, SCRIPT, "mhc"], env=environment, text=True)
    found = json.loads(out)
    reference, kernels = found["reference"], found["triton"]
    assert len(reference) == len(kernels) == 200
    assert max(abs(a - b) for a, b in zip(reference, kernels)) <= 1e-4
    assert reference != kernels  # two computations, not one
    assert kernels[-1] < 0.5 * kernels[0]
