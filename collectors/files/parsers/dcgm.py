"""dcgm-exporter, asked over HTTP: the answer's head is a stranger's too, so the whole conversation is here."""

from __future__ import annotations

import socket
import time
from http.client import HTTPConnection, HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from typing import Any
from urllib.parse import urlsplit

from collectors.formats.dcgm.dcgm_text import gather
from collectors.records import block

BODY_BYTES = 8 << 20  # eight GPUs with all metrics on give some 200 KB
CHUNK_BYTES = 1 << 16


class ScrapeRefused(OSError):
    """The server answers, and not with 200."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _Timed(RawIOBase):
    """What a socket receives, up to an instant of the monotonic clock: a head or a body that drips ends there."""

    def __init__(self, connection: socket.socket, received: RawIOBase, deadline: float) -> None:
        self._connection, self._received, self._deadline = connection, received, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _Answer(HTTPResponse):
    """An answer of which all reads together end at ``deadline``."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        super().__init__(connection, method="GET")
        self.fp = BufferedReader(_Timed(connection, self.fp.detach(), deadline))


def parse(url: str, timeout_seconds: float) -> list[Any] | None:
    """Return a block of the devices, and tables of (type, devices, metrics, rows); None where no process listens."""
    body = scrape(url, timeout_seconds)
    if body is None:
        return None
    series = gather(body.decode(errors="replace").split("\n"))
    tables = [[one.type, list(one.cells), list(one.metrics), list(one.rows())] for one in series.tables]
    return [block.encode(series.devices), tables]


def scrape(url: str, timeout_seconds: float) -> bytes | None:
    """Return the exporter's answer, None where no process listens; raise OSError where it fails."""
    address = urlsplit(url)
    deadline = time.monotonic() + timeout_seconds
    make: type[HTTPConnection] = HTTPConnection
    if address.scheme == "https":
        from http.client import HTTPSConnection  # imports the TLS library

        make = HTTPSConnection
    connection = make(address.hostname or "", address.port, timeout=timeout_seconds)
    try:
        connection.request("GET", address.path or "/", headers={"Accept": "text/plain"})
        answer = _Answer(connection.sock, deadline)
        answer.begin()
        if answer.status != 200:
            raise ScrapeRefused(f"{url} answers {answer.status} {answer.reason[:100]}, not 200", answer.status)
        return _body(answer, url)
    except ConnectionRefusedError:
        return None
    except TimeoutError as error:
        raise TimeoutError(f"{url} has not ended its answer in time: raise option timeout_seconds") from error
    except HTTPException as error:
        raise OSError(f"{url} answers no HTTP: {type(error).__name__}") from error
    finally:
        connection.close()


def _body(answer: HTTPResponse, url: str) -> bytes:
    body = bytearray()
    while chunk := answer.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > BODY_BYTES:
            raise OSError(f"{url} answers with more than {BODY_BYTES:,} bytes: let it export fewer metrics")
    if answer.length:
        raise OSError(f"{url} ended its answer {answer.length:,} bytes early")
    return bytes(body)
