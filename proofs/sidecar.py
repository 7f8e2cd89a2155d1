"""The certificate of a sidecar: what the *stored* gated network of another program's checkpoint is, exactly.

With P_l, P_{l+1}^{-1}, T_l, gates, entry and readout as the sidecar has them (rounded), the stored network equals
exactly the mHC with (A~, e^, c^, W^, T^), each within a stated distance of the source's, its mixers A_l taken as
the sidecar's record says.  What binds it to the files: the docstring of ``proofs/checker_sidecar.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from streamgauge.proofs import checker, statements
from streamgauge.proofs.certificate import Certificate, sealed
from streamgauge.proofs.statements import Json, Level
from streamgauge.simulate.checkpoint import file_sha256
from streamgauge.simulate.formats.controllers import Written
from streamgauge.simulate.formats.detect import Recognised, read_record
from streamgauge.simulate.formats.record import Affine, Mixing, ModelRecord, Norm, View
from streamgauge.simulate.formats.settings import Settings
from streamgauge.simulate.formats.shards import CONFIG, Shards
from streamgauge.simulate.formats.sidecar_tensors import model_document
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.form import NormGate

CERTIFIED = ("exact", "bias", "mean", "identity")
"""Kinds of mixers whose sidecar is a gated network with constant gates, and so equals an mHC."""


def why_uncertified(mixers: str, *, refined: bool = False) -> str | None:
    """Why a conversion of this kind has no certificate; None where it has one."""
    if refined:
        return "no certificate: the tensors were fitted to the source's outputs and equal no mHC's exactly"
    if mixers not in CERTIFIED:
        return f"no certificate: with {mixers} the gates depend on the state, and what does not commute was dropped"
    return None


def certify(written: Written, *, name: str = "certificate.json") -> None:
    """Write the certificate of a conversion beside its file: the finishing step of ``convert_folder``.

    **Raises** :class:`InputError` where a whole checkpoint has a file of that name already.
    """
    if (written.path.parent / name).exists():
        raise InputError(f"{written.shards.folder / name}: has the name of a converted file, expected another one")
    sidecar_certificate(written).save(written.path.parent / name)


def sidecar_certificate(written: Written) -> Certificate:
    """The certificate of what ``convert_folder`` has written.

    Reads the small tensors of the file again, and of the source its biases; a hundred sites of 4 streams take about a
    second, beside the hash of the file.

    **Raises** :class:`InputError` where nothing true within the checker's limits can be said, and for mixers that
    make no such statement (:func:`why_uncertified`).
    """
    stored = _Stored(written.path, written.prefix)
    reason = why_uncertified(str(stored.record["mixers"]))
    if reason is not None:
        raise InputError(reason)
    form, rule = str(stored.record["form"]), statements.norm_rule(stored.record["norm_gate"])
    sites, n = len(written.record.mixers), written.record.n
    levels = _levels(stored, sites)
    body: dict[str, Json] = {} if rule is None else {"base": form, "norm": statements.rule_json(rule)}
    body["slots"] = [list(range(n)) for _ in levels]
    body["sites"] = [_site(stored, l, levels, rule) for l in range(sites)]
    body["levels"] = [level.json for level in levels]
    entry = stored.floats("entry").reshape(-1, 1)
    body["entry"] = statements.float_pair("entry", np.ones((n, 1)), entry, levels[0])
    if "head.linear" in stored.names:
        row = np.full((1, n), 1.0 if written.record.head.kind == "sum" else 1.0 / n)
        body["readout"] = statements.float_pair(
            "readout", row, stored.floats("head.linear").reshape(1, -1), levels[-1]
        )
    _refuse_far(written, levels)
    body["sidecar"] = _sidecar(written, stored)
    folder, source = written.path.parent, written.shards.folder
    return sealed(form if rule is None else "norm", "float", body, file=folder, source=source, weights=False)


def places_fault(certificate: Mapping[str, Any], file: Path, source: Path) -> str:
    """How a certificate's places differ from what the source's own format says; "" where they do not.

    The checker takes it as given which tensor, row and recipe is meant.  Here the format is read anew, with what was
    set by hand as the sidecar's record has it; a source described by a map stays as it was described, unless the map
    bears the name of a format that reads the source too: that says what its model is.
    """
    part = certificate["sidecar"]
    try:
        stored = _Stored(file / part["file"], "")
        name, spelling, settings = (stored.record["source"][key] for key in ("format", "spelling", "settings"))
        shards = Shards(source)
        if spelling == "map":
            return _named_fault(str(name), shards, stored, part["file"])
        made = read_record(shards, name=name, given=_by_hand(shards, settings))
    except InputError as error:
        return str(error)
    except (KeyError, TypeError, ValueError) as error:
        return f"{part['file']} record: malformed ({type(error).__name__})"
    if isinstance(made, Recognised):
        return f"source: is {made.title}, which has nothing to convert"
    recipes: list[Json] = []
    sites = [_place(mixer.norm) | _reads(mixer, recipes) for mixer in made.mixers]
    for place, found, wanted in (
        ("sidecar.sites", part["sites"], sites),
        ("sidecar.head", part["head"], _head(made)),
        ("sidecar.recipes", part["recipes"], recipes),
    ):
        if found != wanted:
            return f"{place}: is not what {made.format} says"
    return _model_fault(made, stored, part["file"])


def _model_fault(made: ModelRecord, stored: _Stored, file: str) -> str:
    same = stored.record.get("model") == json.loads(json.dumps(model_document(made)))
    return "" if same else f"{file} record model: is not what {made.format} says"


def _named_fault(name: str, shards: Shards, stored: _Stored, file: str) -> str:
    try:
        made = read_record(shards, name=name)
    except InputError:  # a name or a source of its own
        return ""
    return "" if isinstance(made, Recognised) else _model_fault(made, stored, file)


def _by_hand(shards: Shards, settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings that the config does not give by itself."""
    out = {}
    for name, value in settings.items():
        try:
            found = Settings(shards.config).raw(name)
        except InputError:  # two values, settled by hand
            found = None
        if found != value:
            out[name] = str(value)
    return out


