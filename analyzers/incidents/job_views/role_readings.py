"""What the instances of a job's roles say that they do: the newest reading of each, as the directory and the agents report it."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.records import RoleState

MOST_INSTANCES = 8_192
FRESH_SECONDS = 60.0  # two leases: after that an instance says nothing of the present

Seat = tuple[str, str]  # role, which one


class RoleReadings:
    """The readings of one job, by instance. Instants are by the service's clock."""

    def __init__(self) -> None:
        self.heard_at = 0.0  # the newest reading of any instance
        self._newest: dict[Seat, RoleState] = {}

    def take(self, reading: RoleState, at: float) -> None:
        """Take a reading that came at an instant."""
        seat = reading.role or "", reading.instance
        known = self._newest.get(seat)
        if known is None and len(self._newest) >= MOST_INSTANCES:
            return
        read_at = _at(reading) or at
        if known is None or read_at >= _at(known):
            self._newest[seat] = reading
        self.heard_at = max(self.heard_at, min(read_at, at))

    def serving(self) -> Mapping[Seat, RoleState]:
        """Return the newest reading of each instance that serves and was heard lately."""
        return {
            seat: one
            for seat, one in self._newest.items()
            if one.state in (None, "serving") and (one.renewed_at or _at(one)) > self.heard_at - FRESH_SECONDS
        }


def _at(reading: RoleState) -> float:
    return reading.at if reading.at is not None else reading.received_at or 0.0
