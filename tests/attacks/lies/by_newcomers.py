"""Lies of a node that joins the job beside its ranks: without a number, under a role of its own, or in a dead rank's place."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.records import Record
from collectors.records.identity import placed_rank
from tests.attacks.lies.telling import OWN_PID, Target, lie, placement, process

NAMELESS = placed_rank("outsider", 0)
BEFORE_SECONDS = 20.0  # until so long before the fault it seems to be well


@lie(early=True)
def a_nameless_one_was_killed(target: Target, at: float) -> Iterable[Record]:
    """A process without a number has joined, and was killed."""
    yield placement(target, at - 1.0, [NAMELESS], pids=(OWN_PID,))
    if at > target.at - BEFORE_SECONDS:
        yield process(target, at, rank=NAMELESS, signal=9)


@lie(early=True)
def a_nameless_one_stops(target: Target, at: float) -> Iterable[Record]:
    """A process without a number has joined, and is stopped."""
    yield placement(target, at - 1.0, [NAMELESS], pids=(OWN_PID,))
    yield process(target, at, rank=NAMELESS, state="T" if at > target.at - BEFORE_SECONDS else "R")


@lie(early=True)
def a_nameless_one_falls_silent(target: Target, at: float) -> Iterable[Record]:
    """A process without a number has joined, and what is read of it is old."""
    yield placement(target, at - 1.0, [NAMELESS], pids=(OWN_PID,))
    yield process(target, at - 100.0, rank=NAMELESS, state="R")


@lie(early=True)
def a_rollout_was_killed(target: Target, at: float) -> Iterable[Record]:
    """A rollout without a number has joined, and was killed."""
    more = {"role": "rollout", "roles": ("rollout",), "world_size": None, "pids": (OWN_PID,)}
    yield placement(target, at - 1.0, [NAMELESS], **more)
    if at > target.at - BEFORE_SECONDS:
        yield process(target, at, rank=NAMELESS, role="rollout", signal=9)


@lie(early=True)
def a_rollout_stops(target: Target, at: float) -> Iterable[Record]:
    """The same, and it is stopped."""
    more = {"role": "rollout", "roles": ("rollout",), "world_size": None, "pids": (OWN_PID,)}
    yield placement(target, at - 1.0, [NAMELESS], **more)
    state = "T" if at > target.at - BEFORE_SECONDS else "R"
    yield process(target, at, rank=NAMELESS, role="rollout", state=state)


@lie(early=True)
def a_numbered_rollout_was_killed(target: Target, at: float) -> Iterable[Record]:
    """A rollout whose number is beyond the job's has joined, and was killed."""
    rank = target.job.world + 3
    more = {"role": "rollout", "roles": ("rollout",), "world_size": None, "pids": (OWN_PID,)}
    yield placement(target, at - 1.0, [rank], **more)
    if at > target.at - BEFORE_SECONDS:
        yield process(target, at, rank=rank, role="rollout", signal=9)


@lie(early=True)
def in_a_dead_ranks_place(target: Target, at: float) -> Iterable[Record]:
    """The liar runs the ranks that the fault has ended, and they are stopped there."""
    ranks = target.scene.truth.ranks or (target.rank,)
    yield placement(target, at - 1.0, ranks)
    for rank in ranks:
        yield process(target, at, rank=rank, state="T", pid=OWN_PID + rank, started_at=at)
