"""The rank of an event whose line shows none: other lines of the same stream or process reveal it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from collectors.records import LogEvent

_HOLDS = re.compile(r"\bProcess (\d{1,9}) has \d[\d.]{0,12} [KMGT]iB memory in use")
"""Who holds a GPU, in torch's words where memory ran out."""
_OF_ENGINE = re.compile(r"^\([\w.:<>\[\]=-]{1,80} rank=(\d{1,7}) pid=(\d{1,9})\)$")
"""A stream of vLLM's, whose engines each number their workers from 0."""
_OF_MEMORY = frozenset({"oom", "traceback"})
_ITSELF = "this process has "


def with_ranks(events: list[tuple[str, LogEvent]], *, is_torchrun: bool) -> Iterator[LogEvent]:
    """Give events the rank that other lines of the same stream or process reveal, unless they contradict each other."""
    events = _of_one_engine(events)
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
        if rank is None and not name and found.pid is None and found.event in _OF_MEMORY:
            rank = _holder(found, pids)
        if (
            rank is None
            and name.startswith("task ")
            and not is_torchrun
            and found.node is None
            and found.local_rank is None
        ):
            rank = int(name.split()[1])
        yield found if rank == found.rank else msgspec.structs.replace(found, rank=rank)


def _of_one_engine(events: list[tuple[str, LogEvent]]) -> list[tuple[str, LogEvent]]:
    """Leave out the ranks of workers of which two processes have one number: the log is of several engines."""
    pids: dict[str, set[str]] = {}
    of_stream = {name: found for name in {name for name, _ in events} if (found := _OF_ENGINE.match(name))}
    for found in of_stream.values():
        pids.setdefault(found[1], set()).add(found[2])
    if all(len(numbers) < 2 for numbers in pids.values()):
        return events
    return [(name, msgspec.structs.replace(one, rank=None) if name in of_stream else one) for name, one in events]


def _holder(found: LogEvent, pids: Mapping[tuple[str | None, int], set[int]]) -> int | None:
    """Return the rank of the one process that a line about exhausted memory names, where the launcher's report has its number.

    Torch writes "this process" of the one that asked, unless it does not know its own number, as in a container. Then the
    process that ended with that error is the one that it names.
    """
    said = found.message or found.text
    if _ITSELF in said:
        return None
    ranks: set[int] = set()
    for number in set(_HOLDS.findall(said)):
        ranks |= pids.get((found.node, int(number)), set())
    return _only(ranks)


def _only(ranks: set[int] | None) -> int | None:
    return next(iter(ranks)) if ranks and len(ranks) == 1 else None
