"""The rank maps that jobs' owners have declared, as the engine takes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from analyzers.incidents.messages import Declared
from service.store.models import Job

ACTIVE_SECONDS = 3_600.0  # since a job was seen or declared: older ones need no rank map


def rank_map(row: Job) -> Declared:
    """Return what a job's row says of its ranks."""
    nodes, attempt = row.declared.get("nodes", ()), row.declared.get("attempt", 0)
    return Declared(
        job=row.name,
        attempt=attempt,
        nodes=tuple(nodes),
        version=row.version,
        code_version=row.declared.get("code_version"),
    )


def changed(
    session: Session, known: Mapping[str, Declared], now: float, running: Collection[str] = ()
) -> Iterator[Declared]:
    """Yield the rank maps of active jobs that are not ``known`` as they are, and the end of those that are not needed.

    ``running``: jobs of which nothing ends, whatever the clock says.
    """
    since = now - ACTIVE_SECONDS
    active = select(Job.name, Job.version).where(
        Job.declared_at.is_not(None), or_(Job.last_seen_at >= since, Job.declared_at >= since)
    )
    versions = {row.name: row.version for row in session.execute(active.order_by(Job.name))}
    for name, version in versions.items():
        if (name not in known or known[name].version != version) and (job := session.get(Job, name)) is not None:
            yield rank_map(job)
    for name in known:
        if name not in versions and name not in running:
            yield Declared(job=name)
