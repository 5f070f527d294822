"""One attempt of a job is acted on once: a further action waits for a later attempt, or for the outcome.

A remediation that ends an attempt is answered only by a later attempt, because a requeued job may wait for its nodes for hours.
Where no later attempt may come, a time bound holds: agents report attempt 0 of a job that counts none, and the numbers of a new
submission may stay below the old one.
"""

from __future__ import annotations

from analyzers.remediation.types import CHECKS, STOPS_NOTHING, UNDER_WAY, Remediation, RemediationState

UNSETTLED = UNDER_WAY | {"failed"}
"""Nodes may be out, and the job was not seen to run without them."""
SAME_ATTEMPT = frozenset({"reset_gpu", "restart_role"})
"""Kinds after which the same attempt may go on."""


def is_unsettled(one: Remediation) -> bool:
    """Whether its outcome is not known yet."""
    return one.status in UNSETTLED or (one.status == "done" and one.outcome == "unknown")


def explain_wait(state: RemediationState, one: Remediation, now: float) -> str | None:
    """Say what another remediation of its job must wait for; None: nothing."""
    if one.kind in STOPS_NOTHING | CHECKS or one.began_at is None or not is_unsettled(one):
        return None
    if one.status == "failed" and one.role_restart is not None and one.role_restart.epochs:
        return None  # what it may have started late has an epoch that its peers refuse
    job = state.facts.jobs.get(one.job)
    newest = None if job is None else job.attempt
    can_be_undone = one.status != "executing" and one.may_have_taken
    if one.kind not in SAME_ATTEMPT and newest is not None and one.attempt is not None:
        if newest > one.attempt:
            return None
        if newest == one.attempt > 0 and (one.status != "failed" or can_be_undone):
            return f"wait until a later attempt than {one.attempt} runs" + (
                ", or it is undone" if can_be_undone else ""
            )
    left = (one.completed_at or one.changed_at) + state.limits.verify_seconds - now
    return f"wait for its outcome, for another {left:,.0f} s at most" if left > 0 else None
