"""The agent of one node: at which instants it sends, and what the collectors would have seen by then.

The intervals are the real agent's: a batch every ten seconds, at a moment of the node's own; the job's logs read every
five, process states and rings every ten, placements and the agent's account every minute, every rank's stack once a
minute. Ends of processes, failures in logs and hardware events go at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from collectors.records import (
    CollectorReport,
    Coverage,
    Members,
    Placement,
    ProcessState,
    Record,
    StackDump,
    Steps,
    Thread,
)
from simulation.live.activities import Activity
from simulation.live.columns import ports, ring, steps
from simulation.live.job import Attempt, LiveJob

SHIP_SECONDS = 10.0
LOGS_SECONDS = 5.0
STATES_SECONDS = 10.0
MINUTE = 60.0
BOOTED_AT = 1_700_000_000.0
COLLECTORS = ("fabric", "gpu", "host", "kernel", "placement", "process", "recorder", "ring", "stacks", "steps")


@dataclass(slots=True)
class Meter:
    """Processor time of one process, added up from look to look."""

    at: float
    seconds: float = 0.0

    def read(self, at: float, share: float) -> float:
        """Return the total at an instant, where so much of a core was used since the last look."""
        self.seconds += max(0.0, at - self.at) * share
        self.at = max(self.at, at)
        return round(self.seconds, 2)


@dataclass(slots=True)
class Agent:
    """One node's agent. ``ahead_seconds``: how far the node's clock is ahead."""

    job: LiveJob
    node: str
    random: Random
    began_at: float
    ahead_seconds: float = 0.0
    sent_at: float = 0.0  # of the newest batch, true time
    ship_at: float = 0.0
    _phase: float = 0.0
    _logs_at: float = 0.0
    _states_at: float = 0.0
    _minute_at: float = 0.0
    _placed: int = -1
    _meters: dict[int, Meter] = field(default_factory=dict)
    _newest_reported: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._phase = self.random.uniform(0.0, SHIP_SECONDS)
        self.sent_at = self.began_at
        self.ship_at = self.began_at + self._phase
        self._logs_at = self.began_at + self.random.uniform(0.0, LOGS_SECONDS) - LOGS_SECONDS
        self._states_at = self.began_at + self.random.uniform(0.0, STATES_SECONDS) - STATES_SECONDS
        self._minute_at = self.began_at + self.random.uniform(0.0, 10.0) - MINUTE

    def next_at(self) -> float:
        """Return when it sends again."""
        urgent = (at for at, _ in self.job.urgent(self.node, self.sent_at, self.ship_at))
        return min(urgent, default=self.ship_at)

    def batch(self, at: float) -> list[Record]:
        """Return what it sends at an instant, with the node's own clock."""
        since, self.sent_at = self.sent_at, at
        records: list[Record] = []
        for _, found in self.job.urgent(self.node, since, at):
            records.append(found if isinstance(found, Record) else self._ended(*found))
        if at >= self.ship_at:
            self.ship_at += SHIP_SECONDS
            records += self._ordinary(since, at)
        return self.as_written(records)

    def as_written(self, records: Iterable[Record]) -> list[Record]:
        """Return records as this node writes them: with its name and by its clock."""
        ahead = self.ahead_seconds
        return [
            msgspec.structs.replace(record, node=self.node, at=None if record.at is None else record.at + ahead)
            for record in records
        ]

    # --- what collectors see of their own accord

    def _ordinary(self, since: float, at: float) -> Iterator[Record]:
        attempt = self.job.attempt(at)
        minute = at - self._minute_at >= MINUTE
        if minute:
            self._minute_at += MINUTE * ((at - self._minute_at) // MINUTE)
            yield self._account(at)
        if attempt is None:
            return
        running = [rank for rank in self.job.ranks_on(self.node) if attempt.runs(rank, at)]
        if running and (minute or self._placed != attempt.number):
            self._placed = attempt.number
            yield self._placement(attempt, running, at)
        while self._logs_at + LOGS_SECONDS <= at:
            self._logs_at += LOGS_SECONDS
            yield from self._logs(attempt, self._logs_at)
        if self._states_at + STATES_SECONDS <= at:
            self._states_at += STATES_SECONDS * ((at - self._states_at) // STATES_SECONDS)
            yield from self.states(attempt, running, self._states_at)
            if self.job.habits.reported_by == "probe":
                yield from self.rings(attempt, self._states_at, 8)
            if running:
                yield ports(attempt.course.progress(self._states_at), self._states_at)
        yield from self._stopped(attempt, running, since, at)
        for rank in running:
            looked_at = at - (at + rank * 7.3) % MINUTE
            if looked_at > since and looked_at > attempt.course.begin + 30.0:
                yield self.stack(attempt, rank, looked_at)
        attempt.course.forget(at)

    def _account(self, at: float) -> Coverage:
        reports = tuple(
            CollectorReport(name=name, every_seconds=10.0, runs=6, records=6, seconds=0.02) for name in COLLECTORS
        )
        return Coverage(source="agent", at=at, agent_version="0.1.0", started_at=self.began_at, collectors=reports)

    def _placement(self, attempt: Attempt, ranks: list[int], at: float) -> Placement:
        return Placement(
            source="placement", at=at, job=self.job.name, attempt=attempt.number, ranks=Members.of(ranks),
            nodes=(self.node,) * len(ranks), pids=tuple(attempt.pid(rank) for rank in ranks),
            world_size=self.job.world, local_ranks=tuple(rank % self.job.ranks_a_node for rank in ranks),
            started_ats=(attempt.course.begin,) * len(ranks), launcher="torchrun",
        )  # fmt: skip

    def _logs(self, attempt: Attempt, at: float) -> Iterator[Steps]:
        reporting_ranks = [rank for rank in self.job.ranks_on(self.node) if rank in self.job.reporting_ranks]
        if not reporting_ranks:
            return
        rows = self._written(attempt, at)
        for rank in reporting_ranks if rows else ():
            record = steps(rows, "plain", self.ahead_seconds)
            yield msgspec.structs.replace(
                record, source=f"rank{rank}.log", at=at, job=self.job.name, attempt=attempt.number, rank=rank
            )

    def _written(self, attempt: Attempt, at: float) -> list[tuple[int, float, float]]:
        """Return the steps whose lines have come into the log since the last look."""
        habits, course = self.job.habits, attempt.course
        every, pieces = habits.log_every, habits.log_every * habits.lines_at_once
        flushed = [number for number, _, _ in course.steps(at - LOGS_SECONDS, at) if number % pieces == 0]
        if not flushed:
            return []
        newest = course.last_steps(at, pieces * len(flushed) + pieces)
        return [one for one in newest if flushed[0] - pieces < one[0] <= flushed[-1] and one[0] % every == 0]

    def states(self, attempt: Attempt, ranks: Iterable[int], at: float) -> Iterator[ProcessState]:
        """Yield the state of each rank's process, and of what it has started."""
        for rank in ranks:
            if attempt.runs(rank, at):
                _, activity = self.job.does(attempt, rank, at)
                yield self._state(attempt, rank, at, activity)
                if activity.child:
                    yield ProcessState(
                        **self._whose(attempt, rank), source="process", at=at, pid=90_000 + rank, state="R",
                        parent_pid=attempt.pid(rank), command=activity.child, boot_id=self.node, monotonic_at=at - BOOTED_AT,
                    )  # fmt: skip

    def _state(self, attempt: Attempt, rank: int, at: float, activity: Activity) -> ProcessState:
        meter = self._meters.get(attempt.pid(rank))
        if meter is None:
            meter = self._meters[attempt.pid(rank)] = Meter(attempt.course.begin)
        return ProcessState(
            **self._whose(attempt, rank), source="process", at=at, monotonic_at=at - BOOTED_AT, boot_id=self.node,
            pid=attempt.pid(rank), state=activity.state, wait_channel=activity.wait_channel, command="python",
            started_at=attempt.course.begin + self.ahead_seconds, cpu_seconds=meter.read(at, activity.cpu_share),
        )  # fmt: skip

    def _stopped(self, attempt: Attempt, ranks: list[int], since: float, at: float) -> Iterator[ProcessState]:
        """Yield what the look of every second sees: a process that was stopped or goes on."""
        for span in attempt.course.began(since - 1.0, at - 1.0):
            for rank in ranks:
                _, activity = self.job.does(attempt, rank, span.begin)
                if activity.state == "T":
                    yield self._state(attempt, rank, span.begin + 0.7, activity)

    def _ended(self, attempt: Attempt, rank: int) -> ProcessState:
        end = attempt.ends[rank]
        return ProcessState(
            **self._whose(attempt, rank), source="process", at=end.at, monotonic_at=end.at - BOOTED_AT,
            boot_id=self.node, pid=attempt.pid(rank), state="X", command="python", exit_code=end.exit_code,
            signal=end.signal, started_at=attempt.course.begin + self.ahead_seconds,
        )  # fmt: skip

    def stack(self, attempt: Attempt, rank: int, at: float) -> StackDump:
        """Return what py-spy shows of a rank."""
        _, activity = self.job.does(attempt, rank, at)
        busy = activity.state == "R"
        thread = Thread(
            frames=activity.frames(at + rank * 0.31), name="MainThread", os_thread_id=attempt.pid(rank), active=busy,
            owns_gil=busy and activity.owns_gil, main=True,
        )  # fmt: skip
        pid = attempt.pid(rank)
        return StackDump(
            **self._whose(attempt, rank), source=f"stacks/{pid}", at=at, boot_id=self.node, tool="py-spy", pid=pid,
            threads=(thread,),
        )  # fmt: skip

    def rings(self, attempt: Attempt, at: float, entries: int) -> Iterator[Record]:
        """Yield each rank's ring of the probe, and the steps that it reports."""
        for rank in self.job.ranks_on(self.node):
            if not attempt.runs(rank, at):
                continue
            whose = self._whose(attempt, rank)
            record = ring(self.job, attempt, rank, at, entries, self.ahead_seconds)
            yield msgspec.structs.replace(
                record, **whose, source=f"{attempt.pid(rank)}.ring", at=at, pid=attempt.pid(rank)
            )
            since = max(self._newest_reported.get(rank, 0), 0)
            rows = [one for one in attempt.course.steps(at - 4 * STATES_SECONDS, at) if one[0] > since]
            if rows:
                self._newest_reported[rank] = rows[-1][0]
                yield msgspec.structs.replace(
                    steps(rows, "probe", self.ahead_seconds), **whose, source=f"{attempt.pid(rank)}.ring", at=at
                )

    def _whose(self, attempt: Attempt, rank: int) -> dict[str, Any]:
        return {"job": self.job.name, "attempt": attempt.number, "rank": rank}
