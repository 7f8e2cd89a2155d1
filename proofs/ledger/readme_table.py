"""The README's table of verdicts, made from the ledger and its expected statuses at level full.

    python -m streamgauge.proofs.ledger.readme_table README.md

writes it between its two marks; a test checks that it is current, and another one that the statuses are the derived
ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from streamgauge.proofs.ledger import claims
from streamgauge.proofs.ledger.core import DOCUMENTS, Level, Status
from streamgauge.proofs.ledger.run import expected_statuses
from streamgauge.theory.errors import InputError

BEGIN = "<!-- verdicts: written by python -m streamgauge.proofs.ledger.readme_table README.md -->"
END = "<!-- end of verdicts -->"
SHOWN = (Status.HOLDS, Status.HYPOTHESIS, Status.IMPRECISE, Status.REFUTED, Status.LITERATURE)


def readme_table() -> str:
    """The block, marks included."""
    statuses = expected_statuses(Level.FULL)
    lines = [
        f"| document | claims | {' | '.join(status.value for status in SHOWN)} |",
        f"|---|{'---|' * (len(SHOWN) + 1)}",
    ]
    rows = {**{f"{name}: {title}": name for name, title in DOCUMENTS.items()}, "all": ""}
    for title, name in rows.items():
        found = [statuses[c.id] for c in claims().values() if name in ("", c.document)]
        counts = [str(found.count(status.value)) for status in SHOWN]
        lines.append(f"| {title} | {len(found)} | {' | '.join(counts)} |")
    refuted = [name for name in claims() if statuses[name] == Status.REFUTED.value]
    return "\n".join([BEGIN, *lines, "", f"Refuted, each by a witness: {', '.join(refuted)}.", END])


def updated(text: str) -> str:
    """The text with the block between the marks replaced. **Raises** :class:`InputError` where a mark is missing."""
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise InputError(f"README: a mark is missing, expected {BEGIN!r} and {END!r}")
    return before + readme_table() + after


def main(arguments: Sequence[str]) -> int:
    """Rewrite the file named."""
    path = Path(arguments[0])
    path.write_text(updated(path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
