"""Chromium without a window, driven through its debugging pipe: no driver, no port, nothing but its own protocol."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BINARY = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
_PATIENCE_S = 60.0


class Tab:
    """One page of a browser, and everything that it said or asked for."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._rest:
            assert time.monotonic() < until, "the browser said nothing for a minute"
            if not select.select([self._from], [], [], 1.0)[0]:
                continue
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has ended"
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not self.named("Page.loadEventFired"):
            self._next()

    def run(self, code: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int = 900) -> None:
        """A window of that many pixels, as a phone has it where it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def press(self, key: str) -> None:
        """A key, down and up."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def named(self, method: str) -> list[dict[str, Any]]:
        """What the events of a kind said, since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def complaints(self) -> list[Any]:
        """Errors, warnings, refusals of the page's policy, dialogs; what the page itself writes to the console too."""
        kinds = (
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        )
        return [said for kind in kinds for said in self.named(kind)]

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [str(said["request"]["url"]) for said in self.named("Network.requestWillBeSent")]


def _pipe() -> tuple[int, int]:
    """A pipe whose ends lie well above 3 and 4: those are the browser's, and what lies there is overwritten."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """A browser of its own, its profile in `folder`, ended with the block."""
    assert BINARY is not None
    browser_reads, we_write = _pipe()
    we_read, browser_writes = _pipe()

    def wire() -> None:
        os.dup2(browser_reads, 3)
        os.dup2(browser_writes, 4)

    command = [BINARY, *_FLAGS, f"--user-data-dir={folder / 'profile'}"]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            command, preexec_fn=wire, pass_fds=(3, 4), stdout=log, stderr=log, start_new_session=True
        )
    os.close(browser_reads)
    os.close(browser_writes)
    try:
        yield Tab(we_write, we_read)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(we_write)
        os.close(we_read)
