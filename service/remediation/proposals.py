"""From a published verdict to a proposal: the plan of least expected loss, or the rung that the job's past asks for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import Verdict
from analyzers.remediation.ladder import Rung, choose_side, explain_refusal, next_rung, price_rung
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.remediation.messages import Proposed
from analyzers.remediation.plan import Costs, Plan, Situation, Weighed, choose_plan
from analyzers.remediation.types import TAKES_NODES, Alternative, Remediation, RemediationKind
from service.remediation import fleet_facts, job_history, node_records
from service.remediation.standstill import too_early
from service.store import incidents
from service.store.models import Incident, Placement
from service.store.models import Verdict as VerdictRow
from service.store.words import clean

KINDS = frozenset(get_args(RemediationKind))
LONGEST_WHY = 1_000


def build_proposal(session: Session, incident: Incident, costs: Costs, weights: Weights, now: float) -> Proposed:
    """Return what the newest verdict of an incident comes to, by its plan or the ladder; no plan: nothing is to be done."""
    row = session.get(VerdictRow, (incident.id, incident.verdict_version))
    if row is None or incident.job is None:
        return Proposed(incident=incident.id, plan=None, why="the incident is not of a job")
    verdict = msgspec.json.decode(row.document, type=Verdict)
    climb = _Climb.of(session, incident, verdict, costs, weights, now)
    chosen = climb.chosen(session, incident)
    if chosen.plan.kind not in KINDS:
        why = clean(chosen.plan.why, LONGEST_WHY)
        return Proposed(incident=incident.id, plan=None, why=why, person=chosen.rung is not None and chosen.rung.person)
    takes = chosen.plan.kind in TAKES_NODES
    if takes and (spoken_for := sorted(incidents.acquitted(session, incident.id) & set(chosen.plan.nodes))):
        why = f"a person has said that it was wrong to take {', '.join(spoken_for)} out"
        return Proposed(incident=incident.id, plan=None, why=why)
    return Proposed(incident=incident.id, plan=_remediation(incident, verdict, chosen, now))


class _Chosen(NamedTuple):
    """What is to be done; ``rung``: that of the ladder which it is, None where it is the verdict's plan."""

    plan: Plan
    rung: Rung | None = None
    code_version: str | None = None


@dataclass(frozen=True, slots=True)
class _Climb:
    """A verdict's plan beside the rung that the job's past asks for."""

    verdict: Verdict
    known: Situation
    costs: Costs
    weights: Weights
    plan: Plan
    rung: Rung
    trouble: Trouble | None
    now: float

    @classmethod
    def of(
        cls, session: Session, incident: Incident, verdict: Verdict, costs: Costs, weights: Weights, now: float
    ) -> _Climb:
        """Read the past, and ask both."""
        named = {clean(one.id, 255) for one in (*verdict.culprits, *verdict.suspects) if one.kind == "node"}
        known = replace(
            read_situation(session, incident.job or "", now),
            remembered=node_records.read_log_odds_shifts(session, named, now, weights),
        )
        past = job_history.read_job_history(session, incident, verdict, weights.ladder, now)
        return cls(
            verdict=verdict, known=known, costs=costs, weights=weights, plan=choose_plan(verdict, known, costs),
            rung=next_rung(past, weights.ladder), trouble=Trouble.of(past, weights.ladder), now=now,
        )  # fmt: skip

    def chosen(self, session: Session, incident: Incident) -> _Chosen:
        """Return the plan, or the rung as a plan; of kind none with the reason where neither may be proposed."""
        plan, rung, trouble = self.plan, self.rung, self.trouble
        if trouble is None or choose_side(plan, rung, trouble) != "rung":
            return _Chosen(plan, None, None if trouble is None else trouble.older_code())
        if plan.kind == "none" and (wait := self._wait(session, incident, trouble)) is not None:
            return _Chosen(Plan(why=f"{plan.why}; {wait}" if plan.why else wait))
        if rung.kind == "none":
            return _Chosen(Plan(why=rung.why), rung)
        if (person := explain_refusal(trouble)) is not None:
            return _Chosen(Plan(why=person))
        told = price_rung(rung, trouble, self.verdict, plan, self.known, self.costs, self.weights)
        if told.kind == "none":
            rung = replace(rung, person=True)
        return _Chosen(told, rung, rung.code_version)

    def _wait(self, session: Session, incident: Incident, trouble: Trouble) -> str | None:
        return too_early(session, incident, self.rung, trouble, self.weights.ladder, self.now)


def read_situation(session: Session, job: str, now: float) -> Situation:
    """Return what a plan for a job rests on beside the verdict."""
    known = fleet_facts.load_job_facts(session, job)
    if known is None:
        return Situation()
    others = {
        node: tuple(name for name in names if name != job)
        for node, names in fleet_facts.load_tenants(session, now, known.nodes).items()
    }
    sizes = {name: _gpus(session, name) for name in sorted({name for names in others.values() for name in names})}
    saved = known.last_checkpoint_at
    return Situation(
        nodes=known.nodes, gpus_per_node=known.gpus_per_node, spares=known.spares, minimum_nodes=known.minimum_nodes,
        holders=known.holders, tenants={node: names for node, names in others.items() if names}, tenant_gpus=sizes,
        seconds_since_checkpoint=None if saved is None else max(0.0, now - saved),
        roles=_roles(session, job, known.attempt),
    )  # fmt: skip


def remediation_id(incident: str, plan: Plan) -> str:
    """Return the id of a plan: the same plan from a later verdict is the same remediation."""
    parts = [incident, plan.kind, *sorted(plan.nodes), plan.role or ""]
    return f"rem-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def _remediation(incident: Incident, verdict: Verdict, chosen: _Chosen, now: float) -> Remediation:
    plan = chosen.plan
    return Remediation(
        id=remediation_id(incident.id, plan), incident=incident.id, verdict_version=incident.verdict_version,
        job=incident.job or "", attempt=incident.attempt, kind=msgspec.convert(plan.kind, RemediationKind),
        nodes=tuple(clean(node, 255) for node in plan.nodes), role=plan.role,
        code_version=chosen.code_version if plan.kind == "rollback" else None,
        replay=None if chosen.rung is None else chosen.rung.replay,
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
