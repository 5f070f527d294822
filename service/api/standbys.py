"""``GET /v1/fleet/standbys``: how many nodes should stand by, from how often nodes of this fleet fail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analyzers.remediation import standbys
from analyzers.remediation.node_history import DAY_SECONDS
from analyzers.remediation.standbys import FleetRate
from service.api import auth
from service.api.problems import documented
from service.api.state import Service, of
from service.clock import now
from service.remediation import fleet_facts, fleet_history
from service.store.models import Job, Node

MOST_NODES = 100_000
MOST_JOBS = 200
DAYS = 90.0
QUANTILE = 0.99
SIZES = (128, 256, 512, 1_024)  # of the table in docs/ladder.md

router = APIRouter(tags=["nodes"])


class RateDocument(BaseModel):
    """Failures a node and day, and what that was counted from."""

    per_node_day: float
    low: float = Field(description="With high: the interval that holds the rate with 95 %.")
    high: float
    failures: int = Field(description="Of nodes that were taken out, or that a closed incident would have taken out.")
    executions: int = Field(description="Of these, in which a remediation took the node out.")
    node_days: float
    since: float = Field(description="From when on it was counted, UTC seconds.")
    prior_failures: int = Field(description="What is believed before any history: as if so many had been seen …")
    prior_node_days: float = Field(description="… in so many node-days.")


class SizeDocument(BaseModel):
    """How many should stand by for a job of so many nodes."""

    nodes: int
    standbys: int
    standbys_low: int = Field(description="At the lower end of the rate's interval.")
    standbys_high: int = Field(description="At the upper end: where a missing one costs more than an idle one.")


class JobStandbys(SizeDocument):
    """The same of a job that runs, beside what its owner has declared."""

    job: str
    spares: int | None = Field(description="Declared, less those in use; null: nobody has said.")
    missing: int | None = Field(description="How many fewer than `standbys` those are; null: nobody has said.")


class StandbysDocument(BaseModel):
    """How many nodes should stand by, and why."""

    nodes: int = Field(description="Asked for; without that, those of the fleet that have reported within a day.")
    standbys: int
    standbys_low: int
    standbys_high: int
    quantile: float = Field(description="The share of days on which so many are enough.")
    rate: RateDocument
    why: str
    sizes: list[SizeDocument]
    jobs: list[JobStandbys] = Field(description=f"That were seen within a day, by name, {MOST_JOBS} at most.")


@router.get(
    "/v1/fleet/standbys", operation_id="get_standbys", dependencies=[auth.READ], responses=documented()
)  # fmt: skip
def get_standbys(
    request: Request,
    nodes: Annotated[int | None, Query(ge=1, le=MOST_NODES, description="Of the job; the fleet, if left out.")] = None,
) -> StandbysDocument:
    """Say how many nodes should stand by, so that on 99 days in 100 no failed node waits for another."""
    return document(of(request), nodes)


def document(service: Service, nodes: int | None = None) -> StandbysDocument:
    """Return how many should stand by for so many nodes, or for the fleet."""
    at, prior = now(), service.weights().rate
    since = at - min(DAYS, service.settings.incident_days) * DAY_SECONDS
    with service.database.session() as session:
        seen = fleet_history.read_failures(session, since, at)
        fleet = session.scalar(select(func.count()).select_from(Node).where(Node.last_seen_at >= at - DAY_SECONDS)) or 0
        rate = standbys.estimate_rate(min(seen.failures, standbys.MOST_FAILURES), seen.node_days, prior)
        jobs = _jobs(session, at, rate)
    size = _size(fleet if nodes is None else nodes, rate)
    shown = RateDocument(
        per_node_day=rate.per_node_day, low=rate.low, high=rate.high, failures=seen.failures, executions=seen.executions,
        node_days=round(seen.node_days, 3), since=seen.since, prior_failures=prior.failures,
        prior_node_days=prior.node_days,
    )  # fmt: skip
    return StandbysDocument(
        **size.model_dump(), quantile=QUANTILE, rate=shown, why=_why(size, shown), jobs=jobs,
        sizes=[_size(one, rate) for one in sorted({*SIZES, size.nodes} - {0})],
    )  # fmt: skip


def _size(nodes: int, rate: FleetRate) -> SizeDocument:
    nodes = min(nodes, MOST_NODES)
    usual, low, high = (
        standbys.count_standbys(nodes, min(1.0, one), QUANTILE) for one in (rate.per_node_day, rate.low, rate.high)
    )
    return SizeDocument(nodes=nodes, standbys=usual, standbys_low=low, standbys_high=high)


def _jobs(session: Session, at: float, rate: FleetRate) -> list[JobStandbys]:
    recent = select(Job.name).where(Job.last_seen_at >= at - DAY_SECONDS).order_by(Job.name).limit(MOST_JOBS)
    found = []
    for name in session.scalars(recent).all():
        known = fleet_facts.load_job_facts(session, name)
        if known is not None and known.nodes:
            size = _size(len(known.nodes), rate)
            missing = None if known.spares is None else max(0, size.standbys - known.spares)
            found.append(JobStandbys(**size.model_dump(), job=name, spares=known.spares, missing=missing))
    return found


def _why(size: SizeDocument, rate: RateDocument) -> str:
    """Say in one sentence where the number comes from."""
    counted = f"{rate.failures:,} failures in {rate.node_days:,.0f} node-days"
    believed = f"{rate.prior_failures:,} in {rate.prior_node_days:,.0f}"
    source = f"{counted} of this fleet, and {believed} that are believed of any"
    if not rate.failures and rate.node_days < rate.prior_node_days:
        source = f"mostly the rate that is believed of any fleet, {believed} node-days: this one has shown {counted}"
    return (
        f"{size.standbys} of {size.nodes:,} nodes: on 99 days in 100 no more fail, at {1_000 * rate.per_node_day:.2f} in "
        f"1,000 node-days (95 %: {1_000 * rate.low:.2f} to {1_000 * rate.high:.2f}); {source}"
    )
