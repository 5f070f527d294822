"""Readings of the roles of a job, ten seconds apart: a trainer, four rollouts, a reward, an environment, a controller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from analyzers.knowledge.role_rules import RoleRules, role_rules
from analyzers.model.role_instances import fold
from analyzers.model.role_look import Stall
from analyzers.model.role_silence import Seen
from analyzers.model.role_stalls import stalled
from collectors.records import RoleState
from service.packaged_knowledge import load

START, END, EVERY = 1_795_230_000.0, 1_795_230_600.0, 10.0
JOB: dict[str, Any] = {"job": "rl-math", "attempt": 1}
NODES = {"trainer": "t0", "reward": "c0", "environment": "c1", "controller": "c0"}
GENERATES = {"phase": "generate", "running": 8, "tokens": 200, "weights": 7}
HEALTHY: Mapping[tuple[str, str], dict[str, Any]] = {
    ("trainer", "0"): {"phase": "wait", "waiting_for": "queue:experience", "weights": 7, "steps_total": 7},
    ("controller", "0"): {"phase": "wait", "waiting_for": "rollout"},
    ("reward", "0"): {"phase": "score", "running": 8, "steps": 1},
    ("environment", "0"): {"phase": "tool", "running": 8, "steps": 1},
    **{("rollout", str(number)): GENERATES for number in range(4)},
}


@cache
def rules() -> RoleRules:
    """Return the packaged rules."""
    return role_rules(load())


def readings(
    role: str, instance: str, *, until: float | None = None, silent_from: float | None = None, since: float = 0.0,
    tokens: float = 0.0, steps: float = 0.0, running: int | None = None, still_from: float = 1e9, steps_from: int = 10,
    **said: Any,
) -> Iterator[RoleState]:  # fmt: skip
    """Yield an instance's readings; ``tokens`` and ``steps`` are rates, all times are seconds after the start."""
    phase_since = said.pop("phase_since", since)
    for tick in range(int((END - START) / EVERY) + 1):
        after = tick * EVERY
        if after < since or (until is not None and after > until):
            continue
        moved = min(after, still_from)
        at = START + after
        counted = {
            "tokens_total": int(1_000 + tokens * moved) if tokens else None,
            "steps_total": said.get("steps_total") if not steps else int(steps_from + steps * moved),
        }
        waits = {"waiting_since": START + phase_since} if said.get("waiting_for") else {}
        yield RoleState(
            **JOB, source=f"{role}/{instance}", at=at, received_at=at, role=role, instance=instance,
            node=said.get("node", NODES.get(role, f"r{instance}")), phase=said.get("phase"),
            phase_since=START + phase_since if said.get("phase") else None, weights=said.get("weights"),
            waiting_for=said.get("waiting_for"), requests_running=running, requests_waiting=said.get("requests_waiting"),
            renewed_at=START + min(after, 1e9 if silent_from is None else silent_from) - 2.0,
            answers=said.get("answers"), state=said.get("state", "serving"), lease_seconds=said.get("lease_seconds"),
            hardware=said.get("hardware"), pid=said.get("pid"), **counted, **waits,
        )  # fmt: skip


def scene(changes: Mapping[tuple[str, str], Mapping[str, Any]] | None = None) -> list[RoleState]:
    """Return the readings of a healthy job with some instances changed; one changed to None is not there."""
    every = {**HEALTHY, **(changes or {})}
    return [one for (role, name), how in every.items() if how is not None for one in readings(role, name, **how)]


def stalls(
    records: Iterable[RoleState], seen: Mapping[tuple[str, str], Seen] | None = None, at: float = END
) -> list[Stall]:
    """Return what holds the job up at an instant, the end."""
    return stalled(fold(records), at, rules(), seen)


def named(
    records: Iterable[RoleState], seen: Mapping[tuple[str, str], Seen] | None = None, at: float = END
) -> list[tuple[str, str, str]]:
    """Return fault class, role and instance of each."""
    return [(one.fault_class, one.role, one.instance) for one in stalls(records, seen, at)]
