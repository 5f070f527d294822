"""An incident, its symptoms, and the cut of records that a judgement sees.

The engine's whole state of an incident is stored as JSON with it, so a restarted engine continues where the last one stopped.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from analyzers.model.slow_look import SlowLook

IncidentKind = Literal["hang", "slow", "crash", "numeric", "hardware", "silence", "infrastructure"]


class Symptom(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a detector saw. Two with the same ``subject`` in one incident are the same, unless of instances that work alone."""

    kind: IncidentKind
    detector: str  # no_progress outstanding zero_traffic rank_dead rank_silent hardware_event nan spike …
    at: float  # UTC seconds of the first sign, by the service's clock
    text: str  # one sentence with the numbers and the bound
    ranks: tuple[int, ...] = ()  # that showed it first, which is no proof of guilt
    nodes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()  # of each of the ranks; empty: no role is known

    @property
    def subject(self) -> tuple[object, ...]:
        """Return what it is about: its kind and detector, and where a rule of roles fired, which role."""
        return self.kind, self.detector, frozenset(self.roles) if self.detector == "role_stalled" else None


class Cut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which records a judgement sees: batches with ``after < sequence <= through``, and the incident's context.

    A replay that cuts there judges the same records, and gives the same bytes.
    """

    after: int
    through: int
    at: float  # of receipt, UTC seconds
    looks: int = 0  # evidence rounds that the agents were asked for and had time to answer
    nodes: int = 0  # how many of the incident's nodes, the first ones: more may join later
    joined: dict[str, int] = {}  # of those that joined later → the ``after`` of their records
    offsets: dict[str, float] = {}  # node → seconds by which its clock is ahead of the service's, where that matters
    refused: dict[
        str, str
    ] = {}  # node → ranks that it claims and others host, as "0-3,7" or "trainer=0-1": what it says of them is hearsay
    unconfirmed: tuple[str, ...] = ()  # nodes that say they have joined the job since it started: nothing confirms it
    unfinished: tuple[str, ...] = ()  # analyzers that were ended at the deadline or crashed: not in the verdict
    seen: dict[str, int] = {}  # node → earlier incidents of the job that it showed up in
    shed: dict[str, int] = {}  # node → through which number its records were given up for want of memory
    since: float | None = (
        None  # the incident's opening: what was seen of a rank since then holds until it is seen again
    )
    round_at: float | None = None  # when the newest evidence round was asked for: what came after is of one round
    abstains: str = ""  # why the verdict names nothing: it has changed twice
    held_back: str = ""  # why the verdict evicts no node: it has changed twice whether to
    moved_at: float | None = None  # why a first verdict names nothing: the job moves again since then
    onset_at: float | None = None  # since when it stands still or has ended: a stack from before shows a job that ran
    until: float | None = (
        None  # when the next attempt began: what names no attempt and happened later is not of this one
    )
    began_at: float | None = None  # between this run and the one before it under its number: what is older is not of it
    ended_at: float | None = (
        None  # between this run and the next under its number: what processes show later is not of this one
    )
    stands_still: bool = True  # a symptom shows a standstill; without one the verdict abstains until a second look
    slow: SlowLook | None = None  # its steps take longer, and nothing else: the job runs
    pauses: tuple[tuple[float, float], ...] = ()  # of a slow job, in which no step ended: a stack from then is of none


class VersionClaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a published version claims, as far as the next one may contradict it."""

    at: float
    symptom: str
    cause: str
    named: tuple[str, ...] = ()  # kind and id of each culprit
    roles: tuple[str, ...] = ()  # of each of the named, "" where it is not known; empty: none is known
    nodes: tuple[str, ...] = ()  # of them
    ranks: tuple[int, ...] = ()
    takes: bool = False  # the action takes nodes out
    restarts: bool = False  # the action restarts one role
    outside: bool = False  # the job was ended from outside
    proven: bool = False  # the state of a process or a device shows it: no other evidence contradicts that


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A symptom from its opening to its closing, as the engine remembers it between two events."""

    id: str
    kind: IncidentKind
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
    round_at: float | None = None  # the newest round
    next_look_at: float | None = None
    judge_at: float | None = None  # evidence came: judge again then
    judged_at: float = 0.0  # the newest cut
    cut: Cut | None = None  # what is being judged
    published: int = 0  # versions of the verdict
    digest: str = ""  # of what the newest version says: it is published again only if that changes
    claims: tuple[VersionClaim, ...] = ()  # of the newest versions
    changes: int = 0  # how often a version contradicted the one before
    abstains: str = ""  # of every further Cut
    held_back: str = ""  # of every further Cut
    offsets: dict[str, float] = {}
    last_step: int | None = None  # the job's newest when it stopped
    stops: tuple[float, ...] = ()  # when it moved in between and stopped again, after the first stop
    doubted_at: float | None = None  # cut of the first judgement that names others and waits for the witnesses
    shows: str = ""  # what its newest judgement shows: fault, pause (of the job's own), place (it and more) or unknown
    named: tuple[str, ...] = ()  # nodes that it names
    merged_into: str | None = None  # an infrastructure incident that explains it
    closed_at: float | None = None
    closed_because: str = ""
