"""A job in the store that fails in attempt after attempt, and an engine's proposer that looks after it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.messages import Approve, Begin, Complete, Take
from analyzers.remediation.types import Remediation
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Attempt, Downtime, Incident, TimelineEntry
from tests.support.incident_rows import AT, JOB, seed
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import declare, let, place

NODES = tuple(f"gpu-{number:04d}" for number in range(1, 5))
WELL_SECONDS = 7_200.0
NOBODY = Verdict(symptom="hang", cause="unknown", abstained=True, action=Action(kind="none", why="nothing is named"))


class Job:
    """A job of four nodes that fails in attempt after attempt; attempt 1 ran well with code a, and b runs since."""

    def __init__(self, database: Database) -> None:
        self.care = Care(database)
        self.care.turn(0.0)
        self.database, self.attempt, self.incident = database, 1, ""
        self._runs(AT - 2 * WELL_SECONDS, seen_at=AT - WELL_SECONDS, code="a")
        declare(database, parallel={"tp": 2, "dp": 4})

    def _runs(self, at: float, seen_at: float, code: str | None) -> None:
        place(self.database, NODES, self.attempt, at=at)
        with self.database.transaction() as session:
            run = session.get_one(Attempt, (JOB, self.attempt))
            run.last_seen_at, run.code_version = seen_at, code

    def fails(
        self, said: Verdict = NOBODY, kind: str = "hang", code: str | None = "b", ran_seconds: float = 60.0
    ) -> None:
        """Let the next attempt start, and fail with a verdict that is published when its agents were asked once."""
        self.attempt += 1
        care = self.care
        self._runs(care.now, care.now + ran_seconds, code)
        care.now += ran_seconds
        self.incident = f"inc-{self.attempt:012d}"
        seed(self.database, self.incident, at=care.now, nodes=NODES, verdicts=(), kind=kind)
        with self.database.transaction() as session:
            session.get_one(Incident, self.incident).attempt = self.attempt
            session.get_one(Downtime, self.incident).attempt = self.attempt
        self.says(said)

    def fails_after_an_eviction(self) -> None:
        """Let gpu-0002 be evicted for a hang, and the next attempt hang too: gpu-0003 is proven then."""
        self.fails(names("gpu-0002"))
        self.care.turn()
        self.done()
        self.fails(names("gpu-0003"))
        self.care.turn()

    def says(self, said: Verdict) -> None:
        """Let the engine publish the next version of the verdict."""
        self.care.publish(replace(said, job=JOB, attempt=self.attempt), self.incident)

    def ends(self, because: str, *, recovered: bool = False) -> None:
        """Let the engine close the incident."""
        at = self.care.now
        with self.database.transaction() as session:
            session.get_one(Attempt, (JOB, self.attempt)).last_seen_at = at
            assert incidents.close(session, self.incident, at, because, recovered=recovered)
            reported = {"because": because, "recovered": recovered}
            timeline.add(session, at, "closed", self.incident, JOB, reported)

    def stands(self, seconds: float = 700.0) -> None:
        """Let it stand still for so long."""
        self.care.turn()
        self.care.turn(seconds)

    def proposal(self) -> Remediation | None:
        """Return what waits for an answer."""
        return next((one for one in self.care.all() if one.status == "proposed"), None)

    def one(self) -> Remediation:
        """Return the only thing that waits for an answer."""
        (one,) = [one for one in self.care.all() if one.status == "proposed"]
        return one

    def done(self, did: dict[str, Any] | None = None) -> Remediation:
        """Let what is proposed be approved and carried out."""
        one = self.one()
        claim: dict[str, Any] = {"id": one.id, "by": "slurm"}
        token = one.claims + 1
        return let(
            self.care.remedies, Approve(id=one.id, by="ann"), Take(**claim), Begin(**claim, token=token),
            Complete(**claim, token=token, did=did or {}), now=self.care.now,
        )  # fmt: skip

    def reported(self) -> list[str]:
        """Return why persons were wanted, in order."""
        with self.database.session() as session:
            asked = select(TimelineEntry).where(TimelineEntry.kind == "person_wanted").order_by(TimelineEntry.sequence)
            return [str(one.details["why"]) for one in session.scalars(asked)]


def names(*nodes: str, probability: float = 0.97) -> Verdict:
    """Return a verdict that evicts these nodes."""
    culprits = tuple(Culprit(root=f"r{node}", kind="node", id=node, probability=probability) for node in nodes)
    roots = tuple(Root(root=f"r{node}", cause="machine", fault_class="never_entered") for node in nodes)
    action = Action(kind="evict", nodes=nodes, why="it stopped")
    return replace(NOBODY, cause="machine", abstained=False, roots=roots, culprits=culprits, action=action)


@pytest.fixture
def either(database: Database) -> Job:
    """Return a job that has run well, and has not failed yet, in SQLite and in PostgreSQL in turn."""
    return Job(database)


@pytest.fixture
def job(sqlite: Database) -> Job:
    """Return the same in SQLite alone."""
    return Job(sqlite)
