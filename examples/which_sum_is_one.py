"""Programs called "Sinkhorn" differ in which sums of the mixer A are exactly one, and in its orientation.

python examples/which_sum_is_one.py
"""

from __future__ import annotations

import numpy as np

import streamgauge as sg

logits = np.array([[4.0, 0, 0, 0], [3.0, 4, 0, 0], [0, 3.0, 4, 0], [0, 0, 3.0, 4]])
exact_side = {}
print(f"{'recipe':14s} rows of A off by   columns of A off by")
for name in ("paper", "deepseek-v4", "megatron", "lucidrains"):
    result = sg.sinkhorn(logits, name)
    rows, columns = float(result.row_error), float(result.column_error)
    exact_side[name] = "rows" if rows < columns else "columns"
    print(f"{name:14s} {rows:16.1e} {columns:21.1e}")

wanted = {"paper": "rows", "deepseek-v4": "rows", "megatron": "columns", "lucidrains": "columns"}
if exact_side != wanted:
    raise SystemExit(f"expected {wanted}, found {exact_side}")
