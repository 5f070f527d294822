"""Ask a process over a socket and never wait longer, nor hold more, than was allowed: it may be stopped, or lie."""

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
"""Called with a number of bytes before they are kept; raises ``NoAnswer`` where they are too many."""


class NoAnswer(Exception):
    """There was no answer that can be used; the message says why, beginning small."""


class Silent(NoAnswer):
    """It was there and said nothing in time: a stopped process accepts connections, its kernel does."""


def seconds_left(deadline: float) -> float:
    """Return the seconds to an instant of the monotonic clock; raise ``Silent`` where it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise Silent("no answer in time")
    return left


class Budget:
    """Bounds the bytes that many threads hold together."""

    def __init__(self, most_bytes: int) -> None:
        self._most = self._left = most_bytes
        self._lock = threading.Lock()

    @contextmanager
    def purse(self) -> Iterator[Spend]:
        """Give the means to spend from the budget, and take back at the end what was spent."""
        spent = 0

        def spend(count: int) -> None:
            nonlocal spent
            with self._lock:
                if count > self._left:
                    raise NoAnswer(f"all answers together are longer than {self._most:,} bytes")
                self._left -= count
                spent += count

        try:
            yield spend
        finally:
            with self._lock:
                self._left += spent


@contextmanager
def connected(address: str, deadline: float, pid: int | None = None) -> Iterator[socket.socket]:
    """Connect to ``host:port`` or to a UNIX socket's path, which ``pid`` must be listening at where it is given."""
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
        raise Silent("no answer in time") from error
    except (OSError, ValueError, OverflowError) as error:
        raise NoAnswer(getattr(error, "strerror", None) or str(error)) from error
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
    """Raise where another process listens: a path that one job names may be another's, or the system's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    listener = _CREDENTIALS.unpack(credentials)[0]
    if listener != pid:
        raise NoAnswer(f"process {listener} listens there, not {pid}")


def until_end(
    connection: socket.socket, most_bytes: int, deadline: float, spend: Spend | None = None
) -> tuple[bytes, bool]:
    """Return what comes until the other side closes, and whether that was cut at ``most_bytes``."""
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
    """Return the line that comes next, without its end, and leave what follows it."""
    data = b""
    while not data.endswith(b"\n"):
        connection.settimeout(seconds_left(deadline))
        piece = connection.recv(1)
        if not piece or len(data) >= most_bytes:
            raise NoAnswer("it closed the connection" if not piece else f"a line of more than {most_bytes} bytes")
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
        raise NoAnswer("it does not speak HTTP")
    if status[1] != b"200":
        raise NoAnswer(f"HTTP {status[1].decode()} for {path}")
    length = _LENGTH.search(head + b"\r\n")
    if cut or (length and len(body) < int(length[1])):
        raise NoAnswer(f"the answer is longer than {most_bytes:,} bytes" if cut else "the answer was cut")
    return body
