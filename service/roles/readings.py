"""What the directories of roles hear goes into the log, so that the engine judges it and a replay has it.

A heartbeat is one reading of its instance, and so is a heartbeat that is missing. Those of a second are one batch of its job,
under a sender's name that no node can have. The log is asked for no promise: a reading that is lost is followed by the next.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median_low

from sqlalchemy.exc import SQLAlchemyError

from collectors.records import DIRECTORY, RoleState, block, directory_sender
from service.clock import now
from service.roles.directory import Slot, key
from service.roles.repository import QUIET_SECONDS, RoleDirectories
from service.store.appender import Appender, QueueFull
from service.store.log import Incoming

TOGETHER_SECONDS = 1.0
LATE_SECONDS = 5.0  # renewals come in a third of the lease: a later one is missing, which is reported every ten seconds
EVERY_SECONDS = 10.0
LOST_SECONDS = 600.0  # then it is reported each minute, of a lease that lasts longer after three of them
RARELY = 6  # rounds
HANDED_OVER_SECONDS = 60.0  # in which a process of an earlier attempt may renew beside those of the next
LISTENED_SECONDS = (
    60.0  # or a lease: a job of which nothing is heard for so long has ended, or cannot reach this service
)
MOST_WAITING = 65_536  # readings that the log has not taken

_log = logging.getLogger(__name__)


class RoleReadingLog:
    """The readings that wait, the newest of each instance and epoch, and the thread that sends them."""

    def __init__(self, appender: Appender, directories: RoleDirectories) -> None:
        self._appender, self._directories = appender, directories
        self._heard: dict[str, float] = {}  # job → until when it counts as heard
        self._hardware: dict[str, Mapping[str, str]] = {}  # job → node → what its owner has declared of it
        self._looked_at, self._rounds = now(), 0
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._waiting: dict[str, dict[str, RoleState]] = defaultdict(dict)  # job → slot and epoch → reading
        self._thread = threading.Thread(target=self._run, name="role readings", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Send what waits, and end the thread."""
        self._closing.set()
        self._thread.join()
        self.flush()

    def note(self, job: str, slot: Slot) -> None:
        """Take what was heard of an instance; called from any thread."""
        with self._lock:
            until = now() + max(LISTENED_SECONDS, slot.lease_seconds)
            self._heard[job] = max(until, self._heard.get(job, 0.0))
            of_job = self._waiting[job]
            if len(of_job) < MOST_WAITING:
                hardware = self._hardware.get(job, {}).get(slot.node or "")
                of_job[_held(slot)] = reading(job, slot, now(), hardware)

    def note_missing(self) -> None:
        """Take the instances that have not renewed, of jobs of which others have. Another service may have heard them."""
        at = self._looked_at = now()
        with self._lock:
            self._heard = {job: until for job, until in self._heard.items() if until > at}
            jobs = list(self._heard)
        self._hardware = self._directories.hardware(frozenset(jobs))
        for job in jobs:
            directory = self._directories.read(job)
            slots = directory.slots if directory is not None else {}
            for slot, renewed_at in missing(slots.values(), at, self._directories.listening_since, self._rounds):
                with self._lock:
                    self._waiting[job].setdefault(_held(slot), missing_reading(job, slot, renewed_at, at))
        self._rounds += 1

    def flush(self) -> None:
        """Send what waits, a batch a job; what the log has no room for waits on."""
        with self._lock:
            waiting, self._waiting = self._waiting, defaultdict(dict)
        for job, readings in waiting.items():
            data = block.encode(list(readings.values()), pack=True)
            batch = Incoming(directory_sender(job), secrets.token_hex(16), None, now(), len(readings), data)
            try:
                self._appender.submit(batch)
            except QueueFull as busy:
                _log.warning("role_readings_wait job=%s reason=%s", job, busy)
                with self._lock:
                    self._waiting[job] = {**readings, **self._waiting[job]}

    def _run(self) -> None:
        while not self._closing.wait(TOGETHER_SECONDS):
            if now() - self._looked_at >= EVERY_SECONDS:
                try:
                    self.note_missing()
                except SQLAlchemyError as error:
                    _log.warning("missing_roles_not_read reason=%s", type(error).__name__)
            self.flush()


