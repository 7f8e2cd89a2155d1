"""One record for every hyper-connection format: what a mixer computes, and where its numbers stand in the file.

    x^ = normed X,   z = scale * squash(weight x^) + base        (three times: read, write, mix)
    u = p X,  p = read_map(z_read);   X' = A X + r F(u)^T,  r = write_map(z_write),  A = mixing(z_mix)

A named format is a function from keys, shapes and config to a :class:`ModelRecord`; everything after it (analysis,
conversion, inspection) knows the record alone.  No numbers are held here: a :class:`View` says which part of which
tensor is meant, so that tensors are read one mixer at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import Recipe

Layout = Literal["rows", "columns", "flat"]


@dataclass(frozen=True)
class View:
    """Part of a stored tensor: entries ``take`` (all if None) of its rows, of its columns, or of it flattened.

    "columns" gives the columns as rows: a stored (inputs, outputs) matrix becomes (outputs, inputs), also with a
    leading axis of one.
    """

    key: str
    take: tuple[int, ...] | None = None
    layout: Layout = "rows"

    def of(self, array: Floats) -> Floats:
        """The part meant, of the whole tensor."""
        turned = array
        if self.layout == "flat":
            turned = array.reshape(-1)
        elif self.layout == "columns":
            turned = (array[0] if array.ndim == 3 and len(array) == 1 else array).T
        return turned if self.take is None else turned[list(self.take)]


@dataclass(frozen=True)
class Affine:
    """``z = scale * squash(weight x^) + base``; without a weight z is the base."""

    base: View
    weight: View | None = None
    scale: View | None = None
    squash: Literal["none", "tanh"] = "none"

    def tensors(self) -> tuple[str, ...]:
        """The tensors it stands in."""
        return tuple(view.key for view in (self.weight, self.scale, self.base) if view is not None)


@dataclass(frozen=True)
class Norm:
    """How X is normalised before the weights.

    - ``scope``: "flat" over all n d entries, or "stream" over each stream's d by itself.
    - ``placement``, m = mean square: "inside" x / sqrt(m + eps); "outside" x / (sqrt(m) + eps); "clamp"
      x / max(sqrt(m), eps).
    - ``gamma``: weights on x^, entry + ``gamma_offset``.
    """

    scope: Literal["flat", "stream"] = "flat"
    eps: float = 1e-6
    placement: Literal["inside", "outside", "clamp"] = "inside"
    gamma: View | None = None
    gamma_offset: float = 0.0


@dataclass(frozen=True)
class Map:
    """p or r out of z: ``mult * sigmoid(z) + eps``, ``mult * softmax(z) + eps`` or ``mult * z + eps``."""

    kind: Literal["sigmoid", "softmax", "linear"] = "sigmoid"
    mult: float = 1.0
    eps: float = 0.0

    def __call__(self, z: Floats) -> Floats:
        if self.kind == "sigmoid":
            z = np.exp(-np.logaddexp(0.0, -z))
        elif self.kind == "softmax":
            z = np.exp(z - z.max(axis=-1, keepdims=True))
            z = z / z.sum(axis=-1, keepdims=True)
        return self.mult * z + self.eps


@dataclass(frozen=True)
class Mixing:
    """A out of z.

    - ``kind``: "sinkhorn" (z is n x n logits for ``recipe``, whose own transpose decides the orientation),
      "permutations" (z weighs all n! permutation matrices by softmax) or "matrix" (z is the matrix).
    - ``transpose``: for the last two, A = S^T.
    - ``tight``: which sums of A the format makes 1 ("rows": A 1 = 1), None where it makes neither.
    - ``blend``: a logit a with A = (1 - sigmoid(a)) I + sigmoid(a) A', or None.
    """

    kind: Literal["sinkhorn", "permutations", "matrix"]
    recipe: Recipe | None = None
    transpose: bool = False
    tight: Literal["rows", "columns", "both"] | None = None
    blend: View | None = None


@dataclass(frozen=True)
class Mixer:
    """One site: number in depth order, its name in the file, its branch, and what it computes."""

    site: int
    name: str
    branch: str
    read: Affine
    write: Affine
    mix: Affine
    norm: Norm
    mixing: Mixing
    read_map: Map
    write_map: Map

    def tensors(self) -> tuple[str, ...]:
        """Every tensor of this mixer, each once."""
        extra = [view.key for view in (self.norm.gamma, self.mixing.blend) if view is not None]
        return tuple(dict.fromkeys((*self.read.tensors(), *self.write.tensors(), *self.mix.tensors(), *extra)))


@dataclass(frozen=True)
class Head:
    """How the streams become one.

    "gate": h = map(z) X with its own affine map; "sum", "mean": constant rows; "lagged": the last mixer's read;
    "streams": something not linear in X (a norm per stream before the sum): X itself is handed over; "none": the
    file does not say (a library module).
    """

    kind: Literal["gate", "sum", "mean", "lagged", "streams", "none"]
    affine: Affine | None = None
    norm: Norm | None = None
    map: Map | None = None
    note: str = ""

    def tensors(self) -> tuple[str, ...]:
        """Its tensors."""
        return () if self.affine is None else self.affine.tensors()

    @property
    def squash(self) -> str:
        """What its affine map squashes by."""
        return "none" if self.affine is None else self.affine.squash


@dataclass(frozen=True)
class Reader:
    """Something else that reads the streams (and writes them, ``writes``) at ``level``: it needs X = P_level Y."""

    name: str
    level: int
    writes: bool = False


@dataclass(frozen=True)
class ModelRecord:
    """A checkpoint's hyper-connections.

    - ``format``, ``spelling``: what it was recognised as; ``n`` streams of width ``d``.
    - ``lagged``: site k reads with the p of site k - 1 (and stream 0 at site 0).
    - ``dropped``: tensors of the source that its own forward pass never uses, with the reason.
    - ``settings``: the numbers taken from the config or given by hand; ``notes``: facts a reader must know.
    """

    format: str
    spelling: str
    n: int
    d: int
    mixers: tuple[Mixer, ...]
    head: Head
    lagged: bool = False
    readers: tuple[Reader, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, float | int | str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.mixers:
            raise InputError(f"{self.format}: no mixers found, expected at least one")
        for l, mixer in enumerate(self.mixers):
            if mixer.site != l:
                raise InputError(f"{self.format}: mixer {mixer.name} has site {mixer.site}, expected {l}")

    def tensors(self) -> tuple[str, ...]:
        """Every tensor it consumes, in depth order."""
        of_mixers = (key for mixer in self.mixers for key in mixer.tensors())
        return tuple(dict.fromkeys((*of_mixers, *self.head.tensors())))
