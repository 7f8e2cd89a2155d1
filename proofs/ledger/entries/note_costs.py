"""Reading note, sections 6, 7 and 9 to 12: traffic, recomputing, and the numbers of the paper's tables."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

from streamgauge.proofs.ledger.core import Case, Check, Claim
from streamgauge.proofs.ledger.tools import counted, fixed, vanishes, verdict
from streamgauge.theory.cost import hc_traffic, recompute_memory, write_traffic
from streamgauge.theory.verdict import Verdict

PAPER = "arXiv:2512.24880v2"
N, C, L, R = sympy.symbols("n C L r", positive=True)

UNFUSED = {  # operation: (elements read, elements written) per token; table 2 of the paper
    "coefficients": (N * C, N**2 + 2 * N),
    "read": (N * C + N, C),
    "write": (C + N, N * C),
    "mix": (N * C + N**2, N * C),
    "merge": (2 * N * C, N * C),
}
STATED_READS = (5 * N + 1) * C + N**2 + 2 * N
STATED_WRITES = (3 * N + 1) * C + N**2 + 2 * N


def _traffic(value: tuple[dict[str, tuple[Any, Any]], Any, Any]) -> Verdict:
    """The operations' elements add up to the stated formulas, and to what the package's cost model counts."""
    operations, reads, writes = value
    miss = sympy.Matrix(
        [sum(r for r, _ in operations.values()) - reads, sum(w for _, w in operations.values()) - writes]
    )
    found = vanishes(miss, "sum of the operations minus the formula")
    model = hc_traffic(4, 10)
    numbers = (int(reads.subs({N: 4, C: 10})), int(writes.subs({N: 4, C: 10})))
    if found and (model.reads, model.writes) != numbers:
        return verdict(False, f"cost model has {model}, the formulas {numbers}", numbers=numbers)
    return found


def _ratio(value: tuple[int, str]) -> Verdict:
    n, stated = value
    found = Fraction(8 * n + 2, 3)
    reason = f"n = {n}: {8 * n + 2}C against 3C is {float(found):.6g}, stated {stated}"
    return verdict(f"{float(found):.1f}" == stated, reason, ratio=found)


Z = sympy.symbols("z1:5")
GAMMA = sympy.symbols("g1:5")
SCALES = sympy.symbols("r1:5")
WEIGHT = sympy.Matrix(4, 3, sympy.symbols("w1:13"))


def _commutes(scales: tuple[Any, ...]) -> Verdict:
    """Divide every entry by its scale and project, against project and divide by the first scale."""
    inside = sympy.Matrix([[z * g / s for z, g, s in zip(Z, GAMMA, scales)]]) * WEIGHT
    outside = sympy.Matrix([[z * g for z, g in zip(Z, GAMMA)]]) * WEIGHT / scales[0]
    return vanishes(inside - outside, "division before minus division after the projection")


def _fused(value: tuple[int, int, int, str]) -> Verdict:
    n, before, after, percent = value
    apart = [UNFUSED[name] for name in ("write", "mix", "merge")]
    wide = sum(sympy.Poly((r + w).subs(N, n), C).coeff_monomial(C) for r, w in apart)
    one = 2 * n + 1  # n streams and one branch output in, n streams out
    model = tuple(write_traffic(n, 1, fused=f).total for f in (False, True))
    saved = f"{float(100 * (1 - Fraction(one, int(wide)))):.0f}"
    reason = f"n = {n}: {wide}C falls to {one}C, -{saved} %; stated {before}C, {after}C, -{percent} %"
    ok = (int(wide), one, saved) == (before, after, percent) and model == (before, after)
    return verdict(ok, reason, apart=int(wide), fused=one, saved=saved)


def _memory(value: tuple[int, int, int, int]) -> Verdict:
    """Count it: a wide state kept at every group's start, n + 2 vectors rebuilt at each site of the largest group."""
    n, sites, group, stated = value
    groups = [range(low, min(low + group, sites)) for low in range(0, sites, group)]
    found = n * len(groups) + (n + 2) * group
    longest = max(len(g) for g in groups)
    reason = f"n={n}, L={sites}, r={group}: {len(groups)} groups of at most {longest}, M = {found}C, stated {stated}C"
    return verdict(found == stated, reason, groups=len(groups), memory=found)


def _memory_case(i: int) -> Case:
    n, sites, group = 2 + i % 4, 10 + 7 * i, 1 + i % 9
    return Case(
        f"n={n}, L={sites}, r={group}", (n, sites, group, recompute_memory(min(group, sites), n=n, sites=sites))
    )


