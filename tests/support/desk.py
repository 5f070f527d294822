"""A running service for the verbs that decide, and the store behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from analyzers.remediation.messages import (
    Begin,
    Complete,
    Proposed,
    Take,
)
from analyzers.remediation.policy import parse_policy
from analyzers.remediation.types import Remediation
from service.clock import now
from service.remediation.repository import RemediationRepository
from service.store.database import Database
from service.store.models import Attempt, AuditEvent, Job, Node, Placement
from tests.support import command_line, incident_rows
from tests.support.command_line import Done
from tests.support.incident_rows import JOB
from tests.support.served import serving

NODES = tuple(f"gpu-000{number}" for number in range(1, 5))


SECONDS = 60.0


POLICY = """
[limits]
evictions_an_hour = 100
breaker_least_nodes = 2

[[rules]]
name = "gone"
mode = "automatic"
fault_class = "process_gone"
least_probability = 0.99
least_precision = 0.8

[[rules]]
name = "the rest"
mode = "propose"
"""


@dataclass
class Desk:
    """A running service, and the store behind it, into which a scheduler and the engine write as they would."""

    url: str
    database: Database
    made: list[str] = field(default_factory=list)

    def run(self, *arguments: str) -> Done:
        """Run a command against this service, without a terminal."""
        return command_line.faulthound(*arguments, "--service", self.url)

    def reported(self, *arguments: str) -> Any:
        """Return what a command that ends well prints as JSON."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def status(self, id: str) -> str:
        """Return how far a remediation is, as the service tells it."""
        return str(self.found(id)["status"])

    def found(self, id: str) -> Any:
        """Return a remediation as the service shows it."""
        return httpx.get(f"{self.url}/v1/remediations/{id}", timeout=SECONDS).json()

    def happens(self, *events: Any) -> None:
        """Let something happen that no person does."""
        remedies = RemediationRepository(self.database, lambda: parse_policy(POLICY))
        for event in events:
            remedies.handle(event, now())

    def proposed(self, node: str = "gpu-0002", **fields: Any) -> str:
        """Propose to evict a node from the job, for an incident of its own; return the proposal's id."""
        number = len(self.made) + 1
        reported: dict[str, Any] = {
            "id": f"rem-{number:012x}", "incident": f"inc-{number:012x}", "verdict_version": 2, "job": JOB, "attempt": 1,
            "kind": "evict", "nodes": (node,), "fault_class": "stopped", "symptom": "hang", "probability": 0.97,
            "why": "rank 3 never entered", "proposed_at": now(), "expected_loss_gpu_hours": 3.25,
        } | fields  # fmt: skip
        plan = Remediation(**reported)
        incident_rows.seed(self.database, plan.incident, at=now())
        self.happens(Proposed(incident=plan.incident, plan=plan))
        self.made.append(plan.id)
        return plan.id

    def executed(self, id: str) -> None:
        """Let a scheduler carry out what was approved."""
        token: dict[str, Any] = {"id": id, "by": "slurm", "token": 1}
        self.happens(
            Take(id=id, by="slurm"), Begin(**token), Complete(**token, did={"gpu-0002": "drained, it was idle"})
        )

    def changes(self) -> int:
        """Return how many changes the audit log has."""
        with self.database.session() as session:
            return session.query(AuditEvent).count()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Yield a service without an engine that knows a job of four ranks on four nodes."""
    folder = tmp_path_factory.mktemp("service")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    with serving(folder, {"FAULTHOUND_ENGINE": "false", "FAULTHOUND_POLICY": str(policy)}) as (url, _process):
        database = Database(f"sqlite:///{folder / 'data' / 'faulthound.db'}")
        seen = {"first_seen_at": now(), "last_seen_at": now()}
        with database.transaction() as session:
            session.add(Job(name=JOB, **seen, declared={}, version=1))
            session.flush()
            session.add(Attempt(job=JOB, number=1, **seen, world_size=4))
            session.flush()
            for rank, node in enumerate(NODES):
                session.add(Node(name=node, **seen))
                session.add(Placement(job=JOB, attempt=1, rank=rank, node=node, **seen))
        yield Desk(url, database)
        database.close()
