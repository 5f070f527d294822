"""A job that stops, moves, and stops again before anybody could know that it moved: two incidents, not one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.incidents.messages import Close, EngineInstruction, EngineTick, Open, Received
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from collectors.records import Steps
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob


def opened_and_closed(job: WatchedJob, seconds: float) -> list[tuple[float, str]]:
    """When incidents were opened and closed, by an engine whose judgements never come back."""
    state, found = EngineState(load()), list[tuple[float, str]]()

    def note(at: float, instructions: list[EngineInstruction]) -> None:
        for one in instructions:
            if isinstance(one, Open | Close):
                found.append((round(at - START), type(one).__name__))

    for batch in job.batches(0.0, seconds):
        state, reported = step(state, batch, batch.received_at)
        note(batch.received_at, reported)
        state, reported = step(state, EngineTick(), batch.received_at + 1.0)
        note(batch.received_at + 1.0, reported)
    return found


@pytest.mark.parametrize("steps_between", [3, 10, 30])
def test_a_job_that_stops_again_at_once_has_a_second_incident(steps_between: int) -> None:
    """The second stop is reported even where the first incident was closed after it."""
    stop = 100 + steps_between
    job = WatchedJob(law=lambda number, _: 61.0 if number == 101 else 1.0, stopped_at=161.0 + steps_between)
    found = opened_and_closed(job, 400.0)

    assert [what for _, what in found] == ["Open", "Close", "Open"], stop
    assert found[2][0] <= 161.0 + steps_between + 120.0


def test_a_job_that_moves_on_is_not_opened_anew() -> None:
    """After one pause that nobody expected the job trains for ten minutes: one incident, closed."""
    found = opened_and_closed(WatchedJob(law=lambda number, _: 61.0 if number == 101 else 1.0), 800.0)

    assert [what for _, what in found] == ["Open", "Close"]


class Unnumbered(WatchedJob):
    """A job whose processes say which attempt they are of, and whose log does not."""

    def batch(self, number: int, at: float) -> Received:
        """One node's batch."""
        reported = super().batch(number, at)
        steps = (replace(one, attempt=None) if isinstance(one, Steps) else one for one in reported.records)
        return replace(reported, records=tuple(steps))


def test_a_hang_that_is_told_with_and_without_a_number_is_one_incident() -> None:
    """Records of the job that name no attempt are of the attempt that others name: they make no second job of it."""
    assert [what for _, what in opened_and_closed(Unnumbered(stopped_at=200.0), 400.0)] == ["Open"]
