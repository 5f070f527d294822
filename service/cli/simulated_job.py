"""A simulated job that reports to a running service, as the agents of its nodes would, second by second.

To look at incidents, verdicts and pages without a cluster. What it sends are an agent's batches, and it answers commands.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from collectors.records import block
from service.client import Connection, ServicePatience, resource
from service.clock import now

if TYPE_CHECKING:
    from simulation.live.fleet import Delivery, Fleet

POLL_SECONDS = 2.0  # between two questions for commands
GRACE_SECONDS = 30.0  # after the end, for a service that is away


class Feed:
    """A fleet's way to a service. A service that is away is waited for, and then gets what it missed, late."""

    def __init__(self, fleet: Fleet, connection: Connection, say: Callable[[str], None]) -> None:
        self._fleet, self._connection, self._patience = fleet, connection, ServicePatience(say)
        self._run = secrets.token_hex(4)
        self.batches = self.records = self.commands = 0

    def until(self, end: float, progress: Callable[[float], None]) -> None:
        """Send what is due, and answer what is asked, until an instant. ``progress`` gets each instant that was reached."""
        poll_at, leave_at = now(), end + GRACE_SECONDS
        while (due := min(self._fleet.next_at, poll_at)) <= end and now() <= leave_at:
            time.sleep(max(0.0, due - now()))
            try:
                if due == poll_at:
                    self._answer()
                    poll_at = now() + POLL_SECONDS
                elif (delivery := self._fleet.receive()) is not None:
                    self._send(delivery, leave_at)
                self._patience.back()
            except ServicePatience.failures as problem:
                self._patience.away(problem)
            progress(due)

    def _send(self, delivery: Delivery, leave_at: float) -> None:
        headers = {
            "Content-Type": block.MEDIA_TYPE,
            "Faulthound-Node": delivery.node,
            "Faulthound-Batch": f"simulated-{self._run}-{delivery.sequence}",
            "Faulthound-Sent-At": f"{now():.6f}",
        }
        body = block.encode(delivery.records, pack=True)
        while now() <= leave_at:
            try:
                self._connection.send("POST", "/v1/records", content=body, headers=headers)
            except ServicePatience.failures as problem:
                self._patience.away(problem)
            else:
                self.batches += 1
                self.records += len(delivery.records)
                return

    def _answer(self) -> None:
        for node in self._fleet.agents:
            for command in self._connection.send("POST", resource("nodes", node, "commands", "take"))["commands"]:
                self._fleet.command(now(), node, command["verb"], command["id"])
                self.commands += 1
