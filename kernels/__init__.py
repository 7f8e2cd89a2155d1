"""Kernels of the stream operations and their torch reference twins; knows nothing of theorems.

:mod:`streamgauge.kernels.reference` is the meaning of every operation; :mod:`streamgauge.kernels.dispatch` has them
by backend (``read``, ``write``, ``sinkhorn``, ``coefficients``, ``activated``) and :mod:`streamgauge.kernels.site`
the whole site.  Triton is imported at the first use of a kernel.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError("kernels needs torch: pip install 'streamgauge[torch]'", name="torch")
