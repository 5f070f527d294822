"""The outcome of a remediation: whether the job runs well or fails the same way again, and what is learned from that.

Learned is how far a node was the cause, and whether a rule of the policy would have been right.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from analyzers.incidents.job_views import JobView
from analyzers.incidents.state import EngineState
from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import KEEPS_OUT
from analyzers.remediation import checks
from analyzers.remediation.attempts import SAME_ATTEMPT
from analyzers.remediation.node_history import NodeEvent, Trial, record_trial, update_record
from analyzers.remediation.types import Outcome, Remediation
from service.remediation import node_records, rows
from service.store.models import Feedback, Incident, ShadowCase
from service.store.schema import clean
from service.store.upserts import upsert

GOOD_STEPS, GOOD_SECONDS = 10, 60.0


def observe_outcome(state: EngineState, one: Remediation, shown: list[Incident]) -> tuple[Outcome, str] | None:
    """Return the outcome with the reason; None: it is not known yet. ``shown``: the job's incidents since."""
    since = one.began_at or one.changed_at
    attempts = [view for view in state.jobs.values() if view.job == one.job and _is_after(view, one, since)]
    for incident in shown:
        if _is_again(incident, one, since):
            return "not_cured", f"{incident.id} shows the same again: {incident.symptom or incident.kind}"
    if any(incident.closed_at is None for incident in shown if incident.id != one.incident):
        return None  # another incident is open: the outcome shows after it
    return next((("cured", why) for view in attempts if (why := _runs_well(view, since))), None)


def _is_again(incident: Incident, one: Remediation, since: float) -> bool:
    """Whether an incident is the same trouble in a later attempt; the end of the stopped attempt is not.

    Where attempts are not counted, agents report 0: every younger incident is then of a later attempt.
    """
    later = not one.attempt or incident.attempt is None or incident.attempt > one.attempt
    after = incident.opened_at > (one.completed_at or since)
    same = one.symptom in (incident.kind, incident.symptom)
    return incident.id != one.incident and after and same and (later or one.kind in SAME_ATTEMPT)


def _is_after(view: JobView, one: Remediation, since: float) -> bool:
    """Whether an attempt is a later one, or, where attempts are not counted, has younger processes."""
    if one.kind in SAME_ATTEMPT:
        return True
    if (view.attempt or 0) != (one.attempt or 0):
        return (view.attempt or 0) > (one.attempt or 0)
    begun = (
        node.here(process.started_at, node.last_received_at)
        for process in view.processes.by_rank.values()
        if process.started_at and (node := view.nodes.get(process.node)) is not None
    )
    return min(begun, default=0.0) > since


def _runs_well(view: JobView, since: float) -> str | None:
    rows = [row for row in view.rhythm.rows if row.at > since and not row.nan]
    if not rows:
        return None
    steps, seconds = rows[-1].step - rows[0].step, rows[-1].at - rows[0].at
    if steps < GOOD_STEPS or seconds < GOOD_SECONDS:
        return None
    return f"attempt {view.attempt or 0} has done {steps:,} steps in {seconds:,.0f} s"


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
