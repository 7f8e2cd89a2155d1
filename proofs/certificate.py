"""Certificates: JSON files that ``proofs/checker.py`` (standard library alone) can check on its own.

:func:`certificate` speaks of a normal form, :func:`rank_certificate` of the rank of one matrix, and
:func:`streamgauge.proofs.model.model_certificate` of a converted checkpoint.  What is stated, and how it is written:
the docstring of the checker.  Whatever is made here has passed the checker; what cannot pass is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import flint
import numpy as np

from streamgauge.proofs import checker, statements
from streamgauge.proofs.statements import Json, Level, table
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormalForm

_PATIENCE = 1000


@dataclass(frozen=True)
class Certificate:
    """A certificate that the checker accepts.

    ``data``: its JSON object; ``text``: the file's content; ``digest``: SHA-256 of the canonical JSON of the rest.
    """

    data: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """ "identity", "binary", "graded", "norm" or "rank"."""
        return str(self.data["kind"])

    @property
    def digest(self) -> str:
        """SHA-256 of the contents without the digest: sorted keys, no spaces, ASCII."""
        return str(self.data["digest"])

    @cached_property
    def text(self) -> str:
        """The JSON, one line per top-level field."""
        lines = (f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in self.data.items())
        return "{" + ",\n ".join(lines) + "}\n"

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the file beside its destination and rename it into place; returns the path.

        **Raises** :class:`InputError` for a destination that exists (unless ``force``), or whose parent is no
        directory.
        """
        target = Path(path)
        if target.is_dir():
            raise InputError(f"{target}: is a directory, expected a file name")
        if os.path.lexists(target) and not force:
            raise InputError(f"{target}: exists already; expected a new path, or force to replace it")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        except OSError as error:
            raise InputError(f"{target}: cannot be created ({error.strerror}); expected a writable parent") from None
        try:
            with os.fdopen(handle, "w", encoding="ascii") as stream:
                stream.write(self.text)
            os.chmod(beside, 0o644)
            os.replace(beside, target)
        finally:
            Path(beside).unlink(missing_ok=True)  # gone already, unless something went wrong
        return target


def sealed(
    kind: str,
    numbers: str,
    body: Mapping[str, Json],
    *,
    file: str | Path | None = None,
    source: str | Path | None = None,
    weights: bool = True,
) -> Certificate:
    """``body`` with head and digest, shown to the checker together with the checkpoints it speaks of, if any.

    ``weights=False``: without the weights of a sidecar's source, whose bounds hold by their derivation.

    **Raises** :class:`InputError` where the checker refuses.
    """
    data = {"format_version": checker.FORMAT_VERSION, "kind": kind, "numbers": numbers, **body}
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":")).encode("ascii")
    made = Certificate({**data, "digest": hashlib.sha256(canonical).hexdigest()})
    result = checker.check_text(made.text, file=file, source=source, work=_PATIENCE, weights=weights)
    if not result.accepted:
        raise InputError(f"certificate: cannot be given, {result.reason.removeprefix('consistent, but ')}")
    return made


def certificate(form: NormalForm) -> Certificate:
    """The certificate of a normal form: exact for an exact form, with bounds computed over Q for a float64 one.

    Float64: the stored gauge, gates, reads, writes, entry and readout run *exactly* a chain whose mixers are within
    1e-12 ||A_l|| of the given ones.  Cost O(L n^3) rational operations.

    **Raises** :class:`InputError`: a site whose backward error is above 1e-12 ||A_l||, a gauge not shown to be
    invertible, rationals of more than 4300 digits, a form that is not true.
    """
    kind = "norm" if form.norm is not None else form.form
    body: dict[str, Json] = {"slots": statements.slots_json(form.slots)}
    if form.norm is not None:
        rule, text = form.norm.gate, statements.rational_text if form.chain.exact else _float_text
        body = {
            "base": form.form,
            "norm": {"eps": text(rule.eps), "cap": None if rule.cap is None else text(rule.cap)},
            **body,
        }
    parts = _exact_parts(form) if form.chain.exact else _float_parts(form)
    return sealed(kind, "rational" if form.chain.exact else "float", {**body, **parts})


