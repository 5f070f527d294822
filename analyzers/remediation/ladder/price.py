"""A rung as a plan: its cost by the plan's rules, what bars it, and the probability of its nodes' guilt."""

from __future__ import annotations

import math

from msgspec.structs import replace

from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import Action, Culprit, Verdict
from analyzers.remediation.ladder.job_history import Rung
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.remediation.plan import Costs, Plan, Situation
from analyzers.remediation.plan.case import PlanCase
from analyzers.remediation.plan.loss import Weighed, priced_tenants, weigh_option
from analyzers.remediation.plan.options import Option
from analyzers.remediation.plan.posterior import clamp_probability

CHECKS = frozenset({"probe", "replay"})
FOUND = "found"  # the root of what checks or a replay have found, beside those that the verdict names


def price_rung(
    rung: Rung, trouble: Trouble, verdict: Verdict, plan: Plan, situation: Situation, costs: Costs, weights: Weights
) -> Plan:
    """Return a rung as the plan that takes the place of ``plan``; of kind none where something bars it.

    Checks and replays stop nothing and have no price. Their nodes are those that are examined.
    """
    others = _others(plan)
    named = min((clamp_probability(one.weight) for one in verdict.culprits), default=0.0)
    if rung.kind in CHECKS:
        nodes = (
            rung.nodes if rung.replay is None else tuple(sorted({n for g in rung.replay.horizontal for n in g.nodes}))
        )
        return Plan(kind=rung.kind, nodes=nodes, why=rung.why, probability=named, alternatives=others)
    asked = _asking(rung, trouble, verdict, weights)
    if asked.culprits != verdict.culprits:  # the results of checks are already part of it
        situation = replace(situation, remembered={})
    case = PlanCase.build(asked, situation, costs, rung.kind)
    option = Option(kind=rung.kind, nodes=rung.nodes)
    weighed = weigh_option(option, case)
    if weighed.barred:
        return Plan(why=f"{rung.why}, but {weighed.barred}", alternatives=others)
    if rung.nodes:
        named = case.sure(rung.nodes)
    loss, (unit, size) = weighed.expected_loss_gpu_hours, situation.unit
    return Plan(
        kind=rung.kind,
        nodes=rung.nodes,
        why=f"{rung.why}; expected to lose {loss / size:,.1f} {unit}" if loss is not None else rung.why,
        probability=round(named, 4),
        expected_loss_gpu_hours=loss,
        parts=weighed.parts,
        priced_tenants=tuple(priced_tenants(option, case)),
        alternatives=others,
    )


def _others(plan: Plan) -> tuple[Weighed, ...]:
    """Return what was weighed, the plan's own choice first."""
    if plan.expected_loss_gpu_hours is None:
        return plan.alternatives
    option = Option(kind=plan.kind, nodes=plan.nodes, role=plan.role, restart=plan.restart)
    chosen = Weighed(option=option, expected_loss_gpu_hours=plan.expected_loss_gpu_hours, parts=plan.parts)
    return (chosen, *plan.alternatives)


def _asking(rung: Rung, trouble: Trouble, verdict: Verdict, weights: Weights) -> Verdict:
    """Return the verdict as if it asked for the rung, with the nodes that checks have found among its culprits."""
    action = Action(kind=rung.kind, nodes=rung.nodes, why=rung.why)
    if rung.kind != "evict" or not set(rung.nodes) <= trouble.found:
        return replace(verdict, action=action)
    found = tuple(
        Culprit(root=f"{FOUND} {node}", kind="node", id=node, probability=_found(node, trouble, verdict, weights))
        for node in rung.nodes
    )
    return replace(verdict, cause="machine", roots=(), culprits=found, suspects=(), action=action)


def _found(node: str, trouble: Trouble, verdict: Verdict, weights: Weights) -> float:
    """Return the probability that a node is faulty which has failed its checks, or lies in both bad groups of a replay.

    Its prior is the verdict's probability, else that of any node of a failing job: healthy machines fail checks too, and in a
    large job some will.
    """
    named = max(
        (clamp_probability(one.weight) for one in (*verdict.culprits, *verdict.suspects) if one.id == node),
        default=0.0,
    )
    before = min(max(named, weights.prior.faulty, 1 / max(2, len(trouble.nodes))), weights.prior.most_named)
    failures = sum(2 if taken.kind == "replay" else 1 for taken in trouble.taken if node in taken.found)
    odds = before / (1 - before) * math.pow(weights.probe.faulty / weights.probe.healthy, failures)
    return round(min(odds / (1 + odds), weights.prior.most_named), 4)
