"""Evidence rounds: what every node of a job is asked for, when, and until when its answers are waited for."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from analyzers.incidents import messages
from analyzers.incidents.memory import remember_incident
from analyzers.incidents.state import LOOKBACK_SECONDS, EngineState
from analyzers.model.incident import Incident
from analyzers.verdict.gate import ROUNDS_AFTER_SECONDS

ANSWER_SECONDS = 6.0  # for agents to answer: a recorder's time bound is five
LATE_ANSWER_SECONDS = 12.0  # where more than half of the answers are missing: the nodes are busy
ASKED: tuple[tuple[str, dict[str, str]], ...] = (("stacks", {}), ("recorders", {}), ("read", {"collector": "steps"}))
SLOW_ROUNDS_AFTER_SECONDS = (0.0, 10.0, 20.0, 30.0, 40.0, 180.0)
"""Of a slow job: five looks ten seconds apart, which a vote over stacks takes, and one more for what is read by the minute."""
ASKED_OF_A_SLOW_JOB = (*(one for one in ASKED if one[0] != "recorders"), ("profile", {}))  # it runs: dumps show no wait


def looks_before_abstaining(incident: Incident) -> int:
    """Return after how many rounds a verdict is published that names nothing."""
    return len(SLOW_ROUNDS_AFTER_SECONDS) - 1 if incident.kind == "slow" else 2


def asked_of(incident: Incident) -> tuple[tuple[str, dict[str, str]], ...]:
    """Return what the nodes are asked for in a round: verbs with their arguments."""
    return ASKED_OF_A_SLOW_JOB if incident.kind == "slow" else ASKED


def waits_until(state: EngineState, incident: Incident, asked_at: float) -> float:
    """Return until when a round waits for answers; a later answer is judged when it comes."""
    asked = len(incident.nodes) * len(asked_of(incident))
    if state.now >= asked_at + ANSWER_SECONDS and 2 * len(state.waiting.get(incident.id, ())) > asked:
        return asked_at + LATE_ANSWER_SECONDS
    return asked_at + ANSWER_SECONDS


def ask(state: EngineState, incident: Incident, now: float) -> Iterator[messages.EngineInstruction]:
    """Begin a round of evidence: ask every node of the job at once, before a collective's timeout kills the victims."""
    if incident.job is None:
        return
    view = state.jobs.get((incident.job, incident.attempt))
    joined = tuple(sorted(set(view.nodes) - set(incident.nodes))) if view is not None else ()
    nodes = (*incident.nodes, *joined)
    # Older records of nodes outside an incident are forgotten. A replay, which has them, must leave them out too.
    kept_after = max(incident.after, state.mark_before(now - LOOKBACK_SECONDS))
    changed = replace(
        incident, nodes=nodes, joined=incident.joined | dict.fromkeys(joined, kept_after), looks=incident.looks + 1,
        offsets=incident.offsets | state.offsets(joined), asked_at=now, round_at=now, next_look_at=_next_at(incident, now),
    )  # fmt: skip
    remember_incident(state, changed)
    asked = asked_of(incident)
    state.waiting[incident.id] = {(node, verb) for node in nodes for verb, _ in asked}
    for verb, arguments in asked:
        yield messages.Ask(
            incident=incident.id,
            nodes=nodes,
            verb=verb,
            arguments=arguments if verb == "read" else {"job": incident.job},
        )


def _next_at(incident: Incident, now: float) -> float | None:
    """Return when the next round is; None: a slow job that runs on has been looked at often enough."""
    rounds = SLOW_ROUNDS_AFTER_SECONDS if incident.kind == "slow" else ROUNDS_AFTER_SECONDS
    following = incident.looks + 1
    if following >= len(rounds) and incident.kind == "slow":
        return None
    next_at = incident.opened_at + rounds[following] if following < len(rounds) else now + rounds[-1]
    return max(next_at, now + rounds[1])
