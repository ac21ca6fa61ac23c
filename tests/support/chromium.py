"""A Chromium driven over two pipes: pages of any size and colour scheme, and their pictures."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from itertools import count
from typing import Any, Self

import pytest

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)


class Chromium:
    """One tab. Whoever asks waits for the answer."""

    def __init__(self, program: str) -> None:
        self._numbers = count(1)
        self._rest = b""
        self._session: dict[str, str] = {}
        self._stack = ExitStack()
        profile = self._stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        (take, self._to), (self._from, give) = os.pipe(), os.pipe()
        command = f'exec "$0" "$@" 3<&{take} 4>&{give}'
        arguments = ("bash", "-c", command, program, *_FLAGS, f"--user-data-dir={profile}")
        self._process = subprocess.Popen(
            arguments, pass_fds=(take, give), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(take)
        os.close(give)
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        found = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        self._ask("Page.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._stack.close()

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """How wide the window is, and whether its user likes it dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        self._ask("Page.navigate", url=url)
        self.run("document.readyState === 'complete' || new Promise(done => onload = done)")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited; whatever the page's policy allows."""
        found = self._ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self, *, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        shot = self._ask("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": params, **self._session}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                chunk = os.read(self._from, 1 << 20)
                assert chunk, "chromium has ended"
                self._rest += chunk
            message, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]


def chromium_or_skip() -> Chromium:
    """A running one; without the program the test is skipped."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium on PATH")
    return Chromium(found)
