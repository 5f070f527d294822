"""The way of a batch into the log: bounded by rate and size, inspected, and acknowledged once it is durable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

from starlette.requests import Request

from service.api.inspection import SMALL_BYTES, Inspected, TooMuch, inspect
from service.api.problems import Problem
from service.settings import Settings
from service.store.appender import Appender, QueueFull, Unavailable
from service.store.buckets import Buckets
from service.store.log import Appended, Incoming

BODY_SECONDS = 60.0  # in which a body must have arrived
LARGE_AT_ONCE = 2  # batches unpacked in threads: each may take batch_unpacked_bytes
BUSY_SECONDS = 2.0
UNPACKED_BYTES = 256  # that count as a record


class Intake:
    """What all requests that bring records share: their bounds."""

    def __init__(self, settings: Settings, appender: Appender) -> None:
        self.settings, self._appender = settings, appender
        self._batches_of_nodes = Buckets(settings.node_batches_per_second, settings.node_batches_burst)
        self._batches_of_tokens = Buckets(settings.token_batches_per_second, settings.token_batches_burst)
        self._bytes_of_nodes = Buckets(settings.node_bytes_per_second, settings.node_bytes_burst)
        self._bytes_of_tokens = Buckets(settings.token_bytes_per_second, settings.token_bytes_burst)
        self._records_of_nodes = Buckets(settings.node_records_per_second, settings.node_records_burst)
        self.slowed: Counter[str] = Counter()  # refused batches by the setting that they were over
        self.arriving_bytes = 0
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    def admit(self, token: str, node: str, size_bytes: int) -> None:
        """Raise the problem of a sender that is over its rate, or whose token is: a token may be used under any name.

        ``size_bytes``: of the body, as far as it is declared; ``owe`` takes the rest.
        """
        own, all_own = f"{node} sends", "all nodes with this token send"
        divide, larger = "give each node a token of its own", "send larger ones"
        self._take("token_batches_per_second", self._batches_of_tokens, token, 1, all_own, divide)
        self._take("node_batches_per_second", self._batches_of_nodes, (token, node), 1, own, larger)
        self._take("node_bytes_per_second", self._bytes_of_nodes, (token, node), size_bytes, own, "send less")
        self._take("node_records_per_second", self._records_of_nodes, (token, node), 1, own, "send less")
        self._take("token_bytes_per_second", self._bytes_of_tokens, token, size_bytes, all_own, divide)

    def owe(self, token: str, node: str, size_bytes: int) -> None:
        """Take the bytes of a body that were not declared."""
        if size_bytes > 0:
            self._bytes_of_nodes.owe((token, node), size_bytes)
            self._bytes_of_tokens.owe(token, size_bytes)

    def owe_records(self, token: str, node: str, inspected: Inspected) -> None:
        """Take what a batch held: few bytes can be minutes of work for the engine, which reads them for each job there."""
        work = inspected.records + inspected.unpacked_bytes // UNPACKED_BYTES
        self._records_of_nodes.owe((token, node), max(0, work - 1))

    def _take(self, setting: str, buckets: Buckets, sender: Hashable, count: int, who: str, instead: str) -> None:
        if wait := buckets.wait_seconds(sender, count):
            self.slowed[setting] += 1
            rate, what = getattr(self.settings, setting), setting.split("_")[1]
            raise Problem(
                "too-many-requests",
                f"{who} more than {rate:,g} {what} a second: {instead}, or raise {setting}",
                retry_after_seconds=wait,
            )

    @asynccontextmanager
    async def body(self, request: Request, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield the request's body; one that is too large is refused before all of it has arrived."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > most_bytes:
            raise too_large(most_bytes)
        parts: list[bytes] = []
        try:
            await self._read(request, most_bytes, parts)
            yield b"".join(parts)
        finally:
            self.arriving_bytes -= sum(map(len, parts))

    async def _read(self, request: Request, most_bytes: int, parts: list[bytes]) -> None:
        held = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    parts.append(part)
                    held += len(part)
                    self.arriving_bytes += len(part)
                    self._check_room(held, most_bytes)
        except TimeoutError:
            raise too_slow() from None

    def _check_room(self, held: int, most_bytes: int) -> None:
        if held > most_bytes:
            raise too_large(most_bytes)
        if self.arriving_bytes > self.settings.queue_bytes:
            raise Problem(
                "unavailable",
                f"{self.arriving_bytes:,} bytes are arriving, more than queue_bytes allows: send it again later",
                retry_after_seconds=BUSY_SECONDS,
            )

    async def inspect(self, data: bytes, node: str) -> Inspected:
        """Inspect a block: at once where it is small, in a thread where it may hold up the others."""
        most = self.settings.batch_records
        try:
            return inspect(data, node, most_records=most, largest_bytes=min(SMALL_BYTES, self._unpacked_bytes))
        except TooMuch:
            if self._unpacked_bytes <= SMALL_BYTES:
                raise
        async with self._large:
            return await asyncio.to_thread(inspect, data, node, most_records=most, largest_bytes=self._unpacked_bytes)

    @property
    def _unpacked_bytes(self) -> int:
        return self.settings.batch_unpacked_bytes

    async def store(self, batch: Incoming) -> Appended:
        """Store a batch; at return it is durable."""
        try:
            # Shielded: a client that disconnects does not cancel its batch.
            return await asyncio.shield(asyncio.wrap_future(self._appender.submit(batch)))
        except (QueueFull, Unavailable) as refused:
            raise Problem(
                "unavailable", f"{refused}: send it again, under the same id",
                retry_after_seconds=refused.retry_after_seconds,
            ) from None  # fmt: skip


def too_slow() -> Problem:
    """Return the problem of a body that did not arrive in time."""
    return Problem("timeout", f"the body had not arrived after {BODY_SECONDS:g} s: send it again")


def too_large(most_bytes: int) -> Problem:
    """Return the problem of a body past its bound."""
    return Problem("too-large", f"the body has more than {most_bytes:,} bytes: send it in parts")
