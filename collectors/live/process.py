"""Every rank's process and those below it: running, stopped, stuck in the kernel, or ended, and which ended first.

Ends and stops are read every second, which costs one line of /proc a rank; slow values every ten seconds, and those of
data-loader workers and other children every minute.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from collectors.files.process_stat import TICKS_A_SECOND, Stat
from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.exits import ExitWatcher, ProcessExit
from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import (
    PAGE_BYTES,
    booted_at,
    callable_by_number,
    stat_of,
    still_runs,
    voluntary_switches,
    wait_channel,
)
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.system_files import pairs, text
from collectors.records import ProcessState

STATES_EVERY_SECONDS = 10.0
STOPPED_EVERY_SECONDS = 5.0  # of a process that is stopped: for how long is what counts
CHILDREN_EVERY_SECONDS = 60.0
LISTEN_SECONDS = 0.8  # of a run, where the kernel does not report the instants of exits
MOST_CHILDREN = 1_024  # of all ranks together

GAUGES = ("resident_bytes", "threads")
COUNTERS = ("cpu_milliseconds_total", "major_faults_total")


@dataclass(slots=True)
class _Followed:
    """One process that is followed to its end: a rank's, or one below it."""

    owner: TrainingProcess
    stat: Stat  # the newest
    child: bool
    watched: bool  # by a pidfd, which reports its end
    stopped: bool = False
    reported_at: float = float("-inf")  # by the boot's clock, of its newest row


