"""Lies about where the ranks are, and which attempt runs."""

from __future__ import annotations

from collections.abc import Iterable

from collectors.records import Record
from tests.attacks.lies.about_processes import killed_without_a_node
from tests.attacks.lies.telling import OWN_PID, Target, lie, placement, process, steps


@lie(early=True)
def its_place(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank runs on the liar's node."""
    yield placement(target, at, [target.rank])


@lie(early=True)
def everybodys_place(target: Target, at: float) -> Iterable[Record]:
    """Every rank runs on the liar's node."""
    yield placement(target, at, range(target.job.world))


@lie(user=False, early=True)
def its_place_by_its_pid(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank's true process runs on the liar's node."""
    yield placement(target, at, [target.rank], pids=(target.pid,), started_ats=())


@lie(user=False)
def its_place_on_no_node(target: Target, at: float) -> Iterable[Record]:
    """A placement that names no node."""
    yield placement(target, at, [target.rank], nodes=())
    yield from killed_without_a_node(target, at)


@lie()
def moved_and_killed(target: Target, at: float) -> Iterable[Record]:
    """The innocent rank was begun anew on the liar's node, and was killed."""
    yield placement(target, at - 1.0, [target.rank])
    yield process(target, at, signal=9, pid=OWN_PID + target.rank)


@lie(early=True)
def one_rank_more(target: Target, at: float) -> Iterable[Record]:
    """The job has a rank more, which was killed."""
    more = target.job.world
    yield placement(target, at - 1.0, [more], world_size=more + 1)
    yield process(target, at, rank=more, signal=9, pid=OWN_PID + more)


@lie(early=True)
def a_million_ranks(target: Target, at: float) -> Iterable[Record]:
    """The job is far larger than anybody knew."""
    yield placement(target, at, [target.job.world + 7], world_size=1_000_000)


@lie()
def a_later_attempt(target: Target, at: float) -> Iterable[Record]:
    """The job has begun anew, and all is well."""
    number = target.attempt.number + 98
    yield placement(target, at, range(target.job.world), attempt=number)
    yield steps(target, at, attempt=number)


@lie()
def an_earlier_attempt(target: Target, at: float) -> Iterable[Record]:
    """The attempt before fails."""
    yield placement(target, at, range(target.job.world), attempt=target.attempt.number - 1)
    yield process(target, at, signal=9, attempt=target.attempt.number - 1)


@lie(user=False)
def of_no_attempt(target: Target, at: float) -> Iterable[Record]:
    """The same job without an attempt."""
    yield placement(target, at, range(target.job.world), attempt=None)
    yield process(target, at, signal=9, attempt=None)


@lie(early=True)
def of_another_role(target: Target, at: float) -> Iterable[Record]:
    """A rank of the same number with a role of its own was killed."""
    yield placement(target, at - 1.0, [target.rank], roles=("critic",), role="critic")
    yield process(target, at, signal=9, pid=OWN_PID + target.rank, role="critic")
