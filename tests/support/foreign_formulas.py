"""Documented formulas of each format, written out again in float64 from raw tensors: no product code is used.

Every ``*_site`` takes the tensors of one mixer by their short names and a state X (n, d) and returns p (n,), r (n,)
and A (n, n) with ``u = p X``, ``X' = A X + r y``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = Any
Site = Callable[[Array], tuple[Array, Array, Array]]


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def deepseek_site(t: Mapping[str, Array], x: Array, *, rms_eps: float, hc_eps: float, iterations: int) -> Any:
    """Row softmax + eps, columns, then (iterations - 1) x (rows, columns); comb's first index is the source."""
    n = len(x)
    flat = x.reshape(-1)
    z = (t["fn"] @ flat) / np.sqrt((flat**2).mean() + rms_eps)
    s, b = t["scale"], t["base"]
    pre = sigmoid(z[:n] * s[0] + b[:n]) + hc_eps
    post = 2 * sigmoid(z[n : 2 * n] * s[1] + b[n : 2 * n])
    logits = (z[2 * n :] * s[2] + b[2 * n :]).reshape(n, n)
    comb = np.exp(logits - logits.max(1, keepdims=True))
    comb = comb / comb.sum(1, keepdims=True) + hc_eps
    comb = comb / (comb.sum(0, keepdims=True) + hc_eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(1, keepdims=True) + hc_eps)
        comb = comb / (comb.sum(0, keepdims=True) + hc_eps)
    mix = np.zeros((n, n))
    for j in range(n):
        for i in range(n):
            mix[j, i] = comb[i, j]  # out_j = sum_i comb[i, j] X_i
    return pre, post, mix


def deepseek_head(t: Mapping[str, Array], x: Array, *, rms_eps: float, hc_eps: float) -> Array:
    flat = x.reshape(-1)
    z = (t["fn"] @ flat) / np.sqrt((flat**2).mean() + rms_eps)
    return (sigmoid(z * t["scale"][0] + t["base"]) + hc_eps) @ x


def megatron_site(t: Mapping[str, Array], x: Array, *, iterations: int, dev: bool) -> Any:
    n = len(x)
    flat = x.reshape(-1)
    r = 1 / (np.linalg.norm(flat) / np.sqrt(flat.size) + 1e-6)
    h = r * (t["mapping_proj.weight"] @ flat)
    alpha = np.repeat([t["alpha_pre"][0], t["alpha_post"][0], t["alpha_res"][0]], [n, n, n * n])
    h = h * alpha + t["bias"]
    logits = h[2 * n :].reshape(n, n)
    m = np.exp(logits - logits.max(1, keepdims=True))
    for _ in range(iterations):
        m = m / np.maximum(m.sum(1, keepdims=True), 1e-6)
        m = m / np.maximum(m.sum(0, keepdims=True), 1e-6)
    return sigmoid(h[:n]), 2 * sigmoid(h[n : 2 * n]), m.T if dev else m


def liger_site(t: Mapping[str, Array], x: Array, *, rms_eps: float, pre_eps: float, eps: float, tmax: int) -> Any:
    n = len(x)
    flat = x.reshape(-1)
    z = (flat @ t["phi"]) / np.sqrt((flat**2).mean() + rms_eps)
    pre = sigmoid(t["alpha_pre"] * z[:n] + t["b"][:n]) + pre_eps
    post = 2 * sigmoid(t["alpha_post"] * z[n : 2 * n] + t["b"][n : 2 * n])
    logits = (t["alpha_res"] * z[2 * n :] + t["b"][2 * n :]).reshape(n, n)
    m = np.exp(logits - logits.max(1, keepdims=True))
    m = m / m.sum(1, keepdims=True) + eps
    m = m / (m.sum(0, keepdims=True) + eps)
    for _ in range(tmax - 1):
        m = m / (m.sum(1, keepdims=True) + eps)
        m = m / (m.sum(0, keepdims=True) + eps)
    return pre, post, m


def lite_site(t: Mapping[str, Array], x: Array, *, kind: str, iterations: int = 20) -> Any:
    """mhc and mhc_lite: one norm over the flattened streams, gamma + 1."""
    n, size = len(x), x.size
    flat = x.reshape(-1)
    hat = flat / max(np.linalg.norm(flat), 1e-12) * np.sqrt(size) * (t["norm.gamma"] + 1)
    z = hat @ t["dynamic_alpha_fn"]
    post = 2 * sigmoid(t["h_post_scale"] * (hat @ t["dynamic_beta_fn"]) + t["static_beta"])
    if kind == "mhc":
        z = z.reshape(n, n + 1)
        read = t["pre_branch_scale"][0] * z[:, 0] + t["static_alpha"][:, 0]
        logits = t["residual_scale"][0] * z[:, 1:] + t["static_alpha"][:, 1:]
        m = np.exp(logits - logits.max())
        for _ in range(iterations):
            m = m / m.sum(0, keepdims=True)
            m = m / m.sum(1, keepdims=True)
    else:
        read = t["pre_branch_scale"][0] * z[:n] + t["static_alpha"][:n]
        weights = np.exp(t["residual_scale"][0] * z[n:] + t["static_alpha"][n:])
        weights = weights / weights.sum()
        m = np.zeros((n, n))
        for weight, order in zip(weights, itertools.permutations(range(n))):
            for i, j in enumerate(order):
                m[i, j] += weight
    return sigmoid(read), post, m.T


