"""Is a mixer static, and if not, how far does A move?  From the weights alone.

A site is static to the last bit where its residual scale or weights are zero.  Otherwise the dynamic logits are
``s W x^`` with ``||x^||^2 = n d`` (d where every stream is normalised by itself): for a state in a uniformly random
direction they have covariance ``s^2 W W^T``, and no state makes logit i larger than ``|s| ||W_i|| sqrt(n d)``.  The
*share* is the RMS of ``||A(z) - A(base)||_F / ||A(base)||_F`` over draws from that covariance.  Real states are no
random directions, so this is a scale, not a forecast; a forward pass on data measures what happens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgauge.simulate.formats.evaluate import Block, Weights, mixing_matrix, static_mixer
from streamgauge.simulate.formats.record import Mixer
from streamgauge.theory.exact import Floats

DRAWS = 32


@dataclass(frozen=True)
class StaticShare:
    """One site.

    - ``static``: A does not depend on the state at all; ``reads_static``: nor do p and r.
    - ``logit_rms``: RMS of a dynamic mixing logit over random directions; ``logit_bound``: its largest possible size.
    - ``share``: RMS of ||A - A_base||_F / ||A_base||_F over random directions.
    """

    static: bool
    reads_static: bool
    logit_rms: float
    logit_bound: float
    share: float


def static_share(mixer: Mixer, weights: Weights, n: int, d: int) -> StaticShare:
    """Measure one site; deterministic.  Cost: one Gram matrix of the residual weights and 32 mixers."""
    mix, flat = weights.mix, mixer.norm.scope == "flat"
    reads_static = weights.read.static and weights.write.static
    if mix.static or mix.weight is None:
        return StaticShare(True, reads_static, 0.0, 0.0, 0.0)
    rows = np.linalg.norm(mix.weight, axis=1)
    scale = abs(mix.scale)
    rms, bound = scale * float(np.sqrt(np.mean(rows**2))), scale * float(rows.max()) * (n * d if flat else d) ** 0.5
    if mix.squash == "tanh":
        rms, bound = min(rms, scale), min(bound, scale)
    base = static_mixer(mixer, weights, n)
    moved = mixing_matrix(mixer.mixing, mix.base + _draws(mix, n, flat), n, weights.blend)
    change = np.sqrt(np.mean(np.sum((moved - base) ** 2, axis=(-1, -2))))
    size = float(np.linalg.norm(base))
    return StaticShare(False, reads_static, rms, bound, float(change) / size if size else float("inf"))


def _draws(mix: Block, n: int, flat: bool) -> Floats:
    """Dynamic logits (draws, size) for states in random directions."""
    weight = mix.weight if mix.weight is not None else np.zeros((1, 1))
    values, vectors = np.linalg.eigh(weight @ weight.T)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    generator = np.random.default_rng(0)
    copies = 1 if flat else n  # streams are normalised by themselves: independent rows
    z = generator.standard_normal((DRAWS, copies, len(values))) @ root.T
    z = z.reshape(DRAWS, -1)
    return np.asarray(mix.scale * (np.tanh(z) if mix.squash == "tanh" else z))
