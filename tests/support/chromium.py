"""Headless Chromium over its DevTools pipe, with the standard library alone: open a page, look, listen.

As a script, it checks a report: python tests/support/chromium.py REPORT.html [FOLDER FOR SCREENSHOTS]
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def executable() -> str | None:
    """Where Chromium is, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass
class Browser:
    """A running browser with one page; what the page says and asks for is collected."""

    sink: int
    source: int
    session: str = ""
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    _buffer: bytes = b""
    _count: int = 0

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its answer; events that come meanwhile are noted."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.sink, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page; promises are awaited."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def open(self, url: str, *, width: int, dark: bool = False) -> None:
        """Load the page at that width (390: as a phone), in light or dark."""
        phone = width < 600
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=844 if phone else 900,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=url)
        for _ in range(600):
            if self.evaluate("document.readyState") == "complete" and self.evaluate("location.href") == url:
                return
            time.sleep(0.05)
        raise RuntimeError(f"{url}: not loaded after 30 s")

    def screenshot(self, path: Path, *, selector: str = "", height: int = 0) -> Path:
        """A picture of the element, or of the top of the page (``height`` pixels; 0: what is in view)."""
        clip: dict[str, Any] = {}
        if selector or height:
            measure = f"""(() => {{ const e = document.querySelector({json.dumps(selector or "html")});
                e.scrollIntoView(); const r = e.getBoundingClientRect();
                return [r.x + scrollX, r.y + scrollY, r.width, r.height]; }})()"""
            x, y, width, tall = self.evaluate(measure)
            size = {"x": x, "y": y, "width": width, "height": min(tall, height) if height else tall, "scale": 1}
            clip = {"clip": size, "captureBeyondViewport": True}
        data = self.send("Page.captureScreenshot", format="png", **clip)["data"]
        path.write_bytes(base64.b64decode(data))
        return path

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self.source, 1 << 20)
            if not read:
                raise RuntimeError("the browser has gone")
            self._buffer += read
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, given: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.console.append(str(given["exceptionDetails"].get("exception", {}).get("description", given)))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(" ".join(str(argument.get("value")) for argument in given["args"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """A fresh browser with one empty page. **Raises** RuntimeError where there is no Chromium."""
    program = executable()
    if program is None:
        raise RuntimeError("chromium: not found on this machine")
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in (theirs_in, theirs_out)]  # 3 and 4 must stay free for exec
    os.close(theirs_in)
    os.close(theirs_out)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = f'exec "$0" "$@" 3<&{high[0]} 4>&{high[1]}'
        words = ["bash", "-c", command, program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(words, pass_fds=high, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in high:
            os.close(fd)
        try:
            made = Browser(ours_out, ours_in)
            pages = made.send("Target.getTargets")["targetInfos"]
            page = next(each["targetId"] for each in pages if each["type"] == "page")
            made.session = made.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                made.send(f"{domain}.enable")
            yield made
        finally:
            process.terminate()
            process.wait(timeout=30)
            os.close(ours_out)
            os.close(ours_in)


WIDTHS = (1280, 390)
OVERFLOWING = """[...document.querySelectorAll("body *")].filter(e => {
  const r = e.getBoundingClientRect();
  if (!r.width || r.right <= innerWidth + 1 && r.left >= -1) return false;
  for (let p = e; p; p = p.parentElement) {
    const s = getComputedStyle(p);
    if (["auto", "scroll", "hidden"].includes(s.overflowX) || s.clipPath !== "none") return false;
  }
  return true;
}).map(e => `${e.tagName.toLowerCase()}.${e.className.baseVal ?? e.className} in ${e.closest("[id]")?.id}`)"""


@dataclass(frozen=True)
class Look:
    """What was seen of a page at one width and colour scheme; all lists empty is good."""

    width: int
    dark: bool
    scrolls: bool
    overflowing: tuple[str, ...]
    console: tuple[str, ...]
    requests: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """No horizontal scroll, nothing sticking out, nothing on the console, nothing asked of a network."""
        return not (self.scrolls or self.overflowing or self.console or self.requests)


def look(page: Path, folder: Path | None = None) -> list[Look]:
    """Open a page at both widths, light and dark, with everything unfolded; screenshots into ``folder``."""
    found, url = [], page.resolve().as_uri()
    with browser() as it:
        for width in WIDTHS:
            for dark in (False, True):
                it.console.clear()
                it.requests.clear()
                it.open(url, width=width, dark=dark)
                name = f"{width}-{'dark' if dark else 'light'}"
                if folder is not None:
                    it.screenshot(folder / f"{name}-top.png", height=2600)
                it.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                it.evaluate("document.querySelectorAll('.claim').forEach(c => c.style.contentVisibility = 'visible')")
                scrolls = it.evaluate("document.documentElement.scrollWidth > innerWidth")
                sticking = tuple(it.evaluate(OVERFLOWING))
                asked = tuple(u for u in it.requests if u != url and not u.startswith("data:"))
                found.append(Look(width, dark, scrolls, sticking, tuple(it.console), asked))
    return found


def main(arguments: list[str]) -> int:
    """Check one report; 0 if all is well."""
    folder = Path(arguments[1]) if len(arguments) > 1 else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    looks = look(Path(arguments[0]), folder)
    for seen in looks:
        print(seen.width, "dark" if seen.dark else "light", "ok" if seen.ok else seen)
    return 0 if all(seen.ok for seen in looks) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
