"""Checkpoints that other programs wrote: one record for all formats, one module per format.

:mod:`~streamgauge.simulate.formats.shards` reads a folder lazily, ``detect`` says what it is, ``record`` holds what a
mixer computes, ``evaluate`` computes it; ``static``, ``sidecar`` and ``report`` analyse, convert and describe any
record.  Which constant matrix stands for a mixer that depends on the state: ``chosen``; what is known of it along a
text: ``calibration``, measured by :mod:`streamgauge.simulate.hosted`.

===============  ====================================  ==================  ==========================================
format           mixers                                orientation         how the reading is tested
===============  ====================================  ==================  ==========================================
deepseek-v4      Sinkhorn, dynamic                     A = S^T             transformers' forward pass, transcription
glm5-next        the same, fn in bfloat16, mean head   A = S^T             transformers' forward pass, transcription
deepseek-v4.1    the same, read one site late          A = S^T             transcription
liger            Sinkhorn, dynamic                     A = S               the package's own forward pass
megatron, -dev   Sinkhorn (exp start), dynamic         A = S, dev: S^T     transcription
mhc-lite         Sinkhorn or permutations, gamma       A = S^T             transcription
lucidrains       free (HC) or Sinkhorn, per-stream     A = S^T             the package's own forward pass
                 norm: only static reads and writes
tokenbender      Sinkhorn, static                      A = S^T             transcription
--map FILE       as described                          as described        against the Liger format
hy4-ihc,         recognised, not converted: A = I      -                   keys and shapes
qwen4-exp
x-transformers   recognised, not converted: A is all   -                   keys and shapes
                 ones, rank one
no-streams       recognised, not converted             -                   keys
===============  ====================================  ==================  ==========================================
"""
