"""Whether a job may be put on a node, for prologs and admission, which cannot wait.

It answers within 200 ms whatever the database does. ``unknown`` is not unfit: the caller goes on, as without an answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Literal

import msgspec
import structlog
from fastapi import Request
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from analyzers.model.doc import doc
from service.api import auth
from service.api.auth import Caller
from service.clock import now
from service.remediation import node_standing
from service.store import incidents
from service.store.database import Database
from service.store.models import Node

WAIT_SECONDS = 0.07  # for the token and then for the tables: with what is around them, 200 ms
FRESH_SECONDS = 1.0  # so long one reading serves all requests
STALE_SECONDS = 15.0  # the oldest reading that serves, when the next one is late
SILENT_SECONDS = 120.0  # nothing is known of a node that has not reported for so long
BEHIND_SECONDS = 60.0  # nor of any while the engine is so far behind
MOST_ENTERING = 64  # tokens that are checked at once


class FitnessDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a job may be put on a node."""

    node: Annotated[str, doc("The node.")]
    fitness: Annotated[
        Literal["fit", "unfit", "unknown"],
        doc("unfit: an open incident would take it out. unknown is not unfit: go on."),
    ]
    why: Annotated[str, doc("The reason, one sentence.")]
    incident: Annotated[str | None, doc("The incident that names it; null: none.")] = None
    as_of: Annotated[float | None, doc("The instant of the tables, UTC seconds; null: not read in time.")] = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The tables at one moment."""

    at: float
    looked_at: float  # monotonic
    unfit: Mapping[str, tuple[str, str]]  # node → the incident, and why
    reporting: frozenset[str]
    behind_seconds: float  # of the engine


class Fitness:
    """Reads the tables on request, one reading at a time. All methods are called in the event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._look: asyncio.Future[None] | None = None
        self._seen: _Seen | None = None
        self._entering: dict[str, asyncio.Task[Caller]] = {}

    async def let_in(self, request: Request) -> bool:
        """Return whether it is known in time that the caller may read; raise the problem where it may not."""
        # One check serves all requests with the same token. Without a token each request is checked by its origin.
        sent = request.headers.get("authorization", "")
        key = sent if sent.lower().startswith("bearer ") else f"request {id(request)}"
        task = self._entering.get(key)
        if task is None:
            if len(self._entering) >= MOST_ENTERING:
                return False
            task = self._entering[key] = asyncio.create_task(auth.reader(request))
            task.add_done_callback(lambda _: self._entering.pop(key, None))
            task.add_done_callback(_looked_upon)
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        try:
            return task.done() and bool(task.result())
        except SQLAlchemyError:
            return False

    async def find(self, node: str) -> FitnessDocument:
        """Return what is known of a node in time."""
        seen = await self._newest()
        if seen is None:
            return FitnessDocument(node=node, fitness="unknown", why="the database does not answer in time")
        fitness, why, incident = _judged(seen, node)
        return FitnessDocument(node=node, fitness=fitness, why=why, incident=incident, as_of=seen.at)

    async def _newest(self) -> _Seen | None:
        if self._seen is None or monotonic() - self._seen.looked_at > FRESH_SECONDS:
            if self._look is None or self._look.done():
                self._look = self._begun()
            await asyncio.wait({self._look}, timeout=WAIT_SECONDS)
        if self._seen is not None and monotonic() - self._seen.looked_at > STALE_SECONDS:
            return None
        return self._seen

    def _begun(self) -> asyncio.Future[None]:
        """Begin a reading in a thread of its own: the shared threads may all wait for the database."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def look() -> None:
            try:
                self._seen = self._read()
            except SQLAlchemyError as error:
                structlog.get_logger().warning("fitness_not_looked_up", error=type(error).__name__)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(done.set_result, None)

        threading.Thread(target=look, name="fitness", daemon=True).start()
        return done

    def _read(self) -> _Seen:
        at, looked_at = now(), monotonic()
        recent = select(Node.name).where(Node.last_seen_at >= at - SILENT_SECONDS)
        with self._database.session() as session:
            unfit = {
                row.node.lower(): (row.incident, row.why) for row in session.execute(node_standing.unfit_query(at))
            }
            reporting = frozenset(map(str.lower, session.scalars(recent)))
            return _Seen(at, looked_at, unfit, reporting, incidents.lag(session, at).seconds)


def _judged(seen: _Seen, node: str) -> tuple[Literal["fit", "unfit", "unknown"], str, str | None]:
    if (named := seen.unfit.get(node.lower())) is not None:
        return "unfit", named[1], named[0]
    if node.lower() not in seen.reporting:
        return "unknown", f"no agent has reported from {node} in the last {SILENT_SECONDS:.0f} seconds", None
    if seen.behind_seconds > BEHIND_SECONDS:
        return "unknown", f"the engine is {seen.behind_seconds:.0f} seconds behind what agents have sent", None
    return "fit", "its agent reports, and no incident would take it out", None


def _looked_upon(task: asyncio.Task[Caller]) -> None:
    if not task.cancelled():
        task.exception()  # else asyncio warns of an exception that was never retrieved
