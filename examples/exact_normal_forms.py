"""A chain of averages in exact arithmetic: no pure iHC form exists, a gated one does, and it can be certified.

python examples/exact_normal_forms.py
"""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

import streamgauge as sg

half = Fraction(1, 2)
average = [[half, half, 0], [half, half, 0], [0, 0, 1]]  # streams 0 and 1 forget what told them apart
rotation = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
chain = sg.Chain([average, rotation, average], entry=[1, 1, 1], readout=[1, 1, 1])

try:  # Theorem 1 needs invertible mixers
    sg.normal_form(chain, "identity")
except sg.InputError as error:
    print("identity form:", error)

form = sg.normal_form(chain, "binary")  # Theorem 2 does not
for bar in form.bars:
    end = "never dies" if bar.death == len(chain) else f"is sent to zero by site {bar.death}"
    print(f"slot {bar.slot}: born at level {bar.birth}, {end}")
print("gates:", [[int(g) for g in gates] for gates in form.gates])
print(form.check().reason)

with tempfile.TemporaryDirectory() as folder:
    path = sg.certificate(form).save(Path(folder) / "certificate.json")
    verdict = sg.check(path)
print(verdict.reason)

if not (verdict and form.check() and len(form.bars) == 5):  # n + sum of (n - rank): 3 + 1 + 0 + 1
    raise SystemExit("the form is not what the theorem says")
