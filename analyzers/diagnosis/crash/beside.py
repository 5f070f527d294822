"""What the other lines of a text take from a line: what its process found another way for, and what could not be tested.

A plug-in that finds no network of its kind says so and NCCL takes sockets: such a run is healthy. What ends NCCL and what it goes
on after are at one level, its WARN: a warning counts where the library gave up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from analyzers.diagnosis.crash.statements import NCCL_WARNED
from collectors.records import LogEvent

READY, REFUSED = "fabric_ready", "fabric_error"
WARNED = frozenset({"fabric_warned", NCCL_WARNED})
_GAVE_UP = frozenset({REFUSED, "nccl_error", "nccl_gave_up"})
_NUMBER = re.compile(r"\d{1,9}")


class Beside:
    """What the events of one text show of one another."""

    def __init__(self, events: Sequence[LogEvent]) -> None:
        self._done_without = done_without(events)
        self._untested = {each.device for each in events if each.event == "diagnostic_prevented"}

    def kind_of(self, kind: str, event: LogEvent) -> str:
        """Return the kind of an event that is of ``kind`` by itself."""
        tested = set(_NUMBER.findall(event.device or "")) if event.event == "diagnostic_failed" else set()
        if tested and tested <= self._untested:
            return "device_absent"  # its test could not run
        if (kind in {"fabric", "device_absent"} or event.event == NCCL_WARNED) and event.source in self._done_without:
            return "launcher"  # its process went on without it
        return kind


def done_without(events: Sequence[LogEvent]) -> set[str]:
    """Return the sources of NCCL's errors after which the same process found a network, and of warnings that ended nothing."""
    ready = [event for event in events if event.event == READY]
    gave_up = any(event.event in _GAVE_UP for event in events)
    return {
        event.source
        for event in events
        if event.event in {REFUSED, *WARNED, "nccl_error"}
        and ((event.event in WARNED and not gave_up) or any(_follows(one, event) for one in ready))
    }


def _follows(ready: LogEvent, refused: LogEvent) -> bool:
    (file, _, line), (other, _, before) = ready.source.rpartition(":"), refused.source.rpartition(":")
    if file != other or not (line.isdecimal() and before.isdecimal() and int(line) > int(before)):
        return False
    return all(None in pair or pair[0] == pair[1] for pair in ((ready.node, refused.node), (ready.pid, refused.pid)))
