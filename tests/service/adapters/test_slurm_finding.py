"""Which of Slurm's jobs a remediation is about: the one whose ranks were seen, and never another tenant's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from service.adapters.scheduler import NotHere, Placed
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_finding import work_of
from service.adapters.slurm.slurm_output import SlurmJob, SlurmNode

SEEN = Placed(("gpu0", "gpu1"), 400.0)  # seconds ago: at 4,600 by Slurm's clock, whatever others say


class Cluster:
    """A Slurm of four nodes and these jobs."""

    def __init__(self, *jobs: SlurmJob, has_run: bool = True) -> None:
        self._jobs, self._has_run = jobs, has_run

    def node(self, name: str) -> SlurmNode | None:
        """Return a node."""
        return SlurmNode(name=name, flags=frozenset({"IDLE"})) if name in ("gpu0", "gpu1", "gpu2", "gpu3") else None

    def job(self, number: str) -> SlurmJob | None:
        """Return a job."""
        return next(iter(self.parts(number)), None)

    def parts(self, number: str) -> list[SlurmJob]:
        """Return a job."""
        return [job for job in self._jobs if job.number == number]

    def jobs_on(self, nodes: Sequence[str]) -> list[SlurmJob]:
        """Return the jobs on any of these nodes."""
        return [job for job in self._jobs if set(nodes) & set(job.nodes)]

    def jobs_named(self, name: str) -> list[SlurmJob]:
        """Return the jobs of this name."""
        return [job for job in self._jobs if job.name == name]

    def clock(self) -> float:
        """Return Slurm's own time."""
        return 5_000.0

    def unrequeueable(self, _number: str) -> str | None:
        """Return that it can be."""
        return None

    def has_run(self, _number: str) -> bool:
        """Return whether what waits has run."""
        return self._has_run


def job(
    number: str,
    state: str,
    name: str,
    started_at: float | None = 900.0,
    nodes: Sequence[str] = SEEN.nodes,
    ended_at: float | None = None,
) -> SlurmJob:
    """Return a job of Slurm's."""
    return SlurmJob(number=number, state=state, name=name, started_at=started_at, nodes=tuple(nodes), ended_at=ended_at)


def found_of(job: str = "llama", kind: str = "restart_job", nodes: Sequence[str] = ()) -> dict[str, Any]:
    """Return a remediation as the service has it."""
    return {
        "incident": "inc-1", "id": "rem-1", "kind": kind, "job": job, "nodes": list(nodes), "why": "it hangs",
        "symptom": "hang", "fault_class": "never_entered", "probability": 0.9, "began_at": None,
    }  # fmt: skip


def number_of(*jobs: SlurmJob, job: str = "llama", seen: Placed = SEEN, **changed: Any) -> str | None:
    """Return the number of the job that a restart would be of."""
    try:
        return work_of(cast("Slurm", Cluster(*jobs)), found_of(job) | changed, lambda: seen).job
    except NotHere:
        return None


@pytest.mark.parametrize(
    ("jobs", "number"),
    [
        ([job("7", "RUNNING", "own-name")], "7"),
        ([job("7", "RUNNING", "own-name"), job("6", "RUNNING", "other")], None),
        ([job("7", "RUNNING", "llama"), job("6", "RUNNING", "other")], "7"),
        ([job("7", "FAILED", "llama")], "7"),
        ([job("7", "PENDING", "llama", None, ())], "7"),
        ([job("7", "FAILED", "llama"), job("8", "PENDING", "llama", 4_800.0, ())], None),
        ([job("7", "RUNNING", "own-name", nodes=("gpu0", "gpu2"))], None),
    ],
)
def test_a_job_with_a_name_of_its_own(jobs: list[SlurmJob], number: str | None) -> None:
    """It is the one that runs where its ranks were seen, or the only one of its name; of two it is neither."""
    assert number_of(*jobs) == number


def test_who_came_after_it_is_not_restarted_in_its_place() -> None:
    """The job has ended, and another tenant's began on its nodes after its ranks were last seen: nothing is restarted."""
    assert number_of(job("8", "RUNNING", "other", 4_610.0)) is None
    assert number_of(job("7", "FAILED", "own-name"), job("8", "RUNNING", "other", 4_610.0)) is None


def test_a_job_of_the_same_name_elsewhere_is_not_restarted() -> None:
    """Another user's job is called the same and runs on other nodes: nothing is restarted."""
    assert number_of(job("8", "RUNNING", "llama", nodes=("gpu2", "gpu3"))) is None


