"""Where the ranks of jobs were seen, and what code they ran."""

from __future__ import annotations

from itertools import groupby

from sqlalchemy import ColumnElement, exists, select, tuple_
from sqlalchemy.orm import Session, aliased

from analyzers.incidents.hosting import Hosting
from collectors.records import Members
from collectors.records import Placement as PlacementRecord
from service.store.declarations import rank_map
from service.store.models import Attempt, Job, Placement

OBSERVED_SECONDS = 900.0  # a placement is written again every five minutes: it may hold so long after it was last seen


def is_newest() -> ColumnElement[bool]:
    """Return the condition that a placement is the newest of its rank, which may have moved."""
    other = aliased(Placement)
    newer = tuple_(other.last_seen_at, other.node) > tuple_(Placement.last_seen_at, Placement.node)
    same = (
        (other.job == Placement.job)
        & (other.attempt == Placement.attempt)
        & (other.rank == Placement.rank)
        & (other.role == Placement.role)
    )
    return ~exists().where(same, newer)


def job_nodes(session: Session, job: str, since: float, until: float) -> list[str]:
    """Return the nodes that ran a rank of the job at some time in [since, until], or may have."""
    ran = (
        Placement.job == job,
        Placement.first_seen_at <= until,
        Placement.last_seen_at >= since - OBSERVED_SECONDS,
    )
    return list(session.scalars(select(Placement.node).where(*ran).distinct().order_by(Placement.node)))


def hosting_of(session: Session, job: str, at: float) -> Hosting:
    """Return who hosts the ranks of a job as the table has it, which no claim of a stranger is written into."""
    hosting = Hosting()
    if (row := session.get(Job, job)) is not None and row.declared_at is not None:
        declared = rank_map(row)
        hosting.declare(declared.attempt, declared.nodes, at)
    lately = Placement.last_seen_at >= at - OBSERVED_SECONDS
    rows = select(
        Placement.attempt, Placement.node, Placement.rank, Placement.role, Attempt.world_size, Placement.first_seen_at
    )
    rows = rows.join(Attempt, (Attempt.job == Placement.job) & (Attempt.number == Placement.attempt))
    rows = rows.where(Placement.job == job, lately, is_newest()).order_by(
        Placement.attempt, Placement.first_seen_at, Placement.node
    )
    began_at: dict[int, float] = {}
    for (attempt, node, size), found in groupby(
        session.execute(rows), key=lambda placed: (placed[0], placed[1], placed[4])
    ):
        held = list(found)
        ranks, roles = [placed[2] for placed in held], tuple(placed[3] for placed in held)
        placement = PlacementRecord(
            job=job, attempt=attempt, ranks=Members.of(ranks), nodes=(node,) * len(ranks), roles=roles, world_size=size
        )
        hosting.take(node, [placement], at)
        began_at[attempt] = min(began_at.get(attempt, at), *(placed[5] for placed in held))
    for number, placed_map in hosting.maps.items():
        placed_map.start.began_at = began_at.get(number or 0, at)
    hosting.admitted.clear()
    return hosting


def code_version_of(session: Session, job: str, number: int) -> str | None:
    """Return the code version of a new run: declared for it or for an earlier one, else that of the run before."""
    row = session.get(Job, job)
    if row is not None and row.declared_at is not None and row.declared.get("attempt", 0) <= number:
        version: str | None = row.declared.get("code_version")
        return version
    earlier = select(Attempt.code_version).where(Attempt.job == job, Attempt.number < number)
    return session.scalar(earlier.order_by(Attempt.number.desc()).limit(1))
