"""Lies in the words of NCCL RAS, which anyone may answer for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from collectors.records import RasCommunicator, RasPeerDead, RasRank, Record
from tests.attacks.lies.about_processes import killed
from tests.attacks.lies.telling import Target, lie


def _communicator(target: Target, at: float, **of_rank: Any) -> RasCommunicator:
    ranks = tuple(
        RasRank(
            rank=rank, host=target.job.node_of(rank), pid=target.attempt.pid(rank),
            **(of_rank if rank == target.rank else {}),
        )
        for rank in range(target.job.world)
    )  # fmt: skip
    return RasCommunicator(
        **target.job_of, source="ras 127.0.0.1:28028", at=at, hash="9f", secondary_hash="1", size=target.job.world,
        status="RUNNING", ranks=ranks,
    )  # fmt: skip


@lie()
def ras_dead_peer(target: Target, at: float) -> Iterable[Record]:
    """RAS lost the innocent's process."""
    yield RasPeerDead(**target.job_of, source="ras", at=at, host=target.node, pid=target.pid)


@lie()
def ras_dead_host(target: Target, at: float) -> Iterable[Record]:
    """RAS lost the innocent's node."""
    yield RasPeerDead(**target.job_of, source="ras", at=at, host=target.node)


@lie()
def ras_dead_of_no_job(target: Target, at: float) -> Iterable[Record]:
    """RAS lost it, in no job's name."""
    yield RasPeerDead(source="ras", at=at, host=target.node, pid=target.pid)


@lie()
def ras_dead_rank(target: Target, at: float) -> Iterable[Record]:
    """A communicator without the innocent."""
    yield _communicator(target, at, dead=True, missing=True)


@lie()
def ras_mute_rank(target: Target, at: float) -> Iterable[Record]:
    """The innocent does not respond to RAS."""
    yield _communicator(target, at, unresponsive=True)


@lie()
def ras_lagging_rank(target: Target, at: float) -> Iterable[Record]:
    """The innocent launched less than its peers, in two polls alike."""
    for ago in (12.0, 0.0):
        made = _communicator(target, at - ago)
        ranks = tuple(
            msgspec.structs.replace(one, counts={"AllReduce": 900 - (one.rank == target.rank)}) for one in made.ranks
        )
        yield msgspec.structs.replace(made, ranks=ranks)


@lie()
def killed_and_ras(target: Target, at: float) -> Iterable[Record]:
    """Two kinds of evidence agree: an end by signal 9, and RAS."""
    yield from killed(target, at)
    yield from ras_dead_host(target, at)
