"""Which records the engine keeps of a node."""

from __future__ import annotations

from collections import Counter

from analyzers.incidents.evidence import MOST_STEPS_OF_LEAD, Evidence
from collectors.records import Steps


def steps(rank: int, step: int, job: str = "llama") -> Steps:
    """Return a report of one step."""
    return Steps(source=f"log of {rank}", node="gpu-1", job=job, attempt=1, rank=rank, step=step, told_by="plain")


def test_of_one_rank_the_steps_of_two_minutes_are_kept() -> None:
    """A judgement that comes late on a busy machine still sees the spike for which the incident was opened."""
    evidence = Evidence()
    for number in range(100):
        evidence.add(number, [steps(5, number), steps(4, number), steps(9, number, job="other")])

    kept = [record for _, _, record in evidence.since(-1) if isinstance(record, Steps)]
    assert Counter((record.job, record.rank) for record in kept) == {
        ("llama", 4): MOST_STEPS_OF_LEAD, ("llama", 5): 3, ("other", 9): MOST_STEPS_OF_LEAD,
    }  # fmt: skip
    assert [record.step for record in kept if record.rank == 4] == list(range(100 - MOST_STEPS_OF_LEAD, 100))


def test_what_many_jobs_report_is_bounded() -> None:
    """Names of jobs that a node invents take no memory beyond their records."""
    evidence = Evidence()
    for number in range(1000):
        evidence.add(number, [steps(0, 1, job=f"job {number}")])

    assert len(evidence._leads) <= 64
