"""A job as its agents report it, a batch a node every ten seconds, for tests of what the engine makes of it."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import nan

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.model.incident import Symptom
from collectors.records import (
    RING_COLUMNS,
    STEP_COLUMNS,
    Group,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    Record,
    Ring,
    Steps,
)

START = 1_763_000_000.0
SHIP_SECONDS = 10.0
URGENT_SECONDS = 0.7  # the end of a process does not wait for that
CODES = {"<i1": "b", "<i4": "i", "<i8": "q", "<f8": "d"}
Law = Callable[[int, random.Random], float]
"""A step's number and a source of noise → its seconds."""


def step_record(
    rows: Sequence[tuple[int, float]], rank: int | None = 0, told_by: str = "plain", **more: object
) -> Steps:
    """Steps as a log tells them: number and instant, and further columns by name."""
    given = {name: more.pop(name) for name in STEP_COLUMNS if name in more and name not in {"step", "at"}}
    columns: dict[str, Sequence[float]] = {"step": [row[0] for row in rows], "at": [row[1] for row in rows], **given}  # type: ignore[dict-item]
    built = {}
    for name, kind in STEP_COLUMNS.items():
        values = columns.get(name, [0 if kind == "<i1" else nan] * len(rows))
        built[name] = array(CODES[kind], values).tobytes()
    known = {"job": "run", "attempt": 0, "rank": rank, "at": rows[-1][1] if rows else None}
    return Steps(**{**known, **more}, told_by=told_by, count=len(rows), columns=built)  # type: ignore[arg-type]


def ring_record(rank: int, at: float, rows: Sequence[tuple[str, int, float, float | None]], world: int) -> Ring:
    """A ring: operation, sequence, entered, left (None: still inside)."""
    operations = list(dict.fromkeys(row[0] for row in rows))
    values = {
        "group": [0] * len(rows),
        "collective_seq": [row[1] for row in rows],
        "operation": [1 + operations.index(row[0]) for row in rows],
        "entered_ns": [round(row[2] * 1e9) for row in rows],
        "left_ns": [-1 if row[3] is None else round(row[3] * 1e9) for row in rows],
    }
    columns = {
        name: array(CODES[kind], values.get(name, [0] * len(rows))).tobytes() for name, kind in RING_COLUMNS.items()
    }
    return Ring(
        job="run", attempt=0, rank=rank, at=at, groups=(Group("0", "default_pg", Members.of(range(world))),),
        strings=("0", *operations), count=len(rows), columns=columns, backend="nccl",
    )  # fmt: skip


