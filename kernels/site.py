# mypy: disable-error-code="no-untyped-call"
"""One site of a hyper-connection network: ``X' = A X + r F(p X)``.

On the kernels the state's gradient is made once: the write hands dX' to the read as an explicit tensor, and one pass
adds A^T dX', p du and the coefficients' part.  Traffic a token, in units of d elements: forward (4n + 2), the state
being read by the projection, the read and the write; backward (6n + 4) with mixer or gates, (5n + 4) with neither.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from streamgauge.kernels import reference
from streamgauge.kernels.activation import CARRIES, Activation
from streamgauge.kernels.dispatch import takes_kernels


@dataclass(frozen=True)
class Controller:
    """What makes the coefficients from the state: ``activation`` of ``scale (weight vec X) / rms + base``.

    ``weight`` (rows, n d), ``scale`` and ``base`` (rows,), with rows = ``activation.rows(n)``.  Converted sites:
    ``metric`` T (n, n) in the rms, ``gauge_read`` P: the read is p P; ``gauge_write`` Q: the write is Q r.
    """

    weight: Tensor
    scale: Tensor
    base: Tensor
    activation: Activation
    rms_eps: float
    metric: Tensor | None = None
    gauge_read: Tensor | None = None
    gauge_write: Tensor | None = None


def site(
    x: Tensor,
    branch: Callable[[Tensor], Tensor],
    *,
    mode: str,
    controller: Controller | None = None,
    p: Tensor | None = None,
    r: Tensor | None = None,
    mixer: Tensor | None = None,
    gates: Tensor | None = None,
    eps: float = 0.0,
    cap: float | None = None,
    backend: str = "auto",
) -> Tensor:
    """``A X + r branch(p X)`` of the state x (..., n, d); ``branch`` maps (..., d) to the same shape.

    Reads and writes come from ``controller``, or are given as ``p`` and ``r`` (..., n) or (n,).  The carry of
    ``mode`` ("full", "diag", "norm" with ``eps`` and ``cap``, "identity") comes from the controller if its activation
    makes one, else from ``mixer`` (..., n, n) or ``gates`` (..., n).
    **Raises** ValueError naming what is missing or given twice.
    """
    made = "none" if controller is None else controller.activation.carry
    _complete(mode, made, controller is not None, p, r, mixer, gates)
    if takes_kernels("site", x, backend):
        return _on_kernels(x, branch, mode, controller, p, r, mixer if mode == "full" else gates, eps, cap)
    carry = mixer if mode == "full" else gates
    if controller is not None:
        z = reference.coefficients(
            x,
            controller.weight,
            controller.scale,
            controller.base,
            rms_eps=controller.rms_eps,
            metric=controller.metric,
        )
        p, r, own = controller.activation.apply(z, x.shape[-2])
        p = p if controller.gauge_read is None else p @ controller.gauge_read
        r = r if controller.gauge_write is None else r @ controller.gauge_write.mT
        carry = carry if own is None else own
    if p is None or r is None:
        raise ValueError("site p, r: found None, expected both, or a controller")
    y = branch(reference.read(x, p))
    named = {"mixer": carry} if mode == "full" else {"gates": carry}
    return reference.write(x, y, r, mode=mode, eps=eps, cap=cap, **named)


def _complete(
    mode: str,
    made: str,
    controlled: bool,
    p: Tensor | None,
    r: Tensor | None,
    mixer: Tensor | None,
    gates: Tensor | None,
) -> None:
    """**Raises** ValueError unless every coefficient has exactly one source."""
    needed = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": "none"}
    if mode not in needed:
        raise ValueError(f"site mode: found {mode!r}, expected 'full', 'diag', 'norm' or 'identity'")
    for name, value in (("p", p), ("r", r)):
        if (value is None) != controlled:
            raise ValueError(f"site {name}: found {'none' if value is None else 'two sources'}, expected one")
    sources = [name for name, value in (("mixer", mixer), ("gates", gates)) if value is not None]
    sources += [made] if made != "none" else []
    expected = [needed[mode]] if mode != "identity" else []
    if sources != expected:
        raise ValueError(f"site carry: found {sources or 'none'}, expected {expected or 'none'} for mode {mode!r}")


def _on_kernels(
    x: Tensor,
    branch: Callable[[Tensor], Tensor],
    mode: str,
    controller: Controller | None,
    p: Tensor | None,
    r: Tensor | None,
    outer: Tensor | None,
    eps: float,
    cap: float | None,
) -> Tensor:
    from streamgauge.kernels.functions import check_state, flat_coefficient, flat_state
    from streamgauge.kernels.functions_coefficients import RAW, flat_controller
    from streamgauge.kernels.site_functions import EnterFunction, LeaveFunction

    check_state("site", x)
    lead, n, d = x.shape[:-2], x.shape[-2], x.shape[-1]
    residual = (mode, float(eps), float("inf") if cap is None else float(cap))
    if not eps >= 0 or not residual[2] > 0:
        raise ValueError(f"norm gate: found eps {eps}, cap {cap}; expected eps >= 0 and cap > 0 or None")
    if outer is not None:
        outer = flat_coefficient("site carry", outer, lead, (n, n) if mode == "full" else (n,))
    if controller is None:
        reads = flat_coefficient("site p", p, lead, (n,)) if p is not None else None
        parts: tuple[object, ...] = (reads, None, None, None, None, None, outer, *residual, 0.0, *RAW)
    else:
        if controller.weight.shape[0] != controller.activation.rows(n):
            found, rows = controller.weight.shape[0], controller.activation.rows(n)
            raise ValueError(f"site controller weight: found {found} rows, expected {rows} for {n} streams")
        flat = flat_controller(
            x, controller.weight, controller.scale, controller.base, controller.rms_eps, controller.metric
        )
        gauge = None if controller.gauge_read is None else controller.gauge_read.float().contiguous()
        numbers = (float(controller.rms_eps), *controller.activation.arguments)
        parts = (None, *flat, gauge, outer, *residual, *numbers)
    u, again, writes, carry = EnterFunction.apply(flat_state(x), *parts)
    if r is not None:
        writes = flat_coefficient("site r", r, lead, (n,))
    elif controller is not None and controller.gauge_write is not None:
        writes = (writes @ controller.gauge_write.float().mT).contiguous()
    y = branch(u.reshape(*lead, d))
    if tuple(y.shape) != (*lead, d):
        raise ValueError(f"site branch: found output of shape {tuple(y.shape)}, expected {(*lead, d)}")
    made = controller is not None and CARRIES[controller.activation.carry] != "identity"
    new: Tensor = LeaveFunction.apply(
        again, y.contiguous().reshape(-1, d), writes, carry if made else outer, *residual
    )
    return new.reshape(x.shape)
