"""Lies about ends and states of processes."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.records import Coverage, Record
from simulation.live.scene_list import BEGAN_AT
from tests.attacks.lies.telling import AHEAD_SECONDS, OWN_PID, Target, lie, placement, process


@lie()
def killed(target: Target, at: float) -> Iterable[Record]:
    """The rank was killed."""
    yield process(target, at, signal=9)


@lie()
def failed(target: Target, at: float) -> Iterable[Record]:
    """The rank has left with a code."""
    yield process(target, at, exit_code=1)


@lie()
def left_well(target: Target, at: float) -> Iterable[Record]:
    """The rank has left in good order, long before."""
    yield process(target, at - 60.0, exit_code=0)


@lie(user=False)
def killed_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The rank's true process was killed."""
    yield process(target, at, signal=9, pid=target.pid, started_at=target.attempt.course.begin)


@lie(user=False)
def killed_without_a_node(target: Target, at: float) -> Iterable[Record]:
    """The same, without a word of the node."""
    yield process(target, at, signal=9, pid=target.pid, started_at=target.attempt.course.begin, node=None)


@lie()
def all_others_killed(target: Target, at: float) -> Iterable[Record]:
    """Every rank but the innocent was killed."""
    for rank in range(target.job.world):
        yield process(target, at, signal=9, rank=rank, pid=OWN_PID + rank)


@lie(user=False)
def gone(target: Target, at: float) -> Iterable[Record]:
    """The rank's process has ended, nobody knows how."""
    yield process(target, at, pid=target.pid, started_at=target.attempt.course.begin)


@lie()
def stopped(target: Target, at: float) -> Iterable[Record]:
    """The rank's process is stopped."""
    yield process(target, at, state="T")


@lie(user=False)
def stopped_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The rank's true process is stopped."""
    yield process(target, at, state="T", pid=target.pid, started_at=target.attempt.course.begin)


@lie(user=False)
def in_the_kernel(target: Target, at: float) -> Iterable[Record]:
    """The rank is stuck in the driver."""
    yield process(target, at, state="D", wait_channel="nv_wait", pid=target.pid, started_at=target.attempt.course.begin)


@lie(user=False)
def all_alive(target: Target, at: float) -> Iterable[Record]:
    """Every rank lives, the one that does not too."""
    for rank in range(target.job.world):
        yield process(target, at, rank=rank, state="R", pid=target.attempt.pid(rank), started_at=BEGAN_AT)


@lie()
def all_begun_anew(target: Target, at: float) -> Iterable[Record]:
    """Every rank has a younger process."""
    for rank in range(target.job.world):
        yield process(target, at, rank=rank, state="R", pid=OWN_PID + rank)


@lie(user=False)
def killed_in_an_hour(target: Target, at: float) -> Iterable[Record]:
    """The rank is killed in the future."""
    yield process(target, at + AHEAD_SECONDS, signal=9, pid=target.pid)


@lie(user=False)
def dated_ahead(target: Target, at: float) -> Iterable[Record]:
    """The liar itself is in the future: everybody else must have been silent since long."""
    yield process(target, at + AHEAD_SECONDS, state="R")
    yield Coverage(at=at + AHEAD_SECONDS)
    yield placement(target, at + AHEAD_SECONDS, [target.rank])


@lie(user=False)
def a_child_of_it(target: Target, at: float) -> Iterable[Record]:
    """A helper of the rank waits for files."""
    yield process(target, at, state="D", wait_channel="rpc_wait_bit_killable", parent_pid=target.pid)
