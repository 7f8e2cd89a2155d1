"""Which backend runs, and the one clear line where one cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from streamgauge.kernels import dispatch, reference
from streamgauge.kernels.activation import Activation
from streamgauge.kernels.site import Controller, site


def said(code: str, **environment: str) -> str:
    """The last line of a failing fresh process."""
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**inherited, **environment}
    )
    assert ran.returncode
    return ran.stderr.strip().splitlines()[-1]


READ = (
    "import torch; from streamgauge.kernels import dispatch;"
    "dispatch.read(torch.ones(2, 3, 4), torch.ones(3), backend='triton')"
)


def test_auto_is_the_reference_on_the_cpu() -> None:
    x, p = torch.randn(5, 3, 7), torch.randn(5, 3)
    assert torch.equal(dispatch.read(x, p), reference.read(x, p))
    z = torch.randn(5, 3, 3)
    recipe = {"order": ("rows", "columns"), "start": "exp", "start_eps": 0.0, "eps": 0.0, "eps_mode": "none"}
    assert torch.equal(
        dispatch.sinkhorn(z, iterations=4, **recipe),
        reference.sinkhorn(z, iterations=4, **recipe),  # type: ignore[arg-type]
    )
    assert not dispatch.takes_kernels("read", x.double(), "auto")


def test_reference_takes_float64_and_any_number_of_streams() -> None:
    x, p = torch.randn(2, 20, 4).double(), torch.randn(2, 20).double()
    assert dispatch.read(x, p, backend="reference").dtype == torch.float64


def test_unknown_backend() -> None:
    with pytest.raises(ValueError, match=r"^read backend: found 'cuda', expected 'auto', 'triton' or 'reference'$"):
        dispatch.read(torch.ones(2, 3, 4), torch.ones(3), backend="cuda")


def test_cpu_tensors_in_a_process_that_compiles() -> None:
    pytest.importorskip("triton")
    line = said(READ)
    assert line == "ValueError: read backend: found cpu tensors, expected cuda (or TRITON_INTERPRET=1 at start)"


def test_no_triton() -> None:
    hide = "import sys; sys.modules['triton'] = None; import importlib.util as u; f = u.find_spec;"
    hide += "u.find_spec = lambda name, *a: None if name == 'triton' else f(name, *a);"
    line = said(hide + READ)
    assert line.startswith("ValueError: read backend: found no triton, expected it installed: pip install")
    auto = hide + READ.replace("'triton')", "'auto')") + "; raise SystemExit('fine')"
    assert said(auto) == "fine"


def test_the_reference_needs_no_triton_import() -> None:
    code = READ.replace("'triton')", "'auto')")
    code += "; import sys; raise SystemExit('imported' if 'triton' in sys.modules else 'absent')"
    assert said(code) == "absent"


def test_no_kernel_is_compiled_again_for_another_number_of_tokens() -> None:
    """Every launch argument that follows from the number of tokens is excluded from specialisation."""
    pytest.importorskip("triton")
    code = """
import importlib, triton
for name in ("read", "write", "sinkhorn", "coefficients", "streams"):
    module = importlib.import_module("streamgauge.kernels.triton_" + name)
    for kernel in vars(module).values():
        if isinstance(kernel, triton.JITFunction) and kernel.__name__.endswith("_kernel"):
            free = {p.name for p in kernel.params if p.do_not_specialize}
            grows = {"tokens", "span", "programs", "splits", "r_step", "carry_step", "p_step"} & set(kernel.arg_names)
            print(kernel.__name__, sorted(grows - free))
raise SystemExit("end")
"""
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=inherited).stdout
    found = dict(line.split(" ", 1) for line in out.splitlines())
    assert len(found) >= 10
    assert set(found.values()) == {"[]"}, found


@pytest.mark.parametrize("mode", ["full", "diag", "norm", "identity"])
def test_the_reference_site_passes_gradcheck(mode: str) -> None:
    n, d = 3, 4
    carry = {"full": "mixer", "diag": "gates", "norm": "gates", "identity": "none"}[mode]
    made = Activation(carry=carry, iterations=2, eps=0.1, start="exp", start_eps=0.0, transpose=True)
    m = made.rows(n)
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, n, d), (m, n * d), (m,), (m,), (n, n), (n, n), (n, n)]
    leaves = [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]

    def run(x: torch.Tensor, w: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        scale, base, metric, gauge_read, gauge_write = rest
        used = Controller(w, scale, base, made, 0.1, metric, gauge_read, gauge_write)
        return site(x, torch.tanh, mode=mode, controller=used, eps=0.1)

    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.parametrize(
    ("field", "value"),
    [("carry", "matrix"), ("order", ("rows", "rows")), ("start", "log"), ("iterations", 0), ("temperature", 0.0)],
)
def test_a_bad_activation_names_its_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^Activation {field}: found"):
        Activation(**{field: value})  # type: ignore[arg-type]
