"""Instances that are not heard: whether they are lost, of a run before, or whether who listens is deaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.model.role_silence import Seen
from collectors.records import RoleState
from tests.support.role_readings import END, GENERATES, HEALTHY, START, named, readings, scene

AGAIN = 300.0  # seconds after the start: the whole job was started anew
WAITS = {"phase": "wait", "waiting_for": "rollout", "running": 0}
KILLED = Seen(state="X", at=START + AGAIN)


def started_anew(but: frozenset[tuple[str, str]], how: Mapping[tuple[str, str], Any] = HEALTHY) -> Iterator[RoleState]:
    """Yield the readings of a job that is started a second time; some instances do not come back, and are missed."""
    for (role, name), said in how.items():
        if said is None:
            continue
        first = readings(role, name, **said, silent_from=AGAIN - 5.0)
        for one in first:
            if one.at is not None and one.at <= START + AGAIN:
                yield replace(one, epoch=1)
            elif (role, name) in but:
                yield replace(one, epoch=1, phase=None, waiting_for=None, tokens_total=None, requests_running=None)
        if (role, name) not in but:
            yield from (replace(one, epoch=9) for one in readings(role, name, **{**said, "since": AGAIN + 10.0}))


def test_what_a_later_run_of_the_job_has_no_more_is_not_lost() -> None:
    """Fewer rollouts, or roles of other names, without an attempt number: the former ones are of the run before."""
    former = frozenset({("rollout", "2"), ("rollout", "3"), ("judge", "0")})
    how = {**HEALTHY, ("judge", "0"): HEALTHY["reward", "0"]}
    seen = dict.fromkeys(former, KILLED)
    assert named(started_anew(former, how)) == []
    assert named(started_anew(former, how), seen) == []


def test_one_that_does_not_come_back_is_lost_while_others_wait_for_its_role() -> None:
    """The only rollout: the trainer began after it was heard last, and waits for it."""
    how = {("trainer", "0"): WAITS, ("rollout", "0"): GENERATES}
    assert named(started_anew(frozenset({("rollout", "0")}), how)) == [("role_lost", "rollout", "0")]


def test_one_that_dies_in_a_job_that_goes_on_is_lost() -> None:
    """One other was replaced since; the rest were there before."""
    dead = {**GENERATES, "still_from": 400.0, "silent_from": 400.0}
    changes = {("rollout", "3"): dead, ("rollout", "2"): None}
    late = (replace(one, epoch=2) for one in readings("rollout", "2", **{**GENERATES, "since": 450.0}))
    assert named([*scene(changes), *late]) == [("role_lost", "rollout", "3")]


def test_a_job_of_which_every_process_has_ended_has_lost_no_role() -> None:
    """It has ended, or is being started anew: that is not for its roles to say."""
    dead = {seat: {**how, "silent_from": 500.0} for seat, how in HEALTHY.items()}
    ended = Seen(state="X", at=END - 100.0)
    assert named(scene(dead), dict.fromkeys(HEALTHY, ended)) == []
    one_left = dict.fromkeys(set(HEALTHY) - {("trainer", "0")}, ended)
    assert ("role_lost", "reward", "0") in named(scene(dead), one_left | {("trainer", "0"): Seen(state="S", at=END)})


def test_one_that_ended_in_order_without_a_word_is_not_lost() -> None:
    """Exit code 0: it had no more to do. Killed, it is lost."""
    gone = {("rollout", "3"): {**GENERATES, "until": 400.0}}
    for well, expected in ((True, []), (False, [("role_lost", "rollout", "3")])):
        seen = {("rollout", "3"): Seen(state="X", at=START + 400.0, ended_well=well)}
        assert named(scene(gone), seen) == expected


@pytest.mark.parametrize("instances", ["3", "23", "123"])
def test_instances_that_were_asked_to_end_are_given_up(instances: str) -> None:
    """Fewer rollouts, ended by SIGTERM without leave: none is lost while others go on, unless one is waited for by name."""
    seats = [("rollout", name) for name in instances]
    gone = {seat: {**GENERATES, "until": 400.0, "silent_from": 400.0} for seat in seats}
    asked = dict.fromkeys(seats, Seen(state="X", at=START + 400.0, asked_to_end=True))
    killed = dict.fromkeys(seats, Seen(state="X", at=START + 400.0))
    assert named(scene(gone), asked) == []
    assert sorted(named(scene(gone), killed)) == [("role_lost", "rollout", name) for name in instances]
    waits = {("controller", "0"): {"phase": "wait", "waiting_for": "rollout 3"}}
    assert ("role_lost", "rollout", "3") in named(scene(gone | waits), asked)


def test_the_last_of_a_role_and_a_trainer_are_lost_however_they_end() -> None:
    """No other does their work."""
    asked = Seen(state="X", at=START + 400.0, asked_to_end=True)
    for seat in (("reward", "0"), ("trainer", "0")):
        gone = {seat: {**HEALTHY[seat], "until": 400.0, "silent_from": 400.0}}
        assert named(scene(gone), {seat: asked}) == [("role_lost", *seat)]


def test_many_machines_silent_at_once_are_not_all_lost() -> None:
    """Eight rollouts of twenty, one on each of eight machines of twelve: who listens is late. Eight on one machine are lost."""
    quiet = {"phase": "generate", "silent_from": 540.0}
    for node, silent in (("r{}", False), ("r0", True)):
        how: dict[tuple[str, str], Any] = {
            ("rollout", str(number)): {**(quiet if number < 8 else GENERATES), "node": node.format(number)}
            if number < 8
            else {**GENERATES, "node": f"s{number % 2}"}
            for number in range(16)
        }
        assert bool(named(scene(how))) is silent


def test_a_machine_of_most_instances_that_is_silent_is_lost() -> None:
    """Six of nine are on it, and those of the other are heard. Where all are on one machine, who listens may be deaf."""
    quiet = {"phase": "generate", "silent_from": 540.0}
    for nodes, expected in (("ab", 6), ("aa", 0)):
        how: dict[tuple[str, str], Any] = {
            ("rollout", str(number)): {**(quiet if number < 6 else GENERATES), "node": nodes[number >= 6]}
            for number in range(9)
        }
        how |= dict.fromkeys(HEALTHY.keys() - how.keys())
        assert len(named(scene(how))) == expected


def test_one_that_dies_in_a_phase_without_heartbeats_is_lost_once_that_is_over() -> None:
    """It says nothing any more, and a switch takes five minutes at the most."""
    switch = {"phase": "offload", "silent_from": 100.0}
    for since, expected in ((90.0, [("role_lost", "rollout", "3")]), (400.0, [])):
        dies = [
            replace(one, phase=None) if (one.at or 0.0) > START + since + 20.0 else one
            for one in readings("rollout", "3", **{**switch, "phase_since": since, "silent_from": since + 10.0})
        ]
        assert named([*scene({("rollout", "3"): None}), *dies]) == expected
