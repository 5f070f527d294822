"""Which processes had lost their instance before they ended: who restarts a role fences its epoch, and ends the process then.

Such an end is part of a restart, and no symptom. What is fenced after its end was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from analyzers.model.role_instances import MOST_INSTANCES, Seat
from collectors.records import RoleState
from collectors.records.identity import plain

_Process = tuple[str, int, str]  # role, process id, node


@dataclass(slots=True)
class FormerHolders:
    """The processes that lost their instance, and when, by the readings of a directory. UTC seconds."""

    _holders: dict[Seat, tuple[int, _Process | None]] = field(default_factory=dict)
    _lost: dict[_Process, float] = field(default_factory=dict)

    def take(self, reading: RoleState, at: float) -> None:
        """Add a reading: an epoch that was fenced, or one that is higher than that of the instance's process."""
        if not reading.role or reading.epoch is None:
            return
        process = _process(reading.role, reading.pid, reading.node)
        seat = reading.role, reading.instance
        epoch, holder = self._holders.pop(seat, (reading.epoch, process))
        if reading.epoch > epoch:
            self._lose(holder if holder != process else None, at)
            if process is not None:
                self._lost.pop(process, None)  # an old process id, given again
        if reading.state == "fenced":
            self._lose(process, at)
        self._holders[seat] = (reading.epoch, process) if reading.epoch >= epoch else (epoch, holder)
        if len(self._holders) > MOST_INSTANCES:
            del self._holders[next(iter(self._holders))]
        if len(self._lost) > MOST_INSTANCES:
            del self._lost[next(iter(self._lost))]

    def had_lost(self, role: str, pid: int | None, node: str | None, at: float) -> bool:
        """Whether this process was no instance any more at an instant."""
        process = _process(role, pid, node)
        return process is not None and self._lost.get(process, at) < at

    def _lose(self, process: _Process | None, at: float) -> None:
        if process is not None:
            self._lost.setdefault(process, at)


def former_holders(readings: Iterable[RoleState]) -> FormerHolders:
    """Return who had lost its instance, and when. ``readings``: the oldest first."""
    found = FormerHolders()
    for one in readings:
        found.take(one, one.at or 0.0)
    return found


def _process(role: str, pid: int | None, node: str | None) -> _Process | None:
    return None if pid is None else (role, pid, plain(node) or "")
