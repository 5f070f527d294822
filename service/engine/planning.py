"""From a published verdict to a proposal: the plan of least expected loss, for what is known of the job now."""

from __future__ import annotations

import hashlib
from typing import get_args

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.plan import Costs, Plan, Situation, Weighed, choose
from analyzers.verdict import Verdict
from service.remediation.events import Proposed
from service.remediation.words import Alternative, Kind, Remediation
from service.store import facts, incidents
from service.store.models import Attempt, Incident, Placement
from service.store.models import Verdict as VerdictRow
from service.store.words import clean

KINDS = frozenset(get_args(Kind))
RAN_WELL_SECONDS = 600.0  # a run that lasted so long has shown that its code runs
LONGEST_WHY = 1_000


def proposal(session: Session, incident: Incident, costs: Costs, now: float) -> Proposed:
    """Return what the newest verdict of an incident comes to; a plan of None where nothing is to be done."""
    row = session.get(VerdictRow, (incident.id, incident.verdict_version))
    if row is None or incident.job is None:
        return Proposed(incident=incident.id, plan=None, why="the incident is not of a job")
    verdict = msgspec.json.decode(row.document, type=Verdict)
    plan = choose(verdict, situation(session, incident.job, now), costs)
    if plan.kind not in KINDS:
        return Proposed(incident=incident.id, plan=None, why=clean(plan.why, LONGEST_WHY))
    if spoken_for := sorted(incidents.acquitted(session, incident.id) & set(plan.nodes)):
        why = f"a person has said that it was wrong to take {', '.join(spoken_for)} out"
        return Proposed(incident=incident.id, plan=None, why=why)
    return Proposed(incident=incident.id, plan=_remediation(session, incident, verdict, plan, now))


def situation(session: Session, job: str, now: float) -> Situation:
    """Return what a plan for a job rests on beside the verdict."""
    known = facts.job(session, job)
    if known is None:
        return Situation()
    others = {
        node: tuple(name for name in names if name != job)
        for node, names in facts.tenants(session, now, known.nodes).items()
    }
    sizes = {name: _gpus(session, name) for name in sorted({name for names in others.values() for name in names})}
    saved = known.last_checkpoint_at
    return Situation(
        nodes=known.nodes, gpus_per_node=known.gpus_per_node, spares=known.spares, minimum_nodes=known.minimum_nodes,
        holders=known.holders, tenants={node: names for node, names in others.items() if names}, tenant_gpus=sizes,
        seconds_since_checkpoint=None if saved is None else max(0.0, now - saved),
        roles=_roles(session, job, known.attempt),
    )  # fmt: skip


def name_of(incident: str, plan: Plan) -> str:
    """Return the id of a plan: the same plan from a later verdict is the same remediation."""
    parts = [incident, plan.kind, *sorted(plan.nodes), plan.role or ""]
    return f"rem-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def _remediation(session: Session, incident: Incident, verdict: Verdict, plan: Plan, now: float) -> Remediation:
    job = incident.job or ""
    version = _ran_well(session, job, incident.attempt) if plan.kind == "rollback" else None
    return Remediation(
        id=name_of(incident.id, plan), incident=incident.id, verdict_version=incident.verdict_version, job=job,
        attempt=incident.attempt, kind=msgspec.convert(plan.kind, Kind),
        nodes=tuple(clean(node, 255) for node in plan.nodes), role=plan.role, code_version=version,
        fault_class=_fault_class(verdict, plan), symptom=verdict.symptom, probability=plan.probability,
        why=clean(plan.why, LONGEST_WHY), proposed_at=now, expected_loss_gpu_hours=plan.expected_loss_gpu_hours,
        priced_tenants=plan.priced_tenants, alternatives=tuple(_alternative(one) for one in plan.alternatives),
    )  # fmt: skip


def _alternative(one: Weighed) -> Alternative:
    option = one.option
    return Alternative(
        kind=option.kind, nodes=option.nodes, role=option.role, expected_loss_gpu_hours=one.expected_loss_gpu_hours,
        why=clean(one.barred, LONGEST_WHY),
    )  # fmt: skip


def _fault_class(verdict: Verdict, plan: Plan) -> str:
    """Return the class of the root that the plan's nodes are named by, else of the first."""
    roots = {root.root: root.fault_class for root in verdict.roots}
    named = [one.root for one in verdict.culprits if one.id in plan.nodes] or [one.root for one in verdict.roots]
    return clean(next((roots[root] for root in named if root in roots), ""), 64)


def _ran_well(session: Session, job: str, attempt: int | None) -> str | None:
    """Return the code of the newest earlier run that lasted, other than the code that runs now."""
    runs = session.scalars(select(Attempt).where(Attempt.job == job).order_by(Attempt.number.desc())).all()
    newest = next((run.code_version for run in runs if attempt is None or run.number == attempt), None)
    return next(
        (
            run.code_version
            for run in runs
            if run.code_version not in (None, newest) and run.last_seen_at - run.first_seen_at >= RAN_WELL_SECONDS
        ),
        None,
    )


def _gpus(session: Session, job: str) -> int:
    known = facts.job(session, job)
    return 0 if known is None else len(known.nodes) * known.gpus_per_node


def _roles(session: Session, job: str, attempt: int | None) -> dict[str, tuple[str, ...]]:
    placed = select(Placement.role, Placement.node).where(
        Placement.job == job, Placement.attempt == attempt, Placement.role.is_not(None)
    )
    found: dict[str, set[str]] = {}
    for role, node in session.execute(placed.distinct()):
        found.setdefault(str(role), set()).add(node)
    return {role: tuple(sorted(nodes)) for role, nodes in sorted(found.items())}
