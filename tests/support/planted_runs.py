"""Runs planted_kernels.py in the mode of triton it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def planted(what: str, interpret: bool) -> Any:
    script = Path(__file__).with_name("planted_kernels.py")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {"TRITON_INTERPRET": "1"} if interpret else {}
    out = subprocess.check_output([sys.executable, script, what], env=environment, text=True)
    return json.loads(out)
