"""Requests to a process over a socket, bounded in time and bytes: the process may be stopped, or send anything."""

from __future__ import annotations

import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PIECE_BYTES = 1 << 16
LONGEST_SOCKET_PATH = 100  # bytes: the kernel takes 107
_CREDENTIALS = struct.Struct("3i")  # pid, user, group
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,12})\r\n", re.IGNORECASE)


Spend = Callable[[int], None]
"""Called with a number of bytes before they are kept; raises ``RequestFailed`` where they exceed the budget."""


class RequestFailed(Exception):
    """No usable answer came; the message says why, in lower case."""


class RequestTimedOut(RequestFailed):
    """The process did not answer in time: the kernel accepts connections also for a stopped one."""


def seconds_left(deadline: float) -> float:
    """Return the seconds to an instant of the monotonic clock; raise ``RequestTimedOut`` where it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise RequestTimedOut("no answer in time")
    return left


class Budget:
    """LimitReports the bytes that many threads hold together."""

    def __init__(self, most_bytes: int) -> None:
        self._most = self._left = most_bytes
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self) -> Iterator[Spend]:
        """Give a function that spends from the budget; what was spent is free again at the end."""
        spent = 0

        def spend(count: int) -> None:
            nonlocal spent
            with self._lock:
                if count > self._left:
                    raise RequestFailed(f"all answers together are longer than {self._most:,} bytes")
                self._left -= count
                spent += count

        try:
            yield spend
        finally:
            with self._lock:
                self._left += spent


@contextmanager
def connected(address: str, deadline: float, pid: int | None = None) -> Iterator[socket.socket]:
    """Connect to ``host:port`` or to a UNIX socket's path, at which process ``pid`` must listen where it is given."""
    connection = socket.socket(socket.AF_UNIX) if address.startswith("/") else None
    try:
        if connection is None:
            host, _, port = address.rpartition(":")
            connection = socket.create_connection((host.strip("[]"), int(port)), seconds_left(deadline))
        else:
            connection.settimeout(seconds_left(deadline))
            _connect(connection, address)
            if pid is not None:
                _is_of(connection, pid)
        yield connection
    except TimeoutError as error:
        raise RequestTimedOut("no answer in time") from error
    except (OSError, ValueError, OverflowError) as error:
        raise RequestFailed(getattr(error, "strerror", None) or str(error)) from error
    finally:
        if connection is not None:
            connection.close()


def _connect(connection: socket.socket, path: str) -> None:
    folder, name = os.path.split(path)
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        connection.connect(path)
        return
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection.connect(f"/proc/self/fd/{descriptor}/{name}")
    finally:
        os.close(descriptor)


def _is_of(connection: socket.socket, pid: int) -> None:
    """Raise where another process listens: the path that a job names may be another job's, or the system's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    listener = _CREDENTIALS.unpack(credentials)[0]
    if listener != pid:
        raise RequestFailed(f"process {listener} listens there, not {pid}")


def until_end(
    connection: socket.socket, most_bytes: int, deadline: float, spend: Spend | None = None
) -> tuple[bytes, bool]:
    """Return the bytes up to the close of the other side, and whether they were cut at ``most_bytes``."""
    pieces: list[bytes] = []
    size = 0
    while size < most_bytes:
        connection.settimeout(seconds_left(deadline))
        piece = connection.recv(min(PIECE_BYTES, most_bytes - size))
        if not piece:
            return b"".join(pieces), False
        if spend:
            spend(len(piece))
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces), True


def line(connection: socket.socket, most_bytes: int, deadline: float) -> str:
    """Return the next line without its end, and leave what follows it unread."""
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(seconds_left(deadline))
        piece = connection.recv(1)
        if not piece or len(data) >= most_bytes:
            raise RequestFailed("it closed the connection" if not piece else f"a line of more than {most_bytes} bytes")
        data += piece
    return data.decode(errors="replace").rstrip("\r\n")


def post(
    address: str, path: str, most_bytes: int, deadline: float, *, pid: int | None = None, spend: Spend | None = None
) -> bytes:
    """POST nothing to a path and return the body of a 200; HTTP 1.0, so that the body simply ends."""
    request = f"POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with connected(address, deadline, pid) as connection:
        connection.sendall(request.encode())
        answer, cut = until_end(connection, most_bytes, deadline, spend)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = _STATUS.match(head)
    if status is None:
        raise RequestFailed("it does not speak HTTP")
    if status[1] != b"200":
        raise RequestFailed(f"HTTP {status[1].decode()} for {path}")
    length = _LENGTH.search(head + b"\r\n")
    if cut or (length and len(body) < int(length[1])):
        raise RequestFailed(f"the answer is longer than {most_bytes:,} bytes" if cut else "the answer was cut")
    return body
