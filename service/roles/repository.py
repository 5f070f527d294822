"""The stored directories: one step in one transaction, so that what was answered outlives the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import delete, false, func, select, update
from sqlalchemy.orm import Session

from service.clock import now
from service.roles.directory import Directory, Event, Register, RegistrationRefused, Slot, key, lease_left, step
from service.store import audit_log, upserts
from service.store.database import Database
from service.store.models import Attempt, Job, RoleDirectory, RoleSlot

MOST_SLOTS = 4_096  # of a job
MOST_DIRECTORIES = 1_024
QUIET_SECONDS = 3_600.0  # twice that of the longest lease and more: what has not renewed for so long gives its room
MADE_ROOM = 256  # ended instances that go together
MOST_AHEAD = 16  # attempts beyond the newest that agents have seen
SEEN_SECONDS = 10.0  # until a new attempt may be seen
FORGOTTEN_SECONDS = 30 * 86_400.0  # after its last change that a watcher sees, if nothing was renewed since
COUNTED_A_SECOND = 1_000  # at the most: epochs and versions that a directory gives, each in a transaction
AUDITED = {"Register": "role_registered", "Leave": "role_left", "Fence": "role_fenced"}


class DirectoryFull(Exception):
    """There is no room for another instance, or another job; the text has the bound."""


class RoleDirectories:
    """The directories of all jobs."""

    def __init__(self, database: Database, clock: Callable[[], float] = now) -> None:
        self._database, self._clock = database, clock
        self.listening_since = clock()
        self._least = _counted_by(self.listening_since)  # a database from a backup has counted less than it gave

    def take(self, job: str, event: Event, by: str) -> tuple[Slot, float]:
        """Apply an event; return its slot and the seconds of its lease. Raise ``RegistrationRefused``, ``DirectoryFull``."""
        at = self._clock()
        with self._database.transaction() as session:
            row = self._row(session, job, at, event)
            stored = session.get(RoleSlot, (job, event.role, event.instance))
            if isinstance(event, Register):
                if stored is None:
                    _make_room(session, job, event, at)
                _check_attempt(session, job, event)
            epoch, version = max(row.epoch, self._least), max(row.version, self._least)
            before = Directory(epoch=epoch, version=version, slots=_slots(stored))
            after = step(before, event, at, self.listening_since)
            slot = after.slots[key(event.role, event.instance)]
            changed = after.version != before.version
            self._write(session, job, after if changed else None, slot, at)
            if changed and (kind := AUDITED.get(type(event).__name__)) is not None:
                details = {"role": slot.role, "instance": slot.instance, "epoch": slot.epoch, "process": slot.process}
                audit_log.record(session, at, kind, by, job, details)
        return slot, lease_left(slot, at, self.listening_since)

    def read(self, job: str, after: int = 0) -> Directory | None:
        """Return a directory with the slots that changed after a version; None where the job has none.

        One that is further than the directory has counted has it from another database: all of it is news.
        """
        with self._database.session() as session:
            row = session.get(RoleDirectory, job)
            if row is None:
                return None
            after = after if after <= row.version else 0
            found = session.scalars(
                select(RoleSlot)
                .where(RoleSlot.job == job, RoleSlot.version > after)
                .order_by(RoleSlot.role, RoleSlot.instance)
            ).all()
            return Directory(epoch=row.epoch, version=row.version, slots=_slots(*found))

    def versions(self, jobs: frozenset[str]) -> dict[str, int]:
        """Return the versions of these jobs' directories."""
        with self._database.session() as session:
            found = session.execute(select(RoleDirectory.job, RoleDirectory.version).where(RoleDirectory.job.in_(jobs)))
            return {row.job: row.version for row in found}

    def hardware(self, jobs: frozenset[str]) -> dict[str, Mapping[str, str]]:
        """Return of each of these jobs what its owner has declared of its nodes' hardware, by node."""
        if not jobs:
            return {}
        with self._database.session() as session:
            found = session.execute(select(Job.name, Job.declared).where(Job.name.in_(jobs)))
            return {row.name: row.declared.get("node_kinds") or {} for row in found}

    def forget(self) -> None:
        """Delete directories in which nothing has happened for a month."""
        since = self._clock() - FORGOTTEN_SECONDS
        living = select(RoleSlot.job).where(RoleSlot.renewed_at >= since)
        with self._database.transaction() as session:
            session.execute(
                delete(RoleDirectory).where(RoleDirectory.changed_at < since, RoleDirectory.job.not_in(living))
            )

    def _row(self, session: Session, job: str, at: float, event: Event) -> RoleDirectory:
        """Return a job's row, locked until the commit."""
        query = select(RoleDirectory).where(RoleDirectory.job == job).with_for_update()
        row = session.scalars(query).one_or_none()
        if row is None:
            if not isinstance(event, Register):
                raise RegistrationRefused("not-found", f"{job} has no directory of roles: register an instance first")
            _make_room_for_job(session, at)
            new = {"job": job, "epoch": _counted_by(at), "version": _counted_by(at), "changed_at": at}
            # Two first registrations at one moment make one row; the second waits for the first.
            upserts.upsert(session, RoleDirectory, [new], where=lambda _old, _new: false())
            row = session.scalars(query).one()
        return row

    def _write(self, session: Session, job: str, changed: Directory | None, slot: Slot, at: float) -> None:
        if changed is not None:
            values = {"epoch": changed.epoch, "version": changed.version, "changed_at": at}
            session.execute(update(RoleDirectory).where(RoleDirectory.job == job).values(values))
        document: dict[str, Any] = msgspec.to_builtins(slot)
        upserts.upsert(session, RoleSlot, [{
            "job": job, "role": slot.role, "instance": slot.instance, "version": slot.version,
            "renewed_at": slot.renewed_at, "document": document,
        }])  # fmt: skip


