"""Normal forms, checkpoints and certificates for the tests of proofs/: all planted, nothing searched for."""

from __future__ import annotations

import copy
import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import numpy as np
from safetensors.numpy import save_file

from streamgauge.proofs.certificate import certificate, rank_certificate
from streamgauge.proofs.model import model_certificate
from streamgauge.theory import exact
from streamgauge.theory.chain import Chain
from streamgauge.theory.form import NormalForm, NormGate
from streamgauge.theory.norm import norm_form

SITES, WIDTH = 3, 6


def unimodular(rng: np.random.Generator, n: int) -> flint.fmpq_mat:
    """A random integer matrix of determinant 1: a product of a lower and an upper unit triangle."""
    low, high = (np.tril(rng.integers(-2, 3, (n, n)), -1) + np.eye(n, dtype=int) for _ in range(2))
    return flint.fmpq_mat(flint.fmpz_mat((low @ high.T).astype(int).tolist())) if n else flint.fmpq_mat(0, 0)


def ends(rng: np.random.Generator, dims: list[int], is_float: bool) -> dict[str, Any]:
    """Reads, writes, entry and readout of a chain."""

    def draw(n: int) -> Any:
        whole = rng.integers(-4, 5, n)
        return whole / 8 if is_float else [Fraction(int(x), 3) for x in whole]

    sites = len(dims) - 1
    return {
        "reads": [draw(dims[l]) for l in range(sites)],
        "writes": [draw(dims[l + 1]) for l in range(sites)],
        "entry": draw(dims[0]),
        "readout": draw(dims[-1]),
    }


def exact_form(form: str, seed: int = 0, n: int = 3, sites: int = SITES, *, with_ends: bool = True) -> NormalForm:
    """A planted exact form: A_l = P_{l+1} D_l P_l^{-1} for random unimodular gauges and planted gates."""
    rng = np.random.default_rng(seed)
    gauge = [unimodular(rng, n) for _ in range(sites + 1)]
    choices = {
        "identity": [Fraction(1)],
        "binary": [Fraction(0), Fraction(1)],
        "graded": [Fraction(k, 7) for k in range(8)],
    }
    gates = [tuple(choices[form][i] for i in rng.integers(0, len(choices[form]), n)) for _ in range(sites)]
    diagonals = [
        flint.fmpq_mat(n, n, [exact.scalar(g[i]) if i == j else 0 for i in range(n) for j in range(n)]) for g in gates
    ]
    mixers = [q * d * p.inv() for p, q, d in zip(gauge, gauge[1:], diagonals)]
    extra = ends(rng, [n] * (sites + 1), False) if with_ends else {}
    slots = (tuple(range(n)),) * (sites + 1)
    return NormalForm(form, Chain(mixers, **extra, dim=n), tuple(gauge), slots, tuple(gates), (), ())


def rectangular_form(seed: int = 0) -> NormalForm:
    """A planted binary form with changing dimensions and permuted slots."""
    rng = np.random.default_rng(seed)
    slots = ((0, 1), (2, 0, 1), (1, 2), (0,))
    gates = ((1, 1, 0), (0, 1, 1), (0, 0, 0))
    gauge = [unimodular(rng, len(s)) for s in slots]
    mixers = []
    for l, g in enumerate(gates):
        rows = [[g[t] if s == t else 0 for t in slots[l]] for s in slots[l + 1]]
        mixers.append(gauge[l + 1] * flint.fmpq_mat(flint.fmpz_mat(rows)) * gauge[l].inv())
    chain = Chain(mixers, **ends(rng, [len(s) for s in slots], False))
    tuples = tuple(tuple(map(Fraction, g)) for g in gates)
    return NormalForm("binary", chain, tuple(gauge), slots, tuples, (), ())


