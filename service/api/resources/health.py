"""Whether the process lives (/healthz), whether it can keep its promise (/readyz), and its numbers (/metrics)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from fastapi import Request, Response
from sqlalchemy.exc import SQLAlchemyError

from analyzers.model.doc import doc
from service.api import auth
from service.api.problems import Problem, documented
from service.api.routing import ProbeRoute, Router
from service.api.state import Service, service_of
from service.store.database import WrongDatabase

RETRY_SECONDS = 2.0
LONGEST_COMMIT_SECONDS = 15.0  # beyond the longest wait for another process's transaction

router = Router("health", ProbeRoute)


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Annotated[Literal["ok"], doc("Always `ok`.")]


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """Batches can be stored."""

    status: Annotated[Literal["ok"], doc("Always `ok`; a service that is not ready answers 503.")]
    follower_lag_seconds: Annotated[
        float, doc("How far the lists of jobs and nodes are behind the log; batches are stored all the same.")
    ]
    waiting_batches: Annotated[int, doc("Batches that wait for the log.")]
    engine: Annotated[
        str, doc("This service's engine: working, standby (another service's works), silent, down, or none.")
    ]
    clock: Annotated[
        str, doc("`ok`, or what is wrong with the service's clock: then nothing is deleted for its age.")
    ] = "ok"


@router.get("/healthz")
async def get_health() -> Alive:
    """Return that the process is alive; needs no token."""
    return Alive(status="ok")


@router.get("/readyz")
def get_readiness(request: Request) -> Ready:
    """Return whether batches can be stored: the database answers, has this version's schema, and is written and read."""
    service = service_of(request)
    wrong = list(_wrong(service))
    if wrong:
        errors = [{"pointer": check, "detail": detail} for check, detail in wrong]
        detail = "; ".join(detail for _check, detail in wrong)
        raise Problem("unavailable", detail, errors=errors, retry_after_seconds=RETRY_SECONDS)
    lag = round(service.follower.lag_seconds, 3)
    engine = service.engine.standing if service.engine is not None else "none"
    return Ready(
        status="ok", follower_lag_seconds=lag, waiting_batches=service.appender.waiting[0], engine=engine,
        clock=service.clock.state or "ok",
    )  # fmt: skip


@router.get(
    "/metrics", dependencies=[auth.READ], response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}, **documented()},
)  # fmt: skip
def get_metrics(request: Request) -> Response:
    """Return the service's own metrics as Prometheus text."""
    service = service_of(request)
    return Response(service.metrics.text(service), media_type="text/plain; version=0.0.4; charset=utf-8")


def _wrong(service: Service) -> Iterator[tuple[str, str]]:
    try:
        if not service.database.at_head():
            yield "migrations", "the database's schema is not this version's: restart the service, which migrates it"
    except (SQLAlchemyError, WrongDatabase) as error:
        yield "database", f"the database does not answer ({type(error).__name__}): is its server running?"
    if not service.appender.alive:
        yield "appender", "the log's writer has ended: restart the service"
    if trouble := service.appender.trouble:
        yield "log", f"{trouble}: the service tries again by itself; is the disk full?"
    elif service.appender.commit_age_seconds > LONGEST_COMMIT_SECONDS:
        yield "log", f"a commit has lasted {service.appender.commit_age_seconds:.0f} s: does the disk answer?"
    if not service.follower.alive:
        yield "follower", "the log's reader has ended: restart the service"
