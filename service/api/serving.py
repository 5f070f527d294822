"""The service as a process: its settings checked, its socket bound, its server run until a signal ends it."""

from __future__ import annotations

import gc
import resource
import shutil
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from sqlalchemy import make_url, select
from sqlalchemy.exc import SQLAlchemyError

from collectors.records.prepared import prepare_types
from service import packaged_knowledge
from service.api.app import create_app
from service.api.auth import is_loopback
from service.api.protocol import protocol
from service.engine.supervision import EngineProcess
from service.logs import write_logs
from service.settings import Settings
from service.store.database import Database, WrongDatabase
from service.store.models import Node
from service.store.tokens import Tokens

DRAIN_SECONDS = 15  # for what has begun when the signal comes
BACKLOG = 2_048  # connections that wait to be accepted: a fleet that comes back at once
IDLE_SECONDS = 75  # a connection is kept so long between two requests: longer than an agent's pause
FULL_COLLECTION_SECONDS = 600.0
YOUNG, MIDDLE, NEVER = 20_000, 20, 1_000_000


class CannotServe(Exception):
    """The service cannot start; the message gives the reason and the next step."""


def run(settings: Settings, *, announce: Callable[[str], None], default_url: str) -> None:
    """Serve until SIGTERM or SIGINT; raise ``CannotServe`` where it cannot begin. ``default_url``: where clients look unasked."""
    try:
        write_logs(settings)
    except ValueError as problem:
        raise CannotServe(str(problem)) from None
    if settings.engine:
        _check_knowledge(settings)
    bound = _bound(settings)
    try:
        is_new = _check_database(settings, exposed=not is_loopback(bound.getsockname()[0]))
        _raise_file_limit()
        app = create_app(settings, EngineProcess(settings) if settings.engine else None)
        prepare_types()
        server = _Server(
            _configuration(settings, app), app,
            lambda: _announce(settings, bound, announce, default_url if is_new else None),
        )  # fmt: skip
        with _GarbageCollector():
            server.run(sockets=[bound])
    except SystemExit:  # uvicorn's way to say that the application did not start
        raise CannotServe("the service did not start: the log above says why") from None
    finally:
        bound.close()


class _Server(uvicorn.Server):
    """Announces that it listens, and ends long polls and streams at shutdown: they would delay it."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._app, self._listening = app, listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.service.end_waits()
        await super().shutdown(sockets)

    def handle_exit(self, _sig: int, _frame: Any) -> None:
        # Not recorded as captured: uvicorn would raise it again after a clean end, and the process would die of it.
        if self.should_exit:
            self.force_exit = True
        self.should_exit = True


def _bound(settings: Settings) -> socket.socket:
    """Bind first and check the resulting address: a name does not show where it leads."""
    where = f"{settings.host or '*'}:{settings.port}"
    try:
        family, _type, _protocol, _name, address = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise CannotServe(f"cannot listen on {where}: {error.strerror or error}: choose another host or port") from None
    bound.setblocking(False)
    return bound


def _check_knowledge(settings: Settings) -> None:
    """Refuse tables that the engine cannot read: it would end at each start, and no job would be judged."""
    try:
        packaged_knowledge.load(settings.knowledge)
    except ValueError as problem:
        raise CannotServe(f"FAULTHOUND_KNOWLEDGE: {problem}") from None


def _check_database(settings: Settings, *, exposed: bool) -> bool:
    """Return whether no agent has reported to this database.

    Refuse one that cannot be used, and an address that other machines reach while there is no token.
    """
    try:
        database = Database(settings.url())
        try:
            database.migrate()
            closed = not exposed or Tokens(database).any()
            with database.session() as session:
                is_new = session.scalar(select(Node.name).limit(1)) is None
        finally:
            database.close()
    except (WrongDatabase, SQLAlchemyError, OSError) as error:
        raise CannotServe(
            f"the database cannot be used: {str(error).splitlines()[0]}: FAULTHOUND_DATA or FAULTHOUND_DATABASE_URL names it"
        ) from None
    if not closed:
        raise CannotServe(
            f"{settings.host!r} is reached from other machines, and there is no token: make one with "
            "`faulthound tokens create NAME --scope admin --local`, or listen on 127.0.0.1"
        )
    return is_new


def _raise_file_limit() -> None:
    """Take as many open files as are allowed: an agent holds one or two connections, and a fleet has thousands."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _announce(
    settings: Settings, bound: socket.socket, announce: Callable[[str], None], default_url: str | None
) -> None:
    """Report where the service listens and where its data is; until an agent has reported, what comes next."""
    host, port = bound.getsockname()[:2]
    scheme = "https" if settings.tls_key else "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    announce(f"Faulthound listens on {url}")
    # A URL without its password.
    announce(f"Its data is in {settings.data.absolute() if settings.file else repr(make_url(settings.url()))}")
    if default_url is not None:
        other = "" if url == default_url else f" --service {url}"
        announce("No agent has reported yet. Next, each in a terminal of its own:")
        announce(f"  {_program('faulthound-agent')} run --service {url}    reads this machine's jobs, and changes none")
        announce(f"  {_program('faulthound')} status{other}    shows whether they arrive, and what is not measured")
        announce(f"  {_program('faulthound')} watch{other}    prints incidents; the pages are at {url}")


def _program(name: str) -> str:
    """Return a program of this installation as it can be typed here: the shell may not find it by its name."""
    own = Path(sys.argv[0]).with_name(name)
    return name if shutil.which(name) == str(own) or not own.is_file() else str(own)


def _configuration(settings: Settings, app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="service.api.protocol:Loop",
        http=protocol(app.state.connections),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Never believe X-Forwarded-For: whether a request is from this machine decides what it may do.
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


class _GarbageCollector:
    """A thread that runs a full garbage collection every ten minutes, instead of CPython's thresholds.

    A full collection walks every object: half a second with two thousand agents' polls waiting, in which no batch is
    acknowledged. By CPython's thresholds it comes every few seconds. The service makes few cycles.
    """

    def __init__(self, every_seconds: float = FULL_COLLECTION_SECONDS) -> None:
        self._every_seconds, self._closing = every_seconds, threading.Event()
        self._thresholds = gc.get_threshold()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def __enter__(self) -> _GarbageCollector:
        """Take over; objects that exist already, modules and routes, are never examined again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore CPython's thresholds."""
        self._closing.set()
        self._thread.join()
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)

    def _run(self) -> None:
        while not self._closing.wait(self._every_seconds):
            gc.collect()