def stream_site(t: Mapping[str, Array], x: Array, *, kind: str, iterations: int = 20) -> Any:
    """HC and lucidrains' mHC: every stream normalised by itself."""
    n, d = x.shape
    hat = np.stack([row / max(np.linalg.norm(row), 1e-12) * np.sqrt(d) * (t["norm.gamma"] + 1) for row in x])
    weight = t["dynamic_alpha_fn"].reshape(d, n + 1)
    z, w = hat @ weight, hat @ t["dynamic_beta_fn"].reshape(d)
    if kind == "hc":
        alpha = np.tanh(z) * t["dynamic_alpha_scale"] + t["static_alpha"]
        return alpha[:, 0], np.tanh(w) * t["dynamic_beta_scale"] + t["static_beta"], alpha[:, 1:].T
    read = sigmoid(z[:, 0] * t["pre_branch_scale"][0] + t["static_alpha"][:, 0])
    m = np.exp(z[:, 1:] * t["residual_scale"][0] + t["static_alpha"][:, 1:])
    for _ in range(iterations):
        m = m / m.sum(0, keepdims=True)
        m = m / m.sum(1, keepdims=True)
    return read, 2 * sigmoid(w * t["h_post_scale"] + t["static_beta"]), m.T


def static_site(t: Mapping[str, Array], *, tau: float, iterations: int) -> Any:
    """tokenbender: softmax reads and writes, Sinkhorn of logits / tau, an optional blend with the identity."""
    m = np.exp((t["H_res_logits"] - t["H_res_logits"].max()) / tau)
    for _ in range(iterations):
        m = m / m.sum(1, keepdims=True)
        m = m / m.sum(0, keepdims=True)
    if "H_res_alpha_logit" in t:
        share = sigmoid(float(np.ravel(t["H_res_alpha_logit"])[0]))
        m = (1 - share) * np.eye(len(m)) + share * m
    softmax = [np.exp(v) / np.exp(v).sum() for v in (np.ravel(t["H_pre_logits"]), np.ravel(t["H_post_logits"]))]
    return softmax[0], softmax[1], m.T


def branch(l: int, u: Array) -> Array:
    """Some nonlinear branch, different at every site."""
    turn = np.random.default_rng(100 + l).normal(0, 1, (u.size, u.size)) / np.sqrt(u.size)
    return np.tanh(turn @ u) + 0.5 * np.cos(u)


def run(sites: list[Site], x: Array, *, lagged: bool = False) -> list[Array]:
    """X_0 .. X_L through all sites; with ``lagged`` site k reads by p(X_{k-1}), site 0 stream 0."""
    out, last = [x], np.eye(len(x))[0]
    for l, site in enumerate(sites):
        p, r, a = site(out[-1])
        read = last if lagged else p
        last = p
        out.append(a @ out[-1] + np.outer(r, branch(l, read @ out[-1])))
    return out


def run_sidecar(
    tensors: Mapping[str, Array], record: Mapping[str, Any], e: Array
) -> tuple[list[Array], list[Array], Any]:
    """Y_0 .. Y_L, every P_l, and the head's output (None where it has none), from the converted tensors alone."""
    model = record["model"]
    lagged, norm, sites = model["lagged"], model["norm"], len(record["sites"])
    y = np.outer(tensors["entry"], e)
    out, last = [y], np.eye(len(y))[0]
    levels = [tensors[f"sites.{l}.gauge.read"] for l in range(sites)] + [tensors["head.gauge.read"]]
    for l in range(sites):
        base = tensors[f"sites.{l}.coef.base"]
        n = len(base) // 2
        z = base
        if f"sites.{l}.coef.weight" in tensors:
            hat = normed(tensors[f"sites.{l}.gauge.metric"], out[-1], norm["eps"], norm["placement"])
            scale = np.repeat(tensors[f"sites.{l}.coef.scale"], n)
            z = scale * (tensors[f"sites.{l}.coef.weight"] @ hat) + base
        p, r = applied(model["read"], z[:n]), applied(model["write"], z[n:])
        read = (last if lagged else p) @ levels[l]
        last = p
        gates, write = tensors[f"sites.{l}.gates"], tensors[f"sites.{l}.gauge.write"]
        if record["norm_gate"] is not None:
            gates = gates * np.sqrt(n) / np.linalg.norm(gates)
        out.append(gates[:, None] * out[-1] + np.outer(write @ r, branch(l, read @ out[-1])))
    return out, levels, head(tensors, record, out[-1], last)


def head(tensors: Mapping[str, Array], record: Mapping[str, Any], y: Array, last: Array) -> Any:
    kind = record["model"]["head"]["kind"]
    if kind == "lagged":
        return (last @ tensors["head.gauge.read"]) @ y
    if "head.linear" in tensors:
        return tensors["head.linear"] @ y
    if kind != "gate":
        return None
    hat = normed(tensors["head.gauge.metric"], y, record["model"]["head_norm_eps"], "inside")
    c = applied(
        record["model"]["head"]["map"], tensors["head.scale"] * (tensors["head.weight"] @ hat) + tensors["head.base"]
    )
    return (c @ tensors["head.gauge.read"]) @ y


def normed(metric: Array, y: Array, eps: float, placement: str) -> Array:
    """vec Y over what vec X is divided by, ||X|| = ||T Y||."""
    square = ((metric @ y) ** 2).mean()
    root = {
        "inside": np.sqrt(square + eps),
        "outside": np.sqrt(square) + eps,
        "clamp": max(np.sqrt(square), eps),
    }
    return y.reshape(-1) / root[placement]


def applied(kind: Mapping[str, Any], z: Array) -> Array:
    made = {"sigmoid": sigmoid, "softmax": lambda v: np.exp(v) / np.exp(v).sum(), "linear": lambda v: v}
    return kind["mult"] * made[kind["kind"]](z) + kind["eps"]