def _stationary(value: Any) -> Verdict:
    """M'(r*) = 0 and M'' = 2nCL/r^3 for the smooth M(r) = nCL/r + (n+2)Cr."""
    m = N * C * L / R + (N + 2) * C * R
    first = sympy.simplify(m.diff(R).subs(R, value))
    second = sympy.simplify(m.diff(R, 2) - 2 * N * C * L / R**3)
    return vanishes(sympy.Matrix([first, second]), "M'(r*), M'' - 2nCL/r^3")


def _optimum(value: tuple[int, int, int, int]) -> Verdict:
    n, sites, group, memory = value
    table = {r: n * -(-sites // r) + (n + 2) * r for r in range(1, sites + 1)}
    best = min(table, key=lambda r: (table[r], r))
    reason = (
        f"n={n}, L={sites}: best r = {best} with M = {table[best]}C (neighbours {table[best - 1]}, {table[best + 1]})"
    )
    return verdict((best, table[best]) == (group, memory), reason, best=best, memory=table[best])


TABLE4 = {  # task: (baseline, HC, mHC), tenths of a point
    "BBH": (438, 489, 510),
    "DROP": (470, 516, 539),
    "GSM8K": (467, 532, 538),
    "HellaSwag": (737, 743, 747),
    "MATH": (220, 264, 260),
    "MMLU": (590, 630, 634),
    "PIQA": (785, 799, 805),
    "TriviaQA": (543, 563, 576),
}
OVER_HC = (21, 23, 6, 4, -4, 4, 6, 13)
OVER_BASE = (72, 69, 71, 10, 40, 44, 20, 33)


def _differences(value: tuple[tuple[int, ...], tuple[int, ...]]) -> Verdict:
    over_hc, over_base = value
    found_hc = tuple(m - h for _, h, m in TABLE4.values())
    found_base = tuple(m - b for b, _, m in TABLE4.values())
    ok = (found_hc, found_base) == (over_hc, over_base)
    return verdict(
        ok, f"tenths over HC {found_hc}, over the baseline {found_base}", over_hc=found_hc, over_base=found_base
    )


def _mean_gain(stated: Fraction) -> Verdict:
    found = Fraction(sum(m - b for b, _, m in TABLE4.values()), 10 * len(TABLE4))
    return verdict(found == stated, f"mean gain over the baseline {float(found)}, stated {float(stated)}", mean=found)


def _signs(value: tuple[int, int]) -> Verdict:
    gains = {task: m - h for task, (_, h, m) in TABLE4.items()}
    found = (sum(x > 0 for x in gains.values()), sum(x < 0 for x in gains.values()))
    return verdict(found == value, f"against HC {found[0]} tasks gain, {found[1]} lose", found=found, gains=gains)


def _sublayers(value: tuple[int, int, int]) -> Verdict:
    blocks, each, stated = value
    return verdict(blocks * each == stated, f"{blocks} blocks of {each} are {blocks * each} sublayers", stated=stated)


def _quoted(id_: str, section: str, statement: str, where: str, kind: str = "empirical", note: str = "") -> Claim:
    return Claim(id_, "N", section, statement, kind, "literature", source=f"{PAPER}, {where}", note=note)


CLAIMS = (
    _quoted("N24", "6", r"Dynamic scales start at 0.01, Sinkhorn runs 20 iterations, $n = 4$.", "appendix A.1"),
    _quoted(
        "N31",
        "7",
        r"After 20 iterations the composite backward gain reaches about 1.6; for HC the same number peaks near 3000.",
        "figures 3 and 7",
        "number",
    ),
    Claim(
        "N37",
        "N",
        "9",
        r"Unfused hyper-connections read $(5n+1)C + n^2 + 2n$ and write $(3n+1)C + n^2 + 2n$ elements per token.",
        "number",
        "symbolic",
        Check(
            "The five operations' elements added up, for symbolic n and C.",
            _traffic,
            fixed(Case("table 2", (UNFUSED, STATED_READS, STATED_WRITES))),
            Case(
                "without the merge",
                ({k: v for k, v in UNFUSED.items() if k != "merge"}, STATED_READS, STATED_WRITES),
            ),
        ),
        source=f"{PAPER}, table 2",
    ),
    Claim(
        "N38",
        "N",
        "9",
        r"For $n = 4$ that is $34C$ against $3C$ of the plain residual: about 11.3 times.",
        "number",
        "exact certificate",
        Check(
            "Exact ratio, rounded to one digit.",
            _ratio,
            fixed(Case("n = 4", (4, "11.3"))),
            Case("n = 2", (2, "11.3")),
        ),
    ),
    Claim(
        "N39",
        "N",
        "9.1",
        r"The RMS division commutes with the projection: $((z \odot \gamma)/r)\,\Phi = (z\,[diag(\gamma)\Phi])/r$.",
        "theorem",
        "symbolic",
        Check(
            "Symbolic vector of four entries, three outputs.",
            _commutes,
            fixed(Case("one scale", (SCALES[0],) * 4)),
            Case("a scale per stream", (SCALES[0], SCALES[0], SCALES[1], SCALES[1])),
        ),
        hypotheses=("one scale r for the whole flattened vector",),
    ),
    Claim(
        "N40",
        "N",
        "9.2",
        r"Fusing mix, write and merge turns $(3n+1)C + 3nC$ into $(n+1)C + nC$: "
        "for $n = 4$ from $25C$ to $9C$, -64 %.",
        "number",
        "exact certificate",
        Check(
            "The operations' wide elements, counted.",
            _fused,
            fixed(Case("n = 4", (4, 25, 9, "64"))),
            Case("n = 2", (2, 25, 9, "64")),
        ),
    ),
    _quoted("N41", "9.2", "State in bfloat16, projection in tfloat32, coefficients in float32.", "eqs. (10) to (19)"),
    Claim(
        "N42",
        "N",
        "10",
        r"Recomputing in groups of $r$ sites peaks at $M(r) = nC\lceil L/r \rceil + (n+2)Cr$.",
        "definition",
        "exact certificate",
        Check(
            "Groups laid out and counted.",
            _memory,
            counted(8, 40, _memory_case),
            Case("rounded down", (4, 10, 4, 4 * (10 // 4) + 6 * 4)),
        ),
        source=f"{PAPER}, eqs. (20), (21)",
    ),
    Claim(
        "N43",
        "N",
        "10",
        r"The smooth $M$ has its minimum at $r^* = \sqrt{nL/(n+2)}$, with second derivative $2nCL/r^3 > 0$.",
        "theorem",
        "symbolic",
        Check(
            "Derivatives for symbolic n, C, L.",
            _stationary,
            fixed(Case("r*", sympy.sqrt(N * L / (N + 2)))),
            Case("n + 1 in place of n + 2", sympy.sqrt(N * L / (N + 1))),
        ),
        hypotheses=("$n, L, C > 0$; $r$ real, the ceiling left out",),
    ),
    Claim(
        "N44",
        "N",
        "10",
        r"(added) Whole groups: for $L = 60$, $n = 4$ the best size is 6 with $M = 76C$.",
        "number",
        "exact certificate",
        Check(
            "Every group size tried.", _optimum, fixed(Case("L = 60", (4, 60, 6, 76))), Case("size 7", (4, 60, 7, 78))
        ),
    ),
    _quoted("N45", "11", "The optimised training overhead is 6.7 %.", "the paper's system section", "number"),
    _quoted(
        "N46",
        "12",
        "Models of 2.97B, 9.18B and 27.0B parameters (612M, 1.66B, 4.14B active), 12, 18 and 30 blocks of width "
        "1280, 1920 and 2560, trained on 39.3B, 105B and 262B tokens; the small one also on 1.05T.",
        "table 5",
        "number",
    ),
    Claim(
        "N47",
        "N",
        "12.1",
        "Table 4: the differences of mHC to HC and to the baseline, task by task.",
        "number",
        "exact certificate",
        Check(
            "Tenths of a point as integers.",
            _differences,
            fixed(Case("table 4", (OVER_HC, OVER_BASE))),
            Case("sign of MATH turned", (tuple(abs(x) for x in OVER_HC), OVER_BASE)),
        ),
        source=f"{PAPER}, table 4",
    ),
    Claim(
        "N48",
        "N",
        "12.1",
        "The unweighted mean gain over the baseline is 4.4875 points.",
        "number",
        "exact certificate",
        Check(
            "Exact mean.",
            _mean_gain,
            fixed(Case("mean", Fraction(44875, 10000))),
            Case("rounded to 4.5", Fraction(9, 2)),
        ),
    ),
    Claim(
        "N49",
        "N",
        "12.1",
        "Against HC seven of the eight tasks gain and one (MATH, -0.4) loses.",
        "number",
        "exact certificate",
        Check("Signs counted.", _signs, fixed(Case("seven to one", (7, 1))), Case("all eight", (8, 0))),
    ),
    _quoted(
        "N50",
        "12.2",
        "The final loss is 0.021 below the baseline's; HC becomes unstable near step 12000.",
        "figures 2 and 5",
    ),
    Claim(
        "N51",
        "N",
        "10",
        "Thirty blocks are sixty residual sublayers: attention and FFN each.",
        "number",
        "exact certificate",
        Check("Product.", _sublayers, fixed(Case("30 blocks", (30, 2, 60))), Case("27 blocks", (27, 2, 60))),
    ),
)
