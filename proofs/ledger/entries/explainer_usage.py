"""E24 to E38: the explainer's coefficients, costs and place in a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import flint
import numpy as np

from streamgauge.proofs.ledger.core import Case, Check, Claim, Repair
from streamgauge.proofs.ledger.operations import hyper_site, residual_site
from streamgauge.proofs.ledger.sinkhorn_checks import CODE
from streamgauge.proofs.ledger.tools import Network, column, counted, fixed, row
from streamgauge.proofs.ledger.usage_checks import (
    COUNTING,
    Cache,
    _groups,
    coefficients,
    costs_more,
    count_is,
    grows_at_most,
    memory_of_streams,
    mixing_matters,
    product_operations,
    projection,
    read_bounded_by_input,
    read_bounded_by_sum,
    read_gate,
    routes,
    sigma,
    sweep_operations,
    write_gate,
)
from streamgauge.theory import exact
from streamgauge.theory.doubly import random_doubly_stochastic, uniform


def _network(seed: int, mixers: Sequence[flint.fmpq_mat] | None = None) -> Network:
    n, sites = 2 + seed % 3, 3
    dice = np.random.default_rng(seed)

    def positive(high: int) -> list[Fraction]:
        return [Fraction(int(x), 10) for x in dice.choice(range(1, high), n, replace=False)]  # never all equal

    if mixers is None:
        mixers = [(random_doubly_stochastic(n, seed=seed * 10 + l) + uniform(n)) / 2 for l in range(sites)]
    reads = tuple(row(*positive(10)) for _ in mixers)
    writes = tuple(column(*positive(20)) for _ in mixers)
    return Network(tuple(mixers), reads, writes, column(*[1] * n), row(*[1] * n))


def _named(make: Callable[[int], Network]) -> Callable[[int], Case]:
    return lambda i: Case(f"network {i}", make(i))


_SIZES = (4, 8, 16, 32, 64)
_PARAMETERS_N = [(n, projection(n, 8).size) for n in _SIZES]
_PARAMETERS_D = [(d, projection(4, d).size) for d in _SIZES]
_EQUAL, _MIXED = np.ones((4, 3)), np.array([[1.0, -2], [3, 0], [-1, 2], [0, 1]])

CLAIMS = (
    Claim(
        "E24",
        "E",
        "mathematical form; interview 7",
        r"A site has $n(n+2)$ coefficients per token, 24 for n = 4.",
        "number",
        "exact certificate",
        Check(
            "Lists them: n reads, n writes, n^2 mixing logits.",
            count_is,
            fixed(
                Case("n = 4", ("coefficients", len(coefficients(4)), 24)),
                *(Case(f"n = {n}", ("coefficients", len(coefficients(n)), n * (n + 2))) for n in range(1, 9)),
            ),
            Case("without the reads", ("coefficients", len(coefficients(4)), 20)),
        ),
    ),
    Claim(
        "E25",
        "E",
        "mathematical form",
        r"The projection that makes them is $n(n+2) \times nd$, $96 d$ parameters for n = 4.",
        "number",
        "exact certificate",
        Check(
            "Size of a matrix from the vectorised state to the listed coefficients.",
            count_is,
            fixed(
                *(Case(f"n = 4, d = {d}", ("parameters", projection(4, d).size, 96 * d)) for d in (1, 7, 64)),
                *(
                    Case(f"n = {n}, d = 5", ("parameters", projection(n, 5).size, n * n * (n + 2) * 5))
                    for n in (2, 3)
                ),
            ),
            Case("a projection of one stream only", ("parameters", projection(4, 7).size, 24 * 7)),
        ),
    ),
    Claim(
        "E26",
        "E",
        "width and parallelism",
        r"The new parameters are $O(n^2 d)$ per site.",
        "number",
        "exact certificate",
        Check(
            "Counts the projection's parameters while d grows (order d), then while n grows (order n^2).",
            grows_at_most,
            fixed(
                Case("in d, order 1", ("parameters", _PARAMETERS_D, 1)),
                Case("in n, order 2", ("parameters", _PARAMETERS_N, 2)),
            ),
            Case("in n, order 1", ("parameters", _PARAMETERS_N, 1)),
        ),
        note=r"$n^2 (n+2) d$ is of order $n^3 d$ by the essay's own shape (E25); KromHC (arXiv:2601.21579) states "
        "O(n^3 C) as well.",
    ),
    Claim(
        "E27",
        "E",
        "width and parallelism",
        r"Beside the projection a site has $3 + n(n+2)$ scales and biases.",
        "number",
        "exact certificate",
        Check(
            "A scale for each of the three groups and a bias for each listed coefficient.",
            count_is,
            fixed(
                *(
                    Case(f"n = {n}", ("scales and biases", len(_groups(n)) + len(coefficients(n)), 3 + n * (n + 2)))
                    for n in (2, 4, 8)
                ),
            ),
            Case("biases only", ("scales and biases", len(_groups(4)) + len(coefficients(4)), 24)),
        ),
    ),
    Claim(
        "E28",
        "E",
        "Sinkhorn",
        r"The reads are $\mathrm{pre}_j = \sigma(s_0 m_j + b_j) + \epsilon$.",
        "definition",
        "numeric reproduction",
        Check(
            "Range and positivity of the gate in float64 for logits of any size.",
            read_gate,
            fixed(*(Case(f"logit {z}", (float(z), 1e-6)) for z in (-1000, -40, -1, 0, 1, 40, 1000))),
            Case("no eps at logit -1000", (-1000.0, 0.0)),
        ),
        source=CODE,
        note="The eps keeps every stream read where the sigmoid underflows; it also lets a read exceed 1 (E30).",
    ),
    Claim(
        "E29",
        "E",
        "Sinkhorn; interview 6",
        r"The writes are $2\sigma(\cdot)$: about 1 at the start, free to shrink or to amplify.",
        "definition",
        "symbolic",
        Check(
            "Value, slope and range of c sigma.",
            write_gate,
            fixed(Case("c = 2", 2)),
            Case("c = 1", 1),
        ),
        hypotheses=("logits near 0 at the start: bias 0 and a small scale",),
    ),
    Claim(
        "E30",
        "E",
        "interview 6",
        r"A read limits each stream's contribution to (0, 1), so the branch's input is not amplified.",
        "qualitative",
        "numeric reproduction",
        Check(
            "Reads in (0, 1), and the input's max norm against the largest stream's.",
            read_bounded_by_input,
            fixed(
                Case("reads 1/4", ([0.25] * 4, _MIXED)),
                Case("reads 0.9 on equal streams", ([0.9] * 4, _EQUAL)),
            ),
            Case("one read sigma(20) + 1e-6", ([sigma(20) + 1e-6, 0.1, 0.1, 0.1], _MIXED)),
        ),
        Repair(
            r"Each read lies in $(0, 1 + \epsilon)$ and the input is at most $\sum_j \mathrm{pre}_j \leq "
            r"n(1 + \epsilon)$ times the largest stream, attained by equal streams.",
            Check(
                "The sharper bound on the same and other states.",
                read_bounded_by_sum,
                fixed(
                    Case("reads 0.9 on equal streams", ([0.9] * 4, _EQUAL)),
                    Case("reads up to 1 + eps", ([sigma(20) + 1e-6, 0.1, 0.5, 0.9], _MIXED)),
                ),
                Case("a read of 1.5", ([1.5, 0.1, 0.1, 0.1], _EQUAL)),
            ),
        ),
        note="The branch normalises its input, so the size of the read matters less than its direction.",
    ),
    Claim(
        "E31",
        "E",
        "Sinkhorn",
        r"DeepSeek-V4: n = 4, R = 20, $\epsilon = 10^{-6}$, coefficients in float32.",
        "empirical",
        "literature",
        source=CODE + "; config keys hc_mult = 4, hc_sinkhorn_iters = 20, hc_eps = 1e-6, coefficient tensors in F32",
        note="The released kernel's own default is 10 iterations; the configuration sets 20.",
    ),
    Claim(
        "E32",
        "E",
        "Sinkhorn",
        r"A sweep costs $O(n^2)$ per token.",
        "number",
        "numeric reproduction",
        Check(
            "Counts the operations of a sweep while it runs, for n = 4 to 64.",
            grows_at_most,
            lambda level: iter(
                [Case("in n, order 2", ("operations", [(n, sweep_operations(n)) for n in _SIZES], 2))]
            ),
            Case("a matrix product", ("operations", [(n, product_operations(n)) for n in (4, 8, 16)], 2)),
        ),
        hypotheses=(COUNTING,),
    ),
    Claim(
        "E33",
        "E",
        "width and parallelism",
        "The residual state takes n times the memory and traffic; the key-value cache does not change.",
        "number",
        "numeric reproduction",
        Check(
            "Sizes of the state and of keys and values made from what a site reads.",
            memory_of_streams,
            fixed(*(Case(f"n = {n}", Cache(n, 16, 5, "read")) for n in (2, 4, 8))),
            Case("keys and values from all streams", Cache(4, 16, 5, "streams")),
        ),
        hypotheses=(COUNTING, "keys and values are made from the branch's input"),
    ),
    Claim(
        "E34",
        "E",
        "position and pipeline",
        "The coefficient product overlaps with the branch's main one; in decoding mHC's kernels are launch-bound.",
        "empirical",
        "literature",
        source="Stated by the explainer of deployed inference code; we found no source that can be read.",
    ),
    Claim(
        "E35",
        "E",
        "width and parallelism",
        "The draft models of DeepSeek-V4 and Qwen4-Exp keep the n d wide state.",
        "empirical",
        "literature",
        source="Stated by the explainer of deployed inference code; we found no source that can be read.",
    ),
    Claim(
        "E36",
        "E",
        "interview 10",
        "iHC (Hy4) has reads and writes only, no mixing, no Sinkhorn; the implementations do not interchange.",
        "qualitative",
        "exact certificate",
        Check(
            "Depth kernels with and without the mixers, same reads and writes, exactly.",
            mixing_matters,
            counted(4, 40, _named(_network)),
            Case("identity mixers", _network(0, [exact.identity(2)] * 3)),
        ),
        hypotheses=("the same reads and writes on both sides", "positive mixers"),
        source="Hy4-preview model card and code (hy_v4 in Hugging Face transformers and vLLM)",
        note="As classes of functions they are interchangeable wherever all mixers are static and invertible: the "
        "reads, writes and head change instead (G04). The explainer's sentence is about implementations.",
    ),
    Claim(
        "E37",
        "E",
        "gains and costs; interview 8",
        "mHC saves no arithmetic.",
        "number",
        "numeric reproduction",
        Check(
            "Runs a plain residual site and an mHC site with the same branch on counting numbers.",
            costs_more,
            lambda level: (
                Case(f"n = {n}, d = {d}", (f"n = {n}, d = {d}", hyper_site(n, d, sweeps=3), residual_site(d)))
                for n, d in ((1, 4), (2, 8), (4, 8))
            ),
            Case("a branch of half the width", ("half", residual_site(8, factor=2), residual_site(8))),
        ),
        hypotheses=(COUNTING,),
    ),
    Claim(
        "E38",
        "E",
        "core insight; gains",
        "n streams turn one shared bus into n parallel buses with explicit routing.",
        "qualitative",
        "exact certificate",
        Check(
            "Reads and writes of unit vectors: who receives whose output, for given buses.",
            routes,
            fixed(
                Case("two buses in turn", (2, (0, 1, 0, 1, 0, 1))),
                Case("four buses", (4, (0, 1, 2, 3, 0, 2, 1, 3))),
            ),
            Case("two buses wanted on one stream", (1, (0, 1, 0, 1))),
        ),
        hypotheses=("free reads and writes; sigmoid gates only approach 0 and 1",),
    ),
)