def _opened(path: Path) -> Any:  # untyped calls are safetensors' own
    return safe_open(path, framework="numpy")


class _Stored:
    """The written file: its record, and its small tensors in float64."""

    def __init__(self, path: Path, prefix: str) -> None:
        self.prefix = prefix
        try:
            self.tensors = _opened(path)
            self.record: dict[str, Any] = json.loads(self.tensors.metadata()["record"])
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path}: no readable sidecar ({type(error).__name__})") from None
        self.names = frozenset(name.removeprefix(self.prefix) for name in self.tensors.keys())  # noqa: SIM118

    def floats(self, name: str) -> Floats:
        """One tensor."""
        return np.asarray(self.tensors.get_tensor(self.prefix + name), dtype=np.float64)


def _refuse_far(written: Written, levels: list[Level]) -> None:
    """The checker's limit on the controllers, by the bounds: the weights are read once, in the conversion."""
    for name, bound in written.bounds.items():
        level = levels[-1 if name == "head.weight" else int(name.split(".")[1])]
        error = Fraction(bound.away) * statements.norm(level.inverse) / (1 - level.rho)
        if error > checker.OTHER_LIMIT * Fraction(bound.size):
            limit = float(checker.OTHER_LIMIT)
            raise InputError(
                f"certificate: cannot be given, {name}: controllers off by up to {float(error):.3g}, expected at "
                f"most {limit:.0e} times {bound.size:.3g}"
            )


