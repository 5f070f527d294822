"""From an incident's newest verdict to a proposal: the plan of least expected loss, or the rung that the job's past asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from dataclasses import dataclass
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
)
from analyzers.remediation.ladder import JobHistory, Rung, choose_side, explain_refusal, next_rung, price_rung
from analyzers.remediation.ladder.standstill import IncidentTimes, explain_wait
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.remediation.messages import Proposed
from analyzers.remediation.plan import Costs, Plan, Situation, Weighed, choose_plan
from analyzers.remediation.plan.loss import PLACES
from analyzers.remediation.role_restart import explain_replaced
from analyzers.remediation.types import Alternative, Remediation, RemediationKind

KINDS = frozenset(get_args(RemediationKind))


class Chosen(NamedTuple):
    """What to do. ``rung``: the rung of the ladder that it is, None where it is the verdict's plan."""

    plan: Plan
    rung: Rung | None = None
    code_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalCase:
    """All that a proposal rests on. ``acquitted``: nodes that a person has called innocent of this incident."""

    incident: str
    job: str
    attempt: int | None
    verdict_version: int
    verdict: Verdict
    times: IncidentTimes
    situation: Situation
    history: JobHistory
    acquitted: Set[str] = frozenset()


def propose(case: ProposalCase, costs: Costs, weights: Weights, now: float) -> Proposed:
    """Return the proposal; without a plan, nothing is to be done."""
    chosen = _choose(case, costs, weights, now)
    plan, person = chosen.plan, chosen.rung is not None and chosen.rung.person
    if plan.kind not in KINDS:
        return Proposed(incident=case.incident, plan=None, why=plan.why, person=person)
    if plan.kind in TAKES_NODES and (spared := sorted(case.acquitted & set(plan.nodes))):
        why = f"a person has said that it was wrong to take {', '.join(spared)} out"
        return Proposed(incident=case.incident, plan=None, why=why)
    return Proposed(incident=case.incident, plan=_remediation(case, chosen, now))


def remediation_id(incident: str, plan: Plan) -> str:
    """Return the id of a plan: the same plan from a later verdict is the same remediation."""
    parts = [incident, plan.kind, *sorted(plan.nodes), plan.role or ""]
    if plan.restart is not None:  # another restart of the same role is another remediation
        parts += [plan.restart.instance or "", str(plan.restart.number), *map(str, sorted(plan.restart.epochs.items()))]
    return f"rem-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def _choose(case: ProposalCase, costs: Costs, weights: Weights, now: float) -> Chosen:
    """Return the plan, or the rung as a plan; of kind none, with the reason, where neither may be proposed."""
    if why := explain_replaced(case.verdict, case.situation.instances):
        return Chosen(Plan(why=why))
    rung = next_rung(case.history, weights.ladder)
    trouble = Trouble.from_history(case.history, weights.ladder)
    older_code = None if trouble is None else trouble.older_code()
    plan = choose_plan(case.verdict, replace(case.situation, older_code=older_code is not None), costs)
    if trouble is None or choose_side(plan, rung, trouble) != "rung":
        return Chosen(plan, None, older_code)
    if plan.kind == "none" and (wait := explain_wait(case.times, rung, trouble, weights.ladder, now)) is not None:
        return Chosen(Plan(why=f"{plan.why}; {wait}" if plan.why else wait))
    if rung.kind == "none":
        return Chosen(Plan(why=rung.why), rung)
    if (refusal := explain_refusal(trouble)) is not None:
        return Chosen(Plan(why=refusal))
    priced = price_rung(rung, trouble, case.verdict, plan, case.situation, costs, weights)
    if priced.kind == "none":
        rung = replace(rung, person=True)
    return Chosen(priced, rung, rung.code_version)


def _remediation(case: ProposalCase, chosen: Chosen, now: float) -> Remediation:
    plan, situation = chosen.plan, case.situation
    gpu_hours, node_hours = _loss(plan.expected_loss_gpu_hours, situation)
    return Remediation(
        id=remediation_id(case.incident, plan), incident=case.incident, verdict_version=case.verdict_version,
        job=case.job, attempt=case.attempt, kind=msgspec.convert(plan.kind, RemediationKind), nodes=plan.nodes,
        role=plan.role, role_restart=plan.restart, code_version=chosen.code_version if plan.kind == "rollback" else None,
        replay=None if chosen.rung is None else chosen.rung.replay,
        fault_class=_fault_class(case.verdict, plan), symptom=case.verdict.symptom, probability=plan.probability,
        why=plan.why, proposed_at=now, priced_tenants=plan.priced_tenants,
        alternatives=tuple(_alternative(weighed, situation) for weighed in plan.alternatives),
        expected_loss_gpu_hours=gpu_hours, expected_loss_node_hours=node_hours,
    )  # fmt: skip


def _alternative(weighed: Weighed, situation: Situation) -> Alternative:
    option, (gpu_hours, node_hours) = weighed.option, _loss(weighed.expected_loss_gpu_hours, situation)
    return Alternative(
        kind=option.kind, nodes=option.nodes, role=option.role, expected_loss_gpu_hours=gpu_hours,
        expected_loss_node_hours=node_hours, why=weighed.barred,
    )  # fmt: skip


def _loss(gpu_hours: float | None, situation: Situation) -> tuple[float | None, float | None]:
    """Return a loss in GPU hours or in node hours: in the unit that the plan's sentence has."""
    if situation.has_gpus or gpu_hours is None:
        return gpu_hours, None
    return None, round(gpu_hours / situation.unit[1], PLACES)


def _fault_class(verdict: Verdict, plan: Plan) -> str:
    """Return the class of the root that names the plan's nodes, else of the first root."""
    roots = {root.root: root.fault_class for root in verdict.roots}
    named = [one.root for one in verdict.culprits if one.id in plan.nodes] or [one.root for one in verdict.roots]
    return next((roots[root] for root in named if root in roots), "")
