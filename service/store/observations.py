"""Observed nodes and jobs, derived from records: nodes with their devices and coverage, jobs, attempts, placements.

Observations are kept in memory and written where they changed. An unchanged one is written once in ``SEEN_SECONDS``, and a
placement, of which a fleet has ten thousands a minute, once in ``PLACED_SECONDS``. Every write can be repeated, and an older
observation never replaces a newer one, but for one that is dated ahead of the newest batch: a clock was wrong.

Memory and tables are bounded whatever nodes invent: a node may bring so many new rows an hour, decided before anything is made
of a placement, and each memory has so many entries, of which the ones longest unseen go. The tables have those.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from analyzers.incidents.hosting import Hosting
from analyzers.incidents.rank_maps import LONGEST_ROLE, own_ranks
from collectors.records import Coverage, Device, Placement, Record, RoleState, Steps, is_directory, of_sender
from collectors.records.identity import places
from service.store import placements
from service.store.buckets import Buckets
from service.store.log import AHEAD_SECONDS, Stored
from service.store.models import Attempt, Base, Job, Node
from service.store.models import Placement as PlacementRow
from service.store.node_clocks import NodeClocks
from service.store.schema import clean
from service.store.upserts import touch, upsert

SEEN_SECONDS = 30.0
PLACED_SECONDS = 300.0
FORGOTTEN_SECONDS = 3_600.0  # rows not seen for so long leave the memory; the tables have them
MOST_RANKS = 4_096  # of one batch: a node's processes
MOST_JOBS = 64  # of one batch
MOST_SEEN = 1 << 18  # rows of one table in memory, about a kilobyte each: two of every rank of the largest job
MOST_HOSTED = 1 << 14  # jobs in memory
NEW_ROWS_AT_ONCE = 4_096  # of one node in the tables of jobs, attempts and placements, which only age deletes
NEW_ROWS_AN_HOUR = 4_096  # a node of 64 ranks whose job begins anew every minute, and some hundred MB in 14 days
MOST_DEVICES = 1_024  # of one node
MOST_COVERAGE_BYTES = 256 << 10
MOST_DEVICE_BYTES = 4 << 10  # of one device: its names and a dozen attributes
LARGEST = (1 << 31) - 1  # of a column for ranks, pids and attempts


@dataclass(slots=True)
class _Seen:
    """A row as it would be now, and when it was last written."""

    row: dict[str, Any]
    changed: bool = True
    written_at: float = -math.inf


class _ObservedTable:
    """The rows of one table that were observed recently, by their keys."""

    def __init__(self, model: type[Base], seconds: float, kept: Iterable[str] = ()) -> None:
        """Write an unchanged row once in ``seconds``; a row of the table keeps its columns ``kept``."""
        self._model, self._seconds, self._kept = model, seconds, frozenset({"first_seen_at", *kept})
        self._seen: dict[Any, _Seen] = {}
        self._touched: dict[Any, _Seen] = {}
        self._latest_at = math.inf  # what is dated later was dated by a wrong clock

    def __len__(self) -> int:
        return len(self._seen)

    def __contains__(self, key: Any) -> bool:
        return key in self._seen

    def row(self, key: Any) -> dict[str, Any]:
        """Return a row that was seen."""
        return self._seen[key].row

    def remember(self, key: Any, row: dict[str, Any]) -> None:
        """Remember a row that the table has."""
        self._seen[key] = _Seen(row, changed=False, written_at=row["last_seen_at"])

    def observe(
        self, key: Any, at: float, received_at: float, *, at_once: bool = False, **columns: Any
    ) -> dict[str, Any]:
        """Take over an observation, if none newer has been seen; return the row. ``columns`` are all of the table's."""
        latest_at = self._latest_at = received_at + AHEAD_SECONDS
        seen = self._seen.pop(key, None)
        if seen is None:
            seen = _Seen({**columns, "first_seen_at": at, "last_seen_at": at})
        elif at >= seen.row["last_seen_at"] or seen.row["last_seen_at"] > latest_at:
            seen.changed |= at_once or any(seen.row[name] != value for name, value in columns.items())
            seen.row.update(columns, last_seen_at=at)
        self._seen[key] = self._touched[key] = seen  # at the end: the first is the one longest unseen
        return seen.row

    def change(self, key: Any, **columns: Any) -> None:
        """Change columns of a row that was seen in this batch."""
        seen = self._seen[key]
        seen.changed |= any(seen.row[name] != value for name, value in columns.items())
        seen.row.update(columns)

    def unwritten(self) -> list[dict[str, Any]]:
        """Return the rows that this memory has not written yet: new ones, unless the table has them already."""
        return [seen.row for seen in self._touched.values() if seen.written_at == -math.inf]

    def write(self, session: Session, at_most_seen: Sequence[str] = ("last_seen_at",)) -> None:
        """Write the rows that changed, and of those that were only seen for long the columns ``at_most_seen``."""
        changed = [seen for seen in self._touched.values() if seen.changed]

        def not_older(table: Any, new: Any) -> ColumnElement[bool]:
            return or_(new.last_seen_at >= table.last_seen_at, table.last_seen_at > self._latest_at)

        upsert(session, self._model, [seen.row for seen in changed], self._kept, not_older)
        again = [
            seen for seen in self._touched.values()
            if not seen.changed and abs(seen.row["last_seen_at"] - seen.written_at) >= self._seconds
        ]  # fmt: skip
        touch(session, self._model, [seen.row for seen in again], at_most_seen, self._latest_at)
        for seen in (*changed, *again):
            seen.changed, seen.written_at = False, seen.row["last_seen_at"]
        self._touched.clear()
        _drop_oldest(self._seen, MOST_SEEN)

    def forget(self, before_at: float) -> None:
        """Drop the rows last seen before an instant."""
        self._touched.clear()
        self._seen = {key: seen for key, seen in self._seen.items() if seen.row["last_seen_at"] >= before_at}