def _levels(stored: _Stored, sites: int) -> list[Level]:
    """P_l, the write map of the site before as Q_l (the entry's map at level 0), and T_l."""
    out = []
    for l in range(sites + 1):
        at = f"sites.{l}.gauge" if l < sites else "head.gauge"
        inverse = stored.floats(f"sites.{l - 1}.gauge.write" if l else "entry.gauge.write")
        metric = stored.floats(f"{at}.metric") if f"{at}.metric" in stored.names else None
        out.append(Level(l, stored.floats(f"{at}.read"), inverse, metric))
    return out


def _site(stored: _Stored, l: int, levels: list[Level], rule: NormGate | None) -> dict[str, Json]:
    mixer, gates = stored.floats(f"sites.{l}.mixer.matrix"), stored.floats(f"sites.{l}.gates")
    return statements.stored_site(mixer, gates, levels[l], levels[l + 1], rule)


def _sidecar(written: Written, stored: _Stored) -> dict[str, Json]:
    """What binds the statement to the file, the source and its tensors."""
    record, shards = written.record, written.shards
    recipes: list[Json] = []
    sites = [_place(mixer.norm) | _reads(mixer, recipes) for mixer in record.mixers]
    config = shards.folder / CONFIG
    return {
        "file": written.path.name,
        "sha256": file_sha256(written.path),
        "config": file_sha256(config) if config.is_file() else None,
        "mixers": stored.record["mixers"],
        "dynamic": sum(not site["static"] for site in stored.record["sites"]),
        "tensors": _tensors(record, shards),
        "sites": sites,
        "head": _head(record),
        "recipes": recipes,
        "controllers": {name: statements.float_text(bound.away) for name, bound in written.bounds.items()},
    }


def _tensors(record: ModelRecord, shards: Shards) -> dict[str, Json]:
    out = {}
    for name in record.tensors():
        entry = shards.entry(name)
        if name not in shards.digests:
            raise InputError(f"{shards.folder}: tensor {name} was never read, expected it in the conversion")
        out[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "sha256": shards.digests[name]}
    return out


def _reads(mixer: Any, recipes: list[Json]) -> dict[str, Json]:
    """Where the parts of one site stand; ``recipes`` grows by what is new."""
    recipe = _recipe(mixer.mixing)
    if recipe not in recipes:
        recipes.append(recipe)
    parts = {name: _affine(getattr(mixer, name)) for name in ("read", "write", "mix")}
    return {**parts, "blend": _view(mixer.mixing.blend), "recipe": recipes.index(recipe)}


def _head(record: ModelRecord) -> Json:
    head = record.head
    if head.affine is None or head.norm is None:
        return None
    return _place(head.norm) | {"read": _affine(head.affine)}


def _place(norm: Norm) -> dict[str, Json]:
    return {"gamma": _view(norm.gamma), "gamma_offset": statements.float_text(norm.gamma_offset)}


def _affine(affine: Affine) -> dict[str, Json]:
    return {name: _view(getattr(affine, name)) for name in ("base", "weight", "scale")}


def _view(view: View | None) -> Json:
    if view is None:
        return None
    return {"tensor": view.key, "take": None if view.take is None else list(view.take), "layout": view.layout}


def _recipe(mixing: Mixing) -> dict[str, Json]:
    """A recipe's numbers; those that a kind does not use are neutral."""
    recipe = mixing.recipe
    if recipe is None:
        rest = {"start": "exp", "order": "rows", "eps_mode": "none", "iterations": 1}
        numbers, transpose = {"eps": 0.0, "start_eps": 0.0, "temperature": 1.0}, mixing.transpose
    else:
        rest = {"start": recipe.start, "order": recipe.order[0], "eps_mode": recipe.eps_mode}
        rest["iterations"] = recipe.iterations
        numbers = {"eps": recipe.eps, "start_eps": recipe.start_eps, "temperature": recipe.temperature}
        transpose = recipe.transpose
    texts = {name: statements.float_text(value) for name, value in numbers.items()}
    return {"kind": mixing.kind, **rest, **texts, "transpose": bool(transpose)}
