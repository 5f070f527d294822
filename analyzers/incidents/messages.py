"""What goes into the engine (events) and what comes out (instructions). All of them are values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from analyzers.model.incident import Cut, Incident, Symptom
from analyzers.model.verdict import Verdict
from collectors.records import Record, of_sender

UNDECODABLE = -1

# --- events


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of the log."""

    sequence: int
    received_at: float
    node: str
    records: tuple[Record, ...]
    sent_at: float | None = None
    unreadable: int = 0  # records of it that no version could use; UNDECODABLE: all of it


def attributed(event: Received) -> Received:
    """Return a batch in which every record is its sender's: what a node says is said by that node, whatever it names."""
    if not event.node:
        return event
    return msgspec.structs.replace(event, records=tuple(of_sender(event.records, event.node, event.received_at)))


class EngineTick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed: every ten seconds, and whenever ``next_due_at`` asks for it."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement has ended. ``cut.unfinished`` names the analyzers that are not in it."""

    incident: str
    cut: Cut
    verdict: Verdict
    claims: tuple[dict[str, Any], ...] = ()  # each analyzer's findings, as plain values


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """A person has closed the incident."""

    incident: str


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's word on a job: the node of rank 0, of rank 1, and so on, in an attempt. No nodes: it names none."""

    job: str
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    code_version: str | None = None
    version: int = 0  # of the declaration; 0: there is none, or none that is needed


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A person's word that a job is being stopped: until then its end is no symptom."""

    job: str
    at: float
    until: float
    by: str
    reason: str = ""


EngineEvent = Received | EngineTick | Judged | Withdrawn | Declared | Ending


# --- instructions


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Store a new incident. ``context``: records from before ``after`` that still hold (placements, devices)."""

    incident: Incident
    context: tuple[Record, ...] = ()


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """The incident has one more symptom."""

    incident: str
    symptom: Symptom


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Ask these nodes' agents."""

    incident: str
    nodes: tuple[str, ...]
    verb: str  # stacks recorders profile read
    arguments: dict[str, str] = {}
    seconds: float = 30.0


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Judge these records, which the cut selects, and answer with ``Judged``."""

    incident: str
    cut: Cut
    records: Collection[Record]
    attempt: int | None = None


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict has a new version."""

    incident: str
    version: int
    cut: Cut
    verdict: Verdict
    claims: tuple[dict[str, Any], ...] = ()


class Close(msgspec.Struct, frozen=True, kw_only=True):
    """The incident has ended."""

    incident: str
    at: float
    because: str  # one sentence
    ended: str = ""  # how the job has ended, where it did not die by itself: nothing is to be done
    recovered: bool = False  # nothing was done, and the same attempt went on, or ended well: who is named may stay


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of our own observation that a person should know: coverage below its bound, clocks apart."""

    kind: str  # coverage clock
    text: str
    raised: bool = True  # False: it is over
    nodes: tuple[str, ...] = ()
    job: str | None = None


EngineInstruction = Open | Merge | Ask | Judge | Publish | Close | Alarm
