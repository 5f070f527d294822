"""uvicorn's protocol, with bounds on connections that hold a file and ask for nothing.

    open ── head complete ──▶ a request is served ── answered ──▶ idle (uvicorn closes it) ── first bytes ──▶ open
      └── ``head_seconds`` ──▶ closed                └── the peer reads nothing for ``STALLED_SECONDS`` ──▶ closed

uvicorn itself bounds only the time between two requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.api.connections import Connections

STALLED_SECONDS = 60.0  # that a peer may leave an answer unread
HANDSHAKE_SECONDS = 10.0  # of TLS: such a connection has no protocol yet that would bound it
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def protocol(watched: Connections) -> type[asyncio.Protocol]:
    """Return the protocol that uvicorn is to use: its connections are counted and bounded there."""
    return type("Protocol", (_Bounded,), {"watched": watched})


class Loop(uvloop.Loop):
    """uvloop, whose servers wait a shorter time for a handshake; uvicorn has no setting for it."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        """Create a server as uvicorn asks for it."""
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE_SECONDS
        return await super().create_server(*arguments, **options)


class _Bounded(HttpToolsProtocol):
    watched: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_head = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._address = self.client[0] if self.client else ""
        if self.watched.admit(self._address):
            self._watch_head()
        else:
            self.watched.closed["address"] += 1
            transport.write(BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        for reason in tuple(self._timers):
            self._disarm(reason)
        self._unset_keepalive_if_required()
        self.watched.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch_head()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._disarm("head")
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm("stalled", STALLED_SECONDS)

    def resume_writing(self) -> None:
        self._disarm("stalled")
        super().resume_writing()

    def _watch_head(self) -> None:
        """Run the timer where a head is awaited: also after bytes that begin none, such as empty lines."""
        serving = self.cycle is not None and not self.cycle.response_complete
        if self._in_head or not serving:
            self._arm("head", self.watched.head_seconds)

    def _arm(self, reason: str, seconds: float) -> None:
        if reason not in self._timers:
            self._timers[reason] = self.loop.call_later(seconds, self._end, reason)

    def _disarm(self, reason: str) -> None:
        if (timer := self._timers.pop(reason, None)) is not None:
            timer.cancel()

    def _end(self, reason: str) -> None:
        if not self.transport.is_closing():
            self.watched.closed[reason] += 1
            self.transport.abort()