def running(slots: Iterable[Slot]) -> list[Slot]:
    """Return the slots of the attempt that runs. One that goes on to renew beside a newer one is of it, whatever its number."""
    every = list(slots)
    began: dict[int, float] = {}
    for slot in every:
        began[slot.attempt] = min(slot.registered_at, began.get(slot.attempt, slot.registered_at))
    later, next_at = dict[int, float](), math.inf  # attempt → when the first process of a newer one registered
    for attempt in sorted(began, reverse=True):
        later[attempt], next_at = next_at, min(next_at, began[attempt])
    newest = max(began, default=0)
    return [
        slot
        for slot in every
        if slot.attempt == newest
        or slot.renewed_at > later[slot.attempt] + max(HANDED_OVER_SECONDS, slot.lease_seconds)
    ]


def missing(slots: Iterable[Slot], at: float, listening_since: float, rounds: int = 0) -> Iterator[tuple[Slot, float]]:
    """Yield the slots that have not renewed though others have, and since when. ``rounds``: how often it was asked before.

    What is missing for long stays missing until it leaves, is fenced or replaced; but not where most of those that are heard
    began since, which are of another run, and not if it was abandoned long before the service listened.
    """
    serving = [slot for slot in running(slots) if slot.state == "serving"]
    heard = [one.registered_at for one in serving if at - one.renewed_at < one.lease_seconds / 3 + LATE_SECONDS]
    began_at = median_low(heard) if heard else at
    for slot in serving:
        renewed_at = max(slot.renewed_at, listening_since)  # while no service listened none could renew
        if at - renewed_at < slot.lease_seconds / 3 + LATE_SECONDS or slot.renewed_at < listening_since - QUIET_SECONDS:
            continue
        long = at - renewed_at > max(LOST_SECONDS, 3 * slot.lease_seconds)
        if not long or (slot.renewed_at >= began_at and rounds % RARELY == 0):
            yield slot, renewed_at


def reading(job: str, slot: Slot, at: float, hardware: str | None = None) -> RoleState:
    """Return a slot as a record. Attempt 0 is what a process has that names none: its agent may know better.

    ``hardware``: of its node.
    """
    does = slot.activity
    return RoleState(
        source=DIRECTORY, at=at, node=slot.node, job=job, attempt=slot.attempt or None, role=slot.role,
        phase=slot.phase or None, instance=slot.instance, pid=slot.pid, epoch=slot.epoch, phase_since=does.phase_since,
        weights=slot.weights, waiting_for=does.waiting_for or None, waiting_since=does.waiting_since,
        requests_running=does.requests_running, requests_waiting=does.requests_waiting, tokens_total=does.tokens_total,
        last_token_at=does.last_token_at, queue_depth=does.queue_depth, steps_total=does.steps_total,
        last_step_at=does.last_step_at, worked_seconds=does.worked_seconds, renewed_at=slot.renewed_at,
        lease_seconds=slot.lease_seconds, state=slot.state, hardware=hardware,
    )  # fmt: skip


def _held(slot: Slot) -> str:
    """Return the key of a slot under its epoch: that the former one was fenced is not lost when the next one registers."""
    return f"{key(slot.role, slot.instance)}\x1f{slot.epoch}"


def missing_reading(job: str, slot: Slot, renewed_at: float, at: float) -> RoleState:
    """Return a reading that only says when an instance was heard last: what it did then says nothing of now."""
    return RoleState(
        source=DIRECTORY, at=at, node=slot.node, job=job, attempt=slot.attempt or None, role=slot.role,
        instance=slot.instance, pid=slot.pid, epoch=slot.epoch, renewed_at=renewed_at, lease_seconds=slot.lease_seconds,
        state=slot.state,
    )  # fmt: skip
