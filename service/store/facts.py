"""The fleet as a step of remediation is to see it: where jobs run, what was declared of them, who else is on their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.remediation.words import CLAIMED, WAITING, Facts, JobFacts, Remediation
from service.store.models import Attempt, Incident, Job, Node, Placement
from service.store.registry import is_newest
from service.store.sightings import PLACED_SECONDS

FLEET_SECONDS = 86_400.0  # a node that has not reported for so long is of the fleet no more
RUNNING_SECONDS = 120.0  # an agent tells of what runs once a minute
DEFAULT_GPUS = 8


def load(session: Session, now: float, remediations: Iterable[Remediation]) -> Facts:
    """Return what is known of those that may act: the others need no facts."""
    acting = [one for one in remediations if one.status in WAITING | CLAIMED]
    names, incidents = {one.job for one in acting}, {one.incident for one in acting}
    nodes = {node for one in acting for node in one.nodes}
    fleet = select(func.count()).select_from(Node).where(Node.last_seen_at >= now - FLEET_SECONDS)
    seen = session.execute(
        select(Incident.id, Incident.verdict_version, Incident.merged_into)
        .where(Incident.id.in_(incidents))
    ).all()  # fmt: skip
    return Facts(
        fleet_nodes=session.scalar(fleet) or 0,
        jobs={name: facts for name in sorted(names) if (facts := job(session, name)) is not None},
        tenants=tenants(session, now, nodes),
        newest_verdicts={row.id: row.verdict_version for row in seen},
        merged={row.id: row.merged_into for row in seen if row.merged_into is not None},
    )


def job(session: Session, name: str) -> JobFacts | None:
    """Return what is known of a job; None where nobody has seen it or declared it."""
    row = session.get(Job, name)
    if row is None:
        return None
    newest = select(Attempt).where(Attempt.job == name).order_by(Attempt.number.desc()).limit(1)
    attempt = session.scalars(newest).first()
    ranks = {} if attempt is None else _ranks_by_node(session, attempt)
    declared = row.declared
    return JobFacts(
        nodes=tuple(sorted(ranks)),
        attempt=None if attempt is None else attempt.number,
        gpus_per_node=max(ranks.values(), default=DEFAULT_GPUS),
        minimum_nodes=declared.get("minimum_nodes"),
        spares=declared.get("spares"),
        saving_since=row.saving_since,
        holders=_holders(declared),
        last_checkpoint_at=row.last_checkpoint_at,
    )


def tenants(session: Session, now: float, nodes: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the jobs that run on these nodes now. A placement is written again every few minutes, its attempt more often."""
    runs = (
        Placement.node.in_(sorted(nodes)),
        Placement.last_seen_at >= now - PLACED_SECONDS - RUNNING_SECONDS,
        Attempt.last_seen_at >= now - RUNNING_SECONDS,
    )
    same = (Attempt.job == Placement.job) & (Attempt.number == Placement.attempt)
    found: dict[str, set[str]] = {}
    for node, name in session.execute(
        select(Placement.node, Placement.job).join(Attempt, same).where(*runs).distinct()
    ):
        found.setdefault(node, set()).add(name)
    return {node: tuple(sorted(names)) for node, names in sorted(found.items())}


def _ranks_by_node(session: Session, attempt: Attempt) -> dict[str, int]:
    """Return how many ranks of an attempt each node has. One that was started again smaller has fewer than it once had."""
    where = [Placement.job == attempt.job, Placement.attempt == attempt.number, is_newest()]
    if attempt.world_size is not None:
        where.append(Placement.rank < attempt.world_size)
    counted = select(Placement.node, func.count()).where(*where).group_by(Placement.node)
    return {row[0]: row[1] for row in session.execute(counted)}


def _holders(declared: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    told = declared.get("checkpoint_holders") or {}
    return {node: tuple(others) for node, others in told.items()}
