"""The least that a pass over the streams can move and compute, by formula.

**Read and coefficients backward** (mHC, m = n (n + 2) rows) is two passes, since dp is known only at the end of a
token: one for dp, (n + 1) d state elements, and one that adds everything into dX, (3n + 1) d.  Besides, a token has a
few float32 numbers, and the streaming figure (:func:`streaming`) has room for 208 bytes of them at n = 4: the
projections h, dr, dA, and dp written and read, from which p, A and the rest would follow.  Two things are not in it:

- rms, 4 bytes: h and dX are over it.  So no two passes reach the figure, on a chip of any size.
- The second pass cannot take a token's numbers just once.  The gradient of W is a sum over tokens of 4 m n d bytes
  (393 kB at n = 4, d = 1024), and the registers that hold it are 256 kB a multiprocessor.  So the width is cut in
  slices, and every slice asks for the token's numbers; :func:`streaming_bound` is the least of that.

Ways around it cost more than they save.  The whole width and tokens of its own for each multiprocessor: with 8192
tokens on 132, 12.7 kB a token of partial sums, written and read.  A pass of its own for the gradient of W: n d more
elements.  A token's streams kept on the chip (n d up to 4096) to read X once: W, read again from L2 every 16 tokens,
is as many bytes as the state.  In DRAM the slices' common bytes are one, as they run side by side; counted is what
is asked for.
"""

from __future__ import annotations

from streamgauge.kernels.situations import Situation

COEFFICIENTS = ("coefficients", "site")
REGISTERS = 1 << 18
"""Bytes of registers of one multiprocessor."""


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


def streaming(n: int, d: int, size: int) -> int:
    """The figure for mHC's read and coefficients backward in two passes, bytes a token; see the module."""
    return (4 * n + 2) * d * size + 4 * (2 * n + n + n * n + n * (n + 2))


def slices(n: int, d: int, on_chip: int = REGISTERS) -> int:
    """The fewest slices of the width whose part of the gradient of W is at most ``on_chip`` bytes."""
    return -(-4 * n * (n + 2) * n * d // on_chip)


def streaming_bound(n: int, d: int, size: int, on_chip: int = REGISTERS) -> int:
    """The least bytes a token of that part, with h and rms kept and sums of ``on_chip`` bytes held; see the module.

    Either every slice takes h, rms, dp, dr and dA and computes all from them, Sinkhorn forth and back; or that is
    done once, by the pass for dp, and every slice takes dh / rms, the norm's pull, p and A.
    """
    m, count = n * (n + 2), slices(n, d, on_chip)
    gradients, taken = n + n * n, m + 1 + n + n * n
    each = n + count * (m + 1 + n + gradients)
    once = (m + 1 + gradients) + (m + 1) + count * taken
    return (4 * n + 2) * d * size + 4 * min(each, once)


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
