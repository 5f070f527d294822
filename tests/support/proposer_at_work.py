"""An engine's proposer at work on one hung job, with a clock that the test sets."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import select

from analyzers.incidents.job_views import JobView
from analyzers.incidents.memory import observe_batch
from analyzers.incidents.messages import Publish, Received
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict
from analyzers.remediation.messages import Approve, Begin, Complete, Take
from analyzers.remediation.types import Policy, Remediation
from service import packaged_knowledge
from service.remediation.proposer import Proposer, ProposerCounts
from service.remediation.repository import RemediationRepository
from service.store import incidents, timeline
from service.store.database import Database
from service.store.leases import Lease
from service.store.models import Feedback, Incident, ShadowCase
from tests.support.incident_rows import AT, JOB
from tests.support.remediation_fleet import INCIDENT, let
from tests.support.watched_jobs import ring_record, step_record

KNOWLEDGE = packaged_knowledge.load()
PROPOSE = Policy()


class Care:
    """An engine's proposer with its lease, whose clock the test sets."""

    def __init__(self, database: Database, policy: Policy = PROPOSE) -> None:
        self.now, self.database, self.policy = AT + 20.0, database, policy
        self.lease = Lease(database, "engine", "a", lambda: self.now)
        assert self.lease.take()
        self.counts, self.state = ProposerCounts(), EngineState(KNOWLEDGE)
        self.remedies = RemediationRepository(database, lambda: self.policy)
        self.begin()

    def begin(self) -> None:
        """Start the proposer anew, as after a kill."""
        self.proposer = Proposer(self.database, self.lease, KNOWLEDGE, lambda: self.policy, self.counts)

    def turn(self, seconds: float = 10.0) -> None:
        """Let time pass, and the proposer do what there is to do."""
        self.now += seconds
        self.proposer.turn(self.state, self.now)

    def all(self) -> list[Remediation]:
        """Return all remediations, the oldest first."""
        found = self.remedies.state(self.now).remediations
        return list(found.values())

    def only(self) -> Remediation:
        """Return the only one."""
        (one,) = self.all()
        return one

    def tell(self, kind: str, **details: Any) -> None:
        """Add a line to the incident's timeline."""
        with self.database.transaction() as session:
            timeline.add(session, self.now, kind, INCIDENT, JOB, details)

    def publish(self, document: Verdict, incident: str = INCIDENT) -> None:
        """Publish the next version of an incident's verdict."""
        with self.database.transaction() as session:
            version = session.get_one(Incident, incident).verdict_version + 1
            cut = Cut(after=0, through=version, at=self.now)
            assert incidents.publish(
                session, Publish(incident=incident, version=version, cut=cut, verdict=document), self.now
            )
            timeline.add(session, self.now, "published", incident, JOB, {"version": version})

    def close(self, because: str, *, recovered: bool, ended: str = "") -> None:
        """Close the incident as the engine does."""
        with self.database.transaction() as session:
            assert incidents.close(session, INCIDENT, self.now, because, recovered=recovered)
            reported: dict[str, Any] = {"because": because, "recovered": recovered} | (
                {"ended": ended} if ended else {}
            )
            timeline.add(session, self.now, "closed", INCIDENT, JOB, reported)

    def say(self, judgement: str) -> None:
        """Let a person judge the newest version of the verdict."""
        with self.database.transaction() as session:
            version = session.get_one(Incident, INCIDENT).verdict_version
            row = Feedback(
                incident=INCIDENT, verdict_version=version, at=self.now, by="ann", judgement=judgement, text=""
            )
            session.add(row)
            session.flush()
            timeline.add(session, self.now, "feedback", INCIDENT, JOB, {"feedback": row.id})

    def ended(self, id: str) -> Remediation:
        """Return a remediation that may have left the book."""
        return self.remedies.state(self.now, id).remediations[id]

    def completed(self) -> str:
        """Let the proposal be approved and carried out; return its id."""
        self.turn()
        id, took = self.only().id, {"gpu-0002": "drained"}
        events = (Approve(id=id, by="ann"), Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1))
        let(self.remedies, *events, Complete(id=id, by="slurm", token=1, did=took), now=self.now)
        return id

    def cases(self) -> Sequence[ShadowCase]:
        """Return the cases of shadow mode."""
        with self.database.session() as session:
            return session.scalars(select(ShadowCase)).all()

    def ring(self, phase: str) -> None:
        """Let a rank's probe tell of what it entered in a phase."""
        at = self.now + 5.0
        ring = ring_record(0, at, [("barrier", 1, AT + 10.0, AT + 11.0), ("all_reduce", 2, AT + 15.0, None)], 2)
        strings = (*ring.strings, "forward", phase)
        columns = ring.columns | {"phase": array("i", [len(ring.strings), len(ring.strings) + 1]).tobytes()}
        record = replace(ring, job=JOB, attempt=1, phase=phase, strings=strings, columns=columns)
        batch = Received(sequence=9, received_at=at, node="gpu-0001", records=(record,), sent_at=at)
        observe_batch(self.state, batch)

    def steps(self, first_at: float, count: int, attempt: int = 2, apart: float = 7.0) -> None:
        """Let the job tell of steps of an attempt."""
        view = self.state.jobs.setdefault((JOB, attempt), JobView(JOB, attempt))
        record = step_record([(step, first_at + apart * step) for step in range(count)], job=JOB, attempt=attempt)
        at = first_at + apart * count
        view.take(Received(sequence=1, received_at=at, node="gpu-0001", records=(record,), sent_at=at), [record])
