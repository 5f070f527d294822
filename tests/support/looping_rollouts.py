"""Readings of a job whose rollouts take turns, until rollout 3 says nothing new: it loops, or has a long sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collectors.records import RoleState
from tests.support.role_readings import END, EVERY, JOB, START

LOOPS = 420.0  # seconds after the start, at which rollout 3 begins its last phase
TURN = 20.0  # a rollout generates for half of it


def rollout(number: int, after: float, **more: Any) -> dict[str, Any]:
    """Return what a rollout that takes turns states."""
    turn = after // TURN * TURN
    if after - turn < TURN / 2:
        return {"phase": "generate", "phase_since": START + turn, **more}
    since = START + turn + TURN / 2
    return {"phase": "wait", "phase_since": since, "waiting_for": "queue:questions", "waiting_since": since, **more}


def said(role: str, instance: str, after: float, how: str, *, alone: bool) -> dict[str, Any]:
    """Return what an instance states: ``how``, which of its counters rollout 3 has; ``alone``, whether all others wait."""
    late = after >= LOOPS
    if role == "rollout":
        mine = instance == "3" and late
        at = LOOPS if mine or (late and alone) else after
        known = rollout(int(instance), at + (TURN / 2 if late and alone and not mine else 0.0))
        if how == "tokens":
            known |= {"tokens_total": int(100 * min(at, after))}
        return known
    since = LOOPS if late and alone else after // TURN * TURN
    if role == "trainer":
        return {
            "phase": "wait", "phase_since": START + since, "waiting_for": "queue:experience",
            "waiting_since": START + since, "steps_total": int(since // TURN),
        }  # fmt: skip
    return {"phase": "serve", "requests_running": 0, "steps_total": int(since)}


SEATS = [("trainer", "0"), ("trainer", "1"), *(("rollout", str(number)) for number in range(4)), ("tool", "0")]


def scene(how: str = "phases", *, alone: bool = True, since: float = 0.0, **changed: Any) -> list[RoleState]:
    """Return the readings of a job in which rollout 3 says nothing new after ``LOOPS``; ``changed``: what else it states then."""

    def readings() -> Iterator[RoleState]:
        for tick in range(int(since / EVERY), int((END - START) / EVERY) + 1):
            for role, instance in SEATS:
                after = tick * EVERY
                known = said(role, instance, after, how, alone=alone)
                if (role, instance) == ("rollout", "3") and after >= LOOPS:
                    known |= changed
                at = START + after
                yield RoleState(
                    **JOB, source=f"{role}/{instance}", at=at, received_at=at, role=role, instance=instance,
                    node=f"{role}{instance}", renewed_at=at - 2.0, lease_seconds=30.0, **{"state": "serving", **known},
                )  # fmt: skip

    return list(readings())
