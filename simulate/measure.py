"""What a conversion costs or saves: parameters, bytes and time per token, beside the honest baseline.

The baseline of a network with *static* mixers is the same network with its mixers computed once: Sinkhorn at run
time is no fair opponent.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from streamgauge.simulate.model import ByteLM
from streamgauge.simulate.network import is_coefficient, precompute_mixers


@dataclass(frozen=True)
class Cost:
    """One network run in float32.

    ``parameters`` and ``bytes`` of all its tensors; ``connection``: the numbers among them that belong to the
    hyper-connections; ``seconds`` per token of a forward pass (median) and their ``ratio`` to the baseline's.
    """

    name: str
    parameters: int
    connection: int
    bytes: int
    seconds: float
    ratio: float


def costs(
    source: ByteLM,
    converted: ByteLM,
    tokens: Tensor,
    *,
    repeats: int = 5,
    progress: Callable[[], None] | None = None,
) -> tuple[Cost, ...]:
    """Rows for the source, the source with its mixers precomputed (the baseline, ratio 1) and the converted network.

    The networks take turns within one run, so that a busy machine slows all of them alike.
    """
    networks = {"source": source, "converted": converted}
    baseline = "source"
    if source.config.residual == "mhc" and source.config.mixer == "logits":
        networks = {"source": source, "source, mixers precomputed": precompute_mixers(source), "converted": converted}
        baseline = "source, mixers precomputed"
    running = {name: copy.deepcopy(net).to_precision("float32").eval() for name, net in networks.items()}
    times: dict[str, list[float]] = {name: [] for name in networks}
    with torch.no_grad():
        for repeat in range(repeats + 1):
            for name, network in running.items():
                start = time.perf_counter()
                network(tokens)
                if repeat:  # the first round warms up
                    times[name].append(time.perf_counter() - start)
            if progress is not None:
                progress()
    per_token = {name: statistics.median(values) / tokens.numel() for name, values in times.items()}
    return tuple(
        _cost(name, network, per_token[name], per_token[name] / per_token[baseline])
        for name, network in running.items()
    )


def _cost(name: str, network: ByteLM, seconds: float, ratio: float) -> Cost:
    state = network.state_dict()
    return Cost(
        name,
        sum(t.numel() for t in state.values()),
        sum(t.numel() for key, t in state.items() if is_coefficient(key)),
        sum(t.numel() * t.element_size() for t in state.values()),
        seconds,
        ratio,
    )
