"""How long an instance stayed in the phases that it has left, and since when it has said nothing new: its own past."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collectors.records import RoleState

MOST_PHASES = 16  # a program may number them
MOST_SAYING = 16  # sources
LATE_SECONDS = 5.0  # an age takes so long to arrive, from a process that holds its interpreter's lock
_SAID = ("phase", "requests_running", "requests_waiting", "tokens_total", "steps_total", "queue_depth", "weights")
_SINCE = ("phase_since", "waiting_since")


@dataclass(slots=True)
class Stay:
    """Of one phase: how often it was left, and the longest time that was spent in it. Seconds."""

    ended: int = 0
    longest: float = 0.0


@dataclass(slots=True)
class Stays:
    """``changed_at``: the newest reading that says anything new, a heartbeat apart. UTC seconds."""

    changed_at: float = 0.0
    by_phase: dict[str, Stay] = field(default_factory=dict)
    _said: dict[str, dict[str, Any]] = field(default_factory=dict)  # by source
    _read_at: dict[str, float] = field(default_factory=dict)

    def take(self, record: RoleState, at: float) -> None:
        """Compare a reading with what its source said before; what it leaves out is no news."""
        said = {name: value for name in (*_SAID, *_SINCE) if (value := getattr(record, name)) is not None}
        if record.phase is not None or record.waiting_for is not None:
            said["waiting_for"] = record.waiting_for
        before, read_at = self._said.pop(record.source, None), self._read_at.get(record.source, at)
        if len(self._said) >= MOST_SAYING:
            del self._read_at[(oldest := next(iter(self._said)))]
            del self._said[oldest]
        self._said[record.source], self._read_at[record.source] = {**(before or {}), **said}, at
        if before is None or any(_differs(name, before.get(name), value, read_at) for name, value in said.items()):
            self.changed_at = max(self.changed_at, at)

    def leave(self, phase: str, seconds: float) -> None:
        """Add a phase that is over."""
        stay = self.by_phase.pop(phase, None) or Stay()
        if len(self.by_phase) >= MOST_PHASES:
            del self.by_phase[next(iter(self.by_phase))]
        self.by_phase[phase] = Stay(stay.ended + 1, max(stay.longest, seconds))


def is_later(old: float | None, new: float, read_at: float) -> bool:
    """Whether what lasts since ``new`` began anew since a reading at ``read_at``: an instant that is sent as an age varies."""
    return old is None or new > max(old, read_at - LATE_SECONDS)


def _differs(name: str, old: Any, new: Any, read_at: float) -> bool:
    return is_later(old, new, read_at) if name in _SINCE else bool(old != new)
