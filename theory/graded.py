"""The graded form of a chain: gated iHC with real gates, ``A_l P_l = P_{l+1} D_l``.

Exact chains get an exact form (``graded_exact``), float64 chains the covariant gauge with deaths (``graded_batch``):
its condition number stays between 1 and some hundreds where the identity gauge needs 1e66, its gates lie in [0, 1]
for doubly stochastic chains, and every zero gate is a lost rank.

``graded_batch`` decides ranks, splits off the anchor (``graded_anchor``) and sends chains of full rank, all at once,
through ``frames``; a chain with deaths goes to ``graded_deaths``, which judges candidates of the sweep
``graded_slots`` after Newton steps (``graded_polish``) and, where float64 is not enough, sweeps in more bits
(``graded_precise``).
"""

from __future__ import annotations

import numpy as np

from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm
from streamgauge.theory.graded_batch import graded_batch
from streamgauge.theory.graded_exact import graded_exact


def graded_form(chain: Chain, *, tolerance: float | None = None) -> NormalForm:
    """``A_l P_l = P_{l+1} D_l``, D_l diagonal and not negative, zero gates = n - rank A_l at every site.

    Column 0 is the anchor where the chain has one (``graded_anchor``): its entry's image, with gate 1.
    ``tolerance``: singular values at most this times the largest of their site count as zero (default n 2^-44);
    exact chains take none.  Residual of a float form: round-off, plus what the tolerance dropped (see ``ranks``).

    **Raises** :class:`InputError` for rectangular chains (use the binary form), a tolerance outside [0, 1), and gates
    outside the range of float64.  Cost O(L n^3): about 7 ms for 120 sites of 4 streams, 20 ms with deaths.
    """
    if not chain.square:
        l = next(l for l, a in enumerate(chain.dims[1:]) if a != chain.dims[0])
        raise InputError(
            f"mixer {l}: found {chain.dims[l]} streams in and {chain.dims[l + 1]} out, expected a square chain; "
            "the binary form takes rectangular ones"
        )
    if chain.exact:
        if tolerance is not None:
            raise InputError(f"tolerance: found {tolerance} on an exact chain, expected none (ranks are over Q)")
        return graded_exact(chain)
    n, sites = chain.dims[0], len(chain)
    mixers = np.array(chain.mixers, dtype=np.float64).reshape(1, sites, n, n)
    entry = chain.entry if chain.entry is not None and chain.entry.shape[1] == 1 and chain.entry.any() else None
    readout = (
        chain.readout if chain.readout is not None and chain.readout.shape[0] == 1 and chain.readout.any() else None
    )
    batch = graded_batch(
        mixers,
        entry=None if entry is None else entry[:, 0],
        readout=None if readout is None else readout[0],
        tolerance=tolerance,
    )
    return batch.form(0, chain)
