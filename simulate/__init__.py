"""Networks that run: residual rules, the byte language model, its trainer, checkpoints and their conversion.

Import what you need from its module (:mod:`.config`, :mod:`.network`, :mod:`.model`, :mod:`.checkpoint`, ...).
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError("simulate needs torch: pip install 'streamgauge[torch]'", name="torch")
