"""Which of Slurm's jobs a remediation is about: the one whose ranks were seen, and never another tenant's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from service.adapters.slurm_commands import Slurm
from service.adapters.slurm_finding import Elsewhere, Placed, work_of
from service.adapters.slurm_output import Job, Node

SEEN = Placed(("gpu0", "gpu1"), 4_000.0)  # seconds ago: at 1,000 by Slurm's clock, whatever others say


class Cluster:
    """A Slurm of four nodes and these jobs."""

    def __init__(self, *jobs: Job) -> None:
        self._jobs = jobs

    def node(self, name: str) -> Node | None:
        """Return a node."""
        return Node(name=name, flags=frozenset({"IDLE"})) if name in ("gpu0", "gpu1", "gpu2", "gpu3") else None

    def job(self, number: str) -> Job | None:
        """Return a job."""
        return next(iter(self.parts(number)), None)

    def parts(self, number: str) -> list[Job]:
        """Return a job."""
        return [job for job in self._jobs if job.number == number]

    def jobs_on(self, nodes: Sequence[str]) -> list[Job]:
        """Return the jobs on any of these nodes."""
        return [job for job in self._jobs if set(nodes) & set(job.nodes)]

    def jobs_named(self, name: str) -> list[Job]:
        """Return the jobs of this name."""
        return [job for job in self._jobs if job.name == name]

    def clock(self) -> float:
        """Return Slurm's own time."""
        return 5_000.0

    def unrequeueable(self, _number: str) -> str | None:
        """Return that it can be."""
        return None


def job(number: str, state: str, name: str, started_at: float | None = 900.0, nodes: Sequence[str] = SEEN.nodes) -> Job:
    """Return a job of Slurm's."""
    return Job(number=number, state=state, name=name, started_at=started_at, nodes=tuple(nodes))


def number_of(*jobs: Job, job: str = "llama") -> str | None:
    """Return the number of the job that a restart would be of."""
    found: dict[str, Any] = {
        "incident": "inc-1", "id": "rem-1", "kind": "restart_job", "job": job, "nodes": [], "why": "it hangs",
        "symptom": "hang", "fault_class": "never_entered", "probability": 0.9,
    }  # fmt: skip
    try:
        return work_of(cast("Slurm", Cluster(*jobs)), found, lambda: SEEN).job
    except Elsewhere:
        return None


@pytest.mark.parametrize(
    ("jobs", "number"),
    [
        ([job("7", "RUNNING", "own-name")], "7"),
        ([job("7", "RUNNING", "own-name"), job("6", "RUNNING", "other")], None),
        ([job("7", "RUNNING", "llama"), job("6", "RUNNING", "other")], "7"),
        ([job("7", "FAILED", "llama")], "7"),
        ([job("7", "PENDING", "llama", None, ())], "7"),
        ([job("7", "FAILED", "llama"), job("8", "PENDING", "llama", 2_000.0, ())], None),
        ([job("7", "RUNNING", "own-name", nodes=("gpu0", "gpu2"))], None),
    ],
)
def test_a_job_with_a_name_of_its_own(jobs: list[Job], number: str | None) -> None:
    """It is the one that runs where its ranks were seen, or the only one of its name; of two it is neither."""
    assert number_of(*jobs) == number


def test_who_came_after_it_is_not_restarted_in_its_place() -> None:
    """The job has ended, and another tenant's began on its nodes after its ranks were last seen: nothing is restarted."""
    assert number_of(job("8", "RUNNING", "other", 1_010.0)) is None
    assert number_of(job("7", "FAILED", "own-name"), job("8", "RUNNING", "other", 1_010.0)) is None


def test_a_job_of_the_same_name_elsewhere_is_not_restarted() -> None:
    """Another user's job is called the same and runs on other nodes: nothing is restarted."""
    assert number_of(job("8", "RUNNING", "llama", nodes=("gpu2", "gpu3"))) is None


def test_a_job_is_known_by_its_number() -> None:
    """Agents call it by name and number: no other is looked for, whatever runs on its nodes."""
    assert number_of(job("7", "RUNNING", "llama"), job("8", "RUNNING", "llama"), job="llama-7") == "7"
