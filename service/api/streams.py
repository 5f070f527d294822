"""What the open event streams share: one look at the table in half a second serves them all, and nobody waits unboundedly.

A stream reads the happenings itself, a page at a time, after its reader has taken the page before: nothing is kept for who
reads slowly. Whoever takes nothing for half a minute is dropped and comes again with the last id that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import msgspec
import structlog
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import Message, Receive, Scope, Send

from service.api.incident_documents import happening_document
from service.api.problems import Problem
from service.store.database import Database
from service.store.models import Happening

LOOK_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0  # so that a proxy does not take a quiet stream for a dead one
CHECK_SECONDS = 10.0  # between two looks whether a reader's token is still good
SLOW_SECONDS = 30.0
RETRY_MILLISECONDS = 2_000
MOST_STREAMS = 64
ROWS_AT_ONCE = 200
RETRY_SECONDS = 5.0


class Streams:
    """The open streams of a process. All methods are called in the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._newest = 0
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._look())
        self.closed = False
        self.count = 0

    def check_room(self) -> None:
        """Raise the problem of too many streams."""
        if self.count >= MOST_STREAMS:
            raise Problem(
                "too-many-requests", f"{MOST_STREAMS} streams are open already: end one, or read the timelines",
                retry_after_seconds=RETRY_SECONDS,
            )  # fmt: skip

    async def wait(self, place: int, seconds: float) -> None:
        """Wait until something stands after this place, or the service stops, or the time is over."""
        deadline = monotonic() + seconds
        while self._newest <= place and not self.closed and (left := deadline - monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def let_go(self) -> None:
        """End all streams: the service is stopping."""
        self.closed = True
        self._wake()

    async def close(self) -> None:
        """Let go and end the look."""
        self.let_go()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _look(self) -> None:
        while not self.closed:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.count:
                continue
            try:
                newest = await asyncio.to_thread(self.newest)
            except SQLAlchemyError as error:  # the streams stay, and go on when it is back
                structlog.get_logger().warning("happenings_not_looked_up", error=type(error).__name__)
                continue
            if newest != self._newest:
                self._newest = newest
                self._wake()

    def newest(self) -> int:
        """Return the place of the newest happening."""
        with self._database.session() as session:
            return session.scalar(select(func.max(Happening.sequence))) or 0

    def read(self, place: int, where: Sequence[ColumnElement[bool]]) -> tuple[int, Sequence[Happening]]:
        """Return the first of those after a place that fit, and the place up to which there are no others."""
        found = select(Happening).where(Happening.sequence > place, *where).order_by(Happening.sequence)
        with self._database.session() as session:
            newest = session.scalar(select(func.max(Happening.sequence))) or 0
            rows = session.scalars(found.limit(ROWS_AT_ONCE)).all()
        return (rows[-1].sequence if len(rows) == ROWS_AT_ONCE else max(newest, place)), rows


@dataclass(frozen=True, slots=True)
class Wish:
    """What a stream is asked for."""

    place: int  # the last that the reader has
    where: Sequence[ColumnElement[bool]]
    seconds: float
    allowed: Callable[[], Awaitable[bool]]  # whether its reader may still have it


class EventStream(StreamingResponse):
    """Server-sent events: the happenings after a place, for so many seconds."""

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, wish: Wish) -> None:
        super().__init__(_events(streams, wish), headers={"X-Accel-Buffering": "no"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; a reader that takes none of them for a while is left."""
        dropped = False

        async def patient(message: Message) -> None:
            nonlocal dropped
            try:
                async with asyncio.timeout(SLOW_SECONDS):
                    await send(message)
            except TimeoutError:
                dropped = True
                raise

        self._streams.count += 1
        try:
            await super().__call__(scope, receive, patient)
        except Exception:
            if not dropped:
                raise
            structlog.get_logger().warning("stream_dropped", why="its reader took nothing", seconds=SLOW_SECONDS)
        finally:
            self._streams.count -= 1


async def _events(streams: Streams, wish: Wish) -> AsyncIterator[bytes]:
    try:
        async for part in _parts(streams, wish):
            yield part
    except SQLAlchemyError as error:  # the stream ends, and its reader comes again with the place that it has
        structlog.get_logger().warning("stream_ended", error=type(error).__name__)


async def _parts(streams: Streams, wish: Wish) -> AsyncIterator[bytes]:
    place = wish.place
    # The first is an id without an event: whoever loses the connection before anything happens knows where it was.
    yield f"retry: {RETRY_MILLISECONDS}\nid: {place}\n\n".encode()
    deadline = monotonic() + wish.seconds
    spoken_at = checked_at = monotonic()
    while not streams.closed:
        if monotonic() >= checked_at + CHECK_SECONDS:
            if not await wish.allowed():
                return
            checked_at = monotonic()
        place, rows = await asyncio.to_thread(streams.read, place, wish.where)
        if rows:
            yield b"".join(map(_event, rows))
            spoken_at = monotonic()
        if len(rows) == ROWS_AT_ONCE:
            continue
        if monotonic() >= deadline:
            return
        await streams.wait(
            place, min(deadline, spoken_at + HEARTBEAT_SECONDS, checked_at + CHECK_SECONDS) - monotonic()
        )
        if monotonic() >= spoken_at + HEARTBEAT_SECONDS:
            yield b": still here\n\n"
            spoken_at = monotonic()


def _event(row: Happening) -> bytes:
    return format_sse_event(
        data_str=msgspec.json.encode(happening_document(row)).decode(), event=row.kind, id=str(row.sequence)
    )
