"""Converts a folder in forked children and kills them at random moments; one line of JSON says what was found.

    python kill_loop.py SOURCE PLACE KILLS [full]

A process of its own, so that nothing but this loop runs in what is forked, and the imports are paid once.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from streamgauge.proofs.sidecar import certify
from streamgauge.simulate.formats.sidecar import Options, convert_folder


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def child(source: Path, out: Path, *, force: bool = False, full: bool = False) -> int:
    """A conversion with its certificate, in a process of its own."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            convert_folder(source, out, Options("bias"), force=force, full=full, finish=certify)
            code = 0
        finally:
            os._exit(code)
    return process


def main(source: Path, place: Path, kills: int, full: bool) -> None:
    random.seed(0)
    place.mkdir()
    before = digest(source)
    whole = []
    for attempt in ("first", "second", "third"):
        start = time.monotonic()
        _, status = os.waitpid(child(source, place / attempt, full=full), 0)
        whole.append(time.monotonic() - start)
    wanted = digest(place / "first")
    seen = {"absent": 0, "complete": 0, "left": 0}
    wrong = [] if status == 0 else ["the first run failed"]
    for i in range(kills):
        out, force = place / "out", i % 2 == 1 and not full  # a whole checkpoint is never replaced
        if not force:
            shutil.rmtree(out, ignore_errors=True)
        process = child(source, out, force=force, full=full)
        time.sleep(random.uniform(0, min(whole)))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if digest(source) != before:
            wrong.append(f"kill {i}: the source changed")
        if out.exists() and digest(out) != wanted:
            wrong.append(f"kill {i}: {sorted(digest(out))} is not complete")
        seen["complete" if out.exists() else "absent"] += 1
        seen["left"] += any(path.name.startswith(".out.partial.") for path in place.iterdir())
        if full:
            shutil.rmtree(out, ignore_errors=True)
        _, status = os.waitpid(child(source, out, force=not full, full=full), 0)
        if status != 0 or digest(out) != wanted:
            wrong.append(f"kill {i}: the run after it failed")
        if [path.name for path in place.iterdir() if path.name.startswith(".")]:
            wrong.append(f"kill {i}: the run after it left a partial folder")
    print(json.dumps({"seen": seen, "wrong": wrong, "seconds": min(whole)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), "full" in sys.argv[4:])
