"""Flight-recorder dumps of a live job at an instant: the simulator's own runs, moved to where the job stands.

A job that is held up is a run that ended in a hang: those who hold it up never entered what the others wait in. A job that
steps is a run that goes on while it is dumped. One whose collectives were captured in CUDA graphs shows what was there
when it was captured, without end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import msgspec

from collectors.records import FlightRecorderDump
from simulation.execution import Job, execute
from simulation.faults import Fault
from simulation.live.job import Attempt, LiveJob
from simulation.programs import Kind, Operation, Shape
from simulation.recorder import EPOCH_NS, WATCHDOG_NS, Recording, dumps

RING = 100
FIRST_NUMBER = 5000  # of the collectives before what a dump shows
TIMES = ("created_ns", "started_ns", "completed_ns")


def shape_of(job: LiveJob) -> Shape:
    """Return the job's parallel sizes: replicas of the whole model, or of a pipeline."""
    return Shape(tp=1, pp=job.stages, dp=job.world // job.stages, layers=1, microbatches=2, steps=3, barrier=True)


def recorders(
    job: LiveJob, attempt: Attempt, ranks: range, at: float, ahead_seconds: float
) -> Iterator[FlightRecorderDump]:
    """Yield the dumps of those of these ranks that can answer."""
    span, shape = attempt.course.span(at), shape_of(job)
    if at < attempt.course.first_step_at:
        return  # no worker server yet
    if job.habits.captured:
        image, idle_since = _image(shape, frozenset()), attempt.course.first_step_at
    elif span.activity == "training":
        paced = replace(shape, steps=5, pace=max(1.0, round(job.habits.step_seconds * 20)))
        image, idle_since = _image(paced, None), at
    else:
        image, idle_since = _image(shape, span.actors or frozenset(range(job.world))), span.begin
    shift_ns = int((idle_since + ahead_seconds) * 1e9) - (EPOCH_NS + image.idle_ns)
    for rank in ranks:
        if _deaf(job, attempt, rank, at):
            continue
        dump = image.dumps[rank]
        columns = dump.columns | {name: _moved(dump.columns[name], shift_ns) for name in TIMES}
        yield msgspec.structs.replace(
            dump, source=f"rank {rank}: worker server", at=at, job=job.name, attempt=attempt.number,
            pid=attempt.pid(rank), columns=columns,
        )  # fmt: skip


def _deaf(job: LiveJob, attempt: Attempt, rank: int, at: float) -> bool:
    """Whether a rank's worker server does not answer: it has ended or is stopped."""
    _, activity = job.does(attempt, rank, at)
    return not attempt.runs(rank, at) or activity.state in "Tt"


class _Image(NamedTuple):
    """Every rank's dump of a run, and the instant of the run at which it stood still, or at which it was dumped."""

    dumps: tuple[FlightRecorderDump, ...]
    idle_ns: int


@lru_cache(maxsize=16)
def _image(shape: Shape, holding: frozenset[int] | None) -> _Image:
    """Run a job in which these ranks never begin the last step but one; None: dump it halfway, while it goes on."""
    programs = Job.of(shape).programs
    faults = [Fault("never_entered", rank, _begin(programs[rank].operations)) for rank in sorted(holding or ())]
    trace = execute(Job.of(shape, faults), faults)
    idle_ns = trace.idle_at if holding is not None else trace.idle_at // 2
    dumped_ns = idle_ns + (WATCHDOG_NS * 10 if holding is not None else 0)
    recording = Recording((dumped_ns,) * shape.world, ring=RING, first_number=FIRST_NUMBER)
    return _Image(tuple(dumps(trace, recording)), idle_ns)


def _begin(operations: Sequence[Operation]) -> int:
    step = operations[-1].step - 1
    return next(
        index
        for index, operation in enumerate(operations)
        if operation.step == step and operation.kind in (Kind.COLLECTIVE, Kind.TRANSFER)
    )


def _moved(column: bytes, shift_ns: int) -> bytes:
    return array("q", [value + shift_ns if value >= 0 else value for value in array("q", column)]).tobytes()
