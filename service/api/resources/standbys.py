"""``GET /v1/fleet/standbys``: how many nodes should stand by, from how often nodes of this fleet fail."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Query, Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation import standbys
from analyzers.remediation.node_history import DAY_SECONDS
from analyzers.remediation.standbys import FleetRate
from service.api import auth
from service.api.job_rows import RUNNING_SECONDS
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import Service, service_of
from service.clock import now
from service.remediation import fleet_facts, fleet_history
from service.store.models import Job, Node

MOST_NODES = 100_000
MOST_JOBS = 200
DAYS = 90.0
QUANTILE = 0.99
SIZES = (128, 256, 512, 1_024)  # of the table in docs/ladder.md

router = Router("nodes")


class RateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Failures a node and day, and what that was counted from."""

    per_node_day: Annotated[float, doc("The rate: failures of a node in a day.")]
    low: Annotated[float, doc("With high: the interval that holds the rate with 95 %.")]
    high: Annotated[float, doc("See low.")]
    failures: Annotated[int, doc("Of nodes that were taken out, or that a closed incident would have taken out.")]
    executions: Annotated[int, doc("Of these, in which a remediation took the node out.")]
    node_days: Annotated[float, doc("How many node-days were counted.")]
    since: Annotated[float, doc("From when on it was counted, UTC seconds.")]
    prior_failures: Annotated[int, doc("What is assumed before any history: as if so many had been seen …")]
    prior_node_days: Annotated[float, doc("… in so many node-days.")]


class SizeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes should stand by for so many nodes."""

    nodes: Annotated[int, doc("Nodes of the job, or of the fleet that have reported within a day.")]
    standbys: Annotated[int, doc("How many should stand by for them.")]
    standbys_low: Annotated[int, doc("At the lower end of the rate's interval.")]
    standbys_high: Annotated[int, doc("At the upper end: where a missing standby costs more than an idle one.")]


class JobStandbys(SizeDocument, frozen=True, kw_only=True):
    """The same of a running job, beside what its owner has declared."""

    job: Annotated[str, doc("The job.")]
    spares: Annotated[int | None, doc("Declared spares, less those in use; null: none are declared.")]
    missing: Annotated[int | None, doc("How many spares are missing to `standbys`; null: none are declared.")]


class StandbysDocument(SizeDocument, frozen=True, kw_only=True):
    """How many nodes should stand by, and why."""

    quantile: Annotated[float, doc("The share of days on which so many are enough.")]
    rate: Annotated[RateDocument, doc("How often nodes fail.")]
    why: Annotated[str, doc("Where the number comes from, one sentence.")]
    sizes: Annotated[tuple[SizeDocument, ...], doc("The same for jobs of other sizes.")]
    jobs: Annotated[tuple[JobStandbys, ...], doc(f"The running jobs, by name, {MOST_JOBS} at most.")]


@router.get(
    "/v1/fleet/standbys", dependencies=[auth.READ], responses=documented()
)  # fmt: skip
def get_standbys(
    request: Request,
    nodes: Annotated[int | None, Query(ge=1, le=MOST_NODES, description="Of the job; the fleet, if left out.")] = None,
) -> StandbysDocument:
    """Return how many nodes should stand by, so that on 99 days in 100 every failed node has a replacement."""
    return document(service_of(request), nodes)


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
        **msgspec.structs.asdict(size), quantile=QUANTILE, rate=shown, why=_why(size, shown), jobs=tuple(jobs),
        sizes=tuple(_size(one, rate) for one in sorted({*SIZES, size.nodes} - {0})),
    )  # fmt: skip


def _size(nodes: int, rate: FleetRate) -> SizeDocument:
    nodes = min(nodes, MOST_NODES)
    usual, low, high = (
        standbys.count_standbys(nodes, min(1.0, one), QUANTILE) for one in (rate.per_node_day, rate.low, rate.high)
    )
    return SizeDocument(nodes=nodes, standbys=usual, standbys_low=low, standbys_high=high)


def _jobs(session: Session, at: float, rate: FleetRate) -> list[JobStandbys]:
    recent = select(Job.name).where(Job.last_seen_at >= at - RUNNING_SECONDS).order_by(Job.name).limit(MOST_JOBS)
    found = []
    for name in session.scalars(recent).all():
        known = fleet_facts.load_job_facts(session, name)
        if known is not None and known.nodes:
            size = _size(len(known.nodes), rate)
            missing = None if known.spares is None else max(0, size.standbys - known.spares)
            found.append(JobStandbys(**msgspec.structs.asdict(size), job=name, spares=known.spares, missing=missing))
    return found


def _why(size: SizeDocument, rate: RateDocument) -> str:
    """Return in one sentence where the number comes from."""
    if not size.nodes:
        return "no node has reported lately: there is nothing that a standby could replace"
    counted = f"{rate.failures:,} failure{'' if rate.failures == 1 else 's'} in {rate.node_days:,.0f} node-days"
    believed = f"{rate.prior_failures:,} in {rate.prior_node_days:,.0f}"
    source = f"{counted} of this fleet, and {believed} that are believed of any"
    if not rate.failures and rate.node_days < rate.prior_node_days:
        source = f"mostly the rate that is believed of any fleet, {believed} node-days: this one has shown {counted}"
    return (
        f"{size.standbys} of {size.nodes:,} nodes: on 99 days in 100 no more fail, at {1_000 * rate.per_node_day:.2f} in "
        f"1,000 node-days (95 %: {1_000 * rate.low:.2f} to {1_000 * rate.high:.2f}); {source}"
    )
