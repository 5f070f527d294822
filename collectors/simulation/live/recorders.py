"""Flight-recorder dumps of a live job at an instant: the simulator's own runs, moved to where the job stands.

A job that is held up is a run that ended in a hang: those who hold it up never entered what the others wait in. A job that
steps is a run that goes on while it is dumped. One whose collectives were captured in CUDA graphs shows what was there
when it was captured, for ever.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import msgspec

from collectors.records import FlightRecorderDump
from collectors.simulation.execution import Job, Trace, execute
from collectors.simulation.faults import Fault
from collectors.simulation.live.job import Attempt, LiveJob
from collectors.simulation.programs import Kind, Shape
from collectors.simulation.recorder import EPOCH_NS, Recording, dumps

SECOND = 1_000_000_000
RING = 100
TIMES = ("created_ns", "started_ns", "completed_ns")


def shape_of(job: LiveJob) -> Shape:
    """Return the job's parallel sizes: replicas of the whole model, or of a pipeline."""
    return Shape(tp=1, pp=job.stages, dp=job.world // job.stages, layers=1, microbatches=2, steps=3, barrier=True)


def recorders(
    job: LiveJob, attempt: Attempt, ranks: range, at: float, ahead_seconds: float
) -> Iterator[FlightRecorderDump]:
    """Yield the dumps of those of these ranks that can answer."""
    span = attempt.course.span(at)
    holding = frozenset(range(job.world)) if not span.actors else span.actors
    shape = shape_of(job)
    if job.habits.captured:
        trace, stands_since = _run(shape, frozenset()), attempt.course.first_step_at
        dumped_ns = trace.idle_at + max(0, int((at - stands_since) * SECOND))
    elif span.doing == "training" or span.begin > at:
        paced = replace(shape, steps=5, pace=max(1.0, job.habits.step_seconds * 20))
        trace = _run(paced, frozenset())
        dumped_ns = int(trace.idle_at * (0.4 + 0.2 * (at % 1.0)))
    else:
        trace = _run(shape, holding)
        dumped_ns = trace.idle_at + int((at - span.begin) * SECOND)
    shift_ns = int((at + ahead_seconds) * 1e9) - (EPOCH_NS + dumped_ns)
    silent = frozenset(rank for rank in range(job.world) if rank not in ranks or _deaf(job, attempt, rank, at))
    number = 0 if span.step == 0 else 50 + span.step * 20
    recording = Recording((dumped_ns,) * job.world, ring=RING, without=silent, first_number=number)
    for dump in dumps(trace, recording):
        columns = dump.columns | {name: _moved(dump.columns[name], shift_ns) for name in TIMES}
        assert dump.rank is not None
        yield msgspec.structs.replace(
            dump, source=f"rank {dump.rank}: worker server", at=at, job=job.name, attempt=attempt.number,
            pid=attempt.pid(dump.rank), columns=columns,
        )  # fmt: skip


def _deaf(job: LiveJob, attempt: Attempt, rank: int, at: float) -> bool:
    """Whether a rank's worker server does not answer: it is gone, stopped, or has none yet."""
    _, doing = job.does(attempt, rank, at)
    return not attempt.runs(rank, at) or doing.state in "Tt" or at < attempt.course.first_step_at


@lru_cache(maxsize=64)
def _run(shape: Shape, holding: frozenset[int]) -> Trace:
    """Run a job in which these ranks never begin the last step but one."""
    programs = Job.of(shape).programs
    faults = [Fault("never_entered", rank, _begin(programs[rank].operations)) for rank in sorted(holding)]
    return execute(Job.of(shape, faults), faults)


def _begin(operations: list) -> int:  # type: ignore[type-arg]
    step = operations[-1].step - 1
    return next(
        index
        for index, operation in enumerate(operations)
        if operation.step == step and operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER)
    )


def _moved(column: bytes, shift_ns: int) -> bytes:
    return array("q", [value + shift_ns if value >= 0 else value for value in array("q", column)]).tobytes()
