"""A job's past for the ladder, read from the store.

    incidents, verdicts ─► attempts ─┐
    remediations ─► what was done ───┼─► JobHistory ─► analyzers/remediation/ladder
    incidents of the network ────────┘

An attempt failed as its newest incident shows that did not pass by itself; an incident that was acted on counts before the
others. Where attempts are not counted, agents report 0, and each incident stands for one attempt; so do several incidents of a
counted first attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Ladder
from analyzers.model.verdict import Verdict
from analyzers.remediation.ladder.job_history import (
    JobAttempt,
    JobHistory,
    JobLayout,
    NetworkAlert,
    build_attempt,
    lay_out,
    network_alerts,
    tried_rungs,
)
from analyzers.remediation.types import Remediation
from service.remediation import fleet_facts, rows
from service.store.models import Attempt as AttemptRow
from service.store.models import Downtime, Incident, Job, TimelineEntry
from service.store.models import Remediation as RemediationRow
from service.store.models import Verdict as VerdictRow

MOST_ATTEMPTS, MOST_INCIDENTS, MOST_DONE = 64, 256, 256  # the newest of them
ENDED_SECONDS = 600.0  # agents report an attempt until it ends: an incident that closes later closed for another reason


def read_job_history(session: Session, incident: Incident, verdict: Verdict, bounds: Ladder, now: float) -> JobHistory:
    """Return the past of an incident's job, as of its attempt; ``verdict``: the newest of the incident."""
    job = incident.job or ""
    numbers = _numbers(session, incident)
    done = _done(session, job)
    known = fleet_facts.load_job_facts(session, job, (incident.attempt or 0, incident.nodes))
    nodes = () if known is None else known.nodes
    return JobHistory(
        at=now,
        attempts=tuple(_attempts(session, incident, verdict, numbers, {one.incident for one in done if one.began_at})),
        taken=tuple(tried_rungs(done, numbers, numbers[incident.id])),
        alerts=tuple(one for one in _alerts(session, now - bounds.network_seconds) if one.node in nodes),
        nodes=nodes,
        layout=None if known is None else read_layout(session, job, len(known.nodes), known.gpus_per_node),
    )


def needs_nothing(closed: TimelineEntry) -> bool:
    """Whether nothing needs to be done: the job recovered by itself, or a person has closed the incident."""
    return bool(closed.details.get("recovered")) or "by" in closed.details


def how_it_ended(session: Session, incident: Incident) -> str:
    """Say how the job of a closed incident ended that did not die by itself; empty where it did, or goes on."""
    closed = select(TimelineEntry).where(TimelineEntry.kind == "closed", TimelineEntry.incident == incident.id)
    entry = session.scalars(closed.order_by(TimelineEntry.sequence.desc()).limit(1)).first()
    return "" if entry is None else str(entry.details.get("ended", ""))


def has_ended(session: Session, incident: Incident) -> bool:
    """Whether the incident was closed because its attempt's processes have ended."""
    if incident.closed_at is None or _passed(session, [incident]):
        return False
    run = session.get(AttemptRow, (incident.job, incident.attempt or 0))
    return run is None or incident.closed_at - run.last_seen_at <= ENDED_SECONDS


def read_layout(session: Session, job: str, nodes: int, gpus_per_node: int) -> JobLayout | None:
    """Return how a job lies on its nodes, by the sizes that its owner declared."""
    row = session.get(Job, job)
    sizes = row.declared.get("parallel") if row is not None else None
    return lay_out(sizes or {}, nodes, gpus_per_node)


def _numbers(session: Session, incident: Incident) -> dict[str, int]:
    """Return the attempt of each of the job's incidents up to this one. Uncounted attempts are counted by their incidents."""
    of_job = (
        Incident.job == incident.job, Incident.opened_at <= incident.opened_at,
        Incident.attempt <= incident.attempt if incident.attempt else func.coalesce(Incident.attempt, 0) == 0,
    )  # fmt: skip
    newest = (
        select(Incident.id, Incident.attempt).where(*of_job).order_by(Incident.opened_at.desc(), Incident.id.desc())
    )
    found = list(reversed(session.execute(newest.limit(MOST_INCIDENTS)).all()))
    if incident.attempt:
        return {row.id: row.attempt for row in found} | {incident.id: incident.attempt}
    return {row.id: index for index, row in enumerate(found, start=1)} | {incident.id: len(found)}


def _attempts(
    session: Session, incident: Incident, verdict: Verdict, numbers: dict[str, int], acted: set[str]
) -> Iterable[JobAttempt]:
    failures = _failures(session, incident, verdict, numbers, acted)
    runs = _runs(session, incident)
    began = _first_good(session, incident)
    has_steps = any(step is not None for step in began.last_steps.values())
    for number in sorted({*runs, *failures})[-MOST_ATTEMPTS:]:
        run, failure = runs.get(number), failures.get(number)
        found, newest = (None, None) if failure is None else failure
        good = _good_seconds(run, found, began, has_steps=has_steps)
        code = None if run is None else run.code_version
        ended = None if run is None else run.last_seen_at
        if number == numbers[incident.id]:
            ended = incident.closed_at if has_ended(session, incident) else None
        if newest is None or found is None:
            yield JobAttempt(number=number, code_version=code, ended_at=ended, good_seconds=good)
            continue
        attempt = build_attempt(number, newest, code_version=code, ended_at=ended, good_seconds=good)
        yield attempt if attempt.symptom != "unknown" else replace(attempt, symptom=found.kind)