class Observations:
    """The observations of the noted records, until ``write``, and a memory of the tables' rows."""

    def __init__(self) -> None:
        self.left_out = 0  # placements and devices past the bounds of a batch or a node
        self._nodes = _ObservedTable(Node, SEEN_SECONDS)
        self._jobs = _ObservedTable(Job, SEEN_SECONDS, kept=("declared", "version"))
        self._attempts = _ObservedTable(Attempt, SEEN_SECONDS, kept=("code_version",))
        self._placements = _ObservedTable(PlacementRow, PLACED_SECONDS)
        self._hosting: dict[str, Hosting] = {}  # of the jobs seen since this memory began, or as the table has them
        self._clocks = NodeClocks()
        self._new_rows = Buckets(NEW_ROWS_AN_HOUR / 3_600, NEW_ROWS_AT_ONCE)

    @property
    def rows(self) -> int:
        """How many rows of the tables are in memory."""
        return sum(map(len, self._tables))

    @property
    def _tables(self) -> tuple[_ObservedTable, ...]:
        return self._nodes, self._jobs, self._attempts, self._placements

    def load(self, session: Session, batches: Iterable[Stored]) -> None:
        """Remember the nodes of these batches as the table has them: a batch has one device, the row has all."""
        if unknown := {batch.node for batch in batches if batch.node not in self._nodes}:
            columns = Node.__table__.columns.keys()
            for node in session.scalars(select(Node).where(Node.name.in_(unknown))):
                self._nodes.remember(node.name, {name: getattr(node, name) for name in columns})

    def note(self, session: Session, batch: Stored, records: Sequence[Record]) -> None:
        """Take up one batch's records. Who hosts a job's ranks is read from the table where it is not in memory."""
        if is_directory(batch.node):
            self._note_directory(batch, records)
            return
        self._see_node(batch)
        jobs: set[str] = set()
        ranks = 0
        for record in records:
            if isinstance(record, Coverage):
                self._note_coverage(batch, record)
            elif isinstance(record, Device):
                self._note_device(batch.node, record)
            elif isinstance(record, Steps) and record.job in self._hosting:
                self._hosting[record.job].note_step(batch.node, _whole(record.attempt) or 0, batch.received_at)
            elif isinstance(record, Placement) and record.job:
                ranks += len(record.ranks or ())
                jobs.add(record.job)
                if ranks > MOST_RANKS or len(jobs) > MOST_JOBS or not self._has_room(batch, record):
                    self.left_out += 1
                else:
                    own, is_gained = self._own_ranks(session, batch, record)
                    self._note_placement(batch, own, at_once=is_gained)

    def write(self, session: Session) -> None:
        """Write what changed, and what was not written for long."""
        self._nodes.write(session, ("last_seen_at", "clock_offset_seconds"))
        self._jobs.write(session)  # before the attempts, which refer to them
        for row in self._attempts.unwritten():
            row["code_version"] = placements.code_version_of(session, row["job"], row["number"])
        self._attempts.write(session)
        self._placements.write(session)
        _drop_oldest(self._hosting, MOST_HOSTED)

    def forget(self, before_at: float = math.inf) -> None:
        """Drop the rows last seen before an instant; without one all of them, after a failed transaction."""
        for observed in self._tables:
            observed.forget(before_at)
        for hosting in self._hosting.values():
            hosting.forget(before_at, ())
        self._hosting = {job: hosting for job, hosting in self._hosting.items() if hosting.claims}

    def _note_directory(self, batch: Stored, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, RoleState) and record.node and record.job in self._hosting:
                self._hosting[record.job].vouch((record.node,), batch.received_at)

    def _see_node(self, batch: Stored) -> None:
        columns = {} if batch.node in self._nodes else _new_node(batch.node)
        row = self._nodes.observe(batch.node, batch.received_at, batch.received_at, **columns)
        if row["last_seen_at"] == batch.received_at and (offset := _offset(batch)) is not None:
            ahead = self._clocks.take(batch.node, offset, batch.received_at)
            if ahead is None and row["clock_offset_seconds"] is not None:
                self._nodes.change(batch.node, clock_offset_seconds=None)  # at once: it is a vote on the service's time
            row["clock_offset_seconds"] = ahead  # it moves with every batch: written when the row is

    def _note_coverage(self, batch: Stored, coverage: Coverage) -> None:
        row = self._nodes.row(batch.node)
        values = msgspec.to_builtins(coverage)
        known_at = row["coverage"].get("at") or 0.0
        if (coverage.at or batch.received_at) < known_at <= batch.received_at + AHEAD_SECONDS:
            return  # from a spool, after a newer one
        if len(msgspec.json.encode(values)) > MOST_COVERAGE_BYTES:
            values["collectors"] = []
        boot_id = clean(coverage.boot_id, 64) if coverage.boot_id else row["boot_id"]
        self._nodes.change(
            batch.node, coverage=values, agent_version=clean(coverage.agent_version, 64), boot_id=boot_id
        )

    def _note_device(self, node: str, device: Device) -> None:
        known = self._nodes.row(node)["devices"]
        if device.id not in known and len(known) >= MOST_DEVICES:
            self.left_out += 1
            return
        values = msgspec.to_builtins(device)
        if len(msgspec.json.encode(values)) > MOST_DEVICE_BYTES:
            self.left_out += 1
            return
        if _without_time(values) != _without_time(known.get(device.id, {})):
            self._nodes.change(node, devices={**known, device.id: values})

    def _has_room(self, batch: Stored, record: Placement) -> bool:
        """Whether a node may bring the rows that a placement makes anew; a rank that another hosts counts each time."""
        job, attempt = clean(record.job or "", 255), _whole(record.attempt) or 0
        known = (job, attempt) in self._attempts
        ranks = places(record)
        new = sum((job, attempt, role, rank, batch.node) not in self._placements for _, role, rank in ranks)
        new += 0 if known else 2
        return not new or not self._new_rows.wait_seconds(batch.node, new, batch.received_at)

    def _own_ranks(self, session: Session, batch: Stored, record: Placement) -> tuple[Placement, bool]:
        """Return a placement without the ranks that other nodes host, and whether its node hosts more than before."""
        job = clean(record.job or "", 255)
        hosting = self._hosting.pop(job, None) or placements.hosting_of(session, job, batch.received_at)
        self._hosting[job] = hosting  # at the end, as the rows
        attempt = _whole(record.attempt) or 0
        (own,) = of_sender([msgspec.structs.replace(record, job=job, attempt=attempt)], batch.node, batch.received_at)
        hosting.take(batch.node, [own], batch.received_at)
        admitted, hosting.admitted = hosting.admitted, []
        for node in admitted:  # what it claimed before, and another has left now
            if node != batch.node and (placement := hosting.claims[node].placement) is not None:
                own = own_ranks(placement, hosting.refused(node, attempt))
                self._note_placement(dataclasses.replace(batch, node=node, sent_at=None), own, at_once=True)
        on = hosting.maps[attempt].on if attempt in hosting.maps else {}
        claimed = {(rank, role[:LONGEST_ROLE]) for _, role, rank in places(record)}
        return own_ranks(record, claimed - on.get(batch.node, set())), batch.node in admitted

    def _note_placement(self, batch: Stored, record: Placement, *, at_once: bool) -> None:
        job, attempt = clean(record.job or "", 255), _whole(record.attempt) or 0
        at, received_at = _seen_at(batch, record), batch.received_at
        self._jobs.observe(job, at, received_at, name=job, declared={}, version=1)
        hosting = self._hosting.get(job)
        size = _whole(hosting.world_size if hosting is not None and hosting.attempt == attempt else record.world_size)
        if (job, attempt) not in self._attempts:
            self._attempts.observe(
                (job, attempt), at, received_at, job=job, number=attempt, world_size=size, code_version=None
            )
        sized: dict[str, Any] = {} if size is None else {"world_size": size}
        self._attempts.observe((job, attempt), at, received_at, job=job, number=attempt, **sized)
        for rank, columns in _ranks(record):
            key = {"job": job, "attempt": attempt, "role": columns.pop("role"), "rank": rank, "node": batch.node}
            self._placements.observe(tuple(key.values()), at, received_at, at_once=at_once, **key, **columns)


