"""The service as the agent reaches it: connections that are kept, and what an answer asks of the sender.

With the standard library: a client that loads less leaves the memory to the process that parses (docs/decisions/0027).
"""

from __future__ import annotations

import email.utils
import select
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import msgspec

from collectors.agent import agent_version
from collectors.agent.settings import Misconfigured, Settings
from collectors.live.sources.clock import Clock

CONNECT_SECONDS = 5.0
SEND_SECONDS = 30.0
ANSWER_BYTES_MAX = 1 << 20
DETAIL_CHARACTERS = 300
RETRY_AFTER_MOST_SECONDS = 300.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Unreachable(Exception):
    """No answer came; the message says why."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response, read within bounds."""

    status: int
    body: bytes
    retry_after_seconds: float | None
    clock_offset_seconds: float | None  # the node's clock less the service's, to the second; None: not stated

    def json(self) -> dict[str, Any]:
        """Return the body as an object; an empty one where it is none."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except msgspec.DecodeError:
            return {}

    def detail(self) -> str:
        """Return the status and the problem that the service states (RFC 9457), in one line."""
        problem = self.json()
        text = problem.get("detail") or problem.get("title") or self.body[:DETAIL_CHARACTERS].decode(errors="replace")
        return f"{self.status} {' '.join(str(text).split())}"[:DETAIL_CHARACTERS]


class Client:
    """Safe for threads: shipping and the long poll each keep a connection of their own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.service is None:
            raise Misconfigured('no service is set: write service = "https://HOST:4747" or give --service')
        self._settings, self._clock = settings, clock
        self._token, self._lock = settings.current_token(), threading.Lock()
        self._address = urlsplit(settings.service)
        port = f":{self._address.port}" if self._address.port else ""
        self._where = (
            f"{self._address.scheme}://{self._address.hostname}{port}"  # without what a URL may hold of a login
        )
        self._trust = _trust(settings)
        self._headers = {"User-Agent": f"faulthound-agent/{agent_version()}", "Accept": "application/json"}
        self._kept = threading.local()  # a thread's open connection
        self._open = set[HTTPConnection]()

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            connection.close()

    def sends_token_in_clear(self) -> bool:
        """Return whether the token leaves this machine without TLS."""
        return bool(self._token) and self._address.scheme == "http" and self._address.hostname not in LOOPBACK

    def renew_token(self) -> bool:
        """Read the token's file once more; return True where it holds another token now."""
        try:
            token = self._settings.current_token()
        except Misconfigured:
            return False
        with self._lock:
            changed, self._token = token != self._token, token
        return changed

    def call(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SEND_SECONDS,
    ) -> Response:
        """Send a request and return the answer, whatever its status; raise ``Unreachable`` where none comes.

        ``seconds``: for each step of the conversation.
        """
        sent = {**self._headers, **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        connection: HTTPConnection | None = None
        try:
            connection = self._connection(seconds)
            connection.request(method, self._address.path + path, body, sent)
            response = connection.getresponse()
            answer = self._read(response)
        except (HTTPException, OSError, ValueError) as error:
            self._drop(connection)
            why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise Unreachable(f"{self._where}: {why}") from error
        except BaseException:
            self._drop(connection)
            raise
        if response.will_close:
            self._drop(connection)
        return answer

    def _connection(self, seconds: float) -> HTTPConnection:
        """Return this thread's connection, opened anew where the service has closed it."""
        kept: HTTPConnection | None = getattr(self._kept, "connection", None)
        if kept is not None and (kept.sock is None or _has_ended(kept)):
            self._drop(kept)
            kept = None
        if kept is None:
            host, port = self._address.hostname or "", self._address.port
            first = min(seconds, CONNECT_SECONDS)
            if self._address.scheme == "https":
                kept = HTTPSConnection(host, port, timeout=first, context=self._trust)
            else:
                kept = HTTPConnection(host, port, timeout=first)
            self._kept.connection = kept
            with self._lock:
                self._open.add(kept)
            kept.connect()
        kept.sock.settimeout(seconds)
        return kept

    def _drop(self, connection: HTTPConnection | None) -> None:
        kept = connection or getattr(self._kept, "connection", None)
        self._kept.connection = None
        if kept is not None:
            kept.close()
            with self._lock:
                self._open.discard(kept)

    def _read(self, response: HTTPResponse) -> Response:
        body = response.read(ANSWER_BYTES_MAX + 1)
        if len(body) > ANSWER_BYTES_MAX:
            raise ValueError(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes")
        now, service_now = self._clock.now(), _instant(response.headers.get("Date"))
        offset = None if service_now is None else now - service_now
        retry_after = _retry_after(response.headers.get("Retry-After"), now if service_now is None else service_now)
        return Response(response.status, body, retry_after, offset)


def _has_ended(connection: HTTPConnection) -> bool:
    """Return whether an idle connection has something to read: its end, or what was not requested."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _trust(settings: Settings) -> ssl.SSLContext | None:
    if settings.service is not None and settings.service.startswith("http://"):
        return None
    try:
        return ssl.create_default_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(f"ca_file {settings.ca_file} cannot be used: {error}: name a PEM file") from error


def _instant(text: str | None) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError, IndexError):
        return None


def _retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds that Retry-After asks for, in either of its forms [RFC 9110, 10.2.3], within our bound."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        until = _instant(text)
        seconds = float("nan") if until is None else until - now
    # Written so that NaN is no answer.
    return min(max(seconds, 0.0), RETRY_AFTER_MOST_SECONDS) if seconds == seconds else None  # noqa: PLR0124
