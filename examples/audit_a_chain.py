"""Audit the mixers of a network: are they doubly stochastic, what do they forget, and in which basis do they not mix?

python examples/audit_a_chain.py [FILE]     FILE: matrices as .json, .npy, .npz, or a checkpoint folder
"""

from __future__ import annotations

import sys

import numpy as np

import streamgauge as sg
from streamgauge.files import read_chain
from streamgauge.theory.doubly import doubly_stochastic
from streamgauge.theory.spectrum import running_log_singular_values

if len(sys.argv) > 1:
    chain = read_chain(sys.argv[1]).floating()
else:  # twelve sites of logits with a strong diagonal, by the DeepSeek-V4 recipe
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(12, 4, 4)) + 2 * np.eye(4)
    chain = sg.Chain([sg.sinkhorn(table, "deepseek-v4").mixer for table in logits])

for l, mixer in enumerate(chain.mixers):
    verdict = doubly_stochastic(mixer, tolerance=1e-5)  # the recipe's eps alone moves both sums by 1e-6
    print(f"site {l:2d}: {verdict.reason}")

sigma = np.exp(running_log_singular_values(np.array(chain.mixers)))
print("singular values of the whole product:", " ".join(f"{s:.2e}" for s in sigma[-1]))

form = sg.normal_form(chain, "graded")
report = form.conditioning
print(f"graded form: gates {report.gate_range[0]:.3f} to {report.gate_range[1]:.3f}, {report.zero_gates} zero gates")
print(f"cond(P) at most {report.worst:.1f}; the identity gauge needs 1e{report.identity_log10:.1f}")
for bar in form.bars:
    print(f"  slot {bar.slot}: alive at levels {bar.birth} to {bar.death}")

if not form.check():
    raise SystemExit(form.check().reason)
print(form.check().reason)
