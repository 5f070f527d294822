"""Incidents as the engine would have stored them, for tests of those who show them: a hang that was judged twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from analyzers.model.verdict import Action, Culprit, Verdict, to_json
from service.store import timeline
from service.store.database import Database
from service.store.models import Downtime, Incident, UnfitNode
from service.store.models import Verdict as VerdictRow

AT = 1_795_230_847.0  # 2026-11-21T03:14:07Z
JOB = "llama-405b"
SYMPTOM = {
    "kind": "hang", "detector": "no_progress", "at": AT - 12, "text": "no step for 12.0 s; 8.0 s are its rhythm",
    "ranks": [3], "nodes": ["gpu-0002"], "of_a_later_program": 1,
}  # fmt: skip


def verdict(node: str = "gpu-0002", action: str = "evict") -> Verdict:
    """Return a verdict that names one rank's node."""
    culprit = Culprit(root="r1", kind="node", id=node, ranks=(3,), probability=0.97, why="rank 3 never entered")
    return Verdict(
        symptom="hang", cause="machine", abstained=False, version="0.1.0", knowledge="sha256:00", job=JOB, attempt=1,
        culprits=(culprit,), action=Action(kind=action, nodes=(node,), why="it hangs alone"),
    )  # fmt: skip


def seed(
    database: Database,
    id: str = "inc-0123456789ab",
    *,
    at: float = AT,
    job: str | None = JOB,
    nodes: Sequence[str] = ("gpu-0001", "gpu-0002"),
    verdicts: Sequence[Verdict] = (verdict(action="probe"), verdict()),
    closed_at: float | None = None,
    kind: str = "hang",
    context: bytes = b"",
    after: int = 0,
    through: int = 0,
) -> str:
    """Store an incident with these versions of its verdict, its ledger and its timeline; return its id."""
    with database.transaction() as session:
        row = Incident(
            id=id, kind=kind, job=job, attempt=1, opened_at=at, onset_at=at - 12, closed_at=closed_at, version=1,
            closed_because="" if closed_at is None else "it moves again at step 101", nodes=list(nodes),
            state={"symptoms": [SYMPTOM], "after": after, "nodes": list(nodes)}, context=context,
        )  # fmt: skip
        session.add(row)
        session.flush()
        for number, one in enumerate(verdicts, start=1):
            _publish(session, row, number, one, at + 5 * number, {"after": after, "through": through + number})
        if job is not None:
            session.add(Downtime(incident=id, job=job, attempt=1, onset_at=at - 12, detected_at=at, last_step=100))
        timeline.add(session, at, "opened", id, job, {"kind": kind, "text": SYMPTOM["text"]})
        for number, _ in enumerate(verdicts, start=1):
            timeline.add(session, at + 5 * number, "published", id, job, {"version": number})
        if closed_at is not None:
            timeline.add(session, closed_at, "closed", id, job, {"because": row.closed_because})
    return id


def _publish(session: Any, row: Incident, number: int, one: Verdict, at: float, cut: dict[str, Any]) -> None:
    stored = VerdictRow(
        incident=row.id, version=number, at=at, cut={**cut, "at": at, "looks": number}, knowledge=one.knowledge,
        program=one.version, document=to_json(one), claims=[{"analyzer": "hang", "fault_class": "never_entered"}],
    )  # fmt: skip
    session.add(stored)
    row.verdict_version, row.symptom, row.cause = number, one.symptom, one.cause
    row.abstained, row.action = one.abstained, one.action.kind
    named = ("kind", "id", "ranks", "probability")
    row.culprits = [{name: msgspec.to_builtins(getattr(who, name)) for name in named} for who in one.culprits]
    if one.action.kind == "evict" and row.closed_at is None:
        for node in one.action.nodes:
            session.add(UnfitNode(node=node, incident=row.id, at=at, action="evict", why=one.action.why))
