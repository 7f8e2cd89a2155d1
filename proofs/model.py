"""The certificate of a converted checkpoint: what the *stored* network is, exactly.

With P_l, P_{l+1}^{-1}, T_l, gates, entry and readout as the converted file has them (rounded), the stored network
equals exactly the mHC with (A~, p^, r^, e^, c^), each within a stated distance of the source.  The mixers A_l are the
source's float64 numbers: a stored matrix as it is, logits through their Sinkhorn recipe, a mean gate as
``J + g (I - J)``.  No torch here: files are read by name with safetensors.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from streamgauge.proofs import statements
from streamgauge.proofs.certificate import Certificate, sealed
from streamgauge.proofs.statements import Json, Level
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate
from streamgauge.theory.gates import mean_preserving_gate
from streamgauge.theory.sinkhorn import sinkhorn

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: damaged or truncated ({str(error).splitlines()[0]})") from None


class Folder:
    """A checkpoint directory, opened to read single tensors as float64."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        for name in (WEIGHTS, CONFIG):
            if not (self.path / name).is_file():
                raise InputError(f"{self.path / name}: not found, expected a checkpoint ({WEIGHTS} and {CONFIG})")
        try:
            self.document = json.loads((self.path / CONFIG).read_bytes())
            self.model: dict[str, Any] = dict(self.document["model"])
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise InputError(f"{self.path / CONFIG}: no model description ({type(error).__name__})") from None
        self.tensors = _opened(self.path / WEIGHTS)
        self.names: frozenset[str] = frozenset(self.tensors.keys())

    def floats(self, name: str) -> Floats:
        """The tensor in float64 (exact: it is stored in float64 or float32)."""
        if name not in self.names:
            raise InputError(f"{self.path / WEIGHTS}: tensor {name} is missing")
        try:
            return np.asarray(self.tensors.get_tensor(name), dtype=np.float64)
        except (AttributeError, TypeError, ValueError, SafetensorError):  # a dtype that numpy does not have
            raise InputError(f"{self.path / WEIGHTS}: tensor {name} is not in float32 or float64") from None

    def hashes(self) -> dict[str, str]:
        """SHA-256 of both files."""
        return {name: hashlib.sha256((self.path / name).read_bytes()).hexdigest() for name in (WEIGHTS, CONFIG)}


def source_mixers(source: Folder) -> list[Floats]:
    """A_0 .. A_{L-1} of a source checkpoint, in float64."""
    model, out = source.model, []
    for l in range(len(model["sites"])):
        site = f"sites.{l}"
        if model["residual"] == "mean-gated":
            gate = source.floats(f"{site}.gates")
            if gate.ndim:
                raise InputError(f"{source.path / WEIGHTS}: tensor {site}.gates has shape {gate.shape}, expected ()")
            out.append(mean_preserving_gate(int(model["streams"]), float(gate)))
        elif f"{site}.mixer.matrix" in source.names:
            out.append(source.floats(f"{site}.mixer.matrix"))
        else:
            out.append(sinkhorn(source.floats(f"{site}.mixer.logits"), str(model["recipe"])).mixer)
    return out


def model_certificate(converted: str | Path, source: str | Path) -> Certificate:
    """The certificate of the converted checkpoint ``converted`` of the checkpoint ``source`` (directories).

    Speaks of the stored gauges, write maps, metrics, gates, entry, readout and controllers; holds the hashes of both
    checkpoints.  Numbers of the controllers are not copied, only their bounds.  Cost O(L n^3 + m n^2 d) rational
    operations.

    **Raises** :class:`InputError` for directories that are no such pair, and as
    :func:`~streamgauge.proofs.certificate.certificate` does where nothing true within the limits can be said.
    """
    new, old = Folder(converted), Folder(source)
    mixers = source_mixers(old)
    conversion = new.document.get("conversion")
    form = conversion.get("form") if isinstance(conversion, dict) else None
    if not new.model.get("gauge") or form not in ("identity", "binary", "graded"):
        raise InputError(f"{new.path / CONFIG}: not a converted checkpoint, expected gauge true and conversion.form")
    if not mixers or len(mixers) != len(new.model["sites"]):
        raise InputError(
            f"{new.path}: {len(new.model['sites'])} sites, expected {len(mixers)} as in the source, not 0"
        )
    levels = _levels(new, len(mixers))
    gate = new.model.get("norm_gate") if new.model.get("residual") == "norm-gated" else None
    rule = statements.norm_rule(gate)
    body: dict[str, Json] = {} if rule is None else {"base": form, "norm": statements.rule_json(rule)}
    n = len(mixers[0])
    body["slots"] = [list(range(n)) for _ in levels]
    body["sites"] = [_site(new, l, mixer, levels, rule) for l, mixer in enumerate(mixers)]
    body["levels"] = [level.json for level in levels]
    body |= _ends(new, old, levels, n)
    body["model"] = {
        "source": old.hashes(),
        "converted": new.hashes(),
        "controllers": {
            name: statements.controller_bound(old.floats(name), new.floats(name), levels[l])
            for l in range(len(levels))
            for name in (f"sites.{l}.coef.weight" if l < len(mixers) else "head.weight",)
            if name in new.names and name in old.names
        },
    }
    return sealed(form if rule is None else "norm", "float", body, file=converted, source=source)


def _levels(new: Folder, sites: int) -> list[Level]:
    """P_l as stored, Q_l the stored write map of the site before (level 0: the rounded inverse)."""
    out = []
    for l in range(sites + 1):
        at = f"sites.{l}.gauge" if l < sites else "head.gauge"
        # a constant readout has P_L in it and does not store it: any P_L near the inverse of the write map will do
        stored = new.floats(f"{at}.read") if l < sites or f"{at}.read" in new.names else None
        write = new.floats(f"sites.{l - 1}.gauge.write") if l else statements.inverse(stored, l)
        metric = new.floats(f"{at}.metric") if f"{at}.metric" in new.names else None
        out.append(Level(l, statements.inverse(write, l) if stored is None else stored, write, metric))
    return out


def _site(new: Folder, l: int, mixer: Floats, levels: list[Level], rule: NormGate | None) -> dict[str, Json]:
    name = f"sites.{l}.gates"
    gates = new.floats(name) if name in new.names else np.ones(len(mixer))
    return statements.stored_site(mixer, gates, levels[l], levels[l + 1], rule)


def _ends(new: Folder, old: Folder, levels: list[Level], n: int) -> dict[str, Json]:
    """Entry and, where it is a constant row, readout, against the source's."""
    constant = {"copy": 1.0, "sum": 1.0, "mean": 1.0 / n}
    out: dict[str, Json] = {}
    for name, tensor, level, shape in (
        ("entry", "entry", levels[0], (-1, 1)),
        ("readout", "head.linear", levels[-1], (1, -1)),
    ):
        if tensor not in new.names:
            continue
        given = old.floats(tensor) if tensor in old.names else np.full(n, constant[str(old.model[name])])
        stored = new.floats(tensor).reshape(shape)
        out[name] = statements.float_pair(name, given.reshape(shape), stored, level)
    return out
