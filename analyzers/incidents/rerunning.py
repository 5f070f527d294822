"""The engine itself over a stretch of the log, judging inline: which incidents it would have opened, and what it would say.

What it asks for is not fetched: the answers are in the log only where somebody asked at the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import EngineEvent, EngineInstruction, EngineTick, Judge, Received
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import ANSWER_SECONDS, TICK_SECONDS, next_due_at, step
from analyzers.knowledge import Knowledge

SOONEST_SECONDS = 0.5  # between two ticks
AFTERWARDS_SECONDS = ANSWER_SECONDS + 4.0  # that an open look has at the end: its judgement is of what came before


def rerun_engine(batches: Iterable[Received], knowledge: Knowledge) -> Iterator[tuple[float, EngineInstruction]]:
    """Yield (instant of receipt, what the engine wants done) for batches in the log's order."""
    state = EngineState(knowledge=knowledge)
    now: float | None = None
    for batch in batches:
        if now is None:
            now = state.ticked_at = batch.received_at
        yield from _ticked(state, now, batch.received_at)
        now = max(now, batch.received_at)
        yield from _stepped(state, batch, now)
    if now is not None:
        yield from _ticked(state, now, now + AFTERWARDS_SECONDS)


def _ticked(state: EngineState, begin: float, end: float) -> Iterator[tuple[float, EngineInstruction]]:
    """Let time pass: a tick every ten seconds, and whenever something is due."""
    at = begin
    while (at := max(_next(state), at + SOONEST_SECONDS)) <= end:
        yield from _stepped(state, EngineTick(), at)


def _next(state: EngineState) -> float:
    ordinary = state.ticked_at + TICK_SECONDS
    sooner = next_due_at(state)
    return ordinary if sooner is None else min(ordinary, sooner)


def _stepped(state: EngineState, event: EngineEvent, now: float) -> Iterator[tuple[float, EngineInstruction]]:
    _state, instructions = step(state, event, now)
    for instruction in instructions:
        if isinstance(instruction, Judge):
            yield from _stepped(state, judge_cut(instruction, state.knowledge), now)
        else:
            yield now, instruction
