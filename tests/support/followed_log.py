"""A log with a follower: batches that are sent, and taken up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from collectors.records import Members, Placement, Record, block
from service.store.follower import Follower
from service.store.log import Incoming, Log


def send(log: Log, number: int, records: Sequence[Record], node: str = "gpu-0001", at: float = 1_000.0) -> None:
    """Append one batch of these records."""
    log.append([Incoming(node, f"b{number}", at - 0.5, at, len(records), block.encode(records, pack=True))])


def placed(ranks: Sequence[int], node: str, job: str = "llama", at: float | None = None, **more: Any) -> Placement:
    """Say where these ranks run, as an agent does."""
    pids = tuple(100 + rank for rank in ranks)
    given = {"world_size": 8, **more}
    return Placement(job=job, at=at, node=node, ranks=Members.of(ranks), nodes=(node,) * len(ranks), pids=pids, **given)


def drain(follower: Follower) -> None:
    """Read the log to its end in this thread."""
    while follower.turn():
        pass
