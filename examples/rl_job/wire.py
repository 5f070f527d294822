"""Requests between the processes of the job: a JSON header with a length before it, then bytes. One connection a request."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct("<II")  # bytes of JSON, bytes after it
MOST_BYTES = 1 << 28
SECONDS = 30.0

Message = dict[str, Any]
Handler = Callable[[Message, bytes], tuple[Message, bytes]]


class Denied(Exception):
    """The other side refused the request; the text is its reason."""


class Fenced(Denied):
    """This process was replaced: another has its place under a higher epoch."""


def serve(handle: Handler, host: str = "127.0.0.1") -> tuple[str, socketserver.ThreadingTCPServer]:
    """Answer requests in threads; return the address and the server. What ``handle`` raises as ``Denied`` is the answer."""

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                request, data = _receive(self.request)
                answer, out = handle(request, data)
            except Denied as denied:
                answer, out = {"denied": str(denied), "fenced": isinstance(denied, Fenced)}, b""
            except OSError:
                return
            with contextlib.suppress(OSError):  # a client that waits no longer
                _send(self.request, answer, out)

    server = socketserver.ThreadingTCPServer((host, 0), Connection)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="server", daemon=True).start()
    return f"{host}:{server.server_address[1]}", server


def ask(address: str, request: Message, data: bytes = b"", seconds: float = SECONDS) -> tuple[Message, bytes]:
    """Return the answer to a request; raise ``Denied``, or OSError where there is none in time."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), seconds) as connection:
        connection.settimeout(seconds)
        _send(connection, request, data)
        answer, out = _receive(connection)
    if "denied" in answer:
        raise (Fenced if answer["fenced"] else Denied)(answer["denied"])
    return answer, out


def _send(connection: socket.socket, message: Message, data: bytes) -> None:
    body = json.dumps(message).encode()
    connection.sendall(HEADER.pack(len(body), len(data)) + body + data)


def _receive(connection: socket.socket) -> tuple[Message, bytes]:
    sizes = HEADER.unpack(_exactly(connection, HEADER.size))
    if sum(sizes) > MOST_BYTES:
        raise OSError(f"a message of {sum(sizes):,} bytes, more than {MOST_BYTES:,}")
    return json.loads(_exactly(connection, sizes[0])), _exactly(connection, sizes[1])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise OSError("the connection ended within a message")
        data += more
    return bytes(data)
