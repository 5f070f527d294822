"""A job of three nodes in the store, hung and judged, for tests of what becomes of its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analyzers.remediation.messages import RemediationEvent, RemediationRefused, Store
from analyzers.remediation.types import Remediation
from service.remediation.repository import RemediationRepository
from service.store.database import Database
from service.store.models import Attempt, Job, Node, Placement
from tests.support.incident_rows import AT, JOB, seed

NODES = ("gpu-0001", "gpu-0002", "gpu-0003")
ID, INCIDENT = "rem-0123456789ab", "inc-0123456789ab"


def plan(**more: Any) -> Remediation:
    """Return the eviction of the node that the sample verdict names."""
    reported: dict[str, Any] = {
        "id": ID, "incident": INCIDENT, "verdict_version": 2, "job": JOB, "attempt": 1, "kind": "evict",
        "nodes": ("gpu-0002",), "fault_class": "stopped", "symptom": "hang", "probability": 0.97,
        "why": "it hangs alone", "proposed_at": AT,
    }  # fmt: skip
    return Remediation(**reported | more)


def place(database: Database, nodes: Sequence[str] = NODES, attempt: int = 1, job: str = JOB, at: float = AT) -> None:
    """Let two ranks of an attempt run on each of these nodes."""
    with database.transaction() as session:
        if session.get(Job, job) is None:
            session.add(Job(name=job, first_seen_at=at, last_seen_at=at, declared={}, version=1))
            session.flush()
        world = 2 * len(nodes)
        session.add(Attempt(job=job, number=attempt, first_seen_at=at, last_seen_at=at, world_size=world))
        for rank in range(world):
            here = {"job": job, "attempt": attempt, "rank": rank, "node": nodes[rank // 2]}
            session.add(Placement(**here, first_seen_at=at, last_seen_at=at))
        for name in nodes:
            if session.get(Node, name) is None:
                session.add(Node(name=name, first_seen_at=at, last_seen_at=at))


def hung(database: Database, **more: Any) -> None:
    """Store the job and its incident with two versions of the verdict."""
    place(database)
    seed(database, **more)


def declare(database: Database, job: str = JOB, **reported: Any) -> None:
    """Store what the job's owner says of it."""
    with database.transaction() as session:
        row = session.get(Job, job)
        assert row is not None
        row.declared = {**row.declared, **reported}


def let(remedies: RemediationRepository, *events: RemediationEvent, now: float = AT + 20.0) -> Remediation:
    """Let these happen, one after the other; return the remediation as the last of them left it."""
    done = [instruction for event in events for instruction in remedies.handle(event, now)]
    return [one.remediation for one in done if isinstance(one, Store)][-1]


def refusal(remedies: RemediationRepository, event: RemediationEvent, now: float = AT + 20.0) -> str:
    """Return the code with which an event is refused; "" where it is not."""
    try:
        remedies.handle(event, now)
    except RemediationRefused as refused:
        return refused.code
    return ""
