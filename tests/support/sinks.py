"""A sink for tests: a real HTTP server that keeps what it took and answers as a test wants, and the published schemas' facts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from service.store import timeline
from service.store.database import Database
from tests.support.incident_rows import AT, JOB

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 30.0
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
ATTRIBUTE_NAME = re.compile(r"[a-z0-9]{1,20}")
Answer = tuple[int, dict[str, str]]


class Receiver:
    """What was posted, taken or not. ``answer`` chooses what a request is answered."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.refused: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.answer: Callable[[Any], Answer] = lambda _: (200, {})
        self.url = ""

    def take(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Answer a request."""
        content = json.loads(body)
        status, more = self.answer(content)
        self.paths.append(path)
        self.headers.append(headers)
        (self.taken if status < 300 else self.refused).append(content)
        return status, more

    def until(self, holds: Callable[[list[Any]], bool], seconds: float = SECONDS) -> list[Any]:
        """Return what was taken once it holds."""
        deadline = time.monotonic() + seconds
        while not holds(self.taken):
            assert time.monotonic() < deadline, f"{len(self.taken)} taken: {self.taken[-3:]}"
            time.sleep(0.02)
        return self.taken


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a sink."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, more = receiver.take(self.path, dict(self.headers), body)
            said = b"" if status < 300 else b"the sink's own words"
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield receiver
        server.shutdown()


@contextmanager
def adapter(kind: str, service: str, to: str, folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Run `faulthound adapter` in a process of its own; what it says comes from its stderr. It ends by SIGKILL."""
    process = subprocess.Popen(
        [
            sys.executable, "-c", "from service.cli import main; main()", "adapter", kind, "--to", to,
            "--service", service, "--state", str(folder / f"{kind}.json"), *more,
        ],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=SECONDS)
        if process.stderr is not None and not process.stderr.closed:
            process.stderr.close()


def said(process: subprocess.Popen[str]) -> str:
    """Kill an adapter, and return what it has said."""
    process.kill()
    return process.communicate(timeout=SECONDS)[1]


def check_cloud_event(event: dict[str, Any]) -> None:
    """Hold an event to the CloudEvents 1.0 JSON schema: required attributes, their types and formats, attribute names."""
    assert event["specversion"] == "1.0"
    for name in ("id", "source", "type"):
        assert isinstance(event[name], str)
        assert event[name]
    assert all(isinstance(event[name], str) and event[name] for name in ("subject", "datacontenttype") if name in event)
    assert RFC3339.fullmatch(event["time"])
    assert urlsplit(event["source"]).scheme in ("http", "https")
    assert all(ATTRIBUTE_NAME.fullmatch(name) for name in event)
    assert isinstance(event["data"], dict)


def check_alerts(posted: list[dict[str, Any]]) -> None:
    """Hold a request to Alertmanager's OpenAPI document, version 2: postableAlerts, and what its server checks besides."""
    assert isinstance(posted, list)
    assert posted
    for alert in posted:
        assert set(alert) <= {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
        assert alert["labels"]["alertname"]
        for values in (alert["labels"], alert.get("annotations", {})):
            assert all(
                LABEL_NAME.fullmatch(name) and isinstance(value, str) and value for name, value in values.items()
            )
        assert all(RFC3339.fullmatch(alert[name]) for name in ("startsAt", "endsAt") if name in alert)
        assert alert.get("endsAt", "9") >= alert["startsAt"]
        assert urlsplit(alert["generatorURL"]).scheme in ("http", "https")


def happen(database: Database, *numbers: int) -> None:
    """Have something happen for each number."""
    for number in numbers:
        with database.transaction() as session:
            timeline.add(session, AT, "alarm", None, JOB, {"number": number})


def numbers(events: list[Any]) -> list[int]:
    """Return the numbers of what has happened."""
    return [event["data"]["details"]["number"] for event in events]


def begun(state: Path) -> None:
    """Wait until an adapter knows where it is."""
    deadline = time.monotonic() + 60
    while not state.exists() or json.loads(state.read_text())["after"] is None:
        assert time.monotonic() < deadline, "the adapter did not begin"
        time.sleep(0.02)
