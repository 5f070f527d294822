"""Whether a role came back after its restart: under a higher epoch, and with work seen since. Else the restart has failed.

An instance that is back and shows no work is no proof of either: a step may last longer than ten minutes. It counts as failed
where its incident is still open then.
"""

from __future__ import annotations

from analyzers.remediation.role_restart import GONE, RoleFacts, RoleInstance, RoleRestart
from analyzers.remediation.types import Outcome

BACK_SECONDS = 600.0  # for a role to be back and at work


def observe_role(
    role: str, restart: RoleRestart, facts: RoleFacts, completed_at: float, now: float, *, troubled: bool = False
) -> tuple[Outcome, str] | None:
    """Return the outcome with the reason; None: not known yet. ``troubled``: the incident behind it is still open."""
    present = {one.instance: one for one in facts.of(role)}
    after = [one for name, epoch in restart.epochs.items() if (one := present.get(name)) and one.epoch > epoch]
    if lost := sorted(one.instance for one in after if one.state in GONE):
        return "not_cured", f"{role} {', '.join(lost)} was lost again after its restart"
    idle = sorted(one.instance for one in after if not _works(one, restart.step, facts))
    if len(after) == len(restart.epochs) and not idle:
        epochs = ", ".join(f"{one.instance} under epoch {one.epoch}" for one in after)
        seen = all(one.worked or _has_new_weights(one, restart.step) for one in after)
        shows = "and works" if seen else "and the job has done steps since"
        return "cured", f"{role} {epochs}: it has registered {shows}"
    if now < completed_at + BACK_SECONDS:
        return None
    if missing := sorted(restart.epochs.keys() - {one.instance for one in after}):
        return "not_cured", f"{role} {', '.join(missing)} has not registered within {BACK_SECONDS:.0f} s of its restart"
    return (
        "not_cured" if troubled else "unknown",
        f"{role} {', '.join(idle)} has registered, and no work of it was seen within {BACK_SECONDS:.0f} s of its restart",
    )


def _works(one: RoleInstance, step: int | None, facts: RoleFacts) -> bool:
    """Whether work of it was seen under its epoch: in its own counters, else in its weights, else in the job's steps.

    One step may have been under way without it. What it had when it registered it has from its checkpoint.
    """
    done = facts.step is not None and step is not None and facts.step > step + 1
    if one.state == "left":  # it has ended in order: with the job, if that went on
        return bool(one.worked) or done
    if one.worked is not None:
        return one.worked
    return done if one.weights is None else _has_new_weights(one, step)


def _has_new_weights(one: RoleInstance, step: int | None) -> bool:
    return one.weights is not None and one.weights > max(step or 0, one.first_weights or 0)
