"""Headless Chromium, driven by its DevTools protocol through a pipe (chromedevtools.github.io)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "chromium")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # CI is root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",  # commands come by file 3, answers go to file 4
)
WAIT = 60.0


class Browser:
    """One tab."""

    def __init__(self, to: int, back: int) -> None:
        self.to, self.back = to, back
        self.number = 0
        self.rest = b""
        self.session: str | None = None
        self.requests: list[str] = []
        """URLs that the page asked for."""
        self.complaints: list[str] = []
        """Exceptions, errors on the console, refusals of the content security policy."""
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.do(f"{domain}.enable")
        self.size(760, 1000)

    def do(self, method: str, /, **parameters: Any) -> Any:
        """The result of one command."""
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _receive(self) -> Any:
        while b"\0" not in self.rest:
            part = os.read(self.back, 1 << 20)
            assert part, "the browser has ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        name, about = event.get("method"), event.get("params", {})
        if name == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif name == "Runtime.exceptionThrown":
            self.complaints.append(str(about["exceptionDetails"]))
        elif name == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.complaints.append(about["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.complaints.append(str(about["args"]))

    def size(self, width: int, height: int) -> None:
        """The window's size in pixels."""
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def scheme(self, name: str) -> None:
        """``light`` or ``dark``."""
        self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, url: str) -> None:
        """Load a page anew, and wait until it has its list of endpoints or says why not."""
        self.do("Page.navigate", url="about:blank")
        self.requests.clear()
        self.complaints.clear()
        self.do("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && (!$('form').hidden || $('status').textContent)")

    def js(self, code: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.do("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, code: str) -> None:
        """Wait until an expression holds."""
        end = time.monotonic() + WAIT
        while True:
            answer = self.do("Runtime.evaluate", expression=f"Boolean({code})", returnByValue=True)
            if answer["result"].get("value") is True:
                return
            assert time.monotonic() < end, (code, self.complaints)
            time.sleep(0.02)

    def files(self, selector: str, *paths: Path) -> None:
        """Choose files in a file field."""
        root = self.do("DOM.getDocument")["root"]["nodeId"]
        node = self.do("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.do("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def drop(self, selector: str, *paths: Path) -> None:
        """Drop files on an element."""
        place = f"document.querySelector({selector!r}).getBoundingClientRect()"
        box = self.js(f"((b) => [b.x + b.width / 2, b.y + b.height / 2])({place})")
        data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
        for type in ("dragEnter", "dragOver", "drop"):
            self.do("Input.dispatchDragEvent", type=type, x=box[0], y=box[1], data=data)

    def key(self, key: str, modifiers: int = 0) -> None:
        """Press a key; modifiers: 2 is Ctrl, 8 is Shift."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40, " ": 32}
        about: dict[str, Any] = {
            "key": key,
            "code": "Space" if key == " " else key,
            "windowsVirtualKeyCode": codes[key],
            "modifiers": modifiers,
        }
        text = {"Enter": "\r", " ": " "}.get(key)
        self.do("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
        self.do("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path) -> None:
        """Write the whole page as a PNG file."""
        height = self.js("Math.ceil(document.querySelector('main').getBoundingClientRect().height)")
        self.size(760, height)
        path.write_bytes(base64.b64decode(self.do("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile."""
    (read_commands, to), (back, write_answers) = os.pipe(), os.pipe()
    start = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
    argv = ["bash", "-c", start, PROGRAM, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            argv, pass_fds=(read_commands, write_answers), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Browser(to, back)
    finally:
        process.terminate()
        process.wait(30)
        os.close(to)
        os.close(back)