def _float_text(value: Any) -> str:
    return statements.float_text(float(value))


def _exact_parts(form: NormalForm) -> dict[str, Json]:
    norm = form.norm
    levels: list[dict[str, Json]] = [
        {"gauge": table(p), "inverse": table(statements.inverse(p, l))} for l, p in enumerate(form.gauge)
    ]
    sites: list[dict[str, Json]] = [
        {"mixer": table(a), "gates": [statements.rational_text(g) for g in gates]}
        for a, gates in zip(form.chain.mixers, form.gates)
    ]
    if norm is not None:
        if norm.factors_squared is None or norm.scales_squared is None:
            raise InputError("certificate: the norm gate has no exact squares, expected them on an exact form")
        for site, square in zip(sites, norm.factors_squared):
            site["factor_squared"] = statements.rational_text(square)
        for level, square in zip(levels, norm.scales_squared):
            level["scale_squared"] = statements.rational_text(square)
    return {**_with_ends(form, sites, lambda name, l, p, s: statements.exact_pair(p, s)), "levels": levels}


def _float_parts(form: NormalForm) -> dict[str, Json]:
    norm = form.norm
    base = form if norm is None else replace(form, gates=norm.base_gates)
    levels = [Level(l, p, statements.inverse(p, l)) for l, p in enumerate(form.gauge)]
    sites = []
    for l, mixer in enumerate(form.chain.mixers):
        gates = np.asarray(base.gates[l], dtype=np.float64)
        rule = None if norm is None else (norm.gate, float(norm.factors[l]))
        sites.append(statements.float_site(mixer, gates, base.diagonal(l), levels[l], levels[l + 1], rule))
    ends = _with_ends(form, sites, lambda name, l, p, s: statements.float_pair(name, p, s, levels[l]))
    return {**ends, "levels": [level.json for level in levels]}


def _with_ends(form: NormalForm, sites: list[dict[str, Json]], pair: Any) -> dict[str, Json]:
    """The sites with their reads and writes, and entry and readout, where the chain has them."""
    chain: Chain = form.chain
    out: dict[str, Json] = {"sites": sites}
    for l, site in enumerate(sites):
        if chain.reads is not None and form.reads is not None:
            site["read"] = pair("read", l, chain.reads[l], form.reads[l])
        if chain.writes is not None and form.writes is not None:
            site["write"] = pair("write", l + 1, chain.writes[l], form.writes[l])
    if chain.entry is not None:
        out["entry"] = pair("entry", 0, chain.entry, form.entry)
    if chain.readout is not None:
        out["readout"] = pair("readout", len(form), chain.readout, form.readout)
    return out


def rank_certificate(matrix: Any) -> Certificate:
    """The rank of one rational matrix (anything :class:`Chain` takes; floats are their dyadic rationals).

    rank >= k by an invertible k by k minor, shown with its inverse; rank <= k by ``A = U V`` with inner dimension k,
    U the pivot columns and V the non-zero rows of the reduced echelon form.  Cost: two row reductions.
    """
    given = Chain([matrix]).rational().mixers[0]
    reduced, k = given.rref()
    cols = exact.pivot_columns(reduced, k)
    left = exact.columns(given, cols)
    turned, _ = left.transpose().rref()
    rows = exact.pivot_columns(turned, k)
    minor = flint.fmpq_mat(k, k, [left[i, j] for i in rows for j in range(k)])
    right = flint.fmpq_mat(k, given.ncols(), [reduced[i, j] for i in range(k) for j in range(given.ncols())])
    body = {
        "shape": [given.nrows(), given.ncols()],
        "rank": k,
        "rows": rows,
        "cols": cols,
        "matrix": table(given),
        "inverse": table(minor.inv()) if k else [],
        "left": table(left),
        "right": table(right),
    }
    return sealed("rank", "rational", body)
