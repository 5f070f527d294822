"""When a proposal is due, and what it rests on, read from the store; ``analyzers.remediation.proposal`` decides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Ladder, Weights
from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.verdict import Verdict
from analyzers.remediation.ladder.standstill import SECOND_ROUND_SECONDS, IncidentTimes
from analyzers.remediation.messages import Proposed
from analyzers.remediation.plan import Costs, Situation
from analyzers.remediation.proposal import ProposalCase, propose
from analyzers.remediation.types import CHECKS, Remediation
from service.remediation import fleet_facts, job_history, node_records, role_facts
from service.reports.next_steps import first_of_all
from service.store import incidents
from service.store.models import Incident, Placement, TimelineEntry
from service.store.models import Verdict as VerdictRow
from service.store.schema import clean

LONGEST_WHY = 1_000
NEWS = frozenset({"published", "closed", "merged"})  # of an incident: its proposal is asked for, closed or not
CHECKS_ENDED = frozenset(f"remediation_{how}" for how in ("completed", "rejected", "failed", "expired"))


def build_proposal(
    session: Session, incident: Incident, costs: Costs, weights: Weights, rules: RoleRules, now: float
) -> Proposed:
    """Return what the newest verdict of an incident comes to, by its plan or the ladder."""
    row = session.get(VerdictRow, (incident.id, incident.verdict_version))
    if row is None or incident.job is None:
        return Proposed(incident=incident.id, plan=None, why="the incident is not of a job")
    verdict = msgspec.json.decode(row.document, type=Verdict)
    named = {clean(one.id, 255) for one in (*verdict.culprits, *verdict.suspects) if one.kind == "node"}
    shifts = node_records.read_log_odds_shifts(session, named, now, weights)
    situation = read_situation(session, incident.job, (incident.attempt or 0, incident.nodes), rules, now)
    case = ProposalCase(
        incident=incident.id, job=incident.job, attempt=incident.attempt, verdict_version=incident.verdict_version,
        verdict=verdict, situation=replace(
            situation, remembered=shifts, instances=replace(situation.instances, since=incident.onset_at)
        ),
        history=job_history.read_job_history(session, incident, verdict, weights.ladder, now),
        times=IncidentTimes(
            incident.opened_at, incident.onset_at, incident.closed_at, incident.closed_because,
            job_history.has_ended(session, incident),
        ),
        acquitted=incidents.acquitted(session, incident.id),
    )  # fmt: skip
    proposed = propose(case, costs, weights, now)
    plan = None if proposed.plan is None else _fit_columns(replace(proposed.plan, first=first_of_all(verdict)))
    return replace(proposed, plan=plan, why=clean(proposed.why, LONGEST_WHY))


def read_situation(session: Session, job: str, run: fleet_facts.Run, rules: RoleRules, now: float) -> Situation:
    """Return what a plan for a run of a job rests on beside the verdict."""
    known = fleet_facts.load_job_facts(session, job, run)
    if known is None:
        return Situation()
    others = {
        node: tuple(name for name in names if name != job)
        for node, names in fleet_facts.load_tenants(session, now, known.nodes).items()
    }
    sizes = {name: _gpus(session, name) for name in sorted({name for names in others.values() for name in names})}
    saved = known.last_checkpoint_at
    return Situation(
        nodes=known.nodes, gpus_per_node=known.gpus_per_node, has_gpus=fleet_facts.has_gpus(session, known.nodes),
        spares=known.spares, minimum_nodes=known.minimum_nodes, holders=known.holders,
        tenants={node: names for node, names in others.items() if names}, tenant_gpus=sizes,
        seconds_since_checkpoint=None if saved is None else max(0.0, now - saved),
        roles=_roles(session, job, known.attempt), instances=role_facts.read_role_facts(session, job, rules),
    )  # fmt: skip


def ripe_incidents(session: Session, after: float, now: float, bounds: Ladder) -> list[Incident]:
    """Return the open incidents for which a rung may be proposed since a moment between two instants."""
    moments = ((Incident.opened_at, SECOND_ROUND_SECONDS), (Incident.onset_at, bounds.standing_seconds))
    within = or_(*(and_(at > after - seconds, at <= now - seconds) for at, seconds in moments))
    judged = (Incident.closed_at.is_(None), Incident.merged_into.is_(None), Incident.verdict_version > 0)
    of_jobs = select(Incident).where(within, *judged, Incident.job.is_not(None))
    return list(session.scalars(of_jobs.order_by(Incident.id)))


def _fit_columns(plan: Remediation) -> Remediation:
    return replace(
        plan, nodes=tuple(clean(node, 255) for node in plan.nodes), fault_class=clean(plan.fault_class, 64),
        why=clean(plan.why, LONGEST_WHY), first=clean(plan.first, LONGEST_WHY),
        alternatives=tuple(replace(one, why=clean(one.why, LONGEST_WHY)) for one in plan.alternatives),
    )  # fmt: skip


def _gpus(session: Session, job: str) -> int:
    known = fleet_facts.load_job_facts(session, job)
    return 0 if known is None else len(known.nodes) * known.gpus_per_node


def _roles(session: Session, job: str, attempt: int | None) -> dict[str, tuple[str, ...]]:
    placed = select(Placement.role, Placement.node).where(
        Placement.job == job, Placement.attempt == attempt, Placement.role.is_not(None)
    )
    found: dict[str, set[str]] = {}
    for role, node in session.execute(placed.distinct()):
        found.setdefault(str(role), set()).add(node)
    return {role: tuple(sorted(nodes)) for role, nodes in sorted(found.items())}


def asks(one: TimelineEntry) -> bool:
    """Whether an entry may lead to a proposal, or end one.

    Ends of checks count, and expired remediations: the incident may still be open, and no newer verdict comes for it.
    """
    return is_news(one) or one.kind in ("feedback", "remediation_expired")


def is_news(one: TimelineEntry) -> bool:
    """Whether an entry is reason enough also for an incident that is closed."""
    return one.kind in NEWS or _ends_checks(one) or _is_lost_again(one)


def open_beside(session: Session, found: Iterable[TimelineEntry]) -> Iterator[str]:
    """Yield the other open incidents of jobs whose role is back: they were left alone meanwhile."""
    back = [one for one in found if one.kind == "remediation_verified" and one.details.get("kind") == "restart_role"]
    for one in back:
        beside = (Incident.job == one.job, Incident.closed_at.is_(None), Incident.id != one.incident)
        yield from session.scalars(select(Incident.id).where(*beside).order_by(Incident.id))


def _ends_checks(one: TimelineEntry) -> bool:
    return one.kind in CHECKS_ENDED and one.details.get("kind") in CHECKS


def _is_lost_again(one: TimelineEntry) -> bool:
    """Whether the restart of a role has failed: the next step is due, though the verdict is the same."""
    failed = one.kind == "remediation_failed" or one.details.get("outcome") == "not_cured"
    return failed and one.details.get("kind") == "restart_role"
