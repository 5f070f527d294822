"""The rank of an event whose line shows none: other lines of the same stream or process reveal it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from collectors.records import LogEvent


def with_ranks(events: list[tuple[str, LogEvent]], *, is_torchrun: bool) -> Iterator[LogEvent]:
    """Give events the rank that other lines of the same stream or process reveal, unless they contradict each other."""
    streams: dict[str, set[int]] = {}
    pids: dict[tuple[str | None, int], set[int]] = {}
    for name, found in events:
        if found.rank is not None and found.group != "task":
            streams.setdefault(name, set()).add(found.rank)
            if found.pid is not None:
                for node in (found.node, None):  # an agent's line has the number of the process alone
                    pids.setdefault((node, found.pid), set()).add(found.rank)
    for name, found in events:
        rank = found.rank
        if found.group == "task" and is_torchrun:
            rank = None  # srun started torchrun: its tasks are nodes, not ranks
        if rank is None and name:
            rank = _only(streams.get(name))
        if rank is None and found.pid is not None:
            rank = _only(pids.get((found.node, found.pid)))
        if (
            rank is None
            and name.startswith("task ")
            and not is_torchrun
            and found.node is None
            and found.local_rank is None
        ):
            rank = int(name.split()[1])
        yield found if rank == found.rank else msgspec.structs.replace(found, rank=rank)


def _only(ranks: set[int] | None) -> int | None:
    return next(iter(ranks)) if ranks and len(ranks) == 1 else None
