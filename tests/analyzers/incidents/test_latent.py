"""A rank that is slower than it was and does not slow its job is shown with the job, and opens nothing."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator

import msgspec
import pytest

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.latent import Latent
from collectors.records import Record, Ring
from tests.support.watched_jobs import START, WatchedJob

BEGAN, RECOVERED = 900.0, 1_500.0
Work = Callable[[int, float], float]
"""A rank and seconds since the start → its own time of each step."""


def _rings(node: int, at: float, own: Work, step_seconds: float) -> Iterator[Record]:
    for rank in range(4 * node, 4 * node + 4):
        ends = [START + at - 0.5 - back for back in range(9, -1, -1)]
        columns = {
            "step": array("q", map(int, ends)), "ended_ns": array("q", [int(end * 1e9) for end in ends]),
            "seconds": array("d", [step_seconds] * 10),
            "own_seconds": array("d", [own(rank, end - START) for end in ends]),
        }  # fmt: skip
        packed = {name: column.tobytes() for name, column in columns.items()}
        yield Ring(rank=rank, at=START + at, job="run", attempt=0, pid=rank, backend="gloo", timed=10, own=packed)


def found(own: Work, times: float = 1.0) -> list[Latent]:
    """Return who was latent after each minute. ``times``: how much longer steps are since ``BEGAN``."""
    job, view, latent = WatchedJob(law=_law(times)), JobView("run", 0), dict[int, Latent]()
    for batch in job.batches(0.0, 1_800.0):
        at = batch.received_at - START
        rings = tuple(_rings(int(batch.node[1:]), at, own, times if at > BEGAN else 1.0))
        view.take(msgspec.structs.replace(batch, records=(*batch.records, *rings)), (*batch.records, *rings))
        if view.latent.found is not None:
            latent[int(at // 60)] = view.latent.found
        if times == 1.0:
            assert find_symptoms(view, batch.received_at) == []
    return [latent[minute] for minute in sorted(latent)]


def _law(times: float) -> Callable[[int, random.Random], float]:
    return lambda step, random: random.uniform(0.98, 1.02) * (times if step > BEGAN else 1.0)


def _slower(ranks: set[int], by: float) -> Work:
    return lambda rank, at: 0.5 + (by if rank in ranks and BEGAN < at < RECOVERED else 0.0)


def test_a_slower_rank_that_nobody_waits_for_is_shown_until_it_recovers() -> None:
    """Its own time is up by a fifth of a step for ten minutes, and the steps are as long as before."""
    seen = found(_slower({5}, 0.2))

    assert {one.rank for one in seen} == {5}
    assert seen[0].before_seconds == pytest.approx(0.5)
    assert 8 <= len(seen) <= 13  # minutes: found in its third, and gone with its last


@pytest.mark.parametrize(
    ("own", "times"),
    [(_slower({5}, 0.05), 1.0), (_slower({2, 5}, 0.2), 1.0), (lambda rank, at: 0.7 if rank == 5 else 0.5, 1.0),
     (_slower({5}, 0.2), 1.2)],
    ids=["too little", "two ranks", "always so", "the job waits for it"],
)  # fmt: skip
def test_what_is_not_one_rank_without_its_job_is_not_latent(own: Work, times: float) -> None:
    """A small rise, several ranks, a rank that was always slower, and one that slows the job are not latent."""
    assert found(own, times) == []


def test_an_engine_that_begins_anew_knows_it() -> None:
    """What was found is stored with the job's progress."""
    view, again = JobView("run", 0), JobView("run", 0)
    view.latent.found = Latent(rank=5, since=START, before_seconds=0.5, seconds=0.7)

    again.restore(view.document(START + 60.0))

    assert again.latent.found == view.latent.found
