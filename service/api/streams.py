"""What the open event streams share: one query in half a second serves them all, and every wait is bounded.

A stream reads the timeline itself, a page at a time, after its client has taken the page before: nothing is queued for a slow
client. A client that takes nothing for half a minute is dropped; it can come back with the last id that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

import msgspec
import structlog
from fastapi import Request, Response
from fastapi.sse import ServerSentEvent
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Message, Receive, Scope, Send

from service.api.incident_documents import timeline_entry_document
from service.api.problems import Problem
from service.api.routing import Handler, Route
from service.store.database import Database
from service.store.models import TimelineEntry
from service.store.shared_poll import SharedPoll

QUERY_SECONDS = 0.5
CHECK_SECONDS = 10.0  # between two checks whether a client's token is still valid
SLOW_SECONDS = 30.0
RETRY_MILLISECONDS = 2_000
MOST_STREAMS = 64
ROWS_AT_ONCE = 200
RETRY_SECONDS = 5.0


class Streams(SharedPoll):
    """The open streams of a process. All methods are called in the event loop, ``newest`` and ``read`` in threads."""

    def __init__(self, database: Database) -> None:
        super().__init__(QUERY_SECONDS, "timelines")
        self._database = database
        self._newest = 0
        self.count = 0

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Count one more stream while it is open; raise the problem of too many."""
        if self.count >= MOST_STREAMS:
            raise Problem(
                "too-many-requests", f"{MOST_STREAMS} streams are open already: end one, or read the timelines",
                retry_after_seconds=RETRY_SECONDS,
            )  # fmt: skip
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1

    async def wait(self, place: int, seconds: float) -> None:
        """Wait until there is an entry after this place, or the service stops, or the time is over."""
        await self._until(lambda: self._newest > place, seconds)

    def _is_waited(self) -> bool:
        return self.count > 0

    async def _look(self) -> None:
        newest = await asyncio.to_thread(self.newest)
        if newest != self._newest:
            self._newest = newest
            self._wake_all()

    def newest(self) -> int:
        """Return the place of the newest entry."""
        with self._database.session() as session:
            return session.scalar(select(func.max(TimelineEntry.sequence))) or 0

    def read(self, place: int, where: Sequence[ColumnElement[bool]]) -> tuple[int, Sequence[TimelineEntry]]:
        """Return the first matching entries after a place, and the place up to which there are no others."""
        found = select(TimelineEntry).where(TimelineEntry.sequence > place, *where).order_by(TimelineEntry.sequence)
        with self._database.session() as session:
            newest = session.scalar(select(func.max(TimelineEntry.sequence))) or 0
            rows = session.scalars(found.limit(ROWS_AT_ONCE)).all()
        return (rows[-1].sequence if len(rows) == ROWS_AT_ONCE else max(newest, place)), rows


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a client asks for."""

    place: int  # the last entry that it has
    where: Sequence[ColumnElement[bool]]
    seconds: float
    allowed: Callable[[], Awaitable[bool]]  # whether its token is still valid


async def events(streams: Streams, asked: Subscription) -> AsyncIterator[ServerSentEvent]:
    """Yield the entries after a place, for so many seconds."""
    try:
        async for event in _events(streams, asked):
            yield event
    except SQLAlchemyError as error:  # the stream ends; the client comes back with the place that it has
        structlog.get_logger().warning("stream_ended", error=type(error).__name__)


async def _events(streams: Streams, asked: Subscription) -> AsyncIterator[ServerSentEvent]:
    place = asked.place
    # An id without an event: a client that loses the connection before the first event has its place all the same.
    yield ServerSentEvent(id=str(place), retry=RETRY_MILLISECONDS)
    deadline, checked_at = monotonic() + asked.seconds, monotonic()
    while not streams.closed:
        if monotonic() >= checked_at + CHECK_SECONDS:
            if not await asked.allowed():
                return
            checked_at = monotonic()
        place, rows = await asyncio.to_thread(streams.read, place, asked.where)
        for row in rows:
            data = msgspec.json.encode(timeline_entry_document(row)).decode()
            yield ServerSentEvent(raw_data=data, event=row.kind, id=str(row.sequence))
        if len(rows) == ROWS_AT_ONCE:
            continue
        if monotonic() >= deadline:
            return
        await streams.wait(place, min(deadline, checked_at + CHECK_SECONDS) - monotonic())


class StreamRoute(Route):
    """A route whose client is dropped when it takes nothing for a while."""

    def handler(self) -> Handler:
        """Return the handler; its response has a bound for each message."""
        handle = super().handler()

        async def bounded(request: Request) -> Response:
            return _Bounded(await handle(request))

        return bounded


class _Bounded(Response):
    def __init__(self, response: Response) -> None:
        super().__init__()
        self._response = response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        dropped = False

        async def patient(message: Message) -> None:
            nonlocal dropped
            try:
                async with asyncio.timeout(SLOW_SECONDS):
                    await send(message)
            except TimeoutError:
                dropped = True
                raise

        try:
            await self._response(scope, receive, patient)
        except Exception:
            if not dropped:
                raise
            structlog.get_logger().warning("stream_dropped", why="its client took nothing", seconds=SLOW_SECONDS)
