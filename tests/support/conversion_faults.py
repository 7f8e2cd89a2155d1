"""Deliberate mistakes in a converted network; each must be seen in its outputs."""

from __future__ import annotations

import torch

from streamgauge.simulate.convert import Conversion, gauged_weight

FAULTS = (
    "T_l dropped",
    "P transposed",
    "l shifted by one",
    "P^-1 of the wrong site",
    "W not transformed",
    "gates at 1",
)


def rotated(name: str, sites: int) -> str:
    """The same tensor of the next site."""
    head, l, tail = name.split(".", 2)
    return f"{head}.{(int(l) + 1) % sites}.{tail}"


def faulty(made: Conversion, which: str) -> dict[str, torch.Tensor]:
    """The converted tensors with one deliberate mistake everywhere it applies."""
    t = dict(made.tensors)
    sites = len(made.config.sites)
    reads, writes = ([f"sites.{l}.gauge.{end}" for l in range(sites)] for end in ("read", "write"))
    if which == "T_l dropped":
        for name in t:
            if name.endswith("gauge.metric"):
                t[name] = torch.eye(made.config.streams, dtype=torch.float64)
    elif which == "P transposed":
        t.update({name: t[name].T.contiguous() for name in reads})
    elif which == "l shifted by one":
        t.update({name: made.tensors[rotated(name, sites)] for name in reads})
    elif which == "P^-1 of the wrong site":
        t.update({name: made.tensors[rotated(name, sites)] for name in writes})
    elif which == "W not transformed":
        for l, p in enumerate(reads):
            name = f"sites.{l}.coef.weight"
            inverse = torch.linalg.inv(made.tensors[p]).numpy()
            t[name] = torch.from_numpy(gauged_weight(made.tensors[name].numpy(), inverse))
    elif which == "gates at 1":
        for l in range(sites):
            t[f"sites.{l}.gates"] = torch.ones(made.config.streams, dtype=torch.float64)
    return {name: tensor.double() for name, tensor in t.items()}
