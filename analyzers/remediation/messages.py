"""The events of ``step``, its instructions, and its refusal."""

from __future__ import annotations

from typing import Any

import msgspec

from analyzers.remediation.types import Freeze, Hold, Outcome, Remediation


class Proposed(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict has led to a plan. ``None``: the newest verdict of the incident asks for nothing."""

    incident: str
    plan: Remediation | None
    why: str = ""
    person: bool = False  # nothing is left to propose: a person must decide


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    """A person's order for one remediation."""

    id: str
    by: str
    reason: str = ""


class UnderClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a claim, with its fencing token."""

    id: str
    by: str
    token: int


class Approve(_Order, frozen=True, kw_only=True):
    """A person approves it."""


class Reject(_Order, frozen=True, kw_only=True):
    """A person refuses it."""


class Cancel(_Order, frozen=True, kw_only=True):
    """It is not wanted any more: the job recovered, the verdict was wrong."""


class AskUndo(_Order, frozen=True, kw_only=True):
    """A person asks to undo it."""


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler claims it, to do it or to undo it."""

    id: str
    by: str
    seconds: float = 60.0


class Heartbeat(UnderClaim, frozen=True, kw_only=True):
    """The claimant is alive and renews its lease."""

    seconds: float = 60.0


class Begin(UnderClaim, frozen=True, kw_only=True):
    """The claimant is about to act: the last moment at which a guard can stop it."""


class Complete(UnderClaim, frozen=True, kw_only=True):
    """It is done, or undone: read back and verified by the claimant."""

    did: dict[str, Any] = {}


class Fail(UnderClaim, frozen=True, kw_only=True):
    """It failed. ``did``: what was done before, to be undone."""

    reason: str
    did: dict[str, Any] = {}


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The job's outcome after the restart: it runs well, or fails the same way again."""

    id: str
    outcome: Outcome
    why: str


class AddHold(msgspec.Struct, frozen=True, kw_only=True):
    """A person holds a node or a job."""

    hold: Hold


class ExpireHold(_Order, frozen=True, kw_only=True):
    """A person ends a hold."""


class SetFreeze(msgspec.Struct, frozen=True, kw_only=True):
    """A person freezes everything, or (``freeze`` None) ends the freeze."""

    freeze: Freeze | None
    by: str
    reason: str


class CloseBreaker(msgspec.Struct, frozen=True, kw_only=True):
    """A person closes the breaker."""

    by: str
    reason: str


class RemediationTick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed."""


FleetOrder = AddHold | ExpireHold | SetFreeze | CloseBreaker
RemediationEvent = (
    Proposed | Approve | Reject | Cancel | Take | Heartbeat | Begin | Complete | Fail | AskUndo | Verified | FleetOrder
    | RemediationTick
)  # fmt: skip


# --- instructions


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Write this remediation: a new one, or one that has changed (its version has grown)."""

    remediation: Remediation


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry for the audit log, the incident's timeline and the stream.

    kinds: remediation_proposed _approved _claimed _begun _completed _verified _rejected _failed _expired _cancelled
    _released _undo_asked _undo_failed _undone _would_act _hindered; breaker_tripped breaker_closed hold_added hold_expired
    frozen thawed
    """

    kind: str
    by: str
    remediation: str | None = None
    details: dict[str, Any] = {}


RemediationInstruction = Store | AuditEntry


class RemediationRefused(Exception):
    """The event is refused, and nothing has changed. ``code`` is for programs, the text for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code  # not_found conflict fenced hindered
