"""The least that a pass over the streams can move and compute, by formula."""

from __future__ import annotations

from streamgauge.kernels.situations import Situation

COEFFICIENTS = ("coefficients", "site")


def floor(situation: Situation, direction: str, n: int, d: int, size: int) -> float:
    """The least bytes a token: every input read once, every output written once, with the state in ``size`` bytes.

    Weights are not in it.  The identity's dX is dX' itself.  A whole site: what three streaming passes over the state
    cost, forward (4n + 2) d, since the read needs all of the projection first, backward (6n + 4) d, or (5n + 4) d if
    the carry needs no gradient.
    """
    forward = direction == "forward"
    mode, carry = situation.mode.split(",")[0], _carry(situation, n)
    if situation.op == "read":
        return (n + 1) * d * size + 4 * n if forward else (2 * n + 1) * d * size + 8 * n
    if situation.op == "write":
        if forward:
            return (2 * n + 1) * d * size + 4 * (n + carry)
        state = n + 2 if mode == "identity" else 3 * n + 2
        return state * d * size + 8 * (n + carry)
    if situation.op == "sinkhorn":
        return 8 * n * n if forward else 12 * n * n
    if situation.op == "coefficients":
        return (n if forward else 2 * n) * d * size + 4 * (2 * n + carry)
    state = 4 * n + 2 if forward else (5 * n + 4 if mode == "identity" else 6 * n + 4)
    return state * d * size


def weight_bytes(situation: Situation, direction: str, n: int, d: int) -> float:
    """The controller's float32 weight read, and written once as a gradient."""
    if situation.op not in COEFFICIENTS:
        return 0
    return (4 if direction == "forward" else 8) * (2 * n + _carry(situation, n)) * n * d


def flops(situation: Situation, direction: str, n: int, d: int) -> float:
    """Additions and multiplications of a token, the state's width only (what is done to n numbers is nothing)."""
    twice = 1 if direction == "forward" else 2
    mode, rows = situation.mode.split(",")[0], 2 * n + _carry(situation, n)
    read, project = 2 * n * d, 2 * rows * n * d + 2 * n * d
    write = {"full": 2 * n * n, "identity": 0}.get(mode, n) * d + 2 * n * d
    work = {"read": read, "write": write, "coefficients": project, "site": read + project + write}
    return twice * work.get(situation.op, 8 * n * n)


def _carry(situation: Situation, n: int) -> int:
    mode = situation.mode.split(",")[0]
    return {"full": n * n, "mixer": n * n, "raw": n * n, "diag": n, "norm": n, "gates": n}.get(mode, 0)
