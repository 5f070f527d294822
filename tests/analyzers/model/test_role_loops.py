"""An instance that says nothing more while others wait for it: a loop in its own code is named, a long tail is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from analyzers.model.role_silence import Seen
from tests.support.looping_rollouts import LOOPS, scene
from tests.support.role_readings import END, START, stalls

LOOP = Seen(own_code="generate (rollout.py:41)")


@pytest.mark.parametrize("alone", [True, False], ids=["all wait for it", "its peers go on"])
@pytest.mark.parametrize("how", ["phases", "tokens"])
def test_one_that_says_nothing_more_is_a_suspect(how: str, alone: bool) -> None:
    """It opens an incident, and nothing is restarted for it: a long sequence looks the same."""
    (found,) = stalls(scene(how, alone=alone))
    assert (found.fault_class, found.role, found.instance) == ("role_loops", "rollout", "3")
    assert (found.strength, bool(found.missing)) == (0.5, True)
    assert found.since == START + LOOPS
    assert stalls(scene(how, alone=alone), at=END - 100.0) == []


@pytest.mark.parametrize("alone", [True, False], ids=["all wait for it", "its peers go on"])
@pytest.mark.parametrize("how", ["phases", "tokens"])
def test_one_that_stands_in_its_own_code_over_rounds_of_stacks_is_named(how: str, alone: bool) -> None:
    """Then it is no sequence that is decoded, and no call of a tool."""
    (found,) = stalls(scene(how, alone=alone), {("rollout", "3"): LOOP})
    assert (found.fault_class, found.role, found.instance) == ("role_loops", "rollout", "3")
    assert (found.strength, found.missing) == (0.8, "")
    assert "generate (rollout.py:41)" in found.why


def test_what_is_usual_has_to_be_known() -> None:
    """Without the turns before, a loop is named and nothing is restarted; without stacks nothing is said."""
    records = scene(since=LOOPS - 20.0)
    assert stalls(records) == []
    (found,) = stalls(records, {("rollout", "3"): LOOP})
    assert (found.instance, found.strength) == ("3", 0.6)


@pytest.mark.parametrize(
    "changed",
    [
        {"phase": "tool", "waiting_for": "tool", "waiting_since": START + LOOPS},
        {"phase": "tool"},
        {"phase": "load weights"},
        {"phase": "save"},
        {"requests_running": 0},
        {"phase": "wait"},
        {"state": "left"},
    ],
    ids=str,
)
def test_a_wait_a_tool_and_an_empty_engine_are_no_faults(changed: dict[str, Any]) -> None:
    """However long, while no stack shows otherwise."""
    assert [one for one in stalls(scene(alone=False, **changed)) if one.instance == "3"] == []


@pytest.mark.parametrize("alone", [True, False], ids=["all wait for it", "its peers go on"])
def test_one_that_decodes_is_no_suspect_any_more(alone: bool) -> None:
    """Its stacks found it in its model, or in different lines."""
    assert stalls(scene(alone=alone), {("rollout", "3"): Seen(elsewhere=True)}) == []


def test_a_tail_no_longer_than_such_phases_were_before_is_no_fault() -> None:
    """Every rollout has had one of a minute: five such are the bound."""
    records = scene()
    long = [
        structs.replace(one, phase="generate", phase_since=START + 100.0, waiting_for=None, waiting_since=None)
        if one.role == "rollout" and 100.0 <= (one.at or 0.0) - START < 160.0
        else one
        for one in records
    ]
    assert stalls(long) == []


def test_a_wait_that_its_end_refutes_is_no_excuse_where_its_stack_shows_a_loop() -> None:
    """It says that it waits for the tool, which has nothing to do: what it said is out of date. A tool at work excuses it."""
    waits: dict[str, Any] = {"phase": "tool", "waiting_for": "tool", "waiting_since": START + LOOPS}
    (found,) = stalls(scene(**waits), {("rollout", "3"): LOOP})
    assert (found.fault_class, found.instance, found.strength) == ("role_loops", "3", 0.6)
    busy = [structs.replace(one, requests_running=1) if one.role == "tool" else one for one in scene(**waits)]
    assert stalls(busy, {("rollout", "3"): LOOP}) == []


def test_a_loop_for_which_none_waits_is_no_fault() -> None:
    """Its peers wait for work, and the trainers for another role: what it does holds none up."""
    records = [
        structs.replace(one, waiting_for="controller") if one.waiting_for and (one.at or 0.0) >= START + LOOPS else one
        for one in scene()
    ]
    assert stalls(records, {("rollout", "3"): LOOP}) == []


def test_a_loop_that_has_just_begun_is_no_fault() -> None:
    """Nothing new for a minute is the least."""
    seen = {("rollout", "3"): LOOP}
    assert stalls(scene(), seen, at=START + LOOPS + 50.0) == []


def test_an_age_that_arrives_late_is_nothing_new() -> None:
    """A loop holds the interpreter's lock: each renewal takes some seconds to arrive, and its phase seems to begin later."""
    late = [
        structs.replace(one, phase_since=(one.phase_since or 0.0) + (number % 3) * 1.7)
        if (one.role, one.instance) == ("rollout", "3") and (one.at or 0.0) > START + LOOPS
        else one
        for number, one in enumerate(scene())
    ]
    (found,) = stalls(late)
    assert (found.instance, found.since) == ("3", START + LOOPS)
