"""How a verdict's plan becomes a remediation, and what the policy makes of it by itself."""

from __future__ import annotations

from msgspec.structs import replace

from service.remediation.guards import hindrances
from service.remediation.policy import locked, rule_for
from service.remediation.turn import Turn
from service.remediation.words import WAITING, Proposed, Remediation, Tally, Task

POLICY = "policy"
ANEW = frozenset({"expired", "cancelled"})


def proposed(turn: Turn, event: Proposed) -> None:
    """Take up the plan of an incident's newest verdict in the place of the one before."""
    for one in list(turn.book.remediations.values()):
        other = event.plan is None or one.id != event.plan.id
        if one.incident == event.incident and other and (one.status in WAITING or one.status == "claimed"):
            why = event.why or "the newest verdict asks for something else"
            turn.change(one, "cancelled", "engine", {"why": why}, status="cancelled", because=why, claim=None)
    if event.plan is None:
        return
    known = turn.book.remediations.get(event.plan.id)
    if known is None:
        _begin(turn, event.plan, claims=0, version=0)
    elif known.status in ANEW:
        _begin(turn, event.plan, claims=known.claims, version=known.version)
    elif known.status in WAITING:
        _renew(turn, known, event.plan)


def task_of(one: Remediation) -> Task | None:
    """Return what a scheduler can claim of it now."""
    if one.status == "approved":
        return "do"
    return "undo" if one.undo is not None and one.status in ("verifying", "done", "failed") else None


def take_up(turn: Turn, one: Remediation) -> None:
    """Let the policy approve a proposal, or note what it would have done, once."""
    rule = rule_for(turn.book.policy, one)
    mode, because = rule.mode, ""
    if mode == "automatic" and (why := locked(rule, turn.book.tallies.get(rule.name, Tally()))):
        mode, because = "shadow", why
    found = hindrances(turn.book, one, turn.now) if mode != "propose" else []
    if mode == "automatic" and not found:
        turn.change(
            one, "approved", POLICY, {"rule": rule.name}, status="approved", mode=mode, rule=rule.name,
            because=f"rule {rule.name}", approved_by=f"{POLICY} {rule.name}", approved_at=turn.now,
        )  # fmt: skip
        return
    if found:
        because = "hindered: " + ", ".join(hindrance.code for hindrance in found)  # the texts count seconds
    if (mode, rule.name, because) == (one.mode, one.rule, one.because):
        return
    noted = replace(one, mode=mode, rule=rule.name, because=because, version=one.version + 1)
    turn.keep(noted)
    if mode == "shadow" and (one.mode, one.rule) != (mode, rule.name):
        turn.tell("remediation_would_act", POLICY, noted, {"rule": rule.name, "hindered": [one.code for one in found]})
    elif found:
        turn.tell("remediation_hindered", POLICY, noted, {"rule": rule.name, "hindered": [one.code for one in found]})


def _begin(turn: Turn, plan: Remediation, *, claims: int, version: int) -> None:
    """Propose; tokens and versions go on from those of an earlier proposal of the same plan."""
    fresh = replace(plan, status="proposed", changed_at=turn.now, proposed_at=turn.now, claims=claims, version=version)
    take_up(turn, turn.change(fresh, "proposed", plan.proposed_by, {"why": plan.why, "probability": plan.probability}))


def _renew(turn: Turn, known: Remediation, plan: Remediation) -> None:
    """The same plan from a newer verdict. What a policy approved has to pass it again; what a person did stays."""
    renewed = replace(
        known, verdict_version=plan.verdict_version, probability=plan.probability, why=plan.why,
        expected_loss_gpu_hours=plan.expected_loss_gpu_hours, prices_tenants=plan.prices_tenants,
        alternatives=plan.alternatives,
        version=known.version + 1,
    )  # fmt: skip
    turn.keep(renewed)
    if renewed.status == "approved" and renewed.mode == "automatic":
        rule = rule_for(turn.book.policy, renewed)
        if rule.name == renewed.rule and rule.mode == "automatic":
            return
        why = f"the newer verdict does not pass rule {renewed.rule}"
        renewed = turn.change(
            renewed, "hindered", POLICY, {"why": why}, status="proposed", mode="propose", rule="", because=why,
            approved_by="", approved_at=None,
        )  # fmt: skip
    if renewed.status == "proposed":
        take_up(turn, renewed)
