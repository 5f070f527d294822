"""Choose the option of least expected loss. Where a verdict only asks for checks, no node is touched."""

from __future__ import annotations

import msgspec

from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
)
from analyzers.remediation.plan.case import PlanCase
from analyzers.remediation.plan.costs import Costs
from analyzers.remediation.plan.loss import Weighed, priced_tenants, weigh_option
from analyzers.remediation.plan.options import MILDER, Option, harshest_kind, list_options
from analyzers.remediation.plan.posterior import clamp_probability
from analyzers.remediation.plan.situation import Situation
from analyzers.remediation.role_restart import RoleRestart
from analyzers.remediation.types import list_some

MOST_ALTERNATIVES = 8
_HARSHNESS = (
    "none", "drain_after_job", "restart_role", "reattempt", "restart_job", "rollback", "reset_gpu", "reboot_node", "evict"
)  # fmt: skip
_WORDS = {
    "none": "doing nothing",
    "drain_after_job": "taking {nodes} out when the job has ended",
    "restart_role": "restarting {role}",
    "reattempt": "restarting on the same nodes",
    "restart_job": "restarting the job",
    "rollback": "going back to the code that ran well",
    "reset_gpu": "resetting the GPU of {nodes}",
    "reboot_node": "rebooting {nodes}",
    "evict": "taking {nodes} out and restarting",
}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do. ``kind``: as of a verdict's action, without probe. ``alternatives``: the others, the best first."""

    kind: str = "none"
    nodes: tuple[str, ...] = ()
    role: str | None = None
    restart: RoleRestart | None = None  # of the role
    why: str = ""
    probability: float = 0.0  # of what the plan acts on: the least of the nodes that it touches, else of the first root
    expected_loss_gpu_hours: float | None = None
    parts: dict[str, float] = {}  # of the loss
    priced_tenants: tuple[str, ...] = ()  # the other jobs on these nodes whose loss is in it
    alternatives: tuple[Weighed, ...] = ()


def choose_plan(verdict: Verdict, situation: Situation, costs: Costs) -> Plan:
    """Return the plan of least expected loss; on a tie the one with fewer nodes, then the milder, then by name."""
    kind = harshest_kind(verdict)
    if verdict.abstained or kind not in MILDER:
        asked = "the verdict abstains" if verdict.abstained else f"the verdict's action is {kind}"
        return Plan(why=f"{asked}: {verdict.action.why}" if verdict.action.why else asked)
    case = PlanCase.build(verdict, situation, costs, kind)
    if kind in TAKES_NODES and not verdict.action.nodes and not case.restarts:
        ranks = list_some([str(rank) for rank in verdict.action.ranks])
        return Plan(why=f"the node of rank {ranks or '?'} is unknown: let an agent report it")
    weighed = sorted((weigh_option(option, case) for option in list_options(case)), key=_order)
    best = next(one for one in weighed if not one.barred)
    others = tuple(one for one in weighed if one is not best)[:MOST_ALTERNATIVES]
    return Plan(
        kind=best.option.kind,
        nodes=best.option.nodes,
        role=best.option.role,
        restart=best.option.restart,
        why=_why(best, weighed, case),
        probability=_probability(best.option, verdict, case),
        expected_loss_gpu_hours=best.expected_loss_gpu_hours,
        parts=best.parts,
        priced_tenants=tuple(priced_tenants(best.option, case)),
        alternatives=others,
    )


def _order(one: Weighed) -> tuple[bool, float, int, int, tuple[str, ...]]:
    loss, option = one.expected_loss_gpu_hours, one.option
    return (loss is None, loss or 0.0, len(option.nodes), _HARSHNESS.index(option.kind), option.nodes)


def _why(best: Weighed, weighed: list[Weighed], case: PlanCase) -> str:
    """Compare it with the next best option, and say what bars the action that the verdict asks for."""
    unit, size = case.situation.unit
    why = f"{_named(best.option)} is expected to lose {(best.expected_loss_gpu_hours or 0.0) / size:,.1f} {unit}"
    if best.option.nodes:
        why += f" ({_guilty(best.option, case)})"
    if second := next((one for one in weighed if not one.barred and one is not best), None):
        why += f", {_named(second.option)} {(second.expected_loss_gpu_hours or 0.0) / size:,.1f}"
    asked = next((one for one in weighed if one.barred and set(one.option.nodes) == set(case.named)), None)
    asked = asked or next((one for one in weighed if one.option.bar), None)
    return f"{why}; {_named(asked.option)} is barred: {asked.barred}" if asked else why


def _named(option: Option) -> str:
    return _WORDS[option.kind].format(nodes=list_some(option.nodes), role=_role(option))


def _role(option: Option) -> str:
    restart = option.restart
    if restart is None:
        return f"the {option.role} role"
    named = f"{option.role} {restart.instance}" if restart.instance is not None else f"the {option.role} role"
    if not restart.leaves:
        return named
    onto = list_some([restart.onto.get(node, f"another node than {node}") for node in restart.leaves])
    missing = (
        f", with {restart.reserve_short} machines too few in reserve for trainers" if restart.reserve_short else ""
    )
    given = f", where {restart.gives_role} {list_some(restart.gives)} {'end' if len(restart.gives) > 1 else 'ends'}"
    return f"{named} on {onto}{given if restart.gives else ''}{missing}"


def _guilty(option: Option, case: PlanCase) -> str:
    odds = [f"{case.guilt.get(node, 0.0):.2f}" for node in option.nodes]
    before = [f"{case.verdict_guilt.get(node, 0.0):.2f}" for node in option.nodes]
    return f"at fault with {list_some(odds)}" + (
        f", before their past was weighed {list_some(before)}" if before != odds else ""
    )


def _probability(option: Option, verdict: Verdict, case: PlanCase) -> float:
    if option.nodes:
        return case.sure(option.nodes)
    first = [one for one in verdict.culprits if one.root == verdict.culprits[0].root]  # of the first headline
    return min((clamp_probability(culprit.weight) for culprit in first), default=0.0)
