"""Plan or rung: which is proposed where a verdict's plan and the job's past differ.

Evidence comes first: a plan that touches machines or restarts the job for the first time in a trouble is taken. The ladder
decides after an action in the same trouble did not help, and where no evidence decides.
"""

from __future__ import annotations

from typing import Literal

from analyzers.model.verdict import (
    TAKES_NODES,
)
from analyzers.remediation.ladder.job_history import Rung
from analyzers.remediation.ladder.price import CHECKS
from analyzers.remediation.ladder.trouble import EVERYWHERE, Trouble
from analyzers.remediation.plan import Plan

Side = Literal["plan", "rung", "neither"]
STARTS_AGAIN = frozenset({"reattempt", "restart_job", "restart_role", "rollback"})


def choose_side(plan: Plan, rung: Rung, trouble: Trouble | None) -> Side:
    """Return which of the two is proposed; neither: the plan does nothing, and the job's past gives no reason to."""
    if trouble is None or trouble.failing.cause == "none":
        return "plan"
    if trouble.failing.cause == "network":
        return "rung"
    if plan.kind == "evict":
        return "plan" if _evicts_first(plan, rung, trouble) else "rung"
    if plan.kind in TAKES_NODES:
        return "plan" if _touches_first(plan, rung, trouble) else "rung"
    if plan.kind in STARTS_AGAIN:
        return "plan" if _starts_first(plan, rung, trouble) else "rung"
    proof_only = rung.kind == "evict" and _is_proof(rung, trouble)  # the plan has weighed it and found it too costly
    return "neither" if proof_only else "rung"


def _evicts_first(plan: Plan, rung: Rung, trouble: Trouble) -> bool:
    """Whether no eviction was in vain, or this machine is proven again after the checks that followed."""
    if rung.kind == "evict":
        return _is_proof(rung, trouble) and set(plan.nodes) <= set(rung.nodes)
    again = trouble.nodes_of("evict") & set(plan.nodes)
    return not again and trouble.in_vain() is None and not _looked_at(rung, trouble) and not _in_code(trouble)


def _touches_first(plan: Plan, rung: Rung, trouble: Trouble) -> bool:
    """Whether these nodes were not drained, reset or rebooted in vain."""
    done = {node for taken in trouble.taken if taken.kind in ("evict", "reattempt") for node in taken.nodes}
    vain = rung.kind == "probe" and trouble.in_vain() is not None
    return not done & set(plan.nodes) and not vain and not _looked_at(rung, trouble)


def _starts_first(plan: Plan, rung: Rung, trouble: Trouble) -> bool:
    """Whether neither a plain restart, nor older code, nor an eviction was tried for this."""
    if _in_code(trouble) or trouble.in_vain() is not None or _looked_at(rung, trouble):
        return False
    if plan.kind == "restart_role":  # a restart of the whole job says nothing about it
        return True
    return not (trouble.tried("rollback") if plan.kind == "rollback" else trouble.tried_for_symptom("reattempt"))


def _in_code(trouble: Trouble) -> bool:
    return trouble.failing.fault_class in EVERYWHERE


def _looked_at(rung: Rung, trouble: Trouble) -> bool:
    """Whether checks or a replay are under way or have found a node: their results come first."""
    pending = any(taken.outcome == "pending" for taken in trouble.taken)
    return pending or (rung.kind == "evict" and not _is_proof(rung, trouble))


def _is_proof(rung: Rung, trouble: Trouble) -> bool:
    """Whether an eviction rests on the verdict's own proof, and not on checks or a replay."""
    return not set(rung.nodes) <= trouble.found


def explain_refusal(trouble: Trouble) -> str | None:
    """Say that a remediation of this attempt was refused or failed; None: none was."""
    number = trouble.failing.number
    refused = (
        one for one in trouble.taken if one.attempt == number and one.outcome == "refused" and one.kind not in CHECKS
    )
    if (one := next(refused, None)) is None:
        return None
    return f"the {one.kind} of attempt {number} was refused, or failed: a person decides what comes next"