def test_a_job_is_known_by_its_number() -> None:
    """Agents call it by name and number: no other is looked for, whatever runs on its nodes."""
    assert number_of(job("7", "RUNNING", "llama"), job("8", "RUNNING", "llama"), job="llama-7") == "7"


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING", "FAILED"])
def test_a_name_with_a_number_of_anothers_job_restarts_nothing(state: str) -> None:
    """Somebody calls his ranks by another tenant's job: they were never seen where that one runs."""
    victim = job("7", state, "llama", nodes=("gpu2", "gpu3"))
    assert number_of(victim, job="llama-7") is None
    assert number_of(victim, job("8", "RUNNING", "own"), job="llama-7") is None
    assert number_of(job("7", state, "llama"), job="llama-7", seen=Placed(("elsewhere",), 5.0)) is None
    assert number_of(job("7", state, "llama"), job="llama-7", seen=Placed()) is None


@pytest.mark.parametrize("name", ["llama-7", "llama"])
def test_a_job_that_ended_before_the_ranks_were_seen_is_not_started_again(name: str) -> None:
    """Somebody goes on to call his ranks by a job that has failed; by as much as clocks may be apart is nobody's proof."""
    later = job("8", "CANCELLED", "own-name", 2_000.0, ended_at=4_605.0)
    assert number_of(job("7", "FAILED", "llama", ended_at=1_000.0), later, job=name) is None
    assert number_of(job("7", "FAILED", "llama", ended_at=4_588.0), job=name) is None
    assert number_of(job("7", "FAILED", "llama", ended_at=4_590.0), job=name) == "7"


def test_a_node_is_not_drained_for_a_job_that_cannot_be_told() -> None:
    """It is an eviction: it fails before anything is touched, and says what was not found."""
    cluster = cast("Slurm", Cluster(job("7", "RUNNING", "llama", nodes=("gpu2", "gpu3"))))
    work = work_of(cluster, found_of("llama-7", "evict", ["gpu0"]), lambda: SEEN)
    assert work.problem is not None
    assert "were seen elsewhere than Slurm's job 7 runs" in work.problem
    assert work.job is None


def test_a_run_that_began_after_the_ranks_were_seen_is_not_ended() -> None:
    """Slurm has put it back by itself: the run that was judged is over. A few seconds are nobody's proof of that."""
    assert number_of(job("7", "RUNNING", "llama", 4_620.0), job="llama-7") is None
    assert number_of(job("7", "RUNNING", "llama", 4_602.0), job="llama-7") == "7"


def test_what_was_begun_is_gone_on_with_wherever_the_job_runs_by_now() -> None:
    """The adapter was killed after it had put the job back: it was compared before, and is not given up now."""
    moved = job("7", "RUNNING", "llama", 4_700.0, nodes=("gpu2", "gpu3"))
    assert number_of(moved, job="llama-7", began_at=100.0) == "7"


def test_a_job_that_is_ending_is_known_by_the_nodes_that_it_still_has() -> None:
    """Slurm names those only on which its processes have not ended."""
    assert number_of(job("7", "COMPLETING", "llama", nodes=("gpu1",)), job="llama-7") == "7"


def test_who_shared_its_nodes_is_not_restarted_in_its_place() -> None:
    """The job has just failed, or Slurm has forgotten it, and another goes on that was there all the time."""
    other = job("8", "RUNNING", "other", ended_at=9_000.0)
    assert number_of(job("7", "FAILED", "own-name", ended_at=4_601.0), other) is None
    assert number_of(other, seen=Placed(SEEN.nodes, 421.0)) is None
    assert number_of(job("7", "CANCELLED", "before", ended_at=4_500.0), other) == "8"
    namesake = job("8", "RUNNING", "llama")
    assert number_of(job("7", "FAILED", "llama", ended_at=4_601.0), namesake) is None
    assert number_of(job("7", "FAILED", "llama", ended_at=4_500.0), namesake) == "8"


def test_a_job_that_has_never_run_is_not_touched() -> None:
    """It waits for its time, and has the number or the name: its ranks cannot have been seen."""
    for name in ("llama", "llama-7"):
        cluster = cast("Slurm", Cluster(job("7", "PENDING", "llama", None, ()), has_run=False))
        work = work_of(cluster, found_of(name), lambda: SEEN)
        assert "never run" in str(work.problem)


def test_two_nodes_that_would_be_one_are_not_drained() -> None:
    """Two clusters' nodes differ in their domains only: which of them this Slurm has cannot be known."""
    found = found_of(kind="drain_after_job", nodes=["gpu0.a.example", "gpu0.b.example"])
    assert "two would be the same" in str(work_of(cast("Slurm", Cluster()), found, lambda: SEEN).problem)
    both = Placed(("gpu0.a.example", "gpu0.b.example"), 5.0)
    assert number_of(job("7", "RUNNING", "llama"), job="llama-7", seen=both) is None
