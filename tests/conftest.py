"""What every test relies on, whatever started the run."""

from __future__ import annotations

import os
import signal

# One thread a process: pytest-xdist runs a process a core, and small tensors only lose time to more (10 times, when
# all processes use all cores).  Before anything imports torch or numpy; subprocesses inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background job starts with SIGINT ignored, and its children inherit that: the tests of Ctrl-C would wait
# for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
