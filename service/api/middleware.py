"""Around every request: its id, its line in the log, its count, and bounds for bodies that the framework reads.

A page of another site can make a browser send a request here, with the browser's place in the network. Below ``/v1`` such
requests are refused by what the browser itself says of them [Fetch Metadata Request Headers, W3C; RFC 6454 for Origin].
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.intake import BODY_SECONDS, BUSY_SECONDS, too_large, too_slow
from service.api.problems import Problem, answer

BODY_BYTES = 4 << 20  # of a request that is no batch: the rank map of the largest job is about 3 MB
ARRIVING_BYTES = 64 << 20  # of all such bodies together
UNBOUNDED = "/v1/records"  # bounds itself, while it reads
QUIET = frozenset(
    {
        "/v1/records",
        "/v1/nodes/{node}/commands",
        "/v1/nodes/{node}/commands/take",
        "/v1/nodes/{node}/fitness",
        "/healthz",
        "/readyz",
        "/metrics",
    }
)
ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(slots=True)
class Arriving:
    """The bytes of all bodies that the framework holds."""

    bytes: int = 0


class Requests:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._arriving = app, Arriving()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id, began_at, status = secrets.token_hex(8), monotonic(), 0

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*message.get("headers", []), *ALWAYS, (b"faulthound-request", id.encode())]
                message = {**message, "headers": own}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=id):
            try:
                await self._serve(scope, receive, answered)
            finally:
                _count(scope, status, monotonic() - began_at)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if scope["path"].startswith("/v1/") and (why := _from_another_site(request)):
            await answer(request, Problem("forbidden", why))(scope, receive, send)
            return
        if scope["path"] == UNBOUNDED:
            await self._app(scope, receive, send)
            return
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > BODY_BYTES:
            await answer(request, too_large(BODY_BYTES))(scope, receive, send)
            return
        body = _Body(receive, self._arriving)
        try:
            await self._app(scope, body, send)
        finally:
            self._arriving.bytes -= body.read_bytes


class _Body:
    """What a request receives: bounded in size, in the time until the body has arrived, and with all other bodies together.

    The framework reads a body before it knows the sender. What comes after the body, a disconnect, has time.
    """

    def __init__(self, receive: Receive, arriving: Arriving) -> None:
        self._receive, self._arriving = receive, arriving
        self._until, self._whole = 0.0, False
        self.read_bytes = 0

    async def __call__(self) -> Message:
        """Receive one message."""
        self._until = self._until or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(None if self._whole else self._until):
                message = await self._receive()
        except TimeoutError:
            raise too_slow() from None
        self._whole = self._whole or not message.get("more_body", False)
        size_bytes = len(message.get("body", b""))
        self.read_bytes += size_bytes
        self._arriving.bytes += size_bytes
        if self.read_bytes > BODY_BYTES:
            raise too_large(BODY_BYTES)
        if self._arriving.bytes > ARRIVING_BYTES:
            raise Problem(
                "unavailable", f"{self._arriving.bytes:,} bytes of bodies are arriving, the most: send it again later",
                retry_after_seconds=BUSY_SECONDS,
            )  # fmt: skip
        return message


def _from_another_site(request: Request) -> str:
    """Return why a request is of another site's page; empty: it is not, or of no browser."""
    if (site := request.headers.get("sec-fetch-site", "")) in ("same-origin", "none"):
        return ""
    if site:
        return (
            f"a browser sent this for a page of another site (Sec-Fetch-Site: {site[:32]!a}): open the address itself"
        )
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        return f"a browser sent this for a page of {origin[:255]!a}: open the address itself"
    return ""


def _count(scope: Scope, status: int, seconds: float) -> None:
    route: Any = scope.get("route")
    path = getattr(route, "path_format", None) or "(none)"
    method = scope["method"] if path != "(none)" else "(any)"
    service = scope["app"].state.service if "app" in scope else None
    if service is not None:
        service.metrics.answered(path, method, status, seconds)
    log = structlog.get_logger()
    write = log.debug if path in QUIET and status < 400 else log.info
    write("request", method=scope["method"], path=scope["path"][:255], status=status, seconds=round(seconds, 4))
