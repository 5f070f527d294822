"""Remediations as the engine would have proposed them, for tests of those who show and carry them out."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace
from sqlalchemy import delete

from analyzers.remediation.messages import Proposed
from analyzers.remediation.types import Remediation
from service.clock import now
from service.remediation.repository import RemediationRepository
from service.settings import Settings
from service.store.database import Database
from service.store.models import (
    Answer,
    Attempt,
    AuditEvent,
    Execution,
    Hold,
    Incident,
    Job,
    Node,
    NodeRecord,
    Placement,
    ShadowCase,
    Switch,
    Token,
)
from service.store.models import Remediation as Row
from tests.support.incident_rows import JOB, seed
from tests.support.served import Client

INCIDENT, PLAN_ID = "inc-0123456789ab", "rem-0123456789ab"
NODES = tuple(f"gpu-{number:04d}" for number in range(1, 5))
TABLES = (Row, Hold, Switch, Execution, NodeRecord, ShadowCase, Answer, AuditEvent, Incident, Placement, Job, Node)


def cleared(database: Database) -> None:
    """Forget all remediations, jobs, incidents, answers and the audit log."""
    with database.transaction() as session:
        for model in TABLES:
            session.execute(delete(model))


def forget_tokens(client: Client) -> None:
    """Open a service again that tokens had closed."""
    with client.service.database.transaction() as session:
        session.execute(delete(Token))
    client.service.tokens._forget()
    client.service.open_access._closed = False
    client.service.open_access.recheck()


def write_shadow_cases(data: Path, example: Remediation) -> None:
    """Store that shadow mode was right about thirty incidents, as it would have to be before a policy may act."""
    data.mkdir(parents=True, exist_ok=True)
    at = now() - 3_600  # retention would forget what is very old
    database = Database(Settings(data=data).url())
    database.migrate()
    with database.transaction() as session:
        for number in range(30):
            one = replace(example, id=f"rem-{number:012x}", incident=f"inc-{number:012x}", proposed_at=at)
            session.add(
                ShadowCase(
                    remediation=one.id, incident=one.incident, at=at, closed_at=at + 60, correct=True,
                    document=msgspec.to_builtins(one),
                )
            )  # fmt: skip
    database.close()


def running(database: Database, job: str = JOB, nodes: tuple[str, ...] = NODES) -> None:
    """Store a job whose first attempt runs on these nodes now, a rank on each."""
    at = now()
    with database.transaction() as session:
        for node in nodes:
            session.merge(Node(name=node, first_seen_at=at, last_seen_at=at, coverage={}, devices={}))
        session.add(Job(name=job, first_seen_at=at, last_seen_at=at, declared={}, version=1))
        session.flush()
        session.add(Attempt(job=job, number=1, first_seen_at=at, last_seen_at=at, world_size=len(nodes)))
        for rank, node in enumerate(nodes):
            placed = Placement(job=job, attempt=1, rank=rank, node=node, first_seen_at=at, last_seen_at=at)
            session.add(placed)


def plan(
    id: str = PLAN_ID, incident: str = INCIDENT, job: str = JOB, nodes: tuple[str, ...] = NODES[1:2]
) -> Remediation:
    """Return what the verdict of ``incident_rows`` leads to."""
    return Remediation(
        id=id, incident=incident, verdict_version=2, job=job, attempt=1, kind="evict", nodes=nodes,
        fault_class="never_entered", symptom="hang", probability=0.97, why="rank 3 never entered", proposed_at=now(),
        expected_loss_gpu_hours=3.2,
    )  # fmt: skip


def propose(remedies: RemediationRepository, one: Remediation | None = None) -> Remediation:
    """Propose a plan, and return the remediation as it is stored."""
    wanted = one or plan()
    remedies.handle(Proposed(incident=wanted.incident, plan=wanted), now())
    return remedies.state(now(), wanted.id).remediations[wanted.id]


def seeded(
    database: Database, remedies: RemediationRepository, job: str = JOB, incident: str = INCIDENT
) -> Remediation:
    """Store a running job, its incident and the proposal to take one node out; return the proposal."""
    running(database, job)
    seed(database, incident, at=now() - 60, job=job, nodes=NODES)
    suffix = incident.removeprefix("inc-")
    return propose(remedies, replace(plan(f"rem-{suffix}", incident, job)))
