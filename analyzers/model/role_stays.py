"""How long an instance stayed in the phases that it has left, and since when it has said nothing new: its own past."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from collectors.records import RoleState

MOST_PHASES = 16  # a program may number them
MOST_SAYING = 16  # sources
SAME_SECONDS = 1.0  # an instant that is sent as an age comes out a little different each time
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

    def take(self, record: RoleState, at: float) -> None:
        """Compare a reading with what its source said before; what it leaves out is no news."""
        said = {name: value for name in (*_SAID, *_SINCE) if (value := getattr(record, name)) is not None}
        if record.phase is not None or record.waiting_for is not None:
            said["waiting_for"] = record.waiting_for
        before = self._said.pop(record.source, None)
        if len(self._said) >= MOST_SAYING:
            del self._said[next(iter(self._said))]
        self._said[record.source] = {**(before or {}), **said}
        if before is None or any(_differs(name, before.get(name), value) for name, value in said.items()):
            self.changed_at = max(self.changed_at, at)

    def leave(self, phase: str, seconds: float) -> None:
        """Add a phase that is over."""
        stay = self.by_phase.pop(phase, None) or Stay()
        if len(self.by_phase) >= MOST_PHASES:
            del self.by_phase[next(iter(self.by_phase))]
        self.by_phase[phase] = Stay(stay.ended + 1, max(stay.longest, seconds))


def _differs(name: str, old: Any, new: Any) -> bool:
    if name in _SINCE and old is not None:
        return bool(abs(new - old) > SAME_SECONDS)
    return bool(old != new)
