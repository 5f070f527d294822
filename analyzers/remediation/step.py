"""One step of remediation: an event in, instructions out, and no other effect.

                      reject            no answer in time, or cancelled
       ┌────────────▶ rejected          ┌──▶ expired, cancelled
       │                                │
    proposed ──approve──▶ approved ──take──▶ claimed ──begin──▶ executing ──complete──▶ verifying ──verified──▶ done
     ▲  (a person, or the   │   ▲               │                   │                       │                    │
     │   policy by itself)  │   └─ claim failed, ┘                  ├─ fail, claim ran out ─▶ failed             │
     └─ the policy would ───┘      or ran out                       └── a person asks, a scheduler takes and ────┴──▶ undone
        not do so any more                                              completes it (from verifying, done, failed)

A claim that fails before it began has done nothing: it can be claimed again, a few times. A check (probe, replay) is done as soon
as it is complete. An undo returns the nodes that no other remediation has taken out as well.

The guards (guards.py) are checked when a policy approves, when a claim is taken, and when execution begins, which counts in the
budget and the breaker. An event under an expired lease is refused, and an approval ends with its time even without a tick.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation import approval, breaker, checks, messages
from analyzers.remediation.guards import explain_expiry, find_blockers
from analyzers.remediation.transition import Transition
from analyzers.remediation.types import (
    CHECKS,
    UNDOABLE,
    WAITING,
    BreakerTrip,
    Claim,
    Ending,
    Execution,
    Remediation,
    RemediationState,
    Undo,
)

LONGEST_REASON = 1_000
SHORTEST_CLAIM_SECONDS = 5.0
MOST_FAILED_CLAIMS = 3  # before it began: then it has failed
AGAIN_SECONDS = 30.0  # from such a failure until the next claim
NOT_IN_TIME = {
    "proposed": "the proposal was not answered in time",
    "approved": "no scheduler has claimed it",
    "claimed": "no scheduler has begun with it",
}


def step(
    state: RemediationState, event: messages.RemediationEvent, now: float
) -> tuple[RemediationState, list[messages.RemediationInstruction]]:
    """Return the state after an event, and the instructions; where it raises ``RemediationRefused`` nothing has changed."""
    transition = Transition(state, now)
    match event:
        case messages.Proposed():
            approval.accept_proposal(transition, event)
        case messages.Approve():
            _approve(transition, event)
        case messages.Reject() | messages.Cancel():
            _withdraw(transition, event)
        case messages.Take():
            _take(transition, event)
        case messages.Heartbeat():
            _heartbeat(transition, event)
        case messages.Begin():
            _begin(transition, event)
        case messages.Complete():
            _complete(transition, event)
        case messages.Fail():
            _fail(transition, event)
        case messages.AskUndo():
            _ask_undo(transition, event)
        case messages.Verified():
            _verified(transition, event)
        case messages.RemediationTick():
            _tick(transition)
        case messages.AddHold() | messages.ExpireHold() | messages.SetFreeze() | messages.CloseBreaker():
            _order(transition, event)
    return transition.state, transition.instructions


# --- people


def _approve(transition: Transition, event: messages.Approve) -> None:
    one = transition.find(event.id)
    transition.require(one.status == "proposed", one, "approved")
    if (why := explain_expiry(transition.state, one, transition.now)) is not None:
        raise messages.RemediationRefused("conflict", f"{one.id} cannot be approved any more: {why}")
    transition.change(
        one, "approved", event.by, _reason(event.reason), status="approved", because=_short(event.reason), approved_by=event.by,
        approved_at=transition.now,
    )  # fmt: skip


def _withdraw(transition: Transition, event: messages.Reject | messages.Cancel) -> None:
    one, rejected = transition.find(event.id), isinstance(event, messages.Reject)
    status = "rejected" if rejected else "cancelled"
    transition.require(one.status in WAITING or (one.status == "claimed" and not rejected), one, status)
    cancelled = {} if rejected else {"cancelled_by": event.by}
    transition.change(
        one,
        status,
        event.by,
        _reason(event.reason),
        status=status,
        because=_short(event.reason),
        claim=None,
        **cancelled,
    )


def _ask_undo(transition: Transition, event: messages.AskUndo) -> None:
    one = transition.find(event.id)
    transition.require(one.status in UNDOABLE, one, "undone")
    if not one.may_have_taken:
        raise messages.RemediationRefused("conflict", f"{one.id} took no node out: there is nothing to undo")
    if one.undo is not None:
        raise messages.RemediationRefused(
            "conflict", f"{one.undo.by} has asked before that {one.id} is undone: a scheduler has to take it"
        )
    transition.change(
        one,
        "undo_asked",
        event.by,
        _reason(event.reason),
        undo=Undo(by=event.by, reason=_short(event.reason), at=transition.now),
    )


# --- schedulers


def _take(transition: Transition, event: messages.Take) -> None:
    one = transition.find(event.id)
    if one.claim is not None and one.claim.until > transition.now:
        raise messages.RemediationRefused(
            "conflict", f"{one.id} is claimed by {one.claim.by}: it is free again when that claim has run out"
        )
    task = approval.claimable_task(one)
    if task is None:
        raise messages.RemediationRefused(
            "conflict", f"{one.id} is {one.status}: only what is approved, or is to be undone, can be claimed"
        )
    _unhindered(transition, one, task)
    seconds = min(max(event.seconds, SHORTEST_CLAIM_SECONDS), transition.state.limits.claim_seconds)
    claim = Claim(by=event.by, token=one.claims + 1, until=transition.now + seconds, task=task)
    to: dict[str, Any] = (
        {"status": "claimed"} if task == "do" else {"give_back": transition.state.nodes_to_give_back(one)}
    )
    transition.change(one, "claimed", event.by, {"task": task}, claim=claim, claims=claim.token, **to)


def _heartbeat(transition: Transition, event: messages.Heartbeat) -> None:
    one = transition.find(event.id)
    claim = _held(transition, one, event)
    seconds = min(max(event.seconds, SHORTEST_CLAIM_SECONDS), transition.state.limits.claim_seconds)
    transition.store(replace(one, claim=replace(claim, until=max(claim.until, transition.now + seconds))))


def _begin(transition: Transition, event: messages.Begin) -> None:
    one = transition.find(event.id)
    claim = _held(transition, one, event)
    if claim.task == "undo":
        _begin_undo(transition, one)
        return
    if one.status == "executing":  # the answer was lost, and it asks again
        _unhindered(transition, one, "undo")
        return
    _unhindered(transition, one, "do")
    takes = one.kind in TAKES_NODES
    transition.change(
        one, "begun", event.by, status="executing", began_at=transition.now, out=one.nodes if takes else ()
    )
    if takes or one.kind == "restart_role":
        _count(transition, one, one.nodes if takes else (), event.by)


def _count(transition: Transition, one: Remediation, nodes: tuple[str, ...], by: str) -> None:
    """Count nodes that are taken out, in budget and breaker."""
    transition.state.executions = [
        *transition.state.executions,
        Execution(remediation=one.id, at=transition.now, nodes=nodes),
    ]
    if why := breaker.explain_trip(transition.state, transition.now):
        transition.state.trip = BreakerTrip(at=transition.now, reason=why)
        transition.audit("breaker_tripped", by, one, {"why": why})


def _begin_undo(transition: Transition, one: Remediation) -> None:
    """Update the nodes to give back: another remediation may have taken one of them out since the claim."""
    _unhindered(transition, one, "undo")
    give_back = transition.state.nodes_to_give_back(one)
    if give_back != one.give_back:
        transition.store(replace(one, give_back=give_back, version=one.version + 1))


def _complete(transition: Transition, event: messages.Complete) -> None:
    one = transition.find(event.id)
    if _is_repeated(one, event):
        return
    claim, ended = _held(transition, one, event), {"claim": None, "ending": _ending(event)}
    if claim.task == "undo":
        details = {"did": event.did, "give_back": list(one.give_back)}
        transition.change(one, "undone", event.by, details, status="undone", out=(), **ended)
        return
    transition.require(one.status == "executing", one, "completed")
    if (why := checks.explain_problem(one, event.did)) is not None:
        raise messages.RemediationRefused("conflict", f"{one.id} is not completed: {why}")
    status = "done" if one.kind in CHECKS else "verifying"
    transition.change(
        one, "completed", event.by, {"did": event.did}, status=status, did=one.did | event.did,
        completed_at=transition.now, **ended,
    )  # fmt: skip


def _is_repeated(one: Remediation, event: messages.Complete | messages.Fail) -> bool:
    """Whether a claimant repeats an ending that was recorded. A claim that ran out has none."""
    return one.claim is None and one.ending == _ending(event)


def _ending(event: messages.Complete | messages.Fail) -> Ending:
    return Ending(by=event.by, token=event.token, word="complete" if isinstance(event, messages.Complete) else "fail")


def _fail(transition: Transition, event: messages.Fail) -> None:
    one = transition.find(event.id)
    if _is_repeated(one, event):
        return
    claim, ended = _held(transition, one, event), {"claim": None, "ending": _ending(event)}
    why = _short(event.reason)
    if claim.task == "undo":
        transition.change(one, "undo_failed", event.by, {"did": event.did, "why": why}, because=why, **ended)
        return
    if one.began_at is None and not event.did and one.failed_claims + 1 < MOST_FAILED_CLAIMS:
        transition.change(
            one, "released", event.by, {"why": why}, status="approved", because=why, again_at=transition.now + AGAIN_SECONDS,
            failed_claims=one.failed_claims + 1, **ended,
        )  # fmt: skip
        return
    did = one.did | event.did
    out = tuple(node for node in one.nodes if node in did) if one.kind in TAKES_NODES else ()
    began_at = (
        transition.now if one.began_at is None and did else one.began_at
    )  # a claimant that did something has begun
    transition.change(
        one, "failed", event.by, {"did": event.did, "why": why}, status="failed", because=why, did=did, out=out,
        began_at=began_at, outcome=None if began_at is None else "unknown", **ended,
    )  # fmt: skip
    if out and one.began_at is None:
        _count(transition, one, out, event.by)


def _held(
    transition: Transition,
    one: Remediation,
    event: messages.UnderClaim,
) -> Claim:
    """Return the event's claim; refuse another caller's, an older, or an expired one."""
    claim = one.claim
    if claim is None or claim.token != event.token or claim.by != event.by:
        newest = f"the newest is {one.claims}" if claim is not None else f"it is {one.status}, and has no holder"
        raise messages.RemediationRefused(
            "fenced", f"{one.id} is not held under token {event.token} by {event.by}: {newest}; do not act"
        )
    if claim.until <= transition.now:
        late = transition.now - claim.until
        raise messages.RemediationRefused(
            "fenced", f"the claim of {one.id} under token {event.token} ran out {late:.1f} s ago: do not act"
        )
    return claim


def _unhindered(transition: Transition, one: Remediation, task: str) -> None:
    """Refuse what a guard blocks. Only a freeze blocks an undo."""
    found = find_blockers(transition.state, one, transition.now)
    found = [hindrance for hindrance in found if task == "do" or hindrance.code == "frozen"]
    if found:
        raise messages.RemediationRefused(
            "hindered", f"{one.id} must not act now: " + "; ".join(hindrance.text for hindrance in found)
        )


# --- time


def _verified(transition: Transition, event: messages.Verified) -> None:
    one = transition.find(event.id)
    transition.require(one.status == "verifying", one, "verified")
    _end(transition, one, event.outcome, event.why)


def _end(transition: Transition, one: Remediation, outcome: str, why: str) -> None:
    details = {"outcome": outcome, "why": why}
    transition.change(one, "verified", "engine", details, status="done", outcome=outcome, because=_short(why))


def _tick(transition: Transition) -> None:
    state, limits = transition.state, transition.state.limits
    in_doubt = bool(
        state.facts.clock_doubt
    )  # of what ends with time only claims end: a fenced claimant must not block an undo
    for known in list(state.remediations.values()):
        one = approval.recheck_approval(transition, known)
        if one.claim is not None and one.claim.until <= transition.now:
            _run_out(transition, one)
        elif in_doubt:
            continue
        elif explain_expiry(state, one, transition.now) is not None:
            _expire(transition, one)
        elif (
            one.status == "verifying" and transition.now >= (one.completed_at or one.changed_at) + limits.verify_seconds
        ):
            _end(transition, one, "unknown", f"nothing was seen of {one.job} for {limits.verify_seconds:,.0f} s")
        elif one.status == "proposed":
            approval.apply_policy(transition, one)
    if in_doubt:
        return
    after = breaker.counted_after(limits, transition.now)
    state.executions = [one for one in state.executions if one.at > after]
    for hold in sorted(
        (one for one in state.holds.values() if one.until <= transition.now), key=lambda one: (one.until, one.id)
    ):
        del state.holds[hold.id]
        transition.audit("hold_expired", "engine", None, {"hold": hold.id, "node": hold.node, "job": hold.job})


def _run_out(transition: Transition, one: Remediation) -> None:
    assert one.claim is not None
    details = {"token": one.claim.token, "claimed_by": one.claim.by}
    if one.claim.task == "undo":
        transition.change(one, "released", "engine", details, claim=None)
    elif one.status == "claimed":
        transition.change(one, "released", "engine", details, status="approved", claim=None)
    else:
        then = "check, or undo it" if one.nodes else "check the job"
        why = f"the claim of {one.claim.by} ran out while it acted: how far it came is unknown; {then}"
        ended = {"status": "failed", "claim": None, "because": why, "outcome": "unknown"}
        transition.change(one, "failed", "engine", details | {"why": why}, **ended)


def _expire(transition: Transition, one: Remediation) -> None:
    why = NOT_IN_TIME[one.status]
    transition.change(one, "expired", "engine", {"why": why}, status="expired", because=why, claim=None)


# --- orders for the whole fleet


def _order(transition: Transition, event: messages.FleetOrder) -> None:
    state = transition.state
    match event:
        case messages.AddHold(hold=hold):
            state.holds[hold.id] = hold
            named = {"hold": hold.id, "node": hold.node, "job": hold.job, "until": hold.until, "reason": hold.reason}
            transition.audit("hold_added", hold.by, None, named)
        case messages.ExpireHold():
            if event.id not in state.holds:
                raise messages.RemediationRefused(
                    "not_found", f"there is no hold {event.id}: `faulthound holds list` names those there are"
                )
            hold = state.holds.pop(event.id)
            named = {"hold": hold.id, "node": hold.node, "job": hold.job, "reason": _short(event.reason)}
            transition.audit("hold_expired", event.by, None, named)
        case messages.SetFreeze():
            if (state.freeze is None) == (event.freeze is None):
                raise messages.RemediationRefused(
                    "conflict", "it is frozen already" if state.freeze else "nothing is frozen"
                )
            state.freeze = event.freeze
            transition.audit("frozen" if event.freeze else "thawed", event.by, None, {"reason": event.reason})
        case messages.CloseBreaker():
            if state.trip is None:
                raise messages.RemediationRefused("conflict", "the breaker is closed already")
            state.trip, state.breaker_closed_at = None, transition.now
            transition.audit("breaker_closed", event.by, None, {"reason": event.reason})


def _reason(text: str) -> dict[str, str]:
    return {"reason": _short(text)} if text else {}


def _short(text: str) -> str:
    return text[:LONGEST_REASON]
