"""A small real HTTP service for the agent's tests: it keeps batches by id, and answers as a test tells it to."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from collectors.records import Record, block


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass  # an agent was killed


@dataclass
class Reply:
    """One scripted answer: to be given instead of taking the batch, or after taking it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    take: bool = False  # and lose only the answer


class AgentService:
    """What the agents of a test talk to. ``batches`` is the log: (node, id) → block, in the order of coming."""

    def __init__(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.batches: dict[tuple[str, str], bytes] = {}
        self.duplicates = 0
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.script: deque[Reply] = deque()
        self.token: str | None = None
        self.commands: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", port), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Go away: connections that are kept alive are answered 503 from now on, new ones are refused."""
        self.script.extend(Reply(503) for _ in range(3))
        self._server.shutdown()
        self._server.server_close()

    def records(self, *kinds: type[Record]) -> list[Any]:
        """Return every record that came, of these kinds where given."""
        with self._changed:
            blocks = list(self.batches.values())
        return [one for data in blocks for one in block.decode(data) if not kinds or isinstance(one, kinds)]

    def wait(self, wanted: Callable[[], bool], seconds: float = 60.0) -> bool:
        """Wait until something is so; False if it never was."""
        until = time.monotonic() + seconds
        while not wanted():
            if time.monotonic() > until:
                return False
            with self._changed:
                self._changed.wait(0.05)
        return True

    def ask(self, verb: str, id: str = "c1", **arguments: Any) -> None:
        """Have a command ready for the next poll."""
        with self._changed:
            self.commands.append({"id": id, "verb": verb, "arguments": arguments, "expires_at": time.time() + 60})
            self._changed.notify_all()

    def post(self, handler: BaseHTTPRequestHandler, body: bytes) -> Reply:
        """Take a batch, as the script and the token allow."""
        with self._changed:
            if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
                return Reply(401, body={"detail": "no such token"})
            reply = self.script.popleft() if self.script else Reply(202, take=True)
            if not reply.take:
                return reply
            if not body:
                return Reply(422, body={"detail": "an empty body is no block"})
            key = handler.headers["Faulthound-Node"], handler.headers["Faulthound-Batch"]
            self.duplicates += key in self.batches
            self.batches.setdefault(key, body)
            self._changed.notify_all()
            return reply

    def poll(self, seconds: float) -> list[dict[str, Any]]:
        """Hold a long poll until there is a command, or its time is over."""
        until = time.monotonic() + min(seconds, 2.0)
        with self._changed:
            while not self.commands and time.monotonic() < until:
                self._changed.wait(0.1)
            found = list(self.commands)
            self.commands.clear()
            return found

    def _handler(service) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                service.requests.append(("POST", self.path, dict(self.headers)))
                url = urlsplit(self.path)
                if url.path.endswith("/commands/take"):
                    seconds = float(parse_qs(url.query)["wait_seconds"][0])
                    self._answer(Reply(200, body={"commands": service.poll(seconds)}))
                else:
                    self._answer(service.post(self, body))

            def do_GET(self) -> None:
                service.requests.append(("GET", self.path, dict(self.headers)))
                self._answer(Reply(200, body={"status": "ok"}))

            def _answer(self, reply: Reply) -> None:
                data = json.dumps(reply.body).encode()
                try:
                    self.send_response_only(reply.status)
                    headers = {"Date": self.date_time_string(), "Content-Length": str(len(data)), **reply.headers}
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:  # the agent was killed meanwhile
                    self.close_connection = True

        return Handler


@contextmanager
def agent_service(**options: Any) -> Iterator[AgentService]:
    """Run a service for a ``with`` block."""
    service = AgentService(**options)
    try:
        yield service
    finally:
        service.close()
