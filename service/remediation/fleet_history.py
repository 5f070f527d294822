"""How often the nodes of the fleet fail, by the store: the number of standbys depends on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.node_history import DAY_SECONDS
from service.remediation.rows import outcome_column
from service.store import incidents
from service.store.models import Execution, Incident, Node
from service.store.models import Remediation as Row

SAME_SECONDS = DAY_SECONDS  # a node that is named again this soon has failed once: standbys are counted by the day


class FailureHistory(NamedTuple):
    """Failures that took a node out, or should have, and the node-days in which they were counted."""

    since: float
    failures: int
    node_days: float
    executions: int  # of the failures, those in which a remediation took the node out


class _Failure(NamedTuple):
    at: float
    node: str
    incident: str


def read_failures(session: Session, since: float, now: float) -> FailureHistory:
    """Return the fleet's failures from ``since`` to now.

    A failure is a node that was taken out, or that the last verdict of a closed incident would have taken out: under a policy
    that only proposes, people drain by hand. An eviction that cured nothing, was undone, or a person rejected does not count.
    """
    innocent = _innocent(session, since)
    taken, named = (
        [one for one in found if (one.node, one.incident) not in innocent]
        for found in (_executions(session, since), _named(session, since))
    )
    return FailureHistory(since, _count([*taken, *named]), _node_days(session, since, now), _count(taken))


def _executions(session: Session, since: float) -> Iterator[_Failure]:
    """Yield when each node was taken out, and for which incident; a deleted remediation stands for its incident."""
    rows = session.execute(
        select(Execution.at, Execution.nodes, Execution.remediation, Row.incident)
        .join(Row, Row.id == Execution.remediation, isouter=True)
        .where(Execution.at >= since)
    )
    yield from (_Failure(row.at, node, row.incident or row.remediation) for row in rows for node in row.nodes)


def _innocent(session: Session, since: float) -> set[tuple[str, str]]:
    """Return the nodes whose eviction did not cure an incident, or was undone."""
    ended = (outcome_column() == "not_cured") | (Row.status == "undone")
    rows = session.execute(
        select(Row.nodes, Row.incident).where(Row.kind.in_(TAKES_NODES), Row.changed_at >= since, ended)
    )
    return {(node, row.incident) for row in rows for node in row.nodes}


def _named(session: Session, since: float) -> Iterator[_Failure]:
    """Yield the nodes that closed incidents have named as machines to be taken out."""
    rows = session.execute(
        select(Incident.id, Incident.opened_at, Incident.culprits).where(
            Incident.opened_at >= since, Incident.closed_at.is_not(None), Incident.merged_into.is_(None),
            Incident.cause == "machine", Incident.abstained.is_(False), Incident.action.in_(TAKES_NODES),
        )
    ).all()  # fmt: skip
    wrong = incidents.acquitted_since(session, since)
    for row in rows:
        for one in row.culprits:
            if one["kind"] == "node" and one["id"] not in wrong.get(row.id, ()):
                yield _Failure(row.opened_at, one["id"], row.id)


def _count(found: Iterable[_Failure]) -> int:
    """Count failures: a node that fails again within a day counts once."""
    count, last = 0, dict[str, float]()
    for one in sorted(found):
        if one.at - last.get(one.node, -math.inf) >= SAME_SECONDS:
            last[one.node] = one.at
            count += 1
    return count


def _node_days(session: Session, since: float, now: float) -> float:
    """Return the sum of the times for which nodes have reported; deleted nodes do not count."""
    spans = session.execute(select(Node.first_seen_at, Node.last_seen_at).where(Node.last_seen_at > since))
    return sum(max(0.0, min(last, now) - max(first, since)) for first, last in spans) / DAY_SECONDS
