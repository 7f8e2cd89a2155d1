"""These tests need triton's interpreter, a property of the process: ``tests/kernels/test_interpreted.py`` starts one.

By hand: ``TRITON_INTERPRET=1 pytest tests/kernels/interpreted``.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
