"""Why a proposal is withdrawn after its incident has closed, or a person has called the verdict wrong.

A remedy of a job ends with the job. A remedy of a machine outlives it only where a hardware event proves it: the next job on that
machine fails too. A process that stood stopped is gone with its job, and who stopped it is not known. What else a job asks for
that died by itself waits for a while: until then it may be started again, without a machine or with all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.recurrence import STANDSTILLS
from analyzers.model.fault_classes import fault_class
from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
)
from analyzers.remediation.ladder.job_history import ENGINE
from analyzers.remediation.messages import Cancel
from analyzers.remediation.types import WAITING, Remediation
from service.remediation import fleet_facts, job_history, rows
from service.store import endings
from service.store.models import Downtime, Feedback, Incident, Job
from service.store.models import Verdict as VerdictRow

MOST_LATER = 8  # incidents of later attempts that are looked at
RESTART_SECONDS = 900.0  # for which a job that died may be started again: later its owner has done what is to be done


def unwanted(session: Session, live: Iterable[Remediation], now: float) -> Iterator[Cancel]:
    """Yield the cancellations of remediations that have not begun and are not wanted any more, or whose attempt is over."""
    for one in live:
        incident = session.get(Incident, one.incident) if one.status in WAITING else None
        if incident is not None and (why := overtaken(session, one) or explain_withdrawal(session, one, incident, now)):
            yield Cancel(id=one.id, by=ENGINE, reason=why)


def overtaken(session: Session, one: Remediation) -> str:
    """Say that the job runs in a later attempt than the one that a remediation was meant for; empty: it does not."""
    if one.attempt is None:
        return ""
    if (newest := fleet_facts.later_attempt(session, one.job, _run(session, one))) is not None:
        return f"attempt {newest} of {one.job} runs, and it was meant for attempt {one.attempt}"
    if (fell := _fell_later(session, one)) is not None:
        return f"attempt {fell} of {one.job} has had an incident of its own, and it was meant for attempt {one.attempt}"
    return ""


def stands_back(session: Session, plan: Remediation) -> str:
    """Say that a proposal waits for an attempt that this plan's does not go on from; empty: none does.

    A job has one proposal at a time, and an attempt that strangers invent takes the place of none.
    """
    if not fleet_facts.is_strange(session, plan.job, _run(session, plan)):
        return ""
    for one in rows.read_live(session).values():
        if one.job == plan.job and one.incident != plan.incident and one.status == "proposed":
            related = fleet_facts.going_on(session, one.job, _run(session, one))
            if related is not None and (plan.attempt or 0) not in related:
                return f"{one.id} waits, and no node of its attempt takes part in attempt {plan.attempt}, nor a declared one"
    return ""


def _run(session: Session, one: Remediation) -> fleet_facts.Run:
    incident = session.get(Incident, one.incident)
    return one.attempt or 0, () if incident is None else incident.nodes


def _fell_later(session: Session, one: Remediation) -> int | None:
    """Return a later attempt that an incident is of: it may have died before its ranks' places were stored.

    As for placements one agent alone begins no attempt: the incident must be of half as many nodes as the remediation's own, and
    strangers begin none: of one of its nodes, or of one that the declaration names.
    """
    own = session.get(Incident, one.incident)
    later = select(Incident).where(Incident.job == one.job, Incident.attempt > one.attempt)
    found = session.scalars(later.order_by(Incident.attempt.desc()).limit(MOST_LATER))
    least, nodes = (0.0, set[str]()) if own is None else (len(own.nodes) / 2, set(own.nodes))
    job = session.get(Job, one.job)
    nodes |= set(job.declared.get("nodes", ())) if job is not None else set()
    return next((row.attempt for row in found if len(row.nodes) >= least and not nodes.isdisjoint(row.nodes)), None)


def explain_withdrawal(session: Session, one: Remediation, incident: Incident, now: float) -> str:
    """Say why a remediation that has not begun is not wanted any more; empty: it is."""
    if why := called_wrong(session, incident):
        return why
    if is_of_machine(one):
        return ""
    if (said := endings.active(session, now, one.job).get(one.job)) is not None:
        return f"{said.by} is stopping job {one.job}" + (f": {said.reason}" if said.reason else "")
    if incident.closed_at is None:
        return ""
    if ended := job_history.how_it_ended(session, incident):
        return f"job {one.job} has ended: {ended}"
    if incident.kind in STANDSTILLS and _has_stepped_since(session, one, incident):
        return f"job {one.job} runs again: it has done a step since"
    if now > incident.closed_at + RESTART_SECONDS:
        return f"the incident was closed {RESTART_SECONDS / 60:g} minutes ago: {incident.closed_because}"
    return ""


def _has_stepped_since(session: Session, one: Remediation, incident: Incident) -> bool:
    """Whether the job has done a step since; where strangers report attempts of it, a step may be their invention."""
    cost = session.get(Downtime, incident.id)
    stepped = cost is not None and cost.first_good_at is not None and cost.first_good_at > incident.opened_at
    return stepped and not fleet_facts.has_strangers(session, one.job, _run(session, one))


def is_of_machine(one: Remediation) -> bool:
    """Whether it takes out a machine that a hardware event proves to be faulty, whatever becomes of the job."""
    return one.kind in TAKES_NODES and (
        one.symptom == "hardware" or "hardware" in fault_class(one.fault_class).claimed_by
    )


def called_wrong(session: Session, incident: Incident) -> str:
    """Say that a person has called the newest verdict wrong, or an earlier version that claims the same; empty: none has."""
    said = select(Feedback).where(Feedback.incident == incident.id, Feedback.judgement.in_(("right", "wrong")))
    newest = session.scalars(said.order_by(Feedback.id.desc()).limit(1)).first()
    if newest is None or newest.judgement != "wrong":
        return ""
    judged, now = (
        _claim(session, incident.id, version) for version in (newest.verdict_version, incident.verdict_version)
    )
    same = newest.verdict_version >= incident.verdict_version or judged == now
    return f"{newest.by} has said that the verdict is wrong" if same else ""


def _claim(session: Session, incident: str, version: int) -> tuple[object, ...] | None:
    row = session.get(VerdictRow, (incident, version))
    if row is None:
        return None
    try:
        verdict = msgspec.json.decode(row.document, type=Verdict)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None  # of a newer program
    return verdict.cause, sorted((one.kind, one.id) for one in verdict.culprits)
