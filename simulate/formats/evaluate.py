"""What a record says, in numbers: the weights of one mixer, and p(X), r(X), A(X) from them in float64.

This is the reference meaning of a :class:`~streamgauge.simulate.formats.record.ModelRecord`; formats are tested by
comparing it with transcriptions of their own documented formulas.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import factorial

import numpy as np

from streamgauge.simulate.formats.record import Affine, Map, Mixer, Mixing, Norm, View
from streamgauge.simulate.formats.shards import Shards
from streamgauge.theory.errors import InputError
from streamgauge.theory.exact import Floats
from streamgauge.theory.sinkhorn import sinkhorn

MAX_PERMUTED = 6
"""Largest n of a mixture of all n! permutations."""


@dataclass(frozen=True)
class Block:
    """One affine map: ``weight`` (k, width) or None, gamma folded in; ``scale``; ``base`` flattened."""

    weight: Floats | None
    scale: float
    base: Floats
    squash: str = "none"

    @property
    def static(self) -> bool:
        """Whether z does not depend on the state, to the last bit."""
        return self.weight is None or self.scale == 0.0 or not self.weight.any()

    def __call__(self, normed: Floats, scope: str) -> Floats:
        """z (..., size of base) of a normed state (..., n, d)."""
        if self.weight is None:
            return np.broadcast_to(self.base, (*normed.shape[:-2], self.base.size))
        if scope == "flat":
            z = normed.reshape(*normed.shape[:-2], -1) @ self.weight.T
        else:
            z = normed @ self.weight.T
            z = z.reshape(*normed.shape[:-2], -1)
        if self.squash == "tanh":
            z = np.tanh(z)
        return np.asarray(self.scale * z + self.base)


@dataclass(frozen=True)
class Weights:
    """The numbers of one mixer, in float64."""

    read: Block
    write: Block
    mix: Block
    blend: float | None = None


def load(mixer: Mixer, shards: Shards, n: int, d: int, *, bases_only: bool = False) -> Weights:
    """The numbers of one mixer; every tensor is read once.  ``bases_only``: no weights and no norm.

    **Raises** :class:`InputError` naming the tensor for missing tensors, wrong shapes, dtypes, NaN.
    """
    loader = _Loader(shards, mixer.name, n, d, mixer.norm, bases_only)
    blend = None if mixer.mixing.blend is None else loader.scalar(mixer.mixing.blend)
    return Weights(
        loader.block(mixer.read, n),
        loader.block(mixer.write, n),
        loader.block(mixer.mix, mix_size(mixer.mixing, n)),
        blend,
    )


def load_head(affine: Affine, norm: Norm, shards: Shards, n: int, d: int) -> Block:
    """The numbers of a gated head."""
    return _Loader(shards, "head", n, d, norm, False).block(affine, n)


def mix_size(mixing: Mixing, n: int) -> int:
    """Numbers in z_mix: n! for a mixture of permutations, else n^2."""
    return factorial(n) if mixing.kind == "permutations" else n * n


class _Loader:
    def __init__(self, shards: Shards, name: str, n: int, d: int, norm: Norm, bases_only: bool) -> None:
        self.shards, self.name, self.n, self.d, self.norm = shards, name, n, d, norm
        self.bases_only = bases_only
        self.held: dict[str, Floats] = {}

    def tensor(self, key: str) -> Floats:
        if key not in self.held:
            self.held[key] = self.shards.floats(key)
        return self.held[key]

    def part(self, view: View) -> Floats:
        try:
            return view.of(self.tensor(view.key))
        except IndexError:
            shape = self.shards.shape(view.key)
            raise InputError(f"{self.name}: tensor {view.key} has shape {shape}, too small for its part") from None

    def scalar(self, view: View) -> float:
        found = self.part(view)
        if found.size != 1:
            raise InputError(f"{self.name}: tensor {view.key} has shape {found.shape}, expected one number")
        return float(found.reshape(-1)[0])

    def block(self, affine: Affine, size: int) -> Block:
        base = self.part(affine.base).reshape(-1)
        if base.size != size:
            raise InputError(f"{self.name}: tensor {affine.base.key} gives {base.size} numbers, expected {size}")
        scale = 1.0 if affine.scale is None else self.scalar(affine.scale)
        weight = None if affine.weight is None or self.bases_only else self.weight(affine.weight, size)
        return Block(weight, scale, base, affine.squash)

    def weight(self, view: View, size: int) -> Floats:
        flat = self.norm.scope == "flat"
        wanted = (size, self.n * self.d) if flat else (size // self.n, self.d)
        found = np.atleast_2d(self.part(view))
        if found.shape != wanted:
            hint = "; it looks transposed" if found.shape == wanted[::-1] else ""
            raise InputError(
                f"{self.name}: tensor {view.key} gives weights of shape {found.shape}, expected {wanted}{hint}"
            )
        if self.norm.gamma is not None:
            gamma = self.part(self.norm.gamma).reshape(-1)
            if gamma.size != wanted[1]:
                key = self.norm.gamma.key
                raise InputError(f"{self.name}: tensor {key} has {gamma.size} entries, expected {wanted[1]}")
            found = found * (gamma + self.norm.gamma_offset)
        return np.ascontiguousarray(found)


def normed(x: Floats, norm: Norm) -> Floats:
    """x^ of a state (..., n, d), without gamma (it is folded into the weights)."""
    axes = (-2, -1) if norm.scope == "flat" else (-1,)
    return np.asarray(x / denominator(np.mean(x * x, axis=axes, keepdims=True), norm))


def denominator(mean_square: Floats, norm: Norm) -> Floats:
    """What the state is divided by, of its mean square."""
    if norm.placement == "inside":
        return np.sqrt(mean_square + norm.eps)
    root = np.sqrt(mean_square)
    return np.asarray(root + norm.eps if norm.placement == "outside" else np.maximum(root, norm.eps))


def mixing_matrix(mixing: Mixing, z: Floats, n: int, blend: float | None = None) -> Floats:
    """A (..., n, n) of z (..., size)."""
    made = permutation_mixture(z, n) if mixing.kind == "permutations" else z.reshape(*z.shape[:-1], n, n)
    if mixing.kind == "sinkhorn":
        if mixing.recipe is None:
            raise InputError("mixing: found no recipe, expected a named Sinkhorn recipe")
        made = sinkhorn(made, mixing.recipe).mixer
    elif mixing.transpose:
        made = np.swapaxes(made, -1, -2)
    if blend is not None:
        share = float(Map("sigmoid")(np.array(blend)))
        made = (1 - share) * np.eye(n) + share * made
    return np.asarray(made)


def permutation_mixture(z: Floats, n: int) -> Floats:
    """``sum_k softmax(z)_k Pi_k`` with ``Pi[i, pi(i)] = 1``, pi in lexicographic order; doubly stochastic."""
    if n > MAX_PERMUTED:
        raise InputError(f"permutations: found n = {n}, expected at most {MAX_PERMUTED} (n! logits)")
    orders = np.array(list(itertools.permutations(range(n))))
    return np.asarray(Map("softmax")(z) @ np.eye(n)[orders].reshape(len(orders), -1)).reshape(*z.shape[:-1], n, n)


def static_mixer(mixer: Mixer, weights: Weights, n: int) -> Floats:
    """A at z = base: the mixer with its dynamic part taken away."""
    return mixing_matrix(mixer.mixing, weights.mix.base, n, weights.blend)


def coefficients(mixer: Mixer, weights: Weights, x: Floats) -> tuple[Floats, Floats, Floats]:
    """p (..., n), r (..., n) and A (..., n, n) at states X (..., n, d)."""
    n, scope = x.shape[-2], mixer.norm.scope
    state = normed(x, mixer.norm)
    p = mixer.read_map(weights.read(state, scope))
    r = mixer.write_map(weights.write(state, scope))
    return p, r, mixing_matrix(mixer.mixing, weights.mix(state, scope), n, weights.blend)
