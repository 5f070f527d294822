"""A rollout that says nothing more, live: its incident opens, asks for stacks, and accuses none without them."""

from __future__ import annotations

from typing import Any

from analyzers.incidents.messages import Open, Publish
from analyzers.incidents.replay import rerun_engine
from service.packaged_knowledge import load
from tests.analyzers.incidents.test_role_stalls import TRAINED_SECONDS, log, watched

TURN = 20.0


def turns(role: str, rank: int, at: float) -> dict[str, Any] | None:
    """Rollouts generate and wait in turn and count nothing; rollout 2's last turn does not end."""
    late, begun = at > TRAINED_SECONDS, min(at, TRAINED_SECONDS) // TURN * TURN
    queue = {"phase": "wait", "phase_since": begun + TURN / 2, "waiting_since": begun + TURN / 2}
    if role == "rollout" and (rank == 2 if late else at - begun < TURN / 2):
        return {"phase": "generate", "phase_since": begun}
    if role == "rollout":
        return {**queue, "waiting_for": "queue:questions"}
    if role == "trainer":
        return {**queue, "waiting_for": "queue:experience", "steps_total": int(min(at, TRAINED_SECONDS) // TURN)}
    return {"phase": "serve", "requests_running": 0}


def test_a_rollout_that_says_nothing_more_opens_an_incident() -> None:
    """After two minutes, where such phases took ten seconds."""
    ((at, symptom),) = watched(TRAINED_SECONDS + 300.0, turns)[1]
    assert (symptom.detector, symptom.ranks, symptom.roles) == ("role_stalled", (2,), ("rollout",))
    assert 120.0 <= at - TRAINED_SECONDS <= 150.0


def test_a_sequence_of_minutes_opens_nothing_where_they_are_usual() -> None:
    """Every rollout had one of four minutes before."""

    def slow(role: str, rank: int, at: float) -> dict[str, Any] | None:
        if role == "rollout" and 40.0 <= at < 280.0:
            return {"phase": "generate", "phase_since": 40.0}
        return turns(role, rank, at)

    assert watched(TRAINED_SECONDS + 600.0, slow)[1] == []


def test_without_stacks_none_is_named() -> None:
    """The verdict says what would show it; nothing is restarted."""
    decided = [one for _, one in rerun_engine(log(turns, TRAINED_SECONDS + 300.0, TRAINED_SECONDS), load())]
    assert sum(isinstance(one, Open) for one in decided) == 1
    verdicts = [one.verdict for one in decided if isinstance(one, Publish)]
    assert verdicts
    for verdict in verdicts:
        assert (verdict.culprits, verdict.action.kind) == ((), "none")
        assert any("rollout 2 loops or decodes" in one.what for one in verdict.missing)