def _runs(session: Session, incident: Incident) -> dict[int, AttemptRow]:
    if not incident.attempt:
        return {}
    until = select(AttemptRow).where(AttemptRow.job == incident.job, AttemptRow.number <= incident.attempt)
    newest = session.scalars(until.order_by(AttemptRow.number.desc()).limit(MOST_ATTEMPTS))
    return {run.number: run for run in newest}


def _failures(
    session: Session, incident: Incident, verdict: Verdict, numbers: dict[str, int], acted: set[str]
) -> dict[int, tuple[Incident, Verdict]]:
    """Return for each attempt the incident that shows how it failed, with the newest version of its verdict."""
    newest = (VerdictRow.incident == Incident.id) & (VerdictRow.version == Incident.verdict_version)
    asked = select(Incident, VerdictRow.document).join(VerdictRow, newest)
    asked = asked.where(Incident.id.in_(numbers), Incident.merged_into.is_(None)).order_by(Incident.opened_at)
    found = [(row, document) for row, document in session.execute(asked) if row.id != incident.id]
    passed = _passed(session, [row for row, _ in found])
    failed: dict[int, tuple[Incident, Verdict]] = {}
    for row, document in found:
        before = failed.get(numbers[row.id])
        acted_before = before is not None and before[0].id in acted and row.id not in acted
        if row.id in passed or acted_before or (judged := _read(document)) is None:
            continue
        failed[numbers[row.id]] = (row, judged)
    failed[numbers[incident.id]] = (incident, verdict)
    return failed


def _read(document: bytes) -> Verdict | None:
    try:
        return msgspec.json.decode(document, type=Verdict)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None  # of a newer program


def _passed(session: Session, incidents: Sequence[Incident]) -> set[str]:
    """Return those incidents that passed by themselves, or that a person has closed."""
    ids = [row.id for row in incidents if row.closed_at is not None]
    closed = select(TimelineEntry).where(TimelineEntry.kind == "closed", TimelineEntry.incident.in_(ids))
    return {str(one.incident) for one in session.scalars(closed) if needs_nothing(one)}


class _Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps in the table of downtimes."""

    first_good_at: tuple[float, ...] = ()  # of attempts that followed an incident
    last_steps: dict[str, int | None] = {}  # incident → the job's newest step when it opened


def _first_good(session: Session, incident: Incident) -> _Steps:
    costs = select(Downtime.incident, Downtime.first_good_at, Downtime.last_step).where(Downtime.job == incident.job)
    found = session.execute(costs.order_by(Downtime.onset_at.desc()).limit(MOST_INCIDENTS)).all()
    return _Steps(
        first_good_at=tuple(sorted(row.first_good_at for row in found if row.first_good_at is not None)),
        last_steps={row.incident: row.last_step for row in found},
    )


def _good_seconds(run: AttemptRow | None, failure: Incident | None, steps: _Steps, *, has_steps: bool) -> float:
    """Return how long an attempt ran before it failed: from its first good step, where that is known."""
    if failure is not None and has_steps and steps.last_steps.get(failure.id) is None:
        return 0.0  # the job reports steps, and this attempt did none
    until = failure.onset_at if failure is not None else run.last_seen_at if run is not None else 0.0
    before = [at for at in steps.first_good_at if at <= until]
    if run is None:
        return until - before[-1] if before else 0.0
    after = [at for at in before if at >= run.first_seen_at]
    return max(0.0, until - (after[0] if after else run.first_seen_at))


def _done(session: Session, job: str) -> list[Remediation]:
    """Return what was proposed or done for a job, the oldest first."""
    newest = select(RemediationRow).where(RemediationRow.job == job).order_by(RemediationRow.proposed_at.desc())
    found = [one for row in session.scalars(newest.limit(MOST_DONE)) if (one := rows.parse_row(row)) is not None]
    return sorted(found, key=lambda one: (one.began_at or one.changed_at, one.id))


def _alerts(session: Session, since: float) -> Iterable[NetworkAlert]:
    """Yield the alerts by incidents of the network, of all jobs."""
    newest = (VerdictRow.incident == Incident.id) & (VerdictRow.version == Incident.verdict_version)
    asked = select(Incident.onset_at, VerdictRow.document).join(VerdictRow, newest).order_by(Incident.onset_at)
    found = session.execute(asked.where(Incident.cause == "network", Incident.onset_at >= since))
    return network_alerts((at, verdict) for at, document in found if (verdict := _read(document)) is not None)
