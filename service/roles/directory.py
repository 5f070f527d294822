"""The directory of one job's roles, as a state machine without a clock or a store.

A *slot* is one instance of a role: ``rollout 3``. The process that holds it registered under an *epoch*, a number that the
directory gives once. A process that replaces it gets a higher one, so a peer that has seen the higher epoch refuses what the
former holder still sends (the fencing token of Kleppmann, *How to do distributed locking*, 2016). ``version`` counts what
watchers see: registrations, ends, endpoints and versions of the weights; neither heartbeats nor phases, which change by the
second in each of a thousand instances.

A slot changes hands only when its holder has left, was fenced, is of an earlier attempt, or has not renewed within its lease.
A process that lost a slot never gets it back: it has to be started anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec.structs import replace

from analyzers.model.doc import doc

MOST_ENDED = 64  # processes that a slot remembers

State = Literal["serving", "left", "fenced"]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What the holder of a slot says that it does. Instants are UTC seconds; null: it did not say."""

    phase_since: Annotated[float | None, doc("When its phase began.")] = None
    waiting_for: Annotated[
        str, doc("A role, an instance (`reward 0`), `queue:NAME` or `host:port`; empty: nothing.")
    ] = ""
    waiting_since: Annotated[float | None, doc("Since when it waits for that.")] = None
    tokens_total: Annotated[int | None, doc("Tokens that it has generated.")] = None
    last_token_at: Annotated[float | None, doc("When it generated the newest.")] = None
    steps_total: Annotated[int | None, doc("Steps, calls or samples that it has finished.")] = None
    last_step_at: Annotated[float | None, doc("When it finished the newest.")] = None
    worked_seconds: Annotated[float | None, doc("Seconds in which it waited for nothing.")] = None
    requests_running: Annotated[int | None, doc("Requests that it works on.")] = None
    requests_waiting: Annotated[int | None, doc("Requests that wait for it.")] = None
    queue_depth: Annotated[int | None, doc("What is in the queue that it holds.")] = None


class RoleDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a role. Instants are UTC seconds."""

    role: Annotated[str, doc("The role: trainer, rollout, reward …")]
    instance: Annotated[str, doc("Which one of its role.")]
    epoch: Annotated[int, doc("The number under which it registered; a replacement has a higher one.")]
    process: Annotated[str, doc("The process that holds it.")]
    attempt: Annotated[int, doc("The attempt of the job that it belongs to.")] = 0
    state: Annotated[State, doc("serving; left: it ended in order; fenced: refuse what it sends.")] = "serving"
    endpoints: Annotated[dict[str, str], doc("Where it is reached, by name.")] = {}
    weights: Annotated[int | None, doc("The version of the weights that it has; null: it said none.")] = None
    phase: Annotated[str, doc("What it does now; empty: it did not say.")] = ""
    node: Annotated[str | None, doc("The node that it runs on; null: it did not say.")] = None
    pid: Annotated[int | None, doc("Its process id, by its own word; null: it did not say.")] = None
    activity: Annotated[Activity, doc("What it says that it does.")] = Activity()
    lease_seconds: Annotated[float, doc("After so long without a renewal another may replace it.")]
    registered_at: Annotated[float, doc("When it registered under this epoch.")]
    renewed_at: Annotated[float, doc("When it was last heard of.")]
    version: Annotated[int, doc("The directory's version of its newest change that watchers see.")] = 0


class Slot(RoleDocument, frozen=True, kw_only=True):
    """An instance, with what only the service needs to know of it."""

    first_weights: int | None = None  # that it had first under this epoch; None: it said none
    worked: bool | None = None  # a counter of its own has grown under this epoch; None: none was ever stated
    ended: tuple[str, ...] = ()  # processes that held it before and may not come back


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of one job; for a step, that of its event is enough."""

    epoch: int = 0  # the newest that was given
    version: int = 0
    slots: Mapping[str, Slot] = {}  # by ``key``


class Register(msgspec.Struct, frozen=True, kw_only=True):
    """A process wants a slot, or says again that it has it."""

    role: str
    instance: str
    process: str
    attempt: int = 0
    endpoints: dict[str, str] = {}
    weights: int | None = None
    phase: str = ""
    node: str | None = None
    pid: int | None = None
    lease_seconds: float = 30.0


