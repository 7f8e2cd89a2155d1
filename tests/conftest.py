"""What every test relies on, whatever started the run."""

from __future__ import annotations

import signal

# A shell's background job starts with SIGINT ignored, and its children inherit that: the tests of Ctrl-C would wait
# for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
