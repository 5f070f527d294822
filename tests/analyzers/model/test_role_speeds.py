"""A rollout beside its peers: what it did while it waited for another says nothing of its own speed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.records import RoleState
from tests.support.role_readings import END, JOB, START, named

READ_SECONDS, TOKENS = 5.0, 32
TAIL = (300.0, 450.0)  # one call of a tool


def rollout(
    number: int,
    question: float = 1.0,
    tail: tuple[float, float] = (END, END),
    *,
    states_work: bool = True,
    calls: bool = False,
    stands: tuple[float, float] = (END, END),
) -> Iterator[RoleState]:
    """Yield readings of one that answers a question in so many seconds, half a second of which is a call of a tool.

    ``calls``: every second reading finds it in such a call; ``stands``: when it did nothing, and waited for no other.
    """
    done, worked = 0.0, 0.0
    for tick in range(int((END - START) / READ_SECONDS) + 1):
        after = tick * READ_SECONDS
        away = tail[0] <= after < tail[1]
        if stands[0] <= after < stands[1]:
            worked += READ_SECONDS
        elif not away:
            done, worked = done + READ_SECONDS / question, worked + READ_SECONDS * (1.0 - 0.5 / question)
        asks = away or (calls and tick % 2 == 1)
        since = START + (tail[0] if away else after)
        yield RoleState(
            **JOB, source="roles", at=START + after, received_at=START + after, role="rollout", instance=str(number),
            node=f"r{number}", phase="tool" if asks else "generate", phase_since=since, weights=7, state="serving",
            waiting_for="tool" if asks else None, waiting_since=since if asks else None, requests_running=1,
            tokens_total=int(TOKENS * done), worked_seconds=worked if states_work else None, renewed_at=START + after,
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


def test_a_slow_rollout_stays_named_while_it_waits_now_and_then() -> None:
    """A look that finds it in a call says nothing of the two minutes before; else its incident would open and close by chance."""
    records = [one for number in range(4) for one in rollout(number, 3.0 if number == 3 else 1.0, calls=True)]
    for after in (200.0, 205.0, 210.0, 215.0, 500.0, 505.0):
        seen = [one for one in records if (one.at or 0.0) <= START + after]
        assert named(seen, at=START + after) == [("role_slow", "rollout", "3")]


def test_a_rollout_whose_own_work_takes_longer_throughout_is_slow_where_it_counts_for_less_in_all() -> None:
    """Its own work takes 2.4 times as long and a question 1.7; without its own time twice as long in all is asked for."""
    for states_work, expected in ((True, {("role_slow", "rollout", "3")}), (False, set[tuple[str, str, str]]())):
        beside = [one for number in range(3) for one in rollout(number, states_work=states_work)]
        assert looks([*beside, *rollout(3, 1.7, states_work=states_work)]) == expected


def test_a_rollout_that_stood_once_is_not_slow_throughout() -> None:
    """Fifty seconds in which it compiled, say: of two minutes it did a half less, and before and after it as much as any."""
    beside = [one for number in range(3) for one in rollout(number)]
    assert looks([*beside, *rollout(3, stands=(300.0, 350.0))]) == set()
