"""A claim of one remediation: leased, kept by heartbeats while work goes on under it, and given up once the lease is lost.

There is no background thread: the worker calls ``keep`` between two commands, and is stopped there when too little of the lease
is left for another one. So a claimant that was away for too long does not act, whatever the service receives from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from service.client import RequestRefused, Unreachable, idempotency, resource, retrying

if TYPE_CHECKING:
    from service.client import Connection

LEASE_SECONDS = 60.0
HEARTBEAT_SECONDS = 15.0
MARGIN_SECONDS = 25.0  # that a lease must have left for one more command: longer than any command may take
RETRY_SECONDS = 1.0

Remediation = Mapping[str, Any]  # as REST sends it


class ClaimLost(Exception):
    """The lease is lost: another claimant may act now, and this one must not."""


class Begun(NamedTuple):
    """A begun remediation, and how long ago it was first begun, by the service's clock alone."""

    remediation: Remediation
    seconds_ago: float


class HeldClaim:
    """One claim of one remediation. ``token`` is its fencing token."""

    def __init__(self, connection: Connection, id: str, token: int, task: str) -> None:
        self._connection, self.id, self.token, self.task = connection, id, token, task
        self._beat_at = self._until = 0.0  # of _clock: when the next heartbeat is due, when the lease runs out

    @classmethod
    def take(cls, connection: Connection, id: str) -> HeldClaim:
        """Claim; raise ``RequestRefused`` where another claimant was faster, or a blocker came up."""
        asked_at = _clock()
        claim = cls(connection, id, 0, "")
        answer = claim._post("claim", {"seconds": LEASE_SECONDS}, asked_at + LEASE_SECONDS / 2)
        claim.token, claim.task = answer["token"], answer["task"]
        claim._lease(asked_at, answer["seconds"])
        return claim

    @classmethod
    def resume(cls, connection: Connection, found: Remediation) -> HeldClaim | None:
        """Take up a claim of our own from before a restart; None where it is another's, or its lease has run out."""
        held = found["claim"]
        claim = cls(connection, found["id"], held["token"], held["task"])
        try:
            claim._beat()
        except RequestRefused:
            return None
        return claim

    def keep(self) -> None:
        """Send a heartbeat when one is due; raise ``ClaimLost`` where too little is left, or another claimant has it."""
        if _clock() > self._beat_at:
            try:
                self._beat()
            except (RequestRefused, Unreachable) as problem:
                if not _passes(problem):
                    raise ClaimLost(str(problem)) from None
                self._beat_at = _clock() + RETRY_SECONDS  # the lease still holds
        if _clock() > self._until - MARGIN_SECONDS:
            raise ClaimLost(
                f"the lease does not last for {MARGIN_SECONDS:.0f} s more: the service was not reached in time, "
                "or its policy's claim_seconds are too few"
            )

    def begin(self) -> Begun:
        """Report that the work begins; raise ``RequestRefused`` where a blocker came up."""
        self.keep()
        answer = self._post("begin", {"token": self.token}, self._until - MARGIN_SECONDS)
        found: Remediation = answer["remediation"]
        answered_at = answer["until"] - answer["seconds"]
        return Begun(found, max(0.0, answered_at - (found["began_at"] or answered_at)))

    def complete(self, did: Remediation) -> None:
        """Report what was done; raise ``RequestRefused`` where the service has given the claim up meanwhile."""
        self._post("complete", {"token": self.token, "did": did}, self._until)

    def fail(self, reason: str, did: Remediation) -> None:
        """Report why it could not be done, and what was done before."""
        self._post("fail", {"token": self.token, "reason": reason[:1_000], "did": did}, self._until)

    def _beat(self) -> None:
        asked_at = _clock()
        body = {"token": self.token, "seconds": LEASE_SECONDS}
        answer = self._connection.send("POST", resource("remediations", self.id, "heartbeat"), json=body)
        self._lease(asked_at, answer["seconds"])

    def _lease(self, asked_at: float, seconds: float) -> None:
        """Count from before the request, so that the lease never lasts longer here than in the service."""
        self._beat_at, self._until = asked_at + HEARTBEAT_SECONDS, asked_at + seconds

    def _post(self, verb: str, body: Remediation, until: float) -> Any:
        """Post until there is an answer, under one idempotency key. ``until``: of ``_clock``."""
        path, headers = resource("remediations", self.id, verb), idempotency()

        def again(problem: Exception) -> bool:
            return _passes(problem) and _clock() + RETRY_SECONDS <= until

        for attempt in retrying(again, first_seconds=RETRY_SECONDS, slowest_seconds=RETRY_SECONDS):
            with attempt:
                answer = self._connection.send("POST", path, json=body, headers=headers)
        return answer


def _passes(problem: Exception) -> bool:
    return isinstance(problem, Unreachable) or (isinstance(problem, RequestRefused) and problem.passing)


def _clock() -> float:
    """Return seconds that go on while the machine is suspended, as the lease does; those of ``monotonic`` do not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
