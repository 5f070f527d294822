"""What echoes show: that a process still connected, whom others lost, and which report of an end may be of the same process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from analyzers.diagnosis.crash.failures import Failure, said_by
from analyzers.model.finding import Evidence
from collectors.records import LogEvent

CONNECTING = (
    "connectfullmesh failed",
    "timed out connecting",
    "while trying to connect",
    "waiting for clients",
    "rendezvous",
)


def may_be(ended: Failure, echoed: Failure) -> bool:
    """Whether a process that a launcher reports may be the one that logged an echo: no line says that they are two.

    Where only its number on its node is known, its rank is that number, or that and a multiple of a larger one.
    """
    if echoed.rank is None:
        return True
    local = next((event.local_rank for _, event in ended.classified if event.local_rank is not None), None)
    if ended.rank is not None or local is None:
        return False
    return echoed.rank == local or echoed.rank - local > local


def is_connecting(event: LogEvent) -> bool:
    """Whether an echo is of a process that had not reached its peers yet: it lost none, and waited for any of them."""
    return any(word in said_by(event) for word in CONNECTING)


def peers_lost(echoes: Sequence[LogEvent], nodes: Collection[str | None]) -> tuple[Evidence, ...]:
    """Count the ranks that lost a connection, by host; it supports a suspect on that host and decides nothing.

    ``nodes``: those of the suspects.
    """
    lost = [event for event in echoes if event.peer]
    counts = Counter((event.peer or "").rsplit(":", 1)[0] for event in lost)
    found = []
    for host, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:2]:
        one = next(event for event in lost if (event.peer or "").rsplit(":", 1)[0] == host)
        where = ", the suspect's own node" if host in nodes else ""
        text = f"{count} ranks lost their connection to {host}{where}"
        found.append(Evidence(text=text, source=one.source, at=one.at))
    return tuple(found)


_NOT_IN_BARRIER = re.compile(r"[Rr]anks? (\d[\d, ]*) failed to pass monitoredBarrier")


def missing_in_barrier(events: Sequence[LogEvent]) -> set[int]:
    """Return the ranks that a monitored barrier reports as missing: ``Ranks 1, 3 failed to pass monitoredBarrier``."""
    found: set[int] = set()
    for event in events:
        for match in _NOT_IN_BARRIER.finditer(event.message or event.text):
            found |= {int(number) for number in re.findall(r"\b\d{1,9}\b", match[1])}
    return found