def float_form(form: str, seed: int = 0, n: int = 4, sites: int = SITES) -> NormalForm:
    """A planted float64 form: well-conditioned gauges, mixers rounded from P' D P^{-1}."""
    rng = np.random.default_rng(seed)
    gauge = [np.eye(n) + rng.normal(size=(n, n)) / 4 for _ in range(sites + 1)]
    if form == "identity":
        gates = [np.ones(n)] * sites
    elif form == "binary":
        gates = [(rng.random(n) < 0.7).astype(float) for _ in range(sites)]
    else:
        gates = [np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.2, 1, n)) for _ in range(sites)]
    mixers = [q @ np.diag(g) @ np.linalg.inv(p) for p, q, g in zip(gauge, gauge[1:], gates)]
    chain = Chain(mixers, **ends(rng, [n] * (sites + 1), True))
    return NormalForm(form, chain, tuple(gauge), (tuple(range(n)),) * (sites + 1), tuple(gates), (), ())


def forms() -> dict[str, NormalForm]:
    """One form of every sort, by name."""
    zero = float_form("graded", 9)
    zero = NormalForm(
        "graded",
        Chain([np.zeros((4, 4)), *zero.chain.mixers[1:]]),
        zero.gauge, zero.slots, (np.zeros(4), *zero.gates[1:]), (), (),
    )  # fmt: skip
    return {
        "exact-identity": exact_form("identity", 1),
        "exact-binary": exact_form("binary", 2),
        "exact-bare": exact_form("binary", 3, with_ends=False),
        "exact-graded": exact_form("graded", 4),
        "exact-rectangular": rectangular_form(5),
        "exact-no-site": exact_form("identity", 6, sites=0),
        "exact-norm": norm_form(exact_form("binary", 7), NormGate()),
        "exact-norm-cap": norm_form(exact_form("graded", 8), NormGate(0, Fraction(5, 4))),
        "float-identity": float_form("identity", 1),
        "float-binary": float_form("binary", 2),
        "float-graded": float_form("graded", 3),
        "float-norm": norm_form(float_form("graded", 4), NormGate()),
        "float-norm-eps": norm_form(float_form("graded", 5), NormGate(1e-3)),
        "float-norm-cap": norm_form(float_form("graded", 6), NormGate(1e-6, 1.25)),
        "float-norm-zero": norm_form(zero, NormGate(1e-6)),
    }


def documents() -> dict[str, dict[str, Any]]:
    """The JSON of one good certificate of every sort."""
    out = {name: dict(certificate(form).data) for name, form in forms().items()}
    out["rank"] = dict(rank_certificate([[1, 2, 3], [2, 4, 6], [Fraction(1, 2), 0, 1]]).data)
    return json.loads(json.dumps(out))


def sealed_text(data: dict[str, Any]) -> str:
    """The text of ``data`` with its digest recomputed: what a forger would write."""
    rest = {k: v for k, v in data.items() if k != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**rest, "digest": hashlib.sha256(canonical).hexdigest()})


