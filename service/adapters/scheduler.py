"""A scheduler's side of the contract: a claim, kept alive while somebody acts under it, and given up once it is lost.

Nothing here runs beside the work: whoever acts calls ``keep`` between two commands, and is stopped there when the lease
has too little left for another one. So a claimant that was away for too long does not act, whatever the service hears.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from service.adapters.following import PASSING
from service.endings import Forbidden, Unreachable

if TYPE_CHECKING:
    from service.client import Connection

CLAIM_SECONDS = 60.0
BEAT_SECONDS = 15.0
SURE_SECONDS = 25.0  # that a lease must have left for one more command: longer than any command may take
AGAIN_SECONDS = 1.0

Document = Mapping[str, Any]


class ClaimLost(Exception):
    """The claim is lost: somebody else may act now, and we must not."""


class Begun(NamedTuple):
    """What is begun, and how long ago it was first begun, by the service's own clock: nobody else's is compared with it."""

    remediation: Document
    seconds_ago: float


class HeldClaim:
    """One claim of one remediation."""

    def __init__(self, connection: Connection, id: str, token: int, task: str) -> None:
        self._connection, self.id, self.token, self.task = connection, id, token, task
        self._beat_at = self._until = 0.0  # of _clock: when the next heartbeat is due, when the lease runs out

    @classmethod
    def of(cls, connection: Connection, id: str) -> HeldClaim:
        """Claim what can be claimed; raise ``Forbidden`` where another was faster, or something stands in the way."""
        asked_at = _clock()
        answer = _surely(connection, _path(id, "claim"), {"seconds": CLAIM_SECONDS}, asked_at + CLAIM_SECONDS / 2)
        claim = cls(connection, id, answer["token"], answer["task"])
        claim._kept(asked_at, answer["seconds"])
        return claim

    @classmethod
    def again(cls, connection: Connection, found: Document) -> HeldClaim | None:
        """Take up a claim of our own from before a restart; None where it is another's, or has run out."""
        held = found["claim"]
        claim = cls(connection, found["id"], held["token"], held["task"])
        try:
            claim._beat()
        except Forbidden:
            return None
        return claim

    def keep(self) -> None:
        """Keep it; raise ``ClaimLost`` where it has too little time left, or is another's."""
        if _clock() > self._beat_at:
            try:
                self._beat()
            except (Forbidden, Unreachable) as problem:
                if isinstance(problem, Forbidden) and problem.status not in PASSING:
                    raise ClaimLost(str(problem)) from None
                self._beat_at = _clock() + AGAIN_SECONDS  # the lease that we have still holds
        if _clock() > self._until - SURE_SECONDS:
            raise ClaimLost(
                f"the claim is not sure to last for {SURE_SECONDS:.0f} s more: the service was not reached in time, "
                "or its policy's claim_seconds are too few"
            )

    def begin(self) -> Begun:
        """Say that we act now; raise ``Forbidden`` where something stands in the way."""
        self.keep()
        answer = _surely(self._connection, _path(self.id, "begin"), {"token": self.token}, self._until - SURE_SECONDS)
        found: Document = answer["remediation"]
        answered_at = answer["until"] - answer["seconds"]
        return Begun(found, max(0.0, answered_at - (found["began_at"] or answered_at)))

    def complete(self, did: Document) -> None:
        """Say what was done; raise ``Forbidden`` where the service has given it up meanwhile."""
        _surely(self._connection, _path(self.id, "complete"), {"token": self.token, "did": did}, self._until)

    def fail(self, reason: str, did: Document) -> None:
        """Say why it could not be done, and what was done before."""
        body = {"token": self.token, "reason": reason[:1_000], "did": did}
        _surely(self._connection, _path(self.id, "fail"), body, self._until)

    def _beat(self) -> None:
        asked_at = _clock()
        body = {"token": self.token, "seconds": CLAIM_SECONDS}
        self._kept(asked_at, self._connection.send("POST", _path(self.id, "heartbeat"), json=body)["seconds"])

    def _kept(self, asked_at: float, seconds: float) -> None:
        """Count from before it was asked, so that a lease is never held longer here than by the service."""
        self._beat_at, self._until = asked_at + BEAT_SECONDS, asked_at + seconds


def _clock() -> float:
    """Return seconds that go on while the machine is suspended, as the lease does; those of ``monotonic`` do not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _surely(connection: Connection, path: str, body: Document, until: float) -> Any:
    """Post until there is an answer, under one key: a lost answer is given again. ``until``: of ``_clock``."""
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    while True:
        try:
            return connection.send("POST", path, json=body, headers=headers)
        except (Forbidden, Unreachable) as problem:
            refused = isinstance(problem, Forbidden) and problem.status not in PASSING
            if refused or _clock() + AGAIN_SECONDS > until:
                raise
        time.sleep(AGAIN_SECONDS)


def _path(id: str, verb: str) -> str:
    return f"/v1/remediations/{quote(id, safe='')}/{verb}"
