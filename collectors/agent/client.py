"""The service as the agent reaches it: one client that keeps its connections, and what an answer asks of the sender."""

from __future__ import annotations

import email.utils
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
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
class Answer:
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
    """Safe for threads: shipping and the long poll share it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        if settings.service is None:
            raise Misconfigured('no service is set: write service = "https://HOST:4747" or give --service')
        self._settings, self._clock = settings, clock
        self._token, self._lock = settings.current_token(), threading.Lock()
        self._http = httpx.Client(
            base_url=settings.service,
            verify=_trust(settings),
            timeout=httpx.Timeout(SEND_SECONDS, connect=CONNECT_SECONDS),
            headers={"User-Agent": f"faulthound-agent/{agent_version()}", "Accept": "application/json"},
            limits=httpx.Limits(max_connections=4, max_keepalive_connections=4, keepalive_expiry=60.0),
            trust_env=False,  # a proxy in the environment is the job's, not the agent's
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def sends_token_in_clear(self) -> bool:
        """Return whether the token leaves this machine without TLS."""
        url = self._http.base_url
        return bool(self._token) and url.scheme == "http" and url.host not in LOOPBACK

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
    ) -> Answer:
        """Send a request and return the answer, whatever its status; raise ``Unreachable`` where none comes."""
        sent = dict(headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        try:
            with self._http.stream(method, path, content=body, headers=sent, timeout=timeout) as response:
                return self._read(response)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, RuntimeError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    def _read(self, response: httpx.Response) -> Answer:
        body = bytearray()
        for part in response.iter_bytes():
            body += part
            if len(body) > ANSWER_BYTES_MAX:
                raise httpx.DecodingError(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes")
        now, service_now = self._clock.now(), _instant(response.headers.get("Date"))
        offset = None if service_now is None else now - service_now
        retry_after = _retry_after(response.headers.get("Retry-After"), now if service_now is None else service_now)
        return Answer(response.status_code, bytes(body), retry_after, offset)


def _trust(settings: Settings) -> ssl.SSLContext:
    if settings.service is not None and settings.service.startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used: no authority is loaded
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
