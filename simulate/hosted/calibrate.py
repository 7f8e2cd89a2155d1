"""The mixers of a running model along a text: streaming means and covariances by forward hooks.

A hyper-connection module of transformers returns (post, comb, collapsed), and its decoder layer computes
``comb^T X + post F(collapsed)^T``: A(x) = comb^T.  Each hook adds the A(x) of a batch, in float64 and shifted by the
first token's mixer (a mixer that never moves then has covariance exactly 0), on the device where they are; nothing is
kept per token.  Hooks follow their modules, so a model spread over devices or offloaded by accelerate works as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from streamgauge.simulate.attach import GatedConnection
from streamgauge.simulate.formats.calibration import Calibration
from streamgauge.simulate.hosted.compare import Progress, batches
from streamgauge.simulate.hosted.models import connections, evaluating, run
from streamgauge.simulate.hosted.text import Text
from streamgauge.simulate.stored import floats
from streamgauge.theory.errors import InputError

TOKENS_AT_ONCE = 4096
"""Tokens of one forward pass, in whole windows (at least one)."""


class _Moments:
    """Sums of ``a - a_0`` and of its outer products, a = vec A(x), a_0 the first token's."""

    def __init__(self) -> None:
        self.first: Tensor | None = None
        self.count = 0

    def __call__(self, module: nn.Module, args: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
        comb = output[1].detach()
        where = comb.device if comb.device.type != "mps" else torch.device("cpu")  # no float64 there
        a = comb.mT.reshape(-1, comb.shape[-1] ** 2).to(where, torch.float64)
        if self.first is None:
            self.first = a[0].clone()
            self.sum, self.square = torch.zeros_like(self.first), a.new_zeros(a.shape[1], a.shape[1])
        moved = a - self.first
        self.sum += moved.sum(0)
        self.square += moved.mT @ moved
        self.count += len(a)

    def result(self, site: int) -> tuple[Any, Any]:
        """Mean (n, n) and covariance (n^2, n^2)."""
        if self.first is None:
            raise InputError(f"calibrate: sites.{site} was never reached, expected every token to pass every mixer")
        shift, square = floats(self.sum.cpu() / self.count), floats(self.square.cpu() / self.count)
        mean = floats(self.first.cpu()) + shift
        if not (np.isfinite(mean).all() and np.isfinite(square).all()):
            raise InputError(f"calibrate: sites.{site} has a mixer that is not finite on this text")
        n = round(mean.size**0.5)
        return mean.reshape(n, n), square - np.outer(shift, shift)


def calibrate(model: Any, text: Text, *, progress: Progress | None = None) -> Calibration:
    """Run the loaded model over the text and measure A_l(x) at every site.

    - ``model``: a ``deepseek_v4`` or ``glm5_next`` model of transformers, not attached to a sidecar; it is left as it
      was, hooks and mode included, also after an exception.
    - ``text``: windows of tokens (B, T), each a sequence of its own.

    **Raises** :class:`InputError` for another model, an empty text, a mixer that is not finite.  Cost: one forward
    pass, and n^4 additions a token and site.
    """
    modules = connections(model)[:-1]
    if any(isinstance(module, GatedConnection) for module in modules):
        raise InputError("calibrate: the model is attached already, expected the source as it was loaded")
    tokens = text.tokens
    if tokens.ndim != 2 or tokens.numel() == 0:
        raise InputError(f"calibrate: found tokens of shape {tuple(tokens.shape)}, expected at least one window")
    moments = [_Moments() for _ in modules]
    batch = max(1, TOKENS_AT_ONCE // text.context)
    with _hooked(modules, moments), evaluating(model), torch.no_grad():
        for rows in batches(text, model, progress, "calibrating", batch):
            _pass(model, rows)
    found = [moment.result(site) for site, moment in enumerate(moments)]
    means, covariances = zip(*found)
    return Calibration(means, covariances, tokens.numel(), text.document())


def _pass(model: Any, tokens: Tensor) -> None:
    """A forward pass up to the streams' end: the logits are not asked for."""
    options = {} if model.get_output_embeddings() is None else {"logits_to_keep": 1}
    run(model, tokens, **options)


@contextmanager
def _hooked(modules: list[nn.Module], hooks: list[_Moments]) -> Iterator[None]:
    handles: list[Any] = []
    try:
        for module, hook in zip(modules, hooks):
            handles.append(module.register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()