@collector(
    "process",
    gives="each rank's process: running, stopped, stuck in the kernel, ended and how",
    every_seconds=1.0,
    limit_seconds=5.0,
)
class Processes:
    """Follows the training processes, and those below them, to their ends."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._proc = str(host.roots.proc)
        self._booted_at = booted_at(host.roots.proc)
        self._exits = ExitWatcher()
        self._followed: dict[int, _Followed] = {}
        self._ends_to_report: deque[ProcessState] = deque()  # an end is read once, and a run may be cut
        self._seen: tuple[TrainingProcess, ...] | None = None
        self._states_at = self._children_at = float("-inf")
        self._kept: list[list[Any]] | None = None

    def __call__(self, request: Request | None) -> Iterable[Yielded]:
        """Yield ends and stops at once, states and readings when they are due."""
        empty = True
        for one in self._run(all_due=request is not None):
            empty = False
            yield one
        if empty and not self._followed:
            raise NothingToCollect("no training process runs here")

    def _run(self, *, all_due: bool) -> Iterator[Yielded]:
        if self._kept is None:
            yield from self._missed()
        yield from self._ends()
        self._follow()
        now = self._host.clock.monotonic()
        states = all_due or now - self._states_at >= STATES_EVERY_SECONDS
        children = all_due or now - self._children_at >= CHILDREN_EVERY_SECONDS
        for one in tuple(self._followed.values()):
            if not one.child or children or not one.watched:
                yield from self._state(one, due=children if one.child else states)
        if states:
            self._states_at = now
            yield from self._readings()
        if children:
            self._children_at = now
        yield from self._cursor()

    def _missed(self) -> Iterator[ProcessState]:
        """Yield the ranks that ended while no agent ran; how they ended is unknown."""
        self._kept = _kept(self._host)
        for pid, start_ticks, rank, job, attempt, role in self._kept:
            stat = stat_of(self._proc, pid)
            if stat is None or stat.start_ticks != start_ticks:
                of = {"rank": rank, "job": job, "attempt": attempt, "role": role}
                yield ProcessState(source="process", pid=pid, state="X", started_at=self._started_at(start_ticks), **of)

    def _ends(self) -> Iterator[ProcessState]:
        """Yield the processes that ended since the last run, in the order of their ends where the kernel reports it."""
        ended = self._exits.ended(LISTEN_SECONDS if self._followed and not self._exits.exact else 0.0)
        for pid, end in sorted(ended.items(), key=lambda item: (-item[1].ago_seconds, item[0])):
            if (one := self._followed.get(pid)) is not None:
                status = _zombie_status(stat_of(self._proc, pid), one) if end.status is None else end.status
                self._ends_to_report.append(self._end(one, ProcessExit(status, end.ago_seconds)))
        while self._ends_to_report:
            yield self._ends_to_report.popleft()

    def _end(self, one: _Followed, end: ProcessExit) -> ProcessState:
        del self._followed[one.stat.pid]
        clock = self._host.clock
        if not one.child:
            self._host.first_looks.hurry(clock.monotonic())
        return self._row(
            one,
            state="X",
            at=clock.now() - end.ago_seconds,
            monotonic_at=clock.monotonic() - end.ago_seconds,
            exit_code=end.exit_code,
            signal=end.signal,
        )

    def _follow(self) -> None:
        """Begin to follow the new training processes and those below them."""
        if (found := self._host.training()) is self._seen:
            return
        self._seen = found
        self._leave({(one.pid, one.start_ticks) for one in found})
        for owner in found:
            stat = stat_of(self._proc, owner.pid)
            if stat is not None and stat.start_ticks == owner.start_ticks and self._begin(owner, stat, child=False):
                self._host.first_looks.take(self._host.roots.proc, owner, self._host.clock.monotonic())
        children = sum(one.child for one in self._followed.values())
        for owner in found:
            for stat in self._host.process_table.descendants(owner.pid)[: max(0, MOST_CHILDREN - children)]:
                children += self._begin(owner, stat, child=True)

    def _leave(self, ranks: set[tuple[int, int]]) -> None:
        """Stop following a launcher that was taken for a rank and still runs: its end is not a rank's."""
        for one in tuple(self._followed.values()):
            owner = one.owner
            if (owner.pid, owner.start_ticks) not in ranks and still_runs(self._proc, owner):
                self._exits.forget(one.stat.pid)
                del self._followed[one.stat.pid]

    def _begin(self, owner: TrainingProcess, stat: Stat, *, child: bool) -> bool:
        old = self._followed.get(stat.pid)
        if stat.ended or (old is not None and old.stat.start_ticks == stat.start_ticks):
            return False
        watched = callable_by_number(self._host.roots.proc, stat.pid) and self._exits.watch(stat.pid)
        now = stat_of(self._proc, stat.pid)
        if now is None or now.start_ticks != stat.start_ticks:  # its id is already another's
            self._exits.forget(stat.pid)
            return False
        self._followed[stat.pid] = _Followed(owner, now, child, watched)
        return True

    def _state(self, one: _Followed, *, due: bool) -> Iterator[ProcessState]:
        stat = stat_of(self._proc, one.stat.pid)
        if stat is None or stat.start_ticks != one.stat.start_ticks or stat.ended:
            if not one.watched:
                yield self._end(one, ProcessExit(_zombie_status(stat, one), 0.0))
            return
        one.stat = stat
        stopped, now = stat.state == "T", self._host.clock.monotonic()
        if due or stopped != one.stopped or (stopped and now - one.reported_at >= STOPPED_EVERY_SECONDS):
            one.stopped, one.reported_at = stopped, now
            switches = None if one.child else voluntary_switches(self._proc, stat.pid)
            channel = wait_channel(self._proc, stat.pid)
            yield self._row(one, state=stat.state, wait_channel=channel, voluntary_switches=switches)

    def _row(self, one: _Followed, **more: Any) -> ProcessState:
        stat = one.stat
        return ProcessState(
            source="process",
            pid=stat.pid,
            parent_pid=stat.parent_pid if one.child else None,
            command=stat.name,  # the command line may hold a key, and reading it may wait for a stuck process
            started_at=self._started_at(stat.start_ticks),
            cpu_seconds=stat.cpu_ticks / TICKS_A_SECOND,
            resident_bytes=stat.resident_pages * PAGE_BYTES,
            # The kernel counts a kill for memory before it sends the signal.
            oom_kills_total=None if one.child else pairs(text(f"{self._proc}/vmstat")).get("oom_kill"),
            **one.owner.of_records,
            **more,
        )

    def _started_at(self, start_ticks: int) -> float | None:
        return None if self._booted_at is None else self._booted_at + start_ticks / TICKS_A_SECOND

    def _readings(self) -> Iterator[Readings]:
        stats = [one.stat for one in self._followed.values() if not one.child]
        if stats:
            devices = [str(stat.pid) for stat in stats]
            gauges = [(float(stat.resident_pages * PAGE_BYTES), float(stat.threads)) for stat in stats]
            counters = [(stat.cpu_ticks * 1000 // TICKS_A_SECOND, stat.major_faults) for stat in stats]
            yield Readings("process", devices, GAUGES, gauges)
            yield Readings("process", devices, COUNTERS, counters, "<i8")

    def _cursor(self) -> Iterator[Cursor]:
        """Keep the ranks that are followed, so that the next agent can report which ended before its start."""
        kept = [
            [one.stat.pid, one.stat.start_ticks, one.owner.rank, one.owner.job, one.owner.attempt, one.owner.role]
            for one in self._followed.values()
            if not one.child
        ]
        if kept != self._kept:
            self._kept = kept
            yield Cursor({"boot_id": self._host.boot_id, "ranks": kept})


def _kept(host: Host) -> list[list[Any]]:
    """Return the ranks that the last agent of this boot followed; a row of another shape is ignored."""
    cursor = host.cursor("process")
    if not isinstance(cursor, dict) or cursor.get("boot_id") != host.boot_id:
        return []
    ranks = cursor.get("ranks")
    rows = ranks if isinstance(ranks, list) else []
    return [row for row in rows if isinstance(row, list) and len(row) == 6 and all(isinstance(n, int) for n in row[:3])]


def _zombie_status(stat: Stat | None, one: _Followed) -> int | None:
    """Return the exit status in the stat line of a zombie; 0 may also mean that we may not read it."""
    if stat is None or stat.start_ticks != one.stat.start_ticks or not stat.ended:
        return None
    return stat.exit_status if stat.exit_status or os.geteuid() == 0 else None
