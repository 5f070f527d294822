"""A job that a loop starts again and that dies again soon: each of its deaths is reported, though the next run comes at once."""

from __future__ import annotations

import pytest

from analyzers.incidents.messages import (
    Close,
    EngineEvent,
    EngineInstruction,
    EngineTick,
    Judge,
    Judged,
    Open,
    Received,
)
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import TICK_SECONDS, next_due_at, step
from analyzers.model.verdict import Verdict
from collectors.records import Members, Placement, ProcessState, Record
from service.packaged_knowledge import load

START = 1_763_000_000.0
RANKS = 3


class Engine:
    """The engine as its driver runs it: a tick when one is due and no other, and each judgement half a second later."""

    def __init__(self) -> None:
        self.state, self.at, self.sequence = EngineState(load()), START, 0
        self.said: list[tuple[float, EngineInstruction]] = []
        self.judging: list[tuple[float, Judge]] = []

    def _give(self, event: EngineEvent) -> None:
        for one in step(self.state, event, self.at)[1]:
            self.said.append((self.at - START, one))
            if isinstance(one, Judge):
                self.judging.append((self.at + 0.5, one))

    def pass_to(self, at: float) -> None:
        while True:
            due = min(self.state.ticked_at + TICK_SECONDS, next_due_at(self.state) or 1e18)
            judged = min((when for when, _ in self.judging), default=1e18)
            soonest = max(min(due, judged), self.at + 0.05)
            if soonest > START + at:
                break
            self.at = soonest
            if judged <= self.at:
                _, asked = self.judging.pop(0)
                verdict = Verdict(symptom="crash", cause="code", abstained=False, attempt=asked.attempt)
                self._give(Judged(incident=asked.incident, cut=asked.cut, verdict=verdict))
            self._give(EngineTick())
        self.at = START + at

    def hear(self, at: float, *records: Record) -> None:
        self.pass_to(at)
        self.sequence += 1
        self._give(Received(sequence=self.sequence, received_at=self.at, node="n0", records=records, sent_at=self.at))

    def opened(self) -> list[tuple[float, float]]:
        """When each incident was opened, and of which instant it is."""
        return [(at, one.incident.onset_at - START) for at, one in self.said if isinstance(one, Open)]


def run_of(number: int, began_at: float, died_at: float, attempt: int) -> list[tuple[float, list[Record]]]:
    """One run: its placement, a reading, and how it died: rank 1 raises, and its launcher ends the others by SIGTERM."""
    pids = tuple(100 * (number + 1) + rank for rank in range(RANKS))
    whose = {"job": "run", "attempt": attempt}
    placed = Placement(
        **whose,
        at=START + began_at,
        ranks=Members.of(range(RANKS)),
        nodes=("n0",) * RANKS,
        pids=pids,
        started_ats=(START + began_at,) * RANKS,
        world_size=RANKS,
    )
    rows = [
        ProcessState(**whose, rank=rank, pid=pid, state="R", at=START + began_at + 1.0, started_at=START + began_at)
        for rank, pid in enumerate(pids)
    ]
    ends = [
        ProcessState(
            **whose,
            rank=rank,
            pid=pid,
            state="X",
            at=START + died_at + (0.0 if rank == 1 else 0.4),
            started_at=START + began_at,
            exit_code=1 if rank == 1 else None,
            signal=None if rank == 1 else 15,
        )
        for rank, pid in enumerate(pids)
    ]
    return [(began_at + 1.5, [placed, *rows]), (died_at + 1.0, list(ends))]


@pytest.mark.parametrize("seconds", [9.0, 12.0, 20.0, 33.0])
@pytest.mark.parametrize("counted", [False, True])
def test_every_death_of_a_loop_is_told(counted: bool, seconds: float) -> None:
    """Runs with four seconds between them, of an ``until`` loop or counted by the launcher."""
    engine = Engine()
    engine.hear(0.0)
    died = [20.0 + seconds * number for number in range(6)]
    for number, at in enumerate(died):
        for when, records in run_of(number, at - seconds + 4.0, at, number if counted else 0):
            engine.hear(when, *records)
    engine.pass_to(died[-1] + 60.0)

    assert [about for _, about in engine.opened()] == died
    assert not engine.state.incidents


def test_a_death_is_told_when_the_wait_for_the_others_is_over() -> None:
    """No batch and no ordinary tick comes in between: the next run is there before them."""
    engine = Engine()
    engine.hear(0.0)
    engine.pass_to(10.0)
    for when, records in run_of(0, 10.5, 20.5, 0):
        engine.hear(when, *records)
    engine.pass_to(26.0)

    assert [about for _, about in engine.opened()] == [20.5]
    assert engine.opened()[0][0] < 25.0


def test_the_wait_is_over_once() -> None:
    """The engine does not ask to be woken again and again for a death that it has weighed."""
    engine = Engine()
    engine.hear(0.0)
    for when, records in run_of(0, 10.5, 20.5, 0):
        engine.hear(when, *records)
    engine.pass_to(120.0)
    assert [one for _, one in engine.said if isinstance(one, Close)]
    assert next_due_at(engine.state) is None
