"""Folders of dumps with a known culprit, by the project's simulator: the cases of the bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simulation.execution import Job, execute
from simulation.faults import Fault
from simulation.programs import Kind, Program, Shape
from simulation.recorder import Recording, dumps
from tests.support.dump_files import write_files

STEPS = 8  # enough to fill the recorder's ring
SILENCE_NS = 600_000_000_000  # the watchdog's default timeout: the ranks dump ten minutes after the job stood still


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A Megatron-style job of tensor-parallel size 8 in which one rank stops before a tensor-parallel collective.

    ``place``: "last": of the last step, so that next to nothing is enqueued behind it; "middle": its peers' hosts
    enqueue much more before they wait for their devices. ``stages``: pipeline stages.
    """

    name: str
    ranks: int
    place: Literal["last", "middle"] = "last"
    stages: int = 1

    @property
    def shape(self) -> Shape:
        """Return the job's parallel sizes."""
        tensor = min(8, self.ranks // self.stages)
        return Shape(tp=tensor, pp=self.stages, dp=self.ranks // tensor // self.stages, steps=STEPS)

    @property
    def culprit(self) -> int:
        """Return the rank that stops: neither the first nor the last of anything."""
        return self.ranks * 3 // 8 + 1


def write(case: Case, folder: Path, entries: int) -> frozenset[int]:
    """Write one dump a rank; return who stopped."""
    program = Job.of(case.shape).programs[case.culprit]
    fault = Fault("never_entered", case.culprit, _place(program, case))
    trace = execute(Job.of(case.shape, [fault]), [fault])
    recording = Recording(dumped_at_ns=(trace.idle_at + SILENCE_NS,) * case.ranks, ring=entries)
    write_files(dumps(trace, recording), folder)
    return frozenset({case.culprit})


def _place(program: Program, case: Case) -> int:
    collectives = [
        index
        for index, operation in enumerate(program.operations)
        if operation.kind is Kind.COLLECTIVE and operation.dimension == "tp" and operation.step == STEPS - 1
    ]
    return collectives[-1] if case.place == "last" else collectives[len(collectives) // 2]