def _counted_by(at: float) -> int:
    """Return a number that no directory has counted to before an instant, and that each later one begins at."""
    return int(at * COUNTED_A_SECOND)


def _make_room(session: Session, job: str, event: Register, at: float) -> None:
    """Let instances that have ended go where a directory is full, the oldest first; raise ``DirectoryFull`` where all may live.

    Epochs are counted by the directory: who takes such a place again gets a higher one.
    """
    of_job = select(func.count()).select_from(RoleSlot).where(RoleSlot.job == job)
    if (session.scalar(of_job) or 0) < MOST_SLOTS:
        return
    before = RoleSlot.document["attempt"].as_integer() < event.attempt
    over = (RoleSlot.document["state"].as_string() != "serving") | (before & (RoleSlot.renewed_at < at - QUIET_SECONDS))
    oldest = select(RoleSlot).where(RoleSlot.job == job, over).order_by(RoleSlot.renewed_at).limit(MADE_ROOM)
    for row in session.scalars(oldest).all():
        session.delete(row)
    session.flush()
    if (session.scalar(of_job) or 0) >= MOST_SLOTS:
        raise DirectoryFull(f"the directory of {job} has {MOST_SLOTS:,} instances that serve, the most")


def _make_room_for_job(session: Session, at: float) -> None:
    """Let the directory go that was quiet for longest where there are too many; raise ``DirectoryFull`` where none is quiet."""
    if (session.scalar(select(func.count()).select_from(RoleDirectory)) or 0) < MOST_DIRECTORIES:
        return
    living = select(RoleSlot.job).where(RoleSlot.renewed_at >= at - QUIET_SECONDS)
    quiet = RoleDirectory.changed_at < at - QUIET_SECONDS, RoleDirectory.job.not_in(living)
    oldest = select(RoleDirectory.job).where(*quiet).order_by(RoleDirectory.changed_at).limit(1)
    if (job := session.scalar(oldest)) is None:
        raise DirectoryFull(f"there are {MOST_DIRECTORIES:,} directories of roles at work, the most")
    session.execute(delete(RoleDirectory).where(RoleDirectory.job == job))


def _check_attempt(session: Session, job: str, event: Register) -> None:
    """Refuse an attempt far beyond what agents see: it would pass for the newest for good, and hide what really runs.

    A job may number its attempts as it likes: its agents report a new one within a minute, and then it may register.
    """
    if event.attempt <= MOST_AHEAD:
        return
    seen = session.scalar(select(func.max(Attempt.number)).where(Attempt.job == job))
    if seen is not None and event.attempt > seen + MOST_AHEAD:
        raise RegistrationRefused(
            "held",
            f"attempt {event.attempt:,} of {job} is more than {MOST_AHEAD} beyond {seen:,}, the newest that agents see: "
            "wait until they report it",
            seconds=SEEN_SECONDS,
        )


def _slots(*rows: RoleSlot | None) -> dict[str, Slot]:
    return {key(row.role, row.instance): msgspec.convert(row.document, Slot) for row in rows if row is not None}