class Renew(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a slot is alive; what is None stays as it was."""

    role: str
    instance: str
    epoch: int
    process: str = ""  # that asks; empty: it is not said
    endpoints: dict[str, str] | None = None
    weights: int | None = None
    phase: str | None = None
    activity: Activity | None = None


class Leave(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a slot ends."""

    role: str
    instance: str
    epoch: int


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """The program that replaces an instance ends its holder. ``epoch``: only this one; None: the present holder's."""

    role: str
    instance: str
    epoch: int | None = None


Event = Register | Renew | Leave | Fence


class RegistrationRefused(Exception):
    """The event changes nothing. ``kind``: not-found, held or fenced; ``seconds``: a later try may succeed."""

    def __init__(self, kind: Literal["not-found", "held", "fenced"], why: str, seconds: float | None = None) -> None:
        super().__init__(why)
        self.kind, self.seconds = kind, seconds


def key(role: str, instance: str) -> str:
    """Return the key of a slot. Neither part holds a control character."""
    return f"{role}\x1f{instance}"


def by_instance(slot: Slot) -> tuple[str, int, str]:
    """Return by what slots are listed: their role, then their instance, numbers as numbers."""
    return slot.role, int(slot.instance) if slot.instance.isdecimal() else -1, slot.instance


def step(directory: Directory, event: Event, at: float, listening_since: float) -> Directory:
    """Return the directory after an event; raise ``RegistrationRefused`` where it may not be.

    ``listening_since``: since when holders could renew. A service that was away ends no lease.
    """
    slot = directory.slots.get(key(event.role, event.instance))
    if isinstance(event, Register):
        return _register(directory, slot, event, at, listening_since)
    if slot is None:
        raise RegistrationRefused(
            "not-found", f"{event.role} {event.instance} is not in the directory: register it first"
        )
    if isinstance(event, Fence):
        return _fence(directory, slot, event)
    if event.epoch != slot.epoch or slot.state != "serving":
        if isinstance(event, Leave) and event.epoch == slot.epoch and slot.state == "left":
            return directory
        raise RegistrationRefused(
            "fenced",
            f"{event.role} {event.instance} of epoch {event.epoch} has ended, and epoch {slot.epoch} is {slot.state}: "
            "end this process and start another",
        )
    if isinstance(event, Leave):
        return _put(directory, replace(slot, state="left", renewed_at=at), seen=True)
    if event.process not in ("", slot.process):
        raise RegistrationRefused(
            "fenced",
            f"epoch {event.epoch} of {event.role} {event.instance} is that of process {slot.process}, and not of "
            f"{event.process}: end it and start another",
        )
    renewed = replace(
        slot, renewed_at=at, state="serving",
        endpoints=slot.endpoints if event.endpoints is None else event.endpoints,
        weights=slot.weights if event.weights is None else event.weights,
        first_weights=event.weights if slot.first_weights is None else slot.first_weights,
        phase=slot.phase if event.phase is None else event.phase,
        activity=_activity(slot, event, at), worked=_worked(slot, event.activity),
    )  # fmt: skip
    return _put(directory, renewed, seen=_shown(renewed) != _shown(slot))


def lease_left(slot: Slot, at: float, listening_since: float) -> float:
    """Return how many seconds the holder has left to renew; 0 or less: another may replace it."""
    if slot.state != "serving":
        return 0.0
    return max(slot.renewed_at, listening_since) + slot.lease_seconds - at


def _register(directory: Directory, slot: Slot | None, event: Register, at: float, listening_since: float) -> Directory:
    ended: tuple[str, ...] = ()
    if slot is not None:
        if slot.process == event.process and slot.state == "serving":  # its answer was lost
            return step(directory, _as_renewal(slot, event), at, listening_since)
        if event.process in (*slot.ended, slot.process) or event.attempt < slot.attempt:
            raise RegistrationRefused(
                "fenced",
                f"process {event.process} of attempt {event.attempt} has lost {event.role} {event.instance}, which is at "
                f"epoch {slot.epoch} of attempt {slot.attempt} now: end it and start another",
            )
        left = lease_left(slot, at, listening_since)
        if left > 0 and event.attempt == slot.attempt:
            raise RegistrationRefused(
                "held",
                f"{event.role} {event.instance} is held by process {slot.process} under epoch {slot.epoch} for another "
                f"{left:.0f} s at least: wait, or fence it first",
                seconds=left,
            )
        ended = (*slot.ended, slot.process)[-MOST_ENDED:]
    epoch = directory.epoch + 1
    new = Slot(
        role=event.role, instance=event.instance, epoch=epoch, process=event.process, attempt=event.attempt,
        endpoints=event.endpoints, weights=event.weights, first_weights=event.weights, phase=event.phase, node=event.node,
        pid=event.pid, activity=Activity(phase_since=at), lease_seconds=event.lease_seconds, registered_at=at, renewed_at=at,
        ended=ended, worked=None if slot is None or slot.worked is None else False,
    )  # fmt: skip
    return _put(replace(directory, epoch=epoch), new, seen=True)


def _as_renewal(slot: Slot, event: Register) -> Renew:
    return Renew(
        role=event.role, instance=event.instance, epoch=slot.epoch, process=event.process, endpoints=event.endpoints,
        weights=event.weights, phase=event.phase,
    )  # fmt: skip


def _activity(slot: Slot, event: Renew, at: float) -> Activity:
    """Return what a holder does now; where it does not say since when, its phase has begun with this word."""
    activity = event.activity or slot.activity
    if activity.phase_since is None or (event.activity is None and event.phase not in (None, slot.phase)):
        return replace(activity, phase_since=at)
    return activity


def _worked(slot: Slot, said: Activity | None) -> bool | None:
    """Return whether it has finished anything since its first word of how far it is, which may be that of a checkpoint."""
    if said is None or slot.worked:
        return slot.worked
    pairs = [
        (getattr(slot.activity, name), value)
        for name in ("tokens_total", "steps_total")
        if (value := getattr(said, name)) is not None
    ]
    return any(before is not None and value > before for before, value in pairs) if pairs else slot.worked


def _fence(directory: Directory, slot: Slot, event: Fence) -> Directory:
    if event.epoch is not None and event.epoch != slot.epoch:
        raise RegistrationRefused(
            "fenced", f"{slot.role} {slot.instance} is at epoch {slot.epoch} by now, not at {event.epoch}"
        )
    return _put(directory, replace(slot, state="fenced"), seen=slot.state != "fenced")


def _put(directory: Directory, slot: Slot, *, seen: bool) -> Directory:
    version = directory.version + seen
    slot = replace(slot, version=version) if seen else slot
    return replace(directory, slots={**directory.slots, key(slot.role, slot.instance): slot}, version=version)


def _shown(slot: Slot) -> tuple[object, ...]:
    return slot.epoch, slot.state, slot.endpoints, slot.weights
