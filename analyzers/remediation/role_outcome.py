"""Whether a role came back after its restart: under a higher epoch, and with work done since. Else the restart has failed."""

from __future__ import annotations

from analyzers.remediation.role_restart import RoleFacts, RoleInstance, RoleRestart
from analyzers.remediation.types import Outcome

BACK_SECONDS = 600.0  # for a role to be back and at work


def observe_role(
    role: str, restart: RoleRestart, facts: RoleFacts, completed_at: float, now: float
) -> tuple[Outcome, str] | None:
    """Return the outcome with the reason; None: not known yet. An instance that has ended in order had come back."""
    present = {one.instance: one for one in facts.of(role)}
    after = [one for name, epoch in restart.epochs.items() if (one := present.get(name)) and one.epoch > epoch]
    if lost := sorted(one.instance for one in after if one.state == "lost"):
        return "not_cured", f"{role} {', '.join(lost)} was lost again after its restart"
    if len(after) == len(restart.epochs) and all(_works(one, restart.step, facts) for one in after):
        epochs = ", ".join(f"{one.instance} under epoch {one.epoch}" for one in after)
        return "cured", f"{role} {epochs}: it has registered and works"
    if now < completed_at + BACK_SECONDS:
        return None
    missing = sorted(restart.epochs.keys() - {one.instance for one in after})
    what = f"{', '.join(missing)} has not registered" if missing else "has done nothing"
    return "not_cured", f"{role} {what} within {BACK_SECONDS:.0f} s of its restart"


def _works(one: RoleInstance, step: int | None, facts: RoleFacts) -> bool:
    """Whether an instance has newer weights than the job had, or, where it states none, the job two newer versions.

    One step may have been under way without it.
    """
    if one.state == "left" or step is None:
        return True
    if one.weights is not None:
        return one.weights > step
    return facts.step is not None and facts.step > step + 1
