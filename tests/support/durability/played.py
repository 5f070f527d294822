"""A recorded job, reported to a service once more as if it happened now: by real spools, shippers and polls, one a node.

Everything keeps its distance in time; what the agents were asked for when the job was recorded is reported when somebody asks.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzers.model.clocks import aligned
from collectors.agent.client import Client
from collectors.agent.commands import Command, CommandPoll
from collectors.agent.segment import Entry
from collectors.agent.settings import Settings
from collectors.agent.ship import Shipper
from collectors.agent.spool import Spool
from collectors.records import (
    CommandResult,
    FlightRecorderDump,
    ProcessState,
    Record,
    Samples,
    StackDump,
    block,
    bundle,
)

ANSWER_SECONDS = {"stacks": 1.5, "recorders": 0.5}  # as real agents take; anything else is answered at once
QUIET_SECONDS = 10.0  # an agent that has nothing new to tell still sends what it measures
ROUND_SECONDS = 6.0  # that a command's answer may take: an older stack was nobody's answer
ENDED = frozenset("XZ")
_BROUGHT: dict[type[Record], str] = {StackDump: "stacks", FlightRecorderDump: "recorders"}


class Clock:
    """The clocks of this machine, as an agent asks for them."""

    def now(self) -> float:
        """Return UTC seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Recording:
    """A job as its agents reported it. Rounds of answers are in the order in which they were asked for."""

    begun_at: float  # UTC seconds of the first batch that tells of the job
    reported: list[tuple[float, str, tuple[Record, ...]]] = field(default_factory=list)  # received_at, node, records
    answers: dict[tuple[str, str], list[list[Record]]] = field(default_factory=dict)  # (node, verb) → rounds
    # node → when it last reported an ordinary moment of the job's life, and what
    idle: dict[str, tuple[float, tuple[Record, ...]]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Return how long telling it takes."""
        return self.reported[-1][0] - self.begun_at

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return who tells."""
        return tuple(sorted({node for _, node, _ in self.reported}))


def recorded(path: Path, *, ends: bool) -> Recording:
    """Read the export of a job. ``ends``: its end is a part of the story; else it is left out, with all after it."""
    with path.open("rb") as stream:
        batches = [entry for entry in bundle.read(stream) if isinstance(entry, bundle.Batch) and entry.sequence]
    reported = [(one.received_at, block.decode(one.block)) for one in sorted(batches, key=lambda one: one.sequence)]
    recording = Recording(next(at for at, records in reported if any(record.job is not None for record in records)))
    brought: dict[tuple[str, str], list[tuple[float, Record]]] = defaultdict(list)
    for at, records in reported:
        if not ends and any(_has_ended(record) for record in records):
            break
        node = next((record.node for record in records if record.node), None)
        if node is None or at < recording.begun_at - QUIET_SECONDS:
            continue
        for record in records:
            if type(record) in _BROUGHT:
                brought[node, _BROUGHT[type(record)]].append((at, record))
            elif isinstance(record, CommandResult):
                _close_round(recording, node, record, brought.pop((node, record.verb), []))
        _tell(recording, at, node, [one for one in records if type(one) not in {*_BROUGHT, CommandResult}])
    recording.reported.sort(key=lambda one: one[0])
    return recording


def _tell(recording: Recording, at: float, node: str, records: list[Record]) -> None:
    if records:
        recording.reported.append((at, node, tuple(records)))
    idle = tuple(one for one in records if isinstance(one, Samples | ProcessState) and not _has_ended(one))
    if idle:
        recording.idle[node] = at, idle


def _close_round(recording: Recording, node: str, result: CommandResult, brought: list[tuple[float, Record]]) -> None:
    """Keep what a command brought; what is older was an ordinary look, and reported when it came."""
    since = (result.at or 0.0) - ROUND_SECONDS
    fresh = [record for _, record in brought if (record.at or 0.0) >= since]
    recording.answers.setdefault((node, result.verb), []).append([*fresh, result])
    recording.reported += [(at, node, (record,)) for at, record in brought if (record.at or 0.0) < since]


def _has_ended(record: Record) -> bool:
    return isinstance(record, ProcessState) and record.state in ENDED and record.rank is not None


class Player:
    """Tells a recording from now on, and answers what it is asked."""

    def __init__(self, recording: Recording, folder: Path, url: str) -> None:
        self._recording, self._later_seconds = recording, time.time() - recording.begun_at
        self._lock, self._stopped, self._numbers = threading.Condition(), False, itertools.count()
        self._due: list[tuple[float, int, str, tuple[Record, ...]]] = []  # a heap: UTC seconds, …
        self._asked: dict[tuple[str, str], int] = defaultdict(int)
        self._spools: dict[str, Spool] = {}
        self._shippers: list[Shipper] = []
        self._polls: list[CommandPoll] = []
        clock = Clock()
        for node in recording.nodes:
            (folder / node).mkdir(parents=True, exist_ok=True)
            spool = Spool(folder / node, node, clock, bytes_max=64 << 20, seal_seconds=QUIET_SECONDS)
            client = Client(Settings(service=url, node=node, state=folder / node), clock)
            self._spools[node] = spool
            self._shippers.append(Shipper(spool, client, clock, node))
            self._polls.append(CommandPoll(_Ear(self, node), client, node))  # type: ignore[arg-type] # all that it calls is take
        for at, node, records in recording.reported:
            self._plan(at + self._later_seconds, node, records)
        self._thread = threading.Thread(target=self._tell, name="player", daemon=True)

    def start(self) -> None:
        """Begin."""
        for shipper in self._shippers:
            shipper.start()
        for poll in self._polls:
            poll.start()
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing more."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        for poll in self._polls:
            poll.stop()
        for shipper in self._shippers:
            shipper.finish(0.0)
        self._thread.join()

    def answer(self, node: str, command: Command) -> None:
        """Plan the answer to a command: that of its round, and the last one again where there are no more."""
        rounds = self._recording.answers.get((node, command.verb), [])
        with self._lock:
            number = self._asked[node, command.verb]
            self._asked[node, command.verb] += 1
        records = list(rounds[min(number, len(rounds) - 1)]) if rounds else []
        result = next(
            (one for one in records if isinstance(one, CommandResult)), CommandResult(command="", outcome="nothing")
        )
        records = [record for record in records if not isinstance(record, CommandResult)]
        own = msgspec.structs.replace(result, command=command.id, verb=command.verb, node=node, at=self._then())
        self._plan(time.time() + ANSWER_SECONDS.get(command.verb, 0.0), node, (*records, own))

    def _then(self) -> float:
        return time.time() - self._later_seconds

    def _plan(self, at: float, node: str, records: Iterable[Record]) -> None:
        with self._lock:
            heapq.heappush(self._due, (at, next(self._numbers), node, tuple(records)))
            self._lock.notify()

    def _tell(self) -> None:
        told_at = dict.fromkeys(self._recording.nodes, time.time())
        while (due := self._next()) is not None:
            for node, records in due:
                self._ship(node, aligned(records, {node: -self._later_seconds}))
                told_at[node] = time.time()
            if time.time() < self._recording.begun_at + self._later_seconds + self._recording.seconds:
                continue
            for node, at in told_at.items():
                if time.time() - at >= QUIET_SECONDS and node in self._recording.idle:
                    idle_at, idle = self._recording.idle[node]
                    self._ship(node, aligned(idle, {node: idle_at - time.time()}))
                    told_at[node] = time.time()

    def _next(self) -> list[tuple[str, tuple[Record, ...]]] | None:
        """Wait until something is due, at most a second; None when it is over."""
        with self._lock:
            wait_seconds = self._due[0][0] - time.time() if self._due else 1.0
            if wait_seconds > 0 and not self._stopped:
                self._lock.wait(min(wait_seconds, 1.0))
            if self._stopped:
                return None
            due = []
            while self._due and self._due[0][0] <= time.time():
                _, _, node, records = heapq.heappop(self._due)
                due.append((node, records))
            return due

    def _ship(self, node: str, records: Iterable[Record]) -> None:
        entry = Entry(records=[block.encode([record]) for record in records])
        if entry.records:
            self._spools[node].add(entry)
            self._spools[node].seal(now=True)


@dataclass(frozen=True)
class _Ear:
    """One node's commands."""

    player: Player
    node: str

    def take(self, command: Command, _clock_offset_seconds: float | None = None) -> None:
        """Answer a command."""
        self.player.answer(self.node, command)


@contextmanager
def playing(recording: Recording, folder: Path, url: str) -> Iterator[Player]:
    """Tell a recording for a ``with`` block."""
    player = Player(recording, folder, url)
    player.start()
    try:
        yield player
    finally:
        player.stop()
