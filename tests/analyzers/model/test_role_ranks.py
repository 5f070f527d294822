"""Which rank an instance is: by its own word, its process, or its number; a guess is none."""

from __future__ import annotations

import pytest

from analyzers.model.role_ranks import Process, Statement, match_ranks, statements
from collectors.records import RoleState

APART = [Process("rollout", rank, "n0", 100 + rank) for rank in range(2, 6)]  # every process has a number of its own
ALIKE = [Process("rollout", rank, "n0", 102 + rank) for rank in range(4)]


def said(count: int, **more: object) -> dict[tuple[str, str], Statement]:
    """Return what so many rollouts say; with ``pids`` their process ids, which begin with 102."""
    pids = more.get("pids", True)
    return {("rollout", str(one)): Statement(pid=102 + one if pids else None, node="n0") for one in range(count)}


@pytest.mark.parametrize(("seen", "first"), [(APART, 2), (ALIKE, 0)])
def test_an_instance_is_the_rank_of_its_process(seen: list[Process], first: int) -> None:
    """Whether ranks count from 0 in each role or through the job."""
    assert match_ranks(said(4), seen) == {("rollout", str(one)): first + one for one in range(4)}


def test_without_process_ids_a_number_is_a_rank_where_both_count_alike() -> None:
    """A container's process knows another id than its node."""
    assert match_ranks(said(4, pids=False), ALIKE) == {("rollout", str(one)): one for one in range(4)}
    assert match_ranks(said(4, pids=False), APART) == {}
    assert match_ranks(said(2, pids=False), ALIKE) == {("rollout", "0"): 0, ("rollout", "1"): 1}


def test_a_rank_is_one_instance_only() -> None:
    """Instance 2 states no process, and rank 2 is instance 0's."""
    some = {seat: one for seat, one in said(4).items() if seat[1] in ("0", "1")} | {("rollout", "2"): Statement()}
    assert match_ranks(some, APART) == {("rollout", "0"): 2, ("rollout", "1"): 3}


def test_a_process_id_of_two_nodes_is_decided_by_the_node_or_not_at_all() -> None:
    """Two nodes count their processes alike."""
    both = [Process("rollout", 0, "n0", 7), Process("rollout", 1, "n1", 7)]
    assert match_ranks({("rollout", "a"): Statement(pid=7, node="N1.cluster")}, both) == {("rollout", "a"): 1}
    assert match_ranks({("rollout", "a"): Statement(pid=7)}, both) == {}
    assert match_ranks({("reward", "a"): Statement(pid=7, node="n1")}, both) == {}


def test_the_newest_epoch_counts() -> None:
    """What the process before said is of no use; a reading of it may come late."""
    readings = [
        RoleState(role="rollout", instance="0", epoch=1, pid=7, node="n0"),
        RoleState(role="rollout", instance="0", epoch=2, pid=8),
        RoleState(role="rollout", instance="0", epoch=1, pid=7, node="n0"),
        RoleState(role="rollout", instance="0"),
    ]
    assert statements(readings) == {("rollout", "0"): Statement(pid=8, epoch=2)}


@pytest.mark.parametrize(
    ("heard", "others_heard", "matched"),
    [
        (395.0, 420.0, {0, 1}),  # not heard again while the other was
        (395.0, 405.0, {1}),  # its next heartbeat may still come
        (409.0, 420.0, {1}),  # it is heard after that end: it is another process
        (None, 420.0, {0, 1}),  # it has no heartbeat
    ],
)
def test_an_instance_that_outlives_a_rank_of_its_number_is_another(
    heard: float | None, others_heard: float, matched: set[int]
) -> None:
    """Instances may be numbered apart from ranks: rank 0 ended, and who is called 0 may be heard for ever."""
    said = {("rollout", "0"): Statement(heard_at=heard), ("rollout", "1"): Statement(heard_at=others_heard)}
    seen = [Process("rollout", 0, gone_at=400.0), Process("rollout", 1)]
    assert set(match_ranks(said, seen).values()) == matched


def test_an_instance_that_states_its_rank_outlives_the_process_before_it() -> None:
    """It was replaced on a machine that no agent reports: what ended there was the former process."""
    said = {("rollout", "0"): Statement(rank=0, heard_at=500.0)}
    assert match_ranks(said, [Process("rollout", 0, gone_at=400.0)]) == {}
    assert match_ranks(said, [Process("rollout", 0, gone_at=499.0)]) == {("rollout", "0"): 0}
