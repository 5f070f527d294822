"""What the instances of a job's roles say that they do, as its directory of roles and its agents report it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from analyzers.model.role_epochs import FormerHolders
from analyzers.model.role_instances import Instance, Seat, fold
from collectors.records import RoleState

FORGOTTEN_SECONDS = (
    180.0  # after the last word on an instance: a directory reports one that is not heard, for ten minutes
)


class RoleReadings:
    """The instances of one job. Instants are by the service's clock."""

    def __init__(self) -> None:
        self.heard_at = 0.0  # the newest reading of any instance: time counts up to there
        self.attempt = 0  # the newest: what an earlier one has left in the directory is of no instance now
        self.former = FormerHolders()
        self._instances: dict[Seat, Instance] = {}

    def take(self, reading: RoleState, at: float) -> None:
        """Take a reading that came at an instant."""
        if reading.attempt is not None:  # a process that states none is of whichever runs
            if reading.attempt < self.attempt:
                return
            if reading.attempt > self.attempt:
                self.attempt, self._instances = reading.attempt, {}
        if reading.at is None or reading.at > at:  # a clock that is ahead
            reading = replace(reading, at=at)
        self.former.take(reading, reading.at or at)
        fold((reading,), self._instances)
        self.heard_at = max(self.heard_at, reading.at or at)

    def named_nodes(self) -> set[str]:
        """Return the nodes that the directory, or an agent of the job, names for these instances."""
        return {one.node for one in self.instances().values() if one.node}

    def instances(self) -> Mapping[Seat, Instance]:
        """Return the instances of which anything was reported lately."""
        return {seat: one for seat, one in self._instances.items() if one.seen_at > self.heard_at - FORGOTTEN_SECONDS}
