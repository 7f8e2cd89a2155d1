"""Bytes a token at n = 4, d = 1024 against the least possible; the counter against kernels counted by hand."""

from __future__ import annotations

import pytest
from planted_runs import planted

pytest.importorskip("triton")

from streamgauge.kernels import traffic
from streamgauge.kernels.traffic import Slope

N, D, SIZE = 4, 1024, 2
C = D * SIZE
PASSES = ["read", "write full", "write diag", "write norm", "write identity", "coefficients mixer"]
SITES = ["site full", "site identity"]


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], Slope]:
    return {(row.name, row.direction): row for row in traffic.table(N, D, PASSES + SITES)}


@pytest.mark.parametrize(
    ("name", "direction", "floor", "factor"),
    [
        ("read", "forward", (N + 1) * C + 4 * N, 1.02),
        ("read", "backward", (2 * N + 1) * C + 8 * N, 1.02),
        ("write full", "forward", (2 * N + 1) * C + 4 * (N * N + N), 1.02),
        ("write diag", "forward", (2 * N + 1) * C + 8 * N, 1.02),
        ("write norm", "forward", (2 * N + 1) * C + 8 * N, 1.02),
        ("write identity", "forward", (2 * N + 1) * C + 4 * N, 1.02),
        ("write full", "backward", (3 * N + 2) * C + 8 * (N * N + N), 1.02),
        ("write diag", "backward", (3 * N + 2) * C + 16 * N, 1.02),
        ("write norm", "backward", (3 * N + 2) * C + 16 * N, 1.02),
        ("write identity", "backward", (N + 2) * C + 8 * N, 1.02),
        ("coefficients mixer", "forward", N * C + 4 * (N * N + 2 * N), 1.05),
        # X is read three times, by the projection, the read and the write
        ("site full", "forward", (4 * N + 2) * C, 1.03),
        ("site full", "backward", (6 * N + 4) * C, 1.03),
        ("site identity", "backward", (5 * N + 4) * C, 1.03),
    ],
)
def test_floors(
    measured: dict[tuple[str, str], Slope], name: str, direction: str, floor: float, factor: float
) -> None:
    row = measured[name, direction]
    assert floor * 0.999 <= row.per_token <= factor * floor, row
    assert row.floor == floor


def test_read_and_coefficients_backward_is_two_streaming_passes(
    measured: dict[tuple[str, str], Slope],
) -> None:
    """What of a site's backward is not the write's: a pass for dp, and a pass that adds everything into dX."""
    row = measured["site full", "backward"]
    rest = sum(bytes_ for kernel, bytes_ in row.launches if "write" not in kernel)
    coefficients = 4 * (2 * N + N * N)
    # dh and the mixer come once for each slice of the width: that is the 3 % of the whole site
    assert rest <= (4 * N + 2) * C + 4 * coefficients + 0.03 * (6 * N + 4) * C
    assert not any("torch" in kernel and bytes_ for kernel, bytes_ in row.launches)


def test_weights_are_apart(measured: dict[tuple[str, str], Slope]) -> None:
    rows = N * (N + 2)
    assert measured["read", "forward"].weights == 0
    # the weight once, scale and base
    assert measured["coefficients mixer", "forward"].weights == 4 * (rows * N * D + 2 * rows)
    assert measured["site full", "backward"].weights >= 2 * 4 * rows * N * D


def test_counter_against_hand_counts() -> None:
    """Masked lanes move nothing; a second read of the same bytes counts again, but for a weight."""
    found = planted("bytes", interpret=True)
    assert found["False"] == [{"x": 40, "weight": 8}, {"out": 40}, 80, 4]
    assert found["True"] == [{"x": 80, "weight": 8}, {"out": 40}, 120, 4]
    assert found["torch"] == [["(torch) aten.clone.default", 80]]


def test_counting_needs_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "INTERPRETED", False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"), traffic.counted():
        pass
