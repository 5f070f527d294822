"""Drives the very engine over a simulated fleet: time is the fleet's, judgements are made at once, questions are answered.

What is counted is what a scheduler would see: incidents opened, verdicts published, machines proposed for replacement.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import inf
from typing import NamedTuple

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import (
    Alarm,
    Ask,
    Close,
    EngineEvent,
    EngineInstruction,
    EngineTick,
    Judge,
    Judged,
    Merge,
    Open,
    Publish,
    Received,
)
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import next_due_at, observe_batch, restore_incidents, step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident
from analyzers.model.verdict import Verdict
from collectors.records import Steps
from service.packaged_knowledge import load
from simulation.live.fleet import Delivery, Fleet
from simulation.live.scene_list import BEGAN_AT, Scene

REPLACING = frozenset({"evict", "drain_after_job", "reset_gpu", "reboot_node"})
TICK_SECONDS = 10.0
JUDGING_SECONDS = 0.5  # that a judgement is taken to need
NAIVE_SECONDS = 30.0
MOST_TICKS_AT_ONCE = 100
RESUMED_SECONDS = 300.0  # of the log


@cache
def knowledge() -> Knowledge:
    """Return the packaged knowledge, read once."""
    return load()


class Published(NamedTuple):
    """One version of an incident's verdict."""

    at: float
    incident: str
    version: int
    verdict: Verdict

    @property
    def replaces(self) -> tuple[str, ...]:
        """Return whom it proposes to replace: nodes, and ranks where no node is known."""
        action = self.verdict.action
        return (*action.nodes, *map(str, action.ranks)) if action.kind in REPLACING else ()


@dataclass(slots=True)
class Seen:
    """What a run came to."""

    opened: list[Incident] = field(default_factory=list)
    merged: list[Merge] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    closed: list[Close] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)
    batches: int = 0
    ticks: int = 0
    judgements: int = 0
    judging_seconds: float = 0.0

    @property
    def replacing(self) -> list[Published]:
        """Return the verdicts that propose to replace a machine."""
        return [one for one in self.published if one.replaces]


@dataclass(slots=True)
class Naive:
    """The control: after so long without a step of a job, evict the rank that has been silent for the longest."""

    evicted: list[tuple[float, str, int]] = field(default_factory=list)
    _steps: dict[str, tuple[int, float]] = field(default_factory=dict)  # job → newest step, when it was heard of
    _told: dict[str, dict[int, float]] = field(default_factory=dict)  # job → rank → instant of its newest record
    _done: set[tuple[str, int]] = field(default_factory=set)

    def see(self, received: Received) -> None:
        """Take up a batch."""
        for record in received.records:
            if record.job is None or record.rank is None:
                continue
            reported = self._told.setdefault(record.job, {})
            reported[record.rank] = max(reported.get(record.rank, 0.0), record.at or 0.0)
            newest = self._steps.get(record.job, (-1, 0.0))[0]
            if isinstance(record, Steps) and (record.step or 0) > newest:
                self._steps[record.job] = (record.step or 0, received.received_at)

    def tick(self, now: float) -> None:
        """Evict where the time is over, once a standstill."""
        for job, (newest, heard_at) in self._steps.items():
            if now - heard_at > NAIVE_SECONDS and (job, newest) not in self._done:
                self._done.add((job, newest))
                rank = min(self._told[job], key=lambda rank: (self._told[job][rank], rank))
                self.evicted.append((now, job, rank))


