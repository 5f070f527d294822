"""A real Alertmanager for tests, where one is installed."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

PROGRAMS = ("alertmanager", "prometheus-alertmanager")  # upstream's name, and Debian's
GROUP_WAIT_SECONDS = 2


@contextmanager
def alertmanager(folder: Path, webhook: str) -> Iterator[str]:
    """Run one that groups by incident and tells a webhook; give its address, or skip the test where there is none."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no {' and no '.join(PROGRAMS)} on the PATH")
    configuration = {
        "route": {
            "receiver": "hook", "group_by": ["incident"], "group_wait": f"{GROUP_WAIT_SECONDS}s", "group_interval": "1s"
        },
        "receivers": [{"name": "hook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
    }  # fmt: skip
    file = folder / "alertmanager.yml"
    file.write_text(json.dumps(configuration))  # which is YAML, too
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            program, f"--config.file={file}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process)
        yield url
    finally:
        process.kill()
        process.wait(timeout=60)


def _wait_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{url}/-/ready").is_success:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, f"Alertmanager ended with {process.returncode}"
        assert time.monotonic() < deadline, f"no Alertmanager at {url}"
        time.sleep(0.05)