def _drop_oldest(entries: dict[Any, Any], most: int) -> None:
    for key in list(islice(entries, max(0, len(entries) - most))):
        del entries[key]


def _new_node(name: str) -> dict[str, Any]:
    return {
        "name": name, "agent_version": "", "boot_id": None, "clock_offset_seconds": None, "coverage": {}, "devices": {},
    }  # fmt: skip


def _without_time(device: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a device that can change: an agent sends each again and again."""
    return {key: value for key, value in device.items() if key not in {"at", "monotonic_at", "received_at", "source"}}


def _offset(batch: Stored) -> float | None:
    if batch.sent_at is None or not math.isfinite(batch.sent_at):
        return None
    return batch.sent_at - batch.received_at


def _seen_at(batch: Stored, record: Record) -> float:
    """Return the instant of a reading by the service's clock: a batch may have waited in a spool for an hour."""
    offset = _offset(batch)
    if record.at is None or offset is None or not math.isfinite(record.at):
        return batch.received_at
    return min(batch.received_at, max(0.0, record.at - offset))


def _ranks(record: Placement) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each rank with its columns."""
    for place, role, rank in places(record):
        if rank >= 0:
            yield (
                rank,
                {
                    "pid": _whole(_at(record.pids, place)),
                    "local_rank": _whole(_at(record.local_ranks, place)),
                    "role": clean(role, 64),
                    "device": _text(_at(record.devices, place), 128),
                },
            )


def _at(values: Sequence[Any], place: int) -> Any:
    return values[place] if place < len(values) else None


def _text(value: str | None, longest: int) -> str | None:
    return clean(value, longest) or None if value else None


def _whole(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= LARGEST else None
