"""Bytes a token at n = 4, d = 1024 against the least possible; the counter against kernels counted by hand."""

from __future__ import annotations

import pytest
from planted_runs import planted

pytest.importorskip("triton")

from streamgauge.kernels import floors, traffic
from streamgauge.kernels.traffic import Slope

N, D, SIZE = 4, 1024, 2
C = D * SIZE
PASSES = ["read", "write full", "write diag", "write norm", "write identity", "coefficients mixer"]
SITES = ["site full", "site full, metric", "site identity"]


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
        ("site full", "backward", (6 * N + 4) * C, 1.02),
        ("site full, metric", "backward", (6 * N + 4) * C, 1.04),
        ("site identity", "backward", (5 * N + 4) * C, 1.01),
    ],
)
def test_floors(
    measured: dict[tuple[str, str], Slope], name: str, direction: str, floor: float, factor: float
) -> None:
    row = measured[name, direction]
    assert floor * 0.999 <= row.per_token <= factor * floor, row
    assert row.floor == floor


def test_read_and_coefficients_backward(measured: dict[tuple[str, str], Slope]) -> None:
    """What of a site's backward is not the write's: a pass for dp, and a pass that adds everything into dX.

    The figure leaves out rms, and that the second pass runs in slices (4 here): 1.0222 of it, and 1.0167 of what two
    passes can do with the registers of a multiprocessor.
    """
    row = measured["read and coefficients", "backward"]
    whole = dict(measured["site full", "backward"].launches)
    assert dict(row.launches) == {k: whole[k] for k in whole if k != "write_backward_kernel"}
    state, m, mixer = (4 * N + 2) * C, N * (N + 2), N * N
    # the pass for dp writes it; then dp, dr, dA, h, rms come in, and dh / rms and the norm's pull out ..
    finish = 4 * N + 4 * (2 * N + mixer + m + 1) + 4 * (m + 1)
    # .. and those two, p and A come in once for each slice
    assert row.per_token == state + finish + 4 * 4 * (m + 1 + N + mixer)
    assert row.floor == state + 208 == 37072
    assert row.bound == 37272
    assert row.ratio == pytest.approx(1.0222, abs=5e-5)
    assert row.bound_ratio == pytest.approx(1.0167, abs=5e-5)
    assert not any("torch" in kernel and bytes_ for kernel, bytes_ in row.launches)


def test_bound_of_two_passes() -> None:
    """No chip reaches the figure: it leaves out rms.  Fewer registers, more slices: then once beats each."""
    assert floors.streaming_bound(N, D, SIZE, on_chip=1 << 40) == floors.streaming(N, D, SIZE) + 4
    assert floors.slices(N, D) == 2
    assert floors.slices(N, 4 * D) == 6
    bounds = [floors.streaming_bound(N, D, SIZE, on_chip=1 << k) for k in range(13, 20)]
    assert bounds == sorted(bounds, reverse=True)
    state = floors.streaming(N, D, SIZE) - 208
    # 24 slices: h, rms, dr, dA once, dh / rms and pull out, and 45 numbers for each slice
    assert floors.streaming_bound(N, D, SIZE, on_chip=1 << 14) == state + 4 * (45 + 25 + 24 * 45)
    # 2: dp out, and 49 numbers for each
    assert floors.streaming_bound(N, D, SIZE) == state + 4 * (4 + 2 * 49)


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
