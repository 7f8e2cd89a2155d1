"""The byte model a second time: float64 numpy, token by token, written from the equations and not from the code.

Everything is an explicit sum over named indices; nothing of streamgauge is imported.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any


def sigmoid(z: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-np.asarray(z, dtype=np.float64)))


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return weight * x / math.sqrt(sum(float(v) ** 2 for v in x) / len(x) + eps)


def deepseek_mixer(logits: Array, iterations: int = 20, eps: float = 1e-6) -> Array:
    """comb^T with comb = row softmax + eps, columns, then 19 times rows, columns; every sum + eps."""
    n = len(logits)
    comb = np.array([[math.exp(v - max(row)) for v in row] for row in logits])
    comb = np.array([row / sum(row) + eps for row in comb])
    for sweep in range(iterations):
        if sweep:
            comb = np.array([row / (sum(row) + eps) for row in comb])
        comb = np.array(
            [[comb[j, k] / (sum(comb[i, k] for i in range(n)) + eps) for k in range(n)] for j in range(n)]
        )
    return comb.T


def megatron_mixer(logits: Array, iterations: int = 20, eps: float = 1e-6) -> Array:
    """(exp(logits - row maximum), 20 times rows, columns, every sum at least eps), transposed."""
    s = np.array([[math.exp(v - max(row)) for v in row] for row in logits])
    for _ in range(iterations):
        s = np.array([row / max(sum(row), eps) for row in s])
        s = np.array([column / max(sum(column), eps) for column in s.T]).T
    return s.T


def norm_factor(g: Array, eps: float, cap: float | None) -> float:
    norm = math.sqrt(sum(float(v) ** 2 for v in g))
    if norm == 0:
        return 1.0
    c = math.sqrt(len(g)) / (norm + eps)
    return c if cap is None else min(c, cap)


def carry(t: dict[str, Array], l: int, c: dict[str, Any]) -> Array:
    """A_l from the tensors of site l."""
    n, rule = c["streams"], c["residual"]
    if rule in ("hc", "mhc"):
        if f"sites.{l}.mixer.matrix" in t:
            return t[f"sites.{l}.mixer.matrix"]
        made = {"deepseek-v4": deepseek_mixer, "megatron-dev": megatron_mixer}[c["recipe"]]
        return made(t[f"sites.{l}.mixer.logits"])
    if rule in ("residual", "ihc"):
        return np.eye(n)
    g = t[f"sites.{l}.gates"]
    if rule == "mean-gated":
        return np.array([[(1 - g) / n + (g if i == j else 0.0) for j in range(n)] for i in range(n)])
    if rule == "gated":
        return np.diag(g)
    gate = c["norm_gate"] or {"eps": 0.0, "cap": None}
    return norm_factor(g, gate["eps"], gate["cap"]) * np.diag(g)


def controller(t: dict[str, Array], place: str, x: Array, groups: int, rms_eps: float) -> Array:
    """z of one token: x is (n, d)."""
    n, d = x.shape
    base = t[f"{place}.base"]
    if f"{place}.weight" not in t:
        return base
    prefix = place.rsplit(".", 1)[0] if place.endswith(".coef") else place
    metric = t.get(f"{prefix}.gauge.metric", np.eye(n))
    measured = [[sum(metric[s, u] * x[u, c] for u in range(n)) for c in range(d)] for s in range(n)]
    rms = math.sqrt(sum(v * v for row in measured for v in row) / (n * d) + rms_eps)
    z = np.empty(groups * n)
    for m in range(groups * n):
        dot = sum(t[f"{place}.weight"][m, s * d + c] * x[s, c] for s in range(n) for c in range(d))
        z[m] = t[f"{place}.scale"][m // n] * dot / rms + base[m]
    return z


def reads_writes(t: dict[str, Array], l: int, x: Array, c: dict[str, Any]) -> tuple[Array, Array]:
    n = c["streams"]
    if c["residual"] == "residual":
        return np.ones(n), np.ones(n)
    z = controller(t, f"sites.{l}.coef", x, 2, c["rms_eps"])
    p, r = sigmoid(z[:n]) + c["hc_eps"], c["post_mult"] * sigmoid(z[n:])
    if c["gauge"]:
        p, r = p @ t[f"sites.{l}.gauge.read"], t[f"sites.{l}.gauge.write"] @ r
    return p, r


def attention(t: dict[str, Array], place: str, u: Array, c: dict[str, Any]) -> Array:
    """Causal attention of the sequence u (T, d), rotary positions, head by head."""
    length, d = u.shape
    heads = c["heads"]
    size = d // heads
    half = size // 2
    normed = np.array([rms_norm(row, t[f"{place}.norm.weight"], c["rms_eps"]) for row in u])
    qkv = normed @ t[f"{place}.qkv.weight"].T

    def rotated(vector: Array, position: int) -> Array:
        out = np.empty(size)
        for i in range(half):
            angle = position * 10000.0 ** (-i / half)
            a, b = vector[i], vector[half + i]
            out[i] = a * math.cos(angle) - b * math.sin(angle)
            out[half + i] = a * math.sin(angle) + b * math.cos(angle)
        return out

    joined = np.zeros((length, d))
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        q, k, v = (qkv[:, offset * d :][:, part] for offset in range(3))
        for i in range(length):
            scores = [float(rotated(q[i], i) @ rotated(k[j], j)) / math.sqrt(size) for j in range(i + 1)]
            weights = np.exp(np.array(scores) - max(scores))
            joined[i, part] = (weights / weights.sum()) @ v[: i + 1]
    return joined @ t[f"{place}.out.weight"].T


def mlp(t: dict[str, Array], place: str, u: Array, c: dict[str, Any]) -> Array:
    normed = np.array([rms_norm(row, t[f"{place}.norm.weight"], c["rms_eps"]) for row in u])
    gate = normed @ t[f"{place}.gate.weight"].T
    return (gate * sigmoid(gate) * (normed @ t[f"{place}.up.weight"].T)) @ t[f"{place}.down.weight"].T


def states(t: dict[str, Array], c: dict[str, Any], tokens: list[int]) -> list[Array]:
    """[X_0, .., X_L] of one sequence, each (T, n, d)."""
    n = c["streams"]
    entry = t["entry"] if c["entry"] == "free" else np.ones(n)
    x = np.array([np.outer(entry, t["embed.weight"][token]) for token in tokens])
    out = [x]
    for step in range(len(c["sites"]) * c["loops"]):
        l = step % len(c["sites"])
        pairs = [reads_writes(t, l, token_state, c) for token_state in x]
        u = np.array([p @ token_state for (p, _), token_state in zip(pairs, x)])
        branch = {"attention": attention, "mlp": mlp}[c["sites"][l]]
        y = branch(t, f"sites.{l}.branch", u, c)
        a = carry(t, l, c)
        x = np.array([a @ token_state + np.outer(r, y_i) for (_, r), token_state, y_i in zip(pairs, x, y)])
        out.append(x)
    return out


def logits(t: dict[str, Array], c: dict[str, Any], tokens: list[int]) -> Array:
    """(T, vocab) of one sequence."""
    n = c["streams"]
    rows = []
    for x in states(t, c, tokens)[-1]:
        if c["readout"] == "gate":
            weight = sigmoid(controller(t, "head", x, 1, c["rms_eps"])) + c["hc_eps"]
            weight = weight @ t["head.gauge.read"] if c["gauge"] else weight
        elif c["readout"] == "linear":
            weight = t["head.linear"]
        else:
            weight = np.full(n, 1.0 if c["readout"] == "sum" else 1.0 / n)
        rows.append(t["lm_head.weight"] @ rms_norm(weight @ x, t["final_norm.weight"], c["rms_eps"]))
    return np.array(rows)