def write_pair(
    folder: Path, *, form: str = "graded", norm: NormGate | None = None, head: str = "gate",
    coefficients: str = "dynamic", mixer: str = "matrix", seed: int = 0, sites: int = SITES, n: int = 4,
    width: int = WIDTH,
) -> tuple[Path, Path]:  # fmt: skip
    """A synthetic (converted, source) pair of checkpoint folders around a planted form."""
    rng = np.random.default_rng(seed + 100)
    planted = float_form(form, seed, n, sites)
    if mixer == "logits":
        planted = logits_form(rng, n, sites)
    mixers = planted.chain.mixers
    entry, readout = np.ones(n), np.full(n, 1.0 / n)
    found = norm_form(planted, norm) if norm else planted
    old: dict[str, Any] = {"embed.weight": rng.normal(size=(8, width)).astype(np.float32)}
    new = dict(old)
    gates = found.norm.base_gates if found.norm else found.gates
    for l, a in enumerate(mixers):
        at = f"sites.{l}"
        same = {f"{at}.coef.base": rng.normal(size=2 * n).astype(np.float32)}
        same[f"{at}.branch.up"] = rng.normal(size=(2, width)).astype(np.float32)
        old |= same
        new |= same
        old[f"{at}.mixer.{mixer}"] = planted_logits(rng, l, n) if mixer == "logits" else a
        new[f"{at}.gauge.read"] = found.gauge[l]
        new[f"{at}.gauge.write"] = np.linalg.inv(found.gauge[l + 1])
        if form != "identity" or norm:
            new[f"{at}.gates"] = gates[l]
        if coefficients == "dynamic":
            old[f"{at}.coef.weight"] = rng.normal(size=(2 * n, n * width)).astype(np.float32)
            _gauged(new, old, f"{at}.coef.weight", f"{at}.gauge.metric", found.gauge[l])
    new["entry"] = np.linalg.solve(found.gauge[0], entry)
    if head == "gate":
        old["head.weight"] = rng.normal(size=(n, n * width)).astype(np.float32)
        new["head.gauge.read"] = found.gauge[-1]
        _gauged(new, old, "head.weight", "head.gauge.metric", found.gauge[-1])
    else:
        new["head.linear"] = readout @ found.gauge[-1]
    model = {
        "width": width, "streams": n, "sites": ["mlp"] * sites, "residual": "mhc", "coefficients": coefficients,
        "mixer": mixer, "recipe": "paper" if mixer == "logits" else None, "rms_eps": 1e-6, "entry": "copy",
        "readout": "gate" if head == "gate" else "mean", "loops": 1, "gauge": False, "norm_gate": None,
    }  # fmt: skip
    changed = dict(model, gauge=True, entry="free", readout="gate" if head == "gate" else "linear")
    changed["residual"] = "norm-gated" if norm else "ihc" if form == "identity" else "gated"
    changed["norm_gate"] = {"eps": float(norm.eps), "cap": norm.cap} if norm else None
    for name, tensors, config in (("source", old, {"model": model}), ("out", new, None)):
        (folder / name).mkdir(parents=True)
        save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, folder / name / "model.safetensors")
        document = config or {"model": changed, "conversion": {"form": form}}
        (folder / name / "config.json").write_text(json.dumps(document))
    return folder / "out", folder / "source"


def planted_logits(rng: np.random.Generator, l: int, n: int) -> Any:
    """Logits of site l, the same for every caller with the same n."""
    return 2 * np.eye(n) + np.random.default_rng(1000 + l).normal(size=(n, n))


def logits_form(rng: np.random.Generator, n: int, sites: int) -> NormalForm:
    """The identity-like graded form of a Sinkhorn chain: P_{l+1} = A_l P_l with columns scaled to 1."""
    from streamgauge.theory.sinkhorn import sinkhorn

    mixers = [sinkhorn(planted_logits(rng, l, n), "paper").mixer for l in range(sites)]
    gauge, gates = [np.eye(n)], []
    for a in mixers:
        image = a @ gauge[-1]
        gates.append(np.linalg.norm(image, axis=0))
        gauge.append(image / gates[-1])
    slots = (tuple(range(n)),) * (sites + 1)
    return NormalForm("graded", Chain(mixers), tuple(gauge), slots, tuple(gates), (), ())


def _gauged(new: dict[str, Any], old: dict[str, Any], weight: str, metric: str, gauge: Any) -> None:
    n = len(gauge)
    blocks = old[weight].astype(float).reshape(len(old[weight]), n, -1)
    new[weight] = np.einsum("msd,st->mtd", blocks, gauge).reshape(old[weight].shape)
    new[metric] = np.linalg.qr(gauge, mode="r")


def models(folder: Path) -> dict[str, tuple[Path, Path, dict[str, Any]]]:
    """(converted, source, certificate data) of every sort of converted checkpoint."""
    table: dict[str, dict[str, Any]] = {
        "graded-gate": {},
        "norm-linear": {"norm": NormGate(1e-6, 1.5), "head": "linear", "seed": 1},
        "identity": {"form": "identity", "seed": 2},
        "static": {"coefficients": "static", "head": "linear", "seed": 3},
        "logits": {"mixer": "logits", "seed": 4},
    }
    out = {}
    for name, options in table.items():
        new, old = write_pair(folder / name, **options)
        out[name] = new, old, copy.deepcopy(json.loads(model_certificate(new, old).text))
    return out
