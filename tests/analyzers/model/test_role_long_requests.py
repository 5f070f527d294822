"""Requests that take far longer than any before: an incident at most, where nothing shows that they are lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from analyzers.model.role_silence import Seen
from collectors.records import RoleState
from tests.support.role_readings import END, GENERATES, HEALTHY, START, named, scene, stalls

ENGINE, TOOL = ("rollout", "3"), ("environment", "0")
BUSY, IDLE = Seen("S", END, still_seconds=0.0), Seen("S", END, still_seconds=300.0)
STANDS = {**GENERATES, "still_from": 300.0}


def in_batches(records: list[RoleState]) -> list[RoleState]:
    """Let each rollout count a batch of a minute at its end."""
    return [
        msgspec.structs.replace(one, tokens_total=one.tokens_total // 12_000 * 12_000)
        if one.role == "rollout" and one.tokens_total is not None
        else one
        for one in records
    ]


@pytest.mark.parametrize(("batches", "seen", "accused"), [
    (False, IDLE, True), (False, BUSY, True), (True, IDLE, True), (True, BUSY, False),
])  # fmt: skip
def test_an_engine_that_counts_at_the_end_may_decode_for_long(batches: bool, seen: Seen, accused: bool) -> None:
    """One that counts each token and shows none for 300 s is dead, however busy: a hung device is waited for in a loop."""
    records = scene({ENGINE: STANDS})
    (found,) = [
        one for one in stalls(in_batches(records) if batches else records, {ENGINE: seen}) if one.role == "rollout"
    ]
    assert (found.fault_class, found.instance) == ("engine_still", "3")
    assert (found.strength >= 0.75, not found.missing) == (accused, accused)


@pytest.mark.parametrize(("running", "seen", "accused"), [(8, IDLE, True), (8, BUSY, False), (16, BUSY, True)])
def test_a_tool_that_works_may_have_long_calls_alone(running: int, seen: Seen, accused: bool) -> None:
    """Eight builds of seven minutes at once, after thousands of calls of a second; many do not take long by chance."""
    calls = {"phase": "tool", "running": running, "steps": 8, "still_from": 300.0}
    (found,) = [one for one in stalls(scene({TOOL: calls}), {TOOL: seen}) if one.role == "environment"]
    assert (found.strength >= 0.75, not found.missing) == (accused, accused)


def test_calls_that_keep_coming_to_a_tool_that_finishes_none_accuse_it() -> None:
    """Those that came since it finished one are not all long."""
    calls = {"phase": "tool", "running": 4, "steps": 8, "still_from": 300.0}
    records = [
        msgspec.structs.replace(one, requests_running=9)
        if one.role == TOOL[0] and (one.at or 0.0) > START + 400.0
        else one
        for one in scene({TOOL: calls})
    ]
    (found,) = [one for one in stalls(records, {TOOL: BUSY}) if one.role == "environment"]
    assert (found.strength >= 0.75, found.missing) == (True, "")


def test_the_last_few_requests_of_an_engine_accuse_it_of_nothing() -> None:
    """Of the eight that it had two are left, in calls of a tool that it does not speak of."""
    records = [
        msgspec.structs.replace(one, requests_running=2)
        if (one.role, one.instance) == ENGINE and (one.at or 0.0) >= START + 300.0
        else one
        for one in scene({ENGINE: STANDS})
    ]
    (found,) = [one for one in stalls(records) if one.role == "rollout"]
    assert found.missing
    assert found.strength == 0.5


def test_a_reference_that_says_one_phase_for_ever_may_have_nothing_to_do() -> None:
    """It states neither requests nor waits; a trainer in its training phase does not rest so."""
    says: dict[str, Any] = {"phase": "log_prob", "steps": 1, "still_from": 100.0}
    assert named(scene({("reference", "0"): says})) == []
    assert ("trainer_still", "trainer", "0") in named(scene({("trainer", "0"): {**says, "phase": "train"}}))


def test_the_first_weights_and_those_that_always_take_long_accuse_none() -> None:
    """All wait for 300 s in a sync, as long as they did in each before; in the first one nothing is known."""
    waits = {
        "phase": "weight_sync",
        "running": 0,
        "waiting_for": "trainer 0",
        "tokens": 200,
        "still_from": 300.0,
        "phase_since": 300.0,
    }
    trainers = {("trainer", "0"): {"phase": "weight_sync", "weights": 8, "phase_since": 300.0}}

    def those_of(weights: int) -> list[RoleState]:
        return scene({("rollout", str(n)): {**waits, "weights": weights} for n in range(4)} | trainers)

    (sent,) = [one for one in stalls(those_of(7)) if one.role == "trainer"]
    assert (sent.fault_class, sent.missing) == ("weight_sync_still", "")
    (first,) = [one for one in stalls(those_of(0)) if one.role == "trainer"]
    assert first.missing
    assert first.strength == 0.5
    past = [
        msgspec.structs.replace(
            one,
            phase="weight_sync" if (one.at or 0.0) < START + 250.0 else "generate",
            phase_since=START + (0.0 if (one.at or 0.0) < START + 250.0 else 250.0),
        )
        if one.role == "rollout" and (one.at or 0.0) < START + 300.0
        else one
        for one in those_of(7)
    ]
    assert named(past) == []


@pytest.mark.parametrize("asked", [True, False])
def test_one_that_ended_well_is_missed_by_who_waits_for_it(asked: bool) -> None:
    """The trainer waits for rollout 3 by name for 300 s: nothing will come."""
    waits = {
        **HEALTHY[("trainer", "0")],
        "waiting_for": "rollout 3" if asked else "queue:experience",
        "phase_since": 300.0,
    }
    records = scene({ENGINE: {**GENERATES, "until": 300.0}, ("trainer", "0"): waits})
    ended = Seen("X", START + 300.0, ended_well=True)
    found = [one for one in named(records, {ENGINE: ended}) if one[1:] == ENGINE]
    assert found == ([("role_lost", *ENGINE)] if asked else [])


def test_a_new_instance_is_not_slow_before_it_has_worked_for_long() -> None:
    """Its graphs are captured and its caches are cold: it is compared after two minutes."""
    slow = {**GENERATES, "tokens": 50}
    assert named(scene({ENGINE: {**slow, "since": 500.0}})) == []
    assert named(scene({ENGINE: {**slow, "since": 400.0}})) == [("role_slow", *ENGINE)]
