"""``check``: the independent checker as a :class:`Verdict`, and the one step it leaves out, Sinkhorn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from streamgauge.proofs import checker
from streamgauge.theory.errors import InputError
from streamgauge.theory.verdict import Verdict

MIXER_TOLERANCE = 1e-13
"""Largest difference between a certificate's mixer and the source's logits run through their recipe again."""


def check(
    path: str | Path, *, file: str | Path | None = None, source: str | Path | None = None, work: int = 1
) -> Verdict:
    """Whether the certificate at ``path`` is accepted and, with ``file``, speaks of that converted checkpoint.

    Of another program's source also whether its format is what the certificate says of it (the checker on its own
    takes as given where things stand).

    ``source`` (needs ``file``) adds the source checkpoint: its mixers, ends and controllers.  Logits and mean gates
    are evaluated here, in float64 (the checker on its own takes the mixers' numbers as given).  ``work`` raises the
    checker's limit of arithmetic.  The witness holds the largest distances by name.
    """
    result = checker.check_path(path, file=file, source=source, work=work)
    if result.accepted and source is not None:
        fault = _source_fault(path, file, source)
        if fault:
            return Verdict(False, f"consistent, but file or source do not match: {fault}", result.facts)
    return Verdict(result.accepted, result.reason, result.facts)


def _source_fault(path: str | Path, file: str | Path | None, source: str | Path) -> str:
    certificate = json.loads(Path(path).read_bytes())
    if "sidecar" not in certificate:
        return _mixer_fault(certificate["sites"], source)
    from streamgauge.proofs.sidecar import places_fault

    return places_fault(certificate, Path(file or ""), Path(source))  # its checker evaluates the logits itself


def _mixer_fault(sites: list[dict[str, Any]], source: str | Path) -> str:
    from streamgauge.proofs.model import Folder, source_mixers

    try:
        mixers = source_mixers(Folder(source))
    except InputError as error:
        return str(error)
    except (KeyError, TypeError, ValueError) as error:  # a config that no checkpoint has
        return f"config.json: malformed ({type(error).__name__})"
    for l, (site, mixer) in enumerate(zip(sites, mixers)):
        stated = np.array([[float.fromhex(x) for x in row] for row in site["mixer"]])
        if mixer.shape != stated.shape:
            return f"sites[{l}].mixer: has shape {stated.shape}, the source's {mixer.shape}"
        away = float(np.abs(stated - mixer).max(initial=0.0))
        if not away <= MIXER_TOLERANCE:
            return f"sites[{l}].mixer: differs from the source's by {away:.3g}, expected at most {MIXER_TOLERANCE:g}"
    return ""
