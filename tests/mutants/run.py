"""``make mutants``: breaks the kernels one line at a time, and sees that the checks notice.

Every mutant is a copy of the package with one line changed.  It is killed if it runs and the self test finds an error
above tolerance, or, for what cannot show by running here, if the rules on the compiler's text find it.  A mutant that
does not even run was badly made: it counts as a survivor.  First the unchanged copy must pass.  The last line is
``N killed, M survived``, and the exit code is 1 if any survived.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernel_mutants import MUTANTS, PRELUDE, Mutant

ROOT = Path(__file__).resolve().parents[2]
UNCHANGED = ("read", "write full", "write norm", "sinkhorn clamp", "coefficients mixer", "site diag")


def main() -> int:
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for check in (by_running, by_text):
            said = check(tree(Path(folder) / check.__name__, None), UNCHANGED)
            print(f"unchanged, {check.__name__}: {said or 'passes'}", flush=True)
            if said:
                print("the unchanged kernels do not pass: nothing can be said of mutants")
                return 1
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            verdicts = list(pool.map(lambda pair: verdict(Path(folder) / str(pair[0]), pair[1]), enumerate(MUTANTS)))
    survived = [m.name for m, killed in zip(MUTANTS, verdicts) if not killed]
    for name in survived:
        print(f"SURVIVED: {name}")
    print(f"{time.monotonic() - start:.0f} s")
    print(f"{len(MUTANTS) - len(survived)} killed, {len(survived)} survived")
    return 1 if survived else 0


def verdict(folder: Path, mutant: Mutant) -> bool:
    check = by_running if mutant.dies == "by running" else by_text
    try:
        said = check(tree(folder, mutant), mutant.situations)
    except (LookupError, RuntimeError) as error:
        print(f"badly made: {mutant.name}: {error}", flush=True)
        return False
    print(f"{'killed' if said else 'SURVIVED'}: {mutant.name}: {said or 'no check noticed'}", flush=True)
    return bool(said)


def tree(folder: Path, mutant: Mutant | None) -> Path:
    """A copy of the package as it is installed, with one line changed."""
    ignore = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(ROOT / "streamgauge", folder / "streamgauge", ignore=ignore)
    kernels = Path(shutil.copytree(ROOT / "kernels", Path(package) / "kernels", ignore=ignore))
    if mutant is not None:
        (kernels / mutant.file).write_text(mutated(mutant, (kernels / mutant.file).read_text()))
    return folder


def mutated(mutant: Mutant, source: str) -> str:
    """**Raises** LookupError unless the line to change stands there exactly once."""
    if (found := source.count(mutant.old)) != 1:
        raise LookupError(f"{mutant.file}: {mutant.old!r} stands there {found} times, expected once")
    return source.replace(mutant.old, mutant.new) + PRELUDE.get(mutant.file, "")


def by_running(folder: Path, situations: Sequence[str]) -> str:
    """The worst miss of the self test, "" if there is none."""
    rows = ask(folder, "selftest", {"dtypes": ["float32"], "names": list(situations)}, interpret=True)
    crashed = [row["quantity"] for row in rows if row["tolerance"] == 0.0]
    if crashed:
        raise RuntimeError(crashed[0])
    missed = [row for row in rows if not row["error"] <= row["tolerance"]]
    if not missed:
        return ""
    worst = max(missed, key=lambda row: row["error"] / row["tolerance"])
    what = f"{worst['op']} {worst['mode']} {worst['quantity']}"
    return f"{what}: error {worst['error']:.2g}, tolerance {worst['tolerance']:.2g}"


def by_text(folder: Path, situations: Sequence[str]) -> str:
    """The first broken rule of the text, "" if there is none."""
    rows = ask(folder, "compile", {"capabilities": [90], "names": list(situations)}, interpret=False)
    return next((f"{row['kernel']}: {fault[:60]}" for row in rows for fault in row["faults"]), "")


def ask(folder: Path, module: str, question: dict[str, Any], *, interpret: bool) -> Any:
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(folder), "TRITON_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    environment |= {"TRITON_INTERPRET": "1"} if interpret else {}
    name = f"streamgauge.kernels.{module}"
    command = [sys.executable, "-c", CHECKED, name, json.dumps(question)]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    if ran.returncode:
        raise RuntimeError((ran.stderr.strip().splitlines() or ["it said nothing"])[-1])
    return json.loads(ran.stdout)


# The copy, and not the installed package, must be what runs.
CHECKED = """
import os, runpy, sys
import streamgauge.kernels
assert streamgauge.kernels.__file__.startswith(os.environ["PYTHONPATH"]), streamgauge.kernels.__file__
name = sys.argv.pop(1)
runpy.run_module(name, run_name="__main__")
"""

if __name__ == "__main__":
    sys.exit(main())
