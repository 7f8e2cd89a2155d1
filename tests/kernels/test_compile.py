"""What the compiler makes of every kernel for a GPU that is not here, and what its text must never say."""

from __future__ import annotations

import pytest
from planted_runs import planted

pytest.importorskip("triton")

from streamgauge.kernels import compile as cross
from streamgauge.kernels import processes
from streamgauge.kernels.compile import Compiled
from streamgauge.kernels.situations import SITUATIONS


@pytest.fixture(scope="module")
def hopper() -> list[Compiled]:
    return cross.table((90,))


def test_no_spills_at_four_streams(hopper: list[Compiled]) -> None:
    assert [(row.situation, row.kernel, row.spills, row.local) for row in hopper if row.spills or row.local] == []
    assert {row.verdict for row in hopper} == {"ok"}
    assert all(0 < row.registers <= 255 and row.shared <= 227 * 1024 for row in hopper)


def test_texts(hopper: list[Compiled]) -> None:
    assert [(row.situation, row.kernel, row.faults) for row in hopper if row.faults] == []


def test_every_kernel_is_there(hopper: list[Compiled]) -> None:
    """Every ``*_kernel`` of the triton modules is compiled, the write in every mode."""
    import inspect
    from importlib import import_module

    parts = ("read", "write", "sinkhorn", "coefficients", "streams")
    modules = [import_module(f"streamgauge.kernels.triton_{part}") for part in parts]
    named = {name for module in modules for name, _ in inspect.getmembers(module) if name.endswith("_kernel")}
    assert {row.kernel for row in hopper} == named
    assert {row.situation for row in hopper} <= {situation.name for situation in SITUATIONS}
    modes = {row.situation for row in hopper if row.kernel == "write_forward_kernel"}
    assert modes == {"write full", "write diag", "write norm", "write identity"}


def test_the_table_says_what_spills() -> None:
    """Sixteen streams with a mixer of each token: 288 rows, whose sums are more than a program's registers."""
    rows = cross.table((90,), n=16, d=4096, names=["coefficients mixer"])
    (row,) = (row for row in rows if row.kernel == "streams_backward_kernel")
    assert row.local > 0
    assert row.verdict == "spills: slow"


@pytest.mark.parametrize(("capability", "n", "d"), [(80, 3, 100), (100, 4, 4096)])
def test_other_capabilities_and_streams(capability: int, n: int, d: int) -> None:
    rows = cross.table((capability,), n=n, d=d, names=["site norm"])
    assert len(rows) == 8
    assert [(row.kernel, row.faults) for row in rows if row.faults] == []


def test_a_process_that_takes_too_long_is_one_line() -> None:
    question = {"capabilities": [90], "names": ["read"]}
    with pytest.raises(RuntimeError, match=r"^streamgauge.kernels.compile: not done after 0.05 s, for {.*}$"):
        processes.ask("streamgauge.kernels.compile", question, interpret=False, patience=0.05)


def test_planted_faults_are_found() -> None:
    found = planted("texts", interpret=False)
    assert found["clean_kernel"] == []
    for kernel, words in {
        "narrow_kernel": "a product in 32 bits",
        "narrow_product_kernel": "a product in 32 bits",
        "atomic_kernel": "an atomic",
        "unfilled_kernel": "a masked load without other",
        "dot_kernel": "a dot with a dimension of 8",
    }.items():
        assert any(fault.startswith(words) for fault in found[kernel]), (kernel, found[kernel])
