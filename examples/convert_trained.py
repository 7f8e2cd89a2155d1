"""Three normal forms of one trained network, run in three precisions: why the graded form is the one to convert to.

python examples/convert_trained.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamgauge as sg

source = Path(__file__).parent / "data" / "static"
graded, proof = None, None
print("form        cond(P)   float64   float32 ratio   bfloat16 ratio")
with tempfile.TemporaryDirectory() as folder:
    for form in ("identity", "binary", "graded"):
        converted = Path(folder) / form
        made = sg.convert(source, converted, form=form, norm=True)
        compared = sg.crosscheck(source, converted, tokens=512)
        exact, single, half = compared.results
        cond = made.form.conditioning.worst
        print(f"{form:9s} {cond:9.3g} {exact.error:9.1e} {single.ratio:15.3g} {half.ratio:16.3g}")
        if form == "graded":
            graded = compared.verdict()
            proof = sg.check(converted / "certificate.json", file=converted, source=source)
            print("graded:", graded.reason, "|", proof.reason)

if not (graded and proof):
    raise SystemExit("the graded form is not the same network")
