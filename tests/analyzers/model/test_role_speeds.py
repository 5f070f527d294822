"""A rollout beside its peers: what it did while it waited for another says nothing of its own speed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.records import RoleState
from tests.support.role_readings import END, JOB, START, named

READ_SECONDS, TOKENS = 5.0, 32
TAIL = (300.0, 450.0)  # one call of a tool


def rollout(
    number: int, question: float = 1.0, tail: tuple[float, float] = (END, END), *, states_work: bool = True
) -> Iterator[RoleState]:
    """Yield readings of one that answers a question in so many seconds, half of them its own work and half a call of a tool."""
    done, worked = 0.0, 0.0
    for tick in range(int((END - START) / READ_SECONDS) + 1):
        after = tick * READ_SECONDS
        away = tail[0] <= after < tail[1]
        if not away:
            done, worked = done + READ_SECONDS / question, worked + READ_SECONDS * (1.0 - 0.5 / question)
        yield RoleState(
            **JOB, source="roles", at=START + after, received_at=START + after, role="rollout", instance=str(number),
            node=f"r{number}", phase="tool" if away else "generate", phase_since=START + (tail[0] if away else after),
            waiting_for="tool" if away else None, waiting_since=START + tail[0] if away else None, weights=7, state="serving",
            requests_running=1, tokens_total=int(TOKENS * done), renewed_at=START + after,
            worked_seconds=worked if states_work else None,
        )  # fmt: skip


def looks(records: list[RoleState]) -> set[tuple[str, str, str]]:
    """Return who is named at any look, ten seconds apart."""
    every = [START + 10.0 * tick for tick in range(1, int((END - START) / 10.0) + 1)]
    return {one for at in every for one in named([each for each in records if (each.at or 0.0) <= at], at=at)}


@pytest.mark.parametrize("states_work", [True, False])
def test_a_rollout_that_comes_back_from_a_long_call_is_not_slow(states_work: bool) -> None:
    """For two minutes after it the window of its speed holds the call, in which it did nothing and had a request."""
    beside = [one for number in range(3) for one in rollout(number, states_work=states_work)]
    assert looks([*beside, *rollout(3, tail=TAIL, states_work=states_work)]) == set()


@pytest.mark.parametrize("states_work", [True, False])
def test_a_rollout_that_takes_longer_by_itself_is_slow(states_work: bool) -> None:
    """A question takes three times as long, all of it its own time; with a long call behind it, too."""
    beside = [one for number in range(3) for one in rollout(number, states_work=states_work)]
    slow = {("role_slow", "rollout", "3")}
    assert looks([*beside, *rollout(3, 3.0, states_work=states_work)]) == slow
    assert looks([*beside, *rollout(3, 3.0, (60.0, 210.0), states_work=states_work)]) == slow
