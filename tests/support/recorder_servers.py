"""Worker servers and files of flight recorders."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.live import Request
from tests.support.tailed_jobs import Node

ASKED = Request("recorders")
ENTRY = {"record_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 9, "profiling_name": "nccl:all_reduce",
         "state": "scheduled", "time_created_ns": 1_795_238_824_000_000_000}  # fmt: skip
DUMP = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [ENTRY]}
Behaviour = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(behave: Behaviour, path: Path | None = None) -> Iterator[str]:
    """Serve connections one after the other, at a UNIX path or a free port; give the address."""
    server = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
    server.bind(str(path) if path else ("127.0.0.1", 0))
    server.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield str(path) if path else f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(60)


def http(answers: dict[str, object]) -> Behaviour:
    """Answer POST by path with JSON, anything else with 404."""

    def behave(connection: socket.socket) -> None:
        path = connection.recv(65536).split(b" ")[1].decode()
        body = json.dumps(answers.get(path, "")).encode()
        status = b"200 OK" if path in answers else b"404 Not Found"
        connection.sendall(b"HTTP/1.0 " + status + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    return behave


def silent(connection: socket.socket) -> None:
    """Say nothing until the other side gives up."""
    while connection.recv(65536):
        pass


def stem_of(node: Node, name: str) -> tuple[str, str]:
    """Return a dump's stem as the job names it, and where that is."""
    return f"/{name}", str(node.folder / "files" / name)
