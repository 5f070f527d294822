"""How a verdict's plan becomes a remediation, and what the policy makes of it by itself."""

from __future__ import annotations

from msgspec.structs import replace

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
    """Take up the plan of an incident's newest verdict in the place of the one before."""
    for one in list(transition.state.remediations.values()):
        other = event.plan is None or one.id != event.plan.id
        if one.incident == event.incident and other and one.status in UNBEGUN:
            why = event.why or "the newest verdict asks for something else"
            transition.change(one, "cancelled", "engine", {"why": why}, status="cancelled", because=why, claim=None)
    if event.plan is None:
        return
    known = transition.state.remediations.get(event.plan.id)
    if known is None:
        _begin(transition, replace(event.plan, version=0))
    elif known.status in ANEW:  # tokens and versions go on from those of before
        before = {"claims": known.claims, "version": known.version, "cancelled_by": known.cancelled_by}
        _begin(transition, replace(event.plan, **before))
    elif known.status in UNBEGUN:
        _renew(transition, known, event.plan)


def claimable_task(one: Remediation) -> Task | None:
    """Return what a scheduler can claim of it now."""
    if one.status == "approved":
        return "do"
    return "undo" if one.undo is not None and one.status in UNDOABLE else None


def recheck_approval(transition: Transition, one: Remediation) -> Remediation:
    """Take back what a rule has approved, and would not approve now, as long as nobody has begun with it."""
    why = explain_revoked(transition.state.policy, transition.state.tallies, one)
    if one.status not in UNBEGUN or why is None:
        return one
    return transition.change(
        one, "hindered", POLICY, {"why": why}, status="proposed", mode="propose", rule="", because=why, approved_by="",
        approved_at=None, claim=None,
    )  # fmt: skip


def apply_policy(transition: Transition, one: Remediation) -> None:
    """Let the policy approve a proposal, or note what it would have done, once."""
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
    """Return the rule that fits, the mode in which it may act, and why that is not its own."""
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
    """The same plan from a newer verdict. What a policy approved has to pass it again; what a person did stays."""
    version = plan.code_version if known.status == "proposed" else known.code_version  # who approved knows that one
    renewed = replace(
        known, verdict_version=plan.verdict_version, probability=plan.probability, why=plan.why, symptom=plan.symptom,
        fault_class=plan.fault_class, expected_loss_gpu_hours=plan.expected_loss_gpu_hours, code_version=version,
        priced_tenants=plan.priced_tenants, alternatives=plan.alternatives, version=known.version + 1,
    )  # fmt: skip
    transition.store(renewed)
    renewed = recheck_approval(transition, renewed)
    if renewed.status == "proposed":
        apply_policy(transition, renewed)
