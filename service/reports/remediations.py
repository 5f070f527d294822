"""What a remediation and its undo do: one sentence that names the object and the effect.

Questions to people begin with it, on a terminal and on a page, so that they agree to an effect and not to an id. A plan is a
remediation as REST sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzers.model.verdict import KEEPS_OUT
from analyzers.remediation.types import list_some
from service.reports.hostlists import fold_hosts
from service.reports.instants import moment, rfc3339

Plan = Mapping[str, Any]
FEW_NODES = 3  # that a reader counts at a glance
_NEXT = {
    "proposed": "a person or the policy decides",
    "approved": "a scheduler may claim it",
    "claimed": "a scheduler has claimed it and has not begun",
    "executing": "a scheduler acts",
    "verifying": "done; whether the symptom ends with it is being watched",
}


def deed(plan: Plan, job_nodes: int | None = None) -> str:
    """Say what is done, without a stop at the end. ``job_nodes``: how many the job runs on now, where that is known."""
    job, out = _job(plan), nodes(plan)
    kind = str(plan["kind"])
    sentence = {
        "evict": f"Drain {out} and restart {job} {_elsewhere(plan, job_nodes)}",
        "drain_after_job": f"Let {job} go on, and drain {out} when it ends",
        "reset_gpu": f"Reset the GPUs of {out} and restart {job}",
        "reboot_node": f"Reboot {out} and restart {job}",
        "restart_role": f"Restart {_role(plan)} of {job} and leave the others running",
        "restart_job": f"Restart {job} on the nodes that it has",
        "reattempt": f"Start {job} again as it is",
        "rollback": f"Roll {job} back to {_version(plan)} and restart it",
        "probe": f"Check {out}, and evict nothing",
        "replay": f"Replay {job} on {_groups(plan)}",
    }
    return sentence.get(kind, f"{kind.replace('_', ' ').capitalize()} {out or job}")


def undoing(plan: Plan) -> str:
    """Say what its undoing does, without a stop at the end."""
    out, kept = nodes(plan), _kept(plan)
    if plan["kind"] in KEEPS_OUT:
        if kept and len(kept) == len(plan["nodes"]):
            return f"Take {plan['id']} back, and leave {out} out: another remediation has taken that out too"
        back = fold_hosts([node for node in plan["nodes"] if node not in kept])
        given = f"Give {back if kept else out} back to the scheduler, as it was before {plan['id']}, and leave"
        stays = f"{fold_hosts(kept)} out, which another remediation has taken out too, and " if kept else ""
        return f"{given} {stays}{_job(plan)} where it runs"
    return f"Take back what {plan['id']} did to {out or _job(plan)}, as far as the scheduler can"


def _kept(plan: Plan) -> list[str]:
    """Return the nodes that its undoing would leave out."""
    if plan.get("began_at") is None or "give_back" not in plan:  # not known yet
        return []
    return [node for node in plan["nodes"] if node not in plan["give_back"]]


def deciding(verb: str, plan: Plan, job_nodes: int | None = None) -> str:
    """Say what comes of deciding so: approve, reject, cancel or undo. Without a stop at the end."""
    if verb == "undo":
        return undoing(plan)
    if verb == "approve":
        return deed(plan, job_nodes)
    return f"{verb.capitalize()} {plan['id']}, so that this is not done: {deed(plan, job_nodes)}"


def asked_by(plan: Plan) -> str:
    """Return who asked for it, where a person did and so neither a verdict nor an incident stands behind it; else empty."""
    return str(plan.get("proposed_by") or "") if plan.get("verdict_version") == 0 else ""


def because(plan: Plan) -> str:
    """Return why it is proposed; of what a person asked for, who that was."""
    by, why = asked_by(plan), str(plan.get("why") or "")
    return f"asked for by {by}: {why}" if by else why


def short(plan: Plan) -> str:
    """Return kind and object for a line of a table: ``evict gpu-0413``, ``restart rollout 1``."""
    restart = plan.get("role_restart") or {}
    if plan["kind"] == "restart_role" and plan.get("role") and restart:
        named = [restart["instance"]] if restart.get("instance") else list(restart.get("epochs") or ())
        return f"restart {plan['role']} {list_some(named)}".strip()
    kind = "nothing" if plan["kind"] == "none" else str(plan["kind"]).replace("_", " ")
    return f"{kind} {nodes(plan) or plan.get('role') or ''}".strip()


def loss(plan: Plan) -> str:
    """Return what it costs on average, with the unit: ``0.7 node hours``; empty where that is unknown."""
    for field, unit in (("expected_loss_gpu_hours", "GPU hours"), ("expected_loss_node_hours", "node hours")):
        if plan.get(field) is not None:
            return f"{plan[field]:,.1f} {unit}"
    return ""


def nodes(plan: Plan) -> str:
    """Return the nodes that are taken out, or looked at, as a hostlist, with their number where it is not plain to see."""
    names = list(plan.get("nodes") or ())
    return fold_hosts(names) + (f" ({len(names):,} nodes)" if len(names) > FEW_NODES else "")


def groups(plan: Plan) -> list[str]:
    """Return the groups of a replay, one a line: those of a phase run at the same time."""
    replay = plan.get("replay") or {}
    phases = [replay.get(phase) or [] for phase in ("horizontal", "vertical")]
    return [f"{group['name']}: {fold_hosts(group['nodes'])}" for phase in phases for group in phase]


def standing(plan: Plan) -> str:
    """Return what its status means and what comes next; of one that has ended, only why."""
    because = str(plan.get("because") or "")
    claim = plan.get("claim")
    following = _NEXT.get(str(plan["status"]), "")
    if claim and following:
        following += f": {claim['by']}, until {moment(rfc3339(claim['until']))}"
    elif following and plan.get("expires_at") is not None:
        following += f", until {moment(rfc3339(plan['expires_at']))}: then it expires"
    return "; ".join(part for part in (because, following) if part)


def obstacles(plan: Plan) -> list[str]:
    """Return why it must not act now, one sentence each."""
    return [str(one["text"]) for one in plan.get("hindrances") or ()]


def _role(plan: Plan) -> str:
    if not plan.get("role"):
        return "the role that failed"
    restart = plan.get("role_restart") or {}
    named = f"{plan['role']} {restart['instance']}" if restart.get("instance") else f"the role {plan['role']}"
    places = [restart.get("onto", {}).get(node, f"another node than {node}") for node in restart.get("leaves", ())]
    given = f" in place of rollout {', '.join(restart['gives'])}" if restart.get("gives") else ""
    return f"{named} on {', '.join(places)}{given}" if places else named


def _version(plan: Plan) -> str:
    version = plan.get("code_version")
    return f"code version {version}" if version else "the last code version that ran well"


def _job(plan: Plan) -> str:
    attempt = plan.get("attempt")
    return f"{plan['job']}" + (f" (attempt {attempt})" if attempt is not None else "")


def _groups(plan: Plan) -> str:
    """Say on how many groups of how many nodes a replay runs, in its two phases."""
    replay = plan.get("replay") or {}
    phases = " + ".join(str(len(replay.get(phase) or ())) for phase in ("horizontal", "vertical"))
    size = replay.get("group_nodes", 0)
    return f"{phases} groups of {size} node{'' if size == 1 else 's'}"


def _elsewhere(plan: Plan, job_nodes: int | None) -> str:
    gone = len(plan.get("nodes") or ())
    if job_nodes is None or job_nodes <= gone:
        return "without it" if gone == 1 else "without them"
    left = job_nodes - gone
    return f"on the other {left:,} nodes" if left > 1 else "on the other node"
