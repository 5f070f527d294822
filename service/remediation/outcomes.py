"""What is learned from outcomes: how far a node was the cause, and whether a rule of the policy would have been right."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import KEEPS_OUT
from analyzers.remediation import checks
from analyzers.remediation.node_history import NodeEvent, Trial, record_trial, update_record
from analyzers.remediation.types import Remediation
from service.remediation import node_records, rows
from service.store.models import Feedback, ShadowCase
from service.store.schema import clean
from service.store.upserts import upsert


def record_trials(session: Session, one: Remediation, now: float, weights: Weights, cures: float) -> None:
    """Record the outcome on the nodes that were taken out. ``cures``: the share of such faults that a plain restart cures."""
    if one.kind not in KEEPS_OUT or one.outcome is None or one.began_at is None:
        return
    trial = Trial(
        probability=one.probability, began_at=one.began_at, ended_at=now, outcome=one.outcome, cures=cures,
        others=one.probability if len(one.nodes) > 1 else 0.0, note=one.id,
    )  # fmt: skip
    for node in one.out:
        record = node_records.read_record(session, node, to_change=True)
        node_records.write_record(session, record_trial(record, trial, weights), now)


def record_return(session: Session, one: Remediation, now: float, weights: Weights) -> None:
    """Record that its nodes serve again, under burn-in."""
    if one.kind not in KEEPS_OUT:
        return
    for node in one.give_back:
        record = node_records.read_record(session, node, to_change=True)
        if one.outcome is None and record.burn_in != "out":
            # Undone before an outcome: that proves nothing about the node, and still it was out.
            record = replace(record, burn_in="out", since=one.began_at)
        happened = NodeEvent(kind="returned", note=one.id)
        node_records.write_record(session, update_record(record, happened, now, weights), now)


def record_checks(session: Session, one: Remediation, now: float, weights: Weights) -> None:
    """Record the results of checks on its nodes."""
    failed = checks.find_failed_nodes(one)
    for node in one.nodes:
        happened = NodeEvent(kind="probe_failed" if node in failed else "probe_passed", note=one.id)
        record = node_records.read_record(session, node, to_change=True)
        node_records.write_record(session, update_record(record, happened, now, weights), now)


def note_case(session: Session, one: Remediation, now: float) -> None:
    """Record what a rule would have done, or has done."""
    row = session.get(ShadowCase, one.id)
    if row is None:
        case = {
            "remediation": one.id, "incident": one.incident, "at": now, "closed_at": None, "correct": None,
            "because": "", "document": msgspec.to_builtins(one),
        }  # fmt: skip
        upsert(session, ShadowCase, [case])
    elif row.closed_at is None:
        row.document = msgspec.to_builtins(one)


def settle_cases(session: Session, one: Remediation) -> None:
    """Settle the cases of its incident by its outcome.

    A cure proves only what was done: a rule was right that would have done the same to the same nodes, and wrong if it would have
    taken others. Other cases stay open.
    """
    if one.outcome == "not_cured":
        _judge(session, ShadowCase.remediation == one.id, False, one.because)
    if one.outcome != "cured":
        return
    for case in session.scalars(select(ShadowCase).where(ShadowCase.incident == one.incident)).all():
        same_nodes, same_kind = set(case.document["nodes"]) == set(one.out), case.document["kind"] == one.kind
        if same_nodes and same_kind:
            _judge(session, ShadowCase.remediation == case.remediation, True, one.because)
        elif case.remediation != one.id and not (same_nodes and one.out):
            _judge(session, ShadowCase.remediation == case.remediation, False, f"{one.id} was the cure")


def close_cases(session: Session, incident: str, now: float, because: str, *, recovered: bool) -> None:
    """Close the cases of an incident; where the job recovered by itself they were wrong."""
    if recovered:
        _judge(session, ShadowCase.incident == incident, False, because)
    session.execute(update(ShadowCase).where(ShadowCase.incident == incident).values(closed_at=now))


def apply_feedback(session: Session, feedback: Feedback) -> None:
    """Settle the cases of an incident by a person's feedback, which overrides the outcome."""
    cases = ShadowCase.incident == feedback.incident
    for row in session.scalars(select(ShadowCase).where(cases)):
        if (correct := _was_right(session, row, feedback)) is not None:
            row.correct, row.because = correct, clean(f"{feedback.by}: {feedback.text}", 1_000)
    session.flush()


def _was_right(session: Session, case: ShadowCase, feedback: Feedback) -> bool | None:
    """Whether a rule was right, by feedback on a version of the verdict; None: the feedback does not decide."""
    one = rows.read_one(session, case.remediation)
    if one is None or feedback.judgement == "unclear":
        return None
    if case.document["verdict_version"] <= feedback.verdict_version <= one.verdict_version:
        return feedback.judgement == "right"
    # The right verdict has withdrawn it: to act at once would have been wrong.
    withdrawn = one.status == "cancelled" and one.verdict_version < feedback.verdict_version
    return False if withdrawn and feedback.judgement == "right" else None


def _judge(session: Session, cases: object, correct: bool, because: str) -> None:
    unsaid = ShadowCase.correct.is_(None)
    values = {"correct": correct, "because": clean(because, 1_000)}
    session.execute(update(ShadowCase).where(cases, unsaid).values(values))  # type: ignore[arg-type]
