"""Whose a line of trouble is that a node's agent read: this job's, an ended job's, another program's, an earlier run's."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from analyzers.incidents.detectors import find_symptoms
from collectors.records import KernelEvent, LogEvent, Members, Placement, ProcessState, Record
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
    ("ended_at", "reported"),
    [(40.0, True), (95.0, False), (150.0, False)],
    ids=["ended before", "its last words may come", "runs, too"],
)
@pytest.mark.parametrize("code", [0, 1])
def test_a_line_of_no_job_is_of_the_only_one_that_runs(ended_at: float, reported: bool, code: int) -> None:
    """Another job on the node has ended before, well or badly: the line is not its. While both write it may be either's."""
    line = replace(log_event(101.0, exception="ValueError", message="no token"), job=None, attempt=None)
    job = WatchedJob(nodes=1, stopped_at=100.0, ended={2: (102.0, 1, None)})
    job.extra = [*other_job(ended_at, code), (101.0, "n0", line)]
    engine = Engine().run(job, 0.0, 135.0)

    shown = find_symptoms(engine.state.jobs["run", 0], START + 135.0)
    assert ("failure_logged" in {one.detector for one in shown}) is reported
    assert engine.state.jobs["other", 0].logged.entries == []


End = tuple[float, int | None, int | None]
XID_SHARE = 0.3
STOPPED: dict[int, End] = dict.fromkeys(range(4), (100.0, None, 15))


def row(rank: int, pid: int, at: float, worked: float, began: float) -> tuple[float, str, Record]:
    """Return what an agent reads of a process that has worked for so long."""
    state = ProcessState(
        job="run", attempt=0, rank=rank, pid=pid, state="R", at=START + at, started_at=START + began,
        cpu_seconds=worked, voluntary_switches=int(90 * worked),
    )  # fmt: skip
    return at, "n0", state


def started_again(seed: int, counted: bool, stands: float = float("inf")) -> WatchedJob:
    """Return a job that its owner stops and starts again, into the same log, of which an old line without a time is read again.

    The new run loads for minutes before its first step; ``stands``: it stands still from that instant on.
    """
    noise = random.Random(seed)
    began = 103.0 + noise.uniform(0.0, 40.0)
    words = noise.choice([
        {"exception": "ValueError", "message": "no token"}, {"event": "cuda_error", "text": "CUDA error"},
        {"event": "torchrun_failure", "message": "exit code 1"}, {"exception": "torch.OutOfMemoryError"},
    ])  # fmt: skip
    rank = noise.choice([None, 0, 2])
    read_at = began + noise.uniform(0.5, 12.0)
    line: Record = log_event(read_at, rank=rank, **words)
    xid: Record = KernelEvent(node="n0", at=START + 90.0, event="xid", code=13, pci="0000:9b:00", text="Xid 13")
    known = [(91.0, "n0", xid)] if noise.random() < XID_SHARE else []
    job = WatchedJob(nodes=1, stopped_at=99.0, ended=dict(STOPPED), extra=[(read_at, "n0", line), *known])
    placement = Placement(
        job="run", attempt=0, at=START + began, ranks=Members.of(range(4)), nodes=("n0",) * 4,
        pids=tuple(range(200, 204)), started_ats=(START + began,) * 4, world_size=4,
    )  # fmt: skip
    job.extra.append((began + 0.2, "n0", placement))
    phase = noise.uniform(0.0, 10.0)
    for turn in range(25):
        at = began + phase + 10.0 * turn
        worked = 0.8 * (min(at, stands) - began) if counted else 0.0
        job.extra += [row(one, 200 + one, at, worked, began) for one in range(4)]
    return job


def detectors_of(job: WatchedJob, until: float, every: Iterable[float] = ()) -> set[str]:
    """Return which detectors have shown anything, looked for after each batch and at some instants."""
    engine = Engine()
    shown: set[str] = set()
    for batch in job.batches(0.0, until):
        engine.give(batch, batch.received_at)
        if (view := engine.state.jobs.get(("run", 0))) is not None:
            for later in (0.0, 3.0, *every):
                shown |= {one.detector for one in find_symptoms(view, batch.received_at + later)}
    return shown


@pytest.mark.parametrize("seed", range(24))
def test_old_lines_without_a_time_accuse_no_run_that_loads(seed: int) -> None:
    """They are dated by their reading, when the next run is there, and that has done no step: the newest is of the last run."""
    assert "failure_logged" not in detectors_of(started_again(seed, counted=True), 260.0)


def test_a_run_that_raises_before_its_first_step_and_stands_is_told() -> None:
    """Its processes stand still since: half a minute later that is a crash."""
    assert "failure_logged" in detectors_of(started_again(3, counted=True, stands=120.0), 300.0)


def saves(seed: int, line: LogEvent, works: float = float("inf"), ends: dict[int, End] | None = None) -> WatchedJob:
    """Return a job of 1 s a step that saves for a while after 100 s; ``works``: until when rank 0 works, which saves."""
    noise = random.Random(seed)
    job = WatchedJob(nodes=1, stopped_at=100.0, ended=ends or {}, extra=[((line.at or 0.0) - START, "n0", line)])
    phase = noise.uniform(0.0, 10.0)
    for turn in range(30):
        at = 0.5 + phase + 10.0 * turn
        for rank in range(4):
            worked = min(at, works) if rank == 0 else min(at, 100.0)
            job.extra += [row(rank, 100 + rank, at, 0.8 * worked, -60.0)]
    return job


@pytest.mark.parametrize("whose", [None, 0])
@pytest.mark.parametrize("seed", range(8))
def test_another_programs_traceback_during_a_save_opens_no_crash(seed: int, whose: int | None) -> None:
    """It lies in a file that the agent reads for the job, whose rank 0 works for as long as it saves."""
    at = random.Random(seed).uniform(90.0, 118.0)
    kind = ("traceback", "cuda_error")[seed % 2]
    line = log_event(at, kind, exception="KeyError", message="no such table", rank=whose)

    assert "failure_logged" not in detectors_of(saves(seed, line), 160.0)


@pytest.mark.parametrize("whose", [None, 0])
def test_a_traceback_after_which_nothing_works_is_told(whose: int | None) -> None:
    """All processes stand, or one has left: the line is the job's."""
    line = log_event(101.0, exception="KeyError", message="no such table", rank=whose)

    assert "failure_logged" in detectors_of(saves(1, line, works=101.0), 150.0)
    assert "failure_logged" in detectors_of(saves(1, line, ends={2: (102.0, 1, None)}), 125.0)
