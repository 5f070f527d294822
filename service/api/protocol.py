"""uvicorn's protocol, with bounds on connections that hold a file and ask for nothing, and on those that ask for all.

    open ── head complete ──▶ a request is served ── answered ──▶ idle (uvicorn closes it) ── first bytes ──▶ open
      └── ``head_seconds`` ──▶ closed                └── the peer reads nothing for ``STALLED_SECONDS`` ──▶ closed

uvicorn itself bounds only the time between two requests. Of requests that are sent before the first is answered it parses and
keeps as many as come, fourteen thousand of one read: here one waits, and a connection that sends more ends after its answers.
Requests start in turns of their addresses (``connections``): who sends many delays its own.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import uvloop
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.api.connections import Connections, Standing

STALLED_SECONDS = 60.0  # that a peer may leave an answer unread
HANDSHAKE_SECONDS = 10.0  # of TLS: such a connection has no protocol yet that would bound it
MOST_HEADERS, MOST_HEAD_BYTES = 128, 1 << 16  # of a request's head, or its trailers; httptools has no bound
ERRORS = logging.getLogger("uvicorn.error.connections")
ERRORS.setLevel(logging.ERROR)  # a line for each request that is none would fill a disk: they are counted
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


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


class _Stopped(Exception):
    """Stops the parser, whose caller then ends the connection."""


class _Bounded(HttpToolsProtocol):
    watched: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.logger = ERRORS
        self._in_head = self._moved = False
        self._dry_bytes = 0  # that have come since the last part of a body, or the end of a head or a request
        self._standing: Standing = "served"
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._address = self.client[0] if self.client else ""
        self._stopped = self.watched.admit(self._address)  # why nothing more is read
        if self._stopped:
            self._end_after_answers(BUSY)
        else:
            self._watch_head()
            self._stand()

    def connection_lost(self, exc: Exception | None) -> None:
        for reason in tuple(self._timers):
            self._disarm(reason)
        self._unset_keepalive_if_required()
        self.watched.leave(self._address, self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._stopped or self.transport.is_closing():
            self.flow.pause_reading()
            return
        self._moved = False
        super().data_received(data)
        self._dry_bytes = 0 if self._moved else self._dry_bytes + len(data)
        if self._dry_bytes > MOST_HEAD_BYTES and not self._stopped:
            self._stopped = "large"
            self._end_after_answers(LARGE)
        self._watch_head()
        self._stand()

    def on_message_begin(self) -> None:
        if self.pipeline:  # one request is served, and one waits
            raise self._stop("pipelined")
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise self._stop("large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._moved = False, True
        self._disarm("head")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._moved = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stand()

    def send_400_response(self, msg: str) -> None:
        if self._stopped:
            self._end_after_answers(LARGE)
        else:
            self.watched.closed["invalid"] += 1
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.watched.turns.add(self._address, partial(self._start, cycle, app))

    def _start(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not self.transport.is_closing():
            super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm("stalled", STALLED_SECONDS)

    def resume_writing(self) -> None:
        self._disarm("stalled")
        super().resume_writing()

    @property
    def _owes_answer(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_head(self) -> None:
        """Run the timer where a head is awaited: also after bytes that begin none, such as empty lines."""
        if self._in_head or not self._owes_answer:
            self._arm("head", self.watched.head_seconds)

    def _stand(self) -> None:
        """Report whether it waits for its peer: for a request's end, or for the next one."""
        standing: Standing = "half-open" if self._owes_answer or "head" in self._timers else "idle"
        if self._owes_answer and not self.cycle.more_body:
            standing = "served"
        if standing != self._standing and not self.transport.is_closing():
            self._standing = standing
            self.watched.stand(self, standing)

    def _stop(self, reason: str) -> _Stopped:
        self._stopped = reason
        return _Stopped(reason)

    def _end_after_answers(self, answer: bytes) -> None:
        """Read no more; close once what is owed is answered, and with ``answer`` where nothing is."""
        self.watched.closed[self._stopped] += 1
        self.flow.pause_reading()
        if self._owes_answer:
            self.cycle.keep_alive = False
        else:
            self.transport.write(answer)
            self.transport.close()

    def _arm(self, reason: str, seconds: float) -> None:
        if reason not in self._timers:
            self._timers[reason] = self.loop.call_later(seconds, self.end, reason)

    def _disarm(self, reason: str) -> None:
        if (timer := self._timers.pop(reason, None)) is not None:
            timer.cancel()

    def end(self, reason: str) -> None:
        """Close it at once, and count it under a reason."""
        if not self.transport.is_closing():
            self.watched.closed[reason] += 1
            self.transport.abort()
