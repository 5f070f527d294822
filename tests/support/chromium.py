"""A real browser, headless, driven over its debugging pipe."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120.0
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-sync", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


class Chromium:
    """One tab."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._rest, self._number, self._session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a command."""
        self._number += 1
        own = {"sessionId": self._session} if self._session else {}
        os.write(
            self._write, json.dumps({"id": self._number, "method": method, "params": params, **own}).encode() + b"\0"
        )
        deadline = time.monotonic() + SECONDS
        while True:
            message = self._message(deadline)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return dict(message["result"])

    def run(self, script: str) -> Any:
        """Return what a script gives on the page that is shown."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        """Open an address, as if it were typed in."""
        self.call("Page.navigate", url=url)
        self.until(f"location.href.split('#')[0] === {json.dumps(url)} && document.readyState === 'complete'")

    def until(self, holds: str) -> None:
        """Wait until this holds on whatever page is shown."""
        deadline = time.monotonic() + SECONDS
        while not self.run(f"Boolean(document.body && ({holds}))"):  # between two pages there is none
            assert time.monotonic() < deadline, f"{holds}: {self.run('document.documentElement.innerText')}"
            time.sleep(0.1)

    def submit(self, action: str, **fields: str) -> None:
        """Fill in the form that goes there and press its button."""
        form = f"document.querySelector('form[action={json.dumps(action)}]')"
        filled = "".join(
            f"f.elements[{json.dumps(name)}].value = {json.dumps(value)};" for name, value in fields.items()
        )
        self.run(f"(f => {{ {filled} f.querySelector('button').click() }})({form})")

    def _message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._read, 1 << 16)
            assert data, "the browser has ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Run a browser of its own, with nothing remembered."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no chromium here")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}', program, *OPTIONS, f"--user-data-dir={folder}"],
        pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(from_write)
    try:
        yield Chromium(to_write, from_read)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
            os.close(to_write)
            os.close(from_read)