@dataclass
class WatchedJob:
    """Nodes "n0", "n1", … with some ranks each; ``law`` says how long each step takes, rank 0's log tells of them."""

    nodes: int = 2
    ranks_a_node: int = 4
    law: Law = lambda _step, _noise: 1.0
    seed: int = 0
    skew: dict[str, float] = field(default_factory=dict)  # node → seconds that its clock is ahead
    reporters: Sequence[int | None] = (0,)
    told_by: str = "plain"
    buffered: int = 0  # steps that the log holds back and writes at once
    stopped_at: float = float("inf")  # no step ends later, in seconds since the start
    silent: dict[str, float] = field(default_factory=dict)  # node → when its agent was cut off
    ended: dict[int, tuple[float, int | None, int | None]] = field(default_factory=dict)  # rank → when, code, signal
    extra: list[tuple[float, str, Record]] = field(default_factory=list)  # when, node, what
    world: int = 0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.noise = random.Random(self.seed)
        self.step, self.next_at = 0, 0.0
        self.done: list[tuple[int, float]] = []
        self.reported: dict[str, int] = {}
        self.deaths_told: set[int] = set()
        self.world = self.nodes * self.ranks_a_node

    def ranks_on(self, node: int) -> range:
        """The ranks of the node with this number."""
        return range(node * self.ranks_a_node, (node + 1) * self.ranks_a_node)

    def batches(self, since: float, until: float) -> Iterator[Received]:
        """What the agents send in a span of seconds since the start, in the order of its coming."""
        due = sorted(
            (turn * SHIP_SECONDS + SHIP_SECONDS * number / self.nodes, number)
            for turn in range(int(since // SHIP_SECONDS), int(until // SHIP_SECONDS) + 1)
            for number in range(self.nodes)
        )
        urgent = {(end[0] + URGENT_SECONDS, rank // self.ranks_a_node) for rank, end in self.ended.items()}
        for at, number in sorted({*due, *urgent}):
            if since <= at < until and at < self.silent.get(f"n{number}", float("inf")):
                yield self.batch(number, at)

    def batch(self, number: int, at: float) -> Received:
        """One node's batch: what its agent read by this instant."""
        self._advance(at)
        node = f"n{number}"
        ahead = self.skew.get(node, 0.0)
        records = [*self._processes(number, at, ahead), *self._steps(number, at, ahead)]
        records += [record for when, where, record in self.extra if where == node and at - SHIP_SECONDS < when <= at]
        self.sequence += 1
        now = START + at
        return Received(
            sequence=self.sequence, received_at=now + 0.05, node=node, records=tuple(records), sent_at=now + ahead
        )

    def _advance(self, at: float) -> None:
        while self.next_at <= min(at, self.stopped_at):
            if self.step:
                self.done.append((self.step, self.next_at))
            self.step += 1
            self.next_at += self.law(self.step, self.noise)

    def _processes(self, number: int, at: float, ahead: float) -> Iterator[Record]:
        now, ranks = START + at + ahead, self.ranks_on(number)
        for rank in ranks:
            pid, whose = 100 + rank, {"job": "run", "attempt": 0, "rank": rank}
            end = self.ended.get(rank)
            if end is None or end[0] > at:
                yield ProcessState(**whose, pid=pid, state="R", at=now - 1.0, started_at=START - 60.0)  # type: ignore[arg-type]
            elif rank not in self.deaths_told:
                self.deaths_told.add(rank)
                yield ProcessState(
                    **whose, pid=pid, state="X", at=START + end[0] + ahead, exit_code=end[1], signal=end[2],
                    started_at=START - 60.0,
                )  # type: ignore[arg-type]  # fmt: skip
        living = [rank for rank in ranks if rank not in self.ended or self.ended[rank][0] > at]
        if living and at % 60.0 < SHIP_SECONDS:
            yield Placement(
                job="run", attempt=0, at=now - 1.0, ranks=Members.of(living), nodes=(f"n{number}",) * len(living),
                pids=tuple(100 + rank for rank in living), world_size=self.world,
            )  # fmt: skip

    def _steps(self, number: int, at: float, ahead: float) -> Iterator[Record]:
        for reporter in self.reporters:
            home = 0 if reporter is None else reporter // self.ranks_a_node
            if home != number:
                continue
            key = f"{reporter}"
            begin, seen = self.reported.get(key, 0), at - 2.0
            ready = [row for row in self.done[begin:] if row[1] <= seen]
            if self.buffered:
                ready = ready[: len(ready) // self.buffered * self.buffered]
            if ready:
                self.reported[key] = begin + len(ready)
                rows = [(step, START + ended + ahead) for step, ended in ready]
                yield step_record(rows, reporter, self.told_by, at=START + seen + ahead)
        if len(self.done) > 4096 and self.reported and min(self.reported.values()) > 2048:
            del self.done[:2048]
            self.reported = {name: count - 2048 for name, count in self.reported.items()}


def feed(view: JobView, batches: Iterable[Received]) -> JobView:
    """Give a view every batch."""
    for batch in batches:
        view.take(batch, batch.records)
    return view


def watched(job: WatchedJob, seconds: float, view: JobView | None = None, since: float = 0.0) -> JobView:
    """The view of a job after so many seconds."""
    return feed(view or JobView("run", 0), job.batches(since, seconds))


def first_symptom(job: WatchedJob, seconds: float, view: JobView | None = None) -> tuple[float, Symptom] | None:
    """When a symptom is seen first, looked for after every batch and every ten seconds, and which."""
    view = view or JobView("run", 0)
    for batch in job.batches(0.0, seconds):
        view.take(batch, batch.records)
        if found := find_symptoms(view, batch.received_at):
            return batch.received_at - START, found[0]
    return None


def log_event(at: float, event: str = "traceback", **more: object) -> LogEvent:
    """A line of trouble."""
    return LogEvent(job="run", attempt=0, at=START + at, event=event, source=f"log:{round(at)}", **more)  # type: ignore[arg-type]
