"""The application: its routes, and the lifespan that opens the store, runs its threads and closes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial

import structlog
from fastapi import FastAPI
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.requests import Request
from starlette.responses import Response

from service import packaged_knowledge, pages
from service.api import problems, resources, routing
from service.api.answers import Answers
from service.api.audit import Audit
from service.api.connections import Connections
from service.api.intake import Intake
from service.api.long_polls import LongPolls
from service.api.metrics import Metrics
from service.api.middleware import Requests
from service.api.node_fitness import Fitness
from service.api.open_access import OpenAccess
from service.api.problems import Problem
from service.api.state import Service
from service.api.streams import Streams
from service.clock import PROCESS
from service.engine.supervision import EngineProcess
from service.remediation.policy_file import PolicyFile
from service.remediation.repository import RemediationRepository
from service.roles.readings import RoleReadingLog
from service.roles.repository import RoleDirectories
from service.roles.watching import RoleWatch
from service.settings import Settings
from service.store.appender import Appender
from service.store.clock_watch import LOOK_SECONDS, ClockWatch
from service.store.commands import Commands
from service.store.database import Database
from service.store.follower import Follower
from service.store.future_dates import shift_back_future
from service.store.log import Log
from service.store.retention import IncidentRetention, Retention
from service.store.tokens import Tokens
from service.store.upkeep import Upkeep
from service.store.window.assembly import Feed
from service.store.window.compaction import Compaction
from service.store.window.steps import StepTail
from service.store.window.tail import Tail

DOWN_SECONDS = 5.0


def create_app(settings: Settings, engine: EngineProcess | None = None) -> FastAPI:
    """Return the application of these settings; its lifespan opens the store and begins, and the engine, if given, too."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as closing:
            app.state.service = await _opened(settings, engine, closing, app.state.connections)
            yield

    app = FastAPI(
        title="Faulthound",
        version="1",
        summary="Names what stalls, slows, crashes or corrupts a distributed GPU job.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = None
    app.state.connections = Connections(settings.address_connections, settings.head_seconds)
    app.add_middleware(Requests)
    problems.install(app)
    for kind in (OperationalError, InterfaceError, PoolTimeout):
        app.add_exception_handler(kind, _of_database)
    app.add_exception_handler(IntegrityError, _of_contention)
    routing.install(app, resources.routers())
    for router in pages.routers():
        app.include_router(router)
    return app


async def _opened(
    settings: Settings, engine: EngineProcess | None, closing: AsyncExitStack, connections: Connections
) -> Service:
    """Open the store and start its threads; they end in the opposite order, the log's writer before its readers."""
    database = Database(settings.url())
    closing.callback(database.close)
    database.migrate()
    watch = ClockWatch(database)
    closing.callback(PROCESS.release)
    watch.open()
    log, tail, steps = Log(database), Tail(settings.window_seconds), StepTail()
    board, keys, roles = Commands(database), Tokens(database), RoleDirectories(database)
    follower = Follower(database, log, [Feed(tail, Compaction(database)), steps], settings.window_seconds)
    appender = Appender(log, settings, follower.wake)
    chores: dict[str, Callable[[], object]] = {
        "future_dates": partial(shift_back_future, database), "tokens": keys.write_used, "commands": board.expire,
        "retention": Retention(database, settings).sweep,
        "roles": roles.forget, "incidents": IncidentRetention(database, settings.incident_days).sweep,
    }  # fmt: skip
    clocks = Upkeep({"clock": watch.look}, LOOK_SECONDS)
    role_readings = RoleReadingLog(appender, roles)
    for thread in (clocks, follower, appender, role_readings, Upkeep(chores)):
        thread.start()
        closing.callback(thread.close)
    if engine is not None:
        engine.start()
        closing.callback(engine.close)
    waiting = LongPolls(board)
    closing.push_async_callback(waiting.close)
    policy, streams = PolicyFile(settings.policy), Streams(database)
    closing.push_async_callback(streams.close)
    role_watch = RoleWatch(roles)
    closing.push_async_callback(role_watch.close)
    return Service(
        settings=settings, database=database, log=log, appender=appender, follower=follower, tail=tail, steps=steps,
        tokens=keys, commands=board, clock=watch,
        audit=Audit(database), intake=Intake(settings, appender), waiting=waiting, answers=Answers(database),
        streams=streams, fitness=Fitness(database), metrics=Metrics(), open_access=OpenAccess(lambda: bool(keys.all())),
        policy=policy, roles=roles, role_watch=role_watch, role_readings=role_readings,
        remedies=RemediationRepository(database, policy), engine=engine, connections=connections,
        weights=cache(lambda: packaged_knowledge.weights_of(packaged_knowledge.load(settings.knowledge))),
        role_rules=cache(lambda: packaged_knowledge.role_rules_of(packaged_knowledge.load(settings.knowledge))),
    )  # fmt: skip


async def _of_database(request: Request, raised: Exception) -> Response:
    structlog.get_logger().error("database_failed", path=request.url.path, error=type(raised).__name__)
    detail = f"the database does not answer ({type(raised).__name__}): try again later"
    return problems.answer(request, Problem("unavailable", detail, retry_after_seconds=DOWN_SECONDS))


async def _of_contention(request: Request, raised: Exception) -> Response:
    structlog.get_logger().warning("write_collided", path=request.url.path, error=type(raised).__name__)
    detail = "another request wrote the same thing at the same moment: send it again"
    return problems.answer(request, Problem("conflict", detail, retry_after_seconds=1))
