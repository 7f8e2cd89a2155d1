"""The pictures of the README: bars, conditioning and singular values of the trained network with singular mixers.

python examples/draw_pictures.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamgauge import inspect
from streamgauge.cli.inspect import draw

here = Path(__file__).parent
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else here / "pictures"
found = inspect(here / "data" / "deficient")
for picture in draw(found, folder, "a trained network with singular mixers"):
    print(picture.name, picture.stat().st_size, "bytes")

deaths = sum(bar.death < len(found.sites) for bar in found.bars)
if deaths != 5:  # ranks 3, 2, 3, 3 of 4 at the sites 2, 5, 7, 10
    raise SystemExit(f"expected 5 bars to die, found {deaths}")
