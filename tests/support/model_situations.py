"""Checkpoints that were changed after their certificate was made, what must be said, mutants of the comparison."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil

import certificate_cases as cases
import numpy as np
from safetensors.numpy import load_file, save_file

from streamgauge.proofs import checker

START = "consistent, but file or source do not match: "
NAMES = ("graded-gate", "norm-linear", "identity", "static", "logits")


class Bench:
    """A copy of one model whose files may be changed; hashes in the certificate follow unless told otherwise."""

    def __init__(self, model, folder):
        new, old, data = model
        self.new, self.old = folder / "out", folder / "source"
        shutil.copytree(new, self.new)
        shutil.copytree(old, self.old)
        self.data = copy.deepcopy(data)

    def tensors(self, side, change):
        path = getattr(self, side) / "model.safetensors"
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    def config(self, side, change):
        path = getattr(self, side) / "config.json"
        document = json.loads(path.read_text())
        change(document["model"])
        path.write_text(json.dumps(document))

    def rehash(self):
        for side, folder in (("converted", self.new), ("source", self.old)):
            for name in checker.FILES:
                self.data["model"][side][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()

    def reason(self, *, source=True):
        text = cases.sealed_text(self.data)
        return checker.check_text(text, file=self.new, source=self.old if source else None).reason


def nudge(name, at=None):
    """Change one entry of a tensor by one unit in the last place."""

    def change(tensors):
        flat = tensors[name].reshape(-1)
        flat[at or 0] = np.nextafter(flat[at or 0], flat.dtype.type(9))

    return change


FILES = {
    "gate": ("graded-gate", nudge("sites.1.gates", 2), "sites.1.gates: differs from the certificate"),
    "gauge": ("graded-gate", nudge("sites.1.gauge.read", 5), "sites.1.gauge.read: differs from the certificate"),
    "write map": ("graded-gate", nudge("sites.2.gauge.write", 15), "sites.2.gauge.write: differs"),
    "metric": ("graded-gate", nudge("sites.0.gauge.metric", 1), "sites.0.gauge.metric: differs"),
    "head gauge": ("graded-gate", nudge("head.gauge.read", 3), "head.gauge.read: differs"),
    "head metric": ("graded-gate", nudge("head.gauge.metric", 3), "head.gauge.metric: differs"),
    "entry": ("graded-gate", nudge("entry", 3), "entry: differs from the certificate"),
    "readout": ("norm-linear", nudge("head.linear", 1), "head.linear: differs from the certificate"),
    "gauge transposed": (
        "graded-gate",
        lambda t: t.update({"sites.0.gauge.read": np.ascontiguousarray(t["sites.0.gauge.read"].T)}),
        "sites.0.gauge.read: differs",
    ),
    "gauges exchanged": (
        "graded-gate",
        lambda t: t.update({"sites.0.gauge.read": t["sites.1.gauge.read"]}),
        "sites.0.gauge.read: differs",
    ),
    "metric dropped": (
        "graded-gate",
        lambda t: t.pop("sites.1.gauge.metric"),
        "sites.1.gauge.metric: unreadable or mis",
    ),
    "gates dropped": ("graded-gate", lambda t: t.pop("sites.1.gates"), "sites.1.gates: unreadable or missing"),
    "gates too long": (
        "graded-gate",
        lambda t: t.update({"sites.1.gates": np.zeros(5)}),
        "sites.1.gates: found 40 bytes of F64, expected 4 floats",
    ),
    "integers for gates": (
        "graded-gate",
        lambda t: t.update({"sites.1.gates": np.zeros(4, dtype=np.int64)}),
        "sites.1.gates: found 32 bytes of I64",
    ),
    "NaN in a gate": (
        "graded-gate",
        lambda t: t.update({"sites.1.gates": np.full(4, np.nan)}),
        "sites.1.gates: not finite",
    ),
    "gates on an ungated one": (
        "identity",
        lambda t: t.update({"sites.1.gates": np.ones(4)}),
        "sites.1.gates: is in the file, but the certificate does not speak of it",
    ),
    "one gauge more": (
        "static",
        lambda t: t.update({"head.gauge.read": np.eye(4)}),
        "head.gauge.read: is in the file, but the certificate does not speak of it",
    ),
    "a weight without metric": (
        "static",
        lambda t: t.update({"sites.0.coef.weight": np.ones((8, 24))}),
        "sites.0.coef.weight: is in the file, but the certificate has no bound or no metric for it",
    ),
    "branch": ("graded-gate", nudge("sites.1.branch.up", 3), "sites.1.branch.up: differs between source and conv"),
    "base": ("graded-gate", nudge("sites.1.coef.base", 3), "sites.1.coef.base: differs between source and converted"),
    "embedding gone": ("graded-gate", lambda t: t.pop("embed.weight"), "embed.weight: differs between source"),
    "controller": (
        "graded-gate",
        lambda t: t.update({"sites.1.coef.weight": t["sites.1.coef.weight"] * (1 + 1e-14)}),
        "model.controllers.sites.1.coef.weight: states",
    ),
    "head controller": (
        "graded-gate",
        lambda t: t.update({"head.weight": t["head.weight"] * (1 + 1e-14)}),
        "model.controllers.head.weight: states",
    ),
}


SOURCES = {
    "mixer gone": (
        "graded-gate",
        lambda t: t.pop("sites.1.mixer.matrix"),
        "config.json residual: the source does not have one mixer at every site",
    ),
    "mixer": ("graded-gate", nudge("sites.1.mixer.matrix", 5), "sites.1.mixer.matrix: differs from the certificate"),
    "branch": ("graded-gate", nudge("sites.1.branch.up", 3), "sites.1.branch.up: differs between source and conv"),
    "controller": (
        "graded-gate",
        lambda t: t.update({"head.weight": t["head.weight"] * 2}),
        "controllers.head.weight: s",
    ),
    "free entry": (
        "graded-gate",
        lambda t: t.update(entry=np.array([1, 1, 1, 2.0])),
        "entry: differs from the certif",
    ),
    "linear readout": (
        "static",
        lambda t: t.update({"head.linear": np.ones(4)}),
        "head.linear: differs from the cert",
    ),
    "weight gone": ("graded-gate", lambda t: t.pop("sites.0.coef.weight"), "sites.0.coef.weight: differs between"),
}


CONFIGS = {
    "residual": ("new", {"residual": "mhc"}, "config.json: residual, norm_gate"),
    "norm gate": ("new", {"norm_gate": {"eps": 0.5, "cap": None}}, "config.json: residual, norm_gate"),
    "loops": ("new", {"loops": 2}, "config.json: residual, norm_gate, loops"),
    "gauge": ("new", {"gauge": False}, "config.json: residual"),
    "entry": ("new", {"entry": "copy"}, "config.json: residual"),
    "readout": ("new", {"readout": "sum"}, "config.json: residual"),
    "sites": ("new", {"sites": ["mlp"]}, "config.json: found 1 sites, expected 3"),
    "rms": ("new", {"rms_eps": 1e-5}, "config.json rms_eps: differs between source and converted checkpoint"),
    "eps": ("old", {"hc_eps": 1e-5}, "config.json hc_eps: differs between source and converted checkpoint"),
    "width": ("old", {"width": 7}, "config.json width: differs between source and converted checkpoint"),
    "kinds": ("old", {"sites": ["mlp", "mlp", "attention"]}, "config.json sites: differs between source"),
    "source ungated": ("old", {"residual": "ihc"}, "config.json residual: the source does not have one mixer"),
    "copy entry": ("old", {"entry": "free"}, "entry.source: is not the source's"),
}


MUTANTS = {
    "hashes ignored": ("if sha256(folder / name, ctx) != value:", "if False:"),
    "own certificate ignored": ('if own != ctx.data["digest"]:', "if False:"),
    "unknown tensors allowed": ("if changed and name not in expected:", "if False:"),
    "controllers may be unbounded": ("if name in controllers and not (", "if False and ("),
    "metric optional": (' and "metric" in level)', ")"),
    "tensors not compared": ("    for name, values in expected.items():", "    for name, values in ():"),
    "first tensor only": ("in expected.items():", "in list(expected.items())[:1]:"),
    "read of the next site": (
        'out[f"sites.{l}.gauge.read"] = levels[l]',
        'out[f"sites.{l}.gauge.read"] = levels[l + 1]',
    ),
    "write of the site before": ('.gauge.write"] = levels[l + 1]', '.gauge.write"] = levels[l]'),
    "gates not expected": ('[site["gates"]]', "[]"),
    "config not compared": ("if found != (True, rule, 1, True) or", "if"),
    "rule not compared": ("if found != (True, rule, 1, True) or", "if found != (True, gate, 1, True) or"),
    "loops not compared": ('config.get("loops", 1), ', "1, "),
    "ends not compared": ('or (config.get("entry"), config.get("readout")) != ends:', ":"),
    "sites not counted": ('if len(config.get("sites", ())) != sites:', "if False:"),
    "fields not compared": ("        if a != b:", "        if False:"),
    "defaults forgotten": ("DEFAULTS.get(key) if c.get(key) is None", "None if c.get(key) is None"),
    "source without mixers": ("or len(gone & set(old.entries)) != sites:", ":"),
    "source of any rule": ('before.get("residual") not in ("mhc", "hc", "mean-gated") or', ""),
    "mixers not compared": ('if f"sites.{l}.mixer.matrix" in old.entries:', "if False:"),
    "sources of ends not compared": ("elif set(values) - {", "elif False and {"),
    "free ends not compared": ("            old.must_be(tensor, values)", "            pass"),
    "branches not compared": ("or old.raw(name) != new.raw(name):", ":"),
    "missing tensors allowed": ("elif not both or old", "elif both and old"),
    "controllers not computed": ("_controller(ctx, name, controllers[name], old, new)", "pass"),
    "controllers by another gauge": ("stored - w @ level.gauge", "stored - w @ level.gauge.transposed()"),
    "controllers by columns": ("(o + 1) * width : d] for c in range(d)]", "o * width + c + n] for c in range(d)]"),
    "controller bound ignored": ("[name].covers(worst)", "[name].covers(Fraction(0))"),
    "controllers not limited": ('"controllers", error, size)', '"controllers", Fraction(0), size)'),
    "first output only": ("for o in range(outputs):", "for o in range(1):"),
    "invented controllers allowed": ("if name not in controllers or name not in new.entries:", "if False:"),
}


def every_situation(models, new_folder):
    """(certificate, converted, source, how the verdict must start, what it must contain)."""
    out = []

    def add(name, edit, words):
        it = Bench(models[name], new_folder())
        edit(it)
        out.append((cases.sealed_text(it.data), it.new, it.old, "accepted: " if words == "" else START, words))

    def changed(side, change, *, config=False, hashes=True):
        def edit(it):
            (it.config if config else it.tensors)(side, change)
            if hashes:
                it.rehash()

        return edit

    for name in NAMES:
        add(name, lambda it: None, "")
    for side, table in (("new", FILES), ("old", SOURCES)):
        for sort, change, words in table.values():
            add(sort, changed(side, change), words)
    for side, change, words in CONFIGS.values():
        add("graded-gate", changed(side, lambda model, c=change: model.update(c), config=True), words)
    add("graded-gate", changed("new", lambda model: model.update(hc_eps=1e-6), config=True), "")
    add("graded-gate", changed("new", nudge("embed.weight"), hashes=False), "SHA-256")
    rule = {"norm_gate": {"eps": 1e-6, "cap": 2.0}}
    add(
        "norm-linear",
        changed("new", lambda model: model.update(rule), config=True),
        "config.json: residual, norm_gate",
    )
    add("graded-gate", _without_metric, "has no bound or no metric")
    add("graded-gate", _without_bound, "has no bound or no metric")
    add("graded-gate", _invented, "no such tensor in the file")
    add("graded-gate", _huge_bound, "controllers off by")
    add("graded-gate", _other_certificate, "came with another certificate")
    add("graded-gate", changed("new", _last_output), "model.controllers.sites.1.coef.weight: states")
    return out


def _without_metric(it):
    it.tensors("new", lambda t: t.pop("sites.1.gauge.metric"))
    for key in ("metric", "metric_bound"):
        del it.data["levels"][1][key]
    it.rehash()


def _without_bound(it):
    del it.data["model"]["controllers"]["head.weight"]


def _invented(it):
    it.data["model"]["controllers"]["sites.9.coef.weight"] = (1.0).hex()


def _huge_bound(it):
    it.tensors("new", lambda t: t.update({"head.weight": t["head.weight"] * 1.001}))
    it.data["model"]["controllers"]["head.weight"] = (1e9).hex()
    it.rehash()


def _other_certificate(it):
    (it.new / "certificate.json").write_text(cases.sealed_text(it.data))
    it.data["sites"][0]["residual"] = (1.0).hex()


def _last_output(tensors):
    tensors["sites.1.coef.weight"][-1] *= 1 + 1e-12
