"""The log again: its published verdicts judged again, or the whole engine run over it.

A bundle of an incident holds the batches that its verdicts were judged from. At each cut the same records are selected and
judged as then: the same program with the same knowledge gives the same bytes. A rerun of the engine sends no command to
agents: their answers are in the log only where they were asked for at the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.incidents.evidence import Evidence, select_records
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import (
    Declared,
    EngineEvent,
    EngineInstruction,
    EngineTick,
    Judge,
    Judged,
    Received,
    attributed,
)
from analyzers.incidents.rounds import ANSWER_SECONDS
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import TICK_SECONDS, next_due_at, remember_declared, step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from collectors.records import Record

LEAST_TICK_SECONDS = 0.5  # between two ticks
AFTER_SECONDS = ANSWER_SECONDS + 4.0  # past the last batch, so that an open evidence round ends and is judged


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """The incident whose verdicts are judged again. ``nodes``: in the order in which they joined it."""

    incident: str
    job: str | None
    attempt: int | None
    nodes: tuple[str, ...]
    context: tuple[Record, ...] = ()


def rejudge_cuts(
    case: ReplayCase, cuts: Iterable[Cut], batches: Iterable[Received], knowledge: Knowledge
) -> Iterator[Judged]:
    """Yield each cut's judgement, the earliest cut first; the batches come once, in the log's order."""
    waiting = deque(sorted(cuts, key=lambda cut: (cut.through, cut.at)))
    kept: dict[str, Evidence] = {}
    newest = 0
    for batch in batches:
        while waiting and batch.sequence > waiting[0].through:
            yield _rejudge(case, waiting.popleft(), kept, knowledge)
        if not waiting:
            return
        if batch.sequence > newest:  # a bundle that was put together from two may hold a batch twice
            kept.setdefault(batch.node, Evidence()).add(batch.sequence, attributed(batch).records)
            newest = batch.sequence
    for cut in waiting:
        yield _rejudge(case, cut, kept, knowledge)


def rerun_engine(
    batches: Iterable[Received], knowledge: Knowledge, declared: Iterable[Declared] = ()
) -> Iterator[tuple[float, EngineInstruction]]:
    """Yield (instant of receipt, instruction) for batches in the log's order; judgements are made at once."""
    state = EngineState(knowledge=knowledge)
    for one in declared:
        remember_declared(state, one)
    now: float | None = None
    for batch in batches:
        if now is None:
            now = state.ticked_at = batch.received_at
        yield from _tick_until(state, now, batch.received_at)
        now = max(now, batch.received_at)
        yield from _step(state, batch, now)
    if now is not None:
        yield from _tick_until(state, now, now + AFTER_SECONDS)


def _rejudge(case: ReplayCase, cut: Cut, kept: dict[str, Evidence], knowledge: Knowledge) -> Judged:
    records = select_records(kept, case.nodes[: cut.nodes], case.context, cut, case.job, case.attempt)
    return judge_cut(Judge(incident=case.incident, cut=cut, records=records, attempt=case.attempt), knowledge)


def _tick_until(state: EngineState, begin: float, end: float) -> Iterator[tuple[float, EngineInstruction]]:
    """Let time pass: a tick every ten seconds, and whenever something is due."""
    at = begin
    while (at := max(_next_tick_at(state), at + LEAST_TICK_SECONDS)) <= end:
        yield from _step(state, EngineTick(), at)


def _next_tick_at(state: EngineState) -> float:
    ordinary = state.ticked_at + TICK_SECONDS
    sooner = next_due_at(state)
    return ordinary if sooner is None else min(ordinary, sooner)


def _step(state: EngineState, event: EngineEvent, now: float) -> Iterator[tuple[float, EngineInstruction]]:
    _state, instructions = step(state, event, now)
    for instruction in instructions:
        if isinstance(instruction, Judge):
            yield from _step(state, judge_cut(instruction, state.knowledge), now)
        else:
            yield now, instruction
