"""Whether the process lives (/healthz), whether it can keep its promise (/readyz), and its numbers (/metrics)."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import SQLAlchemyError

from service.api import auth
from service.api.problems import Problem, documented
from service.api.state import Service, of
from service.store.database import WrongDatabase

RETRY_SECONDS = 2.0

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: str


class Ready(BaseModel):
    """Everything that a batch needs is there."""

    status: str
    follower_lag_seconds: float = Field(
        description="How old the lists of jobs and nodes are; batches are taken all the same."
    )
    waiting_batches: int
    engine: str = Field(
        description="Of this service's engine: working, standby (another service's works), silent, down, or none."
    )


@router.get("/healthz", operation_id="get_health", responses=documented())
async def get_health() -> Alive:
    """Say that the process is alive; needs no token."""
    return Alive(status="ok")


@router.get("/readyz", operation_id="get_readiness", responses=documented())
def get_readiness(request: Request) -> Ready:
    """Say whether batches can be taken: the database answers, is at this version, and is written and read; no token."""
    service = of(request)
    wrong = list(_wrong(service))
    if wrong:
        errors = [{"pointer": check, "detail": detail} for check, detail in wrong]
        detail = "; ".join(detail for _check, detail in wrong)
        raise Problem("unavailable", detail, errors=errors, retry_after_seconds=RETRY_SECONDS)
    lag = round(service.follower.lag_seconds, 3)
    engine = service.engine.standing if service.engine is not None else "none"
    return Ready(status="ok", follower_lag_seconds=lag, waiting_batches=service.appender.waiting[0], engine=engine)


@router.get(
    "/metrics", operation_id="get_metrics", dependencies=[auth.READ], response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}, **documented()},
)  # fmt: skip
def get_metrics(request: Request) -> Response:
    """Give the service's own numbers as Prometheus text."""
    service = of(request)
    return Response(service.metrics.text(service), media_type="text/plain; version=0.0.4; charset=utf-8")


def _wrong(service: Service) -> Iterator[tuple[str, str]]:
    try:
        if not service.database.at_head():
            yield "migrations", "the database's schema is not this version's: restart the service, which migrates it"
    except (SQLAlchemyError, WrongDatabase) as error:
        yield "database", f"the database does not answer ({type(error).__name__}): is its server running?"
    if not service.appender.alive:
        yield "appender", "nothing writes the log any more: restart the service"
    if not service.follower.alive:
        yield "follower", "nothing reads the log any more: restart the service"