class Drive:
    """One engine and one fleet. ``away``: the spans in which no engine ran; the next one resumes from the log."""

    def __init__(self, fleet: Fleet, *, away: tuple[tuple[float, float], ...] = (), naive: bool = True) -> None:
        self.fleet, self.away = fleet, away
        self.state = EngineState(knowledge=knowledge())
        self.seen = Seen()
        self.naive = Naive() if naive else None
        self._tick_at = self._ticked_at = 0.0
        self._ticks_now = 0
        self._judged: list[tuple[float, Judged]] = []
        self._commands = count(1)
        self._log: deque[Received] = deque()  # what the next engine observes again

    def run(self, until: float) -> Seen:
        """Go on until an instant of the fleet's time."""
        self._tick_at = self._tick_at or self.fleet.next_at
        while True:
            judged_at = self._judged[0][0] if self._judged else inf
            wanted = next_due_at(self.state)
            tick_at = self._tick_at if wanted is None else min(self._tick_at, max(wanted, self.state.now))
            now = min(self.fleet.next_at, judged_at, tick_at)
            if now > until:
                return self.seen
            if now == self.fleet.next_at:
                if (delivery := self.fleet.receive()) is not None:
                    self._received(delivery)
            elif now == judged_at:
                self._do(self._judged.pop(0)[1], now)
            else:
                self._tick(now)

    def _received(self, delivery: Delivery) -> None:
        event = Received(
            sequence=delivery.sequence, received_at=delivery.received_at, node=delivery.node,
            records=delivery.records, sent_at=delivery.sent_at,
        )  # fmt: skip
        self.seen.batches += 1
        if self.away:
            self._log.append(event)
            while self._log[0].received_at < event.received_at - RESUMED_SECONDS:
                self._log.popleft()
        if self.naive is not None:
            self.naive.see(event)
        self._do(event, delivery.received_at)

    def _tick(self, now: float) -> None:
        for begin, end in self.away:
            if begin <= now < end:
                self._resume(end)
                return
        if now >= self._tick_at:
            self._tick_at = now + TICK_SECONDS
            if self.naive is not None:
                self.naive.tick(now)
        self.seen.ticks += 1
        self._ticks_now = self._ticks_now + 1 if now == self._ticked_at else 0
        self._ticked_at = now
        assert self._ticks_now < MOST_TICKS_AT_ONCE, (
            f"the engine wants a tick at {now}, again and again: {next_due_at(self.state)}"
        )
        self._do(EngineTick(), now)

    def _resume(self, now: float) -> None:
        """Begin anew, as an engine does after a kill: open incidents from the store, the newest batches from the log."""
        before, self._tick_at, self._judged = self.state, now, []
        self.state = EngineState(knowledge=knowledge())
        self.state.now = now
        restore_incidents(self.state, [(one, before.contexts.get(one.id, ())) for one in before.incidents.values()])
        for event in self._log:
            observe_batch(self.state, event)

    def _do(self, event: EngineEvent, now: float) -> None:
        _, instructions = step(self.state, event, now)
        for instruction in instructions:
            self._carry_out(instruction, now)

    def _carry_out(self, instruction: EngineInstruction, now: float) -> None:
        match instruction:
            case Open():
                self.seen.opened.append(instruction.incident)
            case Merge():
                self.seen.merged.append(instruction)
            case Ask():
                self.fleet.ask(now, instruction.nodes, instruction.verb, f"{next(self._commands)}")
            case Judge():
                self._judged.append((now + JUDGING_SECONDS, self._conclude(instruction)))
            case Publish():
                reported = Published(now, instruction.incident, instruction.version, instruction.verdict)
                self.seen.published.append(reported)
            case Close():
                self.seen.closed.append(instruction)
            case Alarm():
                self.seen.alarms.append(instruction)

    def _conclude(self, asked: Judge) -> Judged:
        began = time.perf_counter()
        judged = judge_cut(asked, self.state.knowledge)
        self.seen.judging_seconds += time.perf_counter() - began
        self.seen.judgements += 1
        return judged


def drive(scene: Scene, seed: int) -> tuple[Seen, Naive]:
    """Let an engine watch a scene to its end."""
    driver = Drive(Fleet([scene.job], seed, BEGAN_AT))
    seen = driver.run(scene.until)
    assert driver.naive is not None
    return seen, driver.naive


def names(verdict: Verdict, scene: Scene) -> bool:
    """Whether a verdict names exactly those at fault, by rank or by node, and gives a cause that is true."""
    truth = scene.truth
    ranks = {rank for culprit in verdict.culprits for rank in culprit.ranks}
    nodes = {culprit.id for culprit in verdict.culprits if culprit.kind == "node"}
    nodes |= {scene.job.node_of(rank) for rank in ranks}
    return verdict.cause in truth.causes and bool(nodes) and nodes <= set(truth.nodes) and ranks <= set(truth.ranks)


def upper_bound(count: int, days: float) -> float:
    """Return the 95 % upper bound of a rate a day, by Poisson's distribution: 3 / days where nothing was seen."""
    low, high = 0.0, 10.0 + 4.0 * count
    for _ in range(60):
        middle = (low + high) / 2
        chance = sum(math.exp(-middle) * middle**n / math.factorial(n) for n in range(count + 1))
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high / days
