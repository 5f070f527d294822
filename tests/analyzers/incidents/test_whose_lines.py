"""Whose a line of trouble is that a node's agent read: this job's, an ended job's, another program's, an earlier run's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.incidents.detectors import find_symptoms
from collectors.records import Members, Placement, ProcessState, Record
from tests.analyzers.incidents.test_repeated_stops import Engine
from tests.support.watched_jobs import START, WatchedJob, log_event


def other_job(ended_at: float, code: int = 0) -> list[tuple[float, str, Record]]:
    """Return what an agent reads of another job of two ranks on the node."""
    whose = {"job": "other", "attempt": 0}
    placement = Placement(
        **whose, at=START + 1.0, ranks=Members.of(range(2)), nodes=("n0",) * 2, pids=(900, 901), world_size=2  # type: ignore[arg-type]
    )  # fmt: skip
    found: list[tuple[float, str, Record]] = [(1.0, "n0", placement)]
    for rank in range(2):
        row = ProcessState(**whose, rank=rank, pid=900 + rank, state="R", at=START, started_at=START - 60.0)  # type: ignore[arg-type]
        found += [(float(at), "n0", replace(row, at=START + at)) for at in range(1, 200, 10) if at < ended_at]
        found.append((ended_at, "n0", replace(row, at=START + ended_at, state="X", exit_code=code)))
    return found


@pytest.mark.parametrize(
    ("ended_at", "told"),
    [(40.0, True), (95.0, False), (150.0, False)],
    ids=["ended before", "its last words may come", "runs, too"],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_line_of_no_job_is_of_the_only_one_that_runs(ended_at: float, told: bool, code: int) -> None:
    """Another job on the node has ended before, well or badly: the line is not its. While both write it may be either's."""
    line = replace(log_event(101.0, exception="ValueError", message="no token"), job=None, attempt=None)
    job = WatchedJob(nodes=1, stopped_at=100.0, extra=[*other_job(ended_at, code), (101.0, "n0", line)])
    engine = Engine().run(job, 0.0, 130.0)

    shown = find_symptoms(engine.state.jobs["run", 0], START + 130.0)
    assert ("failure_logged" in {one.detector for one in shown}) is told
    assert engine.state.jobs["other", 0].logged.entries == []
