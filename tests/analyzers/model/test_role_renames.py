"""A role that goes on under another name has lost nothing; one that dies beside others has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from msgspec.structs import replace

from analyzers.model.role_silence import Seen
from collectors.records import RoleState
from tests.support.role_readings import END, GENERATES, START, named, readings, scene

AT = 400.0  # seconds after the start: the old names are heard no more
OLD = [("rollout", str(number)) for number in range(4)]
ENDED = {seat: Seen(state="X", at=START + AT) for seat in OLD}
LIVES = {seat: Seen(state="S", at=END) for seat in OLD}
PIDS = {seat: 100 + number for number, seat in enumerate(OLD)}


def fell_silent() -> Iterator[RoleState]:
    """Yield the readings of a job whose rollouts are missed from an instant on, while all others run."""
    for one in scene({seat: {**GENERATES, "silent_from": AT} for seat in OLD}):
        if one.role == "rollout":
            one = replace(one, pid=PIDS[one.role, one.instance])  # noqa: PLW2901
            if (one.at or 0.0) > START + AT:
                one = replace(one, phase=None, tokens_total=None, requests_running=None)  # noqa: PLW2901
        yield one


def began(
    name: str, since: float, *, pid: int = 0, first: int = 0, count: int = 4, node: str = "r{}"
) -> list[RoleState]:
    """Return the readings of a role of another name that is younger. ``pid``: of its first process; 0: new ones."""
    return [
        replace(one, pid=(pid or 900) + number)
        for number in range(count)
        for one in readings(
            name,
            str(first + number),
            **{**GENERATES, "since": since, "phase_since": since, "node": node.format(number)},
        )
    ]


RUN_ON = [one for one in scene() if one.role == "rollout" and one.instance in "23"]
RENAMED: dict[str, tuple[list[RoleState], Mapping[tuple[str, str], Seen]]] = {
    "the same processes": ([*began("generator", AT + 5.0, pid=100, count=2), *RUN_ON], {}),
    "the same processes, whatever the new name means": ([*began("worker_b", AT + 5.0, pid=100, count=2), *RUN_ON], {}),
    "new processes for the same": (began("generator", AT + 60.0), ENDED),
    "new processes, that count from elsewhere": (began("generator", AT + 60.0, first=100), ENDED),
    "new processes under a name that means nothing, on every node": (began("worker_b", AT + 60.0), ENDED),
    "two of four so far, and two that run on": (
        [*began("generator", AT + 60.0, count=2), *RUN_ON], dict.fromkeys(OLD[:2], ENDED[OLD[0]]),
    ),
}  # fmt: skip
DIED: dict[str, tuple[list[RoleState], Mapping[tuple[str, str], Seen]]] = {
    "nothing follows": ([], ENDED),
    "a role that ran before": (began("generator", 0.0), ENDED),
    "a role that is for something else": (began("judge", AT + 60.0), ENDED),
    "on other machines": (began("generator", AT + 60.0, node="s{}"), ENDED),
    "a name that means nothing, on one of the machines": (began("worker_b", AT + 60.0, count=1), ENDED),
}


@pytest.mark.parametrize("name", RENAMED)
def test_a_renamed_role_has_lost_no_instance(name: str) -> None:
    """Its old names are missed, and restarting them would start more than the job has."""
    new, seen = RENAMED[name]
    kept = {(one.role, one.instance) for one in new}
    assert named([*(one for one in fell_silent() if (one.role, one.instance) not in kept), *new], seen) == []


@pytest.mark.parametrize("name", DIED)
def test_a_role_that_died_is_lost_beside_a_new_one(name: str) -> None:
    """What began before, elsewhere or for something else does not take its place."""
    new, seen = DIED[name]
    assert named([*fell_silent(), *new], seen) == [("role_lost", "rollout", number) for number in "0123"]


def test_each_new_instance_takes_the_place_of_one() -> None:
    """Four have died and two came under the new name, on their nodes: two are lost."""
    found = named([*fell_silent(), *began("generator", AT + 60.0, count=2)], ENDED)
    assert found == [("role_lost", "rollout", "2"), ("role_lost", "rollout", "3")]


def test_a_process_that_lives_and_is_silent_is_not_renamed_by_another_beside_it() -> None:
    """Its agent sees it run: it hangs, and the new one is another's."""
    some = {seat: LIVES[seat] for seat in OLD[:1]}
    quiet = [one for one in fell_silent() if one.role != "rollout" or one.instance == "0"]
    others = [one for one in scene() if one.role == "rollout" and one.instance != "0"]
    found = named([*quiet, *others, *began("generator", AT + 60.0, count=1)], some)
    assert found == [("role_lost", "rollout", "0")]
