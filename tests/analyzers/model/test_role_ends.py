"""The ends of instances: whose they are, and which of them hold the others up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.model.role_silence import Seen
from collectors.records import RoleState
from tests.support.role_readings import END, GENERATES, START, named, readings, scene

FIRST = ("rollout", "2")
WAITS: dict[str, Any] = {"phase": "wait", "waiting_for": "rollout 2", "phase_since": 400.0, "weights": 7}
FORMER = Seen(state="X", at=START + 300.0)


def missed(role: str, name: str, phase: str, from_: float) -> Iterator[RoleState]:
    """Yield readings of one that was heard last in a phase, and is missed since."""
    for one in readings(
        role, name, phase=phase, phase_since=from_ - 20.0, silent_from=from_, steps=0.1, still_from=from_
    ):
        said = one.at is not None and one.at <= START + from_
        yield one if said else replace(one, phase=None, phase_since=None, steps_total=None)


def test_an_end_before_an_instance_was_heard_is_of_another_process() -> None:
    """It was started again where no agent is, or a number that is another instance's was taken for its own."""
    assert named(scene(), {FIRST: FORMER}) == []
    ended = scene({FIRST: {**GENERATES, "silent_from": 300.0, "still_from": 300.0}})
    assert named(ended, {FIRST: FORMER}) == [("role_lost", "rollout", "2")]


def test_a_former_end_hides_no_fault_of_another() -> None:
    """While one that was started again is taken for dead, nothing else is looked for."""
    others = scene({("trainer", "0"): {**WAITS, "waiting_for": "rollout"}})
    others = [one for one in others if one.instance != "1"]
    slow = readings("rollout", "1", phase="generate", running=8, tokens=60, weights=7)
    assert named([*others, *slow], {FIRST: FORMER}) == [("role_slow", "rollout", "1")]


@pytest.mark.parametrize(("phase", "after"), [("weight_sync", 200.0), ("offload", 350.0)])
def test_one_that_falls_silent_in_a_phase_without_heartbeats_is_lost_once_that_has_taken_too_long(
    phase: str, after: float
) -> None:
    """No agent sees its process, and its last word is minutes old: that it was in such a phase excuses it for a while."""
    fell_at = END - START - after
    others = [one for one in scene() if one.role != "trainer"]
    records = [*others, *missed("trainer", "0", phase, fell_at)]
    assert named([one for one in records if (one.at or 0.0) <= START + fell_at + 60.0], at=START + fell_at + 60.0) == []
    assert named(records) == [("role_lost", "trainer", "0")]


def test_one_that_ended_well_is_lost_where_others_go_on_waiting_for_it_by_name() -> None:
    """It met an error and left with exit code 0; whoever waits for its role has others."""
    gone: dict[str, Any] = {"phase": "wait", "waiting_for": "queue:prompts", "running": 0, "silent_from": 400.0}
    seen = {FIRST: Seen(state="X", at=START + 400.0, ended_well=True)}
    assert named(scene({FIRST: gone, ("trainer", "0"): WAITS}), seen) == [("role_lost", "rollout", "2")]
    assert named(scene({FIRST: gone, ("trainer", "0"): {**WAITS, "phase_since": 570.0}}), seen) == []
    assert named(scene({FIRST: gone, ("trainer", "0"): {**WAITS, "waiting_for": "rollout"}}), seen) == []
