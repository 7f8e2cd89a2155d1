"""Which way round a mixer acts, measured: copied streams stay copies under A exactly where its rows sum to one.

A Sinkhorn recipe makes one marginal tight and leaves the other as loose as the logits are spread.  Released models
with the same tensors apply S or S^T, and the wrong one runs, with slightly wrong outputs.  So the marginal that a
format says is tight is compared with the other one, on the mixers themselves.

Sources: the format notes of the public reports NVIDIA-NeMo/Automodel issue 2154 and Megatron-LM issue 4957.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import marginal_errors
from streamgauge.theory.verdict import Verdict

PRESERVED = 1e-5
"""Largest |sum - 1| of a marginal that counts as tight."""


def orientation(mixers: Sequence[Floats], tight: str | None, within: float = PRESERVED) -> Verdict:
    """Whether the mixers have the tight marginal that their format says, and not the other one.

    ``tight``: "rows" (A 1 = 1: copied streams are preserved), "columns", "both", or None (nothing is claimed).
    ``within``: largest |sum - 1| that counts as tight.
    The witness holds both errors; where both marginals are tight the probe cannot decide, and says so.
    """
    rows, columns = (float(np.max(errors)) for errors in marginal_errors(np.asarray(mixers)))
    witness = {"rows": rows, "columns": columns}
    measured = f"A moves copied streams by {rows:.2g}, A^T by {columns:.2g}"
    if tight is None:
        return Verdict(True, f"{measured}; the format claims neither", witness)
    if max(rows, columns) <= within:
        return Verdict(True, f"{measured}: orientation does not show in these mixers", witness)
    error, other = (columns, rows) if tight == "columns" else (rows, columns)
    if tight == "both":
        return Verdict(False, f"{measured}, expected both at most {within:g}", witness)
    if error <= within:
        return Verdict(True, f"{measured}: {tight} tight, as the format says", witness)
    if other <= within:
        return Verdict(
            False, f"{measured}, expected the {tight} tight: the opposite orientation fits better", witness
        )
    return Verdict(False, f"{measured}, expected {tight} within {within:g}: neither orientation fits", witness)
