"""How a verdict's plan becomes a remediation, and whether the policy approves it automatically."""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import Proposed
from analyzers.remediation.policy import POLICY, PROPOSE, approver, explain_lock, explain_revoked, rule_for
from analyzers.remediation.transition import Transition
from analyzers.remediation.types import (
    UNBEGUN,
    UNDOABLE,
    Mode,
    Remediation,
    Rule,
    Tally,
    Task,
)

ANEW = frozenset({"expired", "cancelled"})


def accept_proposal(transition: Transition, event: Proposed) -> None:
    """Accept the plan of an incident's newest verdict in place of the one before."""
    for one in list(transition.state.remediations.values()):
        other = event.plan is None or one.id != event.plan.id
        if one.incident == event.incident and other and one.status in UNBEGUN:
            asks = (
                f"version {event.plan.verdict_version} of the verdict asks for {event.plan.kind}" if event.plan else ""
            )
            why = event.why or asks
            transition.change(one, "cancelled", "engine", {"why": why}, status="cancelled", because=why, claim=None)
    if event.plan is None:
        return
    if not _replace_rivals(transition, event.plan):
        return
    known = transition.state.remediations.get(event.plan.id)
    if known is None:
        _begin(transition, replace(event.plan, version=0))
    elif known.status in ANEW:  # tokens and versions continue
        before = {"claims": known.claims, "version": known.version, "cancelled_by": known.cancelled_by}
        _begin(transition, replace(event.plan, **before))
    elif known.status in UNBEGUN:
        _renew(transition, known, event.plan)


def _replace_rivals(transition: Transition, plan: Remediation) -> bool:
    """Withdraw what is proposed for other incidents of the job; False: one of them takes nodes out, and the plan does not."""
    of_job = (one for one in transition.state.remediations.values() if one.job == plan.job)
    rivals = [one for one in of_job if one.incident != plan.incident and one.status == "proposed"]
    if plan.kind not in TAKES_NODES and any(one.kind in TAKES_NODES for one in rivals):
        return False
    for one in rivals:
        why = f"{plan.incident}, a newer incident of {plan.job}, asks for {plan.kind}: one proposal a job at a time"
        transition.change(one, "cancelled", "engine", {"why": why}, status="cancelled", because=why, claim=None)
    return True


def claimable_task(one: Remediation) -> Task | None:
    """Return the task that a scheduler can claim now."""
    if one.status == "approved":
        return "do"
    return "undo" if one.undo is not None and one.status in UNDOABLE else None


def recheck_approval(transition: Transition, one: Remediation) -> Remediation:
    """Revoke a rule's approval that the rule would not give now, as long as nothing has begun."""
    why = explain_revoked(transition.state.policy, transition.state.tallies, one)
    if one.status not in UNBEGUN or why is None:
        return one
    return transition.change(
        one, "hindered", POLICY, {"why": why}, status="proposed", mode="propose", rule="", because=why, approved_by="",
        approved_at=None, claim=None,
    )  # fmt: skip


def apply_policy(transition: Transition, one: Remediation) -> None:
    """Let the policy approve a proposal, or record once what it would have done."""
    rule, mode, because = _judged(transition, one)
    found = find_blockers(transition.state, one, transition.now) if mode != "propose" else []
    if mode == "automatic" and not found:
        transition.change(
            one, "approved", POLICY, {"rule": rule.name}, status="approved", mode=mode, rule=rule.name,
            because=f"rule {rule.name}", approved_by=approver(rule.name), approved_at=transition.now,
        )  # fmt: skip
        return
    if found:
        because = "hindered: " + ", ".join(hindrance.code for hindrance in found)  # the texts count seconds
    if (mode, rule.name, because) == (one.mode, one.rule, one.because):
        return
    noted = replace(one, mode=mode, rule=rule.name, because=because, version=one.version + 1)
    transition.store(noted)
    if mode == "shadow" and (one.mode, one.rule) != (mode, rule.name):
        transition.audit(
            "remediation_would_act", POLICY, noted, {"rule": rule.name, "hindered": [one.code for one in found]}
        )
    elif found:
        transition.audit(
            "remediation_hindered", POLICY, noted, {"rule": rule.name, "hindered": [one.code for one in found]}
        )


def _judged(transition: Transition, one: Remediation) -> tuple[Rule, Mode, str]:
    """Return the rule that fits, the mode in which it may act, and why that differs from the rule's own."""
    if one.cancelled_by:
        return PROPOSE, "propose", f"{one.cancelled_by} has cancelled it before: only a person lets it act"
    rule = rule_for(transition.state.policy, one)
    if rule.mode == "automatic" and (why := explain_lock(rule, transition.state.tallies.get(rule.name, Tally()))):
        return rule, "shadow", why
    return rule, rule.mode, ""


def _begin(transition: Transition, plan: Remediation) -> None:
    fresh = replace(plan, status="proposed", changed_at=transition.now, proposed_at=transition.now)
    apply_policy(
        transition,
        transition.change(fresh, "proposed", plan.proposed_by, {"why": plan.why, "probability": plan.probability}),
    )


def _renew(transition: Transition, known: Remediation, plan: Remediation) -> None:
    """Update a plan from a newer verdict. A policy's approval is checked again; a person's decision stays."""
    version = (
        plan.code_version if known.status == "proposed" else known.code_version
    )  # it was approved with that version
    renewed = replace(
        known, verdict_version=plan.verdict_version, probability=plan.probability, why=plan.why, symptom=plan.symptom,
        fault_class=plan.fault_class, expected_loss_gpu_hours=plan.expected_loss_gpu_hours, code_version=version,
        expected_loss_node_hours=plan.expected_loss_node_hours, priced_tenants=plan.priced_tenants,
        alternatives=plan.alternatives, role_restart=plan.role_restart, first=plan.first,
        version=known.version + 1,
    )  # fmt: skip
    transition.store(renewed)
    renewed = recheck_approval(transition, renewed)
    if renewed.status == "proposed":
        apply_policy(transition, renewed)
