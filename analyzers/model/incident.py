"""The engine's words: what it is told (events), what it wants done (instructions), and what it remembers of an incident.

Everything here is a value. What an incident remembers is stored as JSON with it, so that an engine that was killed goes on.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from analyzers.model.verdict import Verdict
from collectors.records import Record

Kind = Literal["hang", "slow", "crash", "numeric", "hardware", "silence", "infrastructure"]


class Symptom(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a detector saw. Two with the same ``kind`` and ``detector`` in one incident are the same symptom again."""

    kind: Kind
    detector: str  # no_progress outstanding zero_traffic rank_dead rank_silent hardware_event nan spike …
    at: float  # UTC seconds of the first sign, by the service's clock
    text: str  # one sentence with the numbers and the bound
    ranks: tuple[int, ...] = ()  # who showed it first, not who is guilty
    nodes: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which records a judgement sees: batches with ``after < sequence <= through``, and the incident's context.

    A replay that cuts there judges the same records, and gives the same bytes.
    """

    after: int
    through: int
    at: float  # of receipt, UTC seconds
    looks: int = 0  # rounds of evidence that the agents were asked for and had time to answer
    nodes: int = 0  # that many of the incident's nodes, the first ones: more may join later
    joined: dict[str, int] = {}  # of those that joined later → the ``after`` of their records
    offsets: dict[str, float] = {}  # node → seconds by which its clock is ahead of the service's, where that matters
    unfinished: tuple[str, ...] = ()  # analyzers that were ended at the deadline or crashed: not in the verdict


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A symptom from its opening to its closing, as the engine remembers it between two events."""

    id: str
    kind: Kind
    job: str | None  # None: of the fleet
    attempt: int | None
    opened_at: float  # by the receipt clock
    onset_at: float  # first sign of the first symptom
    symptoms: tuple[Symptom, ...]
    after: int  # of every Cut
    nodes: tuple[str, ...] = ()  # the job's, in the order they were known, or those of an infrastructure incident
    joined: dict[str, int] = {}  # those that were not known when it opened → after which number their records were kept
    looks: int = 0  # rounds asked for
    answered: int = 0  # rounds that were answered, or that had time enough
    asked_at: float | None = None  # the newest round, while it is waited for
    next_look_at: float | None = None
    judge_at: float | None = None  # evidence came: judge again then
    cut: Cut | None = None  # what is being judged
    published: int = 0  # versions of the verdict
    digest: str = ""  # of what the newest version says: it is published again only if that changes
    offsets: dict[str, float] = {}
    last_step: int | None = None  # the job's newest when it opened
    merged_into: str | None = None  # an infrastructure incident that explains it
    closed_at: float | None = None
    closed_because: str = ""


# --- what the engine is told


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of the log. ``offset``: the node's clock less ours when it was sent, where known."""

    sequence: int
    received_at: float
    node: str
    records: tuple[Record, ...]
    sent_at: float | None = None


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Time has passed: every ten seconds, and whenever ``due`` says so."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement has ended. ``cut.unfinished`` names the analyzers that are not in it."""

    incident: str
    cut: Cut
    verdict: Verdict
    claims: tuple[dict[str, Any], ...] = ()  # each analyzer's findings, as plain values (``judging.told``)


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else has closed the incident."""

    incident: str


Event = Received | Tick | Judged | Withdrawn


# --- what the engine wants done


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Store a new incident. ``context``: what was told before ``after`` and still holds (placements, devices)."""

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
    verb: str  # stacks recorders read
    arguments: dict[str, str] = {}
    seconds: float = 30.0


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Judge these records and tell the engine: ``Judged``. ``records`` are the evidence that the cut selects."""

    incident: str
    cut: Cut
    records: tuple[Record, ...]
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
    recovered: bool = False  # nothing was done, and the very attempt goes on: who was named may stay


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """Something about our own sight that a person should know: coverage below its bound, clocks apart."""

    kind: str  # coverage clock
    text: str
    raised: bool = True  # False: it is over
    nodes: tuple[str, ...] = ()
    job: str | None = None


Instruction = Open | Merge | Ask | Judge | Publish | Close | Alarm
